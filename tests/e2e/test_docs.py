"""The documentation says what is: its rules load, its commands give their output, its C compiles, its links lead
somewhere, and its tables of offsets and maxima are those of the headers.

A block that begins with `# NAME` is a file of that name for the commands of its page; rules named bad* must be
refused.

SPDX-License-Identifier: Apache-2.0
"""
import glob
import json
import os
import re
import subprocess

import pytest

from weir_cli import ROOT, WEIR, weir

os.chdir(ROOT)
PAGES = ["README.md", *sorted(glob.glob("docs/**/*.md", recursive=True))]


def text_of(page):
    with open(page, encoding="utf-8") as file:
        return file.read()


def blocks(page, *languages):
    """The fenced blocks of a page that are in one of these languages."""
    return re.findall(rf"^```(?:{'|'.join(languages)})\n(.*?)^```$", text_of(page), re.M | re.S)


def file_name(block):
    named = re.match(r"# ([\w.-]+\.\w+)\n", block)
    return named[1] if named else None


def write_files(page, folder):
    for block in blocks(page, "yaml", "csv", "json"):
        if file_name(block):
            (folder / file_name(block)).write_text(block)


def is_whole(block):
    """Rules that stand by themselves: the first line that is no comment names a domain."""
    lines = [line for line in block.splitlines() if not line.startswith("#")]
    return bool(lines) and lines[0].startswith("domain:")


RULES = [(page, block) for page in PAGES for block in blocks(page, "yaml") if is_whole(block)]


@pytest.mark.parametrize("page, block", RULES, ids=[f"{p}:{i}" for i, (p, _) in enumerate(RULES)])
def test_rules_are_as_good_as_the_page_says(page, block, tmp_path):
    write_files(page, tmp_path)
    path = tmp_path / "block.yaml"
    path.write_text(block)
    done = weir("check", path)
    is_bad = (file_name(block) or "").startswith("bad")
    assert done.returncode == (1 if is_bad else 0), done.stdout + done.stderr
    if not is_bad:
        assert "warning" not in done.stdout + done.stderr


def test_there_are_rules_for_every_algorithm():
    text = "".join(blocks("docs/algorithms.md", "yaml"))
    for algorithm in ("sliding_window_counter", "sliding_window_log", "token_bucket", "leaky_bucket", "concurrency",
                      "approximate"):
        assert algorithm in text


COMMANDS = [(page, block) for page in PAGES if page != "README.md" for block in blocks(page, "console")]


@pytest.mark.parametrize("page, block", COMMANDS, ids=[f"{p}:{i}" for i, (p, _) in enumerate(COMMANDS)])
def test_a_command_prints_what_the_page_shows(page, block, tmp_path):
    write_files(page, tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/weir").symlink_to(os.path.abspath(WEIR))
    command, _, wanted = block.partition("\n")
    done = subprocess.run(command.removeprefix("$ "), shell=True, cwd=tmp_path, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=dict(os.environ, PATH=f"{tmp_path}/bin:{os.environ['PATH']}"))
    assert done.stdout == wanted


PROGRAMS = [block for page in PAGES for block in blocks(page, "c") if block.startswith("#include")]


@pytest.mark.parametrize("block", PROGRAMS, ids=range(len(PROGRAMS)))
def test_c_compiles(block, tmp_path):
    (tmp_path / "block.c").write_text(block)
    done = subprocess.run(["cc", "-std=c17", "-Wall", "-Wextra", "-Wno-unused-function", "-Werror", "-fsyntax-only",
                           f"-I{ROOT}/include", "block.c"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def anchors(page):
    """What a link to the page may name behind a #: its headings, as GitHub spells them."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_somewhere(page, link):
    path, _, anchor = link.partition("#")
    target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
    return os.path.exists(target) and (not anchor or anchor in anchors(target))


@pytest.mark.parametrize("page", ["CHANGELOG.md", "CONTRIBUTING.md", *PAGES])
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^):]+)\)", text_of(page))
    assert [link for link in links if not leads_somewhere(page, link)] == []


@pytest.mark.parametrize("page", PAGES)
def test_files_that_are_named_exist(page):
    named = re.findall(r"`((?:lib|cli|tests|tools|docs|include|examples)/[\w./-]*\w)`", text_of(page))
    assert [name for name in named if not os.path.exists(name)] == []


def test_every_page_is_in_the_index():
    for folder in ("docs", "docs/decisions"):
        index = text_of(f"{folder}/README.md")
        for page in glob.glob(f"{folder}/*.md"):
            name = os.path.basename(page)
            assert name == "README.md" or f"({name})" in index, f"{page} is not in {folder}/README.md"


def test_the_tree_of_the_architecture_exists():
    tree = text_of("docs/architecture.md").split("## The tree")[1].split("```")[1]
    named = re.findall(r"^(\S+)/ ", tree, re.M)
    assert [name for name in named if not os.path.isdir(name)] == []
    assert {os.path.dirname(path) for path in glob.glob("lib/*/*.c")} <= set(named)


OFFSETS = """
#include "table/layout.h"
#include "table/extent.h"
#include <stdio.h>
#define SHOW(s, f) printf(#f " %zu %zu\\n", offsetof(struct s, f), sizeof(((struct s *)0)->f));
#define H(f) SHOW(weir_table_header, f)
#define O(f) SHOW(weir_key_override_row, f)
#define T(f) SHOW(weir_top_row, f)
#define P(f) SHOW(weir_process_row, f)
#define R(f) SHOW(weir_record, f)
int main(void) {
"""


def rows_after(page, heading, columns):
    """The rows of the first table below a heading, without its head."""
    section = re.split(r"^## ", text_of(page).split(f"\n## {heading}\n")[1], flags=re.M)[0]
    rows = [re.split(r"\s*\|\s*", line.strip("| \n")) for line in section.splitlines() if line.startswith("|")]
    return [row[:columns] for row in rows[2:]]


@pytest.mark.parametrize("heading, macro, struct",
                         [("Header", "H", "weir_table_header"), ("Records", "R", "weir_record"),
                          ("Overrides of keys", "O", "weir_key_override_row"),
                          ("Busy counters", "T", "weir_top_row"), ("Processes", "P", "weir_process_row")])
def test_offsets_are_those_of_the_header(heading, macro, struct, tmp_path):
    shown = [(name.strip("`"), int(at), int(size)) for name, at, size in
             rows_after("docs/table-format.md", heading, 3)]
    body = "".join(f"{macro}({name})\n" for name, _, _ in shown)
    (tmp_path / "offsets.c").write_text(f"{OFFSETS}{body}printf(\"end %zu 0\\n\", sizeof(struct {struct}));}}\n")
    machine = os.uname().machine
    wide = "-mcx16" if machine == "x86_64" else "-march=armv8.1-a"
    subprocess.run(["cc", "-std=gnu17", wide, f"-I{ROOT}/lib", f"-I{ROOT}/include", "-o", "offsets", "offsets.c"],
                   cwd=tmp_path, check=True)
    told = subprocess.run([tmp_path / "offsets"], capture_output=True, text=True, check=True).stdout
    real = [(name, int(at), int(size)) for name, at, size in (line.split() for line in told.splitlines())]
    assert shown == real[:-1]
    # No field is left out: each begins where the one before it ends, and the last ends the struct.
    ends = [0] + [at + size for _, at, size in shown]
    assert [at for _, at, _ in shown] + [real[-1][1]] == ends


def test_maxima_are_those_of_the_header():
    header = re.findall(r"^#define (WEIR_\w+) (\(.*?\)|\d+)", text_of("lib/base/maxima.h"), re.M)
    real = {name: eval(re.sub(r"(\d)u\b", r"\1", number)) for name, number in header}  # numbers and shifts only
    shown = {name.strip("`"): int(number) for name, number in rows_after("docs/security.md", "Maxima", 2)}
    assert shown == real


def test_fields_of_rules_are_all_told():
    text = text_of("docs/rules.md")
    fields = re.findall(r"^WEIR_FIELD\((\w+),", text_of("lib/rules/fields.def"), re.M)
    assert len(fields) > 30
    assert [field for field in fields if f"`{field}`" not in text] == []


def test_errors_of_the_library_are_told():
    known = set(re.findall(r"^ +X\((\w+),", text_of("include/weir/types.h"), re.M))
    named = set(re.findall(r"WEIR_ERR_(\w+)", text_of("docs/library.md")))
    assert named <= known
    assert known - named <= {"UNSUPPORTED"}


def test_a_table_is_divided_as_the_page_says(tmp_path):
    (tmp_path / "rules.yaml").write_text("domain: any\n")
    weir("replay", "--rules", tmp_path / "rules.yaml", "--table", tmp_path / "table", "--table-size", "64m")
    stat = json.loads(weir("table", "stat", "--json", tmp_path / "table").stdout)
    rows = {row[0]: row[2] for row in rows_after("docs/operations.md", "How large", 3)}
    assert rows["slots"] == f"{stat['slots']:,}"
    assert rows["sketch"] == f"{stat['sketch_cells']:,} cells"
    assert rows["extents"] == f"{stat['extent_bytes'] >> 20} MiB"
    assert rows["records"] == f"{stat['records']:,}"


def test_bounds_can_be_computed():
    rows = rows_after("docs/algorithms.md", "Bounds", 2)
    assert len(rows) == len({name for name, _ in rows}) == 9
    for name, formula in rows:
        assert re.fullmatch(r"[LB0-9*+ ]+", formula), name
        assert eval(formula, {"L": 10, "B": 5}) >= 10


def test_options_of_the_library_are_told():
    options = text_of("include/weir/weir.h").split("struct weir_options {")[1].split("};")[0]
    fields = re.findall(r"(\w+);", re.sub(r"/\*.*?\*/", "", options, flags=re.S))
    assert len(fields) > 8
    shown = text_of("docs/library.md")
    assert [field for field in fields if f"`{field}`" not in shown and field != "log_ctx"] == []


def test_functions_of_the_library_are_told():
    functions = re.findall(r"^WEIR_API [^;(]*?\b(weir_\w+)\(", text_of("include/weir/weir.h"), re.M)
    assert len(functions) > 15
    shown = text_of("docs/library.md").replace("weir_stats_*()", "")
    assert [function for function in functions if f"{function}(" not in shown] == []
