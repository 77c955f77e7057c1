"""HTTP from those who mean no good: refused in words, bounded, and others do not notice.

SPDX-License-Identifier: Apache-2.0
"""
import random
import socket
import time

import pytest

from http_rig import PATIENCE_S, RULES, ask, connect, read_all, send_raw, serve

HOST = b"Host: h\r\n"
MANY = RULES.replace("requests_per_unit: 3", "requests_per_unit: 1000000")
MIB = 1 << 20


@pytest.fixture
def weir(tmp_path):
    with serve(tmp_path, MANY) as service:
        yield service
        assert ask(service.port("http")).status == 200


@pytest.mark.parametrize("data", [
    b"POST /check HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /check HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    b"POST /check HTTP/1.1\r\n" + HOST + b"Content-Length : 5\r\n\r\nhello",
    b"POST /check HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
    b"POST /check HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
    *(b"POST /check HTTP/1.1\r\n" + HOST + lines + b"\r\n\r\n0\r\n\r\n" for lines in (
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", b"Transfer-Encoding:\r\n chunked",
        b"Transfer-Encoding\t: chunked", b"Transfer-Encoding: chunked\r\nContent-Length: 0",
        b"Content-Length: 3\r\nX: y\nTransfer-Encoding: chunked", b"X: y\rTransfer-Encoding: chunked",
        b" Transfer-Encoding: chunked", b": chunked", b"Content-Length: +3", b"Content-Length: 3, 3",
        b"Content-Length: 0x3", b"Content-Length: -1", b"Content-Length:", b"Content-Length: 3 3",
        b"Content-Length: 99999999999999999999", b"Content-Length: 3\r\nContent-Length: 3")),
    *(b"POST /check HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks for chunks in (
        b"+5\r\nhello\r\n0\r\n\r\n", b"0x5\r\nhello\r\n0\r\n\r\n", b" 5\r\nhello\r\n0\r\n\r\n", b"5\r\nhello0\r\n\r\n",
        b"5\r\nhelloXX0\r\n\r\n", b"\r\n0\r\n\r\n", b"-1\r\n", b"5;a\nb\r\nhello\r\n0\r\n\r\n")),
    b"POST /check HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET  /check HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /check HTTP/1.1 \r\n" + HOST + b"\r\n",
    b"GET /check HTTP/1.1\r\n" + HOST + b"X: a\r\n folded\r\n\r\n",
    b"GET /check HTTP/1.1\nHost: h\n\n",
    b"GET /check HTTP/1.1\r\n\r\n",
    b"GET /check HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
    b"GET /che\x00ck HTTP/1.1\r\n" + HOST + b"\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"nonsense\r\n\r\n",
])
def test_one_answer_and_the_end(weir, data):
    """What follows a bad request is never read as another."""
    answer = send_raw(weir.port("http"), data + b"GET /healthcheck HTTP/1.1\r\n" + HOST + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1") == 1, answer
    assert b"Connection: close" in answer
    weir.wait_for("connection closed")


@pytest.mark.parametrize("data,status", [
    (b"GET /check HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 20000 + b"\r\n\r\n", 431),
    (b"GET /check HTTP/1.1\r\n" + HOST + b"X: y\r\n" * 100 + b"\r\n", 431),
    (b"GET /check?" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
    (b"POST /json HTTP/1.1\r\n" + HOST + b"Content-Length: 1073741824\r\n\r\n", 413),
    (b"POST /json HTTP/1.1\r\n" + HOST + b"Content-Length: 1048577\r\n\r\n", 413),
    (b"POST /json HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip\r\n\r\n", 501),
    *((b"POST /json HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: " + coding + b"\r\n\r\n0\r\n\r\n", 501) for coding in (
        b"xchunked", b"chunked, identity", b"identity, chunked", b"chunked;x", b'"chunked"', b"chunked,")),
    (b"GET /check HTTP/1.7\r\n" + HOST + b"\r\n", 505),
])
def test_what_is_too_much_is_refused(weir, data, status):
    assert send_raw(weir.port("http"), data).startswith(b"HTTP/1.1 %d " % status)


def pour(port, head, piece):
    """Sends head, then piece after piece until the server has closed: its answer comes first, and
    what follows goes nowhere for the second that it waits for us to have read it."""
    sent, end = 0, time.monotonic() + PATIENCE_S
    with connect(port) as connection:
        try:
            connection.sendall(head)
            while time.monotonic() < end:
                connection.sendall(piece)
                sent += len(piece)
                if sent > 4 * MIB:
                    time.sleep(0.01)
        except (BrokenPipeError, ConnectionResetError):
            return True
    return False


def test_endless_bodies_come_to_an_end_and_cost_no_memory(weir):
    port, before = weir.port("http"), weir.rss()
    head = b"POST /json HTTP/1.1\r\n" + HOST
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
    assert pour(port, head + b"Content-Length: 1073741824\r\n\r\n", b"x" * 65536)
    assert pour(port, chunked, b"10000\r\n" + b"x" * 65536 + b"\r\n")
    assert pour(port, chunked, b"1\r\nx\r\n" * 10000)
    assert pour(port, chunked + b"1;", b"x" * 65536)
    assert pour(port, b"GET / HTTP/1.1\r\n", b"X: y\r\n" * 10000)
    assert pour(port, b"", b"\r\n" * 30000)
    assert ask(port).status == 200
    assert weir.rss() - before < 16 * MIB


def test_a_flood_of_pipelined_requests_is_bounded(weir):
    """Whoever does not read answers is not read from any more."""
    before = weir.rss()
    sent = 0
    with connect(weir.port("http")) as connection:
        connection.settimeout(1)
        try:
            while sent < 256 * MIB:
                sent += connection.send(b"GET /check HTTP/1.1\r\nHost: h\r\n\r\n" * 2000)
        except (TimeoutError, socket.timeout, BrokenPipeError, ConnectionResetError):
            pass
        assert sent < 256 * MIB
        assert ask(weir.port("http")).status == 200
        assert weir.rss() - before < 32 * MIB


def test_slow_heads_end_and_harm_nobody(tmp_path):
    with serve(tmp_path, MANY, "--first-timeout", "1s", "--idle-timeout", "2s") as weir:
        port = weir.port("http")
        slow = [connect(port) for _ in range(200)]
        for one in slow:
            one.sendall(b"GET /check HTTP/1.1\r\nHost")
        waits = []
        for _ in range(200):
            began = time.monotonic()
            assert ask(port).status == 200
            waits.append(time.monotonic() - began)
        assert sorted(waits)[197] < 0.25
        for one in slow:
            assert read_all(one) == b""
            one.close()
        weir.wait_for("no request in time")
        assert ask(port).status == 200


def test_a_slow_second_request_ends_too(tmp_path):
    with serve(tmp_path, MANY, "--idle-timeout", "1s") as weir:
        with connect(weir.port("http")) as connection:
            connection.sendall(b"GET /healthcheck HTTP/1.1\r\n" + HOST + b"\r\nGET /healthcheck HTTP/1.1\r\nX")
            assert read_all(connection).count(b"HTTP/1.1 200") == 1


def test_garbage_is_refused_or_answered_but_never_fatal(weir):
    source = random.Random(7)
    port = weir.port("http")
    good = b"POST /json?x=1 HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n{}"
    for _ in range(300):
        data = bytearray(good)
        for _ in range(source.randint(1, 8)):
            at = source.randrange(len(data))
            if source.random() < 0.5:
                data[at] = source.randrange(256)
            else:
                del data[at]
        with connect(port) as connection:
            connection.sendall(bytes(data))
            connection.shutdown(socket.SHUT_WR)
            answer = read_all(connection)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 "), answer


def test_a_client_that_leaves_midway_is_forgotten(weir):
    port = weir.port("http")
    for _ in range(100):
        with connect(port) as connection:
            connection.sendall(b"POST /json HTTP/1.1\r\n" + HOST + b"Content-Length: 100\r\n\r\nhalf")
    assert ask(port).status == 200


def test_expect_is_answered_before_the_body(weir):
    with connect(weir.port("http")) as connection:
        connection.settimeout(PATIENCE_S)
        connection.sendall(b"POST /json HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"{}")
        assert connection.recv(1000).startswith(b"HTTP/1.1 400 ")
