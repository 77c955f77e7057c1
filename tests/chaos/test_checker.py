"""The checker believes what the engine decides, and finds every limiter that is wrong by one.

Decisions are the engine's own, by `weir replay`; a wrong limiter is the engine with other rules, another clock, or
without what it knew.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import random
import subprocess

import checker
import history
import pytest
from checker import NS, Limit
from fleet_rig import LIMITS
from weir_cli import DONE, WEIR

SEED = int(os.environ.get("WEIR_SEED") or random.randrange(2**32))
US = 1000
BEGIN = 1_700_000_000 * NS + 130 * 1_000_000        # not at the edge of a window


def instants(rng, seconds=6):
    """Microseconds at which somebody asks: a steady crowd, bursts, and a pause with a burst after it."""
    steady = [rng.randrange(seconds * 10**6) for _ in range(seconds * 120)]
    bursts = [begin + i for begin in (0, 869_500, 1_300_000, 1_869_950, 3_000_000) for i in range(100)]
    return sorted(us for us in steady + bursts if not 4_000_000 < us < 5_300_000)


def decide(tmp_path, limit, times_us, hits=1):
    """What the engine says at these instants."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(f"domain: d\ndescriptors:\n  - key: k\n    rate_limit: {limit.yaml()}\n")
    trace = "".join(json.dumps({"t_ns": BEGIN + us * US, "domain": "d", "hits": hits,
                                "descriptors": [{"entries": [["k", "v"]]}]}) + "\n" for us in times_us)
    done = subprocess.run([WEIR, "replay", "--rules", rules], input=trace, capture_output=True, text=True, timeout=60)
    assert done.returncode == DONE, done.stderr
    return [json.loads(line)["overall"] == "OK" for line in done.stdout.splitlines()]


def record(rng, times_us, verdicts, latency_us=300, hits=1):
    """The history that a client would have written."""
    return [history.Hit((0, 0), rng.randrange(3), history.OK if allowed else history.OVER, hits,
                        BEGIN + (us - rng.randrange(latency_us)) * US - US,
                        BEGIN + (us + rng.randrange(latency_us)) * US)
            for us, allowed in zip(times_us, verdicts, strict=True)]


@pytest.fixture
def rng():
    print(f"WEIR_SEED={SEED}")
    return random.Random(SEED)


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("latency_us", [1, 300, 30_000])
def test_what_the_engine_decides_is_legal(name, latency_us, rng, tmp_path):
    times = instants(rng)
    for hits in 1, 3:
        verdicts = decide(tmp_path, LIMITS[name], times, hits)
        assert 100 < sum(verdicts) * hits and sum(verdicts) < len(times), "a limit that is neither idle nor closed"
        assert checker.excess(record(rng, times, verdicts, latency_us, hits), LIMITS[name]) == 0


@pytest.mark.parametrize("name", LIMITS)
def test_one_too_many_is_found(name, rng, tmp_path):
    """The limit, or for a bucket what it holds, is greater by one than the rule says."""
    limit, times = LIMITS[name], instants(rng)
    field = "burst" if limit.burst else "limit"
    wrong = Limit(**{**vars(limit), field: getattr(limit, field) + 1})
    assert checker.excess(record(rng, times, decide(tmp_path, wrong, times)), limit) >= 1


@pytest.mark.parametrize("name", LIMITS)
def test_a_count_that_is_lost_in_a_failover_is_found(name, rng, tmp_path):
    """From 3.2 s on the limiter knows nothing of before, as a replica that was behind."""
    limit, times = LIMITS[name], instants(rng)
    earlier, later = [us for us in times if us < 3_200_000], [us for us in times if us >= 3_200_000]
    verdicts = decide(tmp_path, limit, earlier) + decide(tmp_path, limit, later)
    assert checker.excess(record(rng, times, verdicts), limit) > 5


@pytest.mark.parametrize("name", LIMITS)
def test_two_limiters_that_do_not_share_are_found(name, rng, tmp_path):
    limit, times = LIMITS[name], instants(rng)
    verdicts = [False] * len(times)
    verdicts[::2], verdicts[1::2] = decide(tmp_path, limit, times[::2]), decide(tmp_path, limit, times[1::2])
    assert checker.excess(record(rng, times, verdicts), limit) > 5


@pytest.mark.parametrize("name", ["fixed", "tick"])
def test_a_window_that_begins_early_is_found(name, rng, tmp_path):
    """By 1 ms, as where the nodes' clock were asked rather than Redis's.  The burst is at the edge of a window."""
    times, late = instants(rng), 1000
    verdicts = decide(tmp_path, LIMITS[name], [us + late for us in times])
    assert checker.excess(record(rng, times, verdicts), LIMITS[name]) > 0


def test_a_bucket_that_fills_too_fast_is_found(rng, tmp_path):
    times = [1000 * i for i in range(20_000)]
    verdicts = decide(tmp_path, Limit("token_bucket", 51, burst=20), times)
    assert checker.excess(record(rng, times, verdicts), LIMITS["bucket"]) > 10


def test_what_nobody_heard_of_may_have_been_counted_or_not(rng):
    hits = record(rng, [0, 10_000, 20_000, 30_000], [True, True, False, True])
    hits[1] = hits[1]._replace(verdict=history.LOST)
    assert checker.count_in(hits, 0, 2 * BEGIN) == (2, 3)


@pytest.mark.parametrize("name", ["fixed", "slide", "log", "bucket", "tick", "leaky"])
def test_a_hot_key_is_used_to_the_full(name, rng, tmp_path):
    times = list(range(0, 10_000_000, 1000))
    hits = record(rng, times, decide(tmp_path, LIMITS[name], times), 10)
    share = checker.utilisation(hits, LIMITS[name], BEGIN, BEGIN + 10 * NS)
    assert 0.97 < share <= 1.03, share
