#!/usr/bin/python3
"""grpc.py [--pairs N] [--requests N] [BUILD] - what a gRPC decision costs, against bare servers.

The load generator (h2load) is as busy as the server, so throughput would blunt every ratio: what is
compared is the server's CPU time for each request, from /proc/PID/task/*/schedstat.  weir and a bare
server (bench/bare_h2.c) take turns; the median of the pairs' quotients counts, with a 95% bootstrap
interval.  One thread each.

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import glob
import pathlib
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATH = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
RULES = """\
domain: bench
descriptors:
  - key: tenant
    descriptors:
      - key: path
        rate_limit: {unit: hour, requests_per_unit: 1000000000}
"""
TARGETS = {"packing": 0.85, "constant": 0.70}


def message():
    """A RateLimitRequest with one descriptor of two entries, as Envoy sends it."""
    def field(number, data):
        return bytes([number << 3 | 2, len(data)]) + data
    entries = b"".join(field(1, field(1, key) + field(2, value))
                       for key, value in ((b"tenant", b"customer-42"), (b"path", b"/api/v1/items")))
    data = field(1, b"bench") + field(2, entries)
    return b"\0" + len(data).to_bytes(4, "big") + data


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def cpu_ns(pid):
    return sum(int(open(path).read().split()[0]) for path in glob.glob(f"/proc/{pid}/task/*/schedstat"))


class Server:
    def __init__(self, port, command):
        self.port = port
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def wait(self):
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    sys.exit("grpc.py: a server did not start")
                __import__("time").sleep(0.05)
        sys.exit("grpc.py: a server does not listen")

    def run(self, body, requests, connections, streams):
        """Server's CPU nanoseconds for each request, and requests a second."""
        before = cpu_ns(self.process.pid)
        done = subprocess.run(
            ["h2load", "-n", str(requests), "-c", str(connections), "-m", str(streams), "-d", body,
             "-H", "content-type: application/grpc", "-H", "te: trailers", "-H", "grpc-timeout: 5S",
             f"http://127.0.0.1:{self.port}{PATH}"], capture_output=True, text=True, check=True)
        after = cpu_ns(self.process.pid)
        good = int(re.search(r"(\d+) succeeded", done.stdout)[1])
        if good != requests:
            sys.exit(f"grpc.py: {requests - good} requests failed\n{done.stdout}")
        return (after - before) / requests, float(re.search(r"([\d.]+) req/s", done.stdout)[1])


def interval(values, rounds=2000):
    """95%, of the median."""
    source = random.Random(1)
    medians = sorted(statistics.median(source.choices(values, k=len(values))) for _ in range(rounds))
    return medians[int(rounds * 0.025)], medians[int(rounds * 0.975)]


def compare(weir, bare, kind, body, options):
    for streams in 1, 10, 100:
        requests = options.requests // (4 if streams == 1 else 1)
        quotients, costs, rates = [], [], []
        for _ in range(options.pairs):
            ours, rate = weir.run(body, requests, options.connections, streams)
            theirs, _ = bare.run(body, requests, options.connections, streams)
            quotients.append(theirs / ours)
            costs.append((ours, theirs))
            rates.append(rate)
        middle, (low, high) = statistics.median(quotients), interval(quotients)
        ours, theirs = (statistics.median(column) / 1000 for column in zip(*costs))
        verdict = "ok" if middle >= TARGETS[kind] else "MISSED"
        print(f"{kind:9} {streams:4} streams  weir {ours:6.2f} us  bare {theirs:6.2f} us  "
              f"{100 * middle:5.1f}% [{100 * low:.1f} to {100 * high:.1f}]  >= {100 * TARGETS[kind]:.0f}%  "
              f"{verdict:6}  {statistics.median(rates):,.0f}/s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--requests", type=int, default=40000)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("build", nargs="?", default=ROOT / "build", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rules, body = pathlib.Path(folder, "rules.yaml"), pathlib.Path(folder, "body")
        rules.write_text(RULES)
        body.write_bytes(message())
        servers = []
        try:
            port = free_port()
            weir = Server(port, [options.build / "weir", "serve", "--rules", rules, "--table", "none", "--threads",
                                 "1", "--grpc", f"127.0.0.1:{port}", "--http", "off", "--resp", "off", "--admin",
                                 "off", "--log-level", "error"])
            servers.append(weir)
            for kind in TARGETS:
                port = free_port()
                servers.append(Server(port, [options.build / "bench/bare_h2", str(port), kind]))
            for server in servers:
                server.wait()
            for server, kind in zip(servers[1:], TARGETS):
                compare(weir, server, kind, body, options)
        finally:
            for server in servers:
                server.process.terminate()
                server.process.wait()


if __name__ == "__main__":
    main()
