"""Fifteen seconds of what `make soak` does for five minutes.

SPDX-License-Identifier: Apache-2.0
"""
import os
import subprocess

from service import ROOT, WEIR

SECONDS = 15


def test_memory_and_descriptors_stay_as_they_are():
    done = subprocess.run(["/usr/bin/python3", ROOT / "tools/soak", str(SECONDS)], capture_output=True, text=True,
                          timeout=200, env={**os.environ, "WEIR_BIN": str(WEIR)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no leak, no fault" in done.stdout
