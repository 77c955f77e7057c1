"""What nginx does with a request - phases, subrequests, redirects, error pages, keep-alive, HTTP/2 - and what
is counted.

SPDX-License-Identifier: Apache-2.0
"""
import base64
import collections
import contextlib
import re
import subprocess

import grpc
import pytest

from nginx_rig import App, Nginx, PATIENCE_S, request, wait_for

ONE = "domain: api\ndescriptors: [{key: remote_address, rate_limit: {unit: day, requests_per_unit: %d}}]\n"
BOTH = """\
domain: api
descriptors:
  - key: remote_address
    rate_limit: {name: address, unit: day, requests_per_unit: 4}
  - key: user
    rate_limit: {name: user, unit: day, requests_per_unit: 2}
"""
PASSWORDS = {"passwords": "ann:{PLAIN}secret\nbob:{PLAIN}secret\n"}
AUTH = 'auth_basic "closed"; auth_basic_user_file {folder}/passwords;'


def basic(user, password="secret"):
    return dict(Authorization="Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())


# ---- clients in turn ----

def test_who_comes_in_turn_is_counted_by_himself():
    """One worker: what it knows of the last request is good for the next one only as far as that is the same."""
    limit = "rate_limit: {unit: day, requests_per_unit: %d, algorithm: token_bucket}"
    rules = f"domain: api\ndescriptors:\n  - {{key: query.k, {limit % 4}}}\n" \
            f"  - {{key: query.k, value: vip, {limit % 6}}}\n  - {{key: header.x-key, {limit % 2}}}\n"
    with Nginx(rules, workers=1, server="location /free { alias {folder}/html/; }") as nginx:
        keys, passed = ["a", "b", "vip", "a%20b", "", "c" * 200], collections.Counter()
        for _ in range(7):
            for key in keys:
                passed[key] += nginx.ask(f"/?k={key}").status == 200
                assert nginx.ask(f"/free/?k={key}").status == 200
                passed["by header"] += nginx.ask("/", **{"X-Key": "a"}).status == 200
        assert passed == {**{key: 6 if key == "vip" else 4 for key in keys}, "by header": 2}


def test_what_a_rewrite_made_of_it_is_counted():
    """A request's counter is fetched early, by what it says then; it is counted by what it says in the end."""
    limit = "rate_limit: {unit: day, requests_per_unit: 3, algorithm: token_bucket}"
    server = "if ($arg_to) { set $args k=$arg_to; }\n" \
             "location /moved { set $args k=moved; alias {folder}/html/; weir_limit on; }"
    with Nginx(f"domain: api\ndescriptors: [{{key: query.k, {limit}}}]\n", workers=1, server=server) as nginx:
        passed = collections.Counter()
        for i in range(20):
            passed["fresh"] += nginx.ask(f"/?k={i}").status == 200  # so it is known that keys differ
            passed["to"] += nginx.ask(f"/?k=from{i}&to=a").status == 200
            passed["moved"] += nginx.ask(f"/moved/?k=of{i}").status == 200
            passed["not asked for"] += nginx.ask(f"/?k=from{i}").status == 200
        assert passed == {"fresh": 20, "to": 3, "moved": 3, "not asked for": 20}


# ---- before and after authentication ----

def test_addresses_are_counted_before_authentication_and_users_after():
    with Nginx(BOTH, location=f"{AUTH} weir_user $remote_user;", files=PASSWORDS) as nginx:
        assert nginx.statuses(2, **basic("ann")) == [200, 200]
        assert nginx.ask(**basic("ann", "wrong")).status == 401  # counts for the address, not for ann
        refused = nginx.ask(**basic("ann"))
        assert refused.status == 429 and refused.headers["X-Ratelimit-Limit"] == "2"
        assert nginx.ask(**basic("bob")).status == 429  # the address has had its four


def test_guesses_use_up_the_address():
    with Nginx(BOTH, location=f"{AUTH} weir_user $remote_user;", files=PASSWORDS) as nginx:
        assert [nginx.ask(**basic("ann", str(i))).status for i in range(5)] == [401] * 4 + [429]


def test_headers_of_both_stages_are_the_tighter_and_lists_have_all():
    with Nginx(BOTH, location=f"{AUTH} weir_user $remote_user; weir_headers legacy ietf-11;", files=PASSWORDS) as nginx:
        answer = nginx.ask(**basic("ann"))
        assert answer.headers["X-Ratelimit-Limit"] == "2" and answer.headers["X-Ratelimit-Remaining"] == "1"
        policies = [value for name, value in answer.pairs if name == "RateLimit-Policy"]
        assert sorted(policies) == ['"address";q=4;w=86400', '"user";q=2;w=86400']
        for user in ("ann", "bob"):
            nginx.ask(**basic(user))
        answer = nginx.ask(**basic("bob"))
        assert answer.headers["X-Ratelimit-Limit"] == "4" and answer.headers["X-Ratelimit-Remaining"] == "0"


def test_without_weir_user_nobody_is_a_user():
    with Nginx(BOTH) as nginx:
        assert nginx.ask(**basic("ann")).headers["X-Ratelimit-Limit"] == "4"


@pytest.mark.parametrize("phase, counted", [("preaccess", 3), ("precontent", 2)])
def test_phase_says_when(phase, counted):
    with Nginx(ONE % 4, server=f"location /x {{ alias {{folder}}/html/; weir_limit on phase={phase}; {AUTH} }}",
               files=PASSWORDS) as nginx:
        nginx.ask("/x/", **basic("ann", "wrong"))
        nginx.ask("/x/", **basic("ann"))
        assert int(nginx.ask("/x/", **basic("ann")).headers["X-Ratelimit-Remaining"]) == 4 - counted


def test_an_atomic_domain_is_asked_in_one_piece():
    with Nginx("domain: api\natomic: true\n" + BOTH.partition("\n")[2], location=f"{AUTH} weir_user $remote_user;",
               files=PASSWORDS) as nginx:
        assert nginx.statuses(3, **basic("ann")) == [200, 200, 429]
        assert nginx.statuses(3, **basic("ann", "wrong")) == [401] * 3
        assert nginx.statuses(3, **basic("bob")) == [200, 200, 429]  # a refused request took nothing


def test_auth_request_tells_the_user():
    with App(lambda handler: (200, {"X-User": handler.headers.get("X-Token", "")}, b"")) as app:
        location = "auth_request /auth; auth_request_set $user $upstream_http_x_user; weir_user $user;"
        server = f"location = /auth {{ internal; proxy_pass http://127.0.0.1:{app.port}; }}"
        with Nginx(BOTH, location=location, server=server) as nginx:
            assert nginx.statuses(3, X_Token="ann") == [200, 200, 429]
            assert nginx.statuses(1, X_Token="bob") == [200]


def test_satisfy_any_is_not_widened():
    location = f"satisfy any; deny all; {AUTH}"
    with Nginx(ONE % 100, location=location, files=PASSWORDS) as nginx:
        assert nginx.ask().status == 401
        assert nginx.ask(**basic("ann")).status == 200
    with Nginx(ONE % 100, location="satisfy any; allow all; " + AUTH, files=PASSWORDS) as nginx:
        assert nginx.ask().status == 200


# ---- counted once ----

def test_subrequests_are_not_counted():
    files = {"html/page.html": '<!--#include virtual="/part.html" --> <!--#include virtual="/part.html" -->\n',
             "html/part.html": "part\n"}
    with Nginx(ONE % 9, location="ssi on; ssi_types text/plain;", files=files) as nginx:
        answer = nginx.ask("/page.html")
        assert answer.body.count(b"part") == 2
        assert answer.headers["X-Ratelimit-Remaining"] == "8"
        assert nginx.ask("/page.html").headers["X-Ratelimit-Remaining"] == "7"


@pytest.mark.parametrize("location", [
    "try_files /none /index.html =404;",
    "error_page 404 /index.html;",
    "error_page 404 = @named;",
    "index index.html;",
])
def test_internal_redirects_are_counted_once(location):
    with Nginx(ONE % 9, location=location,
               server="location @named { weir_limit on; try_files /index.html =404; }") as nginx:
        path = "/" if "index index" in location else "/missing"
        assert [nginx.ask(path).headers["X-Ratelimit-Remaining"] for _ in range(3)] == ["8", "7", "6"]


def test_a_location_reached_by_a_redirect_limits_if_the_first_did_not():
    with Nginx(ONE % 1, server="location /a { try_files /none @b; } "
                               "location @b { weir_limit on; try_files /index.html =404; }") as nginx:
        assert nginx.statuses(2, "/a") == [200, 429]


def test_mirrored_requests_are_not_counted():
    with App() as app:
        with Nginx(ONE % 9, location="mirror /mirror;", server="location /mirror { internal; weir_limit on; "
                   f"proxy_pass http://127.0.0.1:{app.port}; }}") as nginx:
            assert [nginx.ask().headers["X-Ratelimit-Remaining"] for _ in range(2)] == ["8", "7"]


def test_what_is_answered_before_is_not_limited():
    with Nginx(ONE % 0, server="location /r { weir_limit on; return 204; }") as nginx:
        assert nginx.ask("/r").status == 204


# ---- error pages ----

@pytest.mark.parametrize("page", ["/429.html", "@page", "=200 /429.html"])
def test_headers_survive_an_error_page(page):
    server = "location @page { default_type text/html; try_files /429.html =404; }"
    with Nginx(ONE % 0, location=f"error_page 429 {page};", server=server,
               files={"html/429.html": "slow down\n"}) as nginx:
        answer = nginx.ask()
        assert answer.status == (200 if "=200" in page else 429)
        assert answer.body == b"slow down\n"
        assert answer.headers["X-Ratelimit-Limit"] == "0" and int(answer.headers["Retry-After"]) >= 1
        assert answer.headers["Cache-Control"] == "no-store"
        assert nginx.wait_for_access(1)[0]["verdict"] == "REJECTED"


def test_headers_are_on_errors_of_the_upstream_and_on_304():
    with Nginx(ONE % 9) as nginx:
        assert nginx.ask("/none").status == 404
        assert nginx.ask("/none").headers["X-Ratelimit-Remaining"] == "7"
        etag = nginx.ask().headers["ETag"]
        unchanged = nginx.ask(If_None_Match=etag)
        assert unchanged.status == 304 and unchanged.headers["X-Ratelimit-Remaining"] == "5"
    with Nginx(ONE % 9, location="proxy_pass http://127.0.0.1:1;") as nginx:
        answer = nginx.ask()
        assert answer.status == 502 and answer.headers["X-Ratelimit-Remaining"] == "8"


# ---- keep-alive ----

@pytest.mark.parametrize("body", ["plain", "none", "html", "problem"])
def test_a_connection_goes_on_after_a_refusal(body):
    with Nginx(ONE % 1, location=f"weir_body {body}; proxy_pass http://127.0.0.1:1;") as nginx:
        with contextlib.closing(nginx.connect()) as connection:
            assert request(connection).status == 502
            socket = connection.sock
            for size in (0, 10, 100_000):
                answer = request(connection, method="POST", body=b"x" * size)
                assert answer.status == 429 and answer.headers["Connection"] == "keep-alive"
            chunked = request(connection, method="POST", body=b"3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n",
                              Transfer_Encoding="chunked")
            assert chunked.status == 429
            assert request(connection).status == 429
            assert connection.sock is socket


def test_who_waits_for_100_is_refused_at_once():
    with Nginx(ONE % 0) as nginx:
        done = subprocess.run(["curl", "-sv", "-H", "Expect: 100-continue", "-d", "x" * 2000,
                               f"http://127.0.0.1:{nginx.port}/"],
                              capture_output=True, text=True, timeout=PATIENCE_S)
        assert "429 Too Many Requests" in done.stderr and "100 Continue" not in done.stderr


# ---- HTTP/2 ----

def nghttp(*more):
    return subprocess.run(["nghttp", "-v", *more], capture_output=True, text=True, timeout=PATIENCE_S).stdout


def test_each_stream_is_counted_once():
    with Nginx(ONE % 5, listen=" http2") as nginx:
        said = nghttp(*[f"http://127.0.0.1:{nginx.port}/?{i}" for i in range(8)])
        assert len(re.findall(r":status: 200", said)) == 5 and len(re.findall(r":status: 429", said)) == 3
        assert "x-ratelimit-remaining: 4" in said and "retry-after: " in said


def test_h2load_gets_what_the_limit_allows():
    with Nginx(ONE % 1000, listen=" http2", workers=4) as nginx:
        done = subprocess.run(["h2load", "-n", "3000", "-c", "20", "-m", "10", f"http://127.0.0.1:{nginx.port}/"],
                              capture_output=True, text=True, timeout=120)
        assert "status codes: 1000 2xx, 0 3xx, 2000 4xx, 0 5xx" in done.stdout


def test_grpc_calls_get_status_8():
    with Nginx(ONE % 0, listen=" http2", location="grpc_pass grpc://127.0.0.1:1;") as nginx:
        with grpc.insecure_channel(f"127.0.0.1:{nginx.port}") as channel:
            for _ in range(2):
                with pytest.raises(grpc.RpcError) as refused:
                    channel.unary_unary("/some.Service/Call")(b"request", timeout=PATIENCE_S)
                assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
                assert refused.value.details() == "Too many requests"
                told = {key.lower(): value for key, value in
                        list(refused.value.trailing_metadata() or ()) + list(refused.value.initial_metadata() or ())}
                assert told.get("x-ratelimit-limit") == "0"
        said = nghttp("-H", "content-type: application/grpc+proto", f"http://127.0.0.1:{nginx.port}/")
        assert "grpc-status: 8" in said and "content-length" not in said


# ---- caches ----

def cached_by_a_proxy(answer_headers, stores=False):
    """What two clients, one after the other, see through a shared cache in front of the limiter."""
    with App(lambda handler: (200, answer_headers, b"app\n")) as app:
        servers = f"""
        server {{ listen 127.0.0.1:{{port}}; proxy_cache outer; location / {{
            proxy_pass http://unix:{{folder}}/limited; add_header X-Cache $upstream_cache_status; }} }}
        server {{ listen unix:{{folder}}/limited; location / {{
            weir_limit on; proxy_pass http://127.0.0.1:{app.port}; }} }}"""
        http = "proxy_cache_path {folder}/outer keys_zone=outer:1m;"
        with Nginx(ONE % 9, servers=servers, http=http) as nginx:
            first, answers = nginx.ask(), [nginx.ask()]
            # A cache may still be busy storing what its client has already.
            wait_for(lambda: not stores or answers[-1].headers["X-Cache"] == "HIT" or answers.append(nginx.ask()),
                     "a hit")
            return first, answers[-1]


@pytest.mark.parametrize("caching", [{"Cache-Control": "max-age=60"}, {"Cache-Control": "public, max-age=60"},
                                     {"Cache-Control": "s-maxage=60"}, {"Expires": "Fri, 01 Jan 2100 00:00:00 GMT"}])
def test_what_a_shared_cache_stores_has_none_of_our_headers(caching):
    first, second = cached_by_a_proxy(caching, stores=True)
    assert (first.headers["X-Cache"], second.headers["X-Cache"]) == ("MISS", "HIT")
    for answer in (first, second):
        assert not any("ratelimit" in name.lower() for name in answer.headers)
        assert [(n, v) for n, v in answer.pairs if n in ("Cache-Control", "Expires")] == list(caching.items())


@pytest.mark.parametrize("caching", [{"Cache-Control": "private, max-age=60"}, {"Cache-Control": "no-store"}, {},
                                     {"Expires": "Thu, 01 Jan 1970 00:00:00 GMT"}, {"Cache-Control": "max-age=0"}])
def test_what_it_does_not_store_has_them(caching):
    first, second = cached_by_a_proxy(caching)
    assert (first.headers["X-Ratelimit-Remaining"], second.headers["X-Ratelimit-Remaining"]) == ("8", "7")
    for answer in (first, second):
        assert [(n, v) for n, v in answer.pairs if n in ("Cache-Control", "Expires")] == list(caching.items())


def test_nginxs_own_expires_is_seen_too():
    with Nginx(ONE % 9, location="expires 1h;") as nginx:
        answer = nginx.ask()
        assert answer.headers["Cache-Control"] == "max-age=3600" and "X-Ratelimit-Limit" not in answer.headers


def test_nginxs_own_cache_stores_none_of_them():
    with App(lambda handler: (200, {"Cache-Control": "no-store"}, b"app\n")) as app:
        with Nginx(ONE % 9, http="proxy_cache_path {folder}/cache keys_zone=c:1m;",
                   location=f"proxy_cache c; proxy_cache_valid 1h; proxy_ignore_headers Cache-Control; "
                            f"proxy_pass http://127.0.0.1:{app.port};") as nginx:
            assert nginx.ask().headers["X-Ratelimit-Remaining"] == "8"
            wait_for(lambda: any(path.is_file() for path in (nginx.folder / "cache").rglob("*")), "it is stored")
            assert [nginx.ask().headers["X-Ratelimit-Remaining"] for _ in range(2)] == ["7", "6"]
            assert len(app.seen) == 1
            stored = b"".join(path.read_bytes() for path in (nginx.folder / "cache").rglob("*") if path.is_file())
            assert b"app\n" in stored and b"ratelimit" not in stored.lower()


def test_a_refusal_is_not_stored():
    with Nginx(ONE % 0, location="error_page 429 /429.html; expires 1h;", files={"html/429.html": "slow\n"},
               server="location = /429.html { expires 1h; add_header Cache-Control public always; }") as nginx:
        answer = nginx.ask()
        assert [value for name, value in answer.pairs if name == "Cache-Control"] == ["no-store"]
