"""How the tests of the stream module run nginx, and who is behind it: servers that send back what they get, over TCP
and over UDP.

SPDX-License-Identifier: Apache-2.0
"""
import socket
import socketserver
import struct
import threading
import time

from nginx_rig import BUILD, HEAD, LOGGED, Nginx, PATIENCE_S, RULES, free_port

# The last port has no limit: there the rig sees that nginx listens on all of them.
CONF = f"""\
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
load_module {{folder}}/ngx_stream_weir_module.so;
{HEAD}stream {{{{
    log_format weir '{LOGGED}|$protocol $pid';""" + """
    access_log {folder}/access.log weir;
    {engine}
    {http}
    {servers}
    server {{ listen 127.0.0.1:{port}; return up; access_log off; weir_limit off; }}
}}
"""


class Stream(Nginx):
    """nginx with the module.  server: lines of a server that listens on .tcp and .udp; lines of `stream` go before it.
    {tcp}, {udp}, {port} and {folder} are filled in."""

    template = CONF

    def __init__(self, rules=RULES, server="return passed;", *, stream="", listen="", udp=False, **more):
        self.tcp, self.udp = free_port(), free_port(socket.SOCK_DGRAM)
        servers = "server { listen 127.0.0.1:{tcp}%s; weir_limit on; %s }\n" % (listen, server)
        if udp:
            servers += "server { listen 127.0.0.1:{udp} udp; weir_limit on; %s }\n" % server
        super().__init__(rules, http=stream, **{"servers": servers, **more})

    def configure(self, **changes):
        self.fill.update(tcp=self.tcp, udp=self.udp)
        module = self.folder / "ngx_stream_weir_module.so"
        if not module.exists():
            module.symlink_to(BUILD / "nginx/ngx_stream_weir_module.so")
        super().configure(**changes)

    def open(self, source=None):
        return socket.create_connection(("127.0.0.1", self.tcp), timeout=PATIENCE_S,
                                        source_address=(source, 0) if source else None)

    def talk(self, data=b"", source=None):
        """What comes back on a connection of its own until it ends; a reset is an end, too."""
        with self.open(source) as connection:
            return converse(connection, data)

    def passes(self, count, **more):
        return [self.talk(**more) == b"passed" for _ in range(count)]

    def statuses(self, count):
        """(status, verdict) of so many sessions, as they are logged."""
        return [(line["status"], line["verdict"]) for line in self.wait_for_access(count)]


def converse(connection, data=b""):
    got = b""
    try:
        if data:
            connection.sendall(data)
        while piece := connection.recv(65536):
            got += piece
    except (ConnectionResetError, BrokenPipeError):
        pass
    return got


def echoes(connection, data=b"hello"):
    """Whether what is sent comes back; the connection stays open."""
    try:
        connection.sendall(data)
        return connection.recv(len(data)) == data
    except (ConnectionResetError, BrokenPipeError):
        return False


def abort(connection):
    """Leaves with a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class Echo:
    """Sends back what it gets, over TCP and over UDP on ports of its own; `seen` has (first bytes, monotonic ns) of
    every connection and datagram."""

    def __init__(self):
        echo = self

        class Tcp(socketserver.BaseRequestHandler):
            def handle(self):
                try:
                    while data := self.request.recv(65536):
                        echo.seen.append((data, time.monotonic_ns()))
                        self.request.sendall(data)
                except ConnectionResetError:
                    pass  # nginx left: what the test is about

        class Udp(socketserver.BaseRequestHandler):
            def handle(self):
                echo.seen.append((self.request[0], time.monotonic_ns()))
                self.request[1].sendto(self.request[0], self.client_address)

        class TcpServer(socketserver.ThreadingTCPServer):
            request_queue_size = 512
            daemon_threads = True

        self.seen = []
        self.servers = [TcpServer(("127.0.0.1", 0), Tcp), socketserver.UDPServer(("127.0.0.1", 0), Udp)]
        self.tcp, self.udp = (server.server_address[1] for server in self.servers)
        for server in self.servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.shutdown()
            server.server_close()
