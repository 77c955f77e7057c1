"""Peers that cost without asking, on every listener: slow ones, idle ones, greedy ones; and what others notice of them.

What each protocol refuses byte by byte is elsewhere (test_http_hostile.py, test_rls_hostile.py, test_resp.py).
SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import os
import resource
import struct
import threading
import time
import warnings

import grpc
import pytest

from h2_raw import (DATA, END_HEADERS, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, Peer, call, frame, head,
                    message)
from http_rig import PATIENCE_S, ask, connect, read_all
from rls_wire import OK, SERVING, Client, request
from service import WEIR, Service, wait_until

RULES = """\
domain: api
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 100000000}}
"""
ALL = ("grpc", "http", "resp", "admin")
MIB = 1 << 20
IS_SANITIZED = "asan" in WEIR or "tsan" in WEIR         # whose memory is not the program's own
MESSAGE = request("api", [("user", "x")])


def serve(tmp_path, *flags, **more):
    return Service(tmp_path, RULES, listeners=ALL, flags=["--log-rate", "100000", *flags], **more)


def open_files():
    """Raises what this process may open to what it is allowed at most; how many that is."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


# ---- slow ----

SLOW = {        # what never becomes whole, after a request that was
    "http": (b"GET /healthcheck HTTP/1.1\r\nHost: h\r\n\r\n", b"GET /healthcheck HTTP/1.1\r\nX: " + b"y" * 1000),
    "admin": (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"POST /api/v1/explain HTTP/1.1\r\nX: " + b"y" * 1000),
    "resp": (b"PING\r\n", b"*2\r\n$4\r\nECHO\r\n$1000\r\n" + b"y" * 1000),
    "grpc": (PREFACE + frame(SETTINGS) + call(1, MESSAGE), PREFACE + frame(SETTINGS)),
}


def dribble(connection, data):
    """A byte now and then until the other side has had enough; what it said."""
    connection.settimeout(0.02)
    heard, end = b"", time.monotonic() + PATIENCE_S
    for byte in data:
        assert time.monotonic() < end, "it listens to this all day"
        try:
            connection.sendall(bytes([byte]))
            if not (got := connection.recv(65536)):
                return heard
            heard += got
        except TimeoutError:
            pass
        except (BrokenPipeError, ConnectionResetError):
            return heard
    raise AssertionError("it listened to all of this")


@pytest.mark.parametrize("name", ALL)
def test_a_first_request_that_dribbles_ends(tmp_path, name):
    first = b"PRI * HTTP/2" if name == "grpc" else SLOW[name][1]
    with serve(tmp_path, "--first-timeout", "200ms") as weir:
        with connect(weir.port(name)) as slow:
            dribble(slow, first + b"y" * 1000)
        weir.wait_for("no request in time")


@pytest.mark.parametrize("name", ("http", "admin", "resp"))
def test_a_later_request_that_dribbles_ends_too(tmp_path, name):
    good, bad = SLOW[name]
    with serve(tmp_path, "--request-timeout", "300ms") as weir:
        with connect(weir.port(name)) as slow:
            slow.sendall(good)
            assert slow.recv(65536)
            heard = dribble(slow, bad)
        assert name == "resp" or heard.startswith(b"HTTP/1.1 408 "), heard
        weir.wait_for("request not whole in time")


def test_a_call_that_dribbles_is_refused_and_its_connection_goes_on(tmp_path):
    with serve(tmp_path, "--request-timeout", "300ms") as weir, Peer(weir.port("grpc")) as peer:
        peer.send(frame(HEADERS, END_HEADERS, 1, head()))
        for byte in message(MESSAGE)[:-1] * 3:
            peer.send(frame(DATA, 0, 1, bytes([byte])))
            time.sleep(0.02)
            if any(one["event"] == "request not whole in time" for one in weir.events()):
                break
        peer.send(call(3, MESSAGE))
        assert len(peer.answer(3)) == 3
        weir.wait_for("request not whole in time")


# ---- idle ----

def test_who_watches_health_stays_while_it_answers(tmp_path):
    """Nothing is said for many times the idle time; a client that answers pings still hears of the end."""
    with serve(tmp_path, "--idle-timeout", "100ms", "--grace", "1s") as weir:
        with Client(weir.address("grpc")) as client, Peer(weir.port("grpc")) as dead:
            dead.send(frame(HEADERS, END_HEADERS, 1, head("/grpc.health.v1.Health/Watch"))
                      + frame(DATA, 1, 1, message(b"")))
            watch = client.watch("ratelimit")
            assert next(watch) == SERVING
            time.sleep(1.5)
            weir.process.terminate()
            with contextlib.suppress(grpc.RpcError):
                assert next(watch) != SERVING
            assert PING in [kind for kind, flags, _, _ in dead.frames() if flags == 0]
        weir.wait_gone()


def test_an_idle_client_is_told_to_go_before_it_is_left(tmp_path):
    """GOAWAY, so that a call that is on its way is sent again by those who know how."""
    with serve(tmp_path, "--idle-timeout", "50ms") as weir, Client(weir.address("grpc")) as client:
        for _ in range(20):
            assert client.ask("api", [("user", "x")]).overall == OK
            time.sleep(0.06)


@pytest.mark.parametrize("name,each,wanted", [("http", 4096, 10000), ("resp", 4096, 10000), ("grpc", 24576, 2000)])
def test_ten_thousand_idle_connections_cost_little(tmp_path, name, each, wanted):
    count = min(wanted, open_files() - 200)
    if count < wanted:
        warnings.warn(f"only {count} connections of {wanted}: the limit of open files is that low")
    with serve(tmp_path, "--first-timeout", "5m") as weir:
        before = weir.rss()
        idle = [connect(weir.port(name)) for _ in range(count)]
        descriptors = f"/proc/{weir.process.pid}/fd"
        wait_until(lambda: len(os.listdir(descriptors)) >= count, "all of them")
        with Client(weir.address("grpc")) as client:
            assert client.ask("api", [("user", "x")]).overall == OK
        assert ask(weir.port("http"), "/healthcheck").status == 200
        if not IS_SANITIZED:
            assert (weir.rss() - before) / count < each
        for one in idle:
            one.close()
        wait_until(lambda: len(os.listdir(descriptors)) < 100, "their end")


# ---- greedy ----

def test_half_bodies_of_many_connections_share_one_budget(tmp_path):
    """Each stays below its own maximum; together they would hold 200 MiB."""
    with serve(tmp_path, "--request-memory", "8m", "--first-timeout", "2s", threads=1) as weir:
        before = weir.rss()
        half = b"POST /json HTTP/1.1\r\nHost: h\r\nContent-Length: 1048576\r\n\r\n" + b"x" * 1000000
        peers = [connect(weir.port("http")) for _ in range(200)]
        for one in peers:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                one.sendall(half)
        refused = 0
        for one in peers[20:]:
            refused += read_all(one).startswith(b"HTTP/1.1 503 ")
        assert refused >= 150
        if not IS_SANITIZED:
            assert weir.rss() - before < 48 * MIB
        with Client(weir.address("grpc")) as client:        # small requests need none of it
            assert client.ask("api", [("user", "x")]).overall == OK
        for one in peers:
            one.close()
        whole = b"{" + b" " * 500000 + b"}"                 # and it is given back

        def is_given_back():
            return ask(weir.port("http"), "/json", "POST", whole).status == 400

        wait_until(is_given_back, "the budget")


def test_half_messages_of_many_connections_share_it_too(tmp_path):
    block = b"\0" + struct.pack(">I", MIB) + b"x" * 16000
    with serve(tmp_path, "--request-memory", "4m", threads=1) as weir:
        before = weir.rss()
        peers = [Peer(weir.port("grpc")) for _ in range(20)]
        for one in peers:
            for stream in range(1, 100, 2):
                one.send(frame(HEADERS, END_HEADERS, stream, head()) + frame(DATA, 0, stream, block))
        assert peers[-1].answer(99)[0][0] == HEADERS        # a refusal: nothing of it was whole
        if not IS_SANITIZED:
            assert weir.rss() - before < 32 * MIB
        assert ask(weir.port("http"), "/healthcheck").status == 200
        for one in peers:
            one.close()
        with Client(weir.address("grpc")) as client:
            wait_until(lambda: client.refusal(b"\xff" * 500000)[0] == grpc.StatusCode.INTERNAL, "the budget")


@pytest.mark.parametrize("name,data", [
    ("resp", b"*2\r\n$4\r\nECHO\r\n$1073741824\r\n"),
    ("admin", b"POST /api/v1/explain HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1073741824\r\n\r\n"),
])
def test_a_gibibyte_is_refused_when_it_is_announced(tmp_path, name, data):
    with serve(tmp_path) as weir:
        with connect(weir.port(name)) as peer:
            peer.sendall(data)
            assert read_all(peer).startswith((b"-ERR Protocol error", b"HTTP/1.1 413 "))
        weir.wait_for("connection closed")


# ---- what others notice ----

def rapid_reset(weir):
    with Peer(weir.port("grpc")) as peer:
        for stream in range(1, 2000, 2):
            if not peer.send(call(stream, MESSAGE) + frame(RST_STREAM, 0, stream, struct.pack(">I", 8))):
                return


def frames(kind, payload):
    def attack(weir):
        with Peer(weir.port("grpc")) as peer:
            while peer.send(frame(kind, 0, 0, payload) * 100):
                pass
    return attack


def come_and_go(weir):
    for name in ALL:
        for _ in range(10):
            connect(weir.port(name)).close()


def nonsense(weir):
    for name in ALL:
        with connect(weir.port(name)) as peer, contextlib.suppress(ConnectionError):
            peer.sendall(b"\0" * 1000)
            read_all(peer)


def pipeline(weir):
    """Requests whose answers nobody reads, until they are not read either."""
    with connect(weir.port("http")) as peer, contextlib.suppress(ConnectionError, TimeoutError):
        peer.settimeout(0.2)
        while True:
            peer.sendall(b"GET /check HTTP/1.1\r\nHost: h\r\n\r\n" * 10000)


ATTACKS = {"nothing": lambda weir: time.sleep(0.01), "rapid reset": rapid_reset, "settings": frames(SETTINGS, b""),
           "pings": frames(PING, b"12345678"), "come and go": come_and_go, "nonsense": nonsense, "pipeline": pipeline}


def p99(waits):
    return sorted(waits)[int(len(waits) * 0.99)]


def test_others_are_served_meanwhile(tmp_path, capsys):
    """Their waits are printed (pytest -s), and held only to what no user would call an outage."""
    with serve(tmp_path) as weir, Client(weir.address("grpc")) as client:
        for name, attack in ATTACKS.items():
            is_over = threading.Event()

            def run(attack=attack, is_over=is_over):
                while not is_over.is_set():
                    attack(weir)

            attacker = threading.Thread(target=run)
            attacker.start()
            waits, end = [], time.monotonic() + 0.5
            while len(waits) < 200 or time.monotonic() < end:
                began = time.monotonic()
                assert client.ask("api", [("user", "x")]).overall == OK
                waits.append(time.monotonic() - began)
            is_over.set()
            attacker.join()
            with capsys.disabled():
                print(f"\n  while there is {name}: p99 {1000 * p99(waits):.1f} ms", end="")
            assert p99(waits) < 2
