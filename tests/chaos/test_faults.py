"""The store is gone, slow or half-dead, under load: every question is answered in time and as its rule says; then all is as it was.

SPDX-License-Identifier: Apache-2.0
"""
import figures
import pytest
from faults import FAULTS, Site
from fleet_rig import Fleet, quick
from trial import HASTY, LIMITS, NODES, Trial, judge_answers, judge_policies, judge_recovery


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path) as site:
        yield site


@pytest.fixture
def fleet(site, tmp_path):
    with Fleet(tmp_path, site.url, LIMITS, NODES, flags=HASTY) as fleet:
        yield fleet


@pytest.mark.parametrize("name", FAULTS)
def test_a_store_that_is(name, site, fleet):
    trial = Trial(fleet, FAULTS[name](site), quick(1.2, 30 if name == "frozen" else 5), rate=quick(600, 5000), keys=",".join(LIMITS))
    figures.tell(f"store {name}", recovery_ms=trial.recovery_ms(), lateness_ms=trial.lateness_ms(), growth_kib=trial.growth / 1024)
    judge_answers(trial, fleet)
    judge_policies(trial)
    judge_recovery(trial)
