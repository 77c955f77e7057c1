"""--store-wait: a lease is used once replicas have acknowledged it, so a failover forgets none.

SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import time

import pytest
from checker import Limit
from fleet_rig import LONG_WINDOW_S, Fleet, counted, quick
from history import OK
from proxy_rig import Proxy
from redis_rig import Group, Server, with_replicas
from service import wait_until

FEW, MANY = 4500, 1_000_000_000
LIMITS = {"few": Limit("fixed_window", FEW, LONG_WINDOW_S), "many": Limit("fixed_window", MANY, LONG_WINDOW_S)}
PATIENT = "--store-deadline", "1s", "--on-store-error", "closed"
RATE = quick(3000, 10000)
UNDER_WAY = 100                         # while metrics are read


def flags(replicas, *more):
    return *PATIENT, "--store-wait", replicas, *more


def total(fleet, name):
    return sum(fleet.metric(i, f"weir_store_{name}") for i in range(len(fleet.nodes)))


def is_leasing(fleet):
    """Tries it with a short load."""
    before = total(fleet, "decided_by_lease_total")
    with fleet.load("grpc", "many", rate=RATE, seconds=0.3):
        pass
    return total(fleet, "decided_by_lease_total") > before


def judge_exact(fleet, load):
    """Everything was decided by the store, or by what it had granted."""
    assert load.counts["error"] == load.counts["lost"] == load.counts["open"] == 0, load.counts
    assert total(fleet, "fallback_closed_total") == 0


def wait_for_replicas(master, count):
    """A replica hears of nothing before it has spoken for the first time, which takes up to a second."""
    def is_heard():
        with master.client as client:
            client.set("chaos:probe", 1, ex=1)
            return client.wait(count, 1000) >= count
    wait_until(is_heard, "replicas to acknowledge")


@pytest.fixture
def stack():
    with contextlib.ExitStack() as stack:
        yield stack


def test_leases_are_used_while_replicas_acknowledge_them(stack, tmp_path):
    master, _ = with_replicas(stack, tmp_path, 2)
    wait_for_replicas(master, 2)
    with Fleet(tmp_path, master.url, LIMITS, flags=flags(2)) as fleet:
        with fleet.load("grpc", "few,many", rate=RATE, seconds=quick(2, 6)) as load:
            pass
        judge_exact(fleet, load)
        assert sum(hit.verdict == OK for hit in load.of("few")) <= FEW
        assert total(fleet, "decided_by_lease_total") > len(load.of("many")) / 2
        assert total(fleet, "leases_unacknowledged_total") == 0


@pytest.mark.parametrize("replicas", [1, 2])
def test_no_lease_is_used_that_too_few_replicas_acknowledge(replicas, stack, tmp_path):
    """One of them is frozen, or there is one too few from the start."""
    master, (replica,) = with_replicas(stack, tmp_path, 1)
    wait_for_replicas(master, 1)
    with Fleet(tmp_path, master.url, LIMITS, flags=flags(replicas)) as fleet:
        if replicas == 1:
            assert is_leasing(fleet)
            time.sleep(1.1)             # no lease lasts longer
            replica.freeze()
        stack.callback(replica.thaw)
        spent = total(fleet, "lease_tokens_spent_total")
        with fleet.load("grpc", "few", rate=RATE, seconds=quick(2, 6)) as load:
            pass
        judge_exact(fleet, load)
        unused = counted([master], "few") - sum(hit.verdict == OK for hit in load.hits)
        assert total(fleet, "lease_tokens_spent_total") == spent
        assert total(fleet, "leases_unacknowledged_total") > 0
        assert 0 <= unused <= total(fleet, "lease_tokens_expired_total")
        assert counted([master], "few") == FEW, "all that may pass has passed, but for what was granted in vain"
        replica.thaw()
        if replicas == 1:
            wait_until(lambda: is_leasing(fleet), "leases to be used again")


class Pair(Group):
    """A master and its replica, with a network between them, and one before them that names who leads."""

    def make(self, folder):
        self.master = self.stack.enter_context(Server(folder / "master", "--repl-diskless-sync-delay", "0"))
        self.between = self.stack.enter_context(Proxy(self.master.port))
        self.replica = self.stack.enter_context(
            Server(folder / "replica", "--replicaof", f"127.0.0.1 {self.between.port}"))
        wait_until(lambda: self.replica.info("replication")["master_link_status"] == "up", "the replica")
        wait_for_replicas(self.master, 1)
        self.front = self.stack.enter_context(Proxy(self.master.port))

    def fail_over(self):
        self.front.cut()
        self.master.kill()
        self.replica.lead()
        self.front.target = self.replica.port
        self.front.heal()


@pytest.mark.parametrize("replicas", [0, 1])
def test_a_failover_forgets_no_lease_that_was_used(replicas, tmp_path):
    """The network between master and replica fails first, so the replica knows nothing of what follows.  With
    --store-wait that is what was decided hit by hit.  Without, leases are used that it has never heard of: so this test
    sees the difference."""
    with Pair(tmp_path) as pair, Fleet(tmp_path, pair.front.url, LIMITS, flags=flags(replicas)) as fleet:
        with fleet.load("grpc", "few", rate=3000, seconds=3.2) as load:
            load.wait_until(0.7)
            pair.between.silence()
            asked = total(fleet, "asked_total")
            load.wait_until(1.7)
            asked, spent = total(fleet, "asked_total") - asked, total(fleet, "lease_tokens_spent_total")
            pair.fail_over()
            known = counted([pair.replica], "few")
        assert load.counts["lost"] == load.counts["open"] == load.counts["error"] == 0, load.counts
        assert spent > 0
        assert (spent <= known) == (replicas > 0), f"{spent} by leases, {known} known"
        if replicas > 0:
            admitted = sum(hit.verdict == OK for hit in load.hits)
            assert admitted <= FEW + asked + UNDER_WAY, f"{asked} were decided hit by hit"
