"""A decision on the table, against the floor: a bare read-modify-write of a random line.

SPDX-License-Identifier: Apache-2.0
"""
from bench.engine import extremes, in_turns, weir_bench
from bench.measure import Case

TITLE = "On the table"
SPREAD = "spread"
M = 1000000


def cases(rig):
    yield from dependent(rig)
    keys = "--keys", rig.quick(10 * M, 10000)
    times, spread, runs = in_turns(rig, 2, (2, *keys, "--dependent"), (2, *keys, "--batch", 16),
                                   lambda run: run["ns_per_decision"])
    yield Case("10 million keys: batches of 16 against single", (">=", 2.5), times, spread, "times", runs)
    times, spread, runs = in_turns(rig, 3, (1, "--threads", 2), (1, "--threads", 1), lambda run: run["decisions_per_s"])
    yield Case("1 million keys: two threads against one", (">=", 1.5), times, spread, "times", runs)


def dependent(rig):
    run = weir_bench(rig, 2, "--dependent", "--keys", 1000)
    bound = run["floor_ns"] + run["floor_hash_ns"] + 25
    yield Case("1 thousand keys, dependent: floor + hash + 25", ("<=", bound), run["ns_per_decision"],
               extremes(run, "ns_per_decision"), "ns", [run])
    for millions in 1, 10, 50:
        run = weir_bench(rig, 3, "--dependent", "--keys", rig.quick(millions * M, millions * 1000))
        yield Case(f"{millions} million keys, dependent: against the floor", ("<=", 1.3), run["ratio_to_floor"],
                   extremes(run, "ratio_to_floor"), "times", [run])
        if millions == 1:
            yield Case("1 million keys: a decision", None, run["ns_per_decision"],
                       extremes(run, "ns_per_decision"), "ns")
            yield Case("1 million keys: file / keys", ("<=", 24), run["bytes_per_key"], None, "bytes")
