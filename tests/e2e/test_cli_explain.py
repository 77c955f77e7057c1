"""weir explain: which rule, which limit, what is left.

SPDX-License-Identifier: Apache-2.0
"""
import json

import pytest

from weir_cli import DONE, NO, USAGE, WORLD, rules_file, weir

RULES = """\
domain: api
descriptors:
  - key: remote_address
    rate_limit: {unit: minute, requests_per_unit: 300, algorithm: sliding_window_counter}
  - key: remote_address
    value: 10.0.0.0/8
    match: cidr
    rate_limit: {unlimited: true}
  - key: file
    value: img*
    rate_limit: {unit: hour, unit_multiplier: 3, requests_per_unit: 900}
  - key: path
    value: /v1/orders/{id}/pay
    match: path
    descriptors:
      - key: user
        id: pay
        rate_limit:
          - {name: burst, unit: second, requests_per_unit: 2, algorithm: token_bucket, burst: 5}
          - {name: daily, unit: day, requests_per_unit: 150}
  - key: code
    value: "[0-9]+"
    match: regex
    rate_limit: {unit: second, requests_per_unit: 1, algorithm: leaky_bucket, burst: 4}
  - key: generic_key
    value: all
    descriptors:
      - key: user
        if_absent: anon
        rate_limit: {unit: second, requests_per_unit: 9}
  - key: tier
    value: gold
    shadow_mode: true
    overrides: {"gold": 7}
    rate_limit: {unit: day, requests_per_unit: 5}
"""


def explain(tmp_path, *args, domain="api"):
    return weir("explain", "--rules", rules_file(tmp_path, RULES), domain, *args)


def explain_json(tmp_path, *args):
    done = explain(tmp_path, "--json", *args)
    assert done.returncode == DONE, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("descriptor, said", [
    ("remote_address=192.0.2.1", ["remote_address (bare key)", "300 per minute, sliding_window_counter",
                                  "300 of 300 left"]),
    ("remote_address=10.1.2.3", ["10.0.0.0/8 (cidr", "none: unlimited"]),
    ("file=img7.png", ["img* (wildcard)", "900 per 3 hours, fixed_window"]),
    ("code=42", ["[0-9]+ (regex", "1 per second, leaky_bucket, queue of 4"]),
    ("path=/v1/orders/7/pay,user=alice", ["/v1/orders/{id}/pay (path pattern", "user (bare key)", "pay",
                                          "2 per second, token_bucket, burst 5", "150 per day, fixed_window",
                                          "5 of 5 left"]),
    ("path=/v1/orders/7/pay", ["no limit   not at this level; the rules go on with user"]),
    ("path=/v1/orders/7/pay,tenant=x", ["at tenant=x: no rule for this entry; at this level the rules know user"]),
    ("colour=red", ["at colour=red: no rule", "remote_address, file, path, code, generic_key, tier"]),
    ("file=img1,user=x", ["the rules do not go on below this level"]),
])
def test_a_descriptor_is_explained(tmp_path, descriptor, said):
    done = explain(tmp_path, descriptor)
    assert done.returncode == DONE, done.stderr
    for words in said:
        assert words in done.stdout, done.stdout


def test_without_descriptors_the_shapes_are_shown(tmp_path):
    done = explain(tmp_path)
    assert done.returncode == DONE
    for shape in ("remote_address", "file", "path > user", "code", "tier",
                  "generic_key=all > user (if absent: anon)"):
        assert f"shape      {shape}\n" in done.stdout


def test_an_unknown_domain_is_a_no_that_names_the_others(tmp_path):
    done = explain(tmp_path, domain="apu")
    assert done.returncode == NO and "api" in done.stderr and done.stdout == ""


def test_what_is_no_descriptor_is_wrong_usage(tmp_path):
    for wrong in ("user", "=x", "a=b,", ",a=b", ",".join(["k=v"] * 33), "k" * 257 + "=v", "k=" + "v" * 4097):
        assert explain(tmp_path, wrong).returncode == USAGE, wrong


def test_a_comma_can_be_escaped(tmp_path):
    said = explain_json(tmp_path, "file=img\\,1")
    assert said["descriptors"][0]["entries"] == [["file", "img,1"]]


def test_json_is_one_object(tmp_path):
    said = explain_json(tmp_path, "path=/v1/orders/7/pay,user=alice", "colour=red", "tier=gold")
    assert said["domain"] == "api" and "path > user" in said["shapes"]
    pay, colour, gold = said["descriptors"]
    assert pay["rule"] == "pay" and pay["why_none"] is None
    assert [step["how"] for step in pay["steps"]] == ["path pattern", "bare key"]
    assert [limit["algorithm"] for limit in pay["limits"]] == ["token_bucket", "fixed_window"]
    assert pay["now"] == dict(code="OK", limit=5, remaining=5, reset_after_ns=0)
    assert colour["rule"] is None and "no rule" in colour["why_none"] and colour["now"] is None
    assert gold["shadow"] is True and gold["limits"][0]["requests_per_unit"] == 7


def test_a_table_that_is_not_there_is_not_made(tmp_path):
    table = tmp_path / "table"
    done = explain(tmp_path, "--table", table, "code=1")
    assert done.returncode == WORLD and str(table) in done.stderr and not table.exists()


def test_bad_rules_are_told(tmp_path):
    done = weir("explain", "--rules", rules_file(tmp_path, "domain: api\ndescriptors: 7\n"), "api")
    assert done.returncode == NO and "rules.yaml:2:" in done.stderr
    assert weir("explain", "--rules", tmp_path / "absent", "api").returncode in (NO, WORLD)
