"""The tools that judge the code, judged: each must find what is planted, and nothing else.

SPDX-License-Identifier: Apache-2.0
"""
import importlib.machinery
import importlib.util
import os
import stat
import sys

import pytest

TOOLS = os.path.join(os.path.dirname(__file__), "..", "..", "tools")


def load(name):
    sys.path.insert(0, TOOLS)
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(TOOLS, name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


check_layers = load("check_layers")
check_size = load("check_size")
run_tests = load("run_tests")


def layer_faults(path, text):
    return [why for _, why in check_layers.faults_of(path, text)]


@pytest.mark.parametrize("path, header", [
    ("lib/base/x.c", '"algo/limit.h"'),
    ("lib/algo/x.c", '"table/table.h"'),
    ("lib/rules/x.c", '"store/local.h"'),
    ("nginx/x.c", '"base/hash.h"'),
    ("lib/algo/x.c", "<yaml.h>"),
    ("lib/store/x.c", "<pthread.h>"),
    ("lib/rules/x.c", "<jansson.h>"),
])
def test_a_layer_that_reaches_too_far_is_found(path, header):
    assert len(layer_faults(path, f"#include {header}\n")) == 1


@pytest.mark.parametrize("path, header", [
    ("lib/algo/x.c", '"base/hash.h"'),
    ("lib/algo/x.c", "<weir/types.h>"),
    ("lib/rules/x.c", "<yaml.h>"),
    ("nginx/x.c", "<weir/weir.h>"),
    ("cli/x.c", '"engine/engine.h"'),
    ("cli/x.c", '"cli.h"'),
    ("tests/unit/x.c", '"table/layout.h"'),
])
def test_what_the_arrows_allow_is_allowed(path, header):
    assert layer_faults(path, f"#include {header}\n") == []


def test_an_include_may_be_excused():
    assert layer_faults("lib/algo/x.c", "#include <pthread.h> /* layer: a mutex, no thread */\n") == []


def test_banned_functions_are_found_in_code_only():
    assert layer_faults("cli/x.c", "int f(void)\n{\n    return atoi(s);\n}\n") == ["atoi() is banned"]
    assert layer_faults("cli/x.c", '/* atoi(s) */ "atoi(s)"; my_atoi(s); // rand()\n') == []


def test_allocating_while_deciding_needs_a_reason():
    function = "void *f(void)\n{\n    return malloc(1);\n}\n"
    assert len(layer_faults("lib/engine/x.c", function)) == 1
    assert layer_faults("lib/engine/x.c", "/* alloc: at open only */\n" + function) == []
    assert len(layer_faults("lib/engine/x.c", "/* alloc: at open only */\n" + function * 2)) == 1
    assert layer_faults("lib/rules/x.c", function) == []


def size_faults(tmp_path, text):
    path = str(tmp_path / "x.c")
    (tmp_path / "x.c").write_text(text)
    found = list(check_size.file_faults(text)) + list(check_size.function_faults({path: text}))
    return [fault[-1] for fault in found]


def function_of(lines, head=""):
    return f"{head}int f(int a)\n{{\n" + "    a++;\n" * (lines - 4) + "    return a;\n}\n"


def test_long_functions_are_found(tmp_path):
    assert size_faults(tmp_path, function_of(60)) == []
    assert size_faults(tmp_path, function_of(61)) == ["f has 61 lines, more than 60"]
    assert size_faults(tmp_path, function_of(61, "/* size: one table */\n")) == []
    assert size_faults(tmp_path, function_of(61, "/* f.\n * size: one table */\n")) == []
    assert len(size_faults(tmp_path, function_of(61, 'char *s = "the size: 3";\n'))) == 1


def test_complex_functions_are_found(tmp_path):
    def branches(n):
        return "int f(int a)\n{\n" + "    if (a)\n        a++;\n" * n + "    return a;\n}\n"
    assert size_faults(tmp_path, branches(14)) == []
    assert size_faults(tmp_path, branches(15)) == ["f has complexity 16, more than 15"]


def test_long_files_and_lines_are_found(tmp_path):
    assert size_faults(tmp_path, "int a;\n" * 600) == []
    assert size_faults(tmp_path, "int a;\n" * 601) == ["601 lines, more than 600"]
    assert size_faults(tmp_path, "/* size: data */\n" + "int a;\n" * 601) == []
    assert size_faults(tmp_path, "/*" + "x" * 97 + "*/\n") == ["101 columns, more than 100"]


def test_wide_prose_is_found():
    wide, block, row = "x" * 121 + "\n", "```\n" + "x" * 200 + "\n```\n", "|" + "x" * 200 + "|\n"
    assert list(check_size.page_faults("x" * 120 + "\n" + block + row)) == []
    assert list(check_size.page_faults(block + row + wide)) == [(5, "121 columns, more than 120")]


def test_wide_python_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests" / "e2e").mkdir(parents=True)
    for name, line in (("a.py", "x" * 121), ("b.py", "x" * 120), ("program", "x" * 121), ("data", "x" * 121)):
        head = "#!/bin/sh" if name == "data" else "#!/usr/bin/python3"
        (tmp_path / "tests" / "e2e" / name).write_text(f"{head}\n{line}\n")
    assert sorted(check_size.python_faults()) == [
        (f"tests/e2e/{name}", 2, "121 columns, more than 120") for name in ("a.py", "program")]


@pytest.mark.parametrize("text, how, wanted", [
    ("1..2\nok 1 - a\nok 2 - b\n", "", (2, 0, "")),
    ("1..2\nok 1 - a\nnot ok 2 - b\n", "exit status 1", (1, 1, "exit status 1")),
    ("1..3\nok 1 - a\n", "killed by SIGSEGV", (1, 2, "killed by SIGSEGV")),
    ("1..3\nok 1 - a\n", "", (1, 2, "stopped before the end")),
    ("1..1\nok 1 - a\n", "exit status 23", (1, 1, "exit status 23")),
    ("1..1\nok 1 - a\n1..1\nok 1 - b\n", "", (2, 0, "")),
    ("1..11\n" + "ok 1 - a\n" * 9 + "not ok 10 # SKIP b\nok 11 # SKIP c\n", "", (9, 0, "")),
    ("1..1\nnot ok 1 # SKIP a\n", "", (0, 0, "")),
    ("1..3\nok 1 - a\nnot ok 2 # SKIP b\n", "", (1, 1, "stopped before the end")),
    ("no words at all\n", "", (1, 0, "")),
    ("", "killed by SIGABRT", (0, 1, "killed by SIGABRT")),
    ("....\n4 passed in 0.11s\n", "", (4, 0, "")),
    ("1..1\n100000 rules in 0.5s\nok 1 - a\n", "", (1, 0, "")),
    ("3 skipped in 0.11s\n", "", (0, 0, "")),
    ("1 failed, 2 passed, 1 skipped in 0.11s\n", "exit status 1", (2, 1, "exit status 1")),
    ("2 passed, 1 warning, 2 errors in 61.11s (0:01:01)\n", "exit status 1", (2, 2, "exit status 1")),
])
def test_cases_are_counted_whatever_the_program_did(text, how, wanted):
    assert run_tests.count(text, how) == wanted


def program(tmp_path, body, timeout=5):
    path = tmp_path / "program"
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"cmd": [str(path)], "env": {}, "workdir": None, "timeout": timeout}


def test_a_crash_is_a_failure(tmp_path):
    result = run_tests.run(program(tmp_path, "echo 1..1; echo ok 1 - a; kill -SEGV $$\n"))
    assert (result["passed"], result["failed"], result["how"]) == (1, 1, "killed by SIGSEGV")


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path):
    result = run_tests.run(program(tmp_path, "echo begun; sleep 1000 & sleep 1000\n", timeout=0.2))
    assert (result["passed"], result["failed"]) == (0, 1)
    assert result["how"] == "still running after 0.2 s"
    assert "begun" in result["text"]
    assert result["seconds"] < 5
