"""weir check: valid or not, and why not.

SPDX-License-Identifier: Apache-2.0
"""
import json

from weir_cli import DONE, NO, ROOT, RULES, rules_file, weir

BAD = RULES.replace("unit: minute", "unit: minutes")


def test_valid_rules_are_counted(tmp_path):
    done = weir("check", rules_file(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (DONE, "2 rules in 1 domain: ok\n", "")


def test_the_sample_rules_are_valid_without_a_warning():
    done = weir("check", ROOT / "examples/rules/terminal.yaml")
    assert done.returncode == DONE and done.stdout == "8 rules in 1 domain: ok\n"


def test_an_error_has_a_place_and_a_suggestion(tmp_path):
    path = rules_file(tmp_path, BAD)
    done = weir("check", path)
    assert done.returncode == NO
    first, last = done.stdout.splitlines()
    assert first.startswith(f"{path}:4:")
    assert "did you mean 'minute'?" in first
    assert last.startswith("1 error, 0 warnings")


def test_a_path_may_be_given_as_the_commands_that_run_rules_want_it(tmp_path):
    good, bad = rules_file(tmp_path), rules_file(tmp_path, BAD, "bad.yaml")
    assert weir("check", "--rules", good).stdout == "2 rules in 1 domain: ok\n"
    assert weir("check", f"--rules={good}", good, "--rules", good).stdout == "6 rules in 3 domains: ok\n"
    assert weir("check", "--rules", bad, "--rules", good).returncode == NO
    assert "--rules needs a value: PATH" in weir("check", "--rules").stderr
    assert "--rules PATH" in weir("check", "--help").stdout


def test_several_paths_are_checked_each(tmp_path):
    good, bad = rules_file(tmp_path), rules_file(tmp_path, BAD, "bad.yaml")
    assert weir("check", good, good).stdout == "4 rules in 2 domains: ok\n"
    assert weir("check", good, bad).returncode == NO
    assert weir("check", bad, good).returncode == NO


def test_a_directory_is_one_set(tmp_path):
    rules_file(tmp_path, RULES, "a.yaml")
    rules_file(tmp_path, RULES.replace("domain: api", "domain: other"), "b.yaml")
    assert weir("check", tmp_path).stdout == "4 rules in 2 domains: ok\n"


def test_one_domain_in_two_files_needs_the_flag(tmp_path):
    rules_file(tmp_path, RULES, "a.yaml")
    rules_file(tmp_path, "domain: api\ndescriptors: [{key: ip, rate_limit: {unit: day, requests_per_unit: 1}}]\n",
               "b.yaml")
    assert weir("check", tmp_path).returncode == NO
    assert weir("check", "--merge-domains", tmp_path).stdout == "3 rules in 1 domain: ok\n"


def test_what_cannot_be_read_is_not_valid(tmp_path):
    done = weir("check", tmp_path / "absent.yaml")
    assert done.returncode == NO and "absent.yaml" in done.stdout


def test_json_is_one_object(tmp_path):
    path = rules_file(tmp_path, BAD)
    done = weir("check", "--json", path)
    said = json.loads(done.stdout)
    assert done.returncode == NO
    assert said["ok"] is False and said["errors"] == 1 and said["warnings"] == 0
    [message] = said["messages"]
    assert message["level"] == "error" and message["file"] == str(path)
    assert message["line"] == 4 and message["column"] > 1 and "minute" in message["text"]

    said = json.loads(weir("check", "--json", rules_file(tmp_path)).stdout)
    assert said == dict(ok=True, rules=2, domains=1, errors=0, warnings=0, messages=[])


def test_garbage_is_refused(tmp_path):
    path = tmp_path / "garbage.yaml"
    for garbage in (bytes(range(256)) * 50, b"\0" * 1000, b"[" * 100000, b"a: &a [*a]", b"\xff\xfe" * 10):
        path.write_bytes(garbage)
        done = weir("check", path)
        assert done.returncode == NO and "garbage.yaml" in done.stdout
