"""Exact: three nodes on one store admit what one machine would, and not one more, whatever they are asked.

Deadlines are long here, and nobody decides without the store: what is tested is what the store decides.  test_faults.py
has the rest.  With WEIR_CHAOS=long (`make chaos`) it takes longer, and asks more.
SPDX-License-Identifier: Apache-2.0
"""
import contextlib

import checker
import pytest
from checker import NS, Limit
from fleet_rig import IS_LONG, LIMITS, LONG_WINDOW_S, Fleet, counted, quick
from redis_rig import Server
from redis_topologies import CALM_MS, Cluster
from service import wait_until
from service import wait_until

PATIENT = "--store-deadline", "10s", "--on-store-error", "closed"
COLD = {"cold": Limit("token_bucket", 2, burst=2)}
HOT = {"hot": Limit("fixed_window", 400), "hot_bucket": Limit("token_bucket", 400, burst=100)}
TOTAL = {"total": Limit("fixed_window", 1_000_000_000, LONG_WINDOW_S)}
ALL = {**LIMITS, **COLD, **HOT, **TOTAL, "remote_address": Limit("sliding_window_log", 30)}
EVERY = ",".join(LIMITS) + ",cold*300"


@contextlib.contextmanager
def one_server(folder):
    with Server(folder / "redis") as server:
        yield server.url, [server]


@contextlib.contextmanager
def a_cluster(folder):
    with Cluster(folder / "cluster", timeout_ms=CALM_MS) as cluster:
        yield cluster.url, cluster.masters


@contextlib.contextmanager
def shards(folder):
    with Server(folder / "one") as one, Server(folder / "two") as two:
        yield f"redis-shards://127.0.0.1:{one.port},127.0.0.1:{two.port}", [one, two]


@pytest.fixture(scope="module", params=[one_server, a_cluster, shards], ids=["one server", "Cluster", "shards"])
def fleet(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet")
    with request.param(folder) as (url, servers), \
            Fleet(folder, url, ALL, flags=PATIENT, listeners=("grpc", "http", "resp", "admin")) as fleet:
        fleet.servers = servers
        yield fleet


def judge(load):
    """All were answered, some were refused, and no key got more than its bound."""
    assert load.counts["error"] == load.counts["lost"] == load.counts["open"] == 0, load.counts
    assert load.counts["ok"] > 0 and load.counts["over"] > 0, load.counts
    assert named(load, checker.check(load.hits, load.limits)) == {}


def named(load, found):
    return {(load.names[descriptor], value): number for (descriptor, value), number in found.items()}


@pytest.mark.parametrize("protocol", ["grpc", "json"])
def test_every_algorithm_across_its_windows(fleet, protocol):
    with fleet.load(protocol, EVERY, rate=quick(1500, 4000), seconds=quick(3.3, 20)) as load:
        pass
    judge(load)


def test_bursts_after_idling(fleet):
    with fleet.load("grpc", EVERY, rate=quick(4000, 8000), seconds=quick(0.6, 4), on_ms=150, off_ms=900) as load:
        pass
    judge(load)


def test_requests_of_several_hits(fleet):
    with fleet.load("json", EVERY, rate=quick(1000, 3000), seconds=quick(2.2, 10), hits=3) as load:
        pass
    judge(load)


def test_throttle_over_resp(fleet):
    with fleet.load("resp", "user*2", throttle=Limit("token_bucket", 100, burst=30), rate=quick(1500, 4000),
                    seconds=quick(2.2, 10)) as load:
        pass
    judge(load)


def test_addresses_over_check(fleet):
    with fleet.load("check", "remote_address*3", rate=quick(1000, 3000), seconds=quick(2.2, 10)) as load:
        pass
    judge(load)


def test_the_store_has_counted_what_was_admitted(fleet):
    before = [counted(fleet.servers, "total", value) for value in range(5)]
    with fleet.load("grpc", "total*5", rate=quick(2000, 5000), seconds=quick(1, 5)) as load:
        pass
    assert load.counts["ok"] == len(load.hits)
    wanted = [before[value] + len(load.of("total", value)) for value in range(5)]
    wait_until(lambda: [counted(fleet.servers, "total", value) for value in range(5)] == wanted,
               "what was leased has come back, and not one more")


@pytest.mark.parametrize("name", HOT)
def test_a_hot_key_is_used_to_the_full(fleet, name):
    seconds = quick(3.3, 10)
    with fleet.load("grpc", name, rate=quick(2000, 5000), seconds=seconds) as load:
        pass
    judge(load)
    begin, end = load.hits[0].first_ns, load.hits[-1].last_ns
    share = checker.utilisation(load.hits, fleet.limits[name], begin, end)
    assert share > (0.99 if IS_LONG else 0.9), f"{share:.4f} in {(end - begin) / NS:.1f} s"


def test_nodes_that_are_killed_give_nothing_away(tmp_path):
    with one_server(tmp_path) as (url, _), Fleet(tmp_path, url, ALL, flags=PATIENT) as fleet:
        with fleet.load("grpc", EVERY, rate=quick(1500, 4000), seconds=quick(4, 20)) as load:
            for round_s in range(1, quick(3, 19)):
                load.wait_until(round_s + 0.3)
                fleet.restart(round_s % 3)
        assert load.counts["lost"] > 0 and load.counts["error"] == 0, load.counts
        assert named(load, checker.check(load.hits, load.limits)) == {}


def test_scripts_that_are_flushed_are_loaded_again(tmp_path):
    with Server(tmp_path / "redis") as server, Fleet(tmp_path, server.url, ALL, flags=PATIENT) as fleet:
        with fleet.load("grpc", EVERY, rate=quick(1500, 4000), seconds=quick(1.5, 10)) as load:
            for turn in range(quick(10, 80)):
                load.wait_until(0.2 + turn * 0.1)
                server.forget_scripts()
        judge(load)
        assert min(fleet.metric(i, "weir_store_script_loads_total") for i in range(3)) > 0


def test_a_store_that_comes_back_empty_gives_each_key_its_limit_once_more(tmp_path):
    """The bound where Redis loses what it has acknowledged: here all of it."""
    with Server(tmp_path / "redis") as server, Fleet(tmp_path, server.url, ALL, flags=PATIENT) as fleet:
        with fleet.load("grpc", EVERY, rate=quick(1500, 4000), seconds=quick(2.5, 6)) as load:
            load.wait_until(1.2)
            server.kill()
            server.start()
        found = named(load, checker.check(load.hits, load.limits))
        assert load.counts["error"] == load.counts["lost"] == load.counts["open"] == 0, load.counts
        assert found, "nothing was lost: then this shows nothing"
        assert all(over <= fleet.limits[name].room for (name, _), over in found.items()), found


def test_nodes_that_do_not_share_are_found(tmp_path):
    """The planted bug: two of the nodes count elsewhere.  Every algorithm's check sees it."""
    with Server(tmp_path / "one") as one, Server(tmp_path / "two") as two, \
            Fleet(tmp_path, [one.url, two.url, two.url], ALL, flags=PATIENT) as fleet:
        with fleet.load("grpc", EVERY, rate=2000, seconds=2.5) as load:
            pass
        found = named(load, checker.check(load.hits, load.limits))
        assert {name for name, _ in found} >= set(LIMITS), found
