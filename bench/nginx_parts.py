"""What each part of limiting costs in an nginx worker: instructions of a request for a small file, by callgrind.

Configurations that differ by one part are counted; the difference is the part's.  The kernel's work is not in it, which
is the same for all and most of what a request costs.

SPDX-License-Identifier: Apache-2.0
"""
import os
import re

from bench import nginx
from bench.measure import Case

TITLE = "nginx: instructions of a request, by part"
SPREAD = ""

RULE = nginx.ONE.rules()
SECOND = RULE + "  - {key: path, rate_limit: {unit: hour, requests_per_unit: 1000000000}}\n"
NO_RULE = RULE.replace(nginx.ONE.key, "query.absent")
ZONE = nginx.ONE.zone()
# (what it is, the number of the line that it is compared with, our rules, the location, the rest of http).
LINES = (
    ("nginx that serves the file", None, None, "", ""),
    ("nginx: two headers, by add_header", 0, None, nginx.ONE.headers(), ""),
    ("limit_req", 0, None, "limit_req zone=z burst=1000000 nodelay;", ZONE),
    ("weir: asked, and no rule applies", 0, NO_RULE, "weir_limit on; weir_headers none;", ""),
    ("weir: one limit, of a client that comes again", 3, RULE, "weir_limit on; weir_headers none;", ""),
    ("weir: two headers", 4, RULE, "weir_limit on;", ""),
    ("weir: another limit", 5, SECOND, "weir_limit on;", ""),
)


def cases(rig):
    os.chmod(rig.folder, 0o755)
    (rig.folder / "html").mkdir()
    rig.file("html/index.html", "hello\n")
    counted = []
    for number, (title, before, rules, location, http) in enumerate(LINES):
        counted.append(instructions(rig, number, rules, location, http))
        yield Case(title, None, counted[number] - (counted[before] if before is not None else 0), None, "instr.")


def instructions(rig, number, rules, location, http):
    """Of a request: from start to end, with few requests and with more, the difference is the requests'."""
    few, more = rig.quick((500, 5500), (50, 100))
    counts = [whole_run(rig, f"{number}-{requests}", rules, location, http, requests) for requests in (few, more)]
    return (counts[1] - counts[0]) / (more - few)


def whole_run(rig, name, rules, location, http, requests):
    log = rig.folder / f"{name}.callgrind"
    load = ""
    if rules:
        load = f"load_module {rig.build}/nginx/ngx_http_weir_module.so;"
        http = f"weir_rules {rig.file(f'{name}.yaml', rules)}; weir_table {rig.folder}/table{name} size=1m;"
    server = nginx.start(rig, name, location, nginx.ANSWERS["a file"], http, load,
                         before=["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--log-file={log}"])
    said = rig.load(["h2load", "--h1", f"-n{requests}", "-c1", f"http://127.0.0.1:{server.port}/index.html"])
    assert f"{requests} 2xx" in said, said
    server.stop()
    rig.servers.remove(server)
    return int(re.search(r"Collected : (\d+)", log.read_text(encoding="utf-8"))[1])
