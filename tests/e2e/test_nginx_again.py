"""Requests that are like the one before them are decided and told the quickest way.  It leads where all ways lead: two
nginx, of which only one can take it, answer the same requests alike, and log the same.

SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import random

import pytest

from nginx_rig import App, Nginx, SCALE

LIMIT, BURST = 200, 120     # crosses 100 and 10, where what remains has a digit less; and ends in refusals
RULES = f"""\
domain: api
descriptors:
  - key: remote_address
    rate_limit: {{unit: day, requests_per_unit: {LIMIT}, burst: {BURST}, algorithm: token_bucket}}
"""
OTHER_RULES = RULES + f"""\
  - key: header.x-nobody
    rate_limit: {{unit: day, requests_per_unit: {LIMIT}}}
"""                         # asks for more than the address
OTHER_HEADERS = "weir_headers legacy reset-delta;"      # are three
FULL = range(14, 24)        # headers: nginx's own list has room for 20, and begins another
SERVER = "".join([
    "location /free { alias {folder}/html/; }\n",
    "location /dry { alias {folder}/html/; weir_limit on; weir_dry_run on; }\n",
    "location /none { alias {folder}/html/; weir_limit on; weir_headers none; }\n",
    "location /reset { alias {folder}/html/; weir_limit on; weir_headers reset-delta; }\n",
    "location /lists { alias {folder}/html/; weir_limit on; weir_headers legacy ietf-11; }\n",
    "location /late { alias {folder}/html/; weir_limit on phase=precontent; }\n",
    "location /user { alias {folder}/html/; weir_limit on; weir_user $arg_user; }\n",
    "location /try { weir_limit on; try_files /nothing /free/index.html; }\n",
    "location /again { weir_limit on; rewrite ^ /dry/index.html last; }\n",
    "location /stored { alias {folder}/html/; weir_limit on; add_header Cache-Control 'public, max-age=60'; }\n",
    "location /private { alias {folder}/html/; weir_limit on; add_header Cache-Control 'private'; }\n",
    "location /app { weir_limit on; proxy_pass http://127.0.0.1:{app}; }\n",
    *("location /many%d { alias {folder}/html/; weir_limit on; %s }\n" %
      (count, " ".join(f"add_header A{i} {i};" for i in range(count))) for count in FULL)])
NAMES = "free dry none reset lists late user try again stored private app".split()
# To a folder's index nginx redirects within, and forgets a module's context.
PATHS = ["/", "/index.html", "/nowhere", "/free/", "/dry/", *(f"/{name}/index.html" for name in NAMES),
         "/user/index.html?user=ann", *(f"/many{count}/index.html" for count in FULL)]
# What the upstream says of limits of its own gives way.
APP = 200, {"X-RateLimit-Limit": "77", "X-Ratelimit-Remaining": "76", "RateLimit": "x", "X-Other": "y"}, b"app\n"


def told(answer):
    """Status and all headers, but for times, which may be another second's, and for the one that only the other has."""
    timed = "Date", "Retry-After", "X-Ratelimit-Retry-After", "RateLimit"
    return answer.status, [(name, "" if name in timed else value) for name, value in answer.pairs
                           if name != "X-Ratelimit-Reset"]


def logged(nginx, count):
    return [{**row, "retry_after": ""} for row in nginx.wait_for_access(count)]


@contextlib.contextmanager
def two(server):
    with App(lambda _: APP) as app, \
            Nginx(RULES, workers=1, server=server.replace("{app}", str(app.port))) as swift, \
            Nginx(OTHER_RULES, workers=1, server=server.replace("{app}", str(app.port)), http=OTHER_HEADERS) as other:
        yield swift, other


@pytest.mark.parametrize("seed", range(max(1, round(3 * SCALE))))
def test_it_is_told_and_logged_as_by_the_other_ways(seed):
    chance = random.Random(seed)
    with two(SERVER) as both:
        for nginx in both:
            nginx.write("html/index.html", "hello\n")
        path, count = "/index.html", 400
        for _ in range(count):
            if chance.random() < 0.2:
                path = chance.choice(PATHS)
            first, second = (told(nginx.ask(path)) for nginx in both)
            assert first == second, path
        assert logged(both[0], count) == logged(both[1], count)
        assert {row["verdict"] for row in both[0].access()} >= {"PASSED", "REJECTED"}


def test_what_remains_is_told_to_the_last():
    """One after the other, on one connection, and each once."""
    with two("") as both:
        for nginx in both:
            answers = [nginx.ask("/index.html") for _ in range(BURST + 2)]
            remaining = [*reversed(range(BURST)), 0, 0]
            assert [answer.headers["X-Ratelimit-Remaining"] for answer in answers] == [*map(str, remaining)]
            assert {answer.headers["X-Ratelimit-Limit"] for answer in answers} == {str(BURST)}
            assert [answer.status for answer in answers] == [200] * BURST + [429] * 2


def test_who_is_held_by_another_handler_of_the_phase_is_counted_once():
    """It is asked again from the phase's first handler on, before which ours stands."""
    with Nginx(RULES, workers=1, http="limit_req_zone $binary_remote_addr zone=z:1m rate=20r/s;",
               location="limit_req zone=z burst=20; limit_req_log_level warn;") as nginx:
        remaining = [int(nginx.ask("/index.html").headers["X-Ratelimit-Remaining"]) for _ in range(10)]
        assert remaining == [*range(BURST - 1, BURST - 11, -1)]
        assert "delaying request" in nginx.log()
