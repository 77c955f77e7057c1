"""The modules under valgrind: no byte is read that was not written, none is lost, whatever a client does.

SPDX-License-Identifier: Apache-2.0
"""
import re
import subprocess

from nginx_rig import Nginx, PATIENCE_S, wait_for
from stream_rig import Echo, Stream, abort, echoes

RULES = """\
domain: api
descriptors:
  - {key: remote_address, rate_limit: {unit: day, requests_per_unit: 40}}
  - {key: path, value: /queue, rate_limit: {unit: second, requests_per_unit: 20, burst: 5, algorithm: leaky_bucket}}
  - {key: path, value: /slots, rate_limit: {unit: second, requests_per_unit: 2, algorithm: concurrency}}
  - {key: path, value: /fails, rate_limit: {unit: day, requests_per_unit: 3, count_if: {status: [404]}}}
  - {key: user, rate_limit: {name: user, unit: day, requests_per_unit: 2}}
  - {key: query.k, if_absent: none, rate_limit: {unit: day, requests_per_unit: 1000}}
  - {key: cookie.c, if_absent: none, rate_limit: {unit: day, requests_per_unit: 1000}}
"""
SERVER = """
        weir_user $arg_user; weir_headers legacy ietf-11; weir_body problem; weir_limit on; error_page 404 /index.html;
        listen 127.0.0.1:{port};
        root {folder}/html;
        location / { try_files /index.html =404; }
        location /fails { }
        location /dry { weir_dry_run on; alias {folder}/html/; }
        location /said { weir_limit on domain=api; weir_descriptor user=$arg_user hits=$arg_n; alias {folder}/html/; }
"""


class Checked(Nginx):
    def command(self, *more):
        return ["valgrind", "--leak-check=full", "--keep-debuginfo=yes", f"--log-file={self.folder}/valgrind",
                *super().command(*more)]

    def is_clean(self):
        """Whether valgrind has nothing to say about us.  What nginx itself leaves behind is not ours."""
        said = (self.folder / "valgrind").read_text()
        assert "ERROR SUMMARY" in said
        blocks = re.split(r"^==\d+== \n", said, flags=re.M)
        return [block for block in blocks if "weir" in block and " at 0x" in block] == [] \
            and not re.search(r"Invalid|uninitialised", said)


def test_nothing_is_misread_or_lost():
    with Checked(RULES, main="master_process off;", servers=f"server {{ {SERVER} }}",
                 http="weir_trusted_proxies 127.0.0.1;") as nginx:
        clients = [subprocess.Popen(["curl", "-s", "-o", "/dev/null", f"http://127.0.0.1:{nginx.port}/queue"])
                   for _ in range(4)]
        assert [client.wait(PATIENCE_S) for client in clients] == [0] * 4
        subprocess.run(["curl", "-s", "-m", "0.1", f"http://127.0.0.1:{nginx.port}/queue"], check=False,
                       timeout=PATIENCE_S)
        for path in ("/slots", "/fails", "/fails", "/fails", "/fails", "/?k=a%20b&user=ann", "/?k=a+b&user=ann",
                     "/?user=ann", "/dry/", "/said/?user=bob&n=2", "/said/?user=bob&n=x", "/said/"):
            nginx.ask(path, X_Forwarded_For="2001:db8::1, 10.0.0.1", Cookie="b=1; c=2")
        assert nginx.statuses(40)[-1] == 429
        assert nginx.ask(method="POST", body=b"x" * 100000).status == 429
        nginx.write("rules.yaml", RULES.replace("40", "50"))
        wait_for(lambda: "generation 2" in nginx.log(), "new rules")
        assert nginx.ask().headers["X-Ratelimit-Limit"] == "50"
        nginx.stop()
        assert nginx.is_clean()


# ---- stream ----

STREAM_RULES = """\
domain: api
descriptors:
  - {key: remote_address, rate_limit: {unit: day, requests_per_unit: 40}}
  - {key: port, rate_limit: {unit: second, requests_per_unit: 20, burst: 20, algorithm: leaky_bucket}}
  - {key: generic_key, value: slots, rate_limit: {unit: second, requests_per_unit: 30, algorithm: concurrency}}
"""


class CheckedStream(Checked, Stream):
    pass


def test_nor_in_stream():
    server = "weir_attribute port $server_port; weir_hits 1; proxy_pass 127.0.0.1:%d;"
    with Echo() as echo, CheckedStream(STREAM_RULES, server=server % echo.tcp, main="master_process off;") as nginx:
        connections = [nginx.open() for _ in range(20)]
        for connection in connections[10:15]:
            connection.close()
        for connection in connections[15:]:
            abort(connection)
        assert [echoes(connection) for connection in connections[:10]] == [True] * 10
        for connection in connections[:10]:
            connection.close()
        nginx.wait_for_access(20)
        nginx.write("rules.yaml", STREAM_RULES.replace("40", "23"))
        wait_for(lambda: "generation 2" in nginx.log(), "new rules")
        for i in range(6):
            with nginx.open() as connection:
                assert echoes(connection) == (i < 3)
        nginx.wait_for_access(26)
        nginx.stop()
        assert nginx.is_clean()
