"""What nginx's own limit_req gets wrong, shown beside ours: a zone that is full refuses innocents, slow rates cannot be
said, keys that are too long are not limited.

SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import re

from nginx_rig import Nginx, request

PER_KEY = "domain: api\ndescriptors:\n" \
          "  - {key: header.X-Key, rate_limit: {unit: day, requests_per_unit: 1, algorithm: token_bucket}}\n"
PEER = "location /peer { alias {folder}/html/; limit_req zone=peer; }"
LONG = "large_client_header_buffers 4 128k;"


def test_a_full_zone_refuses_innocents_and_a_full_table_does_not():
    short = [f"k{i:05}" for i in range(400)]
    long = [f"{i:05}".ljust(68, "x") for i in range(200)]
    with Nginx(PER_KEY, server=PEER, http="limit_req_zone $http_x_key zone=peer:32k rate=1r/m;", workers=1,
               table_size="1m") as nginx:
        for path in ("/", "/peer/"):
            with_connection(nginx, path, short)
        theirs = with_connection(nginx, "/peer/", long)
        ours = with_connection(nginx, "/", long)
        assert theirs.count(503) > 50  # each asks for the first time
        assert ours == [200] * len(long)
        nginx.expects = "could not allocate node|slab"


def with_connection(nginx, path, keys):
    with contextlib.closing(nginx.connect()) as connection:
        return [request(connection, path, X_Key=key).status for key in keys]


def test_a_flood_of_keys_forgives_nobody():
    """Whoever was refused stays refused, though many times more keys come than the table has room for."""
    with Nginx(PER_KEY, table_size="1m", workers=1) as nginx:
        assert nginx.statuses(2, X_Key="guilty") == [200, 429]
        flood = with_connection(nginx, "/", [f"flood{i}" for i in range(20000)])
        assert flood.count(200) > 19000  # a sketch may take some for others, never the other way round
        assert nginx.ask(X_Key="guilty").status == 429


def test_slow_rates_can_be_said():
    with Nginx(PER_KEY, http="limit_req_zone $http_x_key zone=peer:1m rate=1r/d;", server=PEER, starts=False) as nginx:
        is_good, said = nginx.test()
        assert not is_good and 'invalid rate "rate=1r/d"' in said
    with Nginx(PER_KEY) as nginx:
        answers = [nginx.ask(X_Key="a") for _ in range(2)]
        assert answers[0].status == 200 and answers[1].status == 429
        assert 86000 < int(answers[1].headers["Retry-After"]) <= 86400


def test_keys_that_are_too_long_are_not_let_through():
    with Nginx(PER_KEY, server=PEER, http=f"{LONG} limit_req_zone $http_x_key zone=peer:1m rate=1r/m;") as nginx:
        key = "k" * 65536
        assert [nginx.ask("/peer/", X_Key=key).status for _ in range(3)] == [200] * 3  # limit_req gives up
        assert re.search(r'the value of the "\$http_x_key" key is more than 65535 bytes', nginx.log())
        assert [nginx.ask(X_Key=key).status for _ in range(3)] == [400] * 3
