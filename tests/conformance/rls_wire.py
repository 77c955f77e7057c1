"""Envoy's rate limit service as a client sees it: protobuf by hand, gRPC by grpcio, or by another (node_client.py).

Only what the tests need, so that no generated code is needed: a message is a dict of field numbers
to lists of values (int, or bytes).

SPDX-License-Identifier: Apache-2.0
"""
from dataclasses import dataclass, field

import grpc

SHOULD_RATE_LIMIT = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
HEALTH_CHECK = "/grpc.health.v1.Health/Check"
HEALTH_WATCH = "/grpc.health.v1.Health/Watch"

UNKNOWN, OK, OVER_LIMIT = 0, 1, 2
SECOND, MINUTE, HOUR, DAY, MONTH, YEAR, WEEK = 1, 2, 3, 4, 5, 6, 7
UNLIMITED = 4294967295
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3


# ---- protobuf ----

def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def number_field(number, value):
    return varint(number << 3) + varint(value) if value else b""


def bytes_field(number, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def read_varint(data, at):
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def parse(data):
    """{field number: [values]}"""
    fields, at = {}, 0
    while at < len(data):
        tag, at = read_varint(data, at)
        if tag & 7 == 0:
            value, at = read_varint(data, at)
        elif tag & 7 == 1:
            value, at = data[at:at + 8], at + 8
        else:
            assert tag & 7 == 2, f"wire type {tag & 7}"
            length, at = read_varint(data, at)
            value, at = data[at:at + length], at + length
            assert len(value) == length
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def first(fields, number, default=0):
    return fields.get(number, [default])[0]


def parse_struct(data):
    """A google.protobuf.Struct as Python's dict."""
    import struct

    def value(data):
        (kind, [one]), = parse(data).items()
        return {1: lambda: None, 2: lambda: struct.unpack("<d", one)[0], 3: lambda: one.decode(),
                4: lambda: bool(one), 5: lambda: parse_struct(one),
                6: lambda: [value(item) for item in parse(one).get(1, [])]}[kind]()

    entries = [parse(item) for item in parse(data).get(1, [])]
    return {first(entry, 1, b"").decode(): value(first(entry, 2, b"")) for entry in entries}


# ---- requests ----

def descriptor(*entries, limit=None, hits=None, negative=False):
    """entries: ("key", "value"); limit: (requests_per_unit, unit)"""
    out = b"".join(bytes_field(1, bytes_field(1, key) + bytes_field(2, value)) for key, value in entries)
    if limit is not None:
        out += bytes_field(2, number_field(1, limit[0]) + number_field(2, limit[1]))
    if hits is not None:
        out += bytes_field(3, number_field(1, hits))
    return out + number_field(4, int(negative))


def request(domain, *descriptors, hits_addend=0):
    """descriptors: bytes, or lists of entries."""
    made = [one if isinstance(one, bytes) else descriptor(*one) for one in descriptors]
    return (bytes_field(1, domain) if domain else b"") + b"".join(bytes_field(2, one) for one in made) \
        + number_field(3, hits_addend)


# ---- responses ----

@dataclass
class Status:
    code: int = UNKNOWN
    limit: tuple = None         # (requests_per_unit, unit)
    name: str = ""
    remaining: int = 0
    reset: int = None           # seconds

    def __post_init__(self):
        assert self.reset is None or self.reset >= 0


@dataclass
class Response:
    overall: int = UNKNOWN
    statuses: list = field(default_factory=list)
    headers: list = field(default_factory=list)
    metadata: dict = None


def parse_status(data):
    fields = parse(data)
    status = Status(code=first(fields, 1), remaining=first(fields, 3))
    if 2 in fields:
        limit = parse(fields[2][0])
        status.limit = (first(limit, 1), first(limit, 2))
        status.name = first(limit, 3, b"").decode()
    if 4 in fields:
        duration = parse(fields[4][0])
        assert 2 not in duration, "whole seconds"
        status.reset = first(duration, 1)
    return status


def parse_response(data):
    fields = parse(data)
    assert set(fields) <= {1, 2, 3, 6}
    return Response(overall=first(fields, 1), statuses=[parse_status(one) for one in fields.get(2, [])],
                    headers=[(first(parse(one), 1, b"").decode(), first(parse(one), 2, b"").decode())
                             for one in fields.get(3, [])],
                    metadata=parse_struct(fields[6][0]) if 6 in fields else None)


# ---- clients ----

class BaseClient:
    """What a client can ask.  How it does so is in those that derive from it: unary(path, data, timeout), whose failure
    is a grpc.RpcError; unary_many(path, data, count), all at once; stream(path, data); close()."""

    def ask(self, domain, *descriptors, hits_addend=0, timeout=10):
        """What the service says of these descriptors."""
        return self.ask_bytes(request(domain, *descriptors, hits_addend=hits_addend), timeout)

    def ask_bytes(self, data, timeout=10):
        return parse_response(self.unary(SHOULD_RATE_LIMIT, data, timeout))

    def refusal(self, data, path=SHOULD_RATE_LIMIT, timeout=10):
        """(code, text) that a call fails with."""
        try:
            answer = self.unary(path, data, timeout)
        except grpc.RpcError as error:
            return error.code(), error.details()
        raise AssertionError(f"answered: {parse_response(answer)}")

    def health(self, service):
        return first(parse(self.unary(HEALTH_CHECK, bytes_field(1, service) if service else b"")), 1)

    def watch(self, service):
        """A stream of health; .cancel() ends it."""
        return Watch(self.stream(HEALTH_WATCH, bytes_field(1, service) if service else b""))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Watch:
    def __init__(self, call):
        self.call, self.cancel = call, call.cancel

    def __iter__(self):
        return self

    def __next__(self):
        return first(parse(next(self.call)), 1)


class Client(BaseClient):
    """A channel of grpcio's.  Closed by itself at the end of `with`."""

    def __init__(self, address, credentials=None, **options):
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1), *options.items()]
        self.channel = grpc.secure_channel(address, credentials, options=options) if credentials \
            else grpc.insecure_channel(address, options=options)

    def unary(self, path, data, timeout=10):
        return self.channel.unary_unary(path)(data, timeout=timeout)

    def unary_many(self, path, data, count, timeout=20):
        return [one.result() for one in [self.channel.unary_unary(path).future(data, timeout=timeout)
                                         for _ in range(count)]]

    def stream(self, path, data):
        return self.channel.unary_stream(path)(data)

    def close(self):
        self.channel.close()
