"""weir table: stat, dump, resize; and tables that are none.

SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import re
import time

import pytest

from weir_cli import DONE, USAGE, WORLD, lines, request, rules_file, weir

RULES = """\
domain: api
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 10}
  - key: login
    rate_limit: {unit: year, requests_per_unit: 10, algorithm: sliding_window_log}
  - key: bucket
    rate_limit: {unit: year, requests_per_unit: 10, algorithm: token_bucket}
"""
FOREIGN = {"empty": b"", "one byte": b"x", "a page of zeroes": b"\0" * 4096, "a megabyte of ones": b"\xff" * (1 << 20),
           "only the magic": b"WEIRTBL1" + b"\0" * 8192}
KEYS = [("user", "a"), ("user", "b"), ("login", "c"), ("bucket", "d")]


@pytest.fixture
def rules(tmp_path):
    (tmp_path / "rules").mkdir()
    return rules_file(tmp_path / "rules", RULES)


@pytest.fixture
def table(tmp_path, rules):
    """A table in which four keys have used three each."""
    path = tmp_path / "table"
    trace = lines(*[request(t_ns=time.time_ns(), entries=[key], hits=3) for key in KEYS])
    done = weir("replay", "--rules", rules, "--table", path, "--table-size", "2m", stdin=trace)
    assert done.returncode == DONE, done.stderr
    return path


def remaining(rules, table, key):
    done = weir("explain", "--json", "--rules", rules, "--table", table, "api", "=".join(key))
    assert done.returncode == DONE, done.stderr
    return json.loads(done.stdout)["descriptors"][0]["now"]["remaining"]


def test_stat_says_size_and_occupancy(table):
    done = weir("table", "stat", table)
    assert done.returncode == DONE
    for word in ("table", "size", "version", "slots", "sketch", "extents", "windows", "clock"):
        assert re.search(rf"^{word} ", done.stdout, re.M), done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80 + len(str(table))


def test_stat_json_is_one_object(table):
    said = json.loads(weir("table", "stat", "--json", table).stdout)
    assert said["path"] == str(table) and said["version"] >= 1
    assert said["file_bytes"] == os.path.getsize(table) and 1 << 20 < said["file_bytes"] <= 2 << 20
    assert said["slots_live"] == said["slots_used"] == said["insertions"] == len(KEYS)
    assert said["evictions"] == 0 and 365 * 86400 in said["windows_s"]
    assert abs(said["now_ns"] - said["wall_ns"]) < 5 * 10**9


def test_dump_shows_each_live_slot_and_no_key(table):
    done = weir("table", "dump", table)
    assert done.returncode == DONE and len(done.stdout.splitlines()) == 1 + len(KEYS)
    slots = [json.loads(line) for line in weir("table", "dump", "--json", table).stdout.splitlines()]
    assert len(slots) == len(KEYS)
    assert all(slot["expires_ns"] > time.time_ns() and slot["kind"] for slot in slots)
    assert len({slot["fingerprint"] for slot in slots}) == len(KEYS)


def test_dump_stops_at_its_limit(table):
    assert len(weir("table", "dump", "--json", "--limit", "2", table).stdout.splitlines()) == 2
    assert "... and 2 more of 4 live slots" in weir("table", "dump", "--limit", "2", table).stdout


def test_explain_shows_what_the_table_counts_and_takes_nothing(table, rules):
    for _ in range(2):
        assert [remaining(rules, table, key) for key in KEYS] == [7] * 4
    assert remaining(rules, table, ("user", "other")) == 10


def test_resize_makes_another_file_that_forgets_nothing(tmp_path, table, rules):
    new = tmp_path / "new"
    done = weir("table", "resize", table, "--size", "4m", "--output", new)
    assert (done.returncode, done.stderr) == (DONE, "")
    said = json.loads(weir("table", "stat", "--json", new).stdout)
    assert 3 << 20 < said["file_bytes"] <= 4 << 20
    assert all(remaining(rules, new, key) <= 7 for key in KEYS)
    assert [remaining(rules, table, key) for key in KEYS] == [7] * 4


def test_resize_in_place_warns_those_who_have_it_open(tmp_path, table, rules):
    done = weir("table", "resize", table, "--size", "4m")
    assert done.returncode == DONE and "until they reopen" in done.stderr
    assert os.path.getsize(table) > 3 << 20
    assert all(remaining(rules, table, key) <= 7 for key in KEYS)
    assert sorted(os.listdir(tmp_path)) == ["rules", "table"]


def test_resize_refuses_what_is_too_small(table):
    done = weir("table", "resize", table, "--size", "4k")
    assert done.returncode == USAGE and "at least 1m" in done.stderr


@pytest.mark.parametrize("verb", ["stat", "dump", "resize"])
@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_no_table_is_refused(tmp_path, verb, name):
    path, content = tmp_path / "table", FOREIGN[name]
    path.write_bytes(content)
    done = weir("table", verb, path, *(["--size", "2m"] if verb == "resize" else []))
    assert done.returncode == WORLD
    assert str(path) in done.stderr and done.stdout == ""
    assert path.read_bytes() == content and os.listdir(tmp_path) == ["table"]


def test_a_table_cut_short_is_refused(tmp_path, table):
    os.truncate(table, os.path.getsize(table) // 2)
    done = weir("table", "stat", table)
    assert done.returncode == WORLD and str(table) in done.stderr


@pytest.mark.parametrize("verb", ["stat", "dump", "resize"])
def test_a_table_that_is_not_there(tmp_path, verb):
    done = weir("table", verb, tmp_path / "absent", *(["--size", "2m"] if verb == "resize" else []))
    assert done.returncode == WORLD and "absent" in done.stderr and os.listdir(tmp_path) == []
