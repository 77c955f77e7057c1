"""How the tests of HTTP speak it: byte by byte where the bytes matter.

SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import http.client
import http.server
import socket
import threading

from service import PATIENCE_S, Service

RULES = """\
domain: api
descriptors:
  - key: remote_address
    rate_limit: {name: per_address, unit: day, requests_per_unit: 3}
"""


def serve(tmp_path, rules=RULES, *flags, **more):
    return Service(tmp_path, rules, flags=flags, listeners=("http",), **more)


class Answer:
    def __init__(self, response):
        self.status, self.body = response.status, response.read()
        self.pairs = response.getheaders()
        self.headers = dict(self.pairs)


def request(connection, target="/", method="GET", body=None, **headers):
    """One of several on a connection.  X_Forwarded_For="1.2.3.4" is a header."""
    connection.request(method, target, body, {name.replace("_", "-"): value for name, value in headers.items()})
    return Answer(connection.getresponse())


def ask(port, target="/check", method="GET", body=None, source=None, **headers):
    """One request on a connection of its own, from an address of ours."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S,
                                            source_address=(source, 0) if source else None)
    with contextlib.closing(connection):
        return request(connection, target, method, body, **headers)


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
