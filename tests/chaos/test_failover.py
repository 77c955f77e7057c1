"""Masters that die, masters that are replaced in good order, and slots that move, under load.

In good order nothing is lost: who asks is answered, and every count is where it was.  A master that dies takes with it
what its replica had not heard of; how much that was is told, and --store-wait makes it less.
SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import time

import figures
import pytest
from fleet_rig import Fleet, counted, quick
from history import OK
from redis_topologies import CALM_MS, Cluster, Sentinels
from service import wait_until
from trial import HASTY, LIMITS, MOST, NODES, Trial, judge_answers, share_of, verdicts

PATIENT = "--store-deadline", "60s", "--on-store-error", "closed"
PARTLY = "--cluster-require-full-coverage", "no"        # the other masters go on
VALUES = 24         # of each key: more than enough for each master to have some
KEYS = f"closed*{VALUES},local*{VALUES}"
RATE = quick(600, 5000)
APART_S = quick(0.2, 1)                                 # between two changes, so that requests meet each


@contextlib.contextmanager
def dies(cluster, i):
    """Master i is killed; at the end its replica has taken over."""
    cluster.masters[i].kill()
    cluster.wait_for_successor(i)
    yield


def admitted(load, name):
    """{value: how many}"""
    found = dict.fromkeys(range(VALUES), 0)
    for hit in load.hits:
        if load.names[hit.key[0]] == name and hit.verdict == OK:
            found[hit.key[1]] += 1
    return found


def counts(servers, name):
    """{value: how many}, in the store"""
    return {value: counted(servers, name, value) for value in range(VALUES)}


def lost(trial, servers):
    """Hits that were admitted, and that the store does not know of."""
    known = counts(servers, "local")
    return sum(number - known[value] for value, number in admitted(trial.load, "local").items())


def shares_while_it_fails(trial, name):
    """What part was admitted, for each value."""
    hits = {value: [] for value in range(VALUES)}
    for hit in trial.load.hits:
        if trial.load.names[hit.key[0]] == name and trial.breaks_ns <= hit.due_ns < trial.healed_ns:
            hits[hit.key[1]].append(hit)
    return [share_of(OK, some) for some in hits.values() if some]


def judge_end(trial):
    """Soon after the store accepts writes, all is decided by it."""
    assert share_of(OK, [hit for hit in trial.load.hits if hit.due_ns > trial.settled_ns]) > MOST


def test_a_master_of_a_cluster_dies(tmp_path):
    with Cluster(tmp_path / "cluster", settings=PARTLY) as cluster, \
            Fleet(tmp_path, cluster.url, LIMITS, NODES, flags=HASTY) as fleet:
        trial = Trial(fleet, dies(cluster, 0), 0, rate=RATE, keys=KEYS)
        survivors = cluster.masters[1:] + cluster.replicas[:1]
        figures.tell("master of a Cluster dies", lost=lost(trial, survivors), lateness_ms=trial.lateness_ms(),
                     recovery_ms=trial.recovery_ms())
        judge_answers(trial, fleet)
        judge_end(trial)
        shares = shares_while_it_fails(trial, "closed")
        assert min(shares) < max(shares) / 2, "keys of other masters are none the wiser"


def test_the_master_that_sentinels_watch_dies(tmp_path):
    with Sentinels(tmp_path / "redis") as sentinels, \
            Fleet(tmp_path, sentinels.url, LIMITS, NODES, flags=HASTY) as fleet:
        @contextlib.contextmanager
        def death():
            master = sentinels.current()
            master.kill()
            sentinels.wait_for_successor(master)
            yield
        trial = Trial(fleet, death(), 0, rate=RATE, keys=KEYS)
        figures.tell("master of Sentinel dies", lost=lost(trial, [sentinels.current()]),
                     lateness_ms=trial.lateness_ms(), recovery_ms=trial.recovery_ms())
        judge_answers(trial, fleet)
        judge_end(trial)


@contextlib.contextmanager
def changes(cluster):
    """Every master changes places with its replica, one after the other."""
    for i in range(len(cluster.masters)):
        cluster.fail_over(i)
        time.sleep(APART_S)
    yield


def used_slots(node):
    with node.client as client:
        return sorted({node.ask("CLUSTER", "KEYSLOT", key) for key in client.keys("weir:*")})


@contextlib.contextmanager
def moves(cluster):
    """Slots with keys in them go to the next master, key by key."""
    for source, slots in [(node, used_slots(node)) for node in cluster.masters]:
        target = cluster.masters[(cluster.masters.index(source) + 1) % len(cluster.masters)]
        for slot in slots[:quick(4, 12)]:
            cluster.migrate(slot, source, target, keys_at_once=1)
    yield


@contextlib.contextmanager
def doubts(cluster):
    """Each master holds the Cluster for down, until it hears again who has a slot: as one does that hears that a master
    is none any more before it hears who is instead."""
    for node, other in zip(cluster.masters, cluster.masters[1:] + cluster.masters[:1], strict=True):
        node.cluster("DELSLOTS", used_slots(other)[0])
        wait_until(lambda node=node: node.is_ready(len(cluster.nodes)), "it to hear of it")
    yield


@pytest.mark.parametrize("event", [changes, moves, doubts])
def test_a_cluster_in_good_order(event, tmp_path):
    with Cluster(tmp_path / "cluster", timeout_ms=CALM_MS) as cluster, \
            Fleet(tmp_path, cluster.url, LIMITS, NODES, flags=PATIENT) as fleet:
        trial = Trial(fleet, event(cluster), 0, rate=RATE, keys=KEYS)
        judge_answers(trial, fleet)
        assert verdicts(trial.load.hits) == {OK}
        servers = [node for node in cluster.nodes if node.is_master()]
        for name in "closed", "local":
            wait_until(lambda name=name: counts(servers, name) == admitted(trial.load, name),
                       "what was leased to come back")
