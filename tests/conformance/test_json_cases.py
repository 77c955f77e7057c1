"""Envoy's rate limit service over /json: the cases that envoyproxy/ratelimit's own tests make.

Numbers in names are those of our survey of that service; what is about Redis, about statistics or
about the gRPC status is tested where those are.

SPDX-License-Identifier: Apache-2.0
"""
import http.client
import itertools
import json
import time

import pytest
from service import Service

PATIENCE_S = 20
UNLIMITED = 4294967295

CONFIG_A = """\
domain: t
descriptors:
  - key: k1
    value: v1
    descriptors:
      - key: sub
        rate_limit: {unit: second, requests_per_unit: 5}
      - key: sub
        value: sv
        rate_limit: {unit: second, requests_per_unit: 10}
  - key: k2
    rate_limit: {unit: minute, requests_per_unit: 20}
  - key: k2
    value: v2
    rate_limit: {unit: minute, requests_per_unit: 30}
  - key: k2
    value: v3
  - key: k3
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: k4
    rate_limit: {name: n4, unit: day, requests_per_unit: 1}
  - key: k5
    value: v5
    rate_limit: {unit: day, requests_per_unit: 15}
    descriptors:
      - key: s5
        value: sv5
        rate_limit: {unit: day, requests_per_unit: 25}
  - key: k6
    rate_limit: {unlimited: true}
  - key: k7
    rate_limit: {unit: minute, requests_per_unit: 70}
    detailed_metric: true
  - key: k10
    rate_limit: {unit: day, requests_per_unit: 10}
  - key: zero
    rate_limit: {unit: day, requests_per_unit: 0}
  - key: wild
    value: foo*
    rate_limit: {unit: day, requests_per_unit: 20}
  - key: noWild
    value: foo
    rate_limit: {unit: day, requests_per_unit: 20}
  - key: nestedWild
    value: val1
    descriptors:
      - key: wild
        value: goo*
        rate_limit: {unit: day, requests_per_unit: 20}
  - key: files
    value: files/*
    share_threshold: true
    rate_limit: {unit: day, requests_per_unit: 10}
  - key: own
    value: files/*
    rate_limit: {unit: day, requests_per_unit: 10}
  - key: over
    value: a*
    rate_limit: {unit: day, requests_per_unit: 11}
  - key: over
    value: ab*
    rate_limit: {unit: day, requests_per_unit: 12}
  - key: shadow
    rate_limit: {unit: day, requests_per_unit: 3}
    shadow_mode: true
  - key: quota
    rate_limit: {unit: day, requests_per_unit: 1}
    quota_mode: true
  - key: foo
    descriptors:
      - key: bar
        value: banned
        rate_limit: {name: banned_limit, unit: day, requests_per_unit: 0}
  - key: sc
    value: proxy
    descriptors:
      - key: dc
        value: override
        rate_limit: {unit: day, requests_per_unit: 2, replaces: [{name: banned_limit}]}
  - key: two
    rate_limit: {unit: day, requests_per_unit: 4, replaces: [{name: n4}, {name: banned_limit}]}
"""


@pytest.fixture(scope="module")
def weir(tmp_path_factory):
    with Service(tmp_path_factory.mktemp("weir"), CONFIG_A, listeners=("http",)) as service:
        yield service


@pytest.fixture
def fresh(serial=itertools.count()):
    """A value that no other test uses."""
    return f"value-{next(serial)}"


def post(weir, body):
    connection = http.client.HTTPConnection("127.0.0.1", weir.port("http"), timeout=PATIENCE_S)
    try:
        connection.request("POST", "/json", body if isinstance(body, (str, bytes)) else json.dumps(body))
        response = connection.getresponse()
        return response.status, response.read(), dict(response.getheaders())
    finally:
        connection.close()


def descriptor(*entries, **more):
    return {"entries": [{"key": key, "value": value} for key, value in entries], **more}


def ask(weir, *descriptors, domain="t", **more):
    """The answer, after checks that hold of all."""
    status, body, headers = post(weir, {"domain": domain, "descriptors": list(descriptors), **more})
    answer = json.loads(body)
    assert headers["Content-Type"] == "application/json"
    assert status == {"OK": 200, "OVER_LIMIT": 429}[answer["overallCode"]]
    assert len(answer["statuses"]) == len(descriptors)
    for one in answer["statuses"]:
        if "currentLimit" in one:
            assert one["durationUntilReset"].endswith("s") and int(one["durationUntilReset"][:-1]) >= 1
        assert one.get("limitRemaining", 1) != 0, "what is zero is left out"
    return answer


def brief(answer):
    """(code, remaining) of each status, and the overall code."""
    return [(one["code"], one.get("limitRemaining", 0)) for one in answer["statuses"]], answer["overallCode"]


def limit(answer, at=0):
    return answer["statuses"][at].get("currentLimit")


BARE = {"overallCode": "OK", "statuses": [{"code": "OK"}]}


def steady():
    """Not at the very end of a minute: counts of two windows would be mixed."""
    if time.time() % 60 > 57:
        time.sleep(60 - time.time() % 60)


@pytest.mark.parametrize("domain,entries", [
    ("nope", [("x", "y")]),                      # 1
    ("t", [("k1", "something")]),                # 2
    ("t", [("k1", "v1")]),                       # 3
    ("t", [("k2", "v2"), ("sub", "x")]),         # 4
    ("t", [("k2", "v3")]),
    ("t", [("noWild", "foo1")]),                 # 33
    ("t", [("wild", "bar")]),
])
def test_where_no_limit_applies_the_answer_is_bare(weir, domain, entries):
    assert ask(weir, descriptor(*entries), domain=domain) == BARE


def test_6_a_node_and_its_child_count_apart(weir):
    answer = ask(weir, descriptor(("k5", "v5")))
    assert limit(answer) == {"requestsPerUnit": 15, "unit": "DAY"} and brief(answer)[0] == [("OK", 14)]
    answer = ask(weir, descriptor(("k5", "v5"), ("s5", "sv5")))
    assert limit(answer) == {"requestsPerUnit": 25, "unit": "DAY"} and brief(answer)[0] == [("OK", 24)]


def test_7_8_the_exact_value_goes_before_the_bare_key(weir, fresh):
    for value, number, unit in ((fresh, 5, "SECOND"), ("sv", 10, "SECOND")):
        answer = ask(weir, descriptor(("k1", "v1"), ("sub", value)))
        assert limit(answer) == {"requestsPerUnit": number, "unit": unit}
        assert brief(answer)[0] == [("OK", number - 1)]
    steady()
    assert limit(ask(weir, descriptor(("k2", fresh))))["requestsPerUnit"] == 20
    assert limit(ask(weir, descriptor(("k2", "v2"))))["requestsPerUnit"] == 30


def test_10_a_limit_has_its_name(weir, fresh):
    answer = ask(weir, descriptor(("k4", fresh)))
    assert limit(answer) == {"name": "n4", "requestsPerUnit": 1, "unit": "DAY"} and brief(answer) == ([("OK", 0)], "OK")
    assert brief(ask(weir, descriptor(("k4", fresh)))) == ([("OVER_LIMIT", 0)], "OVER_LIMIT")


def test_11_12_unlimited_says_so(weir, fresh):
    answer = ask(weir, descriptor(("k6", fresh)))
    assert answer == {"overallCode": "OK", "statuses": [{"code": "OK", "limitRemaining": UNLIMITED}]}
    steady()
    answer = ask(weir, descriptor(("k2", fresh)), descriptor(("zz", "1")), descriptor(("k6", "1")))
    assert brief(answer) == ([("OK", 19), ("OK", 0), ("OK", UNLIMITED)], "OK")
    assert limit(answer, 1) is None and limit(answer, 2) is None


def test_13_twenty_pass_and_the_rest_do_not(weir, fresh):
    steady()
    for i in range(25):
        expected = ("OK", 19 - i) if i < 20 else ("OVER_LIMIT", 0)
        assert brief(ask(weir, descriptor(("k2", fresh)))) == ([expected], expected[0])


def test_15_the_order_of_descriptors_does_not_matter(weir, fresh):
    over, none = descriptor(("k3", fresh)), descriptor(("zz", "1"))
    ask(weir, over)
    assert brief(ask(weir, over, none)) == ([("OVER_LIMIT", 0), ("OK", 0)], "OVER_LIMIT")
    assert brief(ask(weir, none, over)) == ([("OK", 0), ("OVER_LIMIT", 0)], "OVER_LIMIT")


def test_16_resets_are_within_the_window(weir, fresh):
    answer = ask(weir, descriptor(("k4", fresh)))
    seconds = int(answer["statuses"][0]["durationUntilReset"][:-1])
    expected = 86400 - int(time.time()) % 86400
    assert abs(seconds - expected) <= 2


def test_17_18_hits_are_counted_whole(weir, fresh):
    assert brief(ask(weir, descriptor(("k10", fresh)), hitsAddend=2))[0] == [("OK", 8)]
    assert brief(ask(weir, descriptor(("k10", fresh)), hits_addend=3))[0] == [("OK", 5)]
    assert brief(ask(weir, descriptor(("k10", fresh), hitsAddend="4")))[0] == [("OK", 1)]
    assert brief(ask(weir, descriptor(("k10", fresh), hitsAddend=2))) == ([("OVER_LIMIT", 0)], "OVER_LIMIT")
    assert brief(ask(weir, descriptor(("k10", fresh)))) == ([("OVER_LIMIT", 0)], "OVER_LIMIT")


def test_24_25_no_hits_look_and_take_nothing(weir, fresh):
    full, look = descriptor(("k10", fresh), hitsAddend=10), descriptor(("k10", fresh), hitsAddend=0)
    assert brief(ask(weir, full))[0] == [("OK", 0)]
    assert brief(ask(weir, look)) == ([("OK", 0)], "OK")
    assert brief(ask(weir, descriptor(("k10", fresh)))) == ([("OVER_LIMIT", 0)], "OVER_LIMIT")
    assert brief(ask(weir, look)) == ([("OVER_LIMIT", 0)], "OVER_LIMIT")
    answer = ask(weir, descriptor(("k10", fresh + "x"), hitsAddend=0), descriptor(("k10", fresh + "y")))
    assert brief(answer)[0] == [("OK", 10), ("OK", 9)]


def test_28_a_limit_of_zero_refuses_at_once(weir, fresh):
    answer = ask(weir, descriptor(("zero", fresh)))
    assert brief(answer) == ([("OVER_LIMIT", 0)], "OVER_LIMIT") and limit(answer) == {"unit": "DAY"}
    assert 1 <= int(answer["statuses"][0]["durationUntilReset"][:-1]) <= 86400


@pytest.mark.parametrize("number,unit", [(10, "DAY"), (42, "HOUR"), (7, 5), (7, 6), (7, 7)])
def test_29_a_request_may_bring_its_limit(weir, fresh, number, unit):
    names = {5: "MONTH", 6: "YEAR", 7: "WEEK"}
    for spelling in "requestsPerUnit", "requests_per_unit":
        answer = ask(weir, descriptor(("k1", "v1"), ("sub", fresh), limit={spelling: number, "unit": unit}))
        assert limit(answer) == {"requestsPerUnit": number, "unit": names.get(unit, unit)}


def test_30_31_such_a_limit_needs_the_domain_and_nothing_of_the_rule(weir, fresh):
    own = {"requestsPerUnit": 1, "unit": "DAY"}
    assert ask(weir, descriptor(("k", fresh), limit=own), domain="nope") == BARE
    for key in "shadow", "k6":
        ask(weir, descriptor((key, fresh), limit=own))
        assert brief(ask(weir, descriptor((key, fresh), limit=own))) == ([("OVER_LIMIT", 0)], "OVER_LIMIT")


@pytest.mark.parametrize("own", [{"requestsPerUnit": 5}, {}, {"requestsPerUnit": 5, "unit": "UNKNOWN"},
                                 {"requestsPerUnit": 5, "unit": 99}])
def test_32_a_limit_without_a_unit_is_refused_and_no_crash(weir, fresh, own):
    status, body, headers = post(weir, {"domain": "t", "descriptors": [descriptor(("k2", fresh), limit=own)]})
    assert (status, body) == (400, b"Bad Request\n") and "unit" in headers["X-Weir-Reason"]
    assert weir.is_running()


def test_33_35_wildcards_match_and_count_each_value(weir, fresh):
    for value in "foo1" + fresh, "foo2" + fresh:
        assert brief(ask(weir, descriptor(("wild", value))))[0] == [("OK", 19)]
    answer = ask(weir, descriptor(("nestedWild", "val1"), ("wild", "goo" + fresh)))
    assert brief(answer)[0] == [("OK", 19)]


def test_36_share_threshold_counts_all_values_together(weir):
    for i in range(10):
        assert brief(ask(weir, descriptor(("files", f"files/{i}"))))[0] == [("OK", 9 - i)]
        assert brief(ask(weir, descriptor(("own", f"files/{i}"))))[0] == [("OK", 9)]
    assert brief(ask(weir, descriptor(("files", "files/z")))) == ([("OVER_LIMIT", 0)], "OVER_LIMIT")


def test_38_of_two_wildcards_the_first_wins(weir, fresh):
    assert limit(ask(weir, descriptor(("over", "ab" + fresh))))["requestsPerUnit"] == 11


def test_40_an_empty_value_meets_the_bare_key(weir):
    assert limit(ask(weir, descriptor(("k2", ""))))["requestsPerUnit"] == 20


def test_41_shadow_mode_counts_and_refuses_nobody(weir, fresh):
    for left in 2, 1, 0, 0, 0:
        assert brief(ask(weir, descriptor(("shadow", fresh)))) == ([("OK", left)], "OK")
    over = descriptor(("k3", fresh))
    ask(weir, over)
    assert brief(ask(weir, descriptor(("shadow", fresh)), over)) == ([("OK", 0), ("OVER_LIMIT", 0)], "OVER_LIMIT")


def test_42_global_shadow_mode_refuses_nobody(tmp_path):
    with Service(tmp_path, CONFIG_A, listeners=("http",), env={"SHADOW_MODE": "true"}) as weir:
        ask(weir, descriptor(("k4", "v")))
        assert brief(ask(weir, descriptor(("k4", "v")))) == ([("OVER_LIMIT", 0)], "OK")


def test_quota_is_over_when_all_of_it_is(weir, fresh):
    one, other = descriptor(("quota", fresh)), descriptor(("quota", fresh + "x"))
    ask(weir, one)
    assert brief(ask(weir, one, other))[1] == "OK"
    assert brief(ask(weir, one, other))[1] == "OVER_LIMIT"


def test_43_a_rule_replaces_another(weir):
    banned, proxy = descriptor(("foo", "x"), ("bar", "banned")), descriptor(("sc", "proxy"), ("dc", "override"))
    seen = [ask(weir, banned, proxy) for _ in range(3)]
    assert [one["overallCode"] for one in seen] == ["OK", "OK", "OVER_LIMIT"]
    assert all(one["statuses"][0] == {"code": "OK"} for one in seen)
    assert brief(ask(weir, banned))[1] == "OVER_LIMIT"


def test_45_a_rule_replaces_two(weir, fresh):
    three = descriptor(("two", fresh)), descriptor(("k4", fresh)), descriptor(("foo", "x"), ("bar", "banned"))
    assert [ask(weir, *three)["overallCode"] for _ in range(5)] == ["OK"] * 4 + ["OVER_LIMIT"]
    assert brief(ask(weir, three[1])) == ([("OK", 0)], "OK")


def test_49_headers_are_told_as_asked(tmp_path):
    names = {"LIMIT_LIMIT_HEADER": "A-Limit", "LIMIT_REMAINING_HEADER": "A-Left", "LIMIT_RESET_HEADER": "A-Reset"}
    with Service(tmp_path, CONFIG_A, listeners=("http",),
                 env={"LIMIT_RESPONSE_HEADERS_ENABLED": "true", **names}) as weir:
        answer = ask(weir, descriptor(("k10", "v")), hitsAddend=11)
        headers = answer["responseHeadersToAdd"]
        assert [one["key"] for one in headers] == ["A-Limit", "A-Left", "A-Reset"]
        assert [one["value"] for one in headers[:2]] == ["10", "0"]
        assert headers[2]["value"] + "s" == answer["statuses"][0]["durationUntilReset"]


def test_48_metadata_of_what_passed_is_told(tmp_path):
    rules = """\
domain: t
descriptors:
  - key: a
    metadata: {color: red, only: {a: 1}}
    rate_limit: {unit: day, requests_per_unit: 5}
  - key: b
    metadata: {color: blue, only: {b: 2}}
    rate_limit: {unit: day, requests_per_unit: 1}
"""
    with Service(tmp_path, rules, listeners=("http",), env={"RESPONSE_DYNAMIC_METADATA": "true"}) as weir:
        both = descriptor(("a", "v")), descriptor(("b", "v"))
        told = ask(weir, *both, hitsAddend=1)["dynamicMetadata"]
        assert told == {"domain": "t", "hitsAddend": 1, "descriptors": [{"entries": ["a=v"]}, {"entries": ["b=v"]}],
                        "metadata": {"color": "red", "only": {"a": 1, "b": 2}}}
        assert ask(weir, *both)["dynamicMetadata"]["metadata"] == {"color": "red", "only": {"a": 1}}


@pytest.mark.parametrize("body,why", [
    ({"domain": "", "descriptors": [descriptor(("k", "v"))]}, "rate limit domain must not be empty"),
    ({"descriptors": [descriptor(("k", "v"))]}, "rate limit domain must not be empty"),
    ({"domain": "t", "descriptors": []}, "rate limit descriptor list must not be empty"),
    ({"domain": "t"}, "rate limit descriptor list must not be empty"),
    ("", "not JSON"),
    ("{", "not JSON"),
    (b'{"domain":"\xff"}', "not JSON"),
    ({"domain": "t", "other": 1}, "no field"),
    ('{"domain":"t","domain":"t"}', "twice"),
    ({"domain": "t", "hitsAddend": 1, "hits_addend": 1}, "twice"),
    ({"domain": "t", "descriptors": [{"entries": [{"key": "a", "extra": "b"}]}]}, "no field"),
    ({"domain": "t", "descriptors": [{"limit": {"unit": "FORTNIGHT"}}]}, "unit"),
])
def test_51_what_is_wrong_is_a_bad_request(weir, body, why):
    status, text, headers = post(weir, body)
    assert (status, text) == (400, b"Bad Request\n")
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert why in headers["X-Weir-Reason"]


def test_51_without_rules_every_call_fails(tmp_path):
    with Service(tmp_path, "domain: t\ndescriptors: oops\n", ["--start-without-rules"], listeners=("http",)) as weir:
        status, text, headers = post(weir, {"domain": "t", "descriptors": [descriptor(("k", "v"))]})
        assert (status, text, headers["X-Weir-Reason"]) == (
            503, b"Service Unavailable\n", "no rate limit configuration loaded")


@pytest.mark.parametrize("body", [
    {"domain": "t", "descriptors": [descriptor(("k", "v"))] * 65},
    {"domain": "t", "descriptors": [descriptor(*[("k", "v")] * 33)]},
    {"domain": "t", "descriptors": [descriptor(("k" * 257, "v"))]},
    {"domain": "t", "descriptors": [descriptor(("k", "v" * 4097))]},
    {"domain": "t" * 257, "descriptors": [descriptor(("k", "v"))]},
    "x" * (1024 * 1024 + 1),
], ids=["descriptors", "entries", "key", "value", "domain", "body"])
def test_what_is_over_a_maximum_is_too_large(weir, body):
    assert post(weir, body)[0] == 413


def test_maxima_themselves_are_allowed(weir):
    most = {"domain": "t", "descriptors": [descriptor(*[("k" * 256, "v" * 256)] * 32)] * 64}
    assert len(json.dumps(most)) > 1024 * 1024
    most["descriptors"] = [descriptor(*[("k" * 200, "v" * 200)] * 32)] * 64
    assert len(json.dumps(most)) < 1024 * 1024
    assert len(ask(weir, *most["descriptors"])["statuses"]) == 64
    assert ask(weir, descriptor(("k", "v" * 4096)), domain="t" * 256)["overallCode"] == "OK"


def test_64_negative_hits_give_back(weir, fresh):
    assert brief(ask(weir, descriptor(("k10", fresh), hitsAddend=5)))[0] == [("OK", 5)]
    back = descriptor(("k10", fresh), hitsAddend=3, isNegativeHits=True)
    assert brief(ask(weir, back)) == ([("OK", 8)], "OK")
    assert brief(ask(weir, {**back, "hitsAddend": 10})) == ([("OK", 10)], "OK")


def test_57_rules_are_loaded_again(tmp_path):
    with Service(tmp_path, CONFIG_A, listeners=("http",)) as weir:
        assert ask(weir, descriptor(("new", "v"))) == BARE
        weir.rules(CONFIG_A + "  - key: new\n    rate_limit: {unit: day, requests_per_unit: 1}\n")
        end = time.monotonic() + PATIENCE_S
        while limit(ask(weir, descriptor(("new", "v")))) is None:
            assert time.monotonic() < end
            time.sleep(0.02)


def test_any_method_will_do(weir, fresh):
    connection = http.client.HTTPConnection("127.0.0.1", weir.port("http"), timeout=PATIENCE_S)
    body = json.dumps({"domain": "t", "descriptors": [descriptor(("k10", fresh))]})
    for method in "PUT", "GET", "PATCH":
        connection.request(method, "/json", body)
        response = connection.getresponse()
        assert response.status == 200 and json.loads(response.read())["overallCode"] == "OK"
    connection.close()
