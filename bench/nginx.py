"""What limiting costs in nginx's workers: against nginx that adds the same two headers and limits nothing, and against
its own limit_req; for a file and for proxying; on one key, and on a million.

SPDX-License-Identifier: Apache-2.0
"""
import os
import random
import re
import sys

from bench.measure import Case

TITLE = "nginx: share of its speed that is left"
SPREAD = "95% interval"
SHARE_OF_BARE = 0.95
SHARE_OF_LIMIT_REQ = 1.0
KEYS = 1_000_000

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
RULES = """\
domain: bench
descriptors:
  - key: {key}
    rate_limit: {{unit: hour, requests_per_unit: 1000000000, algorithm: token_bucket}}
"""


def start(rig, name, location, answer, http="", load="", upstream=1, cpus=None):
    def command(port):
        text = CONF.format(folder=rig.folder, name=name, port=port, upstream=upstream, http=http, location=location,
                           answer=answer.format(folder=rig.folder), load=load)
        return ["/usr/sbin/nginx", "-p", f"{rig.folder}/", "-c", rig.file(f"{name}.conf", text)]
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


def ask(rig, server, uris, connections=16):
    said = rig.load(["h2load", "--h1", "-n", len(uris), "-c", connections, "-m", 1, "-i",
                     rig.file("uris", "".join(f"http://127.0.0.1:{server.port}/index.html?key={i}\n" for i in uris))])
    if int(re.search(r"(\d+) 2xx", said)[1]) != len(uris):
        sys.exit(f"bench: requests failed\n{said}")
    return float(re.search(r"([\d.]+) req/s", said)[1])


def memory(server):
    pages = {}
    with open(f"/proc/{server.process.pid}/smaps_rollup", encoding="ascii") as file:
        for line in file:
            words = line.split()
            if words[0] in ("Pss:",):
                pages[words[0]] = int(words[1]) * 1024
    return pages["Pss:"]


def cases(rig):
    source = random.Random(1)
    requests, keys = rig.quick(10000, 100), rig.quick(KEYS, 1000)
    (rig.folder / "html").mkdir()
    os.chmod(rig.folder, 0o755)
    rig.file("html/index.html", "hello\n")
    upstream = start(rig, "upstream", "return 200 hello;", "", cpus=rig.load_cpus)
    for answer, lines in ANSWERS.items():
        for counted in COUNTED:
            ours, bare, limit_req = servers(rig, lines, counted, upstream.port)
            before = [memory(one) for one in (ours, limit_req)]
            if counted != "one key":
                for one in (ours, limit_req):
                    ask(rig, one, range(keys), connections=64)
                    rig.load(["true"])

            def cost(server, few=counted == "one key"):
                uris = [0] * requests if few else source.choices(range(keys), k=requests)
                return rig.cost(server, requests, lambda one, n: ask(rig, one, uris))
            for title, target, other in ((f"{answer}, {counted}: of nginx", SHARE_OF_BARE, bare),
                                         (f"{answer}, {counted}: of limit_req", SHARE_OF_LIMIT_REQ, limit_req)):
                case = rig.pairs(title, (">=", target), lambda: cost(ours), lambda other=other: cost(other), is_share=True)
                case.value, case.note = case.spread[0], f"{case.note}; median {case.value:.3f}"  # the lower bound counts
                yield case
            if answer == "a file" and counted != "one key":
                after = [memory(one) for one in (ours, limit_req)]
                per_key = [(b - a) / keys for a, b in zip(before, after)]
                yield Case("bytes a key", ("<=", per_key[1]), per_key[0], note=f"limit_req: {per_key[1]:.0f}")
            for one in (ours, bare, limit_req):
                one.stop()
                rig.servers.remove(one)
