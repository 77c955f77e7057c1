"""weir replay --store: every decision is Redis's, and the same as the table's.

SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import pathlib
import random
import subprocess
import time

import pytest

from redis_rig import redis_server
from service import free_port
from weir_cli import DONE, ROOT, T0, USAGE, WEIR, WORLD, lines, request, rules_file, weir

SCALE = float(os.environ.get("WEIR_TEST_SCALE") or 1)
FOLDERS = [ROOT / "tests/vectors", pathlib.Path(os.environ.get("WEIR_VECTORS") or ROOT.parent / "shared/vectors")]
VECTORS = {rules.name.removesuffix(".rules.yaml"): rules for folder in FOLDERS
           for rules in sorted(folder.glob("*.rules.yaml"))}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with redis_server(tmp_path_factory.mktemp("redis")) as (client, url):
        yield client, url


@pytest.fixture(scope="module")
def store_without_functions(tmp_path_factory):
    """As where functions are not allowed: then there are scripts."""
    with redis_server(tmp_path_factory.mktemp("redis")) as (client, url):
        client.execute_command("ACL", "SETUSER", "default", "-function")
        yield client, url


def check(name, url):
    rules = VECTORS[name]
    trace = rules.with_name(name + ".trace.jsonl")
    done = weir("replay", "--check", "--store", url, "--rules", rules, trace)
    count = len(trace.read_text().splitlines())
    assert done.returncode == DONE, done.stdout + done.stderr
    assert done.stdout == f"{count} decisions compared, 0 differ\n"


@pytest.mark.parametrize("name", VECTORS)
def test_golden_vector_by_a_function(name, store):
    check(name, store[1])


@pytest.mark.parametrize("name", VECTORS)
def test_golden_vector_by_a_script(name, store_without_functions):
    client, url = store_without_functions
    check(name, url)
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] > 0
    assert "cmdstat_fcall" not in client.info("commandstats")


RULES = """\
domain: mixed
descriptors:
  - key: several
    rate_limit:
      - {unit: second, requests_per_unit: 3}
      - {unit: minute, requests_per_unit: 20, algorithm: sliding_window_log}
      - {unit: minute, requests_per_unit: 9, algorithm: token_bucket}
      - {unit: minute, requests_per_unit: 12, algorithm: leaky_bucket, burst: 4}
      - {unit: minute, requests_per_unit: 15, algorithm: sliding_window_counter}
      - {unit: minute, requests_per_unit: 18, algorithm: sliding_window_counter, buckets: 6}
      - {unit: minute, requests_per_unit: 16, algorithm: token_bucket, refill: interval}
  - key: window
    rate_limit: {unit: second, requests_per_unit: 2}
  - key: log
    rate_limit: {unit: second, requests_per_unit: 3, algorithm: sliding_window_log, count_rejected: true}
  - key: shadow
    shadow_mode: true
    rate_limit: {unit: second, requests_per_unit: 2}
  - key: quota
    quota_mode: true
    rate_limit: {unit: second, requests_per_unit: 3}
  - key: other
    quota_mode: true
    rate_limit: {unit: second, requests_per_unit: 1, algorithm: token_bucket}
  - key: none
    rate_limit: {unlimited: true}
  - key: closed
    rate_limit: {unit: second, requests_per_unit: 0}
  - key: address
    ipv6_prefix: [64, {prefix: 48, times: 2}]
    rate_limit: {unit: second, requests_per_unit: 2}
  - key: shared
    value: a*
    share_threshold: true
    rate_limit: {unit: second, requests_per_unit: 2}
  - key: host
    rate_limit: {unit: second, requests_per_unit: 2, scope: host}
  - key: path
    value: /pay
    descriptors:
      - key: several
        rate_limit: {unit: second, requests_per_unit: 3, algorithm: leaky_bucket, burst: 2}
"""
KEYS = "several window log shadow quota other none closed address shared host nobody".split()
ADDRESSES = ["2001:db8:1::1", "2001:0db8:1:0::2", "2001:db8:2::1", "192.0.2.1", "::ffff:192.0.2.1", "not an address"]


def random_descriptor(rng):
    key = rng.choice(KEYS)
    value = rng.choice(ADDRESSES if key == "address" else ["a1", "a2", "b"])
    entries = [[key, value]]
    if rng.random() < 0.1:
        entries = [["path", "/pay"], ["several", value]]
    one = dict(entries=entries)
    if rng.random() < 0.2:
        one["hits"] = rng.choice([0, 1, 2, 3, 5, -1, -2])
    if rng.random() < 0.05 and key != "host":    # whose counter an override would share, but not here
        one["limit"] = dict(requests_per_unit=rng.randrange(4), unit="SECOND")
    return one


def random_trace(rng, count, atomic):
    """The clock does not go back: a replay on the table would know then whom it has looked at, and Redis does not.
    stress/redis_agree.c compares the two without that."""
    now = T0
    for _ in range(count):
        now += rng.choice([0, 1, 10**6, 10**8, 3 * 10**8, 10**9, rng.randrange(3 * 10**9)])
        descriptors = [random_descriptor(rng) for _ in range(rng.choice([1, 1, 2, 3, 5]))]
        if atomic:     # a counter that is named twice is taken in the order of the files there, of the request here
            descriptors = list({d["entries"][-1][0]: d for d in descriptors}.values())
        yield dict(t_ns=now, domain="mixed", hits=rng.choice([1, 1, 1, 2, 3]), descriptors=descriptors)


@pytest.mark.parametrize("atomic", [False, True], ids=["one by one", "atomic"])
@pytest.mark.parametrize("kind", ["store", "store_without_functions"])
def test_requests_of_several_limits_are_decided_as_by_the_table(atomic, kind, tmp_path, request):
    url = request.getfixturevalue(kind)[1]
    rules = rules_file(tmp_path, RULES.replace("domain: mixed", f"domain: mixed\natomic: {str(atomic).lower()}"))
    seed = int(os.environ.get("WEIR_SEED") or random.randrange(2**32))
    trace = lines(*random_trace(random.Random(seed), max(int(3000 * SCALE), 300), atomic))
    table, redis = (weir("replay", "--rules", rules, *how, stdin=trace) for how in ((), ("--store", url)))
    assert (table.returncode, redis.returncode) == (DONE, DONE), table.stderr + redis.stderr
    pairs = zip(trace.splitlines(), table.stdout.splitlines(), redis.stdout.splitlines(), strict=True)
    for number, (asked, expected, got) in enumerate(pairs, 1):
        assert got == expected, f"WEIR_SEED={seed}, line {number}: {asked}"
    assert table.stdout.count('"overall": "OVER_LIMIT"') > 20 and table.stdout.count('"overall": "OK"') > 20


@pytest.mark.parametrize("key", ["window", "log", "several"])
def test_an_atomic_request_that_names_a_counter_twice_takes_it_twice_or_not_at_all(key, store, tmp_path):
    rules = rules_file(tmp_path, RULES.replace("domain: mixed", "domain: mixed\natomic: true"))
    twice = dict(t_ns=T0, domain="mixed", descriptors=[dict(entries=[[key, "a"]], hits=2)] * 2)
    look = dict(t_ns=T0, domain="mixed", descriptors=[dict(entries=[[key, "a"]], hits=0)])
    done = weir("replay", "--rules", rules, "--store", store[1], stdin=lines(look, twice, look))
    before, refused, after = map(json.loads, done.stdout.splitlines())
    assert refused["overall"] == "OVER_LIMIT" and after["statuses"] == before["statuses"]


def converse(url, rules):
    """A replay that answers line by line."""
    return subprocess.Popen([WEIR, "replay", "--rules", rules, "--store", url], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("kind, loss", [
    ("store", ["FUNCTION", "FLUSH"]), ("store", ["FLUSHALL"]), ("store_without_functions", ["SCRIPT", "FLUSH"])])
def test_a_script_that_is_gone_is_loaded_again(kind, loss, tmp_path, request):
    client, url = request.getfixturevalue(kind)
    line = lines(dict(t_ns=T0, domain="api", descriptors=[dict(entries=[["user", "alice"]])]))
    first = weir("replay", "--rules", rules_file(tmp_path), "--store", url, stdin=line)
    assert first.returncode == DONE
    replay = converse(url, rules_file(tmp_path))
    try:
        replay.stdin.write(line * 2)
        replay.stdin.flush()
        while client.dbsize() == 0:          # until it has counted something
            assert replay.poll() is None
        client.execute_command("ACL", "SETUSER", "default", "+function")
        client.execute_command(*loss)
        if kind == "store_without_functions":
            client.execute_command("ACL", "SETUSER", "default", "-function")
        out, _ = replay.communicate(line * 2, timeout=60)
    finally:
        replay.kill()
        replay.wait()
    assert replay.returncode == DONE
    assert len(out.splitlines()) == 4


def test_keys_are_a_replays_own_and_expire(store, tmp_path):
    client, url = store
    client.flushall()
    for _ in range(2):
        done = weir("replay", "--rules", rules_file(tmp_path), "--store", url, stdin=lines(request()))
        assert json.loads(done.stdout)["statuses"][0]["remaining"] == 2
    keys = client.keys("*")
    assert len(keys) == 2 and all(key.startswith(b"weir-replay:") and b"{3:api4:user=5:alice}" in key for key in keys)
    assert all(0 < client.ttl(key) <= 600 for key in keys)


def test_a_full_log_expires_though_the_clock_went_back(store, tmp_path):
    """By more than a window: its entries are made anew, and nothing else of it changes."""
    client, url = store
    client.flushall()
    log = dict(domain="mixed", descriptors=[dict(entries=[["full", "a"]])])
    rules = rules_file(tmp_path, "domain: mixed\ndescriptors:\n"
                       "  - key: full\n"
                       "    rate_limit: {unit: second, requests_per_unit: 1, algorithm: sliding_window_log}\n")
    done = weir("replay", "--rules", rules, "--store", url,
                stdin=lines(*[dict(t_ns=T0 - s * 10**9, **log) for s in (0, 9)]))
    assert [json.loads(line)["overall"] for line in done.stdout.splitlines()] == ["OK", "OVER_LIMIT"]
    assert [0 < client.ttl(key) <= 600 for key in client.keys("*")] == [True]


def test_a_url_says_it_all(tmp_path):
    """User, password, host, port and database."""
    port = free_port()
    with redis_server(tmp_path, "--port", str(port)) as (client, url):
        client.execute_command("ACL", "SETUSER", "weir", "on", ">p:a@s/s", "~weir*", "+@all")
        client.execute_command("CONFIG", "SET", "requirepass", "secret")
        rules, trace = rules_file(tmp_path), lines(request())

        def replay(where):
            return weir("replay", "--rules", rules, "--store", where, stdin=trace)
        done = replay(url)
        assert done.returncode == WORLD and "NOAUTH" in done.stderr
        done = replay(f"redis://:wrong@127.0.0.1:{port}")
        assert done.returncode == WORLD and "WRONGPASS" in done.stderr and "wrong@" not in done.stderr
        assert replay(f"redis://secret@127.0.0.1:{port}/3").returncode == DONE
        assert replay(f"redis://weir:p%3Aa%40s%2Fs@localhost:{port}/5").returncode == DONE
        client.execute_command("AUTH", "secret")
        keys = {name: space["keys"] for name, space in client.info("keyspace").items()}
        assert keys == {"db3": 1, "db5": 1}


def test_all_limits_of_a_rule_lie_in_one_slot_of_a_cluster(tmp_path):
    ports = "--port", str(free_port()), "--cluster-port", str(free_port())
    with redis_server(tmp_path, *ports, "--cluster-enabled", "yes") as (client, url):
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        while client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
            time.sleep(0.05)
        rules = rules_file(tmp_path, RULES)
        one = [dict(t_ns=T0, domain="mixed", descriptors=[dict(entries=[["several", value]])])
               for value in ("a", "{b}", "}", "c" * 300, "")]
        done = weir("replay", "--rules", rules, "--store", url, stdin=lines(*one))
        assert done.returncode == DONE, done.stderr
        assert len(client.execute_command("KEYS", "*")) == 7 * len(one)
        two = dict(t_ns=T0, domain="mixed", descriptors=[dict(entries=[["window", value]]) for value in "ab"])
        done = weir("replay", "--rules", rules, "--store", url, stdin=lines(two))
        assert done.returncode == WORLD and "CROSSSLOT" in done.stderr


def test_stores_that_are_not_there(tmp_path):
    rules = rules_file(tmp_path)
    for url, code, words in [
            (f"unix:{tmp_path}/absent", WORLD, "No such file"), ("redis://127.0.0.1:1", WORLD, "refused"),
            ("http://127.0.0.1", USAGE, "redis://"), ("redis://", USAGE, "host"),
            ("redis-cluster://127.0.0.1:1", USAGE, "a replay takes")]:
        done = weir("replay", "--rules", rules, "--store", url, stdin=lines(request()))
        assert done.returncode == code and words in done.stderr, (url, done.stderr)
