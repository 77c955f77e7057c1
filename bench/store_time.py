"""How much later an answer comes because a store is asked: one node, one hot key, over gRPC, beside one without.

The load (tests/chaos/hammer.c) asks on schedule and writes down when each answer came.  All kinds take turns, and what
is told is the median of what the rounds added to the node without a store in the same round.  Everything is on one
machine: the round trip is a loopback's, to which a network adds its own.

SPDX-License-Identifier: Apache-2.0
"""
import pathlib
import statistics
import sys
import time

from bench.measure import Case, interval

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tests/chaos"))
import history  # noqa: E402

TITLE = "What a store adds to an answer's time"
SPREAD = "95%"
RATE = 2000
RULES = """\
domain: chaos
descriptors:
  - {key: plenty, rate_limit: {unit: year, requests_per_unit: 4000000000}}
"""
KINDS = {"leased": (), "leased, --store-wait 1": ("--store-wait", "1"), "each asked": ("--store-leases=off",)}
SHARES = {"p50": 0.5, "p99": 0.99}


def redis_server(rig, *more):
    return rig.serve(lambda port: ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly",
                                   "no", "--repl-diskless-sync-delay", "0", "--dir", rig.folder, *more], rig.all_cpus)


def times_us(rig, node):
    """What each answer took."""
    path = rig.folder / "history"
    rig.load([rig.build / "tests/chaos_hammer", "--protocol", "grpc", "--keys", "plenty", "--nodes", node.port,
              "--rate", RATE, "--seconds", rig.quick(2, 0.3), path], cpus=rig.load_cpus)
    return [(hit.answered_ns - hit.sent_ns) / 1000 for hit in history.read(path) if hit.verdict == history.OK]


def cases(rig):
    redis = redis_server(rig)
    replica = redis_server(rig, "--replicaof", f"127.0.0.1 {redis.port}")
    while "master_link_status:up" not in rig.load(["redis-cli", "-p", replica.port, "INFO", "replication"]):
        time.sleep(0.1)
    store = ["--store", f"redis://127.0.0.1:{redis.port}", "--store-deadline", "1s"]
    plain = rig.weir("grpc", RULES)
    nodes = {kind: rig.weir("grpc", RULES, more=[*store, "--store-prefix", f"{i}:", *flags])
             for i, (kind, flags) in enumerate(KINDS.items())}
    took = {(kind, share): [] for kind in KINDS for share in SHARES}
    alone = {share: [] for share in SHARES}
    for _ in range(rig.quick(9, 1)):
        before = times_us(rig, plain)
        for share, part in SHARES.items():
            alone[share].append(history.share(before, part))
        for kind, node in nodes.items():
            times = times_us(rig, node)
            for share, part in SHARES.items():
                took[kind, share].append(history.share(times, part))
    for (kind, share), values in took.items():
        added = [value - without for value, without in zip(values, alone[share])]
        note = f"{statistics.median(values):.0f} us, {statistics.median(alone[share]):.0f} without a store; {RATE}/s"
        yield Case(f"{kind}, {share}", None, statistics.median(added), interval(added), "us", added, note)
