#!/usr/bin/python3
"""redis_scripts - what a decision costs Redis: its processor time, and memory for each key.

    bench/redis_scripts.py        (of build/weir, or what WEIR_BIN names)

Starts a redis-server of its own, has weir load its function, and calls it as weir does: one counter
a call, 100 calls a write.  The time is the server's main thread's, so whoever else is busy does not
matter; of 5 runs the least.

SPDX-License-Identifier: Apache-2.0
"""
import pathlib
import socket
import struct
import sys
import tempfile

sys.path[:1] = (str(pathlib.Path(__file__).resolve().parents[1] / "tests" / rigs) for rigs in ("e2e", "conformance"))
from redis_rig import redis_server  # noqa: E402
from weir_cli import lines, request, rules_file, weir  # noqa: E402

CALLS, BATCH, KEYS = 40000, 100, 20000
LIMIT = struct.pack("<II", 100, 3600)                   # 100 an hour


def span(seconds):
    return struct.pack("<Q", seconds)[:5] + bytes(8)


# kind, and what it needs behind the head (lib/store/redis/record.c)
KINDS = {
    "fixed_window": (1, LIMIT),
    "sliding_window_counter": (2, LIMIT + b"\0"),
    "the same, buckets: 6": (3, LIMIT + b"\6"),
    "sliding_window_log": (7, LIMIT),
    "token_bucket, leaky_bucket": (4, struct.pack("<II", 1, 100) + span(3600) + span(36)),
    "token_bucket, interval": (5, LIMIT + struct.pack("<I", 100)),
    "concurrency": (6, LIMIT + bytes(6)),
}


def record(kind, rest):
    return bytes([kind, 0, 0, 1, 0, 1]) + bytes(5) + rest


def command(*args):
    return b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%s\r\n" % (len(arg), arg) for arg in args)


def key(number):
    return b"weir:{3:api4:user=6:%06d}ASNFZ4mrze8" % number


def spent(client):
    cpu = client.info("cpu")
    return cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"]


def run(client, wire, make, sign):
    """Microseconds of the server for one call; sign begins a reply and is nowhere else in it."""
    before = spent(client)
    for first in range(0, CALLS, BATCH):
        batch = [make(key(number % KEYS)) for number in range(first, first + BATCH)]
        wire.sendall(b"".join(batch))
        got, wanted = b"", BATCH * (make(b"").count(b"*"))
        while got.count(sign) < wanted or not got.endswith(b"\r\n"):
            got += wire.recv(1 << 20)
    return (spent(client) - before) / CALLS * 1e6


def measure(client, wire, make, sign):
    client.flushdb()        # of what another kind has left under these names
    least = min(run(client, wire, make, sign) for _ in range(5))
    client.flushdb()
    empty = client.info("memory")["used_memory"]
    run(client, wire, make, sign)
    return least, (client.info("memory")["used_memory"] - empty) / client.dbsize()


def main():
    folder = pathlib.Path(tempfile.mkdtemp())
    with redis_server(folder) as (client, url):
        assert weir("replay", "--rules", rules_file(folder), "--store", url, stdin=lines(request())).returncode == 0
        function = client.execute_command("FUNCTION", "LIST")[0][1]
        wire = socket.socket(socket.AF_UNIX)
        wire.connect(url.removeprefix("unix:"))
        print(f"{'':28}{'us':>8}{'bytes a key':>14}")
        for title, (kind, rest) in KINDS.items():
            what = record(kind, rest)
            cost = measure(client, wire, lambda name: command(b"FCALL", function, b"1", name, b"\0", what), b"*2\r\n")
            print(f"{title:28}{cost[0]:8.1f}{cost[1]:14.0f}")
        cost = measure(client, wire, lambda name: command(b"INCRBY", name, b"1") + command(b"EXPIRE", name, b"3600"),
                       b":")
        print(f"{'INCRBY and EXPIRE':28}{cost[0]:8.1f}{cost[1]:14.0f}")


main()
