"""What an operator changes while everything runs: enforcement, overrides of keys, and the audit of it.

SPDX-License-Identifier: Apache-2.0
"""
import json
import re

import pytest
import redis

from service import Service
from test_admin import CHANGE, ask, read_metrics, spend

RULES = """\
domain: api
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 3}
  - key: path
    value: /pay
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: calls
    rate_limit: {unit: hour, requests_per_unit: 10, algorithm: token_bucket}
"""
OVERRIDES = "/api/v1/overrides"


@pytest.fixture(scope="module")
def weir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("controls")
    with Service(folder, RULES, listeners=("http", "admin"), table=folder / "table") as service:
        yield service


def change(weir, path, method="PUT", body=None):
    return ask(weir, path, method, CHANGE, None if body is None else json.dumps(body))


def told(answer):
    assert answer.status == 200, answer.text
    return json.loads(answer.text)


# ---- enforcement ----

def test_a_rule_is_killed_and_comes_back(weir):
    path = "/api/v1/rules/api.path_%2Fpay/enforcement"
    assert told(ask(weir, path)) == {"rule": "api.path_/pay", "percent": 100}
    assert [spend(weir, ("path", "/pay")) for _ in range(3)] == [200, 429, 429]
    assert told(change(weir, path, body={"percent": 0})) == {"rule": "api.path_/pay", "percent": 0}
    assert spend(weir, ("path", "/pay")) == 200
    metrics = read_metrics(ask(weir, "/metrics").text)
    assert metrics["weir_rule_enforced_percent", 'rule="api.path_/pay"'] == 0
    assert metrics["weir_rule_shadow_mode_total", 'rule="api.path_/pay"'] == 1
    assert told(change(weir, path, "DELETE"))["percent"] == 100
    assert spend(weir, ("path", "/pay")) == 429


@pytest.mark.parametrize("body", [None, [], {}, {"percent": 101}, {"percent": -1}, {"percent": "5"}, {"percent": 0.5},
                                  {"percent": 5, "more": 1}])
def test_a_share_is_a_whole_number(weir, body):
    assert change(weir, "/api/v1/rules/api.user/enforcement", body=body).status == 400
    assert told(ask(weir, "/api/v1/rules/api.user/enforcement"))["percent"] == 100


def test_only_rules_have_enforcement(weir):
    assert ask(weir, "/api/v1/rules/api.nobody/enforcement").status == 404
    assert change(weir, "/api/v1/rules/api.nobody/enforcement", body={"percent": 1}).status == 404
    assert ask(weir, "/api/v1/rules//enforcement").status == 404
    assert ask(weir, "/api/v1/rules/api.user").status == 404
    assert change(weir, "/api/v1/rules/api.user/enforcement", "POST", {"percent": 1}).status == 405
    twice = ask(weir, "/api/v1/rules/api.user/enforcement", "PUT", CHANGE, '{"percent": 1, "percent": 2}')
    assert twice.status == 400


# ---- overrides ----

def test_a_key_gets_another_limit_and_loses_it(weir):
    alice = OVERRIDES + "?domain=api&user=al%69ce"
    assert [spend(weir, ("user", "alice")) for _ in range(2)] == [200, 200]
    said = told(change(weir, alice, body={"requests_per_unit": 4, "expires_in_s": 600}))["overrides"]
    assert said == [{"rule": "api.user", "domain": "api", "entries": [{"key": "user", "value": "alice"}],
                     "requests_per_unit": 4, "expires_in_s": 600}]
    left = told(ask(weir, "/api/v1/key?domain=api&user=alice"))["descriptors"][0]
    assert left["limit"] == 4 and left["remaining"] == 2
    assert [spend(weir, ("user", "alice")) for _ in range(3)] == [200, 200, 429]
    assert told(change(weir, alice, body={"unlimited": True, "expires_in_s": 1000}))["overrides"][0]["unlimited"]
    assert spend(weir, ("user", "alice"), hits=1000) == 200
    assert told(change(weir, alice, body={"requests_per_unit": 0, "expires_in_s": 1000}))
    assert spend(weir, ("user", "alice")) == 429
    assert told(change(weir, alice, "DELETE"))["overrides"] == []
    assert spend(weir, ("user", "alice")) == 429                      # what was used is used
    assert change(weir, alice, "DELETE").status == 404
    weir.wait_for("changed")
    assert "alice" not in "\n".join(weir.lines)                       # keys are hashed in the log


def test_tokens_in_use_stay_in_use(weir):
    key = OVERRIDES + "?domain=api&calls=c"
    assert spend(weir, ("calls", "c"), hits=4) == 200
    told(change(weir, key, body={"requests_per_unit": 100, "expires_in_s": 600}))
    assert told(ask(weir, "/api/v1/key?domain=api&calls=c"))["descriptors"][0]["remaining"] == 96
    told(change(weir, key, "DELETE"))
    assert told(ask(weir, "/api/v1/key?domain=api&calls=c"))["descriptors"][0]["remaining"] == 6


@pytest.mark.parametrize("query, body, status", [
    ("", {"requests_per_unit": 1, "expires_in_s": 1}, 400),
    ("?domain=api", {"requests_per_unit": 1, "expires_in_s": 1}, 400),
    ("?domain=api&nobody=x", {"requests_per_unit": 1, "expires_in_s": 1}, 404),
    ("?domain=api&user=x", {"requests_per_unit": 1}, 400),
    ("?domain=api&user=x", {"expires_in_s": 1}, 400),
    ("?domain=api&user=x", {"unlimited": False, "expires_in_s": 1}, 400),
    ("?domain=api&user=x", {"unlimited": True, "requests_per_unit": 1, "expires_in_s": 1}, 400),
    ("?domain=api&user=x", {"requests_per_unit": 1, "expires_in_s": 0}, 400),
    ("?domain=api&user=x", {"requests_per_unit": 1, "expires_in_s": 366 * 86400 + 1}, 400),
    ("?domain=api&user=x", {"requests_per_unit": 1 << 32, "expires_in_s": 1}, 400),
])
def test_an_override_makes_sense(weir, query, body, status):
    assert change(weir, OVERRIDES + query, body=body).status == status
    assert told(ask(weir, OVERRIDES))["overrides"] == []


@pytest.mark.parametrize("query", ["domain=api&user=" + "x" * 4097, "domain=api&" + "k" * 257 + "=x",
                                   "domain=" + "d" * 257 + "&user=x"], ids=["value", "key", "domain"])
def test_a_key_that_nobody_could_count_is_told_as_what_it_is(weir, query):
    answer = change(weir, f"{OVERRIDES}?{query}", body={"requests_per_unit": 1, "expires_in_s": 1})
    assert answer.status == 400 and "longer than any that can be counted" in answer.text


def test_what_was_set_outlives_the_service(tmp_path):
    table = tmp_path / "table"
    with Service(tmp_path, RULES, listeners=("http", "admin"), table=table) as weir:
        told(change(weir, "/api/v1/rules/api.user/enforcement", body={"percent": 40}))
        told(change(weir, OVERRIDES + "?domain=api&calls=x", body={"requests_per_unit": 0, "expires_in_s": 999}))
        assert len(told(ask(weir, "/api/v1/audit"))["changes"]) == 2
    with Service(tmp_path, RULES, listeners=("http", "admin"), table=table) as weir:
        assert told(ask(weir, "/api/v1/rules/api.user/enforcement"))["percent"] == 40
        assert spend(weir, ("calls", "x")) == 429
        assert told(ask(weir, "/api/v1/audit"))["changes"] == []


# ---- who asks most ----

def test_busy_keys_are_listed(tmp_path):
    with Service(tmp_path, RULES, listeners=("http", "resp", "admin")) as weir:
        assert told(ask(weir, "/api/v1/top")) == {"keys": []}
        for _ in range(5):
            spend(weir, ("user", "often"))
        spend(weir, ("user", "seldom"), hits=2)
        redis.Redis(port=weir.port("resp")).execute_command("CL.THROTTLE", b"\xff\x00k", 1, 1, 60)
        keys = told(ask(weir, "/api/v1/top"))["keys"]
        assert keys[0] == {"rule": "api.user", "domain": "api", "entries": [{"key": "user", "value": "often"}],
                           "hits": 5, "over_limit": 2}
        assert [key["entries"][0]["value"] for key in keys] == ["often", "seldom", "\ufffd\0k"]
        assert keys[2]["domain"] == "CL.THROTTLE" and keys[2]["rule"] == ""
        assert len(told(ask(weir, "/api/v1/top?limit=1"))["keys"]) == 1
        assert len(told(ask(weir, "/api/v1/top?limit=x"))["keys"]) == 3
        assert change(weir, "/api/v1/top", "DELETE").status == 405


def test_keys_stay_unnamed_where_that_is_asked_for(tmp_path):
    table = tmp_path / "table"
    with Service(tmp_path, RULES, listeners=("http", "admin"), table=table, flags=["--top-keys=off"]) as weir:
        assert spend(weir, ("user", "nobodys-business")) == 200
        assert told(ask(weir, "/api/v1/top")) == {"keys": []}
    assert b"nobodys-business" not in table.read_bytes()


# ---- who is attached ----

def processes(weir):
    """{pid: (sum of its rules, generation)}, as /metrics has it."""
    metrics = read_metrics(ask(weir, "/metrics").text)
    rows = {}
    for (name, labels), value in metrics.items():
        if name == "weir_process_rules_generation":
            pid, rules = re.search(r'pid="(\d+)",rules="(\w+)"', labels).groups()
            rows[int(pid)] = (rules, value)
    assert metrics["weir_processes", None] == len(rows)
    return rows


def test_processes_on_the_table_are_listed(tmp_path):
    table, folder = tmp_path / "table", tmp_path / "other"
    folder.mkdir()
    with Service(tmp_path, RULES, listeners=("admin",), table=table) as weir:
        with Service(folder, RULES, listeners=("admin",), table=table) as other:
            seen = processes(weir)
            assert set(seen) == {weir.process.pid, other.process.pid}
            assert seen[weir.process.pid] == seen[other.process.pid]
            other.rules(RULES.replace("requests_per_unit: 3", "requests_per_unit: 4"))
            other.wait_for("changed")
            seen = processes(weir)
            assert seen[other.process.pid][1] == 2 and seen[other.process.pid][0] != seen[weir.process.pid][0]
        assert set(processes(weir)) == {weir.process.pid}


# ---- who may ----

def test_changes_need_the_header(weir):
    for path in (OVERRIDES + "?domain=api&user=x", "/api/v1/rules/api.user/enforcement"):
        for method in ("PUT", "DELETE"):
            assert ask(weir, path, method, body="{}").status == 403
    assert ask(weir, "/api/v1/audit", "DELETE", CHANGE).status == 405
    assert ask(weir, OVERRIDES, "POST", CHANGE, "{}").status == 405


# ---- audit ----

def test_changes_are_remembered(tmp_path):
    with Service(tmp_path, RULES, listeners=("http", "admin")) as weir:
        told(change(weir, "/api/v1/rules/api.user/enforcement", body={"percent": 10}))
        told(change(weir, OVERRIDES + "?domain=api&user=bob", body={"requests_per_unit": 7, "expires_in_s": 60}))
        told(change(weir, "/api/v1/key?domain=api&user=bob", "DELETE"))
        weir.rules(RULES.replace("requests_per_unit: 3", "requests_per_unit: 4"))
        weir.wait_for("changed", 4)
        weir.rules("domain: [")
        weir.wait_for("changed", 5)
        changes = told(ask(weir, "/api/v1/audit"))["changes"]
    assert [change["number"] for change in changes] == [5, 4, 3, 2, 1]
    assert [change["what"] for change in changes] == ["rules", "rules", "reset", "override", "enforcement"]
    assert changes[4] | {"time": "", "peer": ""} == {"number": 1, "time": "", "what": "enforcement", "peer": "",
                                                     "target": "api.user", "from": "100%", "to": "10%"}
    assert changes[4]["peer"].startswith("127.0.0.1") and changes[4]["time"].endswith("Z")
    assert changes[3]["target"] == "user=bob" and changes[3]["to"] == "7 for 60 s"
    assert changes[1]["from"] == "generation 1" and changes[1]["to"] == "generation 2"
    assert changes[0]["from"] == "generation 2" and changes[0]["to"].startswith("rejected")
