"""What limiting costs in nginx's workers: against nginx that adds the same two headers and limits nothing, and against
its own limit_req; for a file and for proxying; on one key, and on a million.

SPDX-License-Identifier: Apache-2.0
"""
import os
import random
import re
import sys

from bench.measure import PAIRS, Case, quotient

TITLE = "nginx: share of its speed that is left"
SPREAD = "95% interval"
SHARE_OF_BARE = 0.95
SHARE_OF_LIMIT_REQ = 1.0
KEYS = 1_000_000
SHORT = 6000            # requests of a short turn
SHORT_PAIRS = 30        # of each start
STARTS = 5              # where a process's memory happens to lie makes a difference of its own

HEADERS = "add_header X-Ratelimit-Limit 1000000000; add_header X-Ratelimit-Remaining 999999999;"
ANSWERS = {"a file": "root {folder}/html; open_file_cache max=10;",
           "proxying": "proxy_pass http://upstream; proxy_http_version 1.1; proxy_set_header Connection '';"}
# By what is counted: a key of our rules, limit_req's key, and the room that it needs.
COUNTED = {"one key": ("remote_address", "$binary_remote_addr", "1m"), "a million keys": ("query.key", "$arg_key", "256m")}
CONF = """\
{load}
daemon off;
master_process off;
pid {folder}/{name}.pid;
error_log {folder}/{name}.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
    uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
    upstream upstream {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 1000000000; }}
    {http}
    server {{ listen 127.0.0.1:{port}; location / {{ {location} {answer} }} }}
}}
"""
# Every key once before any comes again, in an order that no cache can guess.
SCRIPT = """\
local key, keys = {begin}, {keys}
request = function()
    key = key + 1
    return wrk.format("GET", "/index.html?key=" .. key * 618033 % keys)
end
"""
RULES = """\
domain: bench
descriptors:
  - key: {key}
    rate_limit: {{unit: hour, requests_per_unit: 1000000000, algorithm: token_bucket}}
"""


def start(rig, name, location, answer, http="", load="", upstream=1, cpus=None, before=()):
    """nginx, one process; before: a program to run it under."""
    def command(port):
        text = CONF.format(folder=rig.folder, name=name, port=port, upstream=upstream, http=http, location=location,
                           answer=answer.format(folder=rig.folder), load=load)
        return [*before, "/usr/sbin/nginx", "-p", f"{rig.folder}/", "-c", rig.file(f"{name}.conf", text)]
    return rig.serve(command, cpus)


def servers(rig, answer, counted, upstream):
    """Ours, nginx without limits, and limit_req: each answers the same."""
    key, zone_key, zone_size = COUNTED[counted]
    name = f"{len(rig.servers)}"
    rules = rig.file(f"{name}.yaml", RULES.format(key=key))
    yield start(rig, f"weir{name}", "weir_limit on;", answer, upstream=upstream,
                load=f"load_module {rig.build}/nginx/ngx_http_weir_module.so;",
                http=f"weir_rules {rules}; weir_table {rig.folder}/table{name} size=64m;")
    yield start(rig, f"bare{name}", HEADERS, answer, upstream=upstream)
    yield start(rig, f"limit_req{name}", f"limit_req zone=z burst=1000000 nodelay; {HEADERS}", answer, upstream=upstream,
                http=f"limit_req_zone {zone_key} zone=z:{zone_size} rate=1000000r/s;")


def ask(rig, server, begin=None, seconds=1):
    """Loads a server for a while; requests, and requests a second.  begin: the first of all keys, else there is one."""
    if rig.is_quick or begin is None:
        return ask_for_one(rig, server, begin or 0)
    script = rig.file("ask.lua", SCRIPT.format(keys=KEYS, begin=begin))
    said = rig.load(["wrk", "-t1", "-c16", f"-d{seconds}s", "-s", script, f"http://127.0.0.1:{server.port}/index.html"])
    if "Non-2xx" in said or "Socket errors" in said:
        sys.exit(f"bench: requests failed\n{said}")
    requests, took, unit = re.search(r"(\d+) requests in ([\d.]+)(ms|s|m)", said).groups()
    return int(requests), int(requests) / float(took) / {"ms": 0.001, "s": 1, "m": 60}[unit]


def ask_for_one(rig, server, key):
    """A short while: many short turns tell more of two servers than a few long ones."""
    requests = rig.quick(SHORT, 100)
    said = rig.load(["h2load", "--h1", f"-n{requests}", "-c16", f"http://127.0.0.1:{server.port}/index.html?key={key}"])
    if f"{requests} 2xx" not in said:
        sys.exit(f"bench: requests failed\n{said}")
    return requests, float(re.search(r"([\d.]+) req/s", said)[1])


def memory(server):
    """Bytes that are this process's alone: what nginx's zones and our table take."""
    with open(f"/proc/{server.process.pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))


def fill(rig, server):
    """Asks for every key once; the bytes that each took."""
    asked, keys, before = 0, rig.quick(KEYS, 1000), memory(server)
    while asked < keys:
        asked += ask(rig, server, asked, 5)[0]
    return (memory(server) - before) / keys


def cost(rig, server, has_keys):
    before = server.cpu_ns()
    requests, rate = ask(rig, server, random.randrange(KEYS) if has_keys else None)
    return (server.cpu_ns() - before) / requests, rate


def cases(rig):
    os.chmod(rig.folder, 0o755)
    (rig.folder / "html").mkdir()
    rig.file("html/index.html", "hello\n")
    upstream = start(rig, "upstream", "return 200 hello;", "", cpus=rig.load_cpus)
    for answer, lines in ANSWERS.items():
        for counted in COUNTED:
            yield from compare(rig, answer, lines, counted, upstream.port)


def compare(rig, answer, lines, counted, upstream):
    has_keys = counted != "one key"
    bytes_a_key, runs = None, {"nginx": [], "limit_req": []}
    for _ in range(1 if has_keys else rig.quick(STARTS, 1)):
        ours, bare, limit_req = three = list(servers(rig, lines, counted, upstream))
        if has_keys:
            bytes_a_key = [fill(rig, one) for one in (ours, limit_req)]
        for title, other in ("nginx", bare), ("limit_req", limit_req):
            runs[title] += rig.turns(lambda ours=ours: cost(rig, ours, has_keys), lambda other=other: cost(rig, other, has_keys),
                                     PAIRS if has_keys else SHORT_PAIRS)
        for one in three:
            one.stop()
            rig.servers.remove(one)
    for title, target in ("nginx", SHARE_OF_BARE), ("limit_req", SHARE_OF_LIMIT_REQ):
        case = quotient(f"{answer}, {counted}: of {title}", (">=", target), runs[title], is_share=True)
        case.value, case.note = case.spread[0], f"{case.note}; median {case.value:.3f}"  # the lower bound counts
        yield case
    if bytes_a_key and answer == "a file":
        yield Case("bytes a key", ("<=", bytes_a_key[1]), bytes_a_key[0], note=f"limit_req {bytes_a_key[1]:.0f}")
