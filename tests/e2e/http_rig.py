"""How the tests of HTTP speak it: byte by byte where the bytes matter.

SPDX-License-Identifier: Apache-2.0
"""
import http.client
import pathlib
import socket
import sys

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
