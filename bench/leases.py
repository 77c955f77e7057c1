"""Exact limits over three nodes and one Redis: what a hot key costs with leases, and with each decision asked for.

The load (tests/chaos/hammer.c) asks on schedule, over gRPC, all nodes in turn.  Redis counts its own commands.

SPDX-License-Identifier: Apache-2.0
"""
import json
import re
import time

from bench.measure import Case
from tests.chaos import history

TITLE = "Exact limits of three nodes"
SPREAD = ""
NODES, RATE = 3, 100_000
BUCKET, BURST = 2000, 1000
RULES = f"""\
domain: chaos
descriptors:
  - {{key: plenty, rate_limit: {{unit: year, requests_per_unit: 4000000000}}}}
  - {{key: bucket, rate_limit: {{unit: second, requests_per_unit: {BUCKET}, burst: {BURST}, algorithm: token_bucket}}}}
"""


def calls(rig, redis):
    """Of the script."""
    said = rig.load(["redis-cli", "-p", redis.port, "INFO", "commandstats"])
    return sum(map(int, re.findall(r"cmdstat_(?:fcall|evalsha):calls=(\d+)", said)))


def lasted(rig):
    """How many seconds the last run took, from the first question to the last answer: more than was meant."""
    hits = history.read(rig.folder / "history")
    return (max(hit.answered_ns for hit in hits) - min(hit.sent_ns for hit in hits if hit.sent_ns)) / 1e9


class Run:
    """Three nodes, asked for one key."""

    def __init__(self, rig, redis, key, *flags, rate=RATE):
        seconds = rig.quick(5, 0.3)
        nodes = [rig.weir("grpc", RULES, cpus=rig.all_cpus,
                          more=["--store", f"redis://127.0.0.1:{redis.port}", "--store-deadline", "1s", *flags])
                 for _ in range(NODES)]
        time.sleep(rig.quick(3, 0))     # until the nodes know of each other
        before, began_ns, ours_ns = calls(rig, redis), redis.cpu_ns(), sum(node.cpu_ns() for node in nodes)
        counts = json.loads(rig.load([rig.build / "tests/chaos_hammer", "--protocol", "grpc", "--keys", key, "--nodes",
                                      ",".join(str(node.port) for node in nodes), "--rate", rig.quick(rate, 2000),
                                      "--seconds", seconds, rig.folder / "history"], cpus=rig.all_cpus))
        self.admitted, self.answers = counts["ok"], counts["ok"] + counts["over"]
        self.rate = self.answers / seconds
        self.calls = calls(rig, redis) - before
        self.redis_us = (redis.cpu_ns() - began_ns) / self.answers / 1000
        self.node_us = (sum(node.cpu_ns() for node in nodes) - ours_ns) / self.answers / 1000
        for node in nodes:
            node.stop()
            rig.servers.remove(node)

    def note(self):
        return f"{self.rate:,.0f}/s; {self.redis_us:.2f} us of Redis and {self.node_us:.2f} of ours each"


def cases(rig):
    redis = rig.serve(lambda port: ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly",
                                    "no", "--dir", rig.folder], rig.all_cpus)
    hot, strict = Run(rig, redis, "plenty"), Run(rig, redis, "plenty", "--store-leases=off")
    yield Case("calls of Redis, of 100 decisions", ("<=", 1.0), 100 * hot.calls / hot.answers, note=hot.note())
    yield Case("the same without leases", None, 100 * strict.calls / strict.answers, note=strict.note())
    yield Case("cold keys, calls of each", ("<=", 1.0), *cold(rig, redis))
    bucket = Run(rig, redis, "bucket")
    share = 100 * bucket.admitted / (BURST + BUCKET * lasted(rig))
    yield Case("a bucket that is used up: calls, of 100", ("<=", 1.0), 100 * bucket.calls / bucket.answers,
               note=bucket.note())
    yield Case("and how much of it passes", (">=", 99.0), share, unit="%")


def cold(rig, redis):
    run = Run(rig, redis, "plenty*100000000", rate=20_000)
    return run.calls / run.answers, None, "", (), run.note()
