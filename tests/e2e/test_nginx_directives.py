"""Every directive of the nginx module, and every variable, through a real nginx.

SPDX-License-Identifier: Apache-2.0
"""
import json
import re
import subprocess

import pytest

from http_rig import send_raw
from nginx_rig import App, Nginx, PATIENCE_S, ROOT, RULES, wait_for

PER_KEY = """\
domain: api
descriptors:
  - key: {key}
    rate_limit: {{unit: day, requests_per_unit: 2}}
"""


# ---- by the rules' shapes, with nothing else said ----

def test_weir_limit_limits_by_the_rules_and_tells_it():
    with Nginx() as nginx:
        answers = [nginx.ask() for _ in range(5)]
        assert [a.status for a in answers] == [200, 200, 200, 429, 429]
        assert [a.headers["X-Ratelimit-Remaining"] for a in answers] == ["2", "1", "0", "0", "0"]
        assert {a.headers["X-Ratelimit-Limit"] for a in answers} == {"3"}
        assert "Retry-After" not in answers[0].headers and "Cache-Control" not in answers[0].headers
        refused = answers[3].headers
        assert refused["Retry-After"] == refused["X-Ratelimit-Retry-After"]
        assert 1 <= int(refused["Retry-After"]) <= 86400
        assert refused["Cache-Control"] == "no-store"
        assert answers[3].body == b"Too many requests\n"
        assert "refused by rule" in nginx.log()


def test_weir_limit_off_limits_nothing():
    with Nginx(server="location /free { weir_limit off; }", files={"html/free/index.html": "free\n"},
               workers=1) as nginx:
        assert nginx.statuses(4) == [200, 200, 200, 429]
        answer = nginx.ask("/free/")
        assert answer.status == 200 and "X-Ratelimit-Limit" not in answer.headers
        assert nginx.wait_for_access(5)[-1]["verdict"] == "-"


@pytest.mark.parametrize("key, one, other", [
    ("path", dict(path="/a"), dict(path="/b")),
    ("method", dict(method="GET"), dict(method="HEAD")),
    ("host", dict(Host="a.example"), dict(Host="b.example")),
    ("header.X-Api-Key", dict(x_api_key="a"), dict(X_Api_Key="b")),
    ("cookie.session", dict(Cookie="x=1; session=a"), dict(Cookie="session=b; session=a")),
    ("query.token", dict(path="/?x=1&token=a%20b"), dict(path="/?token=ab")),
    ("remote_address", dict(source="127.0.0.1"), dict(source="127.0.0.2")),
])
def test_each_attribute_is_counted_by_itself(key, one, other):
    files = {f"html/{name}": "file\n" for name in "ab"}
    with Nginx(PER_KEY.format(key=key), files=files) as nginx:
        assert [nginx.ask(**one).status for _ in range(3)] == [200, 200, 429]
        assert [nginx.ask(**other).status for _ in range(3)] == [200, 200, 429]


@pytest.mark.parametrize("paths",
                         [["/a", "//a", "/%61", "/x/../a"], ["/?token=a+b", "/?token=a%20b", "/?t=1&token=a%20b"]])
def test_spellings_of_one_thing_are_one(paths):
    key = "path" if "token" not in paths[0] else "query.token"
    with Nginx(PER_KEY.format(key=key), files={"html/a": "a\n"}) as nginx:
        assert [nginx.ask(path).status for path in paths][:2] == [200, 200]
        assert {nginx.ask(path).status for path in paths} == {429}


def test_a_request_without_the_attribute_is_bypassed():
    with Nginx(PER_KEY.format(key="header.X-Api-Key")) as nginx:
        answer = nginx.ask()
        assert "X-Ratelimit-Limit" not in answer.headers
        assert nginx.wait_for_access(1)[0]["verdict"] == "BYPASSED"


def test_if_absent_deny_refuses():
    rules = "domain: api\ndescriptors:\n" \
            "  - {key: header.X-Key, if_absent: deny, rate_limit: {unit: day, requests_per_unit: 9}}\n"
    with Nginx(rules) as nginx:
        assert nginx.ask().status == 429
        assert nginx.ask(X_Key="a").status == 200


def test_a_value_that_is_too_long_is_refused_and_the_longest_is_counted():
    with Nginx(PER_KEY.format(key="header.X-Api-Key"), http="large_client_header_buffers 4 16k;") as nginx:
        assert [nginx.ask(X_Api_Key="k" * 4096).status for _ in range(3)] == [200, 200, 429]
        assert [nginx.ask(X_Api_Key="k" * 4095 + "x").status for _ in range(3)] == [200, 200, 429]
        assert nginx.ask(X_Api_Key="k" * 4097).status == 400


# ---- addresses ----

@pytest.mark.parametrize("directive", ["weir_trusted_proxies 127.0.0.1 10.0.0.0/8;",
                                       "set_real_ip_from 127.0.0.1; set_real_ip_from 10.0.0.0/8; "
                                       "real_ip_header X-Forwarded-For; real_ip_recursive on;"])
def test_trusted_proxies_tell_the_client_and_others_do_not(directive):
    with Nginx(PER_KEY.format(key="remote_address"), http=directive) as nginx:
        def ask(forwarded, source="127.0.0.1"):
            return [nginx.ask(source=source, X_Forwarded_For=forwarded).status for _ in range(3)]
        assert ask("192.0.2.1") == [200, 200, 429]
        assert ask("6.6.6.6, 192.0.2.2, 10.1.2.3") == [200, 200, 429]
        assert ask("7.7.7.7, 192.0.2.2, 10.9.9.9") == [429] * 3  # what the client writes does not matter
        assert ask("192.0.2.9", "127.0.0.5") == [200, 200, 429]
        assert ask("192.0.2.8", "127.0.0.5") == [429] * 3


def test_ipv6_clients_are_counted_by_their_64_and_mapped_ones_as_ipv4():
    with Nginx(PER_KEY.format(key="remote_address"), http="weir_trusted_proxies 127.0.0.1;") as nginx:
        def ask(address):
            return nginx.ask(X_Forwarded_For=address).status
        assert [ask("2001:db8::1"), ask("2001:db8::2"), ask("2001:db8:0:0:ffff::3")] == [200, 200, 429]
        assert ask("2001:db8:0:1::1") == 200
        assert [ask("192.0.2.1"), ask("::ffff:192.0.2.1"), ask("::ffff:c000:201")] == [200, 200, 429]


def test_prefixes_are_the_rules():
    prefixes = "ipv4_prefix: 24\n    ipv6_prefix: 48\n    rate_limit"
    rules = PER_KEY.format(key="remote_address").replace("rate_limit", prefixes)
    with Nginx(rules, http="weir_trusted_proxies 127.0.0.1;") as nginx:
        asked = ["192.0.2.1", "192.0.2.99", "192.0.2.255", "192.0.3.1", "2001:db8::1", "2001:db8:0:9::1", "2001:db8::3"]
        assert [nginx.ask(X_Forwarded_For=a).status for a in asked] == [200, 200, 429, 200, 200, 200, 429]


def test_clients_of_a_unix_socket_are_one():
    with Nginx(PER_KEY.format(key="remote_address"), server="listen unix:{folder}/socket;") as nginx:
        def ask(*more):
            done = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--unix-socket",
                                   nginx.folder / "socket", *more, "http://weir/"], capture_output=True, text=True,
                                  timeout=30)
            return done.stdout
        assert [ask() for _ in range(3)] == ["200", "200", "429"]


# ---- what the configuration says ----

def test_domain_chooses_among_several():
    rules = {"rules/a.yaml": "domain: a\ndescriptors: [{key: path, rate_limit: {unit: day, requests_per_unit: 1}}]\n",
             "rules/b.yaml": "domain: b\ndescriptors: [{key: path, rate_limit: {unit: day, requests_per_unit: 2}}]\n"}
    http = "weir_table {folder}/table size=8m; weir_rules {folder}/rules; " \
           "map $http_x_domain $domain { default a; b b; c c; }"
    servers = "server { listen 127.0.0.1:{port}; root {folder}/html; location / { weir_limit on domain=$domain; } " \
              "location /none { weir_limit on; } }"
    with Nginx(None, http=http, servers=servers, files=rules) as nginx:
        assert nginx.statuses(2) == [200, 429]
        assert nginx.statuses(3, X_Domain="b") == [200, 200, 429]
        assert nginx.statuses(2, X_Domain="c") == [200, 200]
        assert "nothing is limited here: not found" in nginx.log()
        assert nginx.ask("/none").status == 404
        wait_for(lambda: "the rules have several domains" in nginx.log() or nginx.ask("/none") is None, "it is told")


def test_descriptors_can_be_said():
    rules = """\
domain: api
descriptors:
  - {key: tenant, rate_limit: {unit: day, requests_per_unit: 2}}
  - key: tenant
    value: acme
    descriptors:
      - {key: page, rate_limit: {unit: day, requests_per_unit: 3}}
"""
    with Nginx(rules, server="""location /t { alias {folder}/html/; weir_limit on domain=api;
        weir_descriptor tenant=$arg_t; weir_descriptor tenant=acme page=$arg_p hits=$arg_h; }""") as nginx:
        assert nginx.ask("/t/?t=a").headers["X-Ratelimit-Limit"] == "2"
        assert [nginx.ask("/t/?t=a").status for _ in range(2)] == [200, 429]
        assert [nginx.ask("/t/?p=1&h=2").status, nginx.ask("/t/?p=1&h=2").status] == [200, 429]
        assert nginx.ask("/t/?p=2&h=x").headers["X-Ratelimit-Remaining"] == "2"
        assert "X-Ratelimit-Limit" not in nginx.ask("/t/").headers
        assert 'hits "x" is not a number' in nginx.log()


def test_attributes_fill_other_keys_and_tiers_are_looked_up():
    rules = """\
domain: api
attributes:
  tier: {from: account, map: tiers.csv, default: free}
descriptors:
  - key: tier
    value: gold
    descriptors:
      - {key: account, rate_limit: {unit: day, requests_per_unit: 3}}
  - key: tier
    value: free
    descriptors:
      - {key: account, rate_limit: {unit: day, requests_per_unit: 1}}
"""
    with Nginx(rules, location="weir_attribute account $http_x_account;", files={"tiers.csv": "ann,gold\n"}) as nginx:
        assert nginx.statuses(4, X_Account="ann") == [200, 200, 200, 429]
        assert nginx.statuses(2, X_Account="bob") == [200, 429]
        assert nginx.statuses(2) == [200, 200]  # nobody to count


def test_hits_come_from_a_variable():
    with Nginx(location="weir_hits $arg_n;") as nginx:
        assert nginx.ask("/?n=2").headers["X-Ratelimit-Remaining"] == "1"
        assert nginx.ask("/?n=0").headers["X-Ratelimit-Remaining"] == "1"
        assert nginx.ask("/?n=-7").headers["X-Ratelimit-Remaining"] == "0"  # not a number, so 1
        assert nginx.ask("/?n=1").status == 429


def test_status_of_a_refusal():
    with Nginx(location="weir_status 503;") as nginx:
        assert nginx.statuses(4) == [200, 200, 200, 503]


def test_status_444_closes_without_a_word():
    with Nginx(location="weir_status 444;", listen=" http2") as nginx:
        done = subprocess.run(["nghttp", "-v", *[f"http://127.0.0.1:{nginx.port}/?{i}" for i in range(4)]],
                              capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.stdout.count(":status: 200") == 3 and ":status: 444" not in done.stdout
    with Nginx(location="weir_status 444;") as nginx:
        assert nginx.statuses(3) == [200] * 3
        assert send_raw(nginx.port, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n") == b""
        assert sorted(one["status"] for one in nginx.wait_for_access(4)) == ["200"] * 3 + ["444"]


@pytest.mark.parametrize("dialects, on_200, on_429", [
    ("none", set(), {"Cache-Control"}),
    ("ietf-11", {"RateLimit", "RateLimit-Policy"}, {"RateLimit", "RateLimit-Policy", "Retry-After", "Cache-Control"}),
    ("legacy ietf-11", {"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "RateLimit", "RateLimit-Policy"},
     {"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Retry-After", "RateLimit", "RateLimit-Policy",
      "Retry-After", "Cache-Control"}),
    ("reset-epoch", {"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"},
     {"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "X-Ratelimit-Retry-After", "Retry-After",
      "Cache-Control"}),
])
def test_dialects(dialects, on_200, on_429):
    with Nginx(location=f"weir_headers {dialects};") as nginx:
        nobody = {"Server", "Date", "Content-Type", "Content-Length", "Last-Modified", "Connection", "ETag",
                  "Accept-Ranges"}
        answers = [nginx.ask() for _ in range(4)]
        for answer, wanted in ((answers[0], on_200), (answers[3], on_429)):
            names = [name for name, _ in answer.pairs if name not in nobody]
            assert sorted(names) == sorted(wanted)  # each once
        if "ietf-11" in dialects:
            assert answers[0].headers["RateLimit-Policy"] == '"per_address";q=3;w=86400'
            assert re.fullmatch(r'"per_address";r=2;t=\d+', answers[0].headers["RateLimit"])


def test_bodies():
    places = {"plain": b"Too many requests\n", "none": b"", "html": b"<html>",
              "'Slow down, $remote_addr.'": b"Slow down, 127.0.0.1."}
    locations = "".join(f"location /{i} {{ alias {{folder}}/html/; weir_limit on; weir_body {word}; }}\n"
                        for i, word in enumerate([*places, "problem"]))
    rules = RULES.replace("requests_per_unit: 3", "requests_per_unit: 0")
    with Nginx(rules, server=locations) as nginx:
        for i, body in enumerate(places.values()):
            answer = nginx.ask(f"/{i}/")
            assert answer.status == 429 and (answer.body.startswith(body) if body else answer.body == b"")
        problem = nginx.ask(f"/{len(places)}/")
        assert problem.headers["Content-Type"] == "application/problem+json"
        assert json.loads(problem.body)["violated-policies"] == ["per_address"]
        assert nginx.ask("/0/", method="HEAD").body == b""


def test_a_dry_run_counts_and_refuses_nothing():
    with Nginx(location="weir_dry_run on;", workers=1) as nginx:
        answers = [nginx.ask() for _ in range(5)]
        assert {a.status for a in answers} == {200}
        assert not any("X-Ratelimit-Limit" in a.headers for a in answers)
        assert [line["verdict"] for line in nginx.wait_for_access(5)] == ["PASSED"] * 3 + ["REJECTED_DRY_RUN"] * 2


def test_variables():
    with Nginx(workers=1) as nginx:
        nginx.statuses(4)
        lines = nginx.wait_for_access(4)
        assert [line["verdict"] for line in lines] == ["PASSED"] * 3 + ["REJECTED"]
        assert {line["rule"] for line in lines} == {"api.remote_address"}
        assert [line["remaining"] for line in lines] == ["2", "1", "0", "0"]
        assert {line["limit"] for line in lines} == {"3"} and {line["delay"] for line in lines} == {"0.000"}
        assert [line["retry_after"] for line in lines[:3]] == ["-"] * 3 and int(lines[3]["retry_after"]) >= 1


def test_log_level():
    with Nginx(location="weir_log_level notice;") as nginx:
        nginx.statuses(4)
        assert re.search(r"\[notice\].*weir: refused by rule", nginx.log())


# ---- inheritance ----

def test_a_location_inherits_and_replaces():
    servers = """server {
        listen 127.0.0.1:{port};
        root {folder}/html;
        weir_limit on;
        weir_status 420;
        weir_attribute account $http_x_account;
        location / { }
        location /own { alias {folder}/html/; weir_status 421; weir_attribute other 1; }
        location /off { alias {folder}/html/; weir_limit off; }
    }"""
    with Nginx(PER_KEY.format(key="account"), servers=servers) as nginx:
        assert nginx.statuses(3, X_Account="a") == [200, 200, 420]
        assert nginx.statuses(3, "/own/", X_Account="a") == [200] * 3  # its own attributes, and no others
        assert nginx.statuses(3, "/off/", X_Account="a") == [200] * 3


# ---- mistakes ----

@pytest.mark.parametrize("line, words", [
    ("weir_limit maybe;", 'invalid parameter "maybe"'),
    ("weir_limit on phase=log;", 'invalid parameter "phase=log" (it may be domain=NAME, phase=auto, phase=pre'),
    ("weir_limit on; weir_limit off;", "is duplicate"),
    ("weir_status 200;", "must be"),
    ("weir_headers legacy modern;", 'invalid parameter "modern"'),
    ("weir_headers reset-epoch reset-delta;", "one meaning of reset"),
    ("weir_descriptor user;", 'invalid parameter "user"'),
    ("weir_limit on; weir_descriptor user=$remote_user;", "domain=NAME"),
    ("weir_descriptor hits=1;", "needs a KEY=VALUE"),
    ("weir_attribute user $remote_user;", "weir_user says who the user is"),
    ("weir_attribute remote_address $arg_a;", "is for other keys"),
    ("weir_attribute path $arg_a;", "is for other keys"),
    ("weir_attribute account $arg_a; weir_attribute account $arg_b;", "has had this key already"),
    ("weir_log_level debug;", 'invalid value "debug"'),
    ("weir_hits $no_such_variable;", "unknown"),
])
def test_mistakes_of_a_location_are_told(line, words):
    server = "server { listen 127.0.0.1:{port}; location / { %s } }" % line
    with Nginx(servers=server, starts=False) as nginx:
        is_good, said = nginx.test()
        assert not is_good and words in said


@pytest.mark.parametrize("http, words", [
    ("weir_rules {folder}/rules.yaml; weir_table {folder}/table size=none;", 'invalid parameter "size=none"'),
    ("weir_rules {folder}/none.yaml;", "none.yaml"),
    ("weir_rules {folder}/rules.yaml threads=nobody;", "unknown thread pool"),
    ("weir_rules {folder}/rules.yaml; weir_queue many;", 'invalid parameter "many"'),
    ("weir_rules {folder}/rules.yaml; weir_queue 9 timeout=soon;", 'invalid parameter "timeout=soon"'),
    ("weir_rules {folder}/rules.yaml; weir_trusted_proxies somewhere;", 'invalid parameter "somewhere"'),
    ("weir_rules {folder}/bad.yaml;", "bad.yaml:4:24: unit 'minutes' is not known; did you mean 'minute'?"),
    ("weir_rules {folder}/rules.yaml; weir_table {folder}/rules.yaml;", "weir cannot be opened"),
    ("", '"weir_limit" needs "weir_rules"'),
])
def test_mistakes_of_the_whole_are_told(http, words):
    bad = "domain: d\ndescriptors:\n  - key: path\n    rate_limit: {unit: minutes, requests_per_unit: 3}\n"
    servers = "server { listen 127.0.0.1:{port}; location / { weir_limit on; } }"
    with Nginx(None, http=http, servers=servers, files={"bad.yaml": bad, "rules.yaml": RULES}, starts=False) as nginx:
        is_good, said = nginx.test()
        assert not is_good and words in said


def test_the_module_costs_nothing_where_nothing_is_limited():
    with Nginx(None, servers="server { listen 127.0.0.1:{port}; root {folder}/html; }") as nginx:
        assert nginx.ask().status == 200
        assert not (nginx.folder / "table").exists()


def test_every_directive_and_variable_is_told():
    code = (ROOT / "nginx/ngx_http_weir_conf.c").read_text()
    page = (ROOT / "docs/nginx.md").read_text()
    directives = re.findall(r'OF_(?:ALL|PLACE)\("(\w+)"', code)
    variables = re.findall(r'ngx_string\("(weir_\w+)"\), [A-Z_]+}', (ROOT / "nginx/ngx_weir_variables.c").read_text())
    assert len(directives) == 15 and len(variables) == 6
    assert [name for name in directives if f"`{name} " not in page] == []
    assert [name for name in variables if f"`${name}`" not in page] == []


def test_upstream_headers_of_the_same_names_give_way():
    told = {"X-RateLimit-Limit": "999", "X-Ratelimit-Reset": "5", "RateLimit": "x", "Retry-After": "7",
            "X-Other": "stays"}
    with App(lambda handler: (200, told, b"app\n")) as app:
        with Nginx(location=f"proxy_pass http://127.0.0.1:{app.port};") as nginx:
            answer = nginx.ask()
            assert [v for name, v in answer.pairs if name.lower() == "x-ratelimit-limit"] == ["3"]
            assert "X-Ratelimit-Reset" not in answer.headers and "RateLimit" not in answer.headers
            assert answer.headers["X-Other"] == "stays" and answer.headers["Retry-After"] == "7"
