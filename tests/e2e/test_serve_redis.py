"""`weir serve --store`: the same answers as by the table, over every protocol; one count for three nodes; and what
happens when the store is killed, stopped, slow or empty.  Histories under load are tests/chaos's.

SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time

import pytest
import redis

import http_rig
from redis_rig import Server
from redis_topologies import CALM_MS, Cluster
from redis_topologies import Sentinels
from rls_wire import DAY, OK, OVER_LIMIT, SHOULD_RATE_LIMIT, Client, descriptor, parse_response, request
from service import ROOT, WEIR, Service, together, wait_until
from store_rig import ALL, KINDS, PATIENT, RULES, STRICT, ask_json, body, serve, told
from test_serve_tls import Authority

ATOMIC = """\
domain: all
atomic: true
descriptors:
  - {key: a, rate_limit: {unit: day, requests_per_unit: 9}}
  - {key: b, rate_limit: {unit: year, requests_per_unit: 7, algorithm: token_bucket}}
  - {key: h, rate_limit: {unit: day, requests_per_unit: 6, scope: host}}
  - {key: s, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 2}}
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory, store):
    """A service on the store, and one on its table alone."""
    folder = tmp_path_factory.mktemp("pair")
    (folder / "plain").mkdir()
    with serve(folder, store.url, *PATIENT) as shared, Service(folder / "plain", RULES, listeners=ALL) as plain:
        yield shared, plain


# ---- the same answers ----

def random_request(rng, salt):
    descriptors = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        key = rng.choice([*KINDS, "host", "shadow", "quota", "free", "never", "two", "net", "unknown"])
        value = rng.choice(("10.0.0.1", "10.0.0.77", "10.0.9.9")) if key == "net" else f"{salt}{rng.randrange(3)}"
        more = {}
        if rng.random() < 0.3:
            more["hits"] = rng.choice((0, 1, 2, 5, 30))
        if rng.random() < 0.1:
            more["negative"] = True
        if rng.random() < 0.05 and key == "fixed":
            more["limit"] = (11, DAY)
        descriptors.append(descriptor((key, value), **more))
    return descriptors


def face(response):
    """What does not depend on the instant."""
    return response.overall, [(one.code, one.limit, one.remaining) for one in response.statuses]


@pytest.mark.parametrize("seed", range(3))
def test_grpc_answers_are_those_of_the_table(pair, seed):
    shared, plain = pair
    rng = random.Random(seed)
    with Client(shared.address("grpc")) as one, Client(plain.address("grpc")) as other:
        for number in range(120):
            asked = random_request(rng, f"s{seed}")
            mine, theirs = one.ask("d", *asked), other.ask("d", *asked)
            assert face(mine) == face(theirs), (seed, number)


@contextlib.contextmanager
def places(topology, folder, store):
    """(address, what to do before each request) of stores whose counters lie in one place, or in several."""
    if topology == "one server":
        yield store.url, lambda: None
    elif topology == "shards":
        with Server(folder / "second") as second:
            yield f"redis-shards://127.0.0.1:{store.port},127.0.0.1:{second.port}", lambda: None
    else:
        with Cluster(folder / "cluster", replicas=False, timeout_ms=CALM_MS) as cluster:
            moved = set()
            yield cluster.url, (lambda: move_a_slot(cluster, moved)) if topology == "slots that move" else lambda: None


def move_a_slot(cluster, moved):
    """To another master, with all its keys: the slot of a key, each slot once."""
    for i, source in enumerate(cluster.masters):
        for key in source.ask("KEYS", "*"):
            slot = cluster.slot(key.decode())
            if slot not in moved:
                moved.add(slot)
                cluster.migrate(slot, source, cluster.masters[i - 1])
                return


@pytest.mark.parametrize("topology", ["one server", "shards", "cluster", "slots that move"])
def test_atomic_domains_are_those_of_the_table(tmp_path, store, topology):
    """In several places, too, a refused request consumes nothing: what one has taken is given back."""
    (tmp_path / "plain").mkdir()
    rng = random.Random(5)
    with places(topology, tmp_path, store) as (url, prepare):
        flags = (*PATIENT, "--store-prefix", f"{topology}:")
        with serve(tmp_path, url, *flags, rules=ATOMIC) as shared, Service(tmp_path / "plain", ATOMIC) as plain, \
                Client(shared.address("grpc")) as one, Client(plain.address("grpc")) as other:
            for number in range(100):
                if number % 5 == 4:
                    prepare()
                keys = rng.sample(("a", "b", "h", "s", "own"), rng.randrange(1, 5))
                asked = [descriptor((key, f"v{rng.randrange(2)}"), hits=rng.choice((None, 1, 2)),
                                    limit=(rng.randrange(1, 5), DAY) if key == "own" else None) for key in keys]
                assert face(one.ask("all", *asked)) == face(other.ask("all", *asked)), number
                wait_until(lambda: told(shared)["pending"] == 0, "what was taken to be given back")
            assert topology == "one server" or told(shared)["returned_total"] > 0
            assert topology != "slots that move" or told(shared)["redirects_total"] > 0


@pytest.mark.parametrize("kind", ["fixed_window", "sliding_window_log", "token_bucket"])
def test_an_atomic_request_that_names_a_counter_thrice_takes_nothing_where_it_is_refused(tmp_path, own_store, kind):
    rules = "domain: d\natomic: true\ndescriptors:\n" \
            f"  - {{key: a, rate_limit: {{unit: day, requests_per_unit: 4, algorithm: {kind}}}}}\n"
    with serve(tmp_path, own_store.url, *PATIENT, rules=rules) as weir, Client(weir.address("grpc")) as client:
        for taken in (0, 1):
            assert client.ask("d", *[descriptor(("a", "k"), hits=2)] * 3).overall == OVER_LIMIT
            assert client.ask("d", descriptor(("a", "k"), hits=0)).statuses[0].remaining == 4 - taken
            assert client.ask("d", descriptor(("a", "k"))).overall == OK
        assert all(own_store.ask("TTL", key) > 0 for key in own_store.ask("KEYS", "*{1:d*"))


def test_json_check_and_resp_answer_by_the_store(pair):
    shared, plain = pair
    for weir in pair:
        statuses = [ask_json(weir, "two", "json") for _ in range(10)]
        assert statuses == 8 * [200] + 2 * [429]
        answers = [http_rig.ask(weir.port("http"), "/check?domain=d&hold=0", X_Forwarded_Uri="/") for _ in range(2)]
        assert {one.status for one in answers} == {200}
        with redis.Redis(port=weir.port("resp"), socket_timeout=10) as client:
            replies = [client.execute_command("CL.THROTTLE", "k", 3, 10, 86400) for _ in range(6)]
            assert [reply[:3] for reply in replies] == [[0, 4, 3], [0, 4, 2], [0, 4, 1], [0, 4, 0], [1, 4, 0],
                                                        [1, 4, 0]]
            # Another burst reads the same bucket, and what is in use beyond it stands.
            assert client.execute_command("CL.THROTTLE", "k", 1, 10, 86400)[:3] == [1, 2, 0]
            assert client.execute_command("CL.THROTTLE", "k", 3, 10, 86400)[0] == 1
            assert client.execute_command("CL.THROTTLE", "k", 3, 10, 86400, -2)[:3] == [0, 4, 2]
            assert client.execute_command("CL.THROTTLE", "k", 3, 10, 86400, 0)[:3] == [0, 4, 2]
            assert client.delete("k", "nothing", "x" * 5000) == 1
            assert client.execute_command("CL.THROTTLE", "k", 3, 10, 86400)[:3] == [0, 4, 3]


CHECK_RULES = """\
domain: web
descriptors:
  - key: path
    value: /login
    rate_limit: {unit: day, requests_per_unit: 2}
  - key: path
    value: /slow
    rate_limit: {unit: second, requests_per_unit: 5, burst: 3, algorithm: leaky_bucket}
"""


def test_check_tells_headers_and_holds(tmp_path, store):
    with serve(tmp_path, store.url, *PATIENT, rules=CHECK_RULES) as weir:
        port = weir.port("http")
        answers = [http_rig.ask(port, "/check", X_Forwarded_Uri="/login") for _ in range(3)]
        assert [one.status for one in answers] == [200, 200, 429]
        assert [one.headers["X-Ratelimit-Remaining"] for one in answers] == ["1", "0", "0"]
        assert http_rig.ask(port, "/check?deny_status=403", X_Forwarded_Uri="/login").status == 403
        began = time.monotonic()
        assert [http_rig.ask(port, "/check?hold=1", X_Forwarded_Uri="/slow").status for _ in range(3)] == [200] * 3
        assert time.monotonic() - began > 0.35, "the second and the third have waited for their turn"


def test_who_leaves_while_held_gives_its_place_back(tmp_path, store):
    """A place in a queue that Redis keeps: it is free again, if it is still the last."""
    rules = CHECK_RULES.replace("requests_per_unit: 5", "unit_multiplier: 8, requests_per_unit: 1")
    with serve(tmp_path, store.url, *PATIENT, rules=rules.replace("/slow", "/slower")) as weir:
        asked = "GET /check?hold=1 HTTP/1.1\r\nHost: x\r\nX-Forwarded-Uri: /slower\r\n\r\n".encode()
        assert http_rig.ask(weir.port("http"), "/check?hold=1", X_Forwarded_Uri="/slower").status == 200
        with socket.create_connection(("127.0.0.1", weir.port("http")), timeout=10) as connection:
            connection.sendall(asked)
            wait_until(lambda: b"weir_holds 1\n" in http_rig.ask(weir.port("admin"), "/metrics").body, "it is held")
        wait_until(lambda: told(weir)["returned_total"] == 1 and told(weir)["pending"] == 0,
                   "its place to be given back")


def test_pipelined_requests_are_answered_in_order(pair):
    shared, _ = pair
    one = f"POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body(('never', 'p')))}\r\n\r\n{body(('never', 'p'))}"
    data = f"{one}GET /healthcheck HTTP/1.1\r\nHost: x\r\n\r\n{one}" \
           "GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", shared.port("http")), timeout=10) as connection:
        connection.sendall(data.encode())
        got = b""
        while chunk := connection.recv(65536):
            got += chunk
    assert re.findall(rb"HTTP/1.1 (\d+)", got) == [b"429", b"200", b"429", b"404"]


@pytest.mark.parametrize("count", [5, 64, 65, 1000])
def test_pipelined_commands_are_answered_in_order(pair, count):
    shared, _ = pair
    with socket.create_connection(("127.0.0.1", shared.port("resp")), timeout=20) as connection:
        lines = b"".join(b"CL.THROTTLE pipe%d 9 10 86400 %d\r\nECHO %d\r\n" % (count, i % 3, i) for i in range(count))
        connection.sendall(lines + b"QUIT\r\n")
        got = b""
        while chunk := connection.recv(65536):
            got += chunk
    assert [int(one) for one in re.findall(rb"\$\d+\r\n(\d+)\r\n", got)] == list(range(count))
    assert got.count(b"*5\r\n") == count and got.endswith(b"+OK\r\n")
    allowed = re.findall(rb"\*5\r\n:0\r\n", got)
    assert len(allowed) >= 10 if count > 20 else len(allowed) == count


@pytest.mark.parametrize("flag", ["--store-leases=off", "--store-leases=on", "--compat-keys"])
def test_every_conformance_case_passes_by_the_store(tmp_path, store, flag):
    """envoyproxy/ratelimit's cases once more, each service of theirs on keys of its own."""
    weir = tmp_path / "weir"
    weir.write_text(f"#!/bin/sh\nexec {WEIR} \"$@\" --store {store.url} --store-prefix {tmp_path.name}$$: "
                    f"--store-deadline 10s {flag}\n")
    weir.chmod(0o755)
    cases = [ROOT / "tests/conformance" / name for name in ("test_rls_cases.py", "test_json_cases.py")]
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-k", "not grpc-js", *cases], capture_output=True,
                          env={**os.environ, "WEIR_BIN": str(weir)}, text=True, check=False)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-3000:]


# ---- one count for all ----

@pytest.mark.parametrize("kind", KINDS)
def test_three_nodes_admit_the_limit_to_the_unit(three, kind):
    """Twelve clients on three nodes, each over a connection of its own."""
    admitted = []

    def ask(number):
        with Client(three[number % 3].address("grpc")) as client:
            for _ in range(8):
                response = client.ask("d", descriptor((kind, "shared")), descriptor((kind, f"own{number % 3}")))
                admitted.append(tuple(one.code for one in response.statuses))

    together(ask, range(12))
    assert len(admitted) == 96
    assert sum(shared == OK for shared, _ in admitted) == 20
    assert sum(own == OK for _, own in admitted) == 60


@pytest.fixture(scope="module")
def three(tmp_path_factory, store):
    folder = tmp_path_factory.mktemp("three")
    nodes = [serve(folder, store.url, *PATIENT, name=f"n{i}", listeners=("grpc", "admin")) for i in range(3)]
    yield nodes
    for node in nodes:
        node.stop()


def test_nodes_know_how_many_they_are(three):
    for node in three:
        wait_until(lambda node=node: told(node)["nodes"] >= 3, "nodes to see each other")


def test_who_was_last_seen_before_the_clock_went_back_is_gone(tmp_path, own_store):
    with serve(tmp_path, own_store.url):
        wait_until(lambda: own_store.ask("ZCARD", "weir:nodes") == 1, "the node")
        own_store.ask("ZADD", "weir:nodes", str((time.time() + 3600) * 1000), "dead")
        wait_until(lambda: own_store.ask("ZCARD", "weir:nodes") == 1, "it to be forgotten")


def test_who_is_stopped_gives_back_what_it_has_leased(tmp_path, own_store):
    """In a rolling restart no tokens are lost: the store has counted what passed."""
    rules = "domain: d\ndescriptors:\n  - {key: many, rate_limit: {unit: day, requests_per_unit: 1000000}}\n"
    passed = 0
    for number in range(3):
        folder = tmp_path / f"node{number}"
        folder.mkdir()
        with Service(folder, rules, flags=("--store", own_store.url, "--store-deadline", "10s"),
                     listeners=("grpc", "admin")) as weir, Client(weir.address("grpc")) as client:
            while told(weir)["lease_tokens_granted_total"] - told(weir)["lease_tokens_spent_total"] < 20:
                passed += sum(client.ask("d", descriptor(("many", "k"))).overall == OK for _ in range(200))
        assert counted(own_store, "many", "k") == passed


# ---- when the store is away ----

def admitted(weir, key, value, count):
    return sum(ask_json(weir, key, value) == 200 for _ in range(count))


def test_killed_the_policy_decides_and_afterwards_the_store_again(tmp_path, own_store):
    with serve(tmp_path, own_store.url, "--store-deadline", "1s") as weir:
        wait_until(lambda: ask_json(weir, "fixed", "x") == 200 and told(weir)["replies_total"] > 0, "the store")
        own_store.kill()
        wait_until(lambda: ask_json(weir, "fixed", "probe") and told(weir)["health"] == "away", "it to be missed")
        assert admitted(weir, "open", "k", 10) == 10
        assert admitted(weir, "closed", "k", 10) == 0
        assert admitted(weir, "fixed", "k", 30) == 20, "alone, its share is all"
        with Client(weir.address("grpc")) as client:
            refused = client.ask("d", descriptor(("closed", "k")))
            assert refused.overall == OVER_LIMIT and refused.statuses[0].limit[0] == 5
        metrics = http_rig.ask(weir.port("admin"), "/metrics").body.decode()
        assert re.search(r"^weir_store_up 0$", metrics, re.M)
        assert http_rig.ask(weir.port("http"), "/healthcheck").status == 200, "it still decides"
        own_store.start()
        wait_until(lambda: told(weir)["health"] == "up" and told(weir)["debts"] == 0, "it to be heard of")
        assert counted(own_store, "fixed", "k") == 20 and counted(own_store, "open", "k") == 10
        assert counted(own_store, "closed", "k") == 0
        assert ask_json(weir, "fixed", "k") == 429, "what passed meanwhile counts"
        weir.wait_for("store_away")
        weir.wait_for("store_back")


def test_that_it_is_away_is_told_once_and_again_for_another_reason(tmp_path, own_store):
    def reasons():
        ask_json(weir, "fixed", "x")
        return [line["reason"] for line in weir.events() if line["event"] == "store_away"]

    own_store.kill()
    with serve(tmp_path, own_store.url, threads=3) as weir:
        wait_until(lambda: len(reasons()) == 1, "the first reason")
        time.sleep(1.2)             # a reason that has just been told is not told again
        assert len(reasons()) == 1, "not by each worker, not for each attempt"
        own_store.start("--requirepass", "secret", is_waited_for=False)
        wait_until(lambda: len(reasons()) > 1, "the second reason")
        assert "refused" in reasons()[0] and "NOAUTH" in reasons()[1]


def counted(server, key, value):
    """The count of a fixed window."""
    with server.client as client:
        found = client.keys(f"weir:{{1:d{len(key)}:{key}={len(value)}:{value}}}*")
        assert len(found) <= 1
        return int.from_bytes(client.get(found[0])[5:11], "little") if found else 0


def test_stopped_nobody_waits_beyond_the_deadline_and_counts_are_set_right(tmp_path, own_store):
    """Calls that the store carries out after their deadline count once."""
    with serve(tmp_path, own_store.url, *STRICT, "--store-deadline", "50ms") as weir:
        wait_until(lambda: ask_json(weir, "quiet", "first") == 200 and told(weir)["replies_total"] > 0, "the store")
        before = admitted(weir, "quiet", "k", 5)
        own_store.freeze()
        began = time.monotonic()
        passed = admitted(weir, "quiet", "k", 30)
        assert time.monotonic() - began < 10, "the breaker opens: not each waits"
        assert ask_json(weir, "closed", "k") == 429
        assert passed == 20
        own_store.thaw()
        wait_until(lambda: told(weir)["health"] == "up" and told(weir)["debts"] == 0 and told(weir)["pending"] == 0,
                   "all to be settled")
        assert counted(own_store, "quiet", "k") == before + passed, json.dumps(told(weir)) + str(weir.events()[-6:])
        assert counted(own_store, "closed", "k") == 0


def slide_of(server, key, value):
    """A sliding_window_counter as it is stored: (window, hits of the one before, of this one)"""
    with server.client as client:
        state = client.get(next(iter(client.scan_iter(f"weir:{{*{key}=*{value}}}*"))))
    return tuple(int.from_bytes(state[a:b], "little") for a, b in ((0, 5), (5, 11), (11, 17)))


def test_a_sliding_counter_hears_of_the_window_before_too(tmp_path, own_store):
    """What passed without the store counts there until its window has left, and in no later one."""
    window_s = 4
    rules = f"domain: d\ndescriptors:\n  - {{key: slide, rate_limit: {{unit: second, unit_multiplier: {window_s}, " \
            "requests_per_unit: 100, algorithm: sliding_window_counter}}\n"
    with serve(tmp_path, own_store.url, "--store-deadline", "1s", rules=rules) as weir:
        wait_until(lambda: told(weir)["health"] == "up", "the store")
        for attempt in range(5):
            own_store.kill()
            wait_until(lambda: time.time() % window_s < 0.5, "a window to begin")
            before, passed = time.time() // window_s, admitted(weir, "slide", f"k{attempt}", 7)
            assert passed == 7
            is_one_window = time.time() // window_s == before
            wait_until(lambda before=before: time.time() // window_s > before, "the next")
            late = admitted(weir, "slide", f"k{attempt}", 5)
            own_store.start()
            wait_until(lambda: told(weir)["health"] == "up" and told(weir)["debts"] == 0, "it to be told")
            if time.time() // window_s == before + 1 and is_one_window:    # else the machine was too slow for this
                assert slide_of(own_store, "slide", f"k{attempt}") == (before + 1, passed, late)
                return
    pytest.fail("five times the store did not come back within a window")


ROLLING = """\
domain: d
descriptors:
  - {key: log, rate_limit: {unit: second, requests_per_unit: 10, algorithm: sliding_window_log}}
  - {key: sub, rate_limit: {unit: second, requests_per_unit: 10, algorithm: sliding_window_counter, buckets: 5}}
  - {key: open, rate_limit: {unit: day, requests_per_unit: 10, algorithm: sliding_window_log, on_store_error: open}}
"""


def test_a_long_absence_is_not_charged_as_if_all_of_it_were_now(tmp_path, own_store):
    """Of a log or sub-windows what passed more than two windows ago is forgotten, though they were never idle; and a
    log gets no more entries than fill it, however many hits a request had."""
    with serve(tmp_path, own_store.url, rules=ROLLING, threads=1) as weir, Client(weir.address("grpc")) as client:
        wait_until(lambda: told(weir)["health"] == "up", "the store")
        own_store.kill()
        passed, end = 0, time.monotonic() + 6
        while time.monotonic() < end:
            passed += sum(client.ask("d", descriptor((key, "k"))).overall == OK for key in ("log", "sub"))
            time.sleep(0.01)
        assert client.ask("d", descriptor(("open", "k"), hits=4_000_000_000)).overall == OK
        own_store.start()
        wait_until(lambda: told(weir)["health"] == "up" and told(weir)["debts"] == 0, "it to be told")
        assert passed > 80
        assert told(weir)["reconciled_hits_total"] <= 2 * 2 * 10 + 10
        assert own_store.ask("ZCARD", own_store.ask("KEYS", "*open*")[0]) == 10


def test_resp_falls_back_too(tmp_path, own_store):
    with serve(tmp_path, own_store.url, "--store-deadline", "50ms") as weir, \
            redis.Redis(port=weir.port("resp"), socket_timeout=10) as client:
        wait_until(lambda: client.execute_command("CL.THROTTLE", "w", 9, 10, 60) and told(weir)["replies_total"] > 0,
                   "the store")
        own_store.kill()
        replies = [client.execute_command("CL.THROTTLE", "k", 2, 10, 86400)[0] for _ in range(6)]
        assert replies == [0, 0, 0, 1, 1, 1]
        own_store.start()
        wait_until(lambda: told(weir)["health"] == "up" and told(weir)["debts"] == 0, "it to be told")
        assert client.execute_command("CL.THROTTLE", "k", 2, 10, 86400)[:3] == [1, 3, 0]


def test_it_starts_without_its_store(tmp_path):
    server = Server(tmp_path / "redis", is_started=False)
    with serve(tmp_path, server.url) as weir, server:
        assert admitted(weir, "quiet", "k", 25) == 20
        server.start()
        wait_until(lambda: told(weir)["health"] == "up" and told(weir)["debts"] == 0, "the store to be found")
        assert counted(server, "quiet", "k") == 20


def test_who_may_wait_waits_for_a_store_that_is_slow_to_let_us_in(tmp_path, own_store):
    """As one that has just become a master is: that it takes its time to greet is no reason to refuse before
    the deadline."""
    own_store.freeze()
    with serve(tmp_path, own_store.url, "--store-deadline", "30s", threads=1) as weir, \
            Client(weir.address("grpc")) as client:
        asked = [client.channel.unary_unary(SHOULD_RATE_LIMIT).future(request_of("closed", "k"), timeout=60)
                 for _ in range(3)]
        wait_until(lambda: told(weir)["breaks_total"] > 0, "another connection to be tried")
        assert told(weir)["pending"] == 3
        own_store.thaw()
        assert [parse_response(one.result()).overall for one in asked] == [OK] * 3
        assert told(weir)["replies_total"] >= 3 and told(weir)["breaker_openings_total"] == 0


def test_no_more_wait_than_may(tmp_path, own_store):
    with serve(tmp_path, own_store.url, "--store-pending", "1", "--store-deadline", "2s", threads=1) as weir, \
            Client(weir.address("grpc")) as client:
        own_store.freeze()
        first = client.channel.unary_unary(SHOULD_RATE_LIMIT)
        waiting = first.future(request_of("fixed", "a"), timeout=20)
        wait_until(lambda: told(weir)["pending"] == 1, "one to wait")
        began = time.monotonic()
        assert client.ask("d", descriptor(("closed", "b"))).overall == OVER_LIMIT
        assert time.monotonic() - began < 1.5 and told(weir)["no_room_total"] >= 1
        own_store.thaw()
        waiting.result()


def test_how_long_calls_waited_is_told_to_statsd(tmp_path, own_store):
    """Of three calls, two while the store does not answer: as long as they waited for it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as statsd:
        statsd.bind(("127.0.0.1", 0))
        statsd.settimeout(30)
        flags = ("--store-deadline", "200ms", "--statsd", f"127.0.0.1:{statsd.getsockname()[1]}", "--statsd-interval",
                 "100ms")
        with serve(tmp_path, own_store.url, *flags) as weir, Client(weir.address("grpc")) as client:
            wait_until(lambda: told(weir)["health"] == "up", "the store")
            client.ask("d", descriptor(("quiet", "t")))
            own_store.freeze()
            for _ in range(2):
                client.ask("d", descriptor(("quiet", "t")))
            times = []
            while len(times) < 3:
                for ms, rate in re.findall(rb"ShouldRateLimit.response_time:(\d+\.\d+)\|ms(?:\|@(0\.\d+))?",
                                           statsd.recv(65536)):
                    times += [float(ms)] * int(1 / float(rate or 1))
            own_store.thaw()
    assert len(times) == 3 and sum(199 <= ms < 30000 for ms in times) >= 2, times


def request_of(key, value):
    return request("d", descriptor((key, value)))


def test_requests_of_many_descriptors_wait_too(tmp_path, own_store):
    """More than a block holds; some still wait when the service is told to go."""
    with serve(tmp_path, own_store.url, *PATIENT) as weir, Client(weir.address("grpc")) as client:
        for _ in range(3):
            response = client.ask("d", *[descriptor(("quiet", f"many{i}"), ("x" * 200, "y")) if i % 2 else
                                         descriptor(("quiet", f"many{i}")) for i in range(64)])
            assert response.overall == OK and len(response.statuses) == 64
        assert response.statuses[0].remaining == 17
        own_store.freeze()
        call = client.channel.unary_unary(SHOULD_RATE_LIMIT)
        asked = request("d", *[descriptor(("quiet", f"many{i}")) for i in range(64)])
        calls = [call.future(asked, timeout=20) for _ in range(5)]
        wait_until(lambda: told(weir)["pending"] == 5, "all to wait")
        for one in calls:
            one.cancel()


def test_clients_that_leave_do_no_harm(tmp_path, own_store):
    with serve(tmp_path, own_store.url, "--store-deadline", "300ms") as weir:
        own_store.freeze()
        with Client(weir.address("grpc")) as client:
            call = client.channel.unary_unary(SHOULD_RATE_LIMIT)
            calls = [call.future(request_of("fixed", "a"), timeout=20) for _ in range(20)]
            for one in calls:
                one.cancel()
        for port, data in ((weir.port("http"), f"POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: "
                            f"{len(body(('fixed', 'a')))}\r\n\r\n{body(('fixed', 'a'))}"),
                           (weir.port("resp"), "CL.THROTTLE a 9 10 60\r\n" * 100)):
            for _ in range(5):
                with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                    connection.sendall(data.encode())
        own_store.thaw()
        wait_until(lambda: told(weir)["pending"] == 0 and told(weir)["health"] == "up", "nobody to wait")
        assert ask_json(weir, "quiet", "after") == 200


def test_a_changed_rate_is_asked_for_again(tmp_path, own_store):
    rules = "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: year, requests_per_unit: %d, " \
            "algorithm: token_bucket}}\n"
    with serve(tmp_path, own_store.url, *PATIENT, rules=rules % 10) as weir, Client(weir.address("grpc")) as client:
        left = [client.ask("d", descriptor(("k", "v"))).statuses[0].remaining for _ in range(4)]
        assert left == [9, 8, 7, 6]
        weir.rules(rules % 20)
        wait_until(lambda: client.ask("d", descriptor(("k", "other"))).statuses[0].limit[0] == 20, "the rules")
        assert client.ask("d", descriptor(("k", "v"))).statuses[0].remaining == 15, "four were used, and now one more"
        assert told(weir)["asked_again_total"] in (1, 2), "of the other, too, if it was asked for before"


def test_nodes_that_are_not_agreed_on_a_rate_share_a_bucket_all_the_same(tmp_path, own_store):
    """As while new rules are on their way: each finds the bucket counted at the other's rate, again and again."""
    rules = "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: year, requests_per_unit: %d, burst: 1000, " \
            "algorithm: token_bucket, on_store_error: open}}\n"

    def admitted_by(weir):
        with Client(weir.address("grpc")) as client:
            return sum(client.ask("d", descriptor(("k", "v"))).overall == OK for _ in range(300))

    with serve(tmp_path, own_store.url, *PATIENT, rules=rules % 10) as one, \
            serve(tmp_path, own_store.url, *PATIENT, rules=rules % 17, name="other") as other:
        assert sum(together(admitted_by, [one, other] * 4)) == 1000
        assert told(one)["fallback_open_total"] + told(other)["fallback_open_total"] == 0


# ---- beside envoyproxy/ratelimit ----

COMPAT_RULES = """\
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 10}}
  - key: path
    value: /api/*
    share_threshold: true
    descriptors:
      - {key: user, rate_limit: {unit: year, requests_per_unit: 100}}
  - {key: bucket, rate_limit: {unit: year, requests_per_unit: 5, algorithm: token_bucket}}
"""


def window(seconds):
    """The start of the window, as it stands in their keys.  Nobody tests at midnight."""
    while 86400 - time.time() % 86400 < 20:
        time.sleep(1)
    return int(time.time()) // seconds * seconds


def test_compat_keys_go_on_from_what_the_go_service_counted(tmp_path, own_store):
    """Issue: a store filled by envoyproxy/ratelimit's keys is continued from, count for count."""
    key = f"shop_user_alice_{window(86400)}"
    with own_store.client as store, \
            serve(tmp_path, own_store.url, "--compat-keys", *PATIENT, rules=COMPAT_RULES) as weir, \
            Client(weir.address("grpc")) as client:
        store.set(key, 7, ex=100)
        got = [client.ask("shop", descriptor(("user", "alice"))) for _ in range(5)]
        assert [(one.overall, one.statuses[0].remaining) for one in got] == \
            [(OK, 2), (OK, 1), (OK, 0), (OVER_LIMIT, 0), (OVER_LIMIT, 0)]
        assert store.get(key) == b"12" and 86390 <= store.ttl(key) < 86400 + 300
        assert client.ask("shop", descriptor(("user", "alice"), hits=0)).overall == OVER_LIMIT
        client.ask("shop", descriptor(("user", "alice"), hits=6, negative=True))
        assert store.get(key) == b"6"
        client.ask("shop", descriptor(("user", "alice"), hits=100, negative=True))
        assert store.get(key) == b"0"
        client.ask("shop", descriptor(("path", "/api/x"), ("user", "")), descriptor(("user", "bob"), hits=3))
        client.ask("shop", descriptor(("bucket", "b")))
        names = {name for name in store.keys("shop_*")}
        assert names == {key.encode(), b"shop_path_/api/*_user__%d" % window(365 * 86400),
                         b"shop_user_bob_%d" % window(86400)}
        assert len(store.keys("{4:shop6:bucket=1:b}*")) == 1, "what the Go service has no keys for is counted as ever"


def test_hits_beyond_all_measure_do_not_spoil_a_compat_key(tmp_path, own_store):
    """INCRBY counts to 2^63 and refuses what is beyond: then nobody could be counted any more."""
    with serve(tmp_path, own_store.url, "--compat-keys", *PATIENT, rules=COMPAT_RULES) as weir, \
            Client(weir.address("grpc")) as client:
        for hits in (2**62, 2**62, 2**64 - 1, 1):
            assert client.ask("shop", descriptor(("user", "eve"), hits=hits)).overall == OVER_LIMIT
        assert not [one for one in weir.events() if one["event"] == "store_complains"]
        assert told(weir)["fallback_local_total"] == 0


def test_compat_keys_and_the_go_service_share_a_limit(tmp_path, own_store):
    """Side by side: what the Go service does, done by this test, and we, never pass more than the limit together."""
    key, passed = f"theirs:shop_user_eve_{window(86400)}", []

    def be_go():
        with own_store.client as store:
            for _ in range(10):
                after, _ = store.pipeline(transaction=False).incrby(key, 1).expire(key, 86400).execute()
                passed.append(after <= 10)

    with serve(tmp_path, own_store.url, "--compat-keys", "--store-prefix", "theirs:", *PATIENT,
               rules=COMPAT_RULES) as weir, Client(weir.address("grpc")) as client:
        threads = [threading.Thread(target=be_go) for _ in range(2)]
        for thread in threads:
            thread.start()
        passed += [client.ask("shop", descriptor(("user", "eve"))).overall == OK for _ in range(10)]
        for thread in threads:
            thread.join()
    assert sum(passed) == 10 and len(passed) == 30
    assert own_store.ask("GET", key) == b"30"


# ---- settings ----

def test_settings_of_envoyproxy_ratelimit_name_the_store(tmp_path, own_store):
    own_store.ask("CONFIG", "SET", "requirepass", "p@ss/word")
    env = {"REDIS_URL": f"127.0.0.1:{own_store.port}", "REDIS_SOCKET_TYPE": "tcp", "REDIS_AUTH": "p@ss/word",
           "CACHE_KEY_PREFIX": "theirs:"}
    with Service(tmp_path, RULES, env=env, listeners=ALL, flags=PATIENT) as weir:
        assert ask_json(weir, "fixed", "k") == 200
        assert "p@ss" not in json.dumps(told(weir)) and "p%40ss" not in json.dumps(told(weir))
        with redis.Redis(port=own_store.port, password="p@ss/word") as client:
            assert client.keys("theirs:{1:d5:fixed=1:k}*")


@pytest.mark.parametrize("env, url", [
    ({"REDIS_URL": "h:1", "REDIS_SOCKET_TYPE": "tcp"}, "redis://h:1"),
    ({"REDIS_URL": "/run/redis.sock"}, "unix:/run/redis.sock"),
    ({"REDIS_URL": "redis.sock", "REDIS_SOCKET_TYPE": "unix"}, "unix:redis.sock"),
    ({"REDIS_URL": "h:1", "REDIS_SOCKET_TYPE": "tcp", "REDIS_TLS": "true"}, "rediss://h:1"),
    ({"REDIS_URL": "a:1,b:2", "REDIS_TYPE": "CLUSTER", "REDIS_SOCKET_TYPE": "tcp"}, "redis-cluster://a:1,b:2"),
    ({"REDIS_URL": "main,a:1,b:2", "REDIS_TYPE": "sentinel", "REDIS_SOCKET_TYPE": "tcp"},
     "redis-sentinel://(hidden)@a:1,b:2"),
    ({"REDIS_URL": "main,a:1", "REDIS_TYPE": "sentinel", "REDIS_SOCKET_TYPE": "tcp",
      "REDIS_SENTINEL_AUTH": "me:s@secret"},
     "redis-sentinel://(hidden)@a:1?(hidden)"),
    ({"REDIS_URL": "h:1", "REDIS_AUTH": "me:secret", "REDIS_SOCKET_TYPE": "tcp"}, "redis://(hidden)@h:1"),
    ({"REDIS_URL": "rediss://u:secret@h:1"}, "rediss://(hidden)@h:1"),
    ({"REDIS_URL": "h:1", "REDIS_SOCKET_TYPE": "tcp", "WEIR_STORE": "local"}, "local"),
])
def test_their_variables_make_an_address(env, url):
    printed = subprocess.run([WEIR, "serve", "--print-config"], env=env, capture_output=True, text=True,
                             check=True).stdout
    assert re.search(r"^store: '(.*?)'", printed, re.M)[1] == url and "secret" not in printed


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_the_last_answer_of_a_connection_comes_before_its_end(pair, version):
    with socket.create_connection(("127.0.0.1", pair[0].port("http")), timeout=10) as connection:
        text = body(("never", "last"))
        connection.sendall(f"POST /json HTTP/{version}\r\nHost: x\r\nConnection: close\r\n"
                           f"Content-Length: {len(text)}\r\n\r\n{text}".encode())
        assert http_rig.read_all(connection).startswith(b"HTTP/1.1 429")


@pytest.mark.parametrize("login", ["only@pass/word?", "watcher:p&s=s"])
def test_sentinels_with_a_password_of_their_own(tmp_path, login):
    """By requirepass and by an ACL: the service finds its master, and so does `weir rules`.  Without it, or with a
    wrong one, it does not, and says what the Sentinel said."""
    with Sentinels(tmp_path / "redis", replicas=0, login=login) as sentinels:
        with serve(tmp_path, sentinels.url, *PATIENT) as weir:
            wait_until(lambda: told(weir)["health"] == "up", "the master")
            assert [ask_json(weir, "quiet", "s", hits=20), ask_json(weir, "quiet", "s")] == [200, 429]
            assert told(weir)["asked_total"] == 2 and told(weir)["fallback_local_total"] == 0
            assert told(weir)["store"] == sentinels.url.partition("?")[0].replace("weir@", "(hidden)@") + "?(hidden)"
            assert not any("word" in line or "s%3Ds" in line for line in weir.lines)
        listed = subprocess.run([WEIR, "rules", "list", "--store", sentinels.url], capture_output=True, text=True,
                                check=False)
        assert listed.returncode == 0, listed.stderr
        for number, url in enumerate((sentinels.url.partition("?")[0],
                                      sentinels.url.replace("sentinel_password=", "sentinel_password=x"))):
            with serve(tmp_path, url, name=f"stranger{number}") as weir:
                weir.wait_for("store_unknown")
                reasons = [one["reason"] for one in weir.events() if one["event"] == "store_unknown"]
                assert all(re.match("NOAUTH|WRONGPASS", reason) for reason in reasons), reasons
                assert told(weir)["health"] == "away" and ask_json(weir, "closed", "k") == 429
            said = subprocess.run([WEIR, "rules", "list", "--store", url], capture_output=True, text=True, check=False)
            assert said.returncode == 3 and re.search("NOAUTH|WRONGPASS", said.stderr), said.stderr


def test_tls_to_the_store_with_a_certificate_of_ours(tmp_path):
    """A store that is not who it should be is as one that is away."""
    authority = Authority(tmp_path)
    cert, key = authority.sign("redis", "IP:127.0.0.1")
    ours = authority.sign("weir", "DNS:weir.test")
    server = Server(tmp_path / "redis", is_started=False)
    server.settings = ["--port", "0", "--tls-port", str(server.port), "--tls-cert-file", str(cert), "--tls-key-file",
                       str(key), "--tls-ca-cert-file", str(tmp_path / "ca.pem")]
    with server:
        server.start(is_waited_for=False)
        flags = ("--store-tls-cert", ours[0], "--store-tls-key", ours[1], *PATIENT)
        url = f"rediss://127.0.0.1:{server.port}"
        with serve(tmp_path, url, "--store-tls-ca", tmp_path / "ca.pem", *flags) as weir:
            wait_until(lambda: told(weir)["health"] == "up", "the store")
            assert ask_json(weir, "fixed", "k") == 200 and told(weir)["fallback_local_total"] == 0
        with serve(tmp_path, url, *flags, name="stranger") as weir:
            wait_until(lambda: ask_json(weir, "closed", "k") == 429 and told(weir)["health"] == "away",
                       "it to be refused")


@pytest.mark.parametrize("flags, words", [
    (["--store", "http://x"], "a store is redis://"),
    (["--store", "redis://x:65536"], "the port of a host is not a number from 1 to 65535"),
    (["--store", "redis-sentinel://m@x?sentinel_user=u"], "sentinel_password=PASSWORD"),
    (["--store", "redis://x", "--store-prefix", "a{b"], "brace"),
    (["--store", "redis://x", "--store-prefix", "a" * 101], "at most 100 bytes"),
    (["--store", "redis://x", "--on-store-error", "maybe"], "local|open|closed"),
])
def test_settings_that_make_no_sense_are_refused(tmp_path, flags, words):
    with pytest.raises(AssertionError, match="no 'ready'") as refused:
        Service(tmp_path, RULES, flags=flags)
    assert words in str(refused.value)
