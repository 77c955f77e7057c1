"""The store is gone, slow or half-dead, under load: every question is answered in time and as its rule says; then all
is as it was.

SPDX-License-Identifier: Apache-2.0
"""
import checker
import figures
import pytest
from checker import Limit
from faults import BREAK, FAULTS, NETWORK, Site
from fleet_rig import Fleet, quick
from fleet_rig import LIMITS as ALGORITHMS
from redis_rig import Server
from service import wait_until
from trial import (AFTER_S, HASTY, KEYS, LEASING, LIMITS, NODES, TRIES, USE, Trial, best_of, judge_answers,
                   judge_counts, judge_lateness, judge_policies, judge_recovery, judge_shares, judge_tokens, least_use)


def run(folder, fault, seconds, judge, flags=HASTY, **load):
    """A trial with a store and nodes of its own."""
    folder.mkdir()
    with Site(folder) as site, \
            Fleet(folder, site.url_for(fault), LIMITS, NODES, flags,
                  listeners=("grpc", "http", "resp", "admin")) as fleet:
        trial = Trial(fleet, FAULTS[fault](site), seconds, **load)
        judge_answers(trial, fleet)
        judge(trial, site)
        return trial


@pytest.mark.parametrize("name", FAULTS)
def test_a_store_that_is(name, tmp_path):
    def judge(trial, site):
        judge_policies(trial)
        judge_recovery(trial)
        judge_shares(trial)
        judge_counts(trial, site, name in BREAK)
    seconds, rate = quick(1.2, 30 if name == "frozen" else 5), quick(600, 1500 if name in NETWORK else 5000)
    best = best_of(lambda folder: run(folder, name, seconds, judge, keys=KEYS, rate=rate), tmp_path)
    figures.tell(f"store {name}", recovery_ms=best.recovery_ms(), lateness_ms=best.lateness_ms(),
                 growth_kib=best.growth / 1024)
    judge_lateness(best)


@pytest.mark.parametrize("name", quick(("killed", "frozen", "cut off"), FAULTS))
def test_leases_in_hand_and_a_store_that_is(name, tmp_path):
    """Who leases notices a fault when it must ask, a second later at the most.  Then all is as it is without."""
    def judge(trial, site):
        judge_policies(trial)
        judge_recovery(trial)
        judge_shares(trial)
        judge_tokens(trial, site, name in BREAK)
        assert sum(trial.fleet.metric(i, "weir_store_decided_by_lease_total") for i in range(NODES)) > 0
    run(tmp_path / "try", name, quick(2.0, 6), judge, LEASING, keys=KEYS, rate=quick(600, 1500))


@pytest.mark.parametrize("name", quick(("killed", "frozen", "cut off"), FAULTS))
def test_nobody_gets_more_than_the_limit_while_the_store_is(name, tmp_path):
    """With leases in hand, and where nobody may decide without the store: it loses nothing that it acknowledged.
    Afterwards what may pass does; what else this machine does can only make it less."""
    flags, shares = (*LEASING, "--on-store-error", "closed"), []
    while len(shares) < TRIES and max(shares, default=(-1, "")) < (USE, ""):
        folder = tmp_path / f"try{len(shares)}"
        with Site(folder) as site, Fleet(folder, site.url_for(name), ALGORITHMS, NODES, flags) as fleet:
            trial = Trial(fleet, FAULTS[name](site), quick(0.8, 5), AFTER_S + quick(0, 3), keys=",".join(ALGORITHMS),
                          rate=1500)
            judge_answers(trial, fleet)
            found = checker.check(trial.load.hits, trial.load.limits)
            assert {trial.load.names[descriptor]: over for (descriptor, _), over in found.items()} == {}
            shares.append(least_use(trial))
    figures.tell(f"limits, store {name}", least_use=100 * max(shares)[0])
    assert max(shares) >= (USE, ""), shares


@pytest.mark.parametrize("protocol, keys, throttle",
                         [("json", "closed*100", None), ("check", "remote_address*100", None),
                          ("resp", "user*100", Limit("token_bucket", 100, burst=50))])
def test_nobody_waits_for_a_store_that_is_frozen_over(protocol, keys, throttle, tmp_path):
    best = best_of(lambda folder: run(folder, "frozen", quick(0.8, 30), lambda *_: None, protocol=protocol, keys=keys,
                                      throttle=throttle, rate=quick(600, 5000)), tmp_path)
    figures.tell(f"store frozen, asked by {protocol}", lateness_ms=best.lateness_ms(), growth_kib=best.growth / 1024)
    judge_lateness(best)


def test_nodes_know_of_each_other_when_the_store_comes_back_empty(tmp_path):
    """Else the first to come would take the whole limit for its share, should the store fail again."""
    with Server(tmp_path / "redis") as server, Fleet(tmp_path, server.url, LIMITS, 2) as fleet:
        fleet.wait_for_each_other()
        server.kill()
        server.start()
        counted = [fleet.metric(i, "weir_store_replies_total") for i in range(2)]
        wait_until(lambda: all(fleet.metric(i, "weir_store_replies_total") > counted[i] for i in range(2)),
                   "both to be counted")
        assert [fleet.metric(i, "weir_store_nodes") for i in range(2)] == [2, 2]
        fleet.nodes.pop().kill()
        wait_until(lambda: fleet.metric(0, "weir_store_nodes") == 1, "the dead to be missed")
