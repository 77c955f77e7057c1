"""What loading rules again costs those who are deciding (bench/reload.c): 100,000 rules, 100 times, and
a control run of the same length without.

SPDX-License-Identifier: Apache-2.0
"""
import json
import subprocess
import sys

from bench.measure import Case

TITLE = "Reloading under traffic"
SPREAD = ""


def cases(rig):
    rules, times = rig.quick(100000, 1000), rig.quick(100, 2)
    path = rig.file("reload.yaml", "domain: big\ndescriptors:\n" + "".join(
        f"  - {{key: k, value: v{i}, rate_limit: {{unit: minute, requests_per_unit: {i + 1}}}}}\n"
        for i in range(rules)))
    done = subprocess.run([rig.build / "bench/reload", path, str(rules), str(times)], stdout=subprocess.PIPE, text=True,
                          check=False)
    if not done.stdout:
        sys.exit("bench: reload failed")
    run = json.loads(done.stdout)
    yield Case(f"{rules:,} rules: opening", ("<=", 2), run["open_s"], None, "s", [run])
    yield Case(f"of {times} reloads, done", (">=", times), run["reloads"], note=f"{run['seconds']:.0f} seconds")
    yield Case("decisions that failed", ("<=", 0), run["failed"], note=f"of {run['decisions']:,}")
    for share, target in ("p50", None), ("p99", None), ("p99.9", ("<=", 1000)):
        busy, quiet = run["busy_ns"][share] / 1000, run["quiet_ns"][share] / 1000
        yield Case(f"a decision's {share}, beyond the control run's", target, busy - quiet, None, "us",
                   note=f"{busy:.2f} against {quiet:.2f}")
