"""The link to Redis (bench/redis_link.c) beside redis-benchmark: the same function with the same arguments, one
connection, as many calls a write, by turns on one server.

Here the rate counts, not the server's processor time: that is the same for both, and it is the server that both
wait for.

SPDX-License-Identifier: Apache-2.0
"""
import os
import re
import statistics
import subprocess

from bench.measure import PAIRS, Case, interval

TITLE = "Strict calls through the link"
SPREAD = "95% of the median"
DEPTHS = 1, 16, 100
CALLS = {1: 8000, 16: 40000, 100: 80000}


def link(rig, server, calls, depth):
    rate, cpu_us = rig.load([rig.build / "bench/redis_link", f"redis://127.0.0.1:{server.port}", calls, depth]).split()
    return float(rate), float(cpu_us)


def redis_benchmark(rig, server, calls, depth, record):
    words = ["redis-benchmark", "-p", server.port, "-q", "-n", calls, "-c", 1, "-P", depth, "-r", 1000,
             "FCALL", "weir_bench", 1, "link:{key:__rand_int__}", os.fsdecode(b"\x80"), record]
    said = rig.load(words)
    return float(re.findall(r"([\d.]+) requests per second", said)[-1])


def cases(rig):
    program = rig.build / "bench/redis_link"
    record = os.fsdecode(subprocess.run([program, "record"], check=True, capture_output=True).stdout)
    server = rig.serve(lambda port: ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "",
                                     "--appendonly", "no", "--dir", rig.folder])
    rig.load(["sh", "-c", f"{program} library | redis-cli -p {server.port} -x FUNCTION LOAD"])
    for depth in DEPTHS:
        calls = rig.quick(CALLS[depth], 1000)
        runs = [(link(rig, server, calls, depth), redis_benchmark(rig, server, calls, depth, record))
                for _ in range(rig.quick(PAIRS, 2))]
        shares = [ours[0] / theirs for ours, theirs in runs]
        rates = statistics.median(ours[0] for ours, _ in runs), statistics.median(theirs for _, theirs in runs)
        cpu_us = statistics.median(ours[1] for ours, _ in runs)
        note = f"{rates[0]:,.0f}/s against {rates[1]:,.0f}; {cpu_us:.2f} us of ours a call"
        yield Case(f"{depth} a write, of redis-benchmark's rate", (">=", 0.85), statistics.median(shares),
                   interval(shares), "times", runs, note)
