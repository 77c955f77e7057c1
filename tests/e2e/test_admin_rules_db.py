"""The rules database through the admin API: read, changed, contested; and what waits for a Redis that does not answer.

SPDX-License-Identifier: Apache-2.0
"""
import concurrent.futures
import json
import socket

import pytest
from http_rig import connect
from rules_db_rig import HEAD, Database, rules_of
from service import Service, wait_until
from test_admin import CHANGE, ask
from weir_cli import DONE

PATH = "/api/v1/rules/api"


@pytest.fixture
def db(store, tmp_path):
    store.ask("FLUSHALL")
    base = Database(tmp_path, store.url)
    assert base.put(rules_of(), "--who", "alice", "--message", "the first").returncode == DONE
    return base


@pytest.fixture
def weir(store, db, tmp_path):
    with node(tmp_path, store) as one:
        yield one


def node(tmp_path, store, *flags):
    return Service(tmp_path, None, listeners=("http", "admin"),
                   flags=["--rules-store", store.url, "--rules", tmp_path / "kept" / "rules", *flags])


def change(weir, path, method="PUT", body=None):
    return ask(weir, path, method, CHANGE, body)


def told(answer, status=200):
    assert answer.status == status, answer.text
    return json.loads(answer.text)


def test_rules_are_read_and_changed(weir, db):
    entry = told(ask(weir, PATH))
    assert (entry["domain"], entry["version"], entry["who"], entry["message"], entry["text"]) == (
        "api", 1, "alice", "the first", rules_of())
    answer = change(weir, PATH + "?message=four+now&who=bob", body=rules_of(limit=4))
    assert told(answer) == {"domain": "api", "version": 2, "replaces": 1, "changed": True}
    assert told(change(weir, PATH, body=rules_of(limit=4)))["changed"] is False
    assert db.run("get", "api").stdout == rules_of(limit=4)
    versions = told(ask(weir, PATH + "/history"))["versions"]
    assert [(one["version"], one["who"], one["message"]) for one in versions] == [
        (2, "bob (127.0.0.1)", "four now"), (1, "alice", "the first")]
    assert told(ask(weir, PATH + "?version=1"))["text"] == rules_of()
    wait_until(lambda: '"requests":4' in ask(weir, "/api/v1/rules").text, "the node to have them")
    assert told(change(weir, PATH + "/rollback?version=1", "POST"))["version"] == 3
    assert told(ask(weir, PATH))["text"] == rules_of()
    assert told(ask(weir, "/api/v1/rules_store"))["domains"][0]["version"] == 3


def test_a_domain_is_made_and_deleted(weir):
    path = "/api/v1/rules/a%2Fb"
    assert told(change(weir, path + "?if_version=0", body=rules_of("a/b")))["version"] == 2
    assert change(weir, path + "?if_version=0", body=rules_of("a/b", 9)).status == 409
    assert told(change(weir, path + "?version=1", "DELETE"))["replaces"] == 2
    assert ask(weir, path).status == 404 and change(weir, path, "DELETE").status == 404
    assert told(change(weir, path + "/rollback?version=2", "POST"))["version"] == 4


def test_who_is_late_is_told_who_was_faster(weir, db):
    db.put(rules_of(limit=4), "--who", "bob", "--message", "mine")
    answer = told(change(weir, PATH + "?if_version=1", body=rules_of(limit=5)), 409)
    assert [answer["current"][what] for what in ("version", "who", "message")] == [2, "bob", "mine"]
    assert told(ask(weir, PATH))["text"] == rules_of(limit=4)
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        done = list(pool.map(lambda i: change(weir, PATH + "?if_version=2", body=rules_of(limit=10 + i)).status,
                             range(5)))
    assert sorted(done) == [200, 409, 409, 409, 409]


def test_rules_that_are_not_valid_get_all_errors(weir, db):
    bad = rules_of().replace("hour", "hours").replace("requests_per_unit: 3", "requests_per_unit: x")
    messages = told(change(weir, PATH, body=bad), 422)["messages"]
    assert len(messages) == 2 and all(one.startswith("body:4:") for one in messages)
    assert "not the rules of this domain" in told(change(weir, PATH, body=rules_of("web")), 422)["messages"][0]
    assert told(change(weir, PATH, body=b"\xff\xfe"), 422) and told(change(weir, PATH, body=""), 422)
    assert db.version() == 1
    assert change(weir, PATH, body="#" * (1 << 20) + "#").status == 413


@pytest.mark.parametrize("method, path, status", [
    ("GET", "/api/v1/rules/nothing", 404), ("GET", "/api/v1/rules/nothing/history", 404),
    ("GET", "/api/v1/rules/", 404),
    ("GET", PATH + "?version=x", 400), ("PUT", PATH + "?if_version=-1", 400), ("POST", PATH + "/rollback", 400),
    ("POST", PATH + "/rollback?version=77", 404), ("PUT", PATH + "/history", 405), ("POST", PATH, 405),
    ("PUT", "/api/v1/rules_store", 405), ("GET", PATH + "?version=9", 404)])
def test_questions_that_make_no_sense(weir, method, path, status):
    assert change(weir, path, method, rules_of() if method == "PUT" else None).status == status


def test_the_audit_says_who_changed_what(weir):
    change(weir, PATH + "?who=carol", body=rules_of(limit=4))
    change(weir, PATH + "/rollback?version=1", "POST")
    change(weir, PATH, "DELETE")
    changes = [one for one in told(ask(weir, "/api/v1/audit"))["changes"] if one["what"] != "rules"]
    assert [(one["what"], one["target"], one["peer"], one["from"], one["to"][:9]) for one in changes] == [
        ("rules delete", "api", "127.0.0.1", "version 3", "version 4"),
        ("rules rollback", "api", "127.0.0.1", "version 2", "version 3"),
        ("rules put", "api", "127.0.0.1", "version 1", "version 2")]
    assert changes[2]["to"].endswith("by carol (127.0.0.1)")


def test_who_may_not_change_may_not(db, store, tmp_path):
    with node(tmp_path, store, "--admin-token", "secret") as weir:
        assert ask(weir, PATH).status == 401
        assert ask(weir, PATH, "PUT", CHANGE, rules_of(limit=4)).status == 401
        good = {"Authorization": "Bearer secret"}
        assert ask(weir, PATH, "GET", good).status == 200
        assert ask(weir, PATH, "PUT", good, rules_of(limit=4)).status == 403        # without X-Weir-Request
        assert ask(weir, PATH, "PUT", {**good, **CHANGE}, rules_of(limit=4)).status == 200


def test_without_a_database_it_says_so(tmp_path):
    with Service(tmp_path, rules_of(), listeners=("admin",)) as weir:
        answer = ask(weir, PATH)
        assert answer.status == 404 and "rules_store" in answer.text


def test_a_redis_that_does_not_answer_delays_nobody_else(weir, store):
    store.freeze()
    try:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            late = pool.submit(change, weir, PATH, "PUT", rules_of(limit=4))
            for _ in range(50):
                assert ask(weir, "/api/v1/rules").status == 200         # the same threads, at work
            answer = late.result()
            assert answer.status == 503 and "rules_store" in answer.text
    finally:
        store.thaw()
    wait_until(lambda: ask(weir, PATH).status == 200, "the store to be back")


def test_clients_that_leave_and_too_many_that_wait(weir, store):
    request = f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    store.freeze()
    try:
        waiting = [connect(weir.port("admin")) for _ in range(80)]
        for one in waiting:
            one.sendall(request)
        for one in waiting[:40]:
            one.close()
        waiting[40].shutdown(socket.SHUT_WR)
        statuses = [one.recv(100)[9:12] for one in waiting[41:]]
        assert set(statuses) == {b"503"}                     # some at once: 64 may wait; some when the first has waited
    finally:
        store.thaw()
    for one in waiting[40:]:
        one.close()
    wait_until(lambda: ask(weir, PATH).status == 200, "the store to be back")


def test_requests_behind_one_that_waits_are_answered_in_order(weir):
    with connect(weir.port("admin")) as one:
        head = "HTTP/1.1\r\nHost: localhost\r\n"
        one.sendall(f"GET {PATH} {head}\r\nGET /api/v1/rules_store {head}\r\n"
                    f"GET / {head}Connection: close\r\n\r\n".encode())
        data = b""
        while piece := one.recv(65536):
            data += piece
    assert data.count(b"HTTP/1.1 200") == 3
    assert data.index(b'"text"') < data.index(b'"domains"') < data.index(b"GET /metrics")


def test_a_service_that_stops_answers_who_waits(db, store, tmp_path):
    with node(tmp_path, store) as weir:
        store.freeze()
        with connect(weir.port("admin")) as one:
            one.sendall(f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            weir.wait_for("rules store away")
            weir.stop()
            assert one.recv(100)[9:12] == b"503"
    store.thaw()
    assert store.ask("HGET", HEAD, "version") == b"1"
