"""No request allocates: memory is taken when a connection opens, and kept.

weir serve runs with a malloc that counts (count_allocations.c).  A connection sends requests until all that
grows has grown, then 10,000 more, of which the first are allowed and the last refused: during those nobody
may ask for memory, in any thread.  nghttp2 asks for some with each stream, but of its worker, who keeps blocks
for it: so there, too, malloc has no part.

SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import pathlib
import socket
import struct

import pytest

from http_rig import PATIENCE_S, Service
from h2_raw import END_STREAM, HEADERS, PREFACE, SETTINGS, WINDOW_UPDATE, call, frame
from rls_wire import descriptor, request

BUILD = pathlib.Path(os.environ.get("WEIR_BUILD") or pathlib.Path(__file__).resolve().parents[2] / "build")
WARM, COUNTED, TOGETHER = 2000, 10000, 10
RULES = """\
domain: api
descriptors:
  - key: remote_address
    rate_limit: {unit: day, requests_per_unit: 7000}
  - key: user
    rate_limit: {unit: day, requests_per_unit: 7000}
"""
CHECK = b"GET /check HTTP/1.1\r\nHost: weir\r\nX-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Uri: /a?b=c\r\n\r\n"
QUESTION = json.dumps({"domain": "api", "descriptors": [{"entries": [{"key": "user", "value": "alice"}]}]}).encode()
JSON = b"POST /json HTTP/1.1\r\nHost: weir\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
    len(QUESTION), QUESTION)
THROTTLE = b"*5\r\n$11\r\nCL.THROTTLE\r\n$4\r\nuser\r\n$4\r\n6999\r\n$4\r\n7000\r\n$5\r\n86400\r\n"


class Frames:
    """Counts the streams that were answered to the end."""

    def __init__(self):
        self.rest = b""

    def __call__(self, data):
        ended, self.rest = 0, self.rest + data
        while len(self.rest) >= 9:
            length = int.from_bytes(self.rest[:3], "big")
            if len(self.rest) < 9 + length:
                break
            ended += self.rest[3] == HEADERS and self.rest[4] & END_STREAM
            self.rest = self.rest[9 + length:]
        return ended


class Ends:
    """Counts the ends of answers, though they come in pieces; an answer has `each` of them."""

    def __init__(self, end, each=1):
        self.end, self.each, self.rest, self.seen = end, each, b"", 0

    def __call__(self, data):
        data, before = self.rest + data, self.seen // self.each
        self.seen += data.count(self.end)
        self.rest = data[len(data) - len(self.end) + 1:] if len(self.end) > 1 else b""
        return self.seen // self.each - before


def ask(connection, requests, count):
    """Sends them together, and waits for as many answers."""
    connection.sendall(b"".join(requests))
    answers = 0
    while answers < len(requests):
        data = connection.recv(65536)
        assert data, "closed"
        answers += count(data)


GRPC = request("api", descriptor(("user", "alice")))
PROTOCOLS = {
    "grpc": ("grpc", PREFACE + frame(SETTINGS) + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 0x7F000000)),
             lambda i: call(2 * i + 1, GRPC), Frames),
    "check": ("http", b"", lambda i: CHECK, lambda: Ends(b"\r\n\r\n")),
    "json": ("http", b"", lambda i: JSON, lambda: Ends(b"\r\n\r\n")),
    "resp": ("resp", b"", lambda i: THROTTLE, lambda: Ends(b"\n", 6)),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_request_allocates(tmp_path, protocol):
    listener, hello, request_of, counter = PROTOCOLS[protocol]
    count = tmp_path / "allocations"
    count.write_bytes(bytes(8))
    env = {"LD_PRELOAD": str(BUILD / "tests/count_allocations.so"), "WEIR_ALLOCATIONS": str(count)}

    def allocations():
        return struct.unpack("<Q", count.read_bytes())[0]
    with Service(tmp_path, RULES, env=env, threads=1, listeners=(listener,)) as weir, \
            socket.create_connection(("127.0.0.1", weir.port(listener)), PATIENCE_S) as connection:
        answers = counter()
        connection.sendall(hello)
        for i in range(0, WARM, TOGETHER):
            ask(connection, [request_of(i + k) for k in range(TOGETHER)], answers)
        before = allocations()
        assert before > 0
        for i in range(WARM, WARM + COUNTED, TOGETHER):
            ask(connection, [request_of(i + k) for k in range(TOGETHER)], answers)
        assert allocations() - before == 0
