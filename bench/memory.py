"""What rules take, beyond the table (bench/resident.py).

SPDX-License-Identifier: Apache-2.0
"""
import pathlib
import subprocess
import sys

from bench.measure import Case

TITLE = "Memory"
SPREAD = ""
FEW = 1000


def resident(rig, rules):
    """In a process of its own, which must not take the files here for Python's modules of the same name (-I)."""
    program = pathlib.Path(__file__).parent / "resident.py"
    command = [sys.executable, "-I", program, rig.build, str(rules)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def cases(rig):
    further = rig.quick(100000, 1000)
    few, many = resident(rig, FEW), resident(rig, FEW + further)
    yield Case("1,000 rules and a session", ("<=", 10), few / 1048576, None, "MiB")
    yield Case("each further rule", ("<=", 300), (many - few) / further, None, "bytes")
