"""Instructions, by callgrind: of a decision (tools/count_instructions), and of a request to weir serve in its
own code and its libraries'.  They repeat nearly to the digit on a noisy machine, so that a regression shows.

SPDX-License-Identifier: Apache-2.0
"""
import json
import pathlib
import re
import subprocess

from bench import load
from bench.measure import Case

TITLE = "Instructions, by callgrind"
SPREAD = ""
ROOT = pathlib.Path(__file__).resolve().parent.parent


def cases(rig):
    command = [ROOT / "tools/count_instructions", "--json", *rig.quick([], ["--quick"]), rig.build / "weir"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    for line in done.stdout.splitlines():
        said = json.loads(line)
        yield Case(said["case"], None, said["instructions"], None, "instr.")
    for title, listener, rules, run in load.TYPICAL:
        # From start to end, with few requests and with more: the difference is the requests'.
        few, more = rig.quick((1000, 11000), (100, 200))
        counts = [of_service(rig, listener, rules, run, requests) for requests in (few, more)]
        yield Case(f"{title}: a request", None, (counts[1] - counts[0]) / (more - few), None, "instr.")


def of_service(rig, listener, rules, run, requests):
    log = rig.folder / "callgrind.log"
    server = rig.weir(listener, rules, before=["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                                               f"--log-file={log}"])
    run(rig, server, requests, connections=1)
    server.stop()
    return int(re.search(r"Collected : (\d+)", log.read_text(encoding="utf-8"))[1])
