"""A real Envoy asks weir, over gRPC and over HTTP, and does what it is told.

What is tested here is the way between the two; what weir decides is in tests/conformance.
SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import pathlib
import re
import signal
import subprocess

import pytest
import yaml
from envoy_rig import Envoy, bootstrap, by_header, cluster, limiter, typed
from http_rig import Service, app, ask
from service import wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = """\
domain: api
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: ten, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: watched, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: own, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}, metadata: {pays: own}}
  - {key: shared, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 2}, metadata: {pays: shared}}
"""


@contextlib.contextmanager
def envoy(tmp_path, *rate_limits, filters=None, flags=(), env=None, weir_cluster=None, has_hits=False,
          rules=RULES):
    """Envoy with these rate limits on its only route; .weir is the service behind it."""
    with Service(tmp_path, rules, flags=flags, env=env) as weir, app() as app_port:
        to_weir = cluster("weir", weir.port("grpc"), http2=True, **(weir_cluster or {}))
        with Envoy(tmp_path, bootstrap(app_port, [to_weir], filters or [limiter()], rate_limits, has_hits)) as one:
            one.weir = weir
            yield one


def statuses(envoy, count, target="/", **headers):
    return [ask(envoy.port, target, **headers).status for _ in range(count)]


# ---- refusals, and what clients are told ----

def test_the_third_of_two_is_refused(tmp_path):
    with envoy(tmp_path, by_header("x-user", "user")) as one:
        assert statuses(one, 3, X_User="ann") == [200, 200, 429]
        refusal = ask(one.port, "/", X_User="ann")
        assert refusal.headers["x-envoy-ratelimited"] == "true"
        assert statuses(one, 1, X_User="bob") == [200]
        assert statuses(one, 3) == [200] * 3                             # no header, no descriptor
        assert [line["flags"] for line in one.accesses(8)] == ["-", "-", "RL", "RL"] + ["-"] * 4


def test_envoy_tells_its_own_headers(tmp_path):
    limits = by_header("x-user", "user"), by_header("x-ten", "ten")
    with envoy(tmp_path, *limits, filters=[limiter(enable_x_ratelimit_headers="DRAFT_VERSION_03")]) as one:
        for left, status in ("1", 200), ("0", 200), ("0", 429):
            answer = ask(one.port, "/", X_User="ann", X_Ten="x")
            assert (answer.status, answer.headers["x-ratelimit-remaining"]) == (status, left)
            assert answer.headers["x-ratelimit-limit"] == "2, 2;w=86400, 10;w=86400"   # the tightest, then all
            assert 1 <= int(answer.headers["x-ratelimit-reset"]) <= 86400


def test_envoy_passes_on_the_headers_that_weir_sends(tmp_path):
    env = {"LIMIT_RESPONSE_HEADERS_ENABLED": "true", "LIMIT_RESET_HEADER": "X-Whole-Again"}
    with envoy(tmp_path, by_header("x-user", "user"), env=env) as one:
        for left, status in ("1", 200), ("0", 200), ("0", 429):
            answer = ask(one.port, "/", X_User="ann")
            assert (answer.status, answer.headers["ratelimit-remaining"]) == (status, left)
            assert answer.headers["ratelimit-limit"] == "2"
            assert 1 <= int(answer.headers["x-whole-again"]) <= 86400


# ---- modes ----

def test_shadow_mode_refuses_nobody(tmp_path):
    with envoy(tmp_path, by_header("x-watched", "watched")) as one:
        assert statuses(one, 3, X_Watched="x") == [200] * 3


def test_global_shadow_mode_refuses_nobody(tmp_path):
    with envoy(tmp_path, by_header("x-user", "user"), flags=["--shadow-mode"]) as one:
        assert statuses(one, 4, X_User="ann") == [200] * 4


def test_quotas_refuse_when_all_are_used_up_and_say_who_pays(tmp_path):
    limits = by_header("x-user", "own"), by_header("x-team", "shared")
    with envoy(tmp_path, *limits, flags=["--dynamic-metadata"]) as one:
        assert statuses(one, 3, X_User="ann", X_Team="a") == [200, 200, 429]
        told = [line["told"] for line in one.accesses(3)]
        assert told[0] == {"domain": "api", "metadata": {"pays": "own"},
                           "descriptors": [{"entries": ["own=ann"]}, {"entries": ["shared=a"]}]}
        assert told[1]["metadata"] == {"pays": "shared"}                 # her own is used up
        assert "metadata" not in told[2]


# ---- hits ----

def test_a_descriptor_brings_its_hits(tmp_path):
    limits = by_header("x-ten", "ten", hits_addend={"format": "%REQ(X-COST)%"}), by_header("x-user", "user")
    with envoy(tmp_path, *limits, has_hits=True) as one:
        assert statuses(one, 1, X_Ten="x", X_Cost="7", X_User="ann") == [200]
        assert statuses(one, 1, X_Ten="x", X_Cost="3", X_User="ann") == [200]
        assert statuses(one, 1, X_Ten="x", X_Cost="1") == [429]
        assert statuses(one, 1, X_Ten="x", X_Cost="0") == [429]          # a look at what is over


def test_hits_are_given_back(tmp_path):
    limits = (by_header("x-ten", "ten", hits_addend={"number": 5}),
              by_header("x-back", "ten", hits_addend={"number": 5, "is_negative_hits": True}))
    with envoy(tmp_path, *limits, has_hits=True) as one:
        assert statuses(one, 2, X_Ten="x") == [200, 200]
        assert statuses(one, 1, X_Back="x") == [200]
        assert statuses(one, 2, X_Ten="x") == [200, 429]


def test_hits_are_counted_when_the_response_is_known(tmp_path):
    tokens = {"header": "x-tokens", "on_header_present": {
        "metadata_namespace": "used", "key": "tokens", "type": "NUMBER"}}
    learn = typed("envoy.filters.http.header_to_metadata", "extensions.filters.http.header_to_metadata.v3.Config",
                  response_rules=[tokens])
    limits = (by_header("x-ten", "ten", hits_addend={"number": 0}),      # on the way in: a look
              by_header("x-ten", "ten", apply_on_stream_done=True,
                        hits_addend={"format": "%DYNAMIC_METADATA(used:tokens)%"}))
    look = limiter(enable_x_ratelimit_headers="DRAFT_VERSION_03")
    with envoy(tmp_path, *limits, filters=[look, learn], has_hits=True) as one:
        def left():
            return ask(one.port, "/", X_Ten="x", X_Want_Tokens="0").headers["x-ratelimit-remaining"]
        assert left() == "10"
        assert statuses(one, 1, X_Ten="x", X_Want_Tokens="6") == [200]
        wait_until(lambda: left() == "4", "the tokens of the response")
        assert statuses(one, 1, X_Ten="x", X_Want_Tokens="6") == [200]   # nobody knew what it would cost
        wait_until(lambda: statuses(one, 1, X_Ten="x", X_Want_Tokens="0") == [429], "those of the second")


def test_envoy_brings_a_limit(tmp_path):
    override = typed("envoy.filters.http.set_metadata", "extensions.filters.http.set_metadata.v3.Config", metadata=[
        {"metadata_namespace": "tier", "value": {"limit": {"requests_per_unit": 1, "unit": "HOUR"}}}])
    limit = {"dynamic_metadata": {"metadata_key": {"key": "tier", "path": [{"key": "limit"}]}}}
    answering = limiter(enable_x_ratelimit_headers="DRAFT_VERSION_03")
    with envoy(tmp_path, by_header("x-user", "user", limit=limit), filters=[override, answering]) as one:
        answer = ask(one.port, "/", X_User="ann")
        assert (answer.status, answer.headers["x-ratelimit-limit"]) == (200, "1, 1;w=3600")
        assert statuses(one, 1, X_User="ann") == [429]


# ---- failure ----

@pytest.mark.parametrize("deny, status", [(False, 200), (True, 500)])
def test_without_weir_envoy_does_as_it_was_told(tmp_path, deny, status):
    with envoy(tmp_path, by_header("x-user", "user"), filters=[limiter(failure_mode_deny=deny)]) as one:
        assert statuses(one, 3, X_User="ann") == [200, 200, 429]
        one.weir.stop()
        assert statuses(one, 2, X_User="ann") == [status] * 2
        assert [line["flags"] for line in one.accesses(5)[3:]] == ["RLSE" if deny else "-"] * 2


def test_weir_is_exchanged_while_envoy_asks(tmp_path):
    """An upgrade: the new one listens beside the old, on the same table; then the old one goes.  A connection that is
    half open at the instant when the old one stops listening is reset by the kernel; Envoy may meet that once."""
    table = tmp_path / "table"
    filters = [limiter(failure_mode_deny=True)]
    with envoy(tmp_path, by_header("x-user", "user"), filters=filters, flags=["--table", table]) as one:
        assert statuses(one, 2, X_User="ann") == [200, 200]
        with Service(tmp_path, RULES, flags=["--table", table, "--grpc", one.weir.address("grpc")]):
            one.weir.signal(signal.SIGTERM)
            seen = []
            while one.weir.is_running() or len(seen) < 10:
                seen += statuses(one, 1, X_User="ann")
            assert set(seen) <= {429, 500} and seen.count(500) <= 1      # both know what she has used


def test_envoy_sees_weirs_health(tmp_path):
    check = {"timeout": "10s", "interval": "0.05s", "no_traffic_interval": "0.05s", "unhealthy_threshold": 1,
             "healthy_threshold": 1, "grpc_health_check": {"service_name": "ratelimit"}}
    checked = {"health_checks": [check], "common_lb_config": {"healthy_panic_threshold": {"value": 0}}}
    with envoy(tmp_path, by_header("x-user", "user"), filters=[limiter(failure_mode_deny=True)], weir_cluster=checked,
               rules="domain: api\ndescriptors: not yet\n",
               flags=["--start-without-rules", "--healthy-with-rules"]) as one:
        assert statuses(one, 2, X_User="ann") == [500, 500]              # weir answers, and says that it is not well
        one.weir.rules(RULES)
        wait_until(lambda: statuses(one, 1) == [200] and statuses(one, 1, X_User="bob") == [200], "a healthy weir")
        assert statuses(one, 3, X_User="ann") == [200, 200, 429]


# ---- TLS ----

def make_certificate(folder, name, **signer):
    """folder/name.pem and folder/name.key; signed by itself, or by signer."""
    by = ["-CA", folder / f"{signer['by']}.pem", "-CAkey", folder / f"{signer['by']}.key"] if signer else []
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem", "-days", "2", "-subj",
                    f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}", *by], check=True, capture_output=True)


def tls_to_weir(folder, authority, client=None):
    """Envoy's end: whom it believes, and what it shows."""
    common = {"validation_context": {"trusted_ca": {"filename": str(folder / f"{authority}.pem")},
                                     "match_typed_subject_alt_names": [
                                         {"san_type": "DNS", "matcher": {"exact": "weir.test"}}]}}
    if client:
        common["tls_certificates"] = [{"certificate_chain": {"filename": str(folder / f"{client}.pem")},
                                       "private_key": {"filename": str(folder / f"{client}.key")}}]
    return {"transport_socket": typed("envoy.transport_sockets.tls",
                                      "extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                                      sni="weir.test", common_tls_context=common)}


@pytest.mark.parametrize("client, is_asked, status", [
    (None, False, 200),                       # TLS
    ("envoy.test", True, 200),                # mTLS
    (None, True, 500),                        # nothing shown
    ("stranger.test", True, 500),             # of another authority
    ("other.test", True, 500),                # of ours, under another name
])
def test_tls_between_envoy_and_weir(tmp_path, client, is_asked, status):
    for authority in "ours", "theirs":
        make_certificate(tmp_path, authority)
    for name, by in ("weir.test", "ours"), ("envoy.test", "ours"), ("other.test", "ours"), ("stranger.test", "theirs"):
        make_certificate(tmp_path, name, by=by)
    flags = ["--tls-cert", tmp_path / "weir.test.pem", "--tls-key", tmp_path / "weir.test.key"]
    if is_asked:
        flags += ["--tls-client-ca", tmp_path / "ours.pem", "--tls-client-san", "envoy.test"]
    with envoy(tmp_path, by_header("x-user", "user"), filters=[limiter(failure_mode_deny=True)], flags=flags,
               weir_cluster=tls_to_weir(tmp_path, "ours", client)) as one:
        assert statuses(one, 3, X_User="ann") == ([200, 200, 429] if status == 200 else [500] * 3)


def test_envoy_believes_no_other_weir(tmp_path):
    for name in "ours", "weir.test":
        make_certificate(tmp_path, name)
    flags = ["--tls-cert", tmp_path / "weir.test.pem", "--tls-key", tmp_path / "weir.test.key"]
    with envoy(tmp_path, by_header("x-user", "user"), filters=[limiter(failure_mode_deny=True)], flags=flags,
               weir_cluster=tls_to_weir(tmp_path, "ours")) as one:
        assert statuses(one, 1, X_User="ann") == [500]


# ---- as the documentation shows it ----

def shown(page, name, *replaced):
    """A file of a page, with our ports for its own."""
    block = re.search(rf"^```yaml\n# {re.escape(name)}\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.M | re.S)[1]
    for old, new in replaced:
        assert old in block
        block = block.replace(old, new)
    return block


def test_the_configuration_that_migration_shows(tmp_path):
    with Service(tmp_path, shown("migration.md", "rules.yaml")) as weir, app() as app_port:
        config = shown("migration.md", "envoy.yaml", ("timeout: 0.1s", "timeout: 10s"), ("value: 10000", "value: 0"),
                       ("value: 8081", f"value: {weir.port('grpc')}"), ("value: 3000", f"value: {app_port}"))
        with Envoy(tmp_path, config) as one:
            answer = ask(one.port, "/")
            assert (answer.status, answer.body) == (200, b"app")
            assert answer.headers["x-ratelimit-limit"] == "100, 100;w=60"
            assert statuses(one, 5, "/login") == [200] * 5
            for target in "/login", "//login", "/a/../login":            # it is the same page
                assert ask(one.port, target, X_Forwarded_For="192.0.2.1").status == 429


@pytest.fixture
def ext_authz(tmp_path):
    """As gateways.md shows it."""
    rules = """\
domain: api
descriptors:
  - {key: path, value: /login, descriptors: [{key: remote_address, rate_limit: {unit: day, requests_per_unit: 2}}]}
  - {key: method, value: POST, rate_limit: {unit: day, requests_per_unit: 2}}
"""
    with Service(tmp_path, rules, listeners=("http",)) as weir, app() as app_port:
        asks = shown("gateways.md", "ext_authz.yaml", ("0.1s", "10s"), ("127.0.0.1:8080", weir.address("http")))
        config = bootstrap(app_port, [cluster("weir", weir.port("http"))], [yaml.safe_load(asks)],
                           use_remote_address=True)
        with Envoy(tmp_path, config) as one:
            one.weir = weir
            yield one


def test_ext_authz_limits_by_path_and_says_so(ext_authz):
    for left in "1", "0":
        answer = ask(ext_authz.port, "/login?user=ann")
        assert (answer.status, answer.body) == (200, b"app")
        assert (answer.headers["x-ratelimit-limit"], answer.headers["x-ratelimit-remaining"]) == ("2", left)
    for target in "/login", "//login", "/%6cogin", "/a/../login":
        answer = ask(ext_authz.port, target)
        assert (answer.status, answer.body) == (429, b"Too many requests\n")
        assert int(answer.headers["retry-after"]) >= 1 and answer.headers["x-ratelimit-remaining"] == "0"
    assert ask(ext_authz.port, "/other").status == 200


def test_ext_authz_tells_the_method(ext_authz):
    assert [ask(ext_authz.port, "/x", "POST", b"body").status for _ in range(3)] == [200, 200, 429]


def test_nobody_talks_past_ext_authz(ext_authz):
    """What a client says about its request or its address is not what counts."""
    for i in range(3):
        status = ask(ext_authz.port, "/login", X_Forwarded_For=f"198.51.100.{i}", X_Forwarded_Uri="/harmless").status
    assert status == 429


def test_ext_authz_without_weir(ext_authz):
    ext_authz.weir.stop()
    assert ask(ext_authz.port, "/login").status == 200
