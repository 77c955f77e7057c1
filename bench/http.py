#!/usr/bin/python3
"""http.py [--pairs N] [--requests N] [BUILD] - what a /check costs, against a bare server.

As grpc.py: the server's CPU time for each request, weir and bench/bare_http.c by turns, the median of
the pairs' quotients with a 95% bootstrap interval.  The load is h2load's, over HTTP/1.1: a gateway's
question with seven headers, once one at a time on each connection, and once pipelined.

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from grpc import ROOT, Server, cpu_ns, free_port, interval  # noqa: E402  (ours, beside this file)

RULES = """\
domain: bench
descriptors:
  - key: remote_address
    rate_limit: {unit: hour, requests_per_unit: 1000000000}
"""
HEADERS = ("X-Forwarded-For: 203.0.113.9", "X-Forwarded-Method: GET", "X-Forwarded-Proto: https",
           "X-Forwarded-Host: api.example.com", "X-Forwarded-Uri: /api/v1/items/4711?page=2")
TARGET = 0.85


def run(server, requests, connections, depth):
    """The server's CPU nanoseconds for each request, and requests a second."""
    before = cpu_ns(server.process.pid)
    command = ["h2load", "--h1", "-n", str(requests), "-c", str(connections), "-m", str(depth)]
    for header in HEADERS:
        command += ["-H", header]
    done = subprocess.run([*command, f"http://127.0.0.1:{server.port}/check"], capture_output=True, text=True,
                          check=True)
    after = cpu_ns(server.process.pid)
    good = int(re.search(r"(\d+) 2xx", done.stdout)[1])
    if good != requests:
        sys.exit(f"http.py: {requests - good} requests failed\n{done.stdout}")
    return (after - before) / requests, float(re.search(r"([\d.]+) req/s", done.stdout)[1])


def compare(weir, bare, depth, options):
    quotients, costs, rates = [], [], []
    for _ in range(options.pairs):
        ours, rate = run(weir, options.requests, options.connections, depth)
        theirs, _ = run(bare, options.requests, options.connections, depth)
        quotients.append(theirs / ours)
        costs.append((ours, theirs))
        rates.append(rate)
    middle, (low, high) = statistics.median(quotients), interval(quotients)
    ours, theirs = (statistics.median(column) / 1000 for column in zip(*costs))
    target = f">= {100 * TARGET:.0f}%  {'ok' if middle >= TARGET else 'MISSED'}" if depth == 1 else ""
    print(f"/check  {depth:3} at once  weir {ours:6.2f} us  bare {theirs:6.2f} us  {100 * middle:5.1f}% "
          f"[{100 * low:.1f} to {100 * high:.1f}]  {statistics.median(rates):,.0f}/s  {target}".rstrip(), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--requests", type=int, default=20000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("build", nargs="?", default=ROOT / "build", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rules = pathlib.Path(folder, "rules.yaml")
        rules.write_text(RULES)
        ports = free_port(), free_port()
        servers = [
            Server(ports[0], [options.build / "weir", "serve", "--rules", rules, "--table", "none", "--threads", "1",
                              "--http", f"127.0.0.1:{ports[0]}", "--grpc", "off", "--resp", "off", "--admin", "off",
                              "--log-level", "error"]),
            Server(ports[1], [options.build / "bench/bare_http", str(ports[1])]),
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
