"""`weir bench` as the engine's parts run it: each case in processes of its own.

SPDX-License-Identifier: Apache-2.0
"""
import json
import statistics
import subprocess
import sys


def weir_bench(rig, seconds, *flags):
    """What `weir bench --json` says."""
    command = [str(rig.build / "weir"), "bench", "--json", "--seconds", str(rig.quick(seconds, 0.05)), *map(str, flags)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"bench: {' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


def in_turns(rig, times, one, other, value):
    """Median and extremes of the quotients of what two commands say, run after run; and all that they said."""
    quotients, runs = [], []
    for _ in range(rig.quick(times, 1)):
        pair = weir_bench(rig, *one), weir_bench(rig, *other)
        quotients.append(value(pair[0]) / value(pair[1]))
        runs += pair
    return statistics.median(quotients), [min(quotients), max(quotients)], runs


def extremes(run, field):
    return [run[f"{field}_min"], run[f"{field}_max"]]
