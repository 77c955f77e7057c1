"""c_files - our C files, and ways to cut them up without a parser; for the checkers beside it.

SPDX-License-Identifier: Apache-2.0
"""
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def c_files():
    """Paths of all C files that are, or are about to be, in the repository, from its root."""
    os.chdir(ROOT)
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                            check=True, capture_output=True, text=True).stdout.splitlines()
    return sorted({path for path in listed if path.endswith((".c", ".h")) and os.path.exists(path)})


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
