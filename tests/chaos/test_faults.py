"""The store is gone, slow or half-dead, under load: every question is answered in time and as its rule says; then all is as it was.

SPDX-License-Identifier: Apache-2.0
"""
import figures
import pytest
from checker import Limit
from faults import BREAK, FAULTS, Site
from fleet_rig import Fleet, quick
from trial import HASTY, KEYS, LIMITS, NODES, Trial, judge_answers, judge_counts, judge_policies, judge_recovery, judge_shares


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path) as site:
        yield site


@pytest.fixture
def fleet(site, tmp_path):
    with Fleet(tmp_path, site.url, LIMITS, NODES, flags=HASTY, listeners=("grpc", "http", "resp", "admin")) as fleet:
        yield fleet


@pytest.mark.parametrize("name", FAULTS)
def test_a_store_that_is(name, site, fleet):
    trial = Trial(fleet, FAULTS[name](site), quick(1.2, 30 if name == "frozen" else 5), rate=quick(600, 5000), keys=KEYS)
    figures.tell(f"store {name}", recovery_ms=trial.recovery_ms(), lateness_ms=trial.lateness_ms(), growth_kib=trial.growth / 1024)
    judge_answers(trial, fleet)
    judge_policies(trial)
    judge_recovery(trial)
    judge_shares(trial)
    judge_counts(trial, site, name in BREAK)


@pytest.mark.parametrize("protocol, keys, throttle", [("json", "closed*100", None), ("check", "remote_address*100", None),
                                                      ("resp", "user*100", Limit("token_bucket", 100, burst=50))])
def test_nobody_waits_for_a_store_that_is_frozen_over(protocol, keys, throttle, site, fleet):
    trial = Trial(fleet, FAULTS["frozen"](site), quick(0.8, 30), protocol=protocol, keys=keys,
                  throttle=throttle, rate=quick(600, 5000))
    figures.tell(f"store frozen, asked by {protocol}", lateness_ms=trial.lateness_ms(), growth_kib=trial.growth / 1024)
    judge_answers(trial, fleet)
