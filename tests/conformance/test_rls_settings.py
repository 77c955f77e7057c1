"""Settings of envoyproxy/ratelimit, by its own variables, over gRPC.

SPDX-License-Identifier: Apache-2.0
"""
import pytest

from rls_wire import MINUTE, OK, OVER_LIMIT, descriptor
from service import Service, wait_until

RULES = """\
domain: t
descriptors:
  - {key: ten, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: one, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: meta, value: a, rate_limit: {unit: day, requests_per_unit: 1}, metadata: {x: 1, in: {p: yes}}}
  - {key: meta, value: b, rate_limit: {unit: day, requests_per_unit: 9}, metadata: {x: 2, in: {p: no, q: [1, z]}}}
"""


@pytest.fixture
def serve(tmp_path, connect):
    """Starts a service with these variables; a client of it."""
    started = []

    def start(rules=RULES, flags=(), **env):
        weir = Service(tmp_path, rules, flags, env)
        client = connect(weir.address("grpc"))
        started.append((weir, client))
        client.service = weir
        return client

    yield start
    for weir, client in started:
        client.close()
        weir.stop()


def test_global_shadow_mode_shows_codes_but_refuses_nobody(serve):                      # 42
    client = serve(SHADOW_MODE="true")
    client.ask("t", [("one", "x")])
    response = client.ask("t", [("one", "x")])
    assert (response.overall, response.statuses[0].code) == (OK, OVER_LIMIT)


def test_global_quota_mode_refuses_when_all_are_used_up(serve):
    client = serve(QUOTA_MODE="true")
    client.ask("t", [("one", "x")])
    assert client.ask("t", [("one", "x")], [("one", "y")]).overall == OK
    assert client.ask("t", [("one", "x")], [("one", "y")]).overall == OVER_LIMIT


def test_headers_tell_of_the_tightest(serve):                                           # 49
    client = serve(LIMIT_RESPONSE_HEADERS_ENABLED="true")
    response = client.ask("t", [("ten", "x")], [("one", "x")])
    assert response.headers == [("RateLimit-Limit", "1"), ("RateLimit-Remaining", "0"),
                                ("RateLimit-Reset", str(response.statuses[1].reset))]
    response = client.ask("t", [("one", "x")], [("ten", "x")], hits_addend=20)
    assert [one.code for one in response.statuses] == [OVER_LIMIT, OVER_LIMIT]
    assert response.headers == [("RateLimit-Limit", "10"), ("RateLimit-Remaining", "0"),    # the last
                                ("RateLimit-Reset", str(response.statuses[1].reset))]
    assert 1 <= response.statuses[1].reset <= 60
    assert client.ask("t", [("none", "x")], [("free", "x")]).headers == []


def test_headers_have_the_names_that_were_given(serve):                                 # 49
    client = serve(LIMIT_RESPONSE_HEADERS_ENABLED="true", LIMIT_LIMIT_HEADER="A-Limit", LIMIT_REMAINING_HEADER="A-Rest",
                   LIMIT_RESET_HEADER="A-Reset")
    assert [name for name, _ in client.ask("t", [("ten", "x")]).headers] == ["A-Limit", "A-Rest", "A-Reset"]


def test_without_the_setting_there_are_no_headers_and_no_metadata(serve):
    response = serve().ask("t", [("ten", "x")])
    assert (response.headers, response.metadata) == ([], None)
    assert response.statuses[0].limit == (10, MINUTE)


def test_metadata_of_passed_rules_is_merged(serve):                                     # 48
    client = serve(RESPONSE_DYNAMIC_METADATA="true")
    ask = [("meta", "a")], descriptor(("meta", "b"), ("more", "c"), limit=(5, MINUTE), hits=3)
    told = client.ask("t", *ask).metadata
    assert told["domain"] == "t" and told["metadata"] == {"x": 1, "in": {"p": True}}
    assert told["descriptors"] == [{"entries": ["meta=a"]}, {
        "entries": ["meta=b", "more=c"], "limit": "requests_per_unit:5 unit:MINUTE", "hitsAddend": 3}]
    told = client.ask("t", [("meta", "a")], [("meta", "b")], hits_addend=2).metadata
    assert told["hitsAddend"] == 2
    assert told["metadata"] == {"x": 2, "in": {"p": False, "q": [1, "z"]}}              # a is over
    assert "metadata" not in client.ask("t", [("ten", "x")]).metadata


def test_metadata_of_the_first_wins(serve):                                             # 48
    client = serve(RESPONSE_DYNAMIC_METADATA="true")
    told = client.ask("t", [("meta", "a")], [("meta", "b")]).metadata
    assert told["metadata"] == {"x": 1, "in": {"p": True, "q": [1, "z"]}}


def test_rules_are_loaded_again_when_they_change(serve):                                # 57
    client = serve()
    assert client.ask("other", [("k", "v")]).statuses[0].limit is None
    client.service.rules("domain: other\ndescriptors:\n- {key: k, rate_limit: {unit: minute, requests_per_unit: 5}}\n")
    wait_until(lambda: client.ask("other", [("k", "v")]).statuses[0].limit == (5, MINUTE), "the new rules")
    client.service.rules("domain: other\ndescriptors: [oops]\n")
    client.service.rules("domain: third\ndescriptors:\n- {key: k, rate_limit: {unit: minute, requests_per_unit: 6}}\n")
    wait_until(lambda: client.ask("third", [("k", "v")]).statuses[0].limit == (6, MINUTE), "the third rules")
