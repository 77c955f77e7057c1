"""Nodes that follow a rules database: new rules within a second, and the last good ones whatever happens to Redis.

SPDX-License-Identifier: Apache-2.0
"""
import hashlib
import json
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pytest
from http_rig import ask
from nginx_rig import Nginx
from redis_rig import Server, redis_server
from redis_topologies import Sentinels
from rules_db_rig import HEAD, Database, rules_of
from service import PATIENCE_S, WEIR, Service, wait_until
from weir_cli import DONE, NO, ROOT, WORLD, weir


@pytest.fixture
def server(tmp_path):
    with Server(tmp_path / "redis") as one:
        yield one


@pytest.fixture
def db(server, tmp_path):
    return Database(tmp_path, server.url)


def node(tmp_path, url, name="node", flags=(), **more):
    """A service that keeps its rules in a folder of its own."""
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    return Service(folder, None, flags=["--rules-store", url, "--rules", folder / "rules", *flags],
                   listeners=("http", "admin"), **more)


def limit_of(weir, domain="api"):
    """What this node's rules say now; None where it does not know the domain."""
    rules = json.loads(ask(weir.port("admin"), "/api/v1/rules").body)["rules"]
    return {rule["id"]: rule["limits"][0]["requests"] for rule in rules}.get(f"{domain}.user")


def wait_limit(weir, limit, domain="api"):
    wait_until(lambda: limit_of(weir, domain) == limit, f"{domain} to be at {limit}")


def force(server, domain, text, sha=None):
    """What somebody does by hand."""
    sha = sha or hashlib.sha256(text if isinstance(text, bytes) else text.encode()).hexdigest()
    server.ask("HSET", f"{HEAD}:domain:{domain}", "text", text, "sha256", sha)
    server.ask("HINCRBY", HEAD, "version", "1")


# ---- following ----

def test_all_nodes_have_new_rules_within_a_second(db, server, tmp_path):
    assert db.put(rules_of(limit=3)).returncode == DONE
    with node(tmp_path, server.url, "one") as one, node(tmp_path, server.url, "two") as two:
        assert limit_of(one) == limit_of(two) == 3          # the first look is before the start
        took = []
        for limit in range(4, 10):
            assert db.put(rules_of(limit=limit)).returncode == DONE
            begin = time.monotonic()
            wait_limit(one, limit)
            wait_limit(two, limit)
            took.append(time.monotonic() - begin)
        assert min(took) < 1.0, took                        # a machine that is busy may miss it once or twice
        assert db.put(rules_of("web", 5)).returncode == DONE
        wait_limit(one, 5, "web")
        assert db.run("delete", "web").returncode == DONE
        wait_limit(one, None, "web")
        assert limit_of(one) == 9
        assert db.run("rollback", "api", "1").returncode == DONE
        wait_limit(two, 3)


def test_others_on_the_host_load_the_same_path(db, server, tmp_path):
    db.put(rules_of(limit=3))
    with node(tmp_path, server.url) as weir_node:
        path = tmp_path / "node" / "rules"
        with Service(tmp_path, None, flags=["--rules", path], listeners=("http", "admin")) as other:
            assert limit_of(other) == 3
            db.put(rules_of(limit=4))
            wait_limit(weir_node, 4)
            wait_limit(other, 4)
        done = weir("check", path)
        assert done.returncode == DONE and "1 rule in 1 domain" in done.stdout


def test_nginx_has_them_from_the_same_path(db, server):
    per_address = rules_of().replace("key: user", "key: remote_address")
    assert db.put(per_address).returncode == DONE
    with tempfile.TemporaryDirectory(prefix="weir-kept-") as name:
        kept = pathlib.Path(name)
        kept.chmod(0o755)                                    # nginx's workers are another user
        with node(kept, server.url) as weir_node:
            engine = f"weir_table {kept}/table size=8m; weir_rules {kept}/node/rules;"
            with Nginx(rules=None, http=engine) as nginx:
                assert ask(nginx.port, "/").headers["X-Ratelimit-Limit"] == "3"
                assert db.put(per_address.replace("unit: 3", "unit: 9")).returncode == DONE
                wait_until(lambda: ask(nginx.port, "/").headers["X-Ratelimit-Limit"] == "9",
                           "nginx to have the new rules")
            assert weir_node.is_running()


def test_two_processes_on_one_path_do_not_fight(db, server, tmp_path):
    db.put(rules_of(limit=3))
    with node(tmp_path, server.url) as one:
        with node(tmp_path, server.url) as two:
            db.put(rules_of(limit=4))
            wait_limit(one, 4)
            wait_limit(two, 4)
            two.wait_for("rules are kept by another process")
            one.stop()
            db.put(rules_of(limit=5))
            wait_limit(two, 5)


def test_only_two_sets_are_kept(db, server, tmp_path):
    db.put(rules_of(limit=1))
    with node(tmp_path, server.url) as one:
        for limit in 2, 3, 4:
            db.put(rules_of(limit=limit))
            wait_limit(one, limit)
    folder = tmp_path / "node"
    assert len(list(folder.glob(".rules.[0-9]*"))) == 2 and (folder / "rules").is_symlink()


# ---- Redis goes ----

def test_a_start_without_redis_uses_what_was_kept(db, server, tmp_path):
    db.put(rules_of(limit=7))
    with node(tmp_path, server.url):
        pass
    server.kill()
    with node(tmp_path, server.url) as one:
        one.wait_for("rules store away")
        assert limit_of(one) == 7
        assert sum(event["event"] == "rules store away" for event in one.events()) == 1
        server.start()                                       # empty: no reason to forget
        one.wait_for("rules store back")
        one.wait_for("rules store is empty")
        assert limit_of(one) == 7
        assert db.run("put", tmp_path / "node" / "rules").returncode == DONE    # and so it is filled again
        one.wait_for("rules store begun anew")
        assert limit_of(one) == 7
        db.put(rules_of(limit=8))
        wait_limit(one, 8)


def test_a_first_start_without_redis_says_so_or_waits(server, db, tmp_path):
    server.kill()
    args = [WEIR, "serve", "--rules-store", server.url, "--rules", tmp_path / "rules", "--table", "none", "--grpc",
            "off", "--http", "off", "--resp", "off", "--admin", "off"]
    done = subprocess.run(args, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 3 and "none were kept" in done.stderr
    with node(tmp_path, server.url, flags=["--start-without-rules"]) as one:
        server.start()
        db.put(rules_of(limit=2))
        wait_limit(one, 2)


def test_redis_that_is_emptied_or_stopped_changes_nothing(db, server, tmp_path):
    db.put(rules_of(limit=7))
    with node(tmp_path, server.url) as one:
        server.ask("FLUSHALL")
        one.wait_for("rules store is empty")
        assert limit_of(one) == 7
        server.freeze()
        one.wait_for("rules store away")
        assert limit_of(one) == 7
        server.thaw()
        one.wait_for("rules store back")
        db.put(rules_of(limit=8))
        wait_limit(one, 8)


def test_a_node_stops_at_once_though_redis_does_not_answer(db, server, tmp_path):
    db.put(rules_of())
    with node(tmp_path, server.url) as one:
        server.freeze()
        one.wait_for("rules store away")
        one.stop()
    server.thaw()


def test_sentinel_fails_over_and_nodes_follow(tmp_path):
    with Sentinels(tmp_path / "sentinels", replicas=1) as sentinels:
        db = Database(tmp_path, sentinels.url)
        assert db.put(rules_of(limit=3)).returncode == DONE
        with node(tmp_path, sentinels.url) as one:
            first = sentinels.current()
            wait_until(lambda: all(each.ask("HGET", HEAD, "version") == b"1" for each in sentinels.servers), "replicas")
            first.kill()
            sentinels.wait_for_successor(first)
            wait_until(lambda: db.put(rules_of(limit=4)).returncode == DONE, "a put after the failover")
            wait_limit(one, 4)


# ---- what is not good ----

def test_bad_rules_are_refused_at_put_and_by_nodes(db, server, tmp_path):
    bad = rules_of().replace("hour", "hours")
    db.put(rules_of(limit=7))
    with node(tmp_path, server.url) as one:
        assert db.put(bad).returncode == NO
        for number, (text, sha) in enumerate([(bad, None), (rules_of(limit=9), "0" * 64), (rules_of("web"), None),
                                              (b"\xff\x00\x01", None), (b"x" * (64 << 20), None)], 1):
            force(server, "api", text, sha)
            one.wait_for("rules in the store refused", number)
            assert limit_of(one) == 7
        metrics = ask(one.port("admin"), "/metrics").body.decode()
        assert "weir_rules_store_refused_total 5" in metrics and "weir_rules_store_version 1" in metrics
        assert db.put(rules_of(limit=8)).returncode == DONE
        wait_limit(one, 8)
        assert "weir_rules_store_up 1" in ask(one.port("admin"), "/metrics").body.decode()


@pytest.mark.parametrize("command", [["DEL", HEAD + ":domain:api"], ["SET", HEAD + ":domains", "x"],
                                     ["HSET", HEAD + ":domains", "d" * 300, "1"], ["SET", HEAD, "x"]])
def test_a_database_that_is_damaged_changes_nothing(db, server, tmp_path, command):
    db.put(rules_of(limit=7))
    with node(tmp_path, server.url) as one:
        if command[0] == "SET":
            server.ask("DEL", command[1])
        server.ask(*command)
        if command[1] != HEAD:  # told last: who looks in between would find all well, and have looked
            server.ask("HINCRBY", HEAD, "version", "1")
        wait_until(lambda: any(event["event"] in ("rules in the store refused", "rules store away")
                               for event in one.events()), "a word about it")
        assert limit_of(one) == 7


def test_a_path_with_other_rules_is_left_alone(db, server, tmp_path):
    db.put(rules_of())
    for make in (lambda path: path.write_text("mine"), lambda path: path.mkdir(), lambda path: path.symlink_to("/tmp")):
        path = tmp_path / f"rules{time.monotonic_ns()}"
        make(path)
        done = subprocess.run([WEIR, "serve", "--rules-store", server.url, "--rules", path, "--table", "none"],
                              capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode != 0 and "not kept by weir" in done.stderr


# ---- the node dies ----

def test_a_node_that_is_killed_while_it_writes_leaves_a_whole_set(db, server, tmp_path):
    """Many domains, and kills at moments that differ: whatever is left loads, and is one version."""
    files = tmp_path / "files"
    files.mkdir()

    def store(limit):
        for i in range(40):
            (files / f"d{i}.yaml").write_text(rules_of(f"d{i}", limit))
        assert db.run("put", files).returncode == DONE

    store(1)
    with node(tmp_path, server.url):
        pass
    path = tmp_path / "node" / "rules"
    for round_ in range(8):
        one = node(tmp_path, server.url)
        store(2 + round_)
        time.sleep(0.03 * round_)                            # the moment is what differs
        one.signal(signal.SIGKILL)
        one.wait_gone()
        limits = {text.read_text()[-10:] for text in path.glob("*.yaml")}
        assert len(list(path.glob("*.yaml"))) == 40 and len(limits) == 1
        assert weir("check", path).returncode == DONE
    with node(tmp_path, server.url) as one:
        wait_limit(one, 9, "d0")
    assert len(list((tmp_path / "node").glob(".rules.[0-9]*"))) <= 2


@pytest.mark.parametrize("damage", [
    lambda path: path.write_bytes(b"\0{{{"), lambda path: path.write_text(""), lambda path: path.unlink(),
    lambda path: path.write_text(path.read_text().replace("7", "700")),
    lambda path: (path.parent / "more.yaml").write_text("{"), lambda path: path.write_text(path.read_text()[:40]),
    lambda path: shutil.rmtree(path.parent)])
def test_kept_rules_that_were_damaged_or_edited_are_set_right_at_the_next_start(db, server, tmp_path, damage):
    db.put(rules_of(limit=7))
    with node(tmp_path, server.url):
        pass
    kept, = (tmp_path / "node" / "rules").resolve().glob("*.yaml")
    damage(kept)
    with node(tmp_path, server.url) as one:
        assert limit_of(one) == 7
        assert len(list((tmp_path / "node" / "rules").glob("*.yaml"))) == 1
    with node(tmp_path, server.url) as one:                     # what is whole is not written anew
        assert limit_of(one) == 7
        assert not any(event["event"].startswith("rules kept") for event in one.events())


def test_a_set_that_cannot_be_kept_is_told_and_the_old_rules_stay(db, server, tmp_path):
    db.put(rules_of(limit=7))
    with node(tmp_path, server.url) as one:
        folder = tmp_path / "node"
        (folder / "rules").rename(folder / "aside")
        (folder / "rules" / "x").mkdir(parents=True)            # nothing can be renamed over that
        db.put(rules_of(limit=8))
        one.wait_for("rules cannot be kept")
        assert not list(folder.glob(".rules.2-*"))              # it leaves nothing behind
        (folder / "rules" / "x").rmdir()
        (folder / "rules").rmdir()
        (folder / "aside").rename(folder / "rules")
        wait_limit(one, 8)


# ---- settings ----

def test_the_rules_store_may_be_the_store(server, db, tmp_path):
    db.put(rules_of(limit=7))
    with node(tmp_path, "store", flags=["--store", server.url]) as one:
        assert limit_of(one) == 7


def test_the_default_place_is_the_state_directory(server, db, tmp_path):
    db.put(rules_of(limit=7))
    with Service(tmp_path, None, listeners=("admin",), env={"WEIR_RULES_STORE": server.url,
                                                            "STATE_DIRECTORY": str(tmp_path / "state")}) as one:
        assert limit_of(one) == 7
    assert (tmp_path / "state" / "rules").is_symlink()


def test_users_of_redis_need_no_more_than_the_page_says(server, tmp_path):
    for line in re.findall(r"^ACL SETUSER .*$", (ROOT / "docs/rules-database.md").read_text(), re.M):
        server.ask(*line.replace("SECRET", "secret").split())
    editor, reader = (f"redis://{name}:secret@127.0.0.1:{server.port}" for name in ("weir-editor", "weir-node"))
    db = Database(tmp_path, editor)
    for args in (("put", "-"), ("list",), ("get", "api"), ("history", "api"), ("rollback", "api", "1"),
                 ("delete", "api")):
        done = db.run(*args, stdin=rules_of(limit=7))
        assert done.returncode == DONE, done.stderr
    assert db.put(rules_of(limit=8)).returncode == DONE
    assert Database(tmp_path, reader).put(rules_of(limit=9)).returncode == WORLD        # may only read
    with node(tmp_path, reader) as one:
        assert limit_of(one) == 8
        assert db.put(rules_of(limit=9)).returncode == DONE
        wait_limit(one, 9)


def test_a_password_is_not_shown(tmp_path):
    shown = weir("serve", "--rules-store", "redis://:hunter2@127.0.0.1:1", "--print-config").stdout
    assert "rules_store: 'redis://(hidden)@127.0.0.1:1'" in shown and "hunter2" not in shown


def test_a_prefix_is_a_database_of_its_own(tmp_path):
    with redis_server(tmp_path) as (_, url):
        for name, limit in ("blue:", 1), ("green:", 2):
            assert Database(tmp_path, url, "--store-prefix", name).put(rules_of(limit=limit)).returncode == DONE
        with node(tmp_path, url, flags=["--store-prefix", "green:"]) as one:
            assert limit_of(one) == 2
