"""weir gateway, before anything runs: what it writes, and what it refuses to.

SPDX-License-Identifier: Apache-2.0
"""
import pytest

from weir_cli import DONE, NO, USAGE, WORLD, rules_file, weir

UPSTREAM = "http://127.0.0.1:3000"


@pytest.fixture
def module(tmp_path):
    """Stands where the module would; --print looks for a file and does not open it."""
    path = tmp_path / "ngx_http_weir_module.so"
    path.write_text("")
    return path


def conf_of(module, *flags):
    done = weir("gateway", "--module", module, "--print", *flags)
    assert done.returncode == DONE, done.stderr
    return [" ".join(line.split()) for line in done.stdout.splitlines()]


def refusal(module, *flags, status=USAGE):
    done = weir("gateway", "--module", module, "--print", *flags)
    assert done.returncode == status and done.stdout == ""
    return done.stderr


def test_two_flags_are_enough(tmp_path, module):
    rules = rules_file(tmp_path)
    conf = conf_of(module, "--rules", rules, "--upstream", UPSTREAM)
    for line in (f'load_module "{module}";', f'weir_rules "{rules}";', 'listen "127.0.0.1:8000";', 'location "/" {',
                 "weir_limit on;", 'server "127.0.0.1:3000";', 'proxy_pass "http://weir_0";', "daemon off;"):
        assert line in conf


def test_every_flag_is_in_the_configuration(tmp_path, module):
    conf = conf_of(module, "--rules", rules_file(tmp_path), "--upstream", f"{UPSTREAM},http://[::1]:3001", "--listen",
                   "127.0.0.1:81,unix:/run/x.sock", "--table", "/dev/shm/t", "--table-size", "1m", "--domain", "api",
                   "--headers", "legacy,ietf-11", "--body", "problem", "--trusted-proxies", "10.0.0.0/8, ::1",
                   "--workers", "3", "--access-log", "off", "--include", "/x.conf", "--tls-cert", "/c.pem", "--tls-key",
                   "/k.pem")
    for line in ('server "[::1]:3001";', 'listen "127.0.0.1:81" ssl http2;', 'listen "unix:/run/x.sock" ssl http2;',
                 'weir_table "/dev/shm/t" "size=1m";', 'weir_limit on "domain=api";',
                 'weir_headers "legacy" "ietf-11";', 'weir_body "problem";', 'weir_trusted_proxies "10.0.0.0/8" "::1";',
                 'worker_processes "3";', "access_log off;", 'include "/x.conf";', 'ssl_certificate "/c.pem";',
                 'ssl_certificate_key "/k.pem";'):
        assert line in conf


@pytest.mark.parametrize("version, lines", [
    ("1.22.1", ['listen "127.0.0.1:8000" ssl http2;']), ("1.25.0", ['listen "127.0.0.1:8000" ssl http2;']),
    ("1.25.1", ['listen "127.0.0.1:8000" ssl;', "http2 on;"]),
    ("1.29.0", ['listen "127.0.0.1:8000" ssl;', "http2 on;"])])
def test_http2_is_said_as_the_version_of_nginx_wants_it(tmp_path, module, version, lines):
    nginx = tmp_path / "nginx"
    nginx.write_text(f"#!/bin/sh\n[ $1 = -v ] && echo 'nginx version: nginx/{version}' >&2\n")
    nginx.chmod(0o755)
    conf = conf_of(module, "--rules", rules_file(tmp_path), "--upstream", UPSTREAM, "--tls-cert", "/c.pem", "--tls-key",
                   "/k.pem", "--nginx", nginx)
    assert [line for line in conf if line.startswith(("http2", "listen"))] == lines


def test_an_https_upstream_is_verified_and_hears_its_own_name(tmp_path, module):
    conf = conf_of(module, "--rules", rules_file(tmp_path), "--upstream", "https://api.example.com/v2", "--upstream-ca",
                   "/ca.pem")
    for line in ('server "api.example.com:443";', 'proxy_pass "https://weir_0/v2";', "proxy_ssl_verify on;",
                 'proxy_ssl_name "api.example.com";', 'proxy_set_header Host "api.example.com";',
                 'proxy_ssl_trusted_certificate "/ca.pem";'):
        assert line in conf


def test_an_ipv6_upstream_is_verified_without_its_brackets(tmp_path, module):
    conf = conf_of(module, "--rules", rules_file(tmp_path), "--upstream", "https://[2001:db8::1]:8443")
    assert 'proxy_ssl_name "2001:db8::1";' in conf and 'server "[2001:db8::1]:8443";' in conf


def test_a_file_has_upstreams_and_routes(tmp_path, module):
    rules_file(tmp_path)
    path = tmp_path / "gateway.yaml"
    path.write_text("""\
routes:
  - {path: /, upstream: api}
  - {path: /admin/, upstream: "http://unix:/run/admin.sock", domain: admin, user: $remote_user, include: auth.conf}
  - {path: /static/, limit: off, include: static.conf}
rules: rules.yaml
upstreams:
  api: [http://127.0.0.1:3000, http://127.0.0.1:3001]
  same: [http://127.0.0.1:3000, http://127.0.0.1:3001]
""")
    conf = conf_of(module, "--config", path)
    for line in (f'weir_rules "{tmp_path}/rules.yaml";', 'weir_limit on "domain=admin";', 'weir_user "$remote_user";',
                 f'include "{tmp_path}/auth.conf";', "weir_limit off;", 'server "unix:/run/admin.sock";'):
        assert line in conf
    assert 'listen "[::1]:9";' in conf_of(module, "--config", path, "--listen", "[::1]:9")     # flags go first


@pytest.mark.parametrize("flags, words", [
    ([], "--rules PATH is missing"),
    (["--rules", "r.yaml"], "--upstream URL is missing"),
    (["--rules", "r.yaml", "--upstream", "127.0.0.1:3000"], "an upstream is a URL"),
    (["--rules", "r.yaml", "--upstream", "http://"], "no host"),
    (["--rules", "r.yaml", "--upstream", "http://a;b"], "a host has letters"),
    (["--rules", "r.yaml", "--upstream", "http://a,https://b"], "same scheme"),
    (["--rules", "r.yaml", "--upstream", "http://a:0"], "a port is a number from 1 to 65535"),
    (["--rules", "r.yaml", "--upstream", "http://a:65536"], "a port is a number"),
    (["--rules", "r.yaml", "--upstream", "https://[::1]:x"], "a port is a number"),
    (["--rules", "r.yaml", "--upstream", "http://a:"], "a port is a number"),
    (["--rules", "r.yaml", "--upstream", "http://a/b?c=d"], "neither ? nor #"),
    (["--rules", "r.yaml", "--upstream", UPSTREAM, "--tls-cert", "c"], "go together"),
    (["--rules", "r.yaml", "--upstream", UPSTREAM, "--domain", "a$b"], "has a $"),
    (["--rules", "r.yaml", "--upstream", UPSTREAM + "/$uri"], "has a $"),
    (["--rules", "r.yaml", "--upstream", UPSTREAM, "--access-log", "a\nb"], "control character"),
])
def test_what_makes_no_sense_is_told(module, flags, words):
    assert words in refusal(module, *flags)


# What nginx would refuse, or weir serve: the flag, a bad value, what would be right.
BAD_VALUES = [
    ("headers", "foo", "'foo' is not one of legacy, ietf-11, reset-epoch, reset-delta, none"),
    ("headers", "ietf-11,legcy",
     "'legcy' is not one of legacy, ietf-11, reset-epoch, reset-delta, none; did you mean 'legacy'?"),
    ("headers", "reset-epoch,reset-delta", "say different things by one name"),
    ("body", "problm", "did you mean 'problem'?"),
    ("table-size", "potato", "'potato' is not a size of at least 1m, such as 64m or 2g"),
    ("table-size", "1k", "'1k' is not a size of at least 1m"),
    ("table-size", "1t", "'1t' is not a size"),
    ("workers", "x", "'x' is not auto or a number from 1 to 1024"),
    ("workers", "0", "'0' is not auto or a number"),
    ("workers", "1025", "'1025' is not auto or a number"),
    ("grace", "1h", "'1h' is not a number of seconds from 1 to 3600"),
    ("listen", "127.0.0.1:1x", "'127.0.0.1:1x' is not an address: HOST:PORT, :PORT, [IPv6]:PORT or unix:/PATH"),
    ("listen", "127.0.0.1:80,::1:80", "'::1:80' is not an address"),
    ("listen", "127.0.0.1:65536", "'127.0.0.1:65536' is not an address"),
    ("listen", "127.0.0.1:00", "'127.0.0.1:00' is not an address that nginx can listen on"),
    ("listen", "unix:", "'unix:' is not an address"),
    ("listen", ",", "'' is not an address"),
    ("admin", "nowhere", "'nowhere' is not an address"),
    ("trusted-proxies", "10.0.0.0/8,10.0.0.0/33", "'10.0.0.0/33' is not an address or a network"),
]


@pytest.mark.parametrize("name, value, words", BAD_VALUES)
def test_a_value_that_nginx_would_refuse_is_refused_before(module, tmp_path, name, value, words):
    said = refusal(module, "--rules", "r.yaml", "--upstream", UPSTREAM, f"--{name}", value)
    assert said.startswith(f"weir: gateway: --{name}: ") and words in said and len(said.splitlines()) == 1
    path = tmp_path / "gateway.yaml"
    path.write_text(f"rules: r.yaml\n{name.replace('-', '_')}: '{value}'\n")
    said = refusal(module, "--config", path, "--upstream", UPSTREAM)
    assert f"gateway.yaml:2:{len(name) + 3}: " in said and words in said


@pytest.mark.parametrize("flags", [
    ("--listen", ":1,:65535", "--admin", ":0", "--workers", "1024", "--grace", "3600"),
    ("--listen", "[::1]:80, unix:/x", "--admin", "off"),
    ("--headers", "none", "--body", "html"), ("--headers", "legacy, ietf-11,reset-delta", "--table-size", "1048576"),
    ("--trusted-proxies", "unix:,::1,2001:db8::/32", "--admin", "unix:/run/admin")])
def test_values_at_their_bounds_are_taken(tmp_path, module, flags):
    conf_of(module, "--rules", rules_file(tmp_path), "--upstream", UPSTREAM, *flags)


TWO_DOMAINS = {"a.yaml": "domain: a\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n",
               "b.yaml": "domain: b\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n"}


@pytest.mark.parametrize("flags, words", [
    ((), "the rules have several domains: --domain says which one"),
    (("--domain", "c"), "the rules have no domain 'c': nothing would be limited"),
])
def test_a_domain_that_nobody_can_be_asked_of_is_told(tmp_path, module, flags, words):
    (tmp_path / "rules").mkdir()
    for name, text in TWO_DOMAINS.items():
        (tmp_path / "rules" / name).write_text(text)
    done = weir("gateway", "--module", module, "--rules", tmp_path / "rules", "--upstream", UPSTREAM, *flags)
    assert done.returncode == USAGE and words in done.stderr


@pytest.mark.parametrize("text, words", [
    ("rules: r.yaml\nrouts: []\n", "gateway.yaml:2:1: 'routs' is not known here; did you mean 'routes'?"),
    ("rules: r.yaml\nroutes: {}\n", "gateway.yaml:2:9: routes are a list"),
    ("rules: r.yaml\nroutes:\n- {path: x, upstream: http://a}\n", "gateway.yaml:3:3: a route has a path"),
    ("rules: r.yaml\nroutes:\n- {path: /}\n", "gateway.yaml:3:3: a route has an upstream"),
    ("rules: r.yaml\nroutes:\n- {path: /, upstream: nope}\n", "an upstream is a URL"),
    ("rules: r.yaml\nroutes:\n- {path: /, upstream: http://a, limit: perhaps}\n", "limit is on or off"),
    ("rules: r.yaml\nroutes:\n- {path: /, upstream: http://a, uper: b}\n", "did you mean 'user'?"),
    ("rules: r.yaml\nroutes:\n- {path: /, upstream: http://a}\n- {path: /, upstream: http://b}\n", "same path"),
    ("rules: r.yaml\nroutes:\n- {path: /c, upstream: 'http://a/deep/'}\n", "ends in / too"),
    ("rules: r.yaml\nupstreams: {a: []}\nroutes: [{path: /, upstream: a}]\n",
     "gateway.yaml:2:16: an upstream is a URL"),
    ("rules: r.yaml\nupstreams: {a: 'http://'}\nroutes: [{path: /a, upstream: a}]\n",
     "gateway.yaml:2:16: the URL has no host"),
    ("rules: r.yaml\nlisten: :1\nlisten: :2\n", "gateway.yaml:3:1: 'listen' is there twice; the first is at line 2"),
    ("upstreams:\n  a: http://a\n  a: http://b\n", "gateway.yaml:3:3: 'a' is there twice"),
    ("routes:\n- {path: /, upstream: http://a, path: /b}\n", "gateway.yaml:2:33: 'path' is there twice"),
    ("rules: [[]]\n", "gateway.yaml:1:9: this should be one value"),
    ("[]\n", "the file is a map"),
    ("rules: 'x\n", "gateway.yaml:"),
])
def test_a_bad_file_is_told_with_its_place(module, tmp_path, text, words):
    path = tmp_path / "gateway.yaml"
    path.write_text(text)
    assert words in refusal(module, "--config", path)


def test_what_is_missing_in_the_world(tmp_path, module):
    rules = rules_file(tmp_path)
    done = weir("gateway", "--rules", rules, "--upstream", UPSTREAM, "--module", tmp_path / "no.so")
    assert done.returncode == WORLD and "no.so" in done.stderr and "--module" in done.stderr
    done = weir("gateway", "--rules", rules, "--upstream", UPSTREAM, "--module", module, "--nginx",
                tmp_path / "no-nginx")
    assert done.returncode == WORLD and "--nginx says where" in done.stderr and "has ended" not in done.stderr
    done = weir("gateway", "--config", tmp_path / "no.yaml")
    assert done.returncode == WORLD and "no.yaml" in done.stderr


def test_bad_rules_are_told_as_weir_check_tells_them(tmp_path, module):
    rules = rules_file(tmp_path,
                       "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: minutes, requests_per_unit: 1}}\n")
    done = weir("gateway", "--module", module, "--rules", rules, "--upstream", UPSTREAM)
    assert done.returncode == NO and f"{rules}:3:" in done.stderr and "did you mean 'minute'?" in done.stderr
