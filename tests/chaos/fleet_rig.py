"""A fleet: nodes of `weir serve` on one store, the load on them, and the history of it.

    with Fleet(tmp_path, server.url, LIMITS) as fleet:
        with fleet.load(seconds=5, rate=2000, keys="fixed,cold*1000") as load:
            ...                                 # kill, cut, freeze
        assert checker.check(load.hits, load.limits) == {}

SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import pathlib
import subprocess
import time
import urllib.request

import history
from checker import Limit
from service import ROOT, Service, free_port, wait_until

BUILD = pathlib.Path(os.environ.get("WEIR_BUILD") or ROOT / "build")
HAMMER = BUILD / "tests/chaos_hammer"
IS_LONG = os.environ.get("WEIR_CHAOS") == "long"
IS_SANITIZED = float(os.environ.get("WEIR_TEST_SCALE") or 1) < 1
LISTENERS = {"grpc": "grpc", "json": "http", "check": "http", "resp": "resp"}
DEADLINE_MS = 15 if IS_LONG else 100    # --store-deadline: its default, or what a busy machine keeps, too
TABLE_SIZE = "8m"                       # in huge pages: a node's memory grows by as much, wherever keys fall
LONG_WINDOW_S = 1_500_000_000           # from 2017 to 2065: no test sees its end

# Every algorithm, in every form.
LIMITS = {
    "fixed": Limit("fixed_window", 50),
    "slide": Limit("sliding_window_counter", 50),
    "slide_up": Limit("sliding_window_counter", 50, rounding="up"),
    "sub": Limit("sliding_window_counter", 50, buckets=5),
    "log": Limit("sliding_window_log", 50),
    "bucket": Limit("token_bucket", 50, burst=20),
    "tick": Limit("token_bucket", 50, burst=80, refill="interval"),
    "leaky": Limit("leaky_bucket", 50, burst=20),
    "slots": Limit("concurrency", 50, window_s=1),
}


def quick(short, long):
    """What `make test` has time for, and what `make chaos` does."""
    return long if IS_LONG else short


def rules_of(limits):
    return "domain: chaos\ndescriptors:\n" + "".join(f"  - key: {name}\n    rate_limit: {limit.yaml()}\n"
                                                    for name, limit in limits.items())


def counted(servers, name, value=0):
    """What the store says of a key that is counted in a fixed window; servers: all that may have it."""
    values = []
    for server in servers:
        with server.client as client:
            values += [client.get(key) for key in client.keys(f"weir:{{5:chaos{len(name)}:{name}=*:k{value}}}*")]
    assert len(values) <= 1, f"{name} is counted in {len(values)} places"
    return int.from_bytes(values[0][5:11], "little") if values else 0


class Load:
    """hammer, running."""

    def __init__(self, fleet, path, nodes, protocol, keys, throttle, options):
        self.path, self.names = path, [key.partition("*")[0] for key in keys.split(",")]
        self.limits = {i: throttle or fleet.limits.get(name) for i, name in enumerate(self.names)}
        self.hits = self.counts = None
        args = [HAMMER, "--protocol", protocol, "--keys", keys, "--nodes", ",".join(map(str, nodes))]
        if throttle:
            args += ["--throttle", f"{throttle.burst - 1},{throttle.limit},{throttle.window_s}"]
        for name, value in options.items():
            args += [f"--{name.replace('_', '-')}", value]
        self.began_s = time.monotonic()
        self.process = subprocess.Popen([str(word) for word in (*args, path)], stdout=subprocess.PIPE,
                                        stdin=subprocess.DEVNULL, text=True)

    def wait_until(self, seconds):
        """Until it has run so long."""
        time.sleep(max(0, self.began_s + seconds - time.monotonic()))

    def stop(self):
        """It asks no more, however long it was to run; at the end of `with` all is answered."""
        self.process.terminate()

    def finish(self):
        told, _ = self.process.communicate(timeout=200)
        assert self.process.returncode == 0, told
        self.counts, self.hits = json.loads(told), history.read(self.path)

    def of(self, name, value=0):
        """The requests for one key."""
        key = self.names.index(name), value
        return [hit for hit in self.hits if hit.key == key]

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.finish()
        else:
            self.process.kill()
            self.process.wait()


class Fleet:
    """Nodes; stores: a URL for all, or one for each."""

    def __init__(self, folder, stores, limits, count=3, flags=(), threads=1, listeners=("grpc", "http", "admin")):
        self.folder, self.limits, self.flags, self.threads, self.listeners = folder, limits, flags, threads, listeners
        self.stores = [stores] * count if isinstance(stores, str) else stores
        self.rules = rules_of(limits)
        self.ports = [{name: free_port() for name in listeners} for _ in self.stores]
        self.runs = 0
        self.nodes = []
        try:
            for i in range(len(self.stores)):
                self.nodes.append(self._start(i))
        except BaseException:
            self._kill()
            raise

    def _start(self, i):
        folder = self.folder / f"weir{i}"
        folder.mkdir(exist_ok=True)
        flags = [word for name, port in self.ports[i].items() for word in (f"--{name}", f"127.0.0.1:{port}")]
        flags += ["--table-size", TABLE_SIZE]
        if self.stores[i] != "local":
            flags += ["--store", self.stores[i]]
        return Service(folder, self.rules, [*flags, *self.flags], threads=self.threads, listeners=self.listeners)

    def restart(self, i):
        """With kill -9."""
        self.nodes[i].kill()
        self.nodes[i] = self._start(i)

    def load(self, protocol="grpc", keys="fixed", throttle=None, nodes=None, **options):
        self.runs += 1
        ports = [self.ports[i][LISTENERS[protocol]] for i in nodes or range(len(self.nodes))]
        return Load(self, self.folder / f"history{self.runs}", ports, protocol, keys, throttle, options)

    def metric(self, i, name):
        """The sum of a metric of one node over its labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[i]['admin']}/metrics", timeout=10) as answer:
            rows = answer.read().decode().splitlines()
        return sum(float(row.rsplit(" ", 1)[1]) for row in rows if row.startswith((name + " ", name + "{")))

    def wait_for_each_other(self):
        """Until all know how many they are: their shares of a limit follow from it."""
        wait_until(lambda: all(self.metric(i, "weir_store_nodes") == len(self.nodes) for i in range(len(self.nodes))),
                   "the nodes to know each other")

    def wait_for_store(self):
        """Until all have found that it is back."""
        wait_until(lambda: not any(self.metric(i, "weir_store_servers_away") for i in range(len(self.nodes))),
                   "the store")

    def rss(self):
        return max(node.rss() for node in self.nodes if node.is_running())

    def __enter__(self):
        return self

    def _kill(self):
        for node in self.nodes:
            node.kill()
            print("\n".join(node.lines[-30:]))

    def __exit__(self, kind, *_):
        if kind is not None:
            self._kill()
        for node in self.nodes if kind is None else ():
            node.stop()
