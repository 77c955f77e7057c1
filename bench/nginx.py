"""What limiting costs in nginx's workers: against nginx that adds the same two headers and limits nothing, and against
its own limit_req; for a file and for proxying; on one key, and on a million.

SPDX-License-Identifier: Apache-2.0
"""
import dataclasses
import itertools
import os
import re
import statistics
import sys
import tempfile

from bench.measure import Case, interval_of_groups

TITLE = "nginx: share of its speed that is left"
SPREAD = "95% interval"
SHARE_OF_BARE = 0.95
SHARE_OF_LIMIT_REQ = 1.0
KEYS = 1_000_000
SHORT = 6000            # requests of a short while
REQUESTS = 3200         # of a turn: hundredths of a second, so that what a busy neighbour does it does to all; but not
                        # less, for it begins with caches full of what the others have touched: of 400 that is 9%
REQUESTS_OF_KEYS = 4000 # there is more to touch here
ROUNDS = 8              # of each start
STARTS = {"a file": 300, "proxying": 900}  # where a process's memory happens to lie makes a difference of 2%; of what
                                           # proxying takes, limiting is less, so it takes more to tell two apart
ROUNDS_OF_KEYS = 40
STARTS_OF_KEYS = 12     # each fills a million first

NAMES = itertools.count()
ANSWERS = {"a file": "root {folder}/html; open_file_cache max=10;",
           "proxying": "proxy_pass http://upstream; proxy_http_version 1.1; proxy_set_header Connection '';"}


@dataclasses.dataclass
class Counted:
    """A key and its limit, which nobody reaches; then the same for limit_req, and the room that its keys need."""
    key: str
    unit: str
    requests: int
    zone_key: str
    rate: str
    zone_size: str

    def rules(self):
        return RULES.format(key=self.key, unit=self.unit, requests=self.requests)

    def zone(self):
        return f"limit_req_zone {self.zone_key} zone=z:{self.zone_size} rate={self.rate};"

    def headers(self):
        return f"add_header X-Ratelimit-Limit {self.requests}; add_header X-Ratelimit-Remaining {self.requests - 1};"


ONE = Counted("remote_address", "hour", 1_000_000_000, "$binary_remote_addr", "1000000r/s", "1m")
# 525,600 minutes are a year: so each of a million is remembered for a minute, by both.
MANY = Counted("query.key", "year", 525_600, "$arg_key", "1r/m", "256m")
COUNTED = {"one key": ONE, "a million keys": MANY}
CONF = """\
{load}
daemon off;
master_process off;
pid {folder}/{name}.pid;
error_log {folder}/{name}.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
    keepalive_requests 1000000000; keepalive_timeout 1h;
    client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
    uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
    upstream upstream {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 1000000000; }}
    {http}
    server {{ listen 127.0.0.1:{port}; location / {{ {location} {answer} }} }}
}}
"""
RULES = """\
domain: bench
descriptors:
  - key: {key}
    rate_limit: {{unit: {unit}, requests_per_unit: {requests}, algorithm: token_bucket}}
"""


def start(rig, name, location, answer, http="", load="", upstream=1, cpus=None, before=()):
    """nginx, one process; before: a program to run it under."""
    def command(port):
        text = CONF.format(folder=rig.folder, name=name, port=port, upstream=upstream, http=http, location=location,
                           answer=answer.format(folder=rig.folder), load=load)
        return [*before, "/usr/sbin/nginx", "-p", f"{rig.folder}/", "-c", rig.file(f"{name}.conf", text)]
    return rig.serve(command, cpus)


def servers(rig, answer, counted, upstream, folder):
    """Ours, nginx without limits, and limit_req: each answers the same.  folder: for the table."""
    name = next(NAMES)
    rules = rig.file(f"{name}.yaml", counted.rules())
    yield start(rig, f"weir{name}", "weir_limit on;", answer, upstream=upstream,
                load=f"load_module {rig.build}/nginx/ngx_http_weir_module.so;",
                http=f"weir_rules {rules}; weir_table {folder}/table size=64m;")
    yield start(rig, f"bare{name}", counted.headers(), answer, upstream=upstream)
    yield start(rig, f"limit_req{name}", f"limit_req zone=z burst=1000000 nodelay; {counted.headers()}", answer,
                upstream=upstream, http=counted.zone())


def ask_for_one(rig, server):
    """A short while, on one key; requests, and requests a second."""
    requests = rig.quick(SHORT, 100)
    said = rig.load(["h2load", "--h1", f"-n{requests}", "-c16", f"http://127.0.0.1:{server.port}/index.html"])
    if f"{requests} 2xx" not in said:
        sys.exit(f"bench: requests failed\n{said}")
    return requests, float(re.search(r"([\d.]+) req/s", said)[1])


def take_turns(rig, three, rounds, requests, keys):
    """What a request costs each server, in each round.  keys: of how many, each as often as any; 0: of one."""
    said = rig.load([rig.build / "bench/turns", rounds, requests, keys,
                     *(f"{one.process.pid}:{one.port}" for one in three)])
    return [[float(ns) for ns in line.split()] for line in said.splitlines()]


def memory(server):
    """Bytes that are this process's alone: what nginx's zones and our table take."""
    with open(f"/proc/{server.process.pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))


def cases(rig):
    os.chmod(rig.folder, 0o755)
    (rig.folder / "html").mkdir()
    rig.file("html/index.html", "hello\n")
    upstream = start(rig, "upstream", "return 200 hello;", "", cpus=rig.load_cpus)
    for answer, lines in ANSWERS.items():
        for counted in COUNTED:
            yield from compare(rig, answer, lines, counted, upstream.port)


def compare(rig, answer, lines, counted, upstream):
    keys = rig.quick(KEYS, 1000) if counted != "one key" else 0
    starts, bytes_a_key = [], []
    for _ in range(rig.quick(STARTS_OF_KEYS if keys else STARTS[answer], 1)):
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
            three = list(servers(rig, lines, COUNTED[counted], upstream, folder))
            if keys:
                before = [memory(one) for one in three]
                take_turns(rig, three, 1, keys, keys)  # every key once
                bytes_a_key = [(memory(one) - was) / keys for one, was in zip(three, before)]
            else:
                take_turns(rig, three, 2, REQUESTS, 0)
            requests = rig.quick(REQUESTS_OF_KEYS if keys else REQUESTS, 100)
            rounds = rig.quick(ROUNDS_OF_KEYS if keys else ROUNDS, 2)
            starts.append(take_turns(rig, three, rounds, requests, keys))
            for one in three:
                one.stop()
                rig.servers.remove(one)
    for other, title, target in (1, "nginx", SHARE_OF_BARE), (2, "limit_req", SHARE_OF_LIMIT_REQ):
        yield share(f"{answer}, {counted}: of {title}", target,
                    [[(row[0], row[other]) for row in rows] for rows in starts])
    if keys and answer == "a file":
        ours, _, limit_req = bytes_a_key
        yield Case("bytes a key", ("<=", limit_req), ours, note=f"limit_req {limit_req:.0f}")


def share(title, target, starts):
    """How much of their speed we have: the lower bound counts.  starts: the rounds of each, as pairs."""
    pairs = list(itertools.chain(*starts))
    quotients = [[theirs / ours for ours, theirs in rounds] for rounds in starts]
    spread, median = interval_of_groups(quotients), statistics.median(itertools.chain(*quotients))
    middle = [statistics.median(side) / 1000 for side in zip(*pairs)]
    note = f"{middle[0]:.2f} us against {middle[1]:.2f}; median {median:.4f}, at least {spread[0]:.4f}"
    return Case(title, (">=", target), spread[0], spread, "times", pairs, note)
