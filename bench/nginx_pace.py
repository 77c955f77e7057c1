"""How evenly a leaky bucket lets requests go through nginx: their distances, as the upstream sees them.

Requests stand in line all the time; each comes to the upstream, which notes when.  A request may come late, where the
machine is busy, but not early: so what is counted is how far two are apart at least.  By p99.9: 999 of 1000 distances
are as long or longer.

SPDX-License-Identifier: Apache-2.0
"""
import os
import selectors
import socket
import struct
import threading

from bench import nginx
from bench.measure import Case

TITLE = "nginx: a leaky bucket's pace"
SPREAD = ""
RATE = 200
STEP_MS = 1000 / RATE
MAY_LACK_MS = 2
RULES = f"""\
domain: bench
descriptors:
  - {{key: generic_key, value: all,
      rate_limit: {{unit: second, requests_per_unit: {RATE}, burst: 64, algorithm: leaky_bucket}}}}
"""
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


TIMESTAMPS = 35         # SO_TIMESTAMPNS: the kernel says when something came, however late we look


class Upstream:
    """Answers whatever comes over a connection; `when` has the instants."""

    def __init__(self):
        self.when, self.selector = [], selectors.DefaultSelector()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.listener.setsockopt(socket.SOL_SOCKET, TIMESTAMPS, 1)
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.listener:
                    self.selector.register(self.listener.accept()[0], selectors.EVENT_READ)
                elif not self.answer(key.fileobj):
                    self.selector.unregister(key.fileobj)
                    key.fileobj.close()

    def answer(self, connection):
        data, told, _, _ = connection.recvmsg(65536, 64)
        if data:
            seconds, nanoseconds = struct.unpack("qq", told[0][2])
            self.when.append(seconds * 10**9 + nanoseconds)
            connection.sendall(ANSWER)
        return data


def cases(rig):
    os.chmod(rig.folder, 0o755)
    upstream, requests = Upstream(), rig.quick(4000, 50)
    rules = rig.file("pace.yaml", RULES)
    server = nginx.start(rig, "pace", "weir_limit on;", nginx.ANSWERS["proxying"], upstream=upstream.port,
                         load=f"load_module {rig.build}/nginx/ngx_http_weir_module.so;",
                         http=f"weir_rules {rules}; weir_table {rig.folder}/table size=1m;")
    said = rig.load(["h2load", "--h1", f"-n{requests}", "-c32", f"http://127.0.0.1:{server.port}/"])
    when = sorted(upstream.when)
    apart_ms = sorted((b - a) / 1e6 for a, b in zip(when, when[1:]))
    lost = requests - (len(when) if f"{requests} 2xx" in said else 0)
    yield Case("requests lost", ("<=", 0), lost, note=f"of {requests}")
    yield Case("the least distance but for 1 of 1000", (">=", STEP_MS - MAY_LACK_MS), apart_ms[len(apart_ms) // 1000],
               None, "ms", note=f"of {STEP_MS:.0f} ms; least {apart_ms[0]:.2f}")
    yield Case("on average", None, (when[-1] - when[0]) / 1e6 / (len(when) - 1), None, "ms")
