"""weir rules: what is stored, by whom, and who was faster.  Real Redis.

SPDX-License-Identifier: Apache-2.0
"""
import concurrent.futures
import contextlib
import hashlib
import json
import re

import pytest
from redis_rig import Server, redis_server
from redis_topologies import Cluster, Sentinels
from rules_db_rig import HEAD, Database, rules_of
from test_serve_tls import Authority
from weir_cli import DONE, NO, ROOT, USAGE, WORLD, weir

BAD = "domain: api\ndescriptors:\n  - key: a\n    rate_limit: {unit: minutes, requests_per_unit: x}\n"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with redis_server(tmp_path_factory.mktemp("redis")) as (client, url):
        yield client, url


@pytest.fixture
def client(store):
    store[0].flushall()
    return store[0]


@pytest.fixture
def db(client, store, tmp_path):
    return Database(tmp_path, store[1])


# ---- put and get ----

def test_what_is_put_is_what_one_gets(db):
    done = db.put(rules_of(), "--message", "the first", "--who", "alice")
    assert done.returncode == DONE and done.stdout == "api: version 1, new\n"
    assert db.run("get", "api").stdout == rules_of()
    entry = db.must("get", "api")
    assert (entry["version"], entry["who"], entry["message"], entry["text"]) == (1, "alice", "the first", rules_of())
    assert entry["sha256"] == hashlib.sha256(rules_of().encode()).hexdigest()
    assert db.put(rules_of(limit=4)).stdout == "api: version 2, replaces 1\n"
    assert db.put(rules_of(limit=4)).stdout == "api: unchanged, version 2\n"


def test_several_files_are_one_change(db, tmp_path):
    folder = tmp_path / "rules"
    folder.mkdir()
    for name in "api", "web":
        (folder / f"{name}.yaml").write_text(rules_of(name))
    told = db.must("put", folder)
    assert told == {"ok": True, "version": 1, "domains": [
        {"domain": name, "version": 1, "replaces": 0, "changed": True} for name in ("api", "web")]}
    (folder / "web.yaml").write_text(rules_of("web", 9))
    assert [one["changed"] for one in db.must("put", folder)["domains"]] == [False, True]
    assert db.version("api") == 1 and db.version("web") == 2


def test_all_come_back_as_files_that_can_be_put(db, client, tmp_path):
    names = ["api", "a/b", ".hidden", "ümlaut", "x" * 250]
    for name in names:
        assert db.put(rules_of(name)).returncode == DONE, name
    out = tmp_path / "out"
    assert db.run("get", "--output", out).returncode == DONE
    assert len(list(out.iterdir())) == len(names) and not list(out.glob(".*"))
    assert weir("check", out).returncode == DONE
    client.flushall()
    assert {one["domain"] for one in db.must("put", out)["domains"]} == set(names)


def test_rules_that_are_not_valid_change_nothing_and_all_errors_are_told(db, tmp_path):
    db.put(rules_of())
    done = db.put(BAD)
    assert done.returncode == NO and done.stdout == "" and "nothing was changed" in done.stderr
    assert re.search(r"^\(standard input\):4:24: ", done.stderr, re.M)
    assert re.search(r"^\(standard input\):4:52: ", done.stderr, re.M)
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(rules_of("web"))
    bad.write_text(BAD)
    assert db.run("put", good, bad).returncode == NO
    assert db.run("get", "api").stdout == rules_of() and db.version("web") == 0


def test_two_files_of_one_domain_are_refused(db, tmp_path):
    for name in "one.yaml", "two.yaml":
        (tmp_path / name).write_text(rules_of())
    done = db.run("put", tmp_path / "one.yaml", tmp_path / "two.yaml")
    assert done.returncode == NO and "one.yaml and" in done.stderr and "'api'" in done.stderr and db.version() == 0


def test_rules_that_name_files_are_refused(db):
    text = rules_of() + "    overrides: {file: vip.csv}\n"
    done = db.put(text)
    assert done.returncode == NO and "cannot name files" in done.stderr


def test_the_largest_rules_and_one_byte_more(db, tmp_path):
    path = tmp_path / "large.yaml"
    pad = 4 * 1024 * 1024 - len(rules_of()) - 1
    path.write_text(rules_of() + "#" * pad + "\n")
    assert db.run("put", path).returncode == DONE
    assert len(db.run("get", "api").stdout) == 4 * 1024 * 1024
    path.write_text(rules_of() + "#" * (pad + 1) + "\n")
    done = db.run("put", path)
    assert done.returncode == WORLD and "4 MiB" in done.stderr and db.version() == 1


def test_who_and_why_are_cut_where_they_are_too_long(db):
    db.put(rules_of(), "--who", "w" * 1024, "--message", "m" * 1025)
    entry = db.must("get", "api")
    assert entry["who"] == "w" * 1024 and entry["message"] == "m" * 1024


# ---- versions ----

def test_a_put_that_replaces_another_version_is_told_who_was_faster(db):
    db.put(rules_of())
    db.put(rules_of(limit=4), "--who", "bob", "--message", "four is enough")
    done = db.put(rules_of(limit=5), "--if-version", "1")
    assert done.returncode == NO and done.stdout == ""
    assert "version 2 by now, not 1" in done.stderr and "bob (four is enough)" in done.stderr
    done = db.run("put", "-", "--if-version", "1", "--json", stdin=rules_of(limit=5))
    assert json.loads(done.stdout)["conflict"]["who"] == "bob"
    assert db.put(rules_of(limit=5), "--if-version", "0").returncode == NO
    assert db.put(rules_of(limit=5), "--if-version", "2").returncode == DONE
    done = db.put(rules_of("web"), "--if-version", "7")
    assert done.returncode == NO and "not there" in done.stderr
    assert db.put(rules_of("web"), "--if-version", "0").returncode == DONE


def test_of_many_at_once_one_wins(db):
    db.put(rules_of())
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        done = list(pool.map(lambda i: db.put(rules_of(limit=10 + i), "--if-version", "1", "--who", f"w{i}"), range(6)))
    assert sorted(one.returncode for one in done) == [DONE] + [NO] * 5
    winner = next(i for i, one in enumerate(done) if one.returncode == DONE)
    assert db.run("get", "api").stdout == rules_of(limit=10 + winner)
    assert all(f"by w{winner}" in one.stderr for one in done if one.returncode == NO)


def test_many_domains_at_once_all_get_in(db):
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        done = list(pool.map(lambda i: db.put(rules_of(f"d{i}")), range(6)))
    assert [one.returncode for one in done] == [DONE] * 6, [one.stderr for one in done]
    assert sorted(one["version"] for one in db.must("list")["domains"]) == [1, 2, 3, 4, 5, 6]


def test_history_and_rollback(db):
    for limit in 1, 2, 3:
        db.put(rules_of(limit=limit), "--message", f"to {limit}", "--who", "alice")
    assert [(one["version"], one["message"]) for one in db.must("history", "api")["versions"]] == [
        (3, "to 3"), (2, "to 2"), (1, "to 1")]
    assert db.run("get", "api", "--version", "2").stdout == rules_of(limit=2)
    assert db.run("rollback", "api", "1").stdout == "api: version 4, replaces 3\n"
    assert db.run("get", "api").stdout == rules_of(limit=1)
    assert db.must("history", "api")["versions"][0]["message"] == "rollback to version 1"
    assert db.run("rollback", "api", "9").returncode == NO
    assert db.run("rollback", "api", "2", "--if-version", "3").returncode == NO
    text = db.run("history", "api").stdout
    assert "alice: to 3" in text and len(text.splitlines()) == 5


def test_history_is_bounded(db):
    for limit in range(1, 54):
        assert db.put(rules_of(limit=limit)).returncode == DONE
    versions = [one["version"] for one in db.must("history", "api")["versions"]]
    assert versions == list(range(53, 3, -1))
    for done in (db.run("get", "api", "--version", "3"), db.run("rollback", "api", "3")):
        assert done.returncode == NO and "not kept; 'weir rules history' shows" in done.stderr


def test_a_deleted_domain_can_be_brought_back(db, client):
    db.put(rules_of())
    assert db.run("delete", "api", "--if-version", "9").returncode == NO
    assert db.run("delete", "api").stdout == "api: deleted, was version 1\n"
    assert db.run("delete", "api").returncode == NO and db.run("get", "api").returncode == NO
    assert db.must("list")["domains"] == []
    assert 0 < client.ttl(HEAD + ":history:api") <= 90 * 86400
    assert db.run("rollback", "api", "2").returncode == NO
    assert db.run("rollback", "api", "1").stdout == "api: version 3, new\n"
    assert client.ttl(HEAD + ":history:api") == -1 and db.run("get", "api").stdout == rules_of()


def test_versions_go_on_where_the_head_was_lost(db, client):
    db.put(rules_of())
    db.put(rules_of(limit=4))
    client.delete(HEAD)
    assert db.put(rules_of(limit=5)).stdout == "api: version 3, replaces 2\n"


# ---- what somebody else has stored ----

@pytest.mark.parametrize("value", ["another text", b"\xff\x00" * 10, b"x" * (64 << 20)],
                         ids=["text", "binary", "64 MB"])
def test_what_weir_did_not_store_is_not_believed(db, client, value):
    db.put(rules_of())
    db.put(rules_of("web"))
    client.hset(HEAD + ":domain:api", "text", value)
    assert db.run("get", "api").returncode == WORLD
    assert [one.get("wrong") for one in sorted(db.must("list")["domains"], key=lambda one: one["domain"])] == [
        "what is stored was not stored by weir", None]
    done = db.put(rules_of("web", 9))
    assert done.returncode == NO and "api.yaml: what is stored was not stored by weir" in done.stderr
    assert db.put(rules_of()).returncode == DONE            # what replaces it is as good as ever
    assert db.put(rules_of("web", 9)).returncode == DONE


@pytest.mark.parametrize("command", [
    ["SET", HEAD, "x"], ["HSET", HEAD, "version", "x"], ["HSET", HEAD, "version", "9" * 30],
    ["SET", HEAD + ":domains", "x"],
    ["HSET", HEAD + ":domains", "d" * 300, "1"], ["HSET", HEAD + ":domains", "ghost", "1"],
    ["HSET", HEAD + ":domain:api", "who", "w" * 5000], ["HSET", HEAD + ":domain:api", "version", "-1"]])
def test_nonsense_is_an_error_and_no_crash(db, client, command):
    db.put(rules_of())
    client.delete(command[1]) if command[0] == "SET" else None
    client.execute_command(*command)
    assert db.put(rules_of("web")).returncode in (NO, WORLD)
    assert client.hexists(HEAD + ":domains", "web") is False if command[1] != HEAD + ":domains" else True


# ---- other stores ----

def test_a_cluster_is_followed_to_where_the_slot_is(tmp_path):
    with Cluster(tmp_path / "cluster", masters=3, replicas=False) as cluster:
        slot = cluster.slot(HEAD)
        owner = cluster.masters[cluster.owner(slot)]
        for node in cluster.masters:
            db = Database(tmp_path, f"redis-cluster://127.0.0.1:{node.port}")
            assert db.put(rules_of(limit=node.port)).returncode == DONE
            assert db.run("get", "api").stdout == rules_of(limit=node.port)
        other = next(node for node in cluster.masters if node is not owner)
        cluster.migrate(slot, owner, other)
        db = Database(tmp_path, f"redis-cluster://127.0.0.1:{owner.port}")
        assert db.put(rules_of(limit=7)).returncode == DONE and db.version() == 4


def test_sentinels_say_who_leads(tmp_path):
    with Sentinels(tmp_path / "sentinels", replicas=1) as sentinels:
        db = Database(tmp_path, sentinels.url)
        assert db.put(rules_of()).returncode == DONE
        assert sentinels.current().ask("HGET", HEAD, "version") == b"1"


def test_tls_needs_a_certificate_that_is_good(tmp_path):
    authority = Authority(tmp_path)
    cert, key = authority.sign("redis", "IP:127.0.0.1")
    with contextlib.ExitStack() as stack:
        server = Server(tmp_path / "redis", is_started=False)
        plain, server.settings = server.port, ["--port", "0", "--tls-port", str(server.port), "--tls-cert-file",
                                               str(cert), "--tls-key-file", str(key), "--tls-ca-cert-file",
                                               str(tmp_path / "ca.pem")]
        stack.callback(server.kill)
        server.start(is_waited_for=False)
        db = Database(tmp_path, f"rediss://127.0.0.1:{plain}", "--store-tls-ca", tmp_path / "ca.pem")
        done = None
        for _ in range(100):                              # until it listens
            done = db.put(rules_of())
            if "refused" not in done.stderr:
                break
        assert done.returncode == WORLD                    # it wants a certificate of ours
        ours = ("--store-tls-cert", cert, "--store-tls-key", key)
        done = db.put(rules_of(), *ours)
        assert done.returncode == DONE, done.stderr
        assert db.run("get", "api", *ours).stdout == rules_of()
        by_name = f"rediss://localhost:{plain}"
        done = Database(tmp_path, by_name, "--store-tls-ca", tmp_path / "ca.pem").put(rules_of(), *ours)
        assert done.returncode == WORLD and "TLS" in done.stderr and "mismatch" in done.stderr
        done = Database(tmp_path, db.url).put(rules_of(), *ours)
        assert done.returncode == WORLD and "TLS" in done.stderr


def test_a_password_is_sent_and_never_shown(tmp_path):
    with redis_server(tmp_path, "--requirepass", "hunter2") as (_, url):
        done = Database(tmp_path, url).put(rules_of())
        assert done.returncode == WORLD and "NOAUTH" in done.stderr
    with Server(tmp_path / "two", "--requirepass", "hunter2", is_started=False) as server:
        server.start()
        good, bad = (f"redis://:{word}@127.0.0.1:{server.port}" for word in ("hunter2", "secret!"))
        assert Database(tmp_path, good).put(rules_of()).returncode == DONE
        done = Database(tmp_path, bad).put(rules_of())
        assert done.returncode == WORLD and "WRONGPASS" in done.stderr and "secret!" not in done.stderr
        assert weir("rules", "get", "api", env={"WEIR_RULES_STORE": good}).stdout == rules_of()


# ---- usage ----

@pytest.mark.parametrize("args", [[], ["gte", "api"], ["put"], ["history"], ["rollback", "api"],
                                  ["rollback", "api", "x"], ["list", "api"], ["get", "a", "b"], ["get"]])
def test_wrong_usage_is_told(db, args):
    done = db.run(*args)
    assert done.returncode == USAGE and done.stdout == "" and done.stderr.startswith("weir: ")


@pytest.mark.parametrize("url", ["", "ftp://x", "redis-shards://a,b", "redis://h/x"])
def test_addresses_that_make_no_sense(url):
    assert weir("rules", "list", "--store", url).returncode == USAGE


def test_no_address_is_wrong_usage():
    assert "WEIR_RULES_STORE" in weir("rules", "list").stderr


def test_a_store_that_is_not_there_is_the_worlds_failure(tmp_path):
    done = weir("rules", "list", "--store", f"unix:{tmp_path}/none.sock")
    assert done.returncode == WORLD and "none.sock" in done.stderr


def test_files_that_are_not_there(db, tmp_path):
    done = db.run("put", tmp_path / "none.yaml")
    assert done.returncode == WORLD and "none.yaml" in done.stderr


def test_help_fits_a_screen_and_the_man_page_knows_every_option():
    shown = weir("rules", "--help").stdout
    assert len(shown.splitlines()) <= 30 and max(map(len, shown.splitlines())) <= 80
    page = (ROOT / "docs/man/weir-rules.1").read_text().replace("\\-", "-")
    for option in re.findall(r"^  (--[a-z-]+)", shown, re.M):
        assert option in page, option
