"""What sharing a limit costs: commands to Redis for each decision, and the time that asking adds.

SPDX-License-Identifier: Apache-2.0
"""
import figures
import history
import pytest
from checker import Limit
from fleet_rig import Fleet, quick
from redis_rig import Server

LIMITS = {"cold": Limit("token_bucket", 5, burst=5), "same": Limit("fixed_window", 1_000_000_000)}
CALLS = "fcall", "evalsha", "eval"      # what a node sends; what scripts call is not sent
BEATS = 4                               # a node's calls a second for itself, at the most: who is there, what is new
US = 1000


def commands(server):
    stats = server.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in CALLS)


def beyond_the_timer(hits, part):
    """In us; the timer is the moment when the question was really asked."""
    return (history.share([hit.answered_ns - hit.due_ns for hit in hits], part)
            - history.share([hit.sent_ns - hit.due_ns for hit in hits], part)) / US


def tell(title, load, **more):
    shares = {name: beyond_the_timer(load.hits, part)
              for name, part in (("p50_us", .5), ("p99_us", .99), ("p999_us", .999))}
    figures.tell(title, **shares, **more)


def test_a_cold_key_costs_one_command(tmp_path):
    seconds, rate = quick(1.5, 10), 2000
    with Server(tmp_path / "redis") as server, \
            Fleet(tmp_path, server.url, LIMITS, flags=("--store-deadline", "10s")) as fleet:
        fleet.wait_for_each_other()
        before = commands(server)
        with fleet.load("grpc", "cold*1000000", rate=rate, seconds=seconds) as load:
            pass
        sent = commands(server) - before
        tell("a cold key, exact, 2,000/s", load, commands_a_decision=sent / len(load.hits))
        assert load.counts["ok"] == len(load.hits)
        assert len(load.hits) <= sent <= len(load.hits) + 3 * BEATS * (seconds + 5)


@pytest.mark.parametrize("store", ["local", "redis"])
def test_a_decision_takes(store, tmp_path):
    """Told, not judged: the difference between the two is what the way to Redis and back adds."""
    with Server(tmp_path / "redis") as server:
        with Fleet(tmp_path, server.url if store == "redis" else "local", LIMITS,
                   flags=("--store-deadline", "10s")) as fleet:
            for protocol in "grpc", "json":
                with fleet.load(protocol, "cold*1000000", rate=quick(500, 2000), seconds=quick(1, 10)) as load:
                    pass
                tell(f"a cold key, {store}, {protocol}", load)
                assert load.counts["ok"] == len(load.hits)
