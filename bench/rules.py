"""The full path, from descriptors through rules to a decision, against the table's own part of it.

SPDX-License-Identifier: Apache-2.0
"""
from bench.engine import extremes, in_turns, weir_bench
from bench.measure import Case

TITLE = "Through the rules"
SPREAD = "spread"


def cases(rig):
    many = rig.quick(100000, 100)

    def against_table(title, target, *flags):
        run = weir_bench(rig, 4, "--dependent", "--full", *flags)
        return Case(title, target, run["ratio_to_table"], extremes(run, "ratio_to_table"), "times", [run])
    yield against_table("10 rules, one hot: against the table", ("<=", 2.5), "--rules", 10)
    hot = "--dependent", "--full", "--rules"
    times, spread, runs = in_turns(rig, 3, (1.5, *hot, many), (1.5, *hot, 10), lambda run: run["ratio_to_table"])
    yield Case("one hot among 100,000 against among 10", ("<=", 1.1), times, spread, "times", runs)
    yield against_table("100,000 rules, all hot: against the table", ("<=", 2.5), "--rules", many, "--uniform")
    flags = "--full", "--rules", many, "--uniform"
    times, spread, runs = in_turns(rig, 2, (1.5, *flags), (1.5, *flags, "--batch", 16),
                                   lambda run: run["ns_per_decision"])
    yield Case("the same: batches of 16 against single", None, times, spread, "times", runs)
