"""What envoyproxy/ratelimit answers, asked of weir over gRPC.  Numbers in comments are those of the
published behaviours that we keep to; docs/migration.md has where we differ.

Hours and days, so that no window ends under a test; values of its own for each test, so that they
share a service and no counter.
SPDX-License-Identifier: Apache-2.0
"""
import itertools
import time

import grpc
import pytest

from rls_wire import (DAY, HOUR, OK, OVER_LIMIT, SECOND, SHOULD_RATE_LIMIT, UNLIMITED, WEEK, Status, descriptor,
                      parse_response, request)
from service import Service

CONFIG_A = """\
domain: t
descriptors:
  - key: k1
    value: v1
    descriptors:
      - {key: sub, rate_limit: {unit: second, requests_per_unit: 5}}
      - {key: sub, value: sv, rate_limit: {unit: second, requests_per_unit: 10}}
  - {key: k2, rate_limit: {unit: hour, requests_per_unit: 20}}
  - {key: k2, value: v2, rate_limit: {unit: hour, requests_per_unit: 30}}
  - {key: k2, value: v3}
  - {key: k3, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: k4, rate_limit: {unit: day, requests_per_unit: 1, name: n4}}
  - key: k5
    value: v5
    rate_limit: {unit: day, requests_per_unit: 15}
    descriptors:
      - {key: s5, value: sv5, rate_limit: {unit: day, requests_per_unit: 25}}
  - {key: k6, rate_limit: {unlimited: true}}
  - {key: k8, rate_limit: {unit: hour, requests_per_unit: 8}}
  - {key: k10, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: banned, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: noWild, value: foo, rate_limit: {unit: day, requests_per_unit: 20}}
  - {key: wild, value: foo*, rate_limit: {unit: day, requests_per_unit: 20}}
  - {key: two, value: ab*, rate_limit: {unit: day, requests_per_unit: 7}}
  - {key: two, value: abc*, rate_limit: {unit: day, requests_per_unit: 9}}
  - key: nestedWild
    value: val1
    descriptors:
      - {key: wild, value: goo*, rate_limit: {unit: day, requests_per_unit: 20}}
  - {key: files, value: files/*, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: files, value: own/*, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: quota, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - key: foo
    descriptors:
      - {key: bar, value: banned, rate_limit: {unit: day, requests_per_unit: 0, name: banned_limit}}
      - {key: bar, value: other, rate_limit: {unit: day, requests_per_unit: 0, name: other_limit}}
  - key: sc
    value: proxy
    descriptors:
      - key: dc
        value: override
        rate_limit: {unit: day, requests_per_unit: 2, replaces: [{name: banned_limit}]}
      - key: dc
        value: both
        rate_limit: {unit: day, requests_per_unit: 4, replaces: [{name: banned_limit}, {name: other_limit}]}
"""
BARE = Status(code=OK)
numbers = itertools.count()


@pytest.fixture(scope="module")
def client(tmp_path_factory, connect):
    with Service(tmp_path_factory.mktemp("weir"), CONFIG_A) as weir, connect(weir.address("grpc")) as one:
        yield one


def fresh():
    """A value that nobody has asked for."""
    return f"fresh{next(numbers)}"


def only(response):
    """The one status, which the overall code agrees with."""
    assert len(response.statuses) == 1
    assert response.overall == response.statuses[0].code
    return response.statuses[0]


def brief(status):
    return status.code, status.remaining


# ---- which rule applies ----

@pytest.mark.parametrize("domain,entries", [
    ("nope", [("x", "y")]),                           # 1: unknown domain
    ("t", [("k1", "something")]),                     # 2: no such value
    ("t", [("k1", "v1")]),                            # 3: a node without a limit
    ("t", [("k2", "v2"), ("sub", "x")]),              # 4: deeper than the rules
    ("t", [("k2", "v3")]),                            # a node without a limit hides the default
    ("t", [("wild", "bar")]), ("t", [("noWild", "foo1")]),          # 33
    ("t", [("nestedWild", "val1"), ("wild", "foo2")]),
    ("t", [("K3", "x")]),                             # case matters
    ("t", [("sub", "x"), ("k1", "v1")]),              # so does order
])
def test_what_no_rule_matches_is_allowed_bare(client, domain, entries):
    assert only(client.ask(domain, entries)) == BARE


@pytest.mark.parametrize("entries,limit", [
    ([("k5", "v5")], (15, DAY)), ([("k5", "v5"), ("s5", "sv5")], (25, DAY)),                    # 6
    ([("k1", "v1"), ("sub", "any")], (5, SECOND)), ([("k1", "v1"), ("sub", "sv")], (10, SECOND)),  # 7
    ([("k2", "r1")], (20, HOUR)), ([("k2", "v2")], (30, HOUR)),                                 # 8
    ([("nestedWild", "val1"), ("wild", "goo2")], (20, DAY)),                                    # 35
    ([("two", "abcd")], (7, DAY)),                                                              # 38
    ([("k2", "")], (20, HOUR)),                                                                 # 40
])
def test_a_rule_is_found_at_its_depth(client, entries, limit):
    status = only(client.ask("t", entries))
    assert (status.code, status.limit, status.remaining) == (OK, limit, limit[0] - 1)


def test_wildcards_count_each_value_unless_shared(client):
    for value in "foo1", "foo2":                                                                # 33
        assert brief(only(client.ask("t", [("wild", value)]))) == (OK, 19)
    for _ in range(10):                                                                         # 36
        assert only(client.ask("t", [("files", "files/a")])).code == OK
    assert brief(only(client.ask("t", [("files", "files/b")]))) == (OVER_LIMIT, 0)
    for i in range(10):
        assert brief(only(client.ask("t", [("files", f"own/{i}")]))) == (OK, 9)


# ---- counting ----

def test_a_name_comes_back_and_the_limit_holds(client):                                         # 10
    value = fresh()
    assert only(client.ask("t", [("k4", value)])).name == "n4"
    status = only(client.ask("t", [("k4", value)]))
    assert (status.code, status.remaining, status.name, status.limit) == (OVER_LIMIT, 0, "n4", (1, DAY))


def test_unlimited_is_never_limited(client):                                                    # 11
    assert only(client.ask("t", [("k6", "x")])) == Status(code=OK, remaining=UNLIMITED)


def test_statuses_come_in_the_order_of_descriptors(client):                                     # 12
    response = client.ask("t", [("k2", fresh())], [("zz", "1")], [("k6", "1")])
    assert [brief(one) for one in response.statuses] == [(OK, 19), (OK, 0), (OK, UNLIMITED)]
    assert response.overall == OK


def test_twenty_five_requests_of_twenty(client):                                                # 13
    value = fresh()
    for i in range(25):
        expected = (OK, 19 - i) if i < 20 else (OVER_LIMIT, 0)
        assert brief(only(client.ask("t", [("k2", value)]))) == expected


def test_the_overall_code_does_not_depend_on_order(client):                                     # 15
    value = fresh()
    client.ask("t", [("k3", value)])
    assert client.ask("t", [("k3", value)], [("zz", "1")]).overall == OVER_LIMIT
    assert client.ask("t", [("zz", "1")], [("k3", value)]).overall == OVER_LIMIT


def test_the_reset_comes_nearer(client):                                                        # 16
    value = fresh()
    first = only(client.ask("t", [("k10", value)])).reset
    time.sleep(1.1)
    second = only(client.ask("t", [("k10", value)])).reset
    assert 1 <= first <= 86400 and 1 <= second <= 86400
    assert second < first or second > 86390     # midnight has passed


def test_hits_are_taken_whole(client):                                                          # 17, 18
    value = fresh()
    client.ask("t", [("k2", value)], hits_addend=2)
    assert brief(only(client.ask("t", [("k2", value)], hits_addend=3))) == (OK, 15)
    client.ask("t", [("k8", value)], hits_addend=5)
    assert brief(only(client.ask("t", [("k8", value)], hits_addend=2))) == (OK, 1)
    assert brief(only(client.ask("t", [("k8", value)], hits_addend=2))) == (OVER_LIMIT, 0)


def test_hits_of_a_descriptor_go_before_those_of_the_request(client):                           # 24, 25
    a, b = fresh(), fresh()
    client.ask("t", [("k10", a)], hits_addend=10)
    look = descriptor(("k10", a), hits=0)
    assert brief(only(client.ask("t", look))) == (OK, 0)                    # exactly at the limit
    client.ask("t", [("k10", a)])                                           # over it
    response = client.ask("t", look, [("k10", b)], hits_addend=4)
    assert [brief(one) for one in response.statuses] == [(OVER_LIMIT, 0), (OK, 6)]
    assert brief(only(client.ask("t", descriptor(("k10", b), hits=6)))) == (OK, 0)


def test_a_limit_of_nothing_refuses_the_first(client):                                          # 28
    status = only(client.ask("t", [("banned", "x")]))
    assert (status.code, status.remaining, status.limit) == (OVER_LIMIT, 0, (0, DAY))
    assert abs(status.reset - (86400 - time.time() % 86400)) < 5 or status.reset > 86390


def test_negative_hits_give_back(client):                                                       # 64
    value = fresh()
    client.ask("t", [("k10", value)], hits_addend=5)
    assert brief(only(client.ask("t", descriptor(("k10", value), hits=3, negative=True)))) == (OK, 8)
    assert brief(only(client.ask("t", descriptor(("k10", value), hits=10, negative=True)))) == (OK, 10)
    client.ask("t", [("k10", value)], hits_addend=11)
    assert only(client.ask("t", descriptor(("k10", value), hits=1, negative=True))).code == OK


def test_huge_hits_do_not_overflow(client):
    value = fresh()
    assert brief(only(client.ask("t", descriptor(("k10", value), hits=2**64 - 1)))) == (OVER_LIMIT, 0)
    assert only(client.ask("t", [("k10", value)], hits_addend=2**32 - 1)).code == OVER_LIMIT


# ---- overrides ----

def test_an_override_takes_the_place_of_the_rules(client):                                      # 29
    # Entries of their own: by that service's keys, limits whose windows begin together share a counter.
    for limit in (10, DAY), (42, HOUR), (7, WEEK):
        entries = ("k1", "v1"), ("sub", fresh())
        status = only(client.ask("t", descriptor(*entries, limit=limit)))
        assert (status.limit, status.remaining) == (limit, limit[0] - 1)
    assert only(client.ask("t", list(entries))).limit == (5, SECOND)


def test_an_override_in_an_unknown_domain_is_bare(client):                                      # 30
    assert only(client.ask("nope", descriptor(("a", "b"), limit=(1, DAY)))) == BARE


def test_an_override_knows_no_shadow_and_no_unlimited(client):                                  # 31
    for key in "shadow", "k6":
        one = descriptor((key, fresh()), limit=(1, DAY))
        assert [only(client.ask("t", one)).code for _ in range(2)] == [OK, OVER_LIMIT]


@pytest.mark.parametrize("unit", [0, 8, 100, 2**31 - 1, 2**64 - 1])
def test_an_override_without_a_unit_is_an_error(client, unit):                                  # 32
    data = request("t", descriptor(("k2", "x"), limit=(10, unit)))
    code, text = client.refusal(data)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert text == "a limit override needs a unit: second, minute, hour, day, week, month or year"


# ---- modes ----

def test_a_shadow_rule_counts_and_refuses_nobody(client):                                       # 41
    value, other = fresh(), fresh()
    remaining = [brief(only(client.ask("t", [("shadow", value)]))) for _ in range(5)]
    assert remaining == [(OK, 2), (OK, 1), (OK, 0), (OK, 0), (OK, 0)]
    client.ask("t", [("k3", other)])
    response = client.ask("t", [("shadow", value)], [("k3", other)])
    assert response.overall == OVER_LIMIT
    assert [one.code for one in response.statuses] == [OK, OVER_LIMIT]


def test_quotas_refuse_only_when_all_are_used_up(client):
    a, b = fresh(), fresh()
    client.ask("t", [("quota", a)])
    response = client.ask("t", [("quota", a)], [("quota", b)])
    assert (response.overall, [one.code for one in response.statuses]) == (OK, [OVER_LIMIT, OK])
    assert client.ask("t", [("quota", a)], [("quota", b)]).overall == OVER_LIMIT


def test_what_is_replaced_neither_counts_nor_refuses(client):                                   # 43
    banned, override = [("foo", "x"), ("bar", "banned")], [("sc", "proxy"), ("dc", "override")]
    seen = [client.ask("t", banned, override) for _ in range(3)]
    assert [one.overall for one in seen] == [OK, OK, OVER_LIMIT]
    assert all(one.statuses[0] == BARE for one in seen)
    assert client.ask("t", banned).overall == OVER_LIMIT


def test_one_rule_may_replace_two(client):                                                      # 45
    descriptors = ([("foo", "x"), ("bar", "banned")], [("foo", "x"), ("bar", "other")],
                   [("sc", "proxy"), ("dc", "both")])
    assert [client.ask("t", *descriptors).overall for _ in range(5)] == [OK] * 4 + [OVER_LIMIT]


# ---- errors ----

@pytest.mark.parametrize("data,code,text", [                                                    # 51
    (request("", [("a", "b")]), "INVALID_ARGUMENT", "rate limit domain must not be empty"),
    (request("t"), "INVALID_ARGUMENT", "rate limit descriptor list must not be empty"),
    (b"", "INVALID_ARGUMENT", "rate limit domain must not be empty"),
    (b"\x0a\x05t", "INTERNAL", "not a RateLimitRequest, or not UTF-8"),
    (b"\x0a\x01\xff", "INTERNAL", "not a RateLimitRequest, or not UTF-8"),
    (request("t", descriptor((b"k\xc3", "v"))), "INTERNAL", "not a RateLimitRequest, or not UTF-8"),
    (b"\x0b" * 10, "INTERNAL", "not a RateLimitRequest, or not UTF-8"),
])
def test_bad_requests_are_told_what_is_wrong(client, data, code, text):
    assert client.refusal(data) == (grpc.StatusCode[code], text)


def test_the_maxima_are_answered_and_one_more_is_refused(client):
    def ask(descriptors=1, entries=1, key=2, value=1, domain=1):
        pairs = [("k" * key, "v" * value)] * entries
        return request("t" * domain, *[pairs] * descriptors)
    for name, most in ("descriptors", 64), ("entries", 32), ("key", 256), ("value", 4096), ("domain", 256):
        assert client.ask_bytes(ask(**{name: most})).overall == OK, name
        code, text = client.refusal(ask(**{name: most + 1}))
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED and text.startswith("over a maximum"), name


def test_a_message_over_a_mebibyte_is_refused(client):
    assert client.refusal(b"\x7a" + b"\x80\x80\x40" + b"x" * 2**20)[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert client.refusal(b"\0" * 2**24)[0] == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_unknown_methods_are_unimplemented(client):
    for path in "/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit", "/a.B/C":
        assert client.refusal(b"", path)[0] == grpc.StatusCode.UNIMPLEMENTED


def test_values_of_any_text_are_told_apart(client):
    for value in "a\0b", "a\0c", "é", "日本", "🦦", "a_b", " ", "\n":
        assert brief(only(client.ask("t", [("k3", value)]))) == (OK, 0)
        assert only(client.ask("t", [("k3", value)])).code == OVER_LIMIT


def test_many_at_once_are_exact(client):
    value = fresh()
    answers = client.unary_many(SHOULD_RATE_LIMIT, request("t", [("k2", value)]), 500)
    assert sorted(parse_response(one).overall for one in answers) == [OK] * 20 + [OVER_LIMIT] * 480
