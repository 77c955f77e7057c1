"""The command line as such: help, exit status, mistyped words.

SPDX-License-Identifier: Apache-2.0
"""
import pathlib
import re

import pytest

from weir_cli import DONE, ROOT, USAGE, WORLD, rules_file, weir

COMMANDS = ["check", "explain", "replay", "table", "bench", "demo"]
COMING = ["tune", "top", "fetch", "export"]


def test_help_names_every_command_and_fits_a_screen():
    done = weir("--help")
    assert done.returncode == DONE and done.stderr == ""
    for command in COMMANDS + ["serve", "gateway", "rules"] + COMING:
        assert re.search(rf"^  {command}\b", done.stdout, re.M)
    assert len(done.stdout.splitlines()) <= 24
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_fits_a_screen(command):
    by_flag, by_word = weir(command, "--help"), weir("help", command)
    assert by_flag.returncode == by_word.returncode == DONE
    assert by_flag.stdout == by_word.stdout
    assert f"usage: weir {command}" in by_flag.stdout
    assert len(by_flag.stdout.splitlines()) <= 30
    assert max(map(len, by_flag.stdout.splitlines())) <= 80


@pytest.mark.parametrize("command", ["serve", "gateway"])
def test_help_of_a_command_with_many_options_fits_a_screen_and_names_the_rest(command):
    brief, whole = weir(command, "--help").stdout, weir("help", command).stdout
    assert f"usage: weir {command}" in brief and f"weir help {command}" in brief
    assert len(brief.splitlines()) <= 40 < len(whole.splitlines())
    assert max(map(len, brief.splitlines())) <= 80
    options = re.findall(r"^  (--[a-z-]+)", brief, re.M)
    assert len(options) > 10 and set(options) <= set(re.findall(r"^  (--[a-z-]+)", whole, re.M))


def manual(command):
    """What is said of a command: a page of its own, or a section of weir(1)."""
    folder = pathlib.Path(ROOT) / "docs/man"
    page = folder / f"weir-{command}.1"
    if page.exists():
        return page.read_text()
    sections = re.split(r"^\.S[SH] ", (folder / "weir.1").read_text(), flags=re.M)
    return next(section for section in sections if section.startswith(f'"weir {command}'))


@pytest.mark.parametrize("command", COMMANDS + ["gateway", "rules"])
def test_man_pages_have_all_options_and_no_others(command):
    known = re.findall(r"^  --([a-z-]+)", weir("help", command).stdout, re.M)
    told = re.findall(r"^\.TP\n\.BI? --([a-z-]+)", manual(command).replace("\\-", "-"), re.M)
    assert set(known) - {"help"} == set(told) - {"help"}


def test_nothing_at_all_is_wrong_usage():
    done = weir()
    assert done.returncode == USAGE and "usage:" in done.stderr and done.stdout == ""


def test_version_is_one_line():
    done = weir("--version")
    assert done.returncode == DONE and re.fullmatch(r"weir \d+\.\d+\.\d+\S*\n", done.stdout)


@pytest.mark.parametrize("command", COMING)
def test_a_command_of_a_later_version_says_so(command):
    for args in ([command], [command, "--rules", "x"], ["help", command]):
        done = weir(*args)
        assert done.returncode == WORLD
        assert "not in this version" in done.stderr


@pytest.mark.parametrize("args, said", [
    (["chekc"], "did you mean 'check'?"),
    (["repaly"], "did you mean 'replay'?"),
    (["xyzzy"], "'weir --help' lists them"),
    (["check", "--jsno", "x"], "did you mean --json?"),
    (["check", "--jsno=1", "x"], "did you mean --json?"),
    (["replay", "--rule", "x"], "did you mean --rules?"),
    (["bench", "--frobnicate"], "'weir help bench' lists them"),
    (["check", "-j", "x"], "options have two dashes"),
    (["check", "--json=yes", "x"], "takes no value"),
    (["replay", "--rules"], "--rules needs a value: PATH"),
    (["bench", "--keys", "many"], "is not a number from 1 to"),
    (["bench", "--keys", "-1"], "is not a number from 1 to"),
    (["bench", "--keys", "0"], "is not a number from 1 to"),
    (["bench", "--keys", "99999999999999999999999"], "is not a number from 1 to"),
    (["bench", "--seconds", "0"], "is not a number of seconds"),
    (["bench", "--seconds", "nan"], "is not a number of seconds"),
    (["bench", "--algorithm", "token_buket"], "did you mean token_bucket?"),
    (["bench", "extra"], "too many arguments"),
    (["table", "resize", "x", "--size", "12q"], "is not a size"),
    (["table", "resize", "x", "--size", "99999999999g"], "is not a size"),
    (["table", "resize", "x"], "--size SIZE is missing"),
    (["table", "stats", "x"], "did you mean 'stat'?"),
    (["table", "stat"], "too few arguments"),
    (["check"], "too few arguments"),
    (["explain"], "too few arguments"),
    (["explain", "api"], "--rules PATH is missing"),
    (["replay"], "--rules PATH is missing"),
    (["replay", "--rules", "x", "--format", "xml"], "'xml' is not known"),
])
def test_wrong_usage_says_what_would_be_right(args, said):
    done = weir(*args)
    assert done.returncode == USAGE
    assert said in done.stderr and done.stdout == ""


def test_operands_may_follow_two_dashes(tmp_path):
    rules_file(tmp_path, name="--json")
    done = weir("check", "--", f"{tmp_path}/--json")
    assert done.returncode == DONE, done.stderr


def test_a_full_disk_does_not_look_like_success(tmp_path):
    import subprocess
    from weir_cli import WEIR
    with open("/dev/full", "w") as full:
        done = subprocess.run([WEIR, "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == WORLD and "cannot write" in done.stderr


def test_the_man_page_knows_every_command_and_option():
    page = (ROOT / "docs/man/weir.1").read_text().replace("\\-", "-")
    for command in COMMANDS:
        assert re.search(rf"^\.SS .*\b{command}\b", page, re.M), command
        for option in re.findall(r"^  (--[a-z-]+)", weir("help", command).stdout, re.M):
            assert option in page, f"{command} {option}"
