"""/check, /json and /healthcheck as clients see them.

SPDX-License-Identifier: Apache-2.0
"""
import json
import signal
import subprocess

import pytest

from http_rig import PATIENCE_S, RULES, ask, connect, read_all, serve

SHAPES = """\
domain: api
descriptors:
  - key: path
    value: /login
    descriptors:
      - key: remote_address
        rate_limit: {unit: day, requests_per_unit: 2}
  - key: method
    value: DELETE
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: header.X-Api-Key
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: cookie.sid
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: query.q
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: host
    value: slow.example
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: user
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: tier
    rate_limit: {unit: day, requests_per_unit: 1}
"""


@pytest.fixture
def weir(tmp_path):
    with serve(tmp_path) as service:
        yield service


def test_requests_are_allowed_up_to_the_limit_and_told_so(weir):
    port = weir.port("http")
    for left in 2, 1, 0:
        answer = ask(port)
        assert (answer.status, answer.body) == (200, b"")
        assert answer.headers["X-Ratelimit-Limit"] == "3"
        assert answer.headers["X-Ratelimit-Remaining"] == str(left)
        assert "Retry-After" not in answer.headers
    answer = ask(port)
    assert answer.status == 429 and answer.body == b"Too many requests\n"
    wait = int(answer.headers["Retry-After"])
    assert 1 <= wait <= 86400
    assert answer.headers["X-Ratelimit-Retry-After"] == str(wait)
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Ratelimit-Remaining"] == "0"


def test_deny_status_is_what_refusals_have(weir):
    port = weir.port("http")
    seen = [ask(port, "/check?deny_status=403").status for _ in range(4)]
    assert seen == [200, 200, 200, 403]
    for bad in "200", "99", "4031", "abc", "":
        assert ask(port, f"/check?deny_status={bad}").status == 400


def test_the_client_is_who_the_trusted_proxy_says(weir):
    port = weir.port("http")
    for _ in range(3):
        assert ask(port, X_Forwarded_For="198.51.100.7").status == 200
    assert ask(port, X_Forwarded_For="198.51.100.7").status == 429
    assert ask(port, X_Forwarded_For="198.51.100.8").status == 200
    assert ask(port, X_Forwarded_For="198.51.100.8, 198.51.100.7").status == 429


def test_who_is_not_trusted_is_its_own_address(tmp_path):
    with serve(tmp_path, RULES, "--trusted-proxies", "192.0.2.1") as weir:
        port = weir.port("http")
        seen = [ask(port, X_Forwarded_For=f"198.51.100.{i}").status for i in range(4)]
        assert seen == [200, 200, 200, 429]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_any_method_asks(weir, method):
    assert ask(weir.port("http"), method=method, body=b"x" if method == "POST" else None).status == 200


def test_head_has_no_body(weir):
    port = weir.port("http")
    for _ in range(3):
        ask(port)
    answer = ask(port, method="HEAD")
    assert answer.status == 429 and answer.body == b"" and int(answer.headers["Content-Length"]) > 0


@pytest.mark.parametrize("headers", [
    dict(X_Forwarded_Uri="/login", X_Forwarded_Method="POST"),
    dict(X_Original_URI="/login?next=/", X_Original_Method="POST"),
    dict(X_Original_URL="https://example.org/login"),
    dict(X_Forwarded_Uri="//login"),
    dict(X_Forwarded_Uri="/%6cogin"),
    dict(X_Forwarded_Uri="/x/../login"),
])
def test_paths_are_normalised_before_they_are_matched(tmp_path, headers):
    with serve(tmp_path, SHAPES) as weir:
        port = weir.port("http")
        assert [ask(port, **headers).status for _ in range(3)] == [200, 200, 429]
        assert ask(port, X_Forwarded_Uri="/other", X_Forwarded_Method="POST").status == 200


def test_the_request_line_below_check_is_the_request(tmp_path):
    with serve(tmp_path, SHAPES) as weir:
        port = weir.port("http")
        assert [ask(port, "/check/login?domain=no&deny_status=599").status for _ in range(3)] == [200, 200, 429]
        assert [ask(port, "/check/x", "DELETE").status for _ in range(2)] == [200, 429]


@pytest.mark.parametrize("target,headers", [
    ("/check", dict(X_Forwarded_Method="DELETE")),
    ("/check", dict(x_api_key="k")),
    ("/check", dict(Cookie="a=b; sid=7")),
    ("/check", dict(X_Forwarded_Uri="/?p=1&q=%31+x")),
    ("/check/any?q=1", {}),
    ("/check", dict(X_Forwarded_Host="SLOW.example:443")),
    ("/check", dict(X_Verified_User="ann")),
    ("/check", dict(X_Tier="gold")),
])
def test_every_attribute_makes_a_descriptor(tmp_path, target, headers):
    flags = "--user-header", "X-Verified-User", "--attributes", "tier=header:X-Tier"
    with serve(tmp_path, SHAPES, *flags) as weir:
        port = weir.port("http")
        assert [ask(port, target, **headers).status for _ in range(2)] == [200, 429]


def test_a_user_that_nobody_verified_is_none(tmp_path):
    with serve(tmp_path, SHAPES) as weir:
        port = weir.port("http")
        assert [ask(port, X_Remote_User="ann", X_Forwarded_User="ann").status for _ in range(3)] == [200] * 3


def test_sources_that_disagree_are_refused_in_words(weir):
    answer = ask(weir.port("http"), X_Forwarded_Uri="/a", X_Original_URI="/b")
    assert answer.status == 400 and b"X-Original-URI" in answer.body


def test_if_absent_deny_refuses(tmp_path):
    rules = RULES.replace("key: remote_address", "key: user\n    if_absent: deny")
    with serve(tmp_path, rules) as weir:
        answer = ask(weir.port("http"))
        assert answer.status == 429 and answer.headers["Cache-Control"] == "no-store"
        assert ask(weir.port("http"), "/check?deny_status=403").status == 403


def test_the_domain_is_named_where_there_are_several(tmp_path):
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "a.yaml").write_text(RULES)
    (rules / "b.yaml").write_text(RULES.replace("domain: api", "domain: b c").replace("3}", "1}"))
    with serve(tmp_path, None, "--rules", str(rules)) as weir:
        port = weir.port("http")
        answer = ask(port)
        assert answer.status == 400 and b"?domain=" in answer.body
        assert ask(port, "/check?domain=api").headers["X-Ratelimit-Limit"] == "3"
        assert ask(port, "/check?domain=b%20c").headers["X-Ratelimit-Limit"] == "1"
        answer = ask(port, "/check?domain=nope")
        assert answer.status == 400 and b"no such domain" in answer.body
    with serve(tmp_path, None, "--rules", str(rules), "--check-domain", "b c") as weir:
        assert ask(weir.port("http")).headers["X-Ratelimit-Limit"] == "1"


def test_dialects_and_bodies_are_chosen(tmp_path):
    with serve(tmp_path, RULES, "--check-headers", "ietf-11,reset-delta", "--check-body", "problem+json") as weir:
        port = weir.port("http")
        answer = ask(port)
        assert answer.headers["RateLimit-Policy"] == '"per_address";q=3;w=86400'
        assert answer.headers["RateLimit"].startswith('"per_address";r=2;t=')
        assert 1 <= int(answer.headers["X-Ratelimit-Reset"]) <= 86400
        for _ in range(3):
            answer = ask(port)
        assert answer.status == 429 and answer.headers["Content-Type"] == "application/problem+json"
        assert json.loads(answer.body)["violated-policies"] == ["per_address"]
    with serve(tmp_path, RULES, "--check-headers", "none") as weir:
        assert not any("atelimit" in name.lower() for name in ask(weir.port("http")).headers)


@pytest.mark.parametrize("flags", [("--check-headers", "reset-epoch,reset-delta"), ("--trusted-proxies", "everybody"),
                                   ("--attributes", "x"), ("--check-body", "html")])
def test_settings_that_make_no_sense_stop_the_start(tmp_path, flags):
    with pytest.raises(AssertionError):
        serve(tmp_path, RULES, *flags)


def test_health_turns_before_the_end(tmp_path):
    with serve(tmp_path, RULES, "--drain-delay", "2s", "--grace", "1s") as weir:
        port = weir.port("http")
        assert (ask(port, "/healthcheck").status, ask(port, "/healthcheck").body) == (200, b"OK")
        weir.signal(signal.SIGTERM)
        weir.wait_for("draining")
        answer = ask(port, "/healthcheck")
        assert (answer.status, answer.body) == (500, b"")
        assert ask(port).status == 200          # still serving
        weir.process.wait(timeout=PATIENCE_S)


@pytest.mark.parametrize("target", ["/", "/checkx", "/jsonx", "/json/x", "/healthcheckx", "/Check", "/metrics"])
def test_other_paths_are_not_found(weir, target):
    assert ask(weir.port("http"), target).status == 404


def test_a_whole_url_is_a_target_too(weir):
    with connect(weir.port("http")) as connection:
        connection.sendall(b"GET http://weir/healthcheck HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n")
        assert read_all(connection).endswith(b"OK")


def test_pipelined_requests_are_answered_in_order(weir):
    with connect(weir.port("http")) as connection:
        connection.sendall(b"GET /check HTTP/1.1\r\nHost: h\r\n\r\n" * 4
                           + b"GET /healthcheck HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        answers = read_all(connection).split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"200", b"200", b"200", b"429", b"200"]
    assert b"Connection: close" in answers[-1] and b"Connection" not in answers[0]


def test_http_1_0_is_understood(weir):
    with connect(weir.port("http")) as connection:
        connection.sendall(b"GET /check HTTP/1.0\r\n\r\n")
        assert b"Connection: close" in read_all(connection)
    with connect(weir.port("http")) as connection:
        connection.sendall(b"GET /check HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert b"Connection: keep-alive" in connection.recv(65536)
        connection.sendall(b"GET /check HTTP/1.0\r\n\r\n")
        assert read_all(connection).startswith(b"HTTP/1.1 200")


def test_curl_and_wrk_are_served(weir):
    url = f"http://{weir.address('http')}/check"
    done = subprocess.run(["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code} %{num_connects}\n", url, "-o",
                           "/dev/null", url], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["200", "1", "200", "0"]
    done = subprocess.run(["wrk", "-t1", "-c32", "-d1", url], capture_output=True, text=True, timeout=60, check=True)
    assert "Socket errors" not in done.stdout, done.stdout


def test_rules_may_change_under_load(weir):
    url = f"http://{weir.address('http')}/check"
    load = subprocess.Popen(["wrk", "-t1", "-c16", "-d3", url], stdout=subprocess.PIPE, text=True)
    limits = 1000000
    while load.poll() is None:
        limits += 1
        weir.rules(RULES.replace("3}", f"{limits}}}"))
        ask(weir.port("http"))
    assert "Socket errors" not in load.stdout.read()
    weir.rules(RULES.replace("3}", "77}"))
    for _ in range(1000):
        if ask(weir.port("http")).headers.get("X-Ratelimit-Limit") == "77":
            return
    raise AssertionError("the new rules did not come")
