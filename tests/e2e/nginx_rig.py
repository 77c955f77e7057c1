"""How the tests of the nginx module run nginx: a real one, on loopback, in a folder of its own, its workers as another
user where we are root.  At the end of every test its error log has no line that is worse than an error.

SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import http.client
import http.server
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from http_rig import ask, request  # noqa: F401  (offered with the rest)
from service import PATIENCE_S, ROOT, can_connect, free_port
from service import wait_until as wait_for

BUILD = pathlib.Path(os.environ.get("WEIR_BUILD") or ROOT / "build")
MODULE = BUILD / "nginx/ngx_http_weir_module.so"
NGINX = "/usr/sbin/nginx"  # absolute: an upgrade starts it again by this name
SCALE = float(os.environ.get("WEIR_TEST_SCALE") or 1)

RULES = """\
domain: api
descriptors:
  - key: remote_address
    rate_limit: {name: per_address, unit: day, requests_per_unit: 3}
"""

# How every configuration of ours begins, and how a line of its access log does.
HEAD = """\
{user}
{main}
daemon {daemon};
worker_processes {workers};
pid {folder}/pid;
error_log {folder}/error.log info;
events {{ worker_connections 2048; }}
"""
LOGGED = "$status|$weir_status|$weir_rule|$weir_limit|$weir_remaining|$weir_retry_after|$weir_delay"

CONF = f"load_module {{module}};\n{HEAD}http {{{{\n    log_format weir '{LOGGED}|$uri';" + """
    access_log {folder}/access.log weir;
    client_body_temp_path {folder}/t1;
    proxy_temp_path {folder}/t2;
    fastcgi_temp_path {folder}/t3;
    uwsgi_temp_path {folder}/t4;
    scgi_temp_path {folder}/t5;
    default_type text/plain;
    {engine}
    {http}
    {servers}
}}
"""

SERVER = """\
    server {{
        listen 127.0.0.1:{port}{listen};
        root {folder}/html;
        {server}
        location / {{
            weir_limit on;
            {location}
        }}
    }}
"""


def number_in(path):
    """None while it is made."""
    text = path.read_text() if path.exists() else ""
    return int(text) if text.strip() else None


class Nginx:
    """nginx with the module.  location, server, http, main: lines for the places of these names; servers: instead of
    the one server that there would be.  {port} and {folder} in them are filled in."""

    template = CONF

    def __init__(self, rules=RULES, *, location="", server="", http="", main="", listen="", servers=None, workers=2,
                 table=None, table_size="8m", files=None, daemon=False, starts=True):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-nginx-"))
        self.folder.chmod(0o755)
        self.port = free_port()
        (self.folder / "html").mkdir()
        self.write("html/index.html", "hello\n")
        for name, text in {"rules.yaml": rules or RULES, **(files or {})}.items():
            self.write(name, text)
        self.table = table or self.folder / "table"
        self.fill = dict(folder=self.folder, port=self.port)
        servers = SERVER.format(listen=listen, server=server, location=location, **self.fill) \
            if servers is None else servers
        self.parts = dict(
            module=MODULE, daemon="on" if daemon else "off", user="user www-data;" if os.getuid() == 0 else "",
            main=main, workers=workers, http=http,
            engine=f"weir_table {self.table} size={table_size}; weir_rules {self.folder}/rules.yaml;" if rules else "",
            servers=servers, **self.fill)
        self.configure()
        self.process = None
        self.expects = "^$"
        if starts:
            self.start()

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(path.name + ".new")
        beside.write_text(text)
        beside.chmod(0o644)
        beside.rename(path)
        return path

    def configure(self, **changes):
        self.parts.update(changes)
        text = self.template.format(**self.parts)
        for name, value in self.fill.items():
            text = text.replace("{" + name + "}", str(value))
        self.write("nginx.conf", text)

    def command(self, *more):
        return [NGINX, "-p", f"{self.folder}/", "-c", f"{self.folder}/nginx.conf", *more]

    def test(self):
        """What `nginx -t` says: (whether it is good, its words)."""
        done = subprocess.run(self.command("-t"), capture_output=True, text=True, timeout=PATIENCE_S)
        return done.returncode == 0, done.stderr

    def start(self):
        if self.parts["daemon"] == "on":
            subprocess.run(self.command(), check=True, timeout=PATIENCE_S)
            wait_for(lambda: can_connect(self.port), "nginx listens")
            return
        self.process = subprocess.Popen(self.command(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        wait_for(lambda: self.process.poll() is not None or can_connect(self.port), "nginx listens")
        assert self.process.poll() is None, self.process.stderr.read().decode() + self.log()

    def log(self):
        path = self.folder / "error.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def access(self):
        """The access log: a dictionary for each request."""
        names = "status verdict rule limit remaining retry_after delay uri".split()
        return [dict(zip(names, line.split("|"))) for line in (self.folder / "access.log").read_text().splitlines()]

    def wait_for_access(self, count):
        wait_for(lambda: len(self.access()) >= count, f"{count} lines in the access log")
        return self.access()

    def signal(self, number):
        os.kill(self.master(), number)

    def master(self):
        if self.process:
            return self.process.pid
        wait_for(lambda: number_in(self.folder / "pid"), "nginx's number in its file")
        return number_in(self.folder / "pid")

    def workers(self):
        done = subprocess.run(["pgrep", "-P", str(self.master())], capture_output=True, text=True)
        return [int(pid) for pid in done.stdout.split()]

    def kill_workers(self):
        self.expects = r"worker process \d+ exited on signal 9"
        for pid in self.workers():
            with contextlib.suppress(ProcessLookupError):  # one that was killed already is listed until it is reaped
                os.kill(pid, signal.SIGKILL)

    def starts(self):
        """How often the master has started workers."""
        return self.log().count("start worker processes")

    def reload(self):
        """Until there is a new worker, by this reload and not by one whose last worker is late."""
        before, started = set(self.workers()), self.starts()
        self.signal(signal.SIGHUP)
        wait_for(lambda: self.starts() > started and set(self.workers()) - before, "new workers")

    def replace_workers(self):
        """A reload, until nobody is left who knows the old configuration."""
        before = set(self.workers())
        self.reload()
        wait_for(lambda: not before & set(self.workers()), "the old workers to be gone")

    def ask(self, path="/", method="GET", body=None, source=None, **headers):
        return ask(self.port, path, method, body, source, **headers)

    def statuses(self, count, path="/", **more):
        return [self.ask(path, **more).status for _ in range(count)]

    def connect(self, source=None):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S,
                                          source_address=(source, 0) if source else None)

    def stop(self):
        if not self.process and (self.folder / "pid").exists():
            self.signal(signal.SIGQUIT)
            wait_for(lambda: not (self.folder / "pid").exists(), "it ends")
        if self.process and self.process.poll() is None:
            self.signal(signal.SIGQUIT)
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise

    def bad_lines(self):
        """Lines worse than an error, but for what a test provokes: `expects`."""
        return [line for line in self.log().splitlines()
                if re.search(r"\[(alert|crit|emerg)\]", line) and not re.search(self.expects, line)]

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            self.stop()
            if kind is None:
                assert self.bad_lines() == [], self.bad_lines()[:5]
                assert not self.process or self.process.returncode == 0
        finally:
            if self.process:
                self.process.stderr.close()
            shutil.rmtree(self.folder, ignore_errors=True)


def wrk(port, *flags, path="/"):
    """{status class or "requests": count} of wrk's report."""
    done = subprocess.run(["wrk", *map(str, flags), f"http://127.0.0.1:{port}{path}"], capture_output=True, text=True,
                          timeout=120, check=True)
    found = re.search(r"(\d+) requests in", done.stdout)
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", done.stdout)
    lost = re.search(r"Socket errors: (.*)", done.stdout)
    return dict(requests=int(found[1]), refused=int(bad[1]) if bad else 0, lost=lost[1] if lost else None)


class App:
    """An upstream.  answer(handler) -> (status, headers, body); `seen` has (path, monotonic ns) of every request."""

    def __init__(self, answer=lambda handler: (200, {}, b"app\n")):
        app = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                app.seen.append((self.path, time.monotonic_ns()))
                self.content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, headers, body = answer(self)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_HEAD = do_PUT = do_GET

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 512
            daemon_threads = True

            def handle_error(self, *_):
                pass  # nginx left: what the test is about

        self.seen = []
        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
