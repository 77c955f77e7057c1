#!/usr/bin/python3
"""resp.py [--pairs N] [--requests N] [BUILD] - what a CL.THROTTLE costs, against Redis's INCR.

As grpc.py: the server's CPU time for each command, weir and redis-server by turns, the median of the
pairs' quotients with a 95% bootstrap interval.  The load is redis-benchmark's: random keys, one
command at a time on each connection, and 16 in a pipeline.

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from grpc import ROOT, Server, cpu_ns, free_port, interval  # noqa: E402  (ours, beside this file)

THROTTLE = "CL.THROTTLE", "key:__rand_int__", "15", "30", "60"
INCR = "INCR", "key:__rand_int__"
TARGET = 0.6     # of Redis's CPU time, at most, in pipelines of 16


def run(server, command, depth, options):
    """The server's CPU nanoseconds for each command, and commands a second."""
    before = cpu_ns(server.process.pid)
    done = subprocess.run(["redis-benchmark", "-p", str(server.port), "-n", str(options.requests), "-c",
                           str(options.connections), "-P", str(depth), "-r", str(options.keys), "--csv", *command],
                          capture_output=True, text=True, check=True)
    after = cpu_ns(server.process.pid)
    rate = re.search(r'^"CL\.THROTTLE.*?","([\d.]+)"|^"INCR.*?","([\d.]+)"', done.stdout, re.M)
    if not rate:
        sys.exit(f"resp.py: {done.stdout}{done.stderr}")
    return (after - before) / options.requests, float(rate[1] or rate[2])


def compare(weir, redis, depth, options):
    quotients, costs, rates = [], [], []
    for _ in range(options.pairs):
        ours, rate = run(weir, THROTTLE, depth, options)
        theirs, _ = run(redis, INCR, depth, options)
        quotients.append(ours / theirs)
        costs.append((ours, theirs))
        rates.append(rate)
    middle, (low, high) = statistics.median(quotients), interval(quotients)
    ours, theirs = (statistics.median(column) / 1000 for column in zip(*costs))
    target = f"<= {TARGET:.2f}  {'ok' if middle <= TARGET else 'MISSED'}" if depth == 16 else ""
    print(f"CL.THROTTLE  {depth:3} deep  weir {ours:6.3f} us  INCR {theirs:6.3f} us  {middle:5.2f} "
          f"[{low:.2f} to {high:.2f}]  {statistics.median(rates):,.0f}/s  {target}".rstrip(), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--requests", type=int, default=100000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--keys", type=int, default=100000)
    parser.add_argument("build", nargs="?", default=ROOT / "build", type=pathlib.Path)
    options = parser.parse_args()
    if not shutil.which("redis-server"):
        sys.exit("resp.py: needs redis-server and redis-benchmark")
    with tempfile.TemporaryDirectory() as folder:
        ports = free_port(), free_port()
        servers = [
            Server(ports[0], [options.build / "weir", "serve", "--table", "none", "--threads", "1", "--resp",
                              f"127.0.0.1:{ports[0]}", "--grpc", "off", "--http", "off", "--admin", "off",
                              "--log-level", "error"]),
            Server(ports[1], ["redis-server", "--port", str(ports[1]), "--bind", "127.0.0.1", "--save", "",
                              "--appendonly", "no", "--dir", folder, "--loglevel", "warning"]),
        ]
        try:
            for server in servers:
                server.wait()
            for depth in 1, 16:
                compare(*servers, depth, options)
        finally:
            for server in servers:
                server.process.terminate()
                server.process.wait()


if __name__ == "__main__":
    main()
