"""A trial: a load on a fleet, with a fault in the middle of it, and what must be true of it afterwards.

The rules are such that the answer tells who gave it:

    open      a limit that is used up: refused by the store, let through without it
    closed    a limit that nobody reaches: let through by the store, refused without it
    local     the same: let through always, and after healing the store has counted every one
    share     a limit that is soon used up: without the store, each node lets its share of it through

Times are told, not judged, unless this is `make chaos` (WEIR_CHAOS=long): this machine may be busy.
SPDX-License-Identifier: Apache-2.0
"""
import time

import checker
import history
from checker import Limit
from fleet_rig import DEADLINE_MS, IS_LONG, IS_SANITIZED, LONG_WINDOW_S, counted, quick
from history import OK, OVER
from service import wait_until

PLENTY, NODES, SHARE = 1_000_000_000, 3, 90
LIMITS = {
    "open": Limit("fixed_window", 1, LONG_WINDOW_S, on_store_error="open"),
    "closed": Limit("fixed_window", PLENTY, LONG_WINDOW_S, on_store_error="closed"),
    "local": Limit("fixed_window", PLENTY, LONG_WINDOW_S, on_store_error="local"),
    "share": Limit("fixed_window", SHARE, LONG_WINDOW_S, on_store_error="local"),
    "remote_address": Limit("sliding_window_log", 1000, on_store_error="closed"),
}
KEYS = "open,closed,local,share"
COUNTED = "closed", "local", "share"    # of these the store's count is looked at
LEASING = "--store-deadline", f"{DEADLINE_MS}ms"
HASTY = *LEASING, "--store-leases=off"  # who leases notices a fault only when it must ask
MS = 1_000_000
BEFORE_S, AFTER_S = quick(0.6, 2.0), quick(0.5, 4.0)
LOAD_S = 100                            # at the most
SETTLED_MS = quick(400, 100)            # after which nobody is waited for any more
# A lease and a refusal in hand are good for a second at the most; and so is the late answer of a slow store (which only
# `make chaos` has) to who had to ask then.
LEASE_MS = quick(1000, 2000)
LATE_MS = 5                             # promised, for the p99.9 of all answers, beyond a timer set for the deadline
RETURN_MS = 2000                        # how long a node tries to give back what must not count
RECOVERY_MS = 2000                      # promised, from when the store accepts writes
MOST = quick(0.0, 0.9)                  # a machine may be too busy to keep a deadline, now and then
USE = quick(0, 0.85)                    # of its limit, by a key that has had its burst before
TRIES = quick(1, 3)                     # of which the best counts: what else this machine does makes times longer
GROWTH_MAX = (16 << 20) * (4 if IS_SANITIZED else 1)    # bytes of a node's memory; sanitizers need several for each


class Trial:
    """A load, with a fault in the middle of it."""

    def __init__(self, fleet, fault, seconds, after_s=AFTER_S, **load):
        fleet.wait_for_each_other()
        self.fleet, before = fleet, fleet.rss()
        self.notice_ms = SETTLED_MS if "--store-leases=off" in fleet.flags else SETTLED_MS + LEASE_MS
        with fleet.load(seconds=LOAD_S, deadline_ms=DEADLINE_MS, **load) as self.load:
            self.load.wait_until(BEFORE_S)
            self.breaks_ns = time.monotonic_ns()
            with fault:
                self.began_ns = time.monotonic_ns()
                time.sleep(seconds)
                self.ended_ns = time.monotonic_ns()
            self.healed_ns = self.settled_ns = time.monotonic_ns()
            if IS_LONG:
                self.settled_ns += RECOVERY_MS * MS
            else:
                fleet.wait_for_store()
                self.settled_ns = time.monotonic_ns()
            time.sleep(after_s)
            self.load.stop()
        self.growth = fleet.rss() - before

    def of(self, name, from_ns, to_ns=1 << 63):
        return [hit for hit in self.load.of(name) if from_ns <= hit.due_ns < to_ns]

    def during(self, name):
        """Of the time when everybody knows that the store is away, and it is."""
        return [hit for hit in self.load.of(name)
                if self.began_ns + self.notice_ms * MS <= hit.sent_ns and hit.answered_ns < self.ended_ns]

    def recovery_ms(self):
        """From when the store accepted writes until it was asked again."""
        return next((hit.due_ns - self.healed_ns for hit in self.of("closed", self.healed_ns) if hit.verdict == OK),
                    1 << 62) / MS

    def lateness_ms(self):
        """The p99.9 of the answers, beyond that of a timer set for the deadline."""
        hits = self.load.hits
        return (history.share([hit.answered_ns - hit.due_ns for hit in hits], 0.999)
                - history.share([hit.control_ns - hit.due_ns for hit in hits], 0.999)) / MS


def best_of(make, folder):
    """The trial with the machine's best times, of some that make(a folder) makes."""
    trials = []
    while len(trials) < TRIES and not any(trial.lateness_ms() <= LATE_MS for trial in trials):
        trials.append(make(folder / f"try{len(trials)}"))
    return min(trials, key=Trial.lateness_ms)


def verdicts(hits):
    return {hit.verdict for hit in hits}


def share_of(verdict, hits):
    return sum(hit.verdict == verdict for hit in hits) / len(hits)


def judge_answers(trial, fleet):
    """Everybody was answered, by nodes that are well."""
    counts = trial.load.counts
    assert counts["error"] == counts["lost"] == counts["open"] == 0, counts
    assert all(node.is_running() for node in fleet.nodes)
    assert trial.growth < GROWTH_MAX


def judge_lateness(trial):
    if IS_LONG:
        assert trial.lateness_ms() <= LATE_MS


def judge_policies(trial):
    before = trial.of("closed", 0, trial.breaks_ns - 2 * DEADLINE_MS * MS)
    assert share_of(OK, before) > MOST
    assert verdicts(trial.during("open")) == {OK}
    assert verdicts(trial.during("closed")) == {OVER}
    assert verdicts(trial.during("local")) == {OK}


def judge_shares(trial):
    """The store has let through the limit, and the nodes once more among them."""
    assert sum(hit.verdict == OK for hit in trial.load.of("share")) <= 2 * SHARE


def judge_recovery(trial):
    if IS_LONG:
        assert trial.recovery_ms() < RECOVERY_MS
    assert share_of(OK, trial.of("closed", trial.settled_ns)) > MOST
    assert share_of(OVER, trial.of("open", trial.settled_ns)) > MOST


def judge_counts(trial, site, is_broken):
    """The store has counted what all nodes have admitted.  is_broken: connections broke, and whether the store had
    obeyed what was under way just then nobody will know; such hits are charged."""
    for name in COUNTED:
        hits = trial.load.of(name)
        least = sum(hit.verdict == OK for hit in hits)
        more = unreturned(trial, hits)
        if is_broken:
            more += sum(hit.sent_ns <= trial.began_ns and hit.answered_ns >= trial.breaks_ns for hit in hits)
        wait_until(lambda: least <= counted(site.servers, name) <= least + more,
                   f"{least} hits of {name}, or {more} more; there are {counted(site.servers, name)}")


def judge_tokens(trial, site, is_broken):
    """The same with leases: the store has counted what was admitted, and what nodes have been granted and neither spent
    nor given back.  is_broken: of what was granted just then nobody has heard."""
    hits = [hit for name in COUNTED for hit in trial.load.of(name)]
    least, more = sum(hit.verdict == OK for hit in hits), unreturned(trial, hits)

    def surplus():
        tokens = {what: sum(trial.fleet.metric(i, f"weir_store_lease_tokens_{what}_total")
                            for i in range(len(trial.fleet.nodes)))
                  for what in ("granted", "spent", "returned")}
        unspent = tokens["granted"] - tokens["spent"] - tokens["returned"]
        return sum(counted(site.servers, name) for name in COUNTED) - least - unspent
    wait_until(lambda: 0 <= surplus() and (is_broken or surplus() <= more),
               f"{least} hits and the tokens, or {more} more; there are {surplus()}")


def least_use(trial):
    """(share, name) of the key that is used least once the store is back, of keys that are asked for
    more than they may have."""
    found = []
    for name, limit in trial.fleet.limits.items():
        hits = trial.of(name, trial.settled_ns)
        found.append((checker.utilisation(hits, limit, hits[0].first_ns, hits[-1].last_ns), name))
    return min(found)


def unreturned(trial, hits):
    """Refused because the answer was late: given back, but a store that takes nothing for too long keeps them."""
    if trial.ended_ns - trial.began_ns < RETURN_MS * MS:
        return 0
    return sum(hit.verdict == OVER and hit.answered_ns - hit.sent_ns >= 0.9 * DEADLINE_MS * MS for hit in hits)
