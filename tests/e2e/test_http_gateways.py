"""Real gateways ask /check: nginx by auth_request, Caddy by forward_auth.

SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from http_rig import PATIENCE_S, app, ask, serve
from service import can_connect, free_port, wait_until

RULES = """\
domain: api
descriptors:
  - key: path
    value: /login
    descriptors:
      - key: remote_address
        rate_limit: {unit: day, requests_per_unit: 2}
  - key: method
    value: POST
    rate_limit: {unit: day, requests_per_unit: 2}
"""

# Around what docs/gateways.md shows, which is what is tested.
NGINX = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {shown}
}}
"""

CADDY = """\
{{
    admin off
    auto_https off
    storage file_system {folder}/storage
}}
{shown}
"""


def shown(language, port, weir, app_port):
    """The block of the page, with our ports for its own."""
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs/gateways.md").read_text()
    block = re.search(rf"^```{language}\n(.*?)^```$", page, re.M | re.S)[1]
    for old, new in (("127.0.0.1:8080", weir.address("http")), ("127.0.0.1:80", f"127.0.0.1:{port}"),
                     ("127.0.0.1:3000", f"127.0.0.1:{app_port}")):
        assert old in block
        block = re.sub(re.escape(old) + r"\b", new, block)
    return block


@contextlib.contextmanager
def gateway(command, port, folder):
    env = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               env=env)
    try:
        wait_until(lambda: can_connect(port) or process.poll() is not None, "the gateway")
        assert process.poll() is None, process.communicate()[1]
        yield
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def nginx(tmp_path):
    program = shutil.which("nginx", path="/usr/sbin:" + os.environ["PATH"])
    assert program, "no nginx"
    port, config = free_port(), tmp_path / "nginx.conf"
    with serve(tmp_path, RULES) as weir, app() as app_port:
        config.write_text(NGINX.format(folder=tmp_path, shown=shown("nginx", port, weir, app_port)))
        with gateway([program, "-p", tmp_path, "-c", config, "-e", tmp_path / "error.log"], port, tmp_path):
            yield port
        errors = (tmp_path / "error.log").read_text()
        assert "[alert]" not in errors and "unexpected" not in errors, errors


@pytest.fixture
def caddy(tmp_path):
    program = shutil.which("caddy")
    assert program, "no caddy"
    port, config = free_port(), tmp_path / "Caddyfile"
    with serve(tmp_path, RULES) as weir, app() as app_port:
        config.write_text(CADDY.format(folder=tmp_path, shown=shown("caddy", port, weir, app_port)))
        with gateway([program, "run", "--adapter", "caddyfile", "--config", str(config)], port, tmp_path):
            yield port


def test_nginx_limits_by_path_and_says_so(nginx):
    for left in "1", "0":
        answer = ask(nginx, "/login?user=ann")
        assert (answer.status, answer.body) == (200, b"app")
        assert (answer.headers["X-Ratelimit-Limit"], answer.headers["X-Ratelimit-Remaining"]) == ("2", left)
    for target in "/login", "//login", "/%6cogin", "/a/../login":
        answer = ask(nginx, target)
        assert answer.status == 429 and int(answer.headers["Retry-After"]) >= 1
        assert answer.headers["X-Ratelimit-Remaining"] == "0"
    answer = ask(nginx, "/other")
    assert answer.status == 200 and "X-Ratelimit-Limit" not in answer.headers


def test_nginx_tells_the_method(nginx):
    assert [ask(nginx, "/x", "POST", b"body").status for _ in range(3)] == [200, 200, 429]
    assert ask(nginx, "/x").status == 200


def test_nobody_talks_past_nginx(nginx):
    """What a client says about its request or its address is not what counts."""
    for i in range(3):
        status = ask(nginx, "/login", X_Forwarded_For=f"198.51.100.{i}", X_Forwarded_Uri="/harmless").status
    assert status == 429


def test_caddy_limits_by_path_and_hands_the_refusal_on(caddy):
    assert [ask(caddy, "/login?user=ann").status for _ in range(2)] == [200, 200]
    answer = ask(caddy, "/login")
    assert answer.status == 429 and answer.body == b"Too many requests\n"
    assert int(answer.headers["Retry-After"]) >= 1 and answer.headers["X-Ratelimit-Remaining"] == "0"
    assert ask(caddy, "/other").status == 200


def test_caddy_tells_the_method(caddy):
    assert [ask(caddy, "/x", "POST", b"body").status for _ in range(3)] == [200, 200, 429]


def test_nobody_talks_past_caddy(caddy):
    for i in range(3):
        status = ask(caddy, "/login", X_Forwarded_For=f"198.51.100.{i}", X_Forwarded_Uri="/harmless").status
    assert status == 429
    assert ask(caddy, "/login", X_Original_URI="/harmless").status == 400
