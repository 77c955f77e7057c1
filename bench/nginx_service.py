"""What it costs nginx to count for many machines: on a hot key, of which the service has leased tokens into the table,
and where each request is asked for; against the same nginx that counts for itself.

SPDX-License-Identifier: Apache-2.0
"""
import os
import statistics

from bench.leases import calls
from bench.measure import PAIRS, Case
from bench.nginx import ANSWERS, ask_for_one, start

TITLE = "nginx, one count for many machines"
SPREAD = "95% interval"
RULES = """\
domain: bench
descriptors:
  - {key: remote_address, rate_limit: {unit: year, requests_per_unit: 4000000000}}
"""


def nginx(rig, name, table, http=""):
    rules = rig.file("rules.yaml", RULES)
    return start(rig, name, "weir_limit on;", ANSWERS["a file"],
                 load=f"load_module {rig.build}/nginx/ngx_http_weir_module.so;",
                 http=f"weir_rules {rules}; weir_table {table} size=8m; {http}")


class Host:
    """nginx and its service, on a table of their own."""

    def __init__(self, rig, redis, name, *flags):
        table, desk = rig.folder / f"{name}.table", rig.folder / f"{name}.sock"
        self.service = rig.weir("admin", RULES, cpus=rig.all_cpus, more=[
            "--table", table, "--table-size", "8m", "--store", f"redis://127.0.0.1:{redis.port}", "--store-deadline",
            "1s", "--store-prefix", f"{name}:", "--desk", f"unix:{desk}", *flags])
        self.nginx = nginx(rig, name, table, f"weir_service unix:{desk} timeout=2s;")
        self.services_ns = []

    def cost(self, rig):
        """Of the worker; what the service took beside it is noted."""
        before, began_ns = self.nginx.cpu_ns(), self.service.cpu_ns()
        requests, rate = ask_for_one(rig, self.nginx)
        self.services_ns.append((self.service.cpu_ns() - began_ns) / requests)
        return (self.nginx.cpu_ns() - before) / requests, rate


def cases(rig):
    os.chmod(rig.folder, 0o755)
    (rig.folder / "html").mkdir()
    rig.file("html/index.html", "hello\n")
    redis = rig.serve(lambda port: ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly",
                                    "no", "--dir", rig.folder], rig.all_cpus)
    alone = nginx(rig, "alone", rig.folder / "alone.table")

    def bare():
        before = alone.cpu_ns()
        requests, rate = ask_for_one(rig, alone)
        return (alone.cpu_ns() - before) / requests, rate

    for title, flags in (("a hot key", ()), ("each request asked", ("--store-leases=off",))):
        host = Host(rig, redis, title.replace(" ", "_"), *flags)
        before, runs = calls(rig, redis), rig.quick(PAIRS, 2)
        case = rig.pairs(f"{title}: of a worker's time", None, lambda: host.cost(rig), bare, is_share=False,
                         count=PAIRS)
        yield case
        yield Case(f"{title}: beside it the service", None, statistics.median(host.services_ns) / 1000, unit="us")
        asked = runs * rig.quick(6000, 100)
        yield Case(f"{title}: calls of Redis, of 100", None, 100 * (calls(rig, redis) - before) / asked)
