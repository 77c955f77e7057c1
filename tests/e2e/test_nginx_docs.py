"""The examples of docs/nginx.md do what the page says: each is read out of the page and run.

An example is a block of nginx configuration, and before it, under the same heading, the files that it uses.
SPDX-License-Identifier: Apache-2.0
"""
import base64
import contextlib
import os
import re
import shlex
import shutil
import tempfile
import threading
import time

import pytest

from nginx_rig import App, Nginx, ROOT, RULES, wait_for
from service import Service

PAGE = (ROOT / "docs/nginx.md").read_text()
PASSWORDS = "ann:{PLAIN}secret\nbob:{PLAIN}secret\n"


def example(heading):
    """(files, configuration) of an example."""
    section = re.search(rf"^### {re.escape(heading)}$(.*?)(?=^##)", PAGE, re.M | re.S)[1]
    files = {re.match(r"# (\S+)", block)[1]: block
             for block in re.findall(r"^```(?:yaml|csv)\n(.*?)^```$", section, re.M | re.S)}
    return files, re.search(r"^```nginx\n(.*?)^```$", section, re.M | re.S)[1]


def run(heading, app):
    files, text = example(heading)
    rules = re.search(r"/etc/weir/(\S+\.yaml)", text)[1]
    assert rules in files
    for old, new in (("127.0.0.1:80;", "127.0.0.1:{port};"), ("127.0.0.1:3000", f"127.0.0.1:{app.port}")):
        assert old in text
        text = text.replace(old, new)
    text = text.replace("/etc/weir/", "{folder}/")
    return Nginx(None, http="weir_table {folder}/table size=8m;", servers=text, files={**files, "passwords": PASSWORDS})


def basic(user):
    return dict(Authorization="Basic " + base64.b64encode(f"{user}:secret".encode()).decode())


def counts(nginx, count, **asking):
    """Statuses of so many requests, and how often each came."""
    found = nginx.statuses(count, **asking)
    return {status: found.count(status) for status in found}


def test_per_address():
    with App() as app, run("Per address", app) as nginx:
        assert counts(nginx, 310) == {200: 300, 429: 10}
        assert nginx.ask(source="127.0.0.2").status == 200


def test_per_user():
    with App() as app, run("Per user", app) as nginx:
        assert nginx.ask().status == 401
        assert nginx.ask(**basic("ann")).headers["X-Ratelimit-Remaining"] == "999"
        assert nginx.ask(**basic("bob")).headers["X-Ratelimit-Remaining"] == "999"


def test_known_users_by_name_others_by_address():
    with App(lambda h: (200, {"X-User": h.headers.get("X-Token", "")}, b"")) as app, \
            run("Known users by name, others by address", app) as nginx:
        assert counts(nginx, 62) == {200: 60, 429: 2}
        assert nginx.ask(X_Token="ann").headers["X-Ratelimit-Remaining"] == "999"
        assert nginx.ask(source="127.0.0.2").status == 200


def login(handler):
    return (200 if handler.headers["X-Password"] == "right" else 401), {}, b""


def test_login_protection():
    with App(login) as app, run("Login protection", app) as nginx:
        attacker = dict(path="/login", source="127.0.0.2", X_Account="ann", X_Password="wrong")
        assert counts(nginx, 8, **attacker) == {401: 5, 429: 3}
        owner = dict(path="/login", source="127.0.0.1", X_Account="ann", X_Password="right")
        assert counts(nginx, 3, **owner) == {200: 3}  # from elsewhere, and as often as she likes
        assert nginx.ask(**{**attacker, "X_Password": "right"}).status == 429
        assert nginx.ask(**{**attacker, "X_Account": "bob"}).status == 401


def test_guesses_in_parallel_count_like_others():
    gate = threading.Event()

    def wait_and_login(handler):
        gate.wait(30)
        return login(handler)
    with App(wait_and_login) as app, run("Login protection", app) as nginx:
        statuses = []
        threads = [threading.Thread(target=lambda: statuses.append(nginx.ask(
            "/login", X_Account="ann", X_Password="wrong").status)) for _ in range(100)]
        for thread in threads:
            thread.start()
        wait_for(lambda: statuses.count(429) == 95, "all but five are refused")
        gate.set()
        for thread in threads:
            thread.join()
        assert statuses.count(401) == 5 and len(app.seen) == 5


def test_tiers():
    with App() as app, run("Tiers", app) as nginx:
        assert nginx.ask(**basic("ann")).headers["X-Ratelimit-Limit"] == "600"
        assert nginx.ask(**basic("bob")).headers["X-Ratelimit-Limit"] == "60"


def test_expensive_endpoints():
    with App() as app, run("Expensive endpoints", app) as nginx:
        assert nginx.ask("/cheap").headers["X-Ratelimit-Remaining"] == "99"
        assert counts(nginx, 3, path="/reports/7") == {200: 2, 429: 1}
        assert nginx.ask("/cheap").status == 200


def test_a_cap_an_allow_list_and_a_block_list():
    with App() as app, run("A cap for all, an allow-list, a block-list", app) as nginx:
        assert counts(nginx, 101, source="127.0.0.1") == {200: 100, 429: 1}
        assert counts(nginx, 110, source="127.0.0.9") == {200: 110}
        assert counts(nginx, 2, source="127.0.0.17") == {429: 2}


def test_egress():
    with App() as app, run("Egress: an API that costs money", app) as nginx:
        began = time.monotonic_ns()
        assert counts(nginx, 5) == {200: 5}
        assert app.seen[-1][1] - began >= 4 * 100_000_000 - 5_000_000  # a tenth of a second each


def test_the_first_example_of_the_page():
    text = re.search(r"^```nginx\n(.*?)^```$", PAGE, re.M | re.S)[1]
    http = re.search(r"http \{\n(.*)\n\}\n", text, re.S)[1]
    with App() as app:
        http = http.replace("/dev/shm/weir", "{folder}/table").replace("/etc/weir/", "{folder}/")
        http = http.replace("127.0.0.1:80;", "127.0.0.1:{port};").replace("127.0.0.1:3000", f"127.0.0.1:{app.port}")
        with Nginx(None, servers=http, starts=False) as nginx:
            nginx.configure(engine="")
            nginx.start()
            assert nginx.statuses(4) == [200, 200, 200, 429]


@pytest.mark.parametrize("heading", re.findall(r"^### (.*)$", PAGE.split("## Examples")[1], re.M))
def test_every_example_is_tried(heading):
    text = open(__file__, encoding="utf-8").read()
    assert heading == "Logs" or f'run("{heading}"' in text


def test_the_log_format_is_good():
    lines = example("Logs")[1].replace("/var/log/nginx/limits.log", "{folder}/limits.log")
    with Nginx(http=lines.partition("\n")[0], server=lines.partition("\n")[2]) as nginx:
        nginx.ask()
        path = nginx.folder / "limits.log"
        wait_for(lambda: path.exists() and path.read_text(), "a line")
        assert path.read_text() == "127.0.0.1 200 PASSED rule=api.remote_address left=2/3 held=0.000\n"


@contextlib.contextmanager
def machine(store, app):
    """One of the many: the service and nginx, as the page has them, but patient."""
    section = re.search(r"^## Many machines$(.*?)(?=^## )", PAGE, re.M | re.S)[1]
    with tempfile.TemporaryDirectory(prefix="weir-host-") as folder:
        os.chmod(folder, 0o755)             # nginx's workers are somebody else
        os.mkdir(f"{folder}/run")
        if os.getuid() == 0:
            shutil.chown(f"{folder}/run", group="www-data")
        os.chmod(f"{folder}/run", 0o2750)

        def filled(text):
            for old, new in (("/dev/shm/weir", f"{folder}/table"), ("/etc/weir/", f"{folder}/"),
                             ("/run/weir/", f"{folder}/run/"),
                             ("redis://10.0.0.9:6379", store.url), ("weir.sock;", "weir.sock timeout=20s;"),
                             ("127.0.0.1:80;", "127.0.0.1:{port};"), ("127.0.0.1:3000", f"127.0.0.1:{app.port}")):
                text = text.replace(old, new)
            return text

        program, action, *flags = shlex.split(filled(re.search(r"^```sh\n(.*?)^```$", section, re.M | re.S)[1]))
        inside = re.search(r"^```nginx\nhttp \{\n(.*?)^\}\n```$", section, re.M | re.S)[1]
        assert (program, action) == ("weir", "serve")
        with Service(folder, RULES, [*flags, "--table-size", "8m", "--store-deadline", "10s"], listeners=()), \
                Nginx(None, servers=filled(inside)) as nginx:
            wait_for(lambda: nginx.log().count("answers") >= int(nginx.parts["workers"]), "the service to answer")
            yield nginx


def test_many_machines(store):
    with App() as app, machine(store, app) as one, machine(store, app) as two:
        assert [nginx.ask().status for nginx in (one, two) * 3] == [200] * 3 + [429] * 3
