"""Histories: who was asked what, when, and what came of it.  hammer.c writes them, checker.py reads them.

    head    8s magic   q q least and most of wall clock - monotonic clock, in ns, during the run   Q records
    record  Q due  Q sent  Q answered  Q control  I value  I hits  H descriptor  B node  B verdict  4 bytes of 0

Times are of the monotonic clock, in ns.  `control` is when a timer fired that was set for the deadline after `due`: how
late this machine was just then.  Records are in the order of `due`.
SPDX-License-Identifier: Apache-2.0
"""
import struct
from typing import NamedTuple

HEAD = struct.Struct("<8sqqQ")
RECORD = struct.Struct("<QQQQIIHBB4x")
MAGIC = b"weirhist"
OPEN, OK, OVER, ERROR, LOST = range(5)      # unanswered at the end; the connection broke
TICK_NS = 1000                              # Redis tells its time cut to microseconds


class Hit(NamedTuple):
    """One request.  It was decided at an instant of Redis's clock from `first_ns` to `last_ns`."""
    key: tuple          # (descriptor, value)
    node: int
    verdict: int
    hits: int
    first_ns: int
    last_ns: int
    due_ns: int = 0     # these three of the monotonic clock
    sent_ns: int = 0
    answered_ns: int = 0
    control_ns: int = 0


def read(path):
    """The requests in a file."""
    data = path.read_bytes()
    magic, least, most, count = HEAD.unpack_from(data)
    assert magic == MAGIC and len(data) == HEAD.size + count * RECORD.size, f"{path} is no whole history"
    return [Hit((descriptor, value), node, verdict, hits, sent + least - TICK_NS, answered + most, due, sent, answered,
                control)
            for due, sent, answered, control, value, hits, descriptor, node, verdict
            in RECORD.iter_unpack(memoryview(data)[HEAD.size:])]


def by_key(hits):
    """{key: its requests}"""
    keys = {}
    for hit in hits:
        keys.setdefault(hit.key, []).append(hit)
    return keys


def share(values, part):
    """The value that this part of all stays below, as p99.9 for 0.999."""
    values = sorted(values)
    return values[min(int(len(values) * part), len(values) - 1)] if values else 0
