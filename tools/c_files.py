#!/usr/bin/python3
"""c_files - our C files, and ways to cut them up without a parser; for the checkers beside it.

Run as a program it prints their names.

SPDX-License-Identifier: Apache-2.0
"""
import os
import pathlib
import re

FOLDERS = "include lib serve nginx cli examples bench tests".split()


def c_files():
    """Paths of all our C files, from the top of the repository, where we then are."""
    os.chdir(pathlib.Path(__file__).resolve().parent.parent)
    return sorted(str(path) for folder in FOLDERS for path in pathlib.Path(folder).rglob("*.[ch]"))


def chunks(text):
    """(first line, text) of each part that ends with a } in the first column: roughly, each
    function with the comment above it."""
    start, part = 1, []
    for number, line in enumerate(text.splitlines(), 1):
        part.append(line)
        if line.startswith("}"):
            yield start, "\n".join(part)
            start, part = number + 1, []
    yield start, "\n".join(part)


def has_excuse(text, word):
    """Whether a comment, or a line of one, begins with `word: ` and goes on to say why."""
    return re.search(rf"(/\*|//|^ *\*) *{word}: \S", text, re.M) is not None


def code_of(text):
    """The text without what stands in comments and strings; lines keep their numbers."""
    pattern = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return re.sub(pattern, lambda found: "\n" * found[0].count("\n") or " ", text, flags=re.S)


if __name__ == "__main__":
    print(*c_files(), sep="\n")
