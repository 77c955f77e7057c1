"""Peers that mean no good, or know no better: bounded memory, and others are served as ever.

SPDX-License-Identifier: Apache-2.0
"""
import itertools
import os
import random
import struct
import subprocess
import time

import pytest

from h2_raw import (CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, PRIORITY,
                    PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, Peer, call, field, frame, head, message)
from rls_wire import OK, OVER_LIMIT, SHOULD_RATE_LIMIT, Client, request
from service import WEIR, Service, wait_until

RULES = """\
domain: t
descriptors:
  - {key: one, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: many, rate_limit: {unit: day, requests_per_unit: 1000000}}
"""
MANY = request("t", [("many", "x")])
MIB = 1 << 20
ENHANCE_YOUR_CALM = 11
IS_SANITIZED = "asan" in WEIR or "tsan" in WEIR       # whose memory is not the program's own
SCALE = float(os.environ.get("WEIR_TEST_SCALE", "1"))


@pytest.fixture(scope="module")
def weir(tmp_path_factory):
    with Service(tmp_path_factory.mktemp("weir"), RULES, flags=["--log-rate", "100000"]) as one:
        yield one


@pytest.fixture
def bystander(weir):
    """A good client, who must be served after whatever a test does, and finds memory as it was."""
    with Client(weir.address("grpc")) as client:
        assert client.ask("t", [("many", "x")]).overall == OK
        before = weir.rss()
        yield client
        began = time.monotonic()
        assert client.ask("t", [("many", "x")]).overall == OK
        assert time.monotonic() - began < 2
        if not IS_SANITIZED:
            assert weir.rss() - before < 24 * MIB


def raw(weir, **more):
    return Peer(weir.port("grpc"), **more)


# ---- deadlines, which grpcio keeps to itself ----

def test_an_expired_deadline_counts_nothing(weir, bystander):
    data = request("t", [("one", "deadline")])
    with raw(weir) as peer:
        peer.send(call(1, data, ("grpc-timeout", "0n")))
        (kind, _), = peer.answer(1)
        assert kind == HEADERS                              # a head alone: no message
    assert bystander.ask_bytes(data).overall == OK


def test_a_deadline_that_passes_while_the_body_comes_counts_nothing(weir, bystander):
    data = request("t", [("one", "slow body")])
    with raw(weir) as peer:
        peer.send(frame(HEADERS, END_HEADERS, 1, head(SHOULD_RATE_LIMIT, ("grpc-timeout", "20m"))))
        time.sleep(0.1)
        peer.send(frame(DATA, END_STREAM, 1, message(data)))
        assert len(peer.answer(1)) == 1
    assert bystander.ask_bytes(data).overall == OK


def test_a_request_that_is_reset_in_the_same_breath_counts_nothing(weir, bystander):
    data = request("t", [("one", "reset")])
    with raw(weir) as peer:
        peer.send(call(1, data) + frame(RST_STREAM, 0, 1, struct.pack(">I", 8)) + call(3, MANY))
        assert len(peer.answer(3)) == 3
    assert bystander.ask_bytes(data).overall == OK


# ---- bytes that are not what they should be ----

@pytest.mark.parametrize("data", [
    b"GET / HTTP/1.1\r\nHost: weir\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\0" * 24, PREFACE[:-1] + b"X",
    b"*1\r\n$4\r\nPING\r\n",
], ids=itertools.count())
def test_a_wrong_preface_ends_the_connection(weir, bystander, data):
    with raw(weir, greets=False) as peer:
        peer.send(data)
        peer.goaway()       # returns when we are closed


@pytest.mark.parametrize("data", [
    frame(DATA, 0, 0, b"x"), frame(HEADERS, END_HEADERS, 0, head()), frame(HEADERS, END_HEADERS, 2, head()),
    frame(SETTINGS, 0, 0, b"12345"), frame(SETTINGS, 0, 1), frame(PING, 0, 0, b"short"),
    frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\0"), frame(PUSH_PROMISE, 0, 1, b"\0\0\0\2"), frame(CONTINUATION, 0, 1, b""),
    frame(RST_STREAM, 0, 1, b"\0\0\0\0"), frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"),
    frame(HEADERS, 0, 1, head()) + frame(PING, 0, 0, b"12345678"), b"\xff\xff\xff" + b"\0" * 6,
    frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff") * 2,
    frame(HEADERS, END_HEADERS | END_STREAM, 1, head()) + frame(DATA, 0, 1, b"x"),
], ids=itertools.count())
def test_malformed_frames_end_the_connection_alone(weir, bystander, data):
    with raw(weir) as peer:
        peer.send(data)
        assert peer.goaway() not in (None, 0)
    wait_until(lambda: any(said(weir, why) for why in ("_ERROR", "STREAM_CLOSED")), "a line in the log")


@pytest.mark.parametrize("fields", [
    [(":method", "POST")], [(":method", "POST"), (":scheme", "http"), (":path", "")],
    [("Upper", "case"), (":method", "POST")], [(":method", "POST"), (":method", "POST")],
    [(":method", "POST"), (":scheme", "http"), (":path", "/"), ("connection", "close")],
    [(":method", "POST"), (":scheme", "http"), (":path", "/"), ("a", "b\r\nc: d")],
])
def test_malformed_headers_reset_their_stream(weir, bystander, fields):
    with raw(weir) as peer:
        peer.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, b"".join(field(*one) for one in fields)) + call(3, MANY))
        assert [kind for kind, _ in peer.answer(1)] in ([RST_STREAM], [HEADERS])
        assert [kind for kind, _ in peer.answer(3)] == [HEADERS, DATA, HEADERS]


def test_frames_of_chance_crash_nothing(weir, bystander):
    source = random.Random(os.environ.get("WEIR_SEED", "1"))
    for _ in range(int(300 * SCALE)):
        with raw(weir) as peer:
            for _ in range(source.randrange(1, 30)):
                if source.random() < 0.3:
                    peer.send(call(source.randrange(1, 99, 2), source.randbytes(source.randrange(60))))
                else:
                    peer.send(frame(source.randrange(11), source.randrange(256), source.randrange(20),
                                    source.randbytes(source.choice([0, 4, 5, 6, 8, 30, 300]))))
    assert weir.is_running()


# ---- sizes ----

def test_a_gibibyte_is_refused_when_it_is_announced(weir, bystander):
    with raw(weir) as peer:
        peer.send(frame(HEADERS, END_HEADERS, 1, head()) + frame(DATA, 0, 1, b"\0" + struct.pack(">I", 1 << 30)))
        kinds = [kind for kind, _ in peer.answer(1)]
        assert kinds[0] == HEADERS                          # before anything more has come
        peer.send(call(3, MANY))
        assert len(peer.answer(3)) == 3                     # the connection goes on


def test_bodies_without_end_on_many_streams_are_bounded(weir, bystander):
    block = b"\0" + struct.pack(">I", MIB) + b"x" * 16000
    with raw(weir) as peer:
        for stream in range(1, 800, 2):
            peer.send(frame(HEADERS, END_HEADERS, stream, head()) + frame(DATA, 0, stream, block))
        for _ in range(3):
            for stream in range(1, 800, 2):
                peer.send(frame(DATA, 0, stream, b"x" * 16000))
        assert bystander.ask("t", [("many", "x")]).overall == OK
        if not IS_SANITIZED:
            assert weir.rss() < 100 * MIB


def test_headers_over_the_maximum_are_refused(weir, bystander):
    with raw(weir) as peer:
        peer.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, head(SHOULD_RATE_LIMIT, ("x", "y" * 15900)))
                  + frame(HEADERS, 0, 3, head(SHOULD_RATE_LIMIT, ("x", "y" * 15000)))
                  + frame(CONTINUATION, END_HEADERS, 3, field("x", "y" * 3000))
                  + frame(DATA, END_STREAM, 3, message(MANY))
                  + call(5, MANY))
        assert len(peer.answer(5)) == 3


def test_a_header_bomb_ends_the_connection(weir, bystander):
    insert = b"\x40\x01a" + b"\x7f\x81\x1e" + b"v" * 4000       # into the table, then named 16,000 times
    with raw(weir) as peer:
        peer.send(frame(HEADERS, 0, 1, head() + insert + b"\xbe" * 8000)
                  + frame(CONTINUATION, END_HEADERS, 1, b"\xbe" * 16000))
        assert peer.goaway() is not None


# ---- floods ----

def flood(weir, data, times):
    """Sends until the other side has had enough; it is an error if it has not."""
    with raw(weir) as peer:
        for _ in range(times):
            if not peer.send(data):
                return
        peer.goaway()       # TimeoutError where we are still connected


def said(weir, why):
    """Whether the log has a line on a connection that was closed for this reason."""
    return any(one.get("event") == "connection closed" and why in one["why"] for one in weir.events())


FLOODS = {
    "ping": frame(PING, 0, 0, b"12345678"), "settings": frame(SETTINGS), "ack": frame(SETTINGS, 1),
    "priority": frame(PRIORITY, 0, 1, b"\0\0\0\0\x10"), "window": frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1"),
}


@pytest.mark.parametrize("name", FLOODS)
def test_floods_end_the_connection(weir, bystander, name):
    flood(weir, FLOODS[name] * 100, 500)
    wait_until(lambda: said(weir, "too many frames that are part of no request") or said(weir, "Flooding"),
               "a line in the log")


def test_empty_data_without_end_ends_the_connection(weir, bystander):
    with raw(weir) as peer:
        peer.send(frame(HEADERS, END_HEADERS, 1, head()))
        for _ in range(500):
            if not peer.send(frame(DATA, 0, 1) * 100):
                break
        peer.goaway()       # TimeoutError where we are still connected


def test_settings_that_change_windows_all_the_time_end_the_connection(weir, bystander):
    """Each moves the windows of all open streams."""
    games = b"".join(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, size)) for size in (0, 65535, 1, 2 ** 31 - 1, 7))
    with raw(weir) as peer:
        for stream in range(1, 2 * 900, 2):
            peer.send(frame(HEADERS, END_HEADERS, stream, head()))
        for _ in range(500):
            if not peer.send(games * 20):
                break
        assert peer.goaway() in (None, ENHANCE_YOUR_CALM)


def test_headers_without_names_are_bounded(weir, bystander):
    """A field of nothing costs a byte or three on the wire, and 32 in our count."""
    nothing = b"\0\0\0"
    with raw(weir) as peer:
        peer.send(frame(HEADERS, 0, 1, head()))
        for _ in range(200):
            if not peer.send(frame(CONTINUATION, 0, 1, nothing * 5000)):
                break
        peer.goaway()       # TimeoutError where we are still connected


def test_streams_that_we_are_made_to_reset_count_as_reset(weir, bystander):
    """A malformed header is an error of the stream: ours to reset, and it costs the peer nothing."""
    already = len([one for one in weir.events() if one.get("why") == "too many streams reset"])
    with raw(weir) as peer:
        for stream in range(1, 2 * 4000, 2):
            if not peer.send(frame(HEADERS, END_HEADERS, stream, head(SHOULD_RATE_LIMIT, ("Upper", "case")))):
                break
        assert peer.goaway() in (None, ENHANCE_YOUR_CALM)
    wait_until(lambda: len([one for one in weir.events() if one.get("why") == "too many streams reset"]) > already,
               "a line")


def test_answers_drained_byte_by_byte_are_whole_and_harm_nobody(weir, bystander):
    with raw(weir, greets=False) as peer:
        peer.send(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1)))     # INITIAL_WINDOW_SIZE 1
        for stream in range(1, 2 * 200, 2):
            peer.send(call(stream, MANY))
        for _ in range(100):
            peer.send(frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 1)))
        assert b"".join(payload for kind, payload in peer.answer(1) if kind == DATA)[:1] == b"\0"


def test_rapid_reset_ends_the_connection(weir, bystander):
    with raw(weir) as peer:
        for stream in range(1, 8001, 2):
            if not peer.send(call(stream, MANY) + frame(RST_STREAM, 0, stream, struct.pack(">I", 8))):
                break
        peer.goaway()       # TimeoutError where we are still connected
    wait_until(lambda: said(weir, "too many streams reset"), "a line in the log")


def test_continuation_without_end_ends_the_connection(weir, bystander):
    with raw(weir) as peer:
        peer.send(frame(HEADERS, 0, 1, head()))
        for _ in range(20000):
            if not peer.send(frame(CONTINUATION, 0, 1, field("a", "b" * 50))):
                break
        peer.goaway()


def test_more_streams_than_allowed_are_refused_one_by_one(weir, bystander):
    with raw(weir) as peer:
        for stream in range(1, 2 * 1200, 2):
            peer.send(frame(HEADERS, END_HEADERS, stream, head()))
        refused = 0
        for kind, _, stream, _ in peer.frames():
            refused += kind == RST_STREAM
            if refused == 200:
                break
        assert stream > 2000


def test_a_peer_that_reads_nothing_is_bounded(weir, bystander):
    with raw(weir) as peer:
        peer.socket.settimeout(2)
        try:
            for stream in range(1, 2 * 20000, 2):
                if not peer.send(call(stream, MANY)):
                    break
        except TimeoutError:
            pass                                            # we are not read any more
        assert bystander.ask("t", [("many", "x")]).overall == OK


def test_a_window_of_nothing_holds_answers_back_and_no_more(weir, bystander):
    with raw(weir, greets=False) as peer:
        peer.send(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)))     # INITIAL_WINDOW_SIZE 0
        for stream in range(1, 2 * 500, 2):
            peer.send(call(stream, MANY))
        time.sleep(0.2)
        peer.send(frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 65535)))
        assert [kind for kind, _ in peer.answer(1)] == [HEADERS, DATA, HEADERS]


def test_connections_cut_anywhere_leave_nothing(weir, bystander):
    data = PREFACE + frame(SETTINGS) + call(1, MANY) + call(3, MANY)
    for cut in range(0, len(data), 7):
        with raw(weir, greets=False) as peer:
            peer.send(data[:cut])
    descriptors = f"/proc/{weir.process.pid}/fd"
    wait_until(lambda: len(os.listdir(descriptors)) < 60, "descriptors to be closed")


def test_bytes_one_by_one_are_as_good_as_all(weir, bystander):
    with raw(weir, greets=False) as peer:
        for byte in PREFACE + frame(SETTINGS) + call(1, MANY):
            peer.send(bytes([byte]))
        assert [kind for kind, _ in peer.answer(1)] == [HEADERS, DATA, HEADERS]


# ---- load ----

def test_h2load_gets_an_answer_to_everything(weir, bystander, tmp_path):
    (tmp_path / "body").write_bytes(message(MANY))
    count = str(int(20000 * SCALE))
    done = subprocess.run(["h2load", "-n", count, "-c", "10", "-m", "50", "-d", str(tmp_path / "body"), "-H",
                           "content-type: application/grpc", f"http://{weir.address('grpc')}{SHOULD_RATE_LIMIT}"],
                          capture_output=True, text=True, timeout=120, check=True)
    assert f"{count} succeeded, 0 failed, 0 errored" in done.stdout, done.stdout


def test_the_last_one_counts(weir, bystander):
    """After all of this, a limit is still a limit."""
    assert bystander.ask("t", [("one", "last")]).overall == OK
    assert bystander.ask("t", [("one", "last")]).overall == OVER_LIMIT
