"""How long an answer takes at half load (bench/latency.c), beyond what a timer in the same process is
late: on a shared machine both wait for a processor, and only the difference is the server's.

SPDX-License-Identifier: Apache-2.0
"""
import json

from bench import load
from bench.measure import Case

TITLE = "At half load: beyond a timer's lateness"
SPREAD = ""
PROTOCOLS = {"grpc": "grpc", "http": "check", "resp": "resp"}         # of a listener


def cases(rig):
    seconds = rig.quick(10, 0.1)
    for title, listener, rules, _ in load.TYPICAL:
        server = rig.weir(listener, rules)

        def measure(rate, listener=listener, server=server):
            return json.loads(rig.load([rig.build / "bench/latency", PROTOCOLS[listener], server.port, seconds, rate]))
        full = measure(0)
        half = measure(max(1, int(full["rate"] / 2)))
        for share in "p50", "p99", "p99.9":
            answer, timer = half["answer_ns"][share] / 1000, half["timer_ns"][share] / 1000
            note = f"answer {answer:.1f}, timer {timer:.1f}; {half['rate']:,.0f}/s"
            yield Case(f"{title.split(',')[0]}, {share}", None, answer - timer, None, "us", [half], note)
