"""HTTP/2 by hand, for peers that no library would be.

SPDX-License-Identifier: Apache-2.0
"""
import socket
import struct

from rls_wire import SHOULD_RATE_LIMIT

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def field(name, value):
    """A header without compression, in no table."""
    def text(data):
        data = data.encode() if isinstance(data, str) else data
        if len(data) < 127:
            return bytes([len(data)]) + data
        out, rest = bytearray([127]), len(data) - 127
        while rest > 127:
            out.append(rest & 127 | 128)
            rest >>= 7
        return bytes(out) + bytes([rest]) + data
    return b"\0" + text(name) + text(value)


def head(path=SHOULD_RATE_LIMIT, *more, method="POST", kind="application/grpc"):
    fields = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "weir"),
              ("content-type", kind), ("te", "trailers"), *more]
    return b"".join(field(*one) for one in fields)


def message(data):
    """With gRPC's prefix."""
    return b"\0" + struct.pack(">I", len(data)) + data


def call(stream, data, *more):
    """A whole request."""
    return frame(HEADERS, END_HEADERS, stream, head(SHOULD_RATE_LIMIT, *more)) + \
        frame(DATA, END_STREAM, stream, message(data))


class Peer:
    """A connection whose bytes are ours to choose."""

    def __init__(self, port, greets=True):
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.pending = b""
        if greets:
            self.send(PREFACE + frame(SETTINGS))

    def send(self, data):
        """False where the other side has closed."""
        try:
            self.socket.sendall(data)
            return True
        except (BrokenPipeError, ConnectionResetError):
            return False

    def _read(self, length):
        while len(self.pending) < length:
            got = self.socket.recv(65536)
            if not got:
                raise EOFError
            self.pending += got
        data, self.pending = self.pending[:length], self.pending[length:]
        return data

    def frames(self):
        """(kind, flags, stream, payload) until the other side closes."""
        try:
            while True:
                prefix = self._read(9)
                length, kind, flags, stream = int.from_bytes(prefix[:3], "big"), prefix[3], prefix[4], \
                    int.from_bytes(prefix[5:], "big")
                yield kind, flags, stream, self._read(length)
        except (EOFError, ConnectionResetError):
            return

    def goaway(self):
        """The error that the other side goes with; None if it just closes."""
        error = None
        for kind, _, _, payload in self.frames():
            if kind == GOAWAY:
                error = int.from_bytes(payload[4:8], "big")
        return error

    def answer(self, stream):
        """All frames of a stream until it ends: [(kind, payload)]"""
        seen = []
        for kind, flags, number, payload in self.frames():
            if number == stream and kind in (DATA, HEADERS, RST_STREAM):
                seen.append((kind, payload))
                if kind == RST_STREAM or flags & END_STREAM:
                    return seen
        return seen

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
