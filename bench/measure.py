"""How all parts of the benchmark measure, and how they say it.

A load generator is as busy as the server it loads, so throughput would blunt every ratio: servers are
compared by their own CPU time for each request, from /proc/PID/task/*/schedstat.  Two servers take
turns, so that a busy neighbour meets both; the median of the pairs' quotients counts, with a 95%
bootstrap interval.  Server and load generator have processors of their own, where there are two.

SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import glob
import itertools
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import time

PAIRS = 30               # at least, of two servers that take turns
PATIENCE_S = 60          # until a server listens, or ends


class Case:
    """One line of the report.  target: None, or ("<=" or ">=", bound)."""

    def __init__(self, title, target, value, spread=None, unit="", runs=(), note=""):
        self.title, self.target, self.value, self.spread = title, target, value, spread
        self.unit, self.runs, self.note = unit, runs, note

    def is_met(self):
        if self.target is None:
            return None
        sign, bound = self.target
        return self.value <= bound if sign == "<=" else self.value >= bound

    def text(self):
        target = f"{self.target[0]} {number(self.target[1])}" if self.target else ""
        spread = f"{number(self.spread[0])} to {number(self.spread[1])}" if self.spread else ""
        verdict = {True: "ok", False: "MISSED", None: ""}[self.is_met()]
        return (f"{self.title:46}{target:>12}{number(self.value):>11} {self.unit:6}{spread:>20}  {verdict:6}  "
                f"{self.note}").rstrip()

    def json(self):
        return json.dumps({"case": self.title, "target": list(self.target) if self.target else None,
                           "value": self.value, "spread": self.spread, "unit": self.unit,
                           "is_met": self.is_met(), "note": self.note, "runs": list(self.runs)})


def number(value):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2f}"


def interval(values, rounds=2000):
    """95%, of the median."""
    source = random.Random(1)
    medians = sorted(statistics.median(source.choices(values, k=len(values))) for _ in range(rounds))
    return [medians[int(rounds * 0.025)], medians[int(rounds * 0.975)]]


def interval_of_groups(groups, rounds=2000):
    """The same, of values that have something in common with those of their group: whole groups are drawn."""
    source = random.Random(1)
    medians = sorted(statistics.median(itertools.chain(*source.choices(groups, k=len(groups)))) for _ in range(rounds))
    return [medians[int(rounds * 0.025)], medians[int(rounds * 0.975)]]


def quotient(title, target, runs, is_share):
    """Of turns.  is_share: theirs/ours, how much of their speed we have; else ours/theirs."""
    quotients = [b[0] / a[0] if is_share else a[0] / b[0] for a, b in runs]
    middle = [statistics.median(one[0] for one in side) / 1000 for side in zip(*runs)]
    rate = statistics.median(one[0][1] for one in runs)
    note = f"{middle[0]:.2f} us against {middle[1]:.2f}; {rate:,.0f}/s"
    return Case(title, target, statistics.median(quotients), interval(quotients), "times", runs, note)


class Server:
    """A process that listens on a port of its own."""

    def __init__(self, command, port, cpus):
        self.port, self.name = port, pathlib.Path(command[0]).name
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL,
                                        preexec_fn=lambda: os.sched_setaffinity(0, cpus))

    def wait(self):
        for _ in range(int(PATIENCE_S / 0.01)):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            if self.process.poll() is not None:
                sys.exit(f"bench: {self.name} did not start")
            time.sleep(0.01)
        sys.exit(f"bench: {self.name} does not listen")

    def cpu_ns(self):
        tasks = glob.glob(f"/proc/{self.process.pid}/task/*/schedstat")
        return sum(int(pathlib.Path(path).read_text(encoding="ascii").split()[0]) for path in tasks)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Rig:
    """What the parts need: the build, a folder of their own, processors, and how long to take."""

    def __init__(self, build, folder, is_quick):
        self.build, self.folder, self.is_quick = build, pathlib.Path(folder), is_quick
        self.all_cpus = sorted(os.sched_getaffinity(0))
        self.server_cpus, self.load_cpus = self.all_cpus[:1], self.all_cpus[1:] or self.all_cpus
        self.servers = []

    def quick(self, value, quick_value):
        return quick_value if self.is_quick else value

    def file(self, name, data):
        path = self.folder / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    def serve(self, command_of, cpus=None):
        """Starts command_of(port), and waits until it listens."""
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        server = Server(command_of(port), port, cpus or self.server_cpus)
        self.servers.append(server)
        server.wait()
        return server

    def weir(self, listener, rules=None, threads=1, cpus=None, before=(), more=()):
        """weir serve with one listener; before: a program to run it under; more: flags."""
        def command(port):
            listeners = {"grpc": "off", "http": "off", "resp": "off", "admin": "off"}
            listeners[listener] = f"127.0.0.1:{port}"
            flags = [word for name, address in listeners.items() for word in (f"--{name}", address)]
            if rules:
                flags += ["--rules", self.file(f"{listener}.yaml", rules)]
            return [*before, self.build / "weir", "serve", "--table", "none", "--threads", threads, "--log-level",
                    "error", *flags, *more]
        return self.serve(command, cpus)

    def load(self, command, cpus=None):
        """Runs a load generator to its end; what it printed."""
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, errors="replace", check=False,
                              preexec_fn=lambda: os.sched_setaffinity(0, cpus or self.load_cpus))
        if done.returncode != 0:
            sys.exit(f"bench: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
        return done.stdout

    def cost(self, server, requests, run):
        """The server's CPU nanoseconds for each request, and requests a second as run() says them."""
        before = server.cpu_ns()
        rate = run(server, requests)
        return (server.cpu_ns() - before) / requests, rate

    def turns(self, ours, theirs, count):
        """Two servers by turns, each a function without arguments that returns what cost() does."""
        return [(ours(), theirs()) for _ in range(self.quick(count, 2))]

    def pairs(self, title, target, ours, theirs, is_share, count=PAIRS):
        """The same, as a line of the report."""
        return quotient(title, target, self.turns(ours, theirs, count), is_share)

    def stop(self):
        for server in self.servers:
            server.stop()
        self.servers = []
