"""The benchmark runs: every part says what it promises to measure.  That the numbers are good is not for a test.

SPDX-License-Identifier: Apache-2.0
"""
import importlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = os.environ.get("WEIR_BUILD") or ROOT / "build"
sys.path.insert(0, str(ROOT))
measure = importlib.import_module("bench.measure")

CASES = {"table": 8, "rules": 4, "memory": 2, "instructions": 8, "grpc": 6, "http": 2, "resp": 2, "threads": 3,
         "latency": 9, "reload": 6, "nginx": 9, "nginx_parts": 7, "nginx_pace": 3, "nginx_service": 6, "redis": 3,
         "leases": 5, "store_time": 6}


def bench(*arguments):
    return subprocess.run([ROOT / "tools/bench", "--build", BUILD, *arguments], capture_output=True, text=True,
                          timeout=200, check=False)


@pytest.mark.parametrize("part", CASES)
def test_a_part_runs_to_its_end(tmp_path, part):
    done = bench("--quick", "--results", tmp_path, part)
    assert done.returncode == 0, done.stdout + done.stderr
    cases = [json.loads(line) for line in (tmp_path / f"{part}.jsonl").read_text().splitlines()]
    assert len(cases) == CASES[part]
    assert all(isinstance(case["value"], (int, float)) for case in cases)
    text = (tmp_path / f"{part}.txt").read_text()
    assert text == done.stdout and all(case["case"] in text for case in cases)
    if part in ("grpc", "threads"):
        assert all(case["target"] for case in cases)
    if part in ("grpc", "http", "resp", "threads"):
        assert all(case["spread"][0] <= case["value"] <= case["spread"][1] for case in cases)


def test_all_parts_are_tested_here():
    done = bench("--help")
    assert ", ".join(CASES) in " ".join(done.stdout.split())


def test_a_part_that_is_none_is_refused(tmp_path):
    done = bench("--results", tmp_path, "speed")
    assert done.returncode == 2 and "no part 'speed'" in done.stderr and not list(tmp_path.iterdir())


def test_what_a_build_is_is_said_truly(tmp_path):
    text = bench("--quick", "--results", tmp_path, "memory").stdout
    options = json.loads((pathlib.Path(BUILD) / "meson-info/intro-buildoptions.json").read_text())
    optimization = next(one["value"] for one in options if one["name"] == "optimization")
    assert f"optimisation {optimization}" in text.splitlines()[1]


@pytest.mark.parametrize("sign, value, is_met", [
    ("<=", 1.3, True), ("<=", 1.31, False), (">=", 1.3, True), (">=", 1.29, False),
])
def test_a_target_is_met_or_missed(sign, value, is_met):
    case = measure.Case("x", (sign, 1.3), value)
    assert case.is_met() is is_met
    assert ("MISSED" in case.text()) is not is_met


def test_the_interval_is_around_the_median_of_what_was_measured():
    low, high = measure.interval([1.0] * 3 + [1.1] * 24 + [9.0] * 3)
    assert low == high == 1.1
    low, high = measure.interval(list(range(100)))
    assert 30 < low < 49.5 < high < 70
