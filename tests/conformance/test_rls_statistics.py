"""What envoyproxy/ratelimit counts, asked over gRPC and heard over StatsD.  Numbers in comments as in test_rls_cases.

A service sends what is left to send when it ends: so what was heard until then is all there is.
SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import re
import socket
import threading
import time
import urllib.request

import grpc
import pytest

from rls_wire import MINUTE, OK, OVER_LIMIT, SHOULD_RATE_LIMIT, Client, descriptor, request
from service import Service, wait_until

RULES = """\
domain: t
descriptors:
  - {key: k20, rate_limit: {unit: day, requests_per_unit: 20}}
  - {key: k8, rate_limit: {unit: day, requests_per_unit: 8}}
  - {key: k15, rate_limit: {unit: day, requests_per_unit: 15}}
  - {key: k10, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: one, value: x, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: banned, rate_limit: {unit: day, requests_per_unit: 0, name: banned}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: pardon, rate_limit: {unit: day, requests_per_unit: 5, replaces: [{name: banned}]}}
"""
COUNTERS = "total_hits", "within_limit", "near_limit", "over_limit", "shadow_mode", "total_negative_hits"


TIME = re.compile(r"ratelimit_server\.ShouldRateLimit\.response_time:(\d+\.\d{3})\|ms(?:\|@(0\.\d+))?")


class Heard(dict):
    """Names and their sums; .of(rule) without what is 0.  .times: of calls, in ms, as who hears
    of samples counts them."""

    def __init__(self):
        super().__init__()
        self.times = []

    def of(self, path):
        prefix = f"ratelimit.service.rate_limit.{path}."
        return {name: self[prefix + name] for name in COUNTERS if prefix + name in self}

    def read(self, statsd):
        """Until an empty datagram."""
        while data := statsd.recv(65536):
            for line in data.decode().splitlines():
                if time := TIME.fullmatch(line):
                    self.times += [float(time[1])] * int(1 / float(time[2] or 1))
                    continue
                name, value = re.fullmatch(r"([^:|]+):(\d+)\|c", line).groups()
                self[name] = self.get(name, 0) + int(value)


@contextlib.contextmanager
def listening(tmp_path, flags=(), rules=RULES, **more):
    """A service, a client of it, and what StatsD heard: complete once the service has ended."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as statsd:
        statsd.bind(("127.0.0.1", 0))
        heard = Heard()
        reader = threading.Thread(target=heard.read, args=[statsd])
        reader.start()
        flags = ["--statsd", f"127.0.0.1:{statsd.getsockname()[1]}", "--statsd-interval", "100ms", *flags]
        try:
            with Service(tmp_path, rules, flags, **more) as weir, Client(weir.address("grpc")) as client:
                client.service = weir
                yield client, heard
        finally:
            statsd.sendto(b"", statsd.getsockname())
            reader.join()


@pytest.mark.parametrize("key, hits, wanted", [
    ("k20", [1] * 25, {"total_hits": 25, "within_limit": 20, "near_limit": 4, "over_limit": 5}),              # 13
    ("k20", [2, 3], {"total_hits": 5, "within_limit": 5}),                                                    # 17
    ("k8", [5, 2], {"total_hits": 7, "within_limit": 7, "near_limit": 1}),                                    # 18
    ("k15", [11], {"total_hits": 11, "within_limit": 11}),                                                    # 23
    ("k15", [11, 1, 1], {"total_hits": 13, "within_limit": 13, "near_limit": 1}),
    ("k15", [11, 1, 1, 2, 1], {"total_hits": 16, "within_limit": 15, "near_limit": 3, "over_limit": 1}),
    ("k10", [12], {"total_hits": 12, "near_limit": 2, "over_limit": 2}),    # in part near, in part over
    ("k10", [5, 7], {"total_hits": 12, "within_limit": 5, "near_limit": 2, "over_limit": 2}),
    ("banned", [3], {"total_hits": 3, "over_limit": 3}),                                                      # 28
    ("shadow", [1] * 5, {"total_hits": 5, "within_limit": 3, "near_limit": 1, "over_limit": 2, "shadow_mode": 2}),  # 41
    ("free", [1], {}),
    ("none", [1], {}),
])
def test_hits_are_counted_by_where_they_fall(tmp_path, key, hits, wanted):
    with listening(tmp_path) as (client, heard):
        for n in hits:
            client.ask("t", [(key, "x")], hits_addend=n)
    assert heard.of(f"t.{key}") == wanted
    assert heard["ratelimit_server.ShouldRateLimit.total_requests"] == len(hits)
    assert len(heard.times) == len(hits)


def test_every_call_is_timed(tmp_path):
    """However many come together, and whatever they are answered; none took longer than all of them."""
    began = time.monotonic()
    with listening(tmp_path) as (client, heard):
        call = client.channel.unary_unary(SHOULD_RATE_LIMIT)
        calls = [call.future(request("t", [("k20", "x")]) if i % 4 else b"", timeout=30) for i in range(331)]
        codes = [one.code() for one in calls]
    assert len(codes) == 331 and len(set(codes)) == 2, "some make no sense: these, too, take time"
    took_ms = (time.monotonic() - began) * 1000
    assert len(heard.times) == 331 and all(0 <= one <= took_ms for one in heard.times) and any(heard.times)


def test_the_share_that_is_near_can_be_chosen(tmp_path):
    with listening(tmp_path, env={"NEAR_LIMIT_RATIO": "0.5"}) as (client, heard):
        client.ask("t", [("k10", "x")], hits_addend=7)
    assert heard.of("t.k10") == {"total_hits": 7, "within_limit": 7, "near_limit": 2}


def test_a_look_counts_nothing(tmp_path):                                                                     # 24
    with listening(tmp_path) as (client, heard):
        client.ask("t", [("k10", "x")], hits_addend=11)
        client.ask("t", descriptor(("k10", "x"), hits=0), [("k8", "x")])
    assert heard.of("t.k10") == {"total_hits": 11, "near_limit": 2, "over_limit": 1}
    assert heard.of("t.k8") == {"total_hits": 1, "within_limit": 1}


def test_what_is_replaced_is_not_counted(tmp_path):                                                           # 43
    with listening(tmp_path) as (client, heard):
        client.ask("t", [("banned", "x")], [("pardon", "x")])
    assert heard.of("t.banned") == {} and heard.of("t.pardon") == {"total_hits": 1, "within_limit": 1}


def test_a_rule_is_named_by_its_path(tmp_path):
    with listening(tmp_path) as (client, heard):
        client.ask("t", [("one", "x")])
    assert heard.of("t.one_x") == {"total_hits": 1, "within_limit": 1, "near_limit": 1}


NAMED = """\
domain: d
descriptors:
  - key: route
    value_to_metric: true
    descriptors:
      - key: http_method
        value_to_metric: true
        descriptors: [{key: subject_id, rate_limit: {unit: day, requests_per_unit: 5}}]
  - key: half
    descriptors: [{key: plain, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 5}}]
  - {key: all, descriptors: [{key: b, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}]}
  - {key: leaf, detailed_metric: true, descriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 5}}]}
  - {key: both, value_to_metric: true, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: wild, value: foo*, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: wildOwn, value: foo*, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: wildDetailed, value: foo*, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: shared, value: foo*, share_threshold: true, value_to_metric: true,
     rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: sharedToo, value: foo*, share_threshold: true, detailed_metric: true,
     rate_limit: {unit: day, requests_per_unit: 5}}
"""


@pytest.mark.parametrize("entries, name", [                                                                   # 61
    ([("route", "draw"), ("http_method", "GET"), ("subject_id", "123")], "d.route_draw.http_method_GET.subject_id"),
    ([("route", ""), ("http_method", "GET"), ("subject_id", "123")], "d.route.http_method_GET.subject_id"),
    ([("half", "x"), ("plain", "y")], "d.half.plain_y"),
    ([("all", "x"), ("b", "y")], "d.all_x.b_y"),
    ([("leaf", "x"), ("b", "y")], "d.leaf.b"),                              # only the last level's flag counts
    ([("both", "x")], "d.both_x"),
    ([("wild", "foobar")], "d.wild_foo*"),
    ([("wildOwn", "foobar")], "d.wildOwn_foobar"),
    ([("wildDetailed", "foobar")], "d.wildDetailed_foobar"),
    ([("shared", "foobar")], "d.shared_foo*"),
    ([("sharedToo", "foobar")], "d.sharedToo_foo*"),
    ([("both", "10.0.0.1:80|a")], "d.both_10_0_0_1_80_a"),
])
def test_names_have_the_values_that_rules_ask_for(tmp_path, entries, name):
    with listening(tmp_path, rules=NAMED) as (client, heard):
        client.ask("d", entries, hits_addend=2)
    rules = {key.rpartition(".")[0].partition("rate_limit.")[2] for key in heard if ".rate_limit." in key}
    assert rules == {name} and heard.of(name)["total_hits"] == 2


def test_names_are_counted_apart(tmp_path):
    with listening(tmp_path, rules=NAMED) as (client, heard):
        for value, hits in ("1", 2), ("2", 1), ("1", 1), ("1", 1), ("1", 1):
            client.ask("d", [("all", "x"), ("b", value)], hits_addend=hits)
    assert heard.of("d.all_x.b_1") == {"total_hits": 5, "near_limit": 1, "over_limit": 4}
    assert heard.of("d.all_x.b_2") == {"total_hits": 1, "within_limit": 1, "near_limit": 1}


def test_hits_given_back_are_counted_by_themselves(tmp_path):                                               # 64
    with listening(tmp_path, rules=NAMED) as (client, heard):
        client.ask("d", [("all", "x"), ("b", "1")])
        client.ask("d", descriptor(("all", "x"), ("b", "1"), hits=3, negative=True))
        client.ask("d", descriptor(("wild", "foobar"), hits=2, negative=True))
    assert heard.of("d.all_x.b_1") == {"total_hits": 1, "within_limit": 1, "near_limit": 1, "total_negative_hits": 3}
    assert heard.of("d.wild_foo*") == {"total_negative_hits": 2}


def test_names_are_bounded(tmp_path):
    with Service(tmp_path, NAMED, listeners=("grpc", "admin")) as weir, Client(weir.address("grpc")) as client:
        for i in range(1030):
            client.ask("d", [("all", "x"), ("b", str(i))], hits_addend=i + 1)
        page = urllib.request.urlopen(f"http://{weir.address('admin')}/metrics?format=ratelimit").read().decode()
    total = 'ratelimit_service_rate_limit_total_hits{domain="d",key1="all_x",key2="b_'
    lines = [line for line in page.splitlines() if line.startswith(total)]
    assert sorted(lines) == sorted(f'{total}{i}"}} {i + 1}' for i in range(1024))
    assert 'key1="all",key2="b"' not in page                                # not the rule's own name beside them


def test_global_shadow_mode_is_counted_by_request(tmp_path):                                                  # 42
    with listening(tmp_path, env={"SHADOW_MODE": "true"}) as (client, heard):
        two = [("one", "x")], [("banned", "x")]
        assert [client.ask("t", [("one", "x")]).overall for _ in range(3)] == [OK] * 3
        assert [one.code for one in client.ask("t", *two).statuses] == [OVER_LIMIT, OVER_LIMIT]
    assert heard["ratelimit.service.global_shadow_mode"] == 3
    assert "shadow_mode" not in heard.of("t.one_x")


def test_without_shadow_mode_there_is_none(tmp_path):
    with listening(tmp_path) as (client, heard):
        assert client.ask("t", [("banned", "x")]).overall == OVER_LIMIT
    assert "ratelimit.service.global_shadow_mode" not in heard


def test_errors_are_counted(tmp_path):                                                                        # 51
    with listening(tmp_path) as (client, heard):
        for data in request("", [("a", "b")]), request("t"), request("t", descriptor(("a", "b"), limit=(1, 0))):
            assert client.refusal(data)[0] == grpc.StatusCode.INVALID_ARGUMENT
        client.ask("t", descriptor(("a", "b"), limit=(1, MINUTE)))
    assert heard["ratelimit.service.call.should_rate_limit.service_error"] == 3


def test_a_domain_that_nobody_knows_is_counted(tmp_path):
    with listening(tmp_path) as (client, heard):
        assert [client.ask("t.typo", [("one", "x")]).overall for _ in range(3)] == [OK] * 3
        client.ask("t", [("one", "x")])
    found = {name: count for name, count in heard.items() if name.endswith(".domain_not_found")}
    assert found == {"ratelimit.service.rate_limit.t.typo.domain_not_found": 3}


def test_loads_are_counted(tmp_path):                                                                         # 57
    with listening(tmp_path) as (client, heard):
        client.service.rules(RULES + "  - {key: new, rate_limit: {unit: day, requests_per_unit: 5}}\n")
        wait_until(lambda: client.ask("t", [("new", "x")]).statuses[0].limit, "the new rules")
        client.service.rules("domain: t\ndescriptors: oops\n")
        wait_until(lambda: any(one["event"] == "rules" and one["level"] == "error"
                               for one in client.service.events()), "what is wrong")
    assert heard["ratelimit.service.config_load_success"] == 2
    assert heard["ratelimit.service.config_load_error"] == 1
