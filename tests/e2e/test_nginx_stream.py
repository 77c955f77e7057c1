"""TCP and UDP through nginx's stream: what is refused is closed, what is held waits, what was taken is given back,
once, however a session ends; and all who name one table count together.

SPDX-License-Identifier: Apache-2.0
"""
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import time

import pytest

from http_rig import ask, serve
from nginx_rig import MODULE, RULES, SCALE, free_port, wait_for
from service import together
from stream_rig import CONF, Echo, Stream, abort, converse, echoes
from weir_cli import ROOT

MS = 1_000_000
ALL = "domain: api\ndescriptors: [{key: generic_key, value: all, rate_limit: {unit: %s, requests_per_unit: %d%s}}]\n"
SLOTS = "domain: api\ndescriptors: [{key: remote_address, rate_limit: {unit: %s, requests_per_unit: %d, " \
        "algorithm: concurrency}}]\n"
LEASE = "second, unit_multiplier: 2"  # ends in two to three seconds
PASSED, REFUSED = ("200", "PASSED"), ("503", "REJECTED")


# ---- refused ----

def test_three_connections_of_an_address_pass_and_no_fourth():
    with Stream() as nginx:
        assert nginx.passes(5) == [True] * 3 + [False] * 2
        assert nginx.passes(1, source="127.0.0.2") == [True]
        lines = nginx.wait_for_access(6)
        assert [(line["status"], line["verdict"]) for line in lines] == [PASSED] * 3 + [REFUSED] * 2 + [PASSED]
        assert [line["remaining"] for line in lines] == ["2", "1", "0", "0", "0", "2"]
        assert {line["rule"] for line in lines} == {"api.remote_address"} and {line["limit"] for line in lines} == {"3"}
        assert int(lines[3]["retry_after"]) > 0 and lines[0]["retry_after"] == "-"
        assert {line["delay"] for line in lines} == {"0.000"}
        assert nginx.log().count('weir: refused by rule "api.remote_address"') == 2


def test_of_many_connections_to_four_workers_exactly_the_limit_passes():
    limit = max(100, int(1000 * SCALE))
    with Stream(ALL % ("day", limit, ""), listen=" reuseport backlog=4096", workers=4) as nginx:
        passed = sum(together(nginx.passes, [limit // 4 + 50] * 8), [])
        assert sum(passed) == limit and len(passed) == 8 * (limit // 4 + 50)
        lines = nginx.wait_for_access(len(passed))
        assert [line["verdict"] for line in lines].count("PASSED") == limit
        assert len({line["uri"] for line in lines}) == 4  # each worker had some


def test_a_session_over_udp_is_dropped():
    with Echo() as echo, Stream(udp=True, server=f"proxy_pass 127.0.0.1:{echo.udp}; proxy_responses 1;") as nginx:
        for i in range(5):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.settimeout(30)
                client.sendto(b"%d" % i, ("127.0.0.1", nginx.udp))
                if i < 3:
                    assert client.recv(10) == b"%d" % i
                nginx.wait_for_access(i + 1)
        assert nginx.statuses(5) == [PASSED] * 3 + [REFUSED] * 2
        assert [data for data, _ in echo.seen] == [b"0", b"1", b"2"]
        assert {line["uri"].split()[0] for line in nginx.access()} == {"UDP"}


def test_each_datagram_counts_where_each_is_a_session():
    server = "proxy_requests 1; proxy_responses 1; proxy_pass 127.0.0.1:%d;"
    with Echo() as echo, Stream(udp=True, server=server % echo.udp) as nginx:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(30)
            for i in range(5):
                client.sendto(b"%d" % i, ("127.0.0.1", nginx.udp))
                assert i >= 3 or client.recv(10) == b"%d" % i
                nginx.wait_for_access(i + 1)
        assert nginx.statuses(5) == [PASSED] * 3 + [REFUSED] * 2


def test_a_dry_run_counts_and_closes_nothing():
    with Stream(server="weir_dry_run on; return passed;") as nginx:
        assert nginx.passes(4) == [True] * 4
        assert nginx.statuses(4) == [PASSED] * 3 + [("200", "REJECTED_DRY_RUN")]
        assert "weir: refused, were this no dry run, by rule" in nginx.log()


def test_without_a_limit_nothing_is_asked():
    with Stream(servers="server { listen 127.0.0.1:{tcp}; return passed; }") as nginx:
        assert nginx.passes(5) == [True] * 5
        assert nginx.statuses(5) == [("200", "-")] * 5
        assert not nginx.table.exists()


# ---- what is counted ----

def test_the_address_is_the_one_that_a_trusted_proxy_names():
    rules = "domain: api\ndescriptors:\n" \
            "  - {key: remote_address, ipv6_prefix: 64, rate_limit: {unit: day, requests_per_unit: 1}}\n"
    with Stream(rules, listen=" proxy_protocol", server="set_real_ip_from 127.0.0.1; return passed;") as nginx:
        def ask_as(kind, address):
            with nginx.open() as connection:
                return converse(connection, f"PROXY {kind} {address} {address} 1 2\r\n".encode()) == b"passed"
        assert [ask_as("TCP4", "192.0.2.1"), ask_as("TCP4", "192.0.2.1"), ask_as("TCP4", "192.0.2.2")] \
            == [True, False, True]
        assert [ask_as("TCP6", "2001:db8::1"), ask_as("TCP6", "2001:db8::2"), ask_as("TCP6", "2001:db8:0:1::1")] \
            == [True, False, True]
        assert not ask_as("TCP6", "::ffff:192.0.2.1")  # the first one again


def test_any_variable_is_an_attribute():
    rules = "domain: api\ndescriptors: [{key: server_port, rate_limit: {unit: day, requests_per_unit: 1}}]\n"
    other = free_port()
    with Stream(rules, listen=f"; listen 127.0.0.1:{other}",
                server="weir_attribute server_port $server_port; return passed;") as nginx:
        assert nginx.passes(2) == [True, False]
        nginx.tcp = other
        assert nginx.passes(2) == [True, False]
        assert nginx.access()[0]["rule"] == "api.server_port"


def test_an_empty_attribute_is_absent():
    rules = "domain: api\ndescriptors: [{key: name, rate_limit: {unit: day, requests_per_unit: 1}}]\n"
    with Stream(rules, server="weir_attribute name $ssl_preread_server_name; return passed;") as nginx:
        assert nginx.passes(3) == [True] * 3
        assert nginx.statuses(3) == [("200", "BYPASSED")] * 3


def test_descriptors_and_hits_are_what_the_configuration_says():
    rules = "domain: api\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 10}}, " \
            "{key: b, descriptors: [{key: c, rate_limit: {unit: day, requests_per_unit: 7}}]}]\n"
    server = "weir_limit on domain=api; weir_descriptor a=$remote_addr hits=2; weir_descriptor b=1 c=$protocol; " \
             "weir_hits 3; return passed;"
    with Stream(rules, servers="server { listen 127.0.0.1:{tcp}; %s }" % server) as nginx:
        assert nginx.passes(3) == [True, True, False]  # of b and c 3 each; of a 2
        assert [(line["rule"], line["remaining"]) for line in nginx.wait_for_access(3)] \
            == [("api.b.c", "4"), ("api.b.c", "1"), ("api.b.c", "0")]


def test_hits_that_are_no_number_count_one_and_are_told():
    with Stream(server="weir_hits $protocol; return passed;") as nginx:
        assert nginx.passes(4) == [True] * 3 + [False]
        assert 'weir: hits "TCP" is not a number; 1 is counted' in nginx.log()


def test_a_limit_that_counts_failures_alone_forgets_the_rest():
    """One worker: it logs, gives back, and only then takes the next."""
    rules = ALL % ("day", 2, ", count_if: {status: [502]}")
    closed = free_port()
    with Stream(rules, server=f"proxy_pass 127.0.0.1:{closed};", workers=1) as nginx, Echo() as echo:
        assert nginx.talk() == b""
        nginx.configure(servers=nginx.parts["servers"].replace(str(closed), str(echo.tcp)))
        nginx.replace_workers()
        for i in range(5):
            with nginx.open() as connection:
                assert echoes(connection)
            nginx.wait_for_access(i + 2)
        assert [line["remaining"] for line in nginx.access()] == ["1", "0", "0", "0", "0", "0"]
        assert [line["status"] for line in nginx.access()] == ["502"] + ["200"] * 5


# ---- slots ----

class Slots:
    """Connections to an echo server, at most so many of one address at a time."""

    def __init__(self, nginx):
        self.nginx = nginx

    def take(self):
        """A connection that works, or None."""
        connection = self.nginx.open()
        if echoes(connection):
            return connection
        connection.close()
        return None

    def take_soon(self):
        """When nginx has seen that another has ended."""
        taken = []
        wait_for(lambda: taken.append(self.take()) or taken[-1], "a free slot")
        return taken[-1]

    def free(self, count):
        """Whether so many are free, and not one more."""
        held = [self.take_soon() for _ in range(count)]
        more = self.take()
        for connection in held:
            connection.close()
        return more is None


def test_a_slot_is_free_when_its_connection_ends_however_it_ends():
    with Echo() as echo, Stream(SLOTS % ("day", 3), server=f"proxy_pass 127.0.0.1:{echo.tcp};") as nginx:
        slots = Slots(nginx)
        for end in (socket.socket.close, abort, lambda connection: connection.shutdown(socket.SHUT_RDWR)) * 5:
            held = [slots.take_soon() for _ in range(3)]
            assert slots.take() is None
            with nginx.open("127.0.0.2") as other:
                assert echoes(other)
            for connection in held:
                end(connection)
        assert slots.free(3)


def test_a_slot_is_free_at_once_when_the_server_ends_the_session():
    with Stream(SLOTS % ("day", 1), workers=4, listen=" reuseport") as nginx:
        assert nginx.passes(100) == [True] * 100  # each client sees the end of the one before


def test_a_slot_is_free_when_the_upstream_fails():
    closed = free_port()
    with Stream(SLOTS % ("day", 1), server=f"proxy_pass 127.0.0.1:{closed};") as nginx:
        for _ in range(20):
            assert nginx.talk() == b""
        assert nginx.statuses(20) == [("502", "PASSED")] * 20


def test_a_slot_is_kept_as_long_as_its_session_lasts():
    lease = "second, unit_multiplier: 4"  # which a worker renews in time though the machine is busy
    with Echo() as echo, Stream(SLOTS % (lease, 1), server=f"proxy_pass 127.0.0.1:{echo.tcp};") as nginx:
        slots = Slots(nginx)
        held = slots.take()
        assert held
        nginx.reload()  # which leaves it to the old worker
        end = time.monotonic() + 7  # longer than any lease that nobody renews
        while time.monotonic() < end:
            assert slots.take() is None
            time.sleep(0.1)
        assert echoes(held)
        held.close()
        assert slots.free(1)


def test_slots_of_a_killed_worker_come_back_by_their_deadline():
    with Echo() as echo, Stream(SLOTS % (LEASE, 2), server=f"proxy_pass 127.0.0.1:{echo.tcp};") as nginx:
        slots = Slots(nginx)
        held = [slots.take() for _ in range(2)]
        assert slots.take() is None
        nginx.kill_workers()
        for connection in held:
            assert converse(connection) == b""
            connection.close()
        assert slots.free(2)


# ---- the queue ----

def leaky(per_second, burst):
    return ALL % ("second", per_second, f", algorithm: leaky_bucket, burst: {burst}")


def test_a_leaky_bucket_lets_connections_go_at_its_rate():
    with Echo() as echo, Stream(leaky(10, 6), server=f"proxy_pass 127.0.0.1:{echo.tcp};", workers=1) as nginx:
        begin = time.monotonic_ns()
        held = [nginx.open() for _ in range(6)]
        took_ms = (time.monotonic_ns() - begin) / MS
        for i, connection in enumerate(held):
            connection.sendall(b"%d" % i)
        assert [connection.recv(10) for connection in held] == [b"%d" % i for i in range(6)]
        for connection in held:
            connection.close()
        assert [data for data, _ in echo.seen] == [b"%d" % i for i in range(6)]  # first come, first served
        assert [i for i, (_, when) in enumerate(echo.seen) if when < begin + (i * 100 - 2) * MS] == []
        lines = nginx.wait_for_access(6)
        delays = [float(line["delay"]) for line in lines]
        assert [line["verdict"] for line in lines] == ["DELAYED" if delay > 0 else "PASSED" for delay in delays]
        assert max(delays) <= 0.501
        # Who comes later than the one before has gone is not held: on a machine that was slow to open them.
        assert delays.count(0) == 1 or took_ms > 100


def test_a_full_bucket_refuses():
    rules = ALL % ("minute", 1, ", algorithm: leaky_bucket, burst: 3")
    with Stream(rules, stream="weir_queue 99 timeout=10m;") as nginx:
        assert nginx.talk() == b"passed"
        held = [nginx.open() for _ in range(3)]
        wait_for(lambda: nginx.log().count("weir: held by rule") == 3, "three are held")
        assert nginx.talk() == b""
        assert nginx.statuses(2) == [PASSED, REFUSED]
        for connection in held:
            connection.close()


def test_the_queue_has_a_length_and_a_longest_wait():
    with Stream(leaky(1, 50), stream="weir_queue 2;", workers=1) as nginx:
        connections = [nginx.open() for _ in range(4)]  # one passes, two wait
        assert converse(connections[3]) == b""
        assert [converse(connection) for connection in connections[:3]] == [b"passed"] * 3
        for connection in connections:
            connection.close()
    with Stream(leaky(1, 50), stream="weir_queue 20 timeout=500ms;", workers=1) as nginx:
        assert nginx.passes(2) == [True, False]


def test_who_leaves_the_queue_gives_its_place_back():
    rules = ALL % ("minute", 1, ", algorithm: leaky_bucket, burst: 3")
    with Stream(rules, stream="weir_queue 1 timeout=10m;", workers=1) as nginx:
        assert nginx.talk() == b"passed"
        for i, leave in enumerate((socket.socket.close, abort) * 3):
            connection = nginx.open()
            wait_for(lambda: nginx.log().count("weir: held by rule") == i + 1, "it is held")
            leave(connection)
            wait_for(lambda: nginx.log().count("weir: a client left before its turn") == i + 1, "it has left")
        lines = nginx.wait_for_access(7)
        assert [(line["status"], line["verdict"]) for line in lines[1:]] == [("200", "DELAYED")] * 6
        assert {line["remaining"] for line in lines[1:]} == {"2"}  # each had the place of the one before


def test_who_has_sent_all_and_waits_is_not_taken_for_one_who_left():
    with Echo() as echo, Stream(leaky(2, 5), server=f"proxy_half_close on; proxy_pass 127.0.0.1:{echo.tcp};",
                                workers=1) as nginx:
        connections = [nginx.open() for _ in range(3)]
        for connection in connections:
            connection.sendall(b"a question")
            connection.shutdown(socket.SHUT_WR)
        assert [converse(connection) for connection in connections] == [b"a question"] * 3


def test_a_datagram_is_held_too():
    with Echo() as echo, Stream(leaky(5, 5), udp=True, server=f"proxy_pass 127.0.0.1:{echo.udp}; proxy_responses 1;",
                                workers=1) as nginx:
        begin = time.monotonic_ns()
        clients = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3)]
        for i, client in enumerate(clients):
            client.settimeout(30)
            client.sendto(b"%d" % i, ("127.0.0.1", nginx.udp))
            if i > 0:
                client.sendto(b"another", ("127.0.0.1", nginx.udp))  # while the first one waits
        assert [client.recv(10) for client in clients] == [b"0", b"1", b"2"]
        for client in clients:
            client.close()
        times = dict(echo.seen)
        assert times[b"1"] >= begin + 198 * MS and times[b"2"] >= begin + 398 * MS


def test_who_is_held_outlives_a_reload_and_a_stop():
    with Echo() as echo, Stream(leaky(2, 5), server=f"proxy_pass 127.0.0.1:{echo.tcp};", workers=1) as nginx:
        connections = [nginx.open() for _ in range(4)]
        wait_for(lambda: nginx.log().count("weir: held by rule") == 3, "three are held")
        nginx.reload()
        nginx.signal(signal.SIGQUIT)
        for connection in connections:
            assert echoes(connection)
            connection.close()


def test_tls_begins_when_a_held_connection_goes_on(tmp_path):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-days", "2", "-subj", "/CN=weir", "-keyout", tmp_path / "key", "-out", tmp_path / "cert"],
                   check=True, capture_output=True)
    server = f"ssl_certificate {tmp_path}/cert; ssl_certificate_key {tmp_path}/key; return passed;"
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False
    tls.load_verify_locations(tmp_path / "cert")
    with Stream(leaky(5, 5), listen=" ssl", server=server, workers=1) as nginx:
        connections = [nginx.open() for _ in range(4)]
        for connection in connections:
            with tls.wrap_socket(connection) as secure:
                assert converse(secure) == b"passed"
        assert sorted(verdict for _, verdict in nginx.statuses(4)) == ["DELAYED"] * 3 + ["PASSED"]


def test_who_is_held_too_long_for_a_stop_is_let_go():
    rules = ALL % ("day", 1, ", algorithm: leaky_bucket, burst: 9")
    with Stream(rules, stream="weir_queue 9 timeout=30d;", main="worker_shutdown_timeout 100ms;") as nginx:
        connections = [nginx.open() for _ in range(4)]
        wait_for(lambda: nginx.log().count("weir: held by rule") == 3, "three are held")
        nginx.stop()
        assert sorted(converse(connection) for connection in connections) == [b"", b"", b"", b"passed"]
        for connection in connections:
            connection.close()


def test_a_dry_run_holds_nothing():
    rules = ALL % ("day", 1, ", algorithm: leaky_bucket, burst: 9")
    with Stream(rules, server="weir_dry_run on; return passed;") as nginx:
        assert nginx.passes(3) == [True] * 3
        assert nginx.statuses(3) == [PASSED] + [("200", "DELAYED_DRY_RUN")] * 2


# ---- together ----

@pytest.fixture
def shared():
    with tempfile.TemporaryDirectory(prefix="weir-table-") as path:
        yield pathlib.Path(path) / "table"


def test_reloads_and_restarts_keep_the_counts(shared):
    with Stream(ALL % ("day", 5, ""), table=shared) as nginx:
        assert nginx.passes(2) == [True] * 2
        nginx.reload()
        assert nginx.passes(1) == [True]
    with Stream(ALL % ("day", 5, ""), table=shared) as nginx:
        assert nginx.passes(3) == [True, True, False]


def test_stream_and_the_service_share_a_table(tmp_path, shared):
    text = ALL % ("day", 100, "")
    with serve(tmp_path, text, "--table", shared) as service, Stream(text, table=shared) as nginx:
        port = int(service.address("http").rpartition(":")[2])
        assert [nginx.talk() == b"passed" if i % 2 else ask(port, "/check/").status == 200 for i in range(110)] \
            == [True] * 100 + [False] * 10


def test_http_and_stream_in_one_nginx_are_two_modules_on_one_table():
    http = """
http {{
    access_log off; client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
    uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
    {engine}
    server {{ listen 127.0.0.1:{web}; location / {{ weir_limit on; root {folder}/html; }} }}
}}
"""
    class Both(Stream):
        template = f"load_module {MODULE};\n" + CONF + http

        def configure(self, **changes):
            self.web = free_port()
            self.parts["web"] = self.web
            super().configure(**changes)

    with Both(ALL % ("day", 20, "")) as nginx:
        assert all(nginx.talk() == b"passed" if i % 2 else ask(nginx.web, "/").status == 200 for i in range(20))
        nginx.write("rules.yaml", ALL % ("day", 22, ""))
        wait_for(lambda: nginx.log().count("new rules, generation 2") == 4, "two modules in two workers have them")
        assert nginx.passes(1) == [True] and ask(nginx.web, "/").status == 200
        assert nginx.passes(1) == [False] and ask(nginx.web, "/").status == 429


def test_new_rules_are_taken_and_bad_ones_are_not():
    with Stream(ALL % ("day", 1, "")) as nginx:
        assert nginx.passes(1) == [True]
        nginx.write("rules.yaml", ALL % ("day", 3, ""))
        wait_for(lambda: nginx.log().count("new rules, generation 2") == 2, "both workers have them")
        assert nginx.passes(3) == [True, True, False]
        nginx.write("rules.yaml", ALL % ("days", 9, ""))
        wait_for(lambda: nginx.log().count("the rules stay as they were") == 2, "both refuse them")
        assert nginx.passes(1) == [False]


def test_killed_workers_lose_no_count():
    with Stream(ALL % ("day", 10, "")) as nginx:
        assert nginx.passes(5) == [True] * 5
        nginx.kill_workers()
        wait_for(lambda: len(nginx.workers()) == 2, "new workers")
        assert nginx.passes(6) == [True] * 5 + [False]


# ---- what is wrong is told ----

@pytest.mark.parametrize("server, words", [
    ("weir_limit maybe;", 'invalid parameter "maybe"'),
    ("weir_limit on phase=auto;", 'invalid parameter "phase=auto" (it may be domain=NAME)'),
    ("weir_limit on on;", 'invalid parameter "on"'),
    ("weir_limit on; weir_limit on;", '"weir_limit" directive is duplicate'),
    ("weir_limit on domain=$nowhere;", 'unknown "nowhere" variable'),
    ("weir_limit;", 'invalid number of arguments in "weir_limit"'),
    ("weir_attribute a;", 'invalid number of arguments in "weir_attribute"'),
    ("weir_attribute a $nowhere;", 'unknown "nowhere" variable'),
    ("weir_attribute a b; weir_attribute a c;", '"weir_attribute" directive has had this key already'),
    ("weir_attribute remote_address $server_addr;", '"weir_attribute" directive is for other keys'),
    ("".join(f"weir_attribute a{i} b; " for i in range(33)), '"weir_attribute" directive is there too often'),
    ("weir_limit on domain=api; weir_descriptor a;", 'invalid parameter "a"'),
    ("weir_limit on domain=api; weir_descriptor =a;", 'invalid parameter "=a"'),
    ("weir_limit on domain=api; weir_descriptor hits=1;", '"weir_descriptor" directive needs a KEY=VALUE'),
    ("weir_limit on domain=api; " + "weir_descriptor a=b; " * 65, '"weir_descriptor" directive is there too often'),
    ("weir_limit on; weir_descriptor a=b;", 'weir_descriptor needs "weir_limit on domain=NAME"'),
    ("weir_hits 1; weir_hits 2;", '"weir_hits" directive is duplicate'),
    ("weir_dry_run maybe;", 'invalid value "maybe" in "weir_dry_run" directive'),
    ("weir_log_level loud;", 'invalid value "loud"'),
    ("weir_rules /x;", '"weir_rules" directive is not allowed here'),
    ("weir_headers legacy;", 'unknown directive "weir_headers"'),
])
def test_mistakes_of_a_server_are_told(server, words):
    with Stream(servers="server { listen 127.0.0.1:{tcp}; return passed; %s }" % server, starts=False) as nginx:
        is_good, said = nginx.test()
        assert not is_good and words in said


@pytest.mark.parametrize("stream, words", [
    ("weir_rules {folder}/rules.yaml extra;", 'invalid parameter "extra"'),
    ("weir_rules {folder}/rules.yaml; weir_rules {folder}/rules.yaml;", '"weir_rules" directive is duplicate'),
    ("weir_rules {folder}/none.yaml;", "none.yaml"),
    ("weir_rules {folder}/rules.yaml; weir_table {folder}/t size=none;", 'invalid parameter "size=none"'),
    ("weir_rules {folder}/rules.yaml; weir_table {folder}/t; weir_table {folder}/t;",
     '"weir_table" directive is duplicate'),
    ("weir_rules {folder}/rules.yaml; weir_table {folder}/rules.yaml;", "weir cannot be opened"),
    ("weir_queue many;", 'invalid parameter "many"'),
    ("weir_queue 1 timeout=long;", 'invalid parameter "timeout=long"'),
    ("weir_queue 1; weir_queue 2;", '"weir_queue" directive is duplicate'),
    ("", '"weir_limit" needs "weir_rules"'),
])
def test_mistakes_of_the_whole_are_told(stream, words):
    with Stream(None, stream=stream, starts=False) as nginx:
        is_good, said = nginx.test()
        assert not is_good and words in said


def test_rules_of_several_domains_need_one_to_be_named():
    files = {f"rules/{name}.yaml": RULES.replace("api", name) for name in ("a", "b")}
    engine = "weir_rules {folder}/rules; weir_table {folder}/table size=8m;"
    with Stream(None, stream=engine, files=files) as nginx:
        assert nginx.passes(4) == [True] * 4
        assert "weir: nothing is limited here" in nginx.log() and "the rules have several domains" in nginx.log()
        nginx.configure(servers="server { listen 127.0.0.1:{tcp}; weir_limit on domain=b; return passed; }")
        nginx.replace_workers()
        assert nginx.passes(4) == [True] * 3 + [False]


# ---- what the page says ----

SECTION = (ROOT / "docs/nginx.md").read_text().partition("## TCP and UDP")[2].partition("\n## ")[0]


def test_every_directive_is_told():
    code = (ROOT / "nginx/ngx_stream_weir_module.c").read_text()
    directives = re.findall(r'OF_(?:ALL|PLACE)\("(\w+)"', code)
    assert len(directives) == 10
    assert [name for name in directives if f"`{name}" not in SECTION] == []


def test_the_example_works():
    rules = re.search(r"```yaml\n(.*?)```", SECTION, re.S)[1]
    server = re.search(r"^    server {.*?^    }", SECTION, re.M | re.S)[0]
    with Echo() as echo:
        with Stream(rules, servers=server.replace("5432", "{tcp}").replace("5433", str(echo.tcp))) as nginx:
            for i in range(61):
                with nginx.open() as connection:
                    assert echoes(connection) == (i < 60)
            with nginx.open("127.0.0.2") as connection:
                assert echoes(connection)
