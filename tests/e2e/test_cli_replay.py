"""weir replay: decisions in virtual time, as the golden vectors say.

SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import pathlib

import pytest

from weir_cli import DONE, NO, ROOT, T0, USAGE, WORLD, lines, replay, request, rules_file, weir

SECOND = 10**9


def vectors():
    """name -> path of its rules.  Ours, and those that stand elsewhere too."""
    folders = [ROOT / "tests/vectors", pathlib.Path(os.environ.get("WEIR_VECTORS") or ROOT.parent / "shared/vectors")]
    found = {}
    for folder in folders:
        for rules in sorted(folder.glob("*.rules.yaml")):
            found[rules.name.removesuffix(".rules.yaml")] = rules
    assert len(found) >= 26
    return found


VECTORS = vectors()


@pytest.mark.parametrize("name", VECTORS)
def test_golden_vector(name):
    rules = VECTORS[name]
    trace = rules.with_name(name + ".trace.jsonl")
    done = weir("replay", "--rules", rules, trace)
    assert done.returncode == DONE, done.stderr
    expected = [json.loads(line)["expect"] for line in trace.read_text().splitlines()]
    got = done.stdout.splitlines()
    assert len(got) == len(expected)
    for number, (line, expect) in enumerate(zip(got, expected), 1):
        assert line == json.dumps(expect), f"{trace.name}:{number}"
    assert weir("replay", "--check", "--rules", rules, trace).stdout == f"{len(got)} decisions compared, 0 differ\n"


def test_standard_input_is_read_without_a_file(tmp_path):
    rules, trace = rules_file(tmp_path), lines(request(), request())
    (tmp_path / "trace").write_text(trace)
    by_stdin = weir("replay", "--rules", rules, stdin=trace)
    assert by_stdin.returncode == DONE
    assert by_stdin.stdout == weir("replay", "--rules", rules, "-", stdin=trace).stdout
    assert by_stdin.stdout == weir("replay", "--rules", rules, tmp_path / "trace").stdout
    assert len(by_stdin.stdout.splitlines()) == 2


def test_a_descriptor_without_a_limit_is_just_ok(tmp_path):
    [decision] = replay(rules_file(tmp_path), request(entries=[("colour", "red")]))
    assert decision == dict(overall="OK", statuses=[dict(code="OK")])


def test_entries_may_be_objects(tmp_path):
    line = dict(t_ns=T0, domain="api", descriptors=[dict(entries=[dict(key="user", value="alice")])])
    as_object, as_pair = replay(rules_file(tmp_path), line, request())
    assert as_object["statuses"][0]["remaining"] == 2 and as_pair["statuses"][0]["remaining"] == 1


def test_hits_of_the_descriptor_go_before_the_requests(tmp_path):
    line = dict(t_ns=T0, domain="api", hits=1, descriptors=[dict(entries=[["user", "alice"]], hits=3)])
    [decision] = replay(rules_file(tmp_path), line)
    assert decision["statuses"][0]["remaining"] == 0


def test_no_hits_look_and_negative_hits_give_back(tmp_path):
    hits = [1, 2, 0, 1, -2, 0, 1]
    got = replay(rules_file(tmp_path, """\
domain: api
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 3, count_rejected: false}
"""), *[request(hits=h) for h in hits])
    assert [d["overall"] for d in got] == ["OK", "OK", "OK", "OVER_LIMIT", "OK", "OK", "OK"]
    assert [d["statuses"][0]["remaining"] for d in got] == [2, 0, 0, 0, 2, 2, 1]


def test_a_request_may_bring_its_limit(tmp_path):
    line = request(entries=[("colour", "red")])
    line["descriptors"][0]["limit"] = dict(requests_per_unit=2, unit="MINUTE")
    got = replay(rules_file(tmp_path), line, line, line)
    assert [d["overall"] for d in got] == ["OK", "OK", "OVER_LIMIT"]
    assert got[0]["statuses"][0]["limit"] == 2


def test_more_hits_than_can_ever_pass_are_refused_for_good(tmp_path):
    got = replay(rules_file(tmp_path), request(hits=4), request(hits=2**63 - 1, t_ns=T0 + 60 * SECOND))
    assert [d["statuses"][0]["retry_after_ns"] for d in got] == [None, None]


def test_the_summary_counts_by_rule(tmp_path):
    trace = lines(*[request(t_ns=T0 + i * SECOND) for i in range(5)], request(entries=[("colour", "red")]))
    done = weir("replay", "--rules", rules_file(tmp_path), "--summary", stdin=trace)
    assert done.returncode == DONE
    assert "6 requests in 4 s" in done.stdout
    assert "api.user" in done.stdout and "(no limit)" in done.stdout
    said = json.loads(weir("replay", "--rules", rules_file(tmp_path), "--summary", "--json", stdin=trace).stdout)
    assert (said["requests"], said["allowed"], said["refused"]) == (6, 4, 2)
    assert [(r["rule"], r["requests"], r["refused"]) for r in said["rules"]] \
        == [("api.user", 5, 2), ("(no limit)", 1, 0)]


def test_the_summary_names_what_shadow_mode_spares(tmp_path):
    rules = rules_file(tmp_path, """\
domain: api
descriptors:
  - key: user
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
""")
    said = json.loads(weir("replay", "--rules", rules, "--summary", "--json", stdin=lines(request(), request())).stdout)
    assert (said["allowed"], said["refused"], said["shadow"]) == (2, 0, 1)


def test_check_reports_the_field_that_differs(tmp_path):
    right = dict(overall="OK", statuses=[dict(code="OK", limit=3, remaining=2, reset_after_ns=60 * SECOND,
                                              retry_after_ns=0, delay_ns=0)])
    wrong = json.loads(json.dumps(right))
    wrong["statuses"][0].update(remaining=7, colour="red")
    done = weir("replay", "--check", "--rules", rules_file(tmp_path), stdin=lines(
        request(expect=right), request(entries=[("user", "bob")], expect=wrong), request(entries=[("user", "eve")])))
    assert done.returncode == NO
    assert done.stdout == ("stdin:2: statuses[0].remaining: expected 7, got 2\n"
                           "stdin:2: statuses[0].colour: expected \"red\", got nothing\n"
                           "2 decisions compared, 1 differ\n")


def test_check_without_expectations_is_a_no(tmp_path):
    done = weir("replay", "--check", "--rules", rules_file(tmp_path), stdin=lines(request()))
    assert done.returncode == NO and "no line says what to expect" in done.stderr


def test_access_logs_are_not_supported_yet(tmp_path):
    for name in ("combined", "json"):
        done = weir("replay", "--rules", rules_file(tmp_path), "--format", name)
        assert done.returncode == WORLD and "not supported yet" in done.stderr


def test_files_that_are_not_there(tmp_path):
    assert weir("replay", "--rules", rules_file(tmp_path), tmp_path / "absent").returncode == WORLD
    done = weir("replay", "--rules", tmp_path / "absent.yaml", stdin="")
    assert done.returncode in (NO, WORLD) and "absent.yaml" in done.stderr
    assert weir("replay", "--rules", rules_file(tmp_path), tmp_path).returncode == WORLD


def test_a_directory_is_no_trace(tmp_path):
    done = weir("replay", "--rules", rules_file(tmp_path), tmp_path)
    assert done.returncode == WORLD and done.stderr == f"weir: {tmp_path}: Is a directory\n"


def test_rules_are_not_blamed_for_a_table(tmp_path):
    rules = rules_file(tmp_path)
    done = weir("replay", "--rules", rules, "--table-size", "1023k")
    assert done.returncode == USAGE and "--table-size" in done.stderr and "1m" in done.stderr
    done = weir("replay", "--rules", rules, "--table", "/nowhere/table")
    assert done.returncode == WORLD and "/nowhere/table: cannot create the table" in done.stderr
    assert str(rules) not in done.stderr


def test_bad_rules_decide_nothing(tmp_path):
    done = weir("replay", "--rules", rules_file(tmp_path, "domain: [\n"), stdin=lines(request()))
    assert done.returncode == NO and done.stdout == "" and "rules.yaml:" in done.stderr


def test_an_empty_trace_is_no_decision(tmp_path):
    for trace in ("", "\n\n  \n\r\n"):
        done = weir("replay", "--rules", rules_file(tmp_path), stdin=trace)
        assert (done.returncode, done.stdout, done.stderr) == (DONE, "", "")


def test_a_last_line_without_newline_counts(tmp_path):
    done = weir("replay", "--rules", rules_file(tmp_path), stdin=lines(request(), request()).rstrip("\n"))
    assert done.returncode == DONE and len(done.stdout.splitlines()) == 2


def test_many_lines_take_microseconds_each(tmp_path):
    import time
    count = 20000
    trace = lines(*[request(t_ns=T0 + i, entries=[("user", f"u{i % 500}")]) for i in range(count)])
    start = time.monotonic()
    done = weir("replay", "--rules", rules_file(tmp_path), stdin=trace)
    assert done.returncode == DONE and len(done.stdout.splitlines()) == count
    assert time.monotonic() - start < 20     # far above what it takes; sanitizers are slow


def test_a_look_counts_should_the_clock_go_back(tmp_path):
    """As oracle.py has it: a bucket that was full later cannot be known to be full earlier."""
    rules = rules_file(tmp_path,
                       "domain: api\ndescriptors:\n- {key: user, rate_limit: {unit: minute, requests_per_unit: 60, "
                       "algorithm: token_bucket}}\n")
    look, later = replay(rules, request(T0 + 60 * 10**9, hits=0), request(T0))
    assert look["statuses"][0]["remaining"] == 60
    assert later["overall"] == "OVER_LIMIT" and later["statuses"][0]["retry_after_ns"] == 10**9
