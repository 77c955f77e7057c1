"""A store that answers, but refuses or fails what it is asked: it is told why, health and metrics say so, and the
rule's policy decides.

SPDX-License-Identifier: Apache-2.0
"""
import re

import pytest

from redis_topologies import CALM_MS, Cluster
from service import ROOT, Service, wait_until
from store_rig import ALL, KINDS, PATIENT, RULES, ask_json, told

PAGE = (ROOT / "docs/redis.md").read_text()


def serve(tmp_path, store, *flags, user=None, rules=RULES, **more):
    """As the user of these rules of Redis's ACL; None: as anybody."""
    url = store.url
    if user is not None:
        store.ask("ACL", "SETUSER", "u", "on", ">secret", *user.split())
        url = url.replace("redis://", "redis://u:secret@")
    return Service(tmp_path, rules, flags=("--store", url, *PATIENT, "--log-keys", "plain", *flags), listeners=ALL,
                   **more)


def complaints(weir):
    return [line for line in weir.events() if line["event"] == "store_complains"]


def reason(weir, event):
    """Of the first."""
    return next(line["reason"] for line in weir.events() if line["event"] == event)


def admitted(weir, key, value, count=25):
    return [ask_json(weir, key, value) for _ in range(count)].count(200)


def all_admitted(weir, key, value):
    """20 in the end, and then no more.  Eventual: a fifth of the limit at most is unknown to the store, so where that
    is slow it takes longer.  Of leases: those that a busy machine has let expire are lost."""
    granted, expired = 0, told(weir)["lease_tokens_expired_total"]

    def is_full():
        nonlocal granted
        granted += admitted(weir, key, value, count=20 - granted)
        return granted + told(weir)["lease_tokens_expired_total"] - expired >= 20

    wait_until(is_full, f"all of {key}")
    assert granted <= 20 and admitted(weir, key, value, count=5) == 0, f"{key}: {granted}"


# ---- who may not ----

@pytest.mark.parametrize("missing, words", [
    ("-fcall -evalsha", "'fcall' command"), ("-ping", "'ping' command"),
    ("resetkeys ~other:*", "no permissions to access one of the keys")])
def test_a_user_whom_the_store_refuses_is_told_why_and_it_is_away(tmp_path, own_store, missing, words):
    with serve(tmp_path, own_store, user=f"~* +@all {missing}") as weir:
        assert admitted(weir, "fixed", "a") == 20               # as the rule's policy says: by this node
        weir.wait_for("store_away")
        assert words in reason(weir, "store_away")
        wait_until(lambda: told(weir)["health"] == "away", "health to tell")


@pytest.mark.parametrize("missing", ["-time", "-get"])
def test_a_user_who_may_not_what_scripts_do_is_told_so(tmp_path, own_store, missing):
    with serve(tmp_path, own_store, user=f"~* +@all {missing}", threads=1) as weir:
        assert admitted(weir, "fixed", "a") == 20 and told(weir)["fallback_local_total"] == 25
        assert "can't run this command" in complaints(weir)[0]["reason"] and len(complaints(weir)) == 1
        assert told(weir)["health"] == "partly" and told(weir)["servers_failing"] == 1
        own_store.ask("ACL", "SETUSER", "u", "+@all")
        assert admitted(weir, "fixed", "b") == 20
        assert told(weir)["health"] == "up" and told(weir)["servers_failing"] == 0


def test_what_one_algorithm_needs_does_not_stop_the_others(tmp_path, own_store):
    """Refusals of one kind among answers of others: the store is not away, and yet it is told.
    One worker, that meets both."""
    with serve(tmp_path, own_store, user="~* +@all -zadd", threads=1) as weir:
        for _ in range(25):
            ask_json(weir, "log", "a")
            ask_json(weir, "fixed", "a")
        assert told(weir)["health"] == "up" and told(weir)["fallback_local_total"] == 25
        assert len(complaints(weir)) == 1 and "can't run this command" in complaints(weir)[0]["reason"]


def test_the_page_names_all_that_a_user_needs(tmp_path, own_store):
    user = re.search(r"^ACL SETUSER weir on >SECRET (.*)$", PAGE, re.M)[1]
    eventual = RULES.replace("domain: d", "domain: d\ndefaults: {consistency: eventual}")
    for number, (flags, rules) in enumerate([((), RULES), (("--store-leases=on",), RULES), ((), eventual)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        with serve(folder, own_store, *flags, user=user, rules=rules) as weir:
            for kind in KINDS:
                all_admitted(weir, kind, f"{number}")
            assert complaints(weir) == [] and told(weir)["fallback_local_total"] == 0
            assert not any(line["event"] == "store_away" for line in weir.events())


# ---- which is another kind of store ----

def test_a_server_of_a_cluster_that_is_not_called_one_says_so(tmp_path):
    with Cluster(tmp_path / "cluster", replicas=False, timeout_ms=CALM_MS) as cluster, \
            serve(tmp_path, cluster.masters[0]) as weir:
        for value in "abcdef":                                  # some of them are elsewhere
            admitted(weir, "fixed", value)
        weir.wait_for("store_away")
        reasons = {line["reason"] for line in weir.events() if line["event"] == "store_away"}
        assert reasons == {"it is part of a Cluster: name it redis-cluster://"}


def test_a_cluster_that_stays_down_is_away_and_comes_back(tmp_path):
    """For a moment it may be, while masters change; then nobody waits for it any more."""
    with Cluster(tmp_path / "cluster", replicas=False, timeout_ms=CALM_MS) as cluster, \
            Service(tmp_path, RULES, flags=("--store", cluster.url, "--store-leases=off", "--store-deadline", "300ms"),
                    listeners=ALL, threads=1) as weir:
        assert ask_json(weir, "fixed", "before") == 200
        for node in cluster.masters:
            node.cluster("DELSLOTS", 0)
        assert admitted(weir, "fixed", "a") == 20               # as the rule's policy says: by this node
        weir.wait_for("store_away")
        assert reason(weir, "store_away").startswith("CLUSTERDOWN") and told(weir)["fallback_local_total"] == 25
        cluster.masters[0].cluster("ADDSLOTS", 0)
        weir.wait_for("store_back")
        wait_until(lambda: told(weir)["health"] == "up", "health to tell")
        assert admitted(weir, "fixed", "b") == 20 and told(weir)["fallback_local_total"] == 25


def test_a_cluster_that_is_none_says_so_once(tmp_path, own_store):
    url = own_store.url.replace("redis:", "redis-cluster:")
    with Service(tmp_path, RULES, flags=("--store", url, *PATIENT), listeners=ALL) as weir:
        weir.wait_for("store_unknown")
        assert admitted(weir, "fixed", "a") == 20
        lines = [line for line in weir.events() if line["event"].startswith("store_")]
        assert [line["reason"] for line in lines] == ["ERR This instance has cluster support disabled"]


def test_sentinels_that_are_none_say_so(tmp_path, own_store):
    url = own_store.url.replace("redis://", "redis-sentinel://weir@")
    with Service(tmp_path, RULES, flags=("--store", url), listeners=ALL) as weir:
        weir.wait_for("store_unknown")
        assert "unknown command 'SENTINEL'" in reason(weir, "store_unknown")


def test_a_store_without_tls_is_suspected(tmp_path, own_store):
    url = own_store.url.replace("redis:", "rediss:")
    with Service(tmp_path, RULES, flags=("--store", url), listeners=ALL) as weir:
        weir.wait_for("store_away")
        assert "does it speak TLS?" in reason(weir, "store_away")


# ---- what is not ours ----

def test_a_key_that_somebody_else_uses_is_told_and_others_are_decided_by_the_store(tmp_path, own_store):
    with serve(tmp_path, own_store) as weir:
        assert ask_json(weir, "fixed", "a") == 200
        key, = own_store.ask("KEYS", "*fixed*")
        own_store.ask("DEL", key)
        own_store.ask("LPUSH", key, "somebody's")
        assert admitted(weir, "fixed", "a") == 20 and told(weir)["fallback_local_total"] == 25
        told_of, = complaints(weir)
        assert "WRONGTYPE" in told_of["reason"] and told_of["key"] == key.decode() and told_of["calls"] == 1
        assert admitted(weir, "fixed", "b") == 20 and told(weir)["fallback_local_total"] == 25
        assert own_store.ask("TYPE", key) == b"list"                # left alone
        own_store.ask("DEL", key)
        assert ask_json(weir, "fixed", "a") == 200 and told(weir)["fallback_local_total"] == 25


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [b"", b"x", b"\xff" * 64])
def test_bytes_that_make_no_sense_neither_crash_nor_stop_anybody(tmp_path, own_store, kind, value):
    with serve(tmp_path, own_store) as weir:
        assert ask_json(weir, kind, "a") == 200
        key, = own_store.ask("KEYS", f"*{kind}*")
        own_store.ask("SET", key, value)
        assert admitted(weir, kind, "a") <= 20
        assert admitted(weir, kind, "b") == 20


def test_eventual_messages_that_fail_are_told(tmp_path, own_store):
    rules = "domain: d\ndescriptors:\n" \
            "  - {key: fixed, rate_limit: {unit: day, requests_per_unit: 20, consistency: eventual}}\n"
    with serve(tmp_path, own_store, user="~* +@all -hset", rules=rules) as weir:
        assert admitted(weir, "fixed", "a") == 20
        wait_until(lambda: complaints(weir), "a complaint")
        assert "can't run this command" in complaints(weir)[0]["reason"]
