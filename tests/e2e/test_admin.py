"""The admin listener: metrics that Prometheus can read, the rules as loaded, keys looked at and reset, and who may ask.

SPDX-License-Identifier: Apache-2.0
"""
import http.client
import json
import re
import socket

import pytest
import redis

from redis_rig import Server
from service import ROOT, Service

RULES = """\
domain: api
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 3}
  - key: path
    value: /pay
    descriptors:
      - key: user
        rate_limit: {algorithm: token_bucket, unit: hour, requests_per_unit: 2, burst: 5}
        shadow_mode: true
        descriptors:
          - key: deep
            rate_limit: {unit: day, requests_per_unit: 7}
  - key: free
    rate_limit: {unlimited: true}
  - key: odd
    value: "a\\"b\\\\c"
    rate_limit: {unit: second, requests_per_unit: 1}
"""
CHANGE = {"X-Weir-Request": "1"}
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (-?[0-9.e+-]+)")


@pytest.fixture(scope="module")
def weir(tmp_path_factory):
    with Service(tmp_path_factory.mktemp("admin"), RULES, listeners=("grpc", "http", "resp", "admin")) as service:
        yield service


def ask(weir, path, method="GET", headers=None, body=None, listener="admin"):
    connection = http.client.HTTPConnection("127.0.0.1", weir.port(listener), timeout=10)
    connection.request(method, path, body=body, headers=headers or {})
    answer = connection.getresponse()
    answer.text = answer.read().decode()
    connection.close()
    return answer


def spend(weir, *entries, hits=1, domain="api"):
    body = {"domain": domain, "descriptors": [{"entries": [{"key": key, "value": value} for key, value in entries],
                                              "hitsAddend": str(hits)}]}
    return ask(weir, "/json", "POST", body=json.dumps(body), listener="http").status


def read_metrics(text):
    """{(name, labels): value}; complains as promtool would."""
    samples, heads, family = {}, {}, None
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split(" ", 3)[2]
            assert family not in heads, f"{family} twice"
            heads[family] = None
        elif line.startswith("# TYPE "):
            assert line.split()[2] == family and line.split()[3] in ("counter", "gauge")
            heads[family] = line.split()[3]
        else:
            found = SAMPLE.fullmatch(line)
            assert found, line
            name, labels, value = found.groups()
            assert name == family and heads[family], line
            assert (name, labels) not in samples, f"twice: {line}"
            samples[name, labels] = float(value)
    for name, kind in heads.items():
        assert kind == "gauge" or name.endswith("_total") or name.startswith("ratelimit_"), name
    return samples


# ---- metrics ----

def test_metrics_are_what_prometheus_reads(weir):
    spend(weir, ("user", "metric"))
    spend(weir, ("user", "metric"), hits=5)
    redis.Redis(port=weir.port("resp")).execute_command("CL.THROTTLE", "k", 1, 1, 60)
    answer = ask(weir, "/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    metrics = read_metrics(answer.text)
    assert metrics["weir_rule_hits_total", 'rule="api.user"'] == 6
    assert metrics["weir_rule_over_limit_total", 'rule="api.user"'] == 3
    assert metrics["weir_rule_within_limit_total", 'rule="api.user"'] == 1
    assert metrics["weir_rule_limit", 'rule="api.user"'] == 3
    assert metrics["weir_rule_hits_total", r'rule="api.odd_a\"b\\c"'] == 0
    assert metrics["weir_requests_total", 'protocol="http"'] == 2
    assert metrics["weir_requests_over_limit_total", 'protocol="http"'] == 1
    assert metrics["weir_requests_total", 'protocol="resp"'] == 1
    assert metrics["weir_connections_accepted_total", 'protocol="resp"'] == 1
    assert metrics["weir_rules_generation", None] == 1 and metrics["weir_healthy", None] == 1
    assert abs(metrics["weir_clock_offset_seconds", None]) < 2
    assert metrics["weir_table_slots", None] > metrics["weir_table_slots_live", None] >= 1
    assert metrics["weir_metrics_left_out", None] == 0
    assert sum(name == "weir_connections" for name, _ in metrics) == 4


def test_a_domain_that_nobody_knows_is_seen(weir):
    for _ in range(3):
        spend(weir, ("user", "ann"), domain="apj")
    assert read_metrics(ask(weir, "/metrics").text)["weir_domain_not_found_total", 'domain="apj"'] == 3
    assert read_metrics(ask(weir, "/metrics?format=ratelimit").text)[
        "ratelimit_service_rate_limit_domain_not_found", 'domain="apj"'] == 3


def test_the_docs_list_every_metric_and_no_other(tmp_path):
    eventual = "  - {key: soon, rate_limit: {unit: day, requests_per_unit: 3, consistency: eventual}}\n"
    with Server(tmp_path / "redis") as store, \
            Service(tmp_path, RULES + eventual, ["--store", store.url, "--store-global", store.url, "--site", "here"],
                    listeners=("grpc", "http", "resp", "admin")) as weir:
        spend(weir, ("user", "ann"))
        spend(weir, ("user", "ann"), domain="nobody's")
        has = {name for name, _ in read_metrics(ask(weir, "/metrics").text)}
    has |= {"weir_eventual_over_admitted_total"}      # of rules that have
    docs = (ROOT / "docs/operations.md").read_text()
    rows = re.search(r"\n## Metrics\n(.*?)\n## ", docs, re.S)[1].splitlines()
    listed = [name for row in rows if row.startswith("| `") for name in re.findall(r"`(weir_\w+)`", row.split("|")[1])]
    assert sorted(listed) == sorted(has)


def test_metrics_under_envoys_names(weir):
    spend(weir, ("path", "/pay"), ("user", "a"))
    spend(weir, ("path", "/pay"), ("user", "a"), ("deep", "b"))
    metrics = read_metrics(ask(weir, "/metrics?format=ratelimit").text)
    labels = 'domain="api",key1="path_/pay",key2="user"'
    assert metrics["ratelimit_service_rate_limit_total_hits", labels] == 2     # the deeper level is added
    assert ("ratelimit_service_rate_limit_over_limit", 'domain="api",key1="user"') in metrics
    assert metrics["ratelimit_service_config_load_success", None] == 1
    assert ("ratelimit_service_total_requests", 'grpc_method="ShouldRateLimit"') in metrics


def test_cardinality_is_bounded(tmp_path):
    rules = "domain: d\ndescriptors:\n" + "".join(
        f"  - {{key: k, value: v{i}, rate_limit: {{unit: day, requests_per_unit: 9}}}}\n" for i in range(6000))
    with Service(tmp_path, rules, listeners=("admin",)) as weir:
        answer = ask(weir, "/metrics")
        metrics = read_metrics(answer.text)
        assert sum(name == "weir_rule_hits_total" for name, _ in metrics) <= 4097
        assert len(answer.text) < 3 << 20
        rules = json.loads(ask(weir, "/api/v1/rules").text)
        assert rules["count"] == 6000


# ---- rules ----

def test_rlconfig_is_as_envoys(weir):
    assert sorted(ask(weir, "/rlconfig").text.splitlines()) == sorted([
        "api.user: unit=MINUTE requests_per_unit=3, shadow_mode: false, quota_mode: false",
        "api.path_/pay.user: unit=HOUR requests_per_unit=2, shadow_mode: true, quota_mode: false",
        "api.path_/pay.user.deep: unit=DAY requests_per_unit=7, shadow_mode: false, quota_mode: false",
        "api.free: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false",
        'api.odd_a"b\\c: unit=SECOND requests_per_unit=1, shadow_mode: false, quota_mode: false',
    ])


def test_rules_as_loaded(weir):
    said = json.loads(ask(weir, "/api/v1/rules").text)
    rules = {rule["id"]: rule for rule in said["rules"]}
    assert said["count"] == len(rules) == 5 and said["generation"] == 1
    pay = rules["api.path_/pay.user"]
    assert pay["shadow_mode"] and pay["limits"] == [
        {"algorithm": "token_bucket", "requests": 2, "window_s": 3600, "burst": 5}]
    assert rules["api.free"]["unlimited"] and 'api.odd_a"b\\c' in rules
    assert len(json.loads(ask(weir, "/api/v1/rules?from=3").text)["rules"]) == 2
    assert json.loads(ask(weir, "/api/v1/rules?from=99").text)["rules"] == []


# ---- keys ----

def test_a_key_is_looked_at_and_reset(weir):
    key = "/api/v1/key?domain=api&user=al%69ce"

    def left():
        return json.loads(ask(weir, key).text)["descriptors"][0]

    assert left()["remaining"] == 3
    assert spend(weir, ("user", "alice"), hits=2) == 200
    assert left()["remaining"] == 1 and left()["rule"] == "api.user" and left()["limit"] == 3
    assert spend(weir, ("user", "bob"), hits=3) == 200
    assert ask(weir, key, "DELETE").status == 403                    # no form may do this
    assert json.loads(ask(weir, key, "DELETE", CHANGE).text) == {"cleared": 1}
    assert left()["remaining"] == 3
    assert json.loads(ask(weir, key, "DELETE", CHANGE).text) == {"cleared": 0}
    assert spend(weir, ("user", "bob")) == 429                       # others keep what they used
    weir.wait_for("changed")
    assert "alice" not in "\n".join(weir.lines)


@pytest.mark.parametrize("query", ["", "?domain=api", "?user=x", "?domain=&user=x",
                                   "?domain=api" + "&k=v" * 33, "?domain=api&k=" + "v" * 4097])
def test_a_key_must_be_named(weir, query):
    assert ask(weir, "/api/v1/key" + query).status == 400


def test_explain_takes_nothing(weir):
    body = json.dumps({"domain": "api", "descriptors": [
        {"entries": [{"key": "user", "value": "explained"}]}, {"entries": [{"key": "nobody", "value": "knows"}]},
        {"entries": [{"key": "free", "value": "x"}]}]})
    for _ in range(5):
        said = json.loads(ask(weir, "/api/v1/explain", "POST", CHANGE, body).text)["descriptors"]
    assert said[0]["remaining"] == 3 and said[0]["rule"] == "api.user"
    assert said[1] == {"limited": False}
    assert said[2]["unlimited"]
    assert ask(weir, "/api/v1/explain", "POST", CHANGE, "{").status == 400
    assert ask(weir, "/api/v1/explain", "POST", CHANGE, '{"domain": "api"}').status == 400
    assert ask(weir, "/api/v1/explain", headers=CHANGE).status == 405


# ---- who may ask ----

def test_endpoints_are_listed(weir):
    assert "/metrics" in ask(weir, "/").text
    assert ask(weir, "/nothing").status == 404
    assert ask(weir, "/metrics", "HEAD").text == ""
    assert ask(weir, "/metrics", "POST", CHANGE, "x").status == 404


@pytest.mark.parametrize("host, status", [("localhost", 200), ("127.0.0.1:6070", 200), ("[::1]:6070", 200),
                                          ("evil.example", 403), ("evil.example:6070", 403), ("cafe", 403),
                                          ("dead.be:6070", 403), ("127.0.0.1.de", 403)])
def test_other_names_are_refused(weir, host, status):
    assert ask(weir, "/metrics", headers={"Host": host}).status == status


def test_a_token_is_asked_for(tmp_path):
    with Service(tmp_path, RULES, listeners=("admin",), env={"WEIR_ADMIN_TOKEN": "s3cret"}) as weir:
        assert ask(weir, "/metrics").status == 401
        for wrong in ("Bearer", "Bearer ", "Bearer s3cre", "Bearer s3crets", "Bearer s3crets3cret", "Basic s3cret"):
            assert ask(weir, "/metrics", headers={"Authorization": wrong}).status == 401
        right = {"Authorization": "Bearer s3cret"}
        assert ask(weir, "/metrics", headers=right).status == 200
        assert ask(weir, "/metrics", headers={**right, "Host": "weir.example"}).status == 200
        assert ask(weir, "/api/v1/key?domain=api&user=x", "DELETE", right).status == 403
        assert ask(weir, "/api/v1/key?domain=api&user=x", "DELETE", {**right, **CHANGE}).status == 200
        assert "s3cret" not in "\n".join(weir.lines)


@pytest.mark.parametrize("data", [b"GET / HTTP/9.9\r\n\r\n", b"\0" * 100 + b"\r\n\r\n",
                                  b"GET " + b"/" * 9000 + b" HTTP/1.1\r\n\r\n",
                                  b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"])
def test_nonsense_is_refused(weir, data):
    with socket.create_connection(("127.0.0.1", weir.port("admin")), timeout=10) as raw:
        raw.sendall(data)
        answer = b""
        try:
            while more := raw.recv(65536):
                answer += more
        except ConnectionResetError:
            pass
    assert re.match(rb"HTTP/1\.[01] 4\d\d |HTTP/1\.[01] 505 ", answer)
    assert ask(weir, "/").status == 200


# ---- StatsD ----

def test_statsd_hears_of_what_has_grown(tmp_path):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        flags = ["--statsd", f"127.0.0.1:{server.getsockname()[1]}", "--statsd-interval", "100ms"]
        with Service(tmp_path, RULES, listeners=("http",), flags=flags) as weir:
            spend(weir, ("user", "a"), hits=2)
            spend(weir, ("user", "a"), hits=2)
            spend(weir, ("odd", 'a"b\\c'))
            heard = {}
            while 'ratelimit.service.rate_limit.api.odd_a"b\\c.total_hits' not in heard:
                data = server.recv(65536)
                assert len(data) <= 1400
                for line in data.decode().splitlines():
                    name, value = re.fullmatch(r"([^:|]+):(\d+)\|c", line).groups()
                    heard[name] = heard.get(name, 0) + int(value)
    prefix = "ratelimit.service.rate_limit.api.user."
    assert heard[prefix + "total_hits"] == 4 and heard[prefix + "over_limit"] == 1
    assert heard[prefix + "within_limit"] == 2 and heard["ratelimit.service.config_load_success"] == 1


def read_lines(connection, wanted, heard):
    """Reads counters into heard until one of that name has come."""
    data = b""
    while wanted not in heard:
        data += connection.recv(65536)
        *lines, data = data.split(b"\n")
        for line in lines:
            name, value = re.fullmatch(r"([^:|]+):(\d+)\|c", line.decode()).groups()
            heard[name] = heard.get(name, 0) + int(value)
    return heard


def test_statsd_over_tcp_comes_back_when_the_server_does(tmp_path):
    """A server that is away at first, goes, and comes again: what was counted meanwhile is sent, in whole lines."""
    wanted = "ratelimit.service.rate_limit.api.user.total_hits"
    with socket.create_server(("127.0.0.1", 0)) as first:
        address = first.getsockname()
    flags = ["--statsd", f"127.0.0.1:{address[1]}", "--statsd-interval", "100ms", "--statsd-protocol", "tcp"]
    with Service(tmp_path, RULES, listeners=("http",), flags=flags) as weir:
        spend(weir, ("user", "a"))
        for round_number in range(3):
            heard = {}
            with socket.create_server(address) as server:
                server.settimeout(20)
                connection, _ = server.accept()
                with connection:
                    connection.settimeout(20)
                    read_lines(connection, wanted, heard)
            assert heard[wanted] == 1, heard
            weir.wait_for("statsd connected", round_number + 1)
            weir.wait_for("statsd connection lost", round_number + 1)
            spend(weir, ("user", "a"))
