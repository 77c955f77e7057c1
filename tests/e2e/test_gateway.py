"""weir gateway at work: real nginx, the admin listener beside it, signals, and the demonstration.

SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request

import pytest

from http_rig import ask
from nginx_rig import App
from service import PATIENCE_S, can_connect, free_port, wait_until
from weir_cli import DONE, ROOT, WEIR, WORLD

RULES = """\
domain: api
descriptors:
  - key: remote_address
    id: address
    rate_limit: {unit: day, requests_per_unit: 3}
"""


class Gateway:
    """A running `weir gateway`, or another command that starts one.  chosen: the settings that are given as flags."""

    def __init__(self, *flags, rules=RULES, command="gateway", files=None, stdout=None, user=None,
                 chosen=("rules", "listen", "admin", "table")):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-gateway-test-"))
        self.folder.chmod(0o777)
        (self.folder / "tmp").mkdir(mode=0o777)
        (self.folder / "tmp").chmod(0o777)
        for name, text in {"rules.yaml": rules, **(files or {})}.items():
            self.write(name, text)
        self.port, self.admin = free_port(), free_port()
        if command == "gateway":
            ours = dict(rules=self.folder / "rules.yaml", listen=f"127.0.0.1:{self.port}",
                        admin=f"127.0.0.1:{self.admin}", table=self.folder / "table")
            flags = [*(f"--{name}={ours[name]}" for name in chosen), "--table-size", "1m", *flags]
            flags = [str(flag).replace("{folder}", str(self.folder)) for flag in flags]
        self.out = open(self.folder / "out", "w+", encoding="utf-8")
        self.process = subprocess.Popen([WEIR, command, *map(str, flags)], stdout=stdout or self.out,
                                        stderr=self.out, user=user, cwd="/",
                                        env=dict(os.environ, TMPDIR=str(self.folder / "tmp")))

    def write(self, name, text):
        path = self.folder / name
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").rename(path)

    def said(self):
        return (self.folder / "out").read_text(encoding="utf-8")

    def wait_ready(self):
        wait_until(lambda: self.process.poll() is not None or (can_connect(self.port) and can_connect(self.admin)),
                 "the gateway listens")
        assert self.process.poll() is None, self.said()
        return self

    def ask(self, path="/", **headers):
        return ask(self.port, path, **headers)

    def children(self, name):
        """The processes of this name that the gateway has started."""
        done = subprocess.run(["pgrep", "-P", str(self.process.pid), name], capture_output=True, text=True)
        return [int(pid) for pid in done.stdout.split()]

    def end(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            status = self.end()
            if kind is None:
                assert not re.search(r"\[(alert|crit|emerg)\]|Sanitizer", self.said()), self.said()
                assert list((self.folder / "tmp").iterdir()) == [], "it leaves nothing behind"
                assert status == DONE
        finally:
            self.out.close()
            subprocess.run(["rm", "-rf", self.folder], check=True)


def test_requests_within_the_limit_pass_and_the_log_says_so():
    with App() as app, Gateway("--upstream", f"http://127.0.0.1:{app.port}") as gateway:
        gateway.wait_ready()
        answers = [gateway.ask("/x?y") for _ in range(4)]
        assert [answer.status for answer in answers] == [200, 200, 200, 429]
        assert answers[0].headers["X-Ratelimit-Remaining"] == "2" and answers[3].headers["Retry-After"]
        assert [path for path, _ in app.seen] == ["/x?y"] * 3
        wait_until(lambda: gateway.said().count("weir=") >= 4, "the access log")
        assert 'weir=REJECTED rule="address" limit=3 remaining=0' in gateway.said()
        with urllib.request.urlopen(f"http://127.0.0.1:{gateway.admin}/metrics", timeout=PATIENCE_S) as metrics:
            assert b'weir_rule_hits_total{rule="address"} 4' in metrics.read()


def test_the_upstream_hears_who_asked_and_for_what():
    heard = {}

    def answer(handler):
        heard.update(handler.headers)
        return 200, {}, b"ok"
    with App(answer) as app, Gateway("--upstream", f"http://127.0.0.1:{app.port}") as gateway:
        gateway.wait_ready()
        gateway.ask("/", Host="shop.example")
        assert heard["Host"] == "shop.example" and heard["X-Forwarded-For"] == "127.0.0.1"
        assert heard["X-Forwarded-Proto"] == "http" and "Connection" not in heard


def test_connections_to_the_upstream_are_kept():
    peers = []

    def answer(handler):
        peers.append(handler.client_address)
        return 200, {}, b"ok"
    with App(answer) as app, Gateway("--upstream", f"http://127.0.0.1:{app.port}", "--workers", "1") as gateway:
        gateway.wait_ready()
        assert [gateway.ask().status for _ in range(3)] == [200] * 3
        assert len(peers) == 3 and len(set(peers)) == 1


def echo(handler):
    """What the upstream hears, as JSON."""
    return 200, {}, json.dumps(dict(handler.headers)).encode()


def raw(port, text):
    """(status, headers that the echo heard) of a request as it is written; it must end the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall(text.encode())
        head, _, body = b"".join(iter(lambda: connection.recv(65536), b"")).partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body) if body.startswith(b"{") else None


def test_the_host_that_is_counted_is_the_one_that_the_upstream_hears():
    rules = RULES.replace("remote_address", "host")
    with App(echo) as app, Gateway("--upstream", f"http://127.0.0.1:{app.port}", rules=rules) as gateway:
        gateway.wait_ready()
        answers = [raw(gateway.port, f"GET http://{name}.example/ HTTP/1.1\r\nHost: Shop.example:81\r\n"
                                     "Connection: close\r\n\r\n")
                   for name in ("a", "b", "shop", "shop", "shop", "shop")]
        assert [status for status, _ in answers] == [200] * 5 + [429]
        assert [heard["Host"] for _, heard in answers[:5]] == ["a.example:81", "b.example:81"] + ["shop.example:81"] * 3
        assert answers[0][1]["X-Forwarded-Host"] == "a.example:81"
        assert raw(gateway.port, "GET / HTTP/1.0\r\n\r\n")[1]["Host"] == "localhost"


@pytest.mark.parametrize("protocol, passed", [("websocket", "websocket"), ("WebSocket", "websocket"), ("h2c", None),
                                              ("h2c, websocket", None)])
def test_only_websockets_may_leave_http_behind(protocol, passed):
    with App(echo) as app, Gateway("--upstream", f"http://127.0.0.1:{app.port}") as gateway:
        gateway.wait_ready()
        _, heard = raw(gateway.port, f"GET / HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n")
        assert (heard.get("Upgrade"), heard.get("Connection")) == (passed, "upgrade" if passed else None)


def test_it_takes_more_connections_than_the_soft_limit_of_files():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with App() as app:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
        try:
            gateway = Gateway("--upstream", f"http://127.0.0.1:{app.port}", "--workers", "1")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        with gateway, contextlib.ExitStack() as held:
            gateway.wait_ready()
            for _ in range(100):
                held.enter_context(socket.create_connection(("127.0.0.1", gateway.port), timeout=PATIENCE_S))
            assert gateway.ask().status == 200


def test_routes_upstreams_domains_and_includes(tmp_path):
    def app_of(name):
        return App(lambda handler: (200, {}, name + handler.path.encode()))
    tmp_path.joinpath("ours.conf").write_text('return 200 "ours\\n";\n')
    tmp_path.joinpath("rules").mkdir()
    tmp_path.joinpath("rules/one.yaml").write_text(RULES)
    tmp_path.joinpath("rules/two.yaml").write_text(RULES.replace("domain: api", "domain: other").replace("3}", "1}"))
    with app_of(b"a") as a, app_of(b"b") as b, app_of(b"c") as c:
        tmp_path.joinpath("gateway.yaml").write_text(f"""\
upstreams: {{both: ["http://127.0.0.1:{a.port}", "http://127.0.0.1:{b.port}"]}}
workers: 1
routes:
  - {{path: /, upstream: both}}
  - {{path: /c/, upstream: "http://127.0.0.1:{c.port}/deep/", domain: other}}
  - {{path: /free/, upstream: both, limit: off}}
  - {{path: /ours/, limit: off, include: ours.conf}}
""")
        with Gateway("--config", tmp_path / "gateway.yaml", "--rules", tmp_path / "rules", "--domain",
                     "api") as gateway:
            gateway.wait_ready()
            assert {gateway.ask("/x").body for _ in range(2)} == {b"a/x", b"b/x"}      # in turns
            assert gateway.ask("/c/x").body == b"c/deep/x" and gateway.ask("/c/x").status == 429
            assert gateway.ask("/x").status == 200 and gateway.ask("/x").status == 429
            assert [gateway.ask("/free/").status for _ in range(5)] == [200] * 5
            assert gateway.ask("/ours/").body == b"ours\n"


def test_a_change_of_the_rules_is_taken_by_itself_and_a_bad_one_is_not():
    # One worker: another could look for the first time when the second change is there.
    with App() as app, Gateway("--upstream", f"http://127.0.0.1:{app.port}", "--workers", "1") as gateway:
        gateway.wait_ready()
        assert gateway.ask().headers["X-Ratelimit-Limit"] == "3"
        gateway.write("rules.yaml", RULES.replace("3}", "30}"))
        wait_until(lambda: gateway.ask().headers["X-Ratelimit-Limit"] == "30", "new rules")
        gateway.write("rules.yaml", RULES.replace("day", "dya"))
        wait_until(lambda: "did you mean 'day'?" in gateway.said(), "a word about bad rules")
        assert gateway.ask().headers["X-Ratelimit-Limit"] == "30"


def test_bad_rules_are_told_once_and_so_are_good_ones_after_them():
    with App() as app, Gateway("--upstream", f"http://127.0.0.1:{app.port}", "--workers", "3") as gateway:
        gateway.wait_ready()
        gateway.write("rules.yaml", RULES.replace("day", "dya"))
        wait_until(lambda: "the rules stay as they were" in gateway.said(), "a word about bad rules")
        gateway.write("rules.yaml", RULES.replace("3}", "30}"))
        wait_until(lambda: "new rules, generation 2" in gateway.said(), "a word about good ones")
        wait_until(lambda: gateway.ask().headers["X-Ratelimit-Limit"] == "30", "new rules")
        gateway.end()
        for words in ("did you mean 'day'?", "the rules stay as they were", "new rules, generation 2"):
            assert gateway.said().count(words) == 1, gateway.said()


def test_sighup_takes_another_configuration_and_keeps_the_old_where_it_is_bad():
    with App() as app, App(lambda handler: (200, {}, b"second")) as second:
        text = f"routes: [{{path: /, upstream: 'http://127.0.0.1:{app.port}'}}]\n"
        folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-gateway-test-"))
        config = folder / "gateway.yaml"
        config.write_text(text)
        with Gateway("--config", config, rules=RULES.replace("3}", "3000}")) as gateway:
            gateway.wait_ready()
            assert gateway.ask().body == b"app\n"
            config.write_text(text.replace(str(app.port), str(second.port)))
            gateway.process.send_signal(signal.SIGHUP)
            wait_until(lambda: gateway.ask().body == b"second", "the other upstream")
            config.write_text("routes: 5\n")
            gateway.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "the old configuration stays" in gateway.said(), "a refusal")
            assert gateway.ask().body == b"second"
        subprocess.run(["rm", "-r", folder], check=True)


def test_sighup_moves_the_admin_listener_and_its_rules(tmp_path):
    tmp_path.joinpath("other.yaml").write_text(RULES.replace("id: address", "id: moved"))
    with App() as app:
        text = f"rules: rules.yaml\nadmin: 127.0.0.1:{{}}\nupstream: http://127.0.0.1:{app.port}\n"
        tmp_path.joinpath("rules.yaml").write_text(RULES)
        config = tmp_path / "gateway.yaml"
        first, second = free_port(), free_port()
        config.write_text(text.format(first))
        with Gateway("--config", config, chosen=("listen", "table")) as gateway:
            gateway.admin = first
            gateway.wait_ready()
            config.write_text(text.format(second).replace("rules.yaml", "other.yaml"))
            gateway.process.send_signal(signal.SIGHUP)
            wait_until(lambda: can_connect(second), "the admin listener at its new address")
            with urllib.request.urlopen(f"http://127.0.0.1:{second}/rlconfig", timeout=PATIENCE_S) as rules:
                assert rules.read().startswith(b"moved:")
            assert not can_connect(first) and "has ended" not in gateway.said()
            config.write_text(text.replace("127.0.0.1:{}", "off").format())
            gateway.process.send_signal(signal.SIGHUP)
            wait_until(lambda: not can_connect(second), "no admin listener")


def test_tls_and_http2(tmp_path):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost", "-keyout", tmp_path / "key.pem", "-out",
                    tmp_path / "cert.pem"], check=True, capture_output=True)
    with App() as app, Gateway("--upstream", f"http://127.0.0.1:{app.port}", "--tls-cert", tmp_path / "cert.pem",
                               "--tls-key", tmp_path / "key.pem") as gateway:
        gateway.wait_ready()
        done = subprocess.run(["curl", "-s", "--http2", "--cacert", tmp_path / "cert.pem", "-w", "%{http_version}",
                               f"https://localhost:{gateway.port}/"], capture_output=True, text=True,
                              timeout=PATIENCE_S)
        assert done.stdout == "app\n2"
        # An https upstream is verified: this gateway is one that nobody vouches for, and then one that somebody does.
        for ca, status in ((None, 502), (tmp_path / "cert.pem", 200)):
            flags = ["--upstream", f"https://localhost:{gateway.port}", *(["--upstream-ca", ca] if ca else [])]
            with Gateway(*flags) as outer:
                outer.wait_ready()
                assert outer.ask().status == status


def test_when_the_admin_listener_dies_it_comes_back_and_nobody_else_notices():
    with App() as app, Gateway("--upstream", f"http://127.0.0.1:{app.port}") as gateway:
        gateway.wait_ready()
        [admin] = gateway.children("weir")
        os.kill(admin, signal.SIGKILL)
        assert gateway.ask().status == 200
        wait_until(lambda: gateway.children("weir") not in ([], [admin]), "another admin listener")
        wait_until(lambda: can_connect(gateway.admin), "it listens")


def test_an_admin_address_in_use_is_told_before_anything_runs():
    with App() as app, socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with Gateway("--upstream", f"http://127.0.0.1:{app.port}", f"--admin={address}") as gateway:
            assert gateway.process.wait(PATIENCE_S) == WORLD
            assert gateway.said() == \
                f"weir: gateway: {address}: address already in use; --admin says where else, or off\n"
            gateway.process.returncode = DONE


def test_an_admin_listener_that_cannot_move_is_not_started_in_a_circle(tmp_path):
    config = tmp_path / "gateway.yaml"
    config.write_text(f"admin: 127.0.0.1:{free_port()}\n")
    with App() as app, socket.create_server(("127.0.0.1", 0)) as taken, \
            Gateway("--upstream", f"http://127.0.0.1:{app.port}", "--config", config,
                    chosen=("rules", "listen", "table")) as gateway:
        wait_until(lambda: "gateway on" in gateway.said(), "the gateway listens")
        config.write_text(f"admin: 127.0.0.1:{taken.getsockname()[1]}\n")
        gateway.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "it is started again" in gateway.said(), "it has ended")
        began = time.monotonic()
        wait_until(lambda: gateway.said().count("it is started again") > 1, "it has ended again")
        assert time.monotonic() - began > 0.9 and "address already in use" in gateway.said()
        assert gateway.ask().status == 200


def test_a_websocket_that_stays_is_cut_when_the_grace_is_over_and_nobody_complains():
    def switch(handler):
        handler.connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                                   b"Connection: upgrade\r\n\r\nhi")
        assert handler.connection.recv(1) == b""  # until the gateway goes
        return 200, {}, b""
    with App(switch) as app, Gateway("--upstream", f"http://127.0.0.1:{app.port}", "--grace", "1",
                                     "--listen", "unix:{folder}/socket") as gateway:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENCE_S)
            wait_until(lambda: client.connect_ex(str(gateway.folder / "socket")) == 0, "it listens")
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
            seen = b""
            while not seen.endswith(b"hi"):
                seen += client.recv(4096)
            assert gateway.end() == DONE and client.recv(1) == b""
        assert not (gateway.folder / "socket").exists()  # and __exit__ finds no alert


def test_when_nginx_dies_so_does_the_gateway():
    with App() as app, Gateway("--upstream", f"http://127.0.0.1:{app.port}") as gateway:
        gateway.wait_ready()
        [nginx] = gateway.children("nginx")
        workers = subprocess.run(["pgrep", "-P", str(nginx)], capture_output=True, text=True).stdout.split()
        os.kill(nginx, signal.SIGKILL)
        assert gateway.process.wait(PATIENCE_S) == WORLD and "nginx has ended" in gateway.said()
        for worker in workers:      # orphans, as after any kill -9 of a master; they are ours to end
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(worker), signal.SIGKILL)
        gateway.process.returncode = DONE


def test_when_the_gateway_is_killed_nothing_stays_behind():
    with App() as app, Gateway("--upstream", f"http://127.0.0.1:{app.port}") as gateway:
        gateway.wait_ready()
        left = gateway.children("nginx") + gateway.children("weir")
        assert len(left) == 2
        gateway.process.kill()
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in left), "all have ended")
        gateway.process.wait()
        gateway.process.returncode = DONE
        subprocess.run(["rm", "-rf", *(gateway.folder / "tmp").iterdir()], check=True)


def test_a_request_on_its_way_is_finished_when_it_ends():
    go = threading.Event()

    def answer(handler):
        go.wait(PATIENCE_S)
        return 200, {}, b"late"
    with App(answer) as app, Gateway("--upstream", f"http://127.0.0.1:{app.port}") as gateway:
        gateway.wait_ready()
        got = []
        asking = threading.Thread(target=lambda: got.append(gateway.ask().body))
        asking.start()
        wait_until(lambda: app.seen, "the request at the upstream")
        gateway.process.send_signal(signal.SIGINT)
        wait_until(lambda: not can_connect(gateway.port), "no new ones")
        go.set()
        asking.join(PATIENCE_S)
        assert got == [b"late"]


def test_an_address_in_use_is_told():
    with App() as app, Gateway("--upstream", "http://127.0.0.1:1", "--listen", f"127.0.0.1:{app.port}") as gateway:
        assert gateway.process.wait(PATIENCE_S) == WORLD
        assert "Address already in use" in gateway.said()
        gateway.process.returncode = DONE
        gateway.write("out", "")        # nginx has said [emerg], as it should


@pytest.mark.skipif(os.getuid() != 0, reason="then the others have shown it already")
def test_it_runs_for_somebody_who_is_not_root():
    with App() as app, Gateway("--upstream", f"http://127.0.0.1:{app.port}", user="nobody") as gateway:
        gateway.wait_ready()
        assert [gateway.ask().status for _ in range(4)] == [200, 200, 200, 429]


def test_the_log_reaches_a_standard_output_that_has_no_name():
    ours, theirs = socket.socketpair()
    with ours, theirs, App() as app, Gateway("--upstream", f"http://127.0.0.1:{app.port}", stdout=theirs) as gateway:
        gateway.wait_ready()
        gateway.ask("/first")
        ours.settimeout(PATIENCE_S)
        assert b'"GET /first HTTP/1.1" 200' in ours.recv(65536)
        gateway.process.send_signal(signal.SIGHUP)
        gateway.ask("/second")
        assert b'"GET /second HTTP/1.1" 200' in ours.recv(65536)


@pytest.mark.skipif(os.getuid() != 0, reason="only root's workers are somebody else")
def test_root_is_told_where_workers_cannot_read_the_rules():
    with App() as app, Gateway("--upstream", f"http://127.0.0.1:{app.port}") as gateway:
        gateway.wait_ready()
        (gateway.folder / "rules.yaml").chmod(0o600)
        with Gateway("--upstream", f"http://127.0.0.1:{app.port}", "--rules", gateway.folder / "rules.yaml") as other:
            other.wait_ready()
            assert "may not read" in other.said() and "SIGHUP" in other.said()


def test_the_demonstration_shows_what_its_words_promise():
    with Gateway("--seconds", "40", command="demo") as demo:
        wait_until(lambda: demo.process.poll() is not None or "Ctrl-C stops" in demo.said(), "the words")
        said = demo.said()
        curls = re.findall(r"^  (curl .*?'http://\S+')", said, re.M)
        assert len(curls) == 3
        codes = []
        for curl in curls:
            quiet = curl.replace("curl ", "curl -s -o /dev/null -w '%{http_code} ' ", 1).replace("-i ", "").replace(
                r"-w '%{time_total}\n' ", "")
            codes.append(subprocess.run(quiet, shell=True, capture_output=True, text=True,
                                        timeout=PATIENCE_S).stdout.split())
        assert codes[0].count("200") in range(5, 9) and "429" in codes[0] or len(set(codes[0])) == 1
        assert codes[1] == ["200"] * 8                              # one by one: held, never refused
        assert codes[2] == ["401"] * 3 + ["429"] * 2
        wait_until(lambda: "weir=DELAYED" in demo.said(), "a line of one that was held")
        [rules] = re.findall(r"the rules +(\S+)", said)
        text = (ROOT / "examples/rules/demo.yaml").read_text(encoding="utf-8")
        text = text.replace("requests_per_unit: 5}", "requests_per_unit: 5000}")
        pathlib.Path(rules).write_text(text, encoding="utf-8")
        [port] = re.findall(r"the gateway +http://127.0.0.1:(\d+)", said)
        demo.port = int(port)
        wait_until(lambda: demo.ask("/hello").headers.get("X-Ratelimit-Limit") != "5", "the change")
        assert demo.end(signal.SIGINT) == DONE


@contextlib.contextmanager
def taken(port):
    """Somebody listens there: we, unless somebody else does."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            listener.listen()
        yield


@pytest.mark.parametrize("port", [8000, 8001, 6070])
def test_the_demonstration_goes_elsewhere_where_a_port_is_taken(port):
    with taken(port), Gateway("--seconds", "40", command="demo") as demo:
        wait_until(lambda: demo.process.poll() is not None or "Ctrl-C stops" in demo.said(), "the words")
        ports = re.findall(r"^  (?:the API|the gateway|metrics) +http://127.0.0.1:(\d+)", demo.said(), re.M)
        assert len(set(ports)) == 3 and str(port) not in ports
        demo.port = int(ports[1])
        assert demo.ask("/hello").status in (200, 429)
        assert demo.end(signal.SIGINT) == DONE


def test_the_demonstration_ends_well_where_standard_output_is_closed():
    done = subprocess.run([WEIR, "demo", "--seconds", "1"], preexec_fn=lambda: os.close(1), stderr=subprocess.PIPE,
                          text=True, timeout=PATIENCE_S)
    assert done.returncode == WORLD and "cannot write the output" in done.stderr
