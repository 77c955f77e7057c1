"""Leases: a hot key is exact to the unit and hardly asked for, a cold one costs one call, and the dead take what they
held along.

SPDX-License-Identifier: Apache-2.0
"""
import checker
import pytest
from checker import Limit
from fleet_rig import LONG_WINDOW_S, Fleet, counted, quick
from history import OK
from proxy_rig import Proxy
from redis_rig import Server
from service import wait_until

PATIENT = "--store-deadline", "10s", "--on-store-error", "closed"
FEW, MANY = 3000, 1_000_000_000
LIMITS = {
    "few": Limit("fixed_window", FEW, LONG_WINDOW_S),
    "many": Limit("fixed_window", MANY, LONG_WINDOW_S),
    "slide": Limit("sliding_window_counter", 2000),
    "sub": Limit("sliding_window_counter", 2000, buckets=5),
    "bucket": Limit("token_bucket", 2000, burst=2000),
    "tick": Limit("token_bucket", 2000, burst=3000, refill="interval"),
    "log": Limit("sliding_window_log", 6000, window_s=3),
    "cold": Limit("fixed_window", 5, LONG_WINDOW_S),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("store") / "redis") as server:
        yield server


@pytest.fixture
def fleet(store, tmp_path):
    with Fleet(tmp_path, store.url, LIMITS, flags=PATIENT) as fleet:
        yield fleet


def calls(server):
    """How often the script was called."""
    with server.client as client:
        return sum(client.info("commandstats").get(f"cmdstat_{name}", {}).get("calls", 0)
                   for name in ("fcall", "evalsha"))


def admitted(load):
    return sum(hit.verdict == OK for hit in load.hits)


def total(fleet, name):
    return sum(fleet.metric(i, f"weir_store_{name}") for i in range(len(fleet.nodes)))


def unaccounted(fleet):
    """Tokens that were granted, and neither spent nor given back nor seen to end."""
    return total(fleet, "lease_tokens_granted_total") - sum(total(fleet, f"lease_tokens_{fate}_total")
                                                            for fate in ("spent", "returned", "expired"))


def test_a_hot_key_is_exact_and_hardly_asked_for(store, fleet):
    before = calls(store)
    with fleet.load("grpc", "few", rate=quick(15000, 30000), seconds=quick(3, 10)) as load:
        pass
    assert admitted(load) == FEW, load.counts
    asked = calls(store) - before
    assert asked <= len(load.hits) / quick(50, 100), f"{asked} calls for {len(load.hits)}"
    assert counted([store], "few") >= FEW


def test_what_is_not_spent_comes_back(store, fleet):
    with fleet.load("grpc", "many*3", rate=quick(3000, 20000), seconds=quick(1.5, 5)) as load:
        pass
    assert admitted(load) == len(load.hits)
    for value in range(3):
        wanted = len(load.of("many", value))
        wait_until(lambda: counted([store], "many", value) == wanted, f"{wanted} hits to be counted")
    wait_until(lambda: unaccounted(fleet) == 0, "every token to be accounted for")
    assert total(fleet, "leases_total") > 0 and total(fleet, "lease_tokens_returned_total") > 0


@pytest.mark.parametrize("name", ["slide", "sub", "bucket", "tick", "log"])
def test_hot_keys_of_every_kind_keep_their_bound(store, fleet, name):
    before = calls(store)
    with fleet.load("grpc", name, rate=quick(9000, 30000), seconds=quick(2.3, 10)) as load:
        pass
    assert checker.check(load.hits, load.limits) == {}
    assert total(fleet, "decided_by_lease_total") > 0
    assert calls(store) - before <= len(load.hits) / 2, f"{calls(store) - before} calls for {len(load.hits)}"


def test_a_cold_key_costs_one_call(store, fleet):
    before = calls(store)
    with fleet.load("grpc", "cold*1000000", rate=500, seconds=quick(1, 5)) as load:
        pass
    assert admitted(load) == len(load.hits)
    assert calls(store) - before == len(load.hits)


def test_the_dead_take_along_what_they_held(store, tmp_path):
    with store.client as client:
        client.flushdb()
    with Fleet(tmp_path, store.url, LIMITS, flags=PATIENT) as fleet:
        with fleet.load("grpc", "few,many", rate=quick(3000, 10000), seconds=quick(2.5, 6)) as load:
            for i in range(3):
                load.wait_until(0.3 + i / 2)
                fleet.restart(i)
    few = load.of("few")
    assert FEW / 3 < sum(hit.verdict == OK for hit in few) <= FEW
    assert sum(hit.verdict == OK for hit in load.of("many")) <= counted([store], "many")


def test_who_waits_for_anothers_call_waits_no_longer_than_its_own_deadline(store, tmp_path):
    """The store is slow of a sudden: one trip takes more than half the deadline.  Who came while the first call was
    under way has waited for that already, and cannot wait for another."""
    flags = "--store-deadline", "400ms", "--on-store-error", "closed"
    with Proxy(store.port) as proxy, Fleet(tmp_path, proxy.url, LIMITS, count=1, flags=flags) as fleet:
        with fleet.load("grpc", "cold*100", rate=100, seconds=0.1):
            pass                        # connected, and the script is there
        proxy.delay_s = 0.12
        with fleet.load("grpc", "many", rate=2000, seconds=0.02) as load:
            pass
        assert fleet.metric(0, "weir_store_coalesced_total") > 0
        assert admitted(load) <= 1, "the first, and none that was decided by a second trip"
        assert fleet.metric(0, "weir_store_fallback_closed_total") == len(load.hits) - admitted(load)
