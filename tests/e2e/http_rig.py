"""How the tests of HTTP speak it: byte by byte where the bytes matter.

SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import http.client
import http.server
import pathlib
import socket
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "conformance"))
from service import Service  # noqa: E402  (in the folder named above)

PATIENCE_S = 20
RULES = """\
domain: api
descriptors:
  - key: remote_address
    rate_limit: {name: per_address, unit: day, requests_per_unit: 3}
"""


def serve(tmp_path, rules=RULES, *flags, **more):
    return Service(tmp_path, rules, flags=flags, listeners=("http",), **more)


class Answer:
    def __init__(self, response, body):
        self.status, self.body, self.headers = response.status, body, dict(response.getheaders())


def ask(port, target="/check", method="GET", body=None, **headers):
    """One request on a connection of its own.  X_Forwarded_For="1.2.3.4" is a header."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request(method, target, body, {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return Answer(response, response.read())
    finally:
        connection.close()


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def read_all(connection):
    """All until the server closes; a reset is an end too."""
    data = b""
    try:
        while piece := connection.recv(65536):
            data += piece
    except ConnectionResetError:
        pass
    return data


def send_raw(port, data):
    """What comes back until the server closes."""
    with connect(port) as connection:
        try:
            connection.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return read_all(connection)


class App(http.server.BaseHTTPRequestHandler):
    """What gateways stand before.  It tells X-Tokens as it was asked to in X-Want-Tokens."""
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("Content-Length", "3")
        if "X-Want-Tokens" in self.headers:
            self.send_header("X-Tokens", self.headers["X-Want-Tokens"])
        self.end_headers()
        self.wfile.write(b"app")

    do_POST = do_GET

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def app():
    """Runs it; its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), App)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
