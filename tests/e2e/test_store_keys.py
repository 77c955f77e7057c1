"""`weir serve --store`: keys that the store counts, as clients of RESP and operators see them and change them.  What is
decided by rules is in test_serve_redis.py.

SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import json
import socket
import urllib.parse

import pytest
import redis

import http_rig
from redis_rig import Server
from redis_topologies import Cluster
from rls_wire import OK, Client, descriptor
from service import Service, together, wait_until
from store_rig import ALL, PATIENT, RULES, ask_json, serve, told

CHANGE = {"X-Weir-Request": "1"}
EXACT = ("--store-deadline", "10s")     # with leases


@pytest.fixture(scope="module")
def three(tmp_path_factory, store):
    """Nodes that know nothing of each other but the store."""
    folder = tmp_path_factory.mktemp("three")
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(serve(folder, store.url, *PATIENT, name=f"n{i}")) for i in range(3)]


def resp(weir):
    return redis.Redis(port=weir.port("resp"), socket_timeout=30)


def admin(weir, path, method="GET", body=None, **query):
    """(status, what the JSON says, or the words)"""
    if query:
        path += "?" + urllib.parse.urlencode({"domain": "d", **query})
    with socket.create_connection(("127.0.0.1", weir.port("admin")), timeout=30) as connection:
        text = json.dumps(body) if body is not None else ""
        connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nX-Weir-Request: 1\r\nConnection: close\r\n"
                           f"Content-Length: {len(text)}\r\n\r\n{text}".encode())
        head, _, said = http_rig.read_all(connection).partition(b"\r\n\r\n")
    status = int(head.split()[1])
    return status, json.loads(said) if b"application/json" in head else said.decode()


def left(weir, **key):
    status, said = admin(weir, "/api/v1/key", **key)
    assert status == 200, said
    return said["descriptors"][0]["remaining"]


# ---- CL.THROTTLE and THROTTLE ----

@pytest.mark.parametrize("command, burst, yes", [("CL.THROTTLE", 19, 0), ("THROTTLE", 20, 1)])
def test_three_nodes_throttle_a_key_to_the_unit(three, command, burst, yes):
    """Nine clients on three nodes, pipelining; a bucket that does not refill meanwhile."""
    verdicts = []

    def ask(weir):
        with resp(weir) as client:
            for _ in range(3):
                pipeline = client.pipeline(transaction=False)
                for _ in range(5):
                    pipeline.execute_command(command, f"all-{command}", burst, 1, 86400 * 300)
                verdicts.extend(reply[0] for reply in pipeline.execute())

    together(ask, three * 3)
    assert len(verdicts) == 135 and sum(one == yes for one in verdicts) == 20


def test_throttle_tells_the_same_by_store_and_table(tmp_path, three):
    """Every field, of both commands: waits to the second, with what an instant may add."""
    with Service(tmp_path, RULES, listeners=ALL) as plain, resp(plain) as one, resp(three[0]) as other:
        for command in ("CL.THROTTLE", "THROTTLE"):
            for quantity in (1, 3, 0, 9, 1, -2, 4, 5, 20, 0):
                theirs, mine = (client.execute_command(command, f"face-{command}", 8, 1, 1000, quantity)
                                for client in (one, other))
                assert len(mine) == 5 and mine[:3] == theirs[:3], (command, quantity)
                assert all(abs(a - b) <= 20 for a, b in zip(mine, theirs)), (command, quantity, mine, theirs)


@pytest.mark.parametrize("policy, verdicts",
                         [("open", [0, 0, 0, 0]), ("closed", [1, 1, 1, 1]), ("local", [0, 0, 1, 1])])
def test_throttle_without_the_store_is_as_its_policy_says(tmp_path, policy, verdicts):
    server = Server(tmp_path / "redis", is_started=False)
    with serve(tmp_path, server.url, "--on-store-error", policy) as weir, resp(weir) as client:
        replies = [client.execute_command("CL.THROTTLE", "k", 1, 1, 86400) for _ in range(4)]
        assert [reply[0] for reply in replies] == verdicts and {reply[1] for reply in replies} == {2}
        assert [client.execute_command("THROTTLE", "other", 2, 1, 86400)[0]
                for _ in range(4)] == [1 - one for one in verdicts]
        assert told(weir)[f"fallback_{policy}_total"] == 8


# ---- DEL ----

def test_a_key_is_forgotten_by_all_nodes(three):
    with contextlib.ExitStack() as stack:
        one, other, third = (stack.enter_context(resp(weir)) for weir in three)
        assert [one.execute_command("CL.THROTTLE", "gone", 1, 1, 86400)[0] for _ in range(3)] == [0, 0, 1]
        assert other.execute_command("CL.THROTTLE", "gone", 1, 1, 86400)[0] == 1
        assert third.delete("gone", "never", "gone") == 1 and third.delete("gone") == 0
        assert other.execute_command("CL.THROTTLE", "gone", 1, 1, 86400)[:3] == [0, 2, 1]


@pytest.mark.parametrize("before", [0, 62, 63, 64, 200])
def test_keys_are_forgotten_in_the_order_of_commands(three, before):
    """A DEL of as many keys as a command may have, behind as many commands as may wait, and more."""
    names = [f"order{before}-{i}" for i in range(63)]
    with resp(three[0]) as client:
        pipeline = client.pipeline(transaction=False)
        for i in range(before):
            pipeline.execute_command("CL.THROTTLE", names[i % 60], 5, 1, 86400)
        pipeline.delete(*names)
        pipeline.execute_command("CL.THROTTLE", names[0], 5, 1, 86400)
        pipeline.echo("between")
        pipeline.delete(names[0], names[0])
        pipeline.delete(names[0])
        replies = pipeline.execute()
    assert [reply[0] for reply in replies[:before]] == [0] * before
    assert replies[before:] == [min(before, 60), [0, 6, 5, -1, 86400], b"between", 1, 0]


def test_a_store_that_is_away_forgets_nothing(tmp_path, own_store):
    with serve(tmp_path, own_store.url, "--store-deadline", "50ms") as weir, resp(weir) as client:
        wait_until(lambda: told(weir)["health"] == "up", "the store")
        own_store.kill()
        with pytest.raises(redis.exceptions.ResponseError, match="the store does not answer"):
            client.delete("a", "b")
        assert client.echo("on") == b"on"
        status, said = admin(weir, "/api/v1/key", quiet="a")
        assert status == 503 and "the store does not answer" in said, "nobody speaks for it"
        assert admin(weir, "/api/v1/key", "DELETE", quiet="a")[0] == 503
        assert admin(weir, "/api/v1/key", host="a")[0] == 200, "of this machine alone: it knows"
        own_store.start()
        wait_until(lambda: told(weir)["health"] == "up", "the store")
        assert client.delete("a", "b") == 0 and left(weir, quiet="a") == 20
        assert admin(weir, "/api/v1/audit")[1]["changes"] == []


def test_who_leaves_while_a_key_is_looked_at_does_no_harm(tmp_path, own_store):
    with serve(tmp_path, own_store.url, "--store-deadline", "300ms") as weir:
        wait_until(lambda: told(weir)["health"] == "up", "the store")
        own_store.freeze()
        for method in ("GET", "DELETE"):
            with socket.create_connection(("127.0.0.1", weir.port("admin")), timeout=10) as connection:
                connection.sendall(f"{method} /api/v1/key?domain=d&quiet=x HTTP/1.1\r\nHost: localhost\r\n"
                                   "X-Weir-Request: 1\r\n\r\n".encode())
                wait_until(lambda: told(weir)["pending"] > 0, "it to wait")
        with socket.create_connection(("127.0.0.1", weir.port("resp")), timeout=10) as connection:
            connection.sendall(b"DEL " + b"k " * 60 + b"\r\n" + b"CL.THROTTLE k 9 10 60\r\n" * 30)
        own_store.thaw()
        wait_until(lambda: told(weir)["pending"] == 0 and told(weir)["health"] == "up", "nobody to wait")
        assert left(weir, quiet="x") == 20
        wait_until(lambda: "not waited for" in json.dumps(admin(weir, "/api/v1/audit")[1]), "the audit")


# ---- /api/v1/key ----

KINDS = ["fixed", "quiet", "slide", "sub", "log", "bucket", "tick", "leaky", "slots"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_is_looked_at_and_reset_on_another_node(three, kind):
    one, other, _ = three
    assert left(other, **{kind: "seen"}) == 20
    with Client(one.address("grpc")) as client:
        assert client.ask("d", descriptor((kind, "seen"), hits=7)).overall == OK
        assert left(other, **{kind: "seen"}) == 13 and left(one, **{kind: "seen"}) == 13, "looking takes nothing"
        assert admin(other, "/api/v1/key", "DELETE", **{kind: "seen"}) == (200, {"cleared": 1})
        assert left(one, **{kind: "seen"}) == 20
        assert admin(other, "/api/v1/key", "DELETE", **{kind: "seen"}) == (200, {"cleared": 0})
        assert client.ask("d", descriptor((kind, "seen"), hits=20)).overall == OK
    noted = admin(other, "/api/v1/audit")[1]["changes"][0]
    assert (noted["what"], noted["target"], noted["to"]) == ("reset", f"{kind}=seen", "0 cleared")


def test_all_counters_of_a_key_are_reset_wherever_they_are(three):
    """Several limits of a rule; a rule of this machine alone; none at all."""
    weir = three[1]
    assert [ask_json(weir, "two", "v") for _ in range(9)] == [200] * 8 + [429]
    assert ask_json(weir, "host", "v") == 200
    assert left(weir, two="v") == 0
    assert admin(weir, "/api/v1/key", "DELETE", two="v") == (200, {"cleared": 2})
    assert admin(weir, "/api/v1/key", "DELETE", host="v") == (200, {"cleared": 1})
    assert admin(weir, "/api/v1/key", "DELETE", nothing="v") == (200, {"cleared": 0})
    assert left(weir, two="v") == 8 and left(weir, host="v") == 20


def test_explain_looks_into_the_store(three):
    asked = {"domain": "d",
             "descriptors": [{"entries": [{"key": key, "value": "why"}]} for key in ("quiet", "free", "host")]}
    assert ask_json(three[0], "quiet", "why", hits=5) == 200
    status, said = admin(three[2], "/api/v1/explain", "POST", asked)
    assert status == 200 and [one.get("remaining") for one in said["descriptors"]] == [15, None, 20]
    assert admin(three[2], "/api/v1/explain", "POST", {"domain": 1})[0] == 400


def test_a_reset_key_is_free_at_once_though_its_refusal_was_remembered(tmp_path, store):
    """With leases: neither tokens nor refusals that this machine remembers outlive a reset."""
    rules = "domain: d\ndescriptors:\n  - {key: hot, rate_limit: {unit: day, requests_per_unit: 50}}\n" \
            "  - {key: drip, rate_limit: {unit: year, requests_per_unit: 50, algorithm: token_bucket}}\n"
    with Service(tmp_path, rules, flags=("--store", store.url, *EXACT), listeners=ALL) as weir, \
            Client(weir.address("grpc")) as client:
        for key in ("hot", "drip"):
            for _ in range(3):
                passed = sum(client.ask("d", descriptor((key, "k"))).overall == OK for _ in range(120))
                assert passed == 50
                assert admin(weir, "/api/v1/key", "DELETE", **{key: "k"}) == (200, {"cleared": 1})
        assert told(weir)["decided_by_refusal_total"] > 0 and told(weir)["decided_by_lease_total"] > 0


def test_a_key_of_a_cluster_is_reset_wherever_it_lies(tmp_path):
    with Cluster(tmp_path / "cluster", replicas=False) as cluster, serve(tmp_path, cluster.url, *PATIENT) as weir, \
            resp(weir) as client:
        wait_until(lambda: told(weir)["health"] == "up", "the Cluster")
        names = [f"c{i}" for i in range(20)]
        for name in names:
            assert client.execute_command("CL.THROTTLE", name, 1, 1, 86400)[0] == 0
            assert ask_json(weir, "two", name) == 200
        assert client.delete(*names) == 20
        assert [admin(weir, "/api/v1/key", "DELETE", two=name)[1]["cleared"] for name in names] == [2] * 20


def test_a_key_of_envoyproxy_ratelimit_is_reset_too(tmp_path, own_store):
    with serve(tmp_path, own_store.url, "--compat-keys", *PATIENT) as weir:
        assert [ask_json(weir, "fixed", "go", hits=20), ask_json(weir, "fixed", "go")] == [200, 429]
        assert admin(weir, "/api/v1/key", "DELETE", fixed="go") == (200, {"cleared": 1})
        assert left(weir, fixed="go") == 20 and ask_json(weir, "fixed", "go") == 200


# ---- /api/v1/overrides ----

def test_another_limit_for_a_key_is_in_force_at_once(tmp_path, store):
    """With leases and refusals in hand, which were by the rule's own limit."""
    rules = "domain: d\ndescriptors:\n  - {key: over, rate_limit: {unit: day, requests_per_unit: 40}}\n"
    with Service(tmp_path, rules, flags=("--store", store.url, *EXACT), listeners=ALL) as weir, \
            Client(weir.address("grpc")) as client:
        def passed(count):
            return sum(client.ask("d", descriptor(("over", "k"))).overall == OK for _ in range(count))
        def override(**limit):
            assert admin(weir, "/api/v1/overrides", "PUT", {**limit, "expires_in_s": 600}, over="k")[0] == 200
        assert passed(60) == 40
        override(requests_per_unit=100)
        # What is over the limit counts, by the rules' default: it is as if it had passed.
        assert passed(60) >= 1 and left(weir, over="k") < 100
        assert admin(weir, "/api/v1/key", "DELETE", over="k") == (200, {"cleared": 1})
        assert passed(120) == 100
        override(requests_per_unit=0)
        assert passed(3) == 0
        override(unlimited=True)
        assert passed(200) == 200
        assert admin(weir, "/api/v1/key", "DELETE", over="k") == (200, {"cleared": 1}), "what it used before"
        assert admin(weir, "/api/v1/overrides", "DELETE", over="k")[0] == 200
        assert passed(60) == 40


# ---- /api/v1/top ----

TOP_RULES = """\
domain: d
descriptors:
  - {key: strict, rate_limit: {unit: day, requests_per_unit: 10, algorithm: sliding_window_log}}
  - {key: hot, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: later, rate_limit: {unit: day, requests_per_unit: 10, consistency: eventual}}
  - {key: host, rate_limit: {unit: day, requests_per_unit: 10, scope: host}}
  - {key: watched, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 10}}
"""


def busiest(weir):
    """{rule or domain: (value, hits, over the limit)}; every key is of another."""
    rows = admin(weir, "/api/v1/top")[1]["keys"]
    return {one.get("rule") or one["domain"]: (one["entries"][0]["value"], one["hits"], one["over_limit"])
            for one in rows}


def hammer(weir):
    """Each key 15 times, one after the other, and a look at it, which is nothing.  Where two come quickly, lots are
    drawn, and numbers are about right."""
    with Client(weir.address("grpc")) as client, resp(weir) as throttler:
        for key in ("strict", "hot", "later", "host", "watched"):
            for _ in range(15):
                client.ask("d", descriptor((key, "busy")))
            client.ask("d", descriptor((key, "busy"), hits=0))
        for _ in range(15):
            throttler.execute_command("CL.THROTTLE", "busy", 9, 1, 86400)
        throttler.execute_command("CL.THROTTLE", "busy", 9, 1, 86400, 0)


def test_the_busiest_keys_are_listed_whoever_decides(tmp_path, store):
    """By the store, by leases, by refusals that are remembered, by the table."""
    with Service(tmp_path, TOP_RULES, flags=("--store", store.url, *EXACT, "--store-prefix", "top:"),
                 listeners=ALL) as weir:
        hammer(weir)
        names = [f"d.{key}" for key in ("strict", "hot", "later", "host", "watched")] + ["CL.THROTTLE"]
        found = busiest(weir)
        assert sorted(found) == sorted(names)
        for name, (value, hits, over) in found.items():      # samples: of a few hits, none may be one that was refused
            assert value == "busy" and 5 <= hits <= 45 and over < hits, (name, hits, over)
        assert sum(over for _, _, over in found.values()) > 0


@pytest.mark.parametrize("policy", ["local", "closed", "open"])
def test_the_busiest_keys_are_listed_without_the_store_too(tmp_path, policy):
    server = Server(tmp_path / "redis", is_started=False)
    with serve(tmp_path, server.url, "--on-store-error", policy, rules=TOP_RULES) as weir:
        hammer(weir)
        found = [(name, *busiest(weir)[name]) for name in ("d.strict", "d.hot", "CL.THROTTLE")]
        for name, value, hits, refused in found:
            is_right = {"local": refused < hits, "closed": refused == hits, "open": refused == 0}[policy]
            assert value == "busy" and 5 <= hits <= 45 and is_right, (name, hits, refused)
        assert any(refused > 0 for *_, refused in found) == (policy != "open")
