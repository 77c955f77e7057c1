"""nginx with `weir_service`: limits over many machines.  Two hosts, each an nginx and a `weir serve` on a table of
their own, share one Redis and count to the unit; the service or the store goes away and comes back; nobody blocks a
worker.

SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import grp
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request

import pytest

from nginx_rig import App, Nginx, wait_for, wrk
from service import Service, together
from stream_rig import Stream
from test_gateway import Gateway

ALL = "domain: api\ndescriptors: [{key: generic_key, value: all, rate_limit: {unit: %s, requests_per_unit: %d%s}}]\n"
PATIENT = ("--store-deadline", "10s")       # where a busy machine must not be taken for a store that is away
WAITING = "timeout=20s"


@pytest.fixture
def store(store):
    """Empty for each test."""
    store.ask("FLUSHALL")
    return store


class Host:
    """A machine: a table, the service, nginx.  on: flags of the service; service: options of weir_service; kind: Nginx,
    or Stream."""

    def __init__(self, store, rules, *on, service=WAITING, starts=True, kind=Nginx, **nginx):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-host-"))
        self.desk = self.folder / "run" / "weir.sock"
        self.desk.parent.mkdir()
        self.folder.chmod(0o755)
        if os.getuid() == 0:                # nginx's workers are www-data: the socket gets its folder's group
            os.chown(self.desk.parent, -1, grp.getgrnam("www-data").gr_gid)
        self.desk.parent.chmod(0o2750)
        self.rules, self.flags = rules, ("--store", store.url, "--table-size", "8m", "--desk", f"unix:{self.desk}", *on)
        self.weir = None
        if starts:
            self.serve()
        place = "stream" if issubclass(kind, Stream) else "http"
        self.nginx = kind(rules, table=self.folder / "table", **{place: f"weir_service unix:{self.desk} {service};"},
                          **nginx)
        if starts:
            self.wait_open()

    def serve(self):
        self.weir = Service(self.folder, self.rules, flags=self.flags, listeners=("admin",),
                            table=self.folder / "table")

    def wait_open(self, count=1):
        workers = int(self.nginx.parts["workers"])
        wait_for(lambda: self.nginx.log().count("answers") >= count * workers, "the service to answer")

    def ask(self, *args, **more):
        return self.nginx.ask(*args, **more)

    def statuses(self, *args, **more):
        return self.nginx.statuses(*args, **more)

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        try:
            told = self.nginx.log()
            self.nginx.__exit__(kind, *rest)
            assert kind or "another table" not in told
            if self.weir and self.weir.is_running():
                self.weir.stop()
        finally:
            if self.weir and self.weir.is_running():
                self.weir.kill()
            shutil.rmtree(self.folder, ignore_errors=True)


def hammer(*hosts, seconds=2):
    """wrk on all of them at once: how many passed."""
    told = together(lambda host: wrk(host.nginx.port, "-t1", "-c32", f"-d{seconds}"), hosts)
    assert all(t["lost"] is None and t["requests"] > 0 for t in told)
    return sum(t["requests"] - t["refused"] for t in told), sum(t["requests"] for t in told)


# ---- exact ----

@pytest.mark.parametrize("how", ["leases", "asked", "log", "bucket"])
def test_two_hosts_pass_exactly_the_limit(store, how):
    algorithm = {"log": ", algorithm: sliding_window_log", "bucket": ", algorithm: token_bucket"}.get(how, "")
    rules = ALL % ("year" if how == "bucket" else "day", 1000, algorithm)
    on = PATIENT + (("--store-leases=off",) if how == "asked" else ())
    with Host(store, rules, *on) as one, Host(store, rules, *on) as two:
        passed, asked = hammer(one, two)
        assert asked > 1000 and passed == 1000
        by_service = sum(metric(host, 'weir_requests_total{protocol="desk"}') for host in (one, two))
        # Most in the workers, by tokens and refusals.
        assert 0 < by_service < asked / 2 if how == "leases" else by_service > 0


def redis_s(store):
    return int(store.ask("TIME")[0])


@pytest.mark.parametrize("algorithm", ["fixed_window", "sliding_window_counter", "token_bucket"])
def test_no_second_has_more_than_it_may_though_tokens_are_taken_ahead(store, algorithm):
    rules = ALL % ("second", 300, f", algorithm: {algorithm}")
    with Host(store, rules, *PATIENT) as one, Host(store, rules, *PATIENT) as two:
        began = redis_s(store)
        passed, asked = hammer(one, two, seconds=3)
        seconds = redis_s(store) - began + 1
        # A bucket begins full.
        assert asked > passed and 300 <= passed <= 300 * (seconds + (algorithm == "token_bucket"))


def test_services_killed_under_load_let_nobody_pass_twice(store):
    rules = ALL % ("day", 2000, ", on_store_error: closed")
    with Host(store, rules, *PATIENT) as one, Host(store, rules, *PATIENT) as two:
        told = []
        load = threading.Thread(target=lambda: told.append(hammer(one, two, seconds=4)))
        load.start()
        for host in (one, two, one):
            time.sleep(0.3)                 # amid the load; whenever that is
            host.weir.kill()
            host.serve()
        load.join()
        passed, asked = told[0]
        assert asked > 2000 and 0 < passed <= 2000


KINDS = """\
domain: api
descriptors:
  - {key: fixed, rate_limit: {unit: day, requests_per_unit: 4}}
  - {key: slide, rate_limit: {unit: year, requests_per_unit: 4, algorithm: sliding_window_counter}}
  - {key: log, rate_limit: {unit: year, requests_per_unit: 4, algorithm: sliding_window_log}}
  - {key: bucket, rate_limit: {unit: year, requests_per_unit: 4, algorithm: token_bucket}}
  - {key: two, rate_limit: [{name: a, unit: day, requests_per_unit: 9}, {name: b, unit: year, requests_per_unit: 4}]}
  - {key: host, rate_limit: {unit: day, requests_per_unit: 2, scope: host}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 4}}
"""


def places(*kinds):
    """A location for each, which asks by the descriptor of its name."""
    return "".join(f"location = /{kind} {{ weir_limit on domain=api; weir_descriptor {kind}=x hits=$arg_hits; "
                   "try_files /index.html =404; }\n" for kind in kinds)


ANY_KIND = places("fixed", "slide", "log", "bucket", "two", "host", "free", "shadow")


def test_every_kind_of_limit_is_one_count_for_both(store):
    one_worker = dict(server=ANY_KIND, workers=1)       # whose log has them in order
    with Host(store, KINDS, *PATIENT, **one_worker) as one, Host(store, KINDS, *PATIENT, server=ANY_KIND) as two:
        for kind in ("fixed", "slide", "log", "bucket", "two"):
            told = [(host.ask(f"/{kind}")) for host in (one, two, one, two, one, two)]
            assert [a.status for a in told] == [200] * 4 + [429] * 2, kind
            assert told[0].headers["X-Ratelimit-Limit"] == "4"
            assert [a.headers["X-Ratelimit-Remaining"] for a in told] == ["3", "2", "1", "0", "0", "0"], kind
        assert [host.ask("/host").status for host in (one, two, one, two, one, two)] == [200] * 4 + [429] * 2
        assert one.statuses(9, "/free") == one.statuses(9, "/shadow") == [200] * 9
        first = one.nginx.wait_for_access(36)[27]
        assert [first[name] for name in ("verdict", "rule", "limit", "remaining")] == ["PASSED", "api.shadow", "4", "3"]


def test_hits_and_looks(store):
    with Host(store, KINDS, *PATIENT, server=ANY_KIND) as one, Host(store, KINDS, *PATIENT, server=ANY_KIND) as two:
        assert one.ask("/log?hits=3").headers["X-Ratelimit-Remaining"] == "1"
        assert two.ask("/log?hits=0").headers["X-Ratelimit-Remaining"] == "1"
        assert two.ask("/log?hits=2").status == 429
        assert two.ask("/log?hits=1").status == 200


def test_a_dry_run_counts_and_refuses_nobody(store):
    with Host(store, ALL % ("day", 2, ""), *PATIENT, location="weir_dry_run on;", workers=1) as one:
        assert one.statuses(4) == [200] * 4
        assert [line["verdict"] for line in one.nginx.wait_for_access(4)] == ["PASSED"] * 2 + ["REJECTED_DRY_RUN"] * 2


def test_both_stages_of_a_request_may_wait(store):
    rules = """\
domain: api
descriptors:
  - {key: remote_address, rate_limit: {unit: day, requests_per_unit: 5, algorithm: sliding_window_log}}
  - {key: user, rate_limit: {unit: day, requests_per_unit: 3, algorithm: sliding_window_log}}
"""
    with Host(store, rules, *PATIENT, location="weir_user $http_x_user;") as one:
        assert [one.ask(X_User="ada").status for _ in range(4)] == [200] * 3 + [429]
        assert [one.ask(X_User="bob").status for _ in range(2)] == [200, 429]


# ---- what is given back ----

LOOK = "location = /look { weir_limit on domain=api; weir_descriptor generic_key=all hits=0; " \
       "try_files /index.html =404; }"


def left(host):
    return host.ask("/look").headers["X-Ratelimit-Remaining"]


@pytest.mark.parametrize("algorithm", ["fixed_window", "sliding_window_log", "token_bucket"])
def test_only_the_answers_that_count_do(store, algorithm):
    rules = ALL % ("year", 3, f", algorithm: {algorithm}, count_if: {{status: [401]}}")
    with App(lambda handler: (int(handler.path.strip("/")), {}, b"")) as app:
        more = dict(location=f"proxy_pass http://127.0.0.1:{app.port};", server=LOOK)
        with Host(store, rules, *PATIENT, **more) as one, Host(store, rules, *PATIENT, **more) as two:
            for host, status, remaining in ((one, 401, "2"), (two, 200, "2"), (one, 200, "2"), (two, 401, "1"),
                                            (one, 500, "1"),
                                            (two, 401, "0")):
                assert host.ask(f"/{status}").status == status
                wait_for(lambda: left(one) == remaining, "what does not count to be given back")
            assert two.ask("/401").status == one.ask("/200").status == 429


def test_slots_are_released_for_the_other_host(store):
    rules = ALL % ("minute", 2, ", algorithm: concurrency")
    hold, held = threading.Event(), threading.Semaphore(0)

    def slow(handler):
        held.release()
        hold.wait(30)
        return 200, {}, b"slow\n"

    with App(slow) as app:
        location = f"proxy_pass http://127.0.0.1:{app.port};"
        with Host(store, rules, *PATIENT, location=location) as one, \
                Host(store, rules, *PATIENT, location=location) as two:
            told = []
            threads = [threading.Thread(target=lambda h=h: told.append(h.ask().status)) for h in (one, two)]
            for thread in threads:
                thread.start()
            held.acquire()
            held.acquire()
            assert [one.ask().status, two.ask().status] == [429, 429]
            hold.set()
            for thread in threads:
                thread.join()
            assert told == [200, 200]
            wait_for(lambda: two.ask().status == 200, "a slot that was released")


def test_a_slot_is_renewed_while_its_request_lasts(store):
    rules = ALL % ("second", 1, ", algorithm: concurrency")
    go = threading.Event()
    with App(lambda handler: (go.wait(30), (200, {}, b""))[1]) as app:
        location = f"proxy_pass http://127.0.0.1:{app.port};"
        with Host(store, rules, *PATIENT, location=location) as one, Host(store, rules, *PATIENT) as two:
            first = threading.Thread(target=one.ask)
            first.start()
            wait_for(lambda: app.seen, "the first request")
            until = time.monotonic() + 3.5      # a slot lasts a second and a half at most
            while time.monotonic() < until:
                assert two.ask().status == 429
                time.sleep(0.1)
            go.set()
            first.join()
            wait_for(lambda: two.ask().status == 200, "a slot that was released")


def test_a_leaky_bucket_holds_requests_of_both(store):
    rules = ALL % ("second", 5, ", burst: 3, algorithm: leaky_bucket")
    with Host(store, rules, *PATIENT) as one, Host(store, rules, *PATIENT) as two:
        told = together(lambda host: host.ask().status, (one, two) * 4)
        assert told.count(200) >= 3 and told.count(429) >= 1
        verdicts = [line["verdict"] for host in (one, two) for line in host.nginx.wait_for_access(4)]
        assert "DELAYED" in verdicts and "REJECTED" in verdicts


# ---- who is away ----

POLICIES = """\
domain: api
descriptors:
  - {key: local, rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: open, rate_limit: {unit: day, requests_per_unit: 3, on_store_error: open}}
  - {key: closed, rate_limit: {unit: day, requests_per_unit: 3, on_store_error: closed}}
  - {key: many, rate_limit: {unit: day, requests_per_unit: 100, algorithm: sliding_window_log}}
"""
BY_POLICY = places("local", "open", "closed", "many")


def remains(host, kind):
    return host.ask(f"/{kind}?hits=0").headers["X-Ratelimit-Remaining"]


def check_policies(host):
    assert host.statuses(5, "/local") == [200] * 3 + [429] * 2
    assert host.statuses(5, "/open") == [200] * 5
    told = host.ask("/closed")
    assert told.status == 429 and told.headers["X-Ratelimit-Limit"] == "3" and told.headers["Retry-After"] == "1"


def test_without_the_service_the_rules_policy_decides_and_it_comes_back(store):
    with Host(store, POLICIES, *PATIENT, server=BY_POLICY, starts=False) as host:
        check_policies(host)                # it was never there
        assert host.statuses(7, "/many") == [200] * 7
        host.serve()
        host.wait_open()
        wait_for(lambda: remains(host, "many") == "93", "what passed without it to be charged")
        wait_for(lambda: remains(host, "local") == remains(host, "open") == "0", "all of it")
        assert host.statuses(4, "/closed") == [200] * 3 + [429]
        host.weir.kill()
        wait_for(lambda: host.nginx.log().count("is gone") == 2, "both workers to notice")
        assert host.ask("/closed").status == 429 and host.statuses(4, "/open") == [200] * 4
        assert host.statuses(5, "/many?hits=2") == [200] * 5
        host.serve()
        host.wait_open(2)
        wait_for(lambda: remains(host, "many") == "83", "what passed meanwhile to be charged")
        assert host.ask("/open").status == 429


def test_a_service_that_is_stopped_in_order_loses_no_request(store):
    with Host(store, POLICIES, *PATIENT, server=BY_POLICY) as host:
        assert host.ask("/local").status == 200
        host.weir.stop()
        wait_for(lambda: host.nginx.log().count("is gone") == 2, "both workers to notice")
        assert host.ask("/open").status == 200


def test_a_service_that_is_silent_is_waited_for_once(store):
    with Host(store, POLICIES, *PATIENT, service="timeout=300ms", server=BY_POLICY, workers=1) as host:
        host.weir.signal(signal.SIGSTOP)
        check_policies(host)
        assert "does not answer" in host.nginx.log()
        host.weir.signal(signal.SIGCONT)
        host.wait_open(2)
        wait_for(lambda: remains(host, "open") == "0", "what passed meanwhile to be charged")


# ---- nobody waits but who must ----

@contextlib.contextmanager
def frozen(store):
    store.freeze()
    try:
        yield
    finally:
        store.thaw()


LOG = ALL % ("day", 100, ", algorithm: sliding_window_log")
FREE = "location /free { weir_limit off; try_files /index.html =404; }"


def test_a_slow_store_delays_nobody_else(store):
    with Host(store, LOG, *PATIENT, server=FREE, workers=1) as host:
        assert host.ask().status == 200
        told = []
        with frozen(store):
            threads = [threading.Thread(target=lambda: told.append(host.ask().status)) for _ in range(20)]
            for thread in threads:
                thread.start()
            assert host.statuses(50, "/free") == [200] * 50
            assert told == []               # they wait, and the only worker has answered 50 others meanwhile
        for thread in threads:
            thread.join()
        assert told == [200] * 20


def test_no_more_wait_than_may(store):
    with Host(store, LOG, *PATIENT, service=f"{WAITING} pending=2", workers=1) as host:
        told = []
        with frozen(store):
            threads = [threading.Thread(target=lambda: told.append(host.ask().status)) for _ in range(8)]
            for thread in threads:
                thread.start()
            wait_for(lambda: len(told) == 6, "those without a place to be decided here")
        for thread in threads:
            thread.join()
        assert told == [200] * 8


def test_a_client_that_leaves_while_it_waits_is_forgotten(store):
    with Host(store, LOG, *PATIENT, workers=1) as host:
        with frozen(store):
            for _ in range(5):
                with socket.create_connection(("127.0.0.1", host.nginx.port)) as client:
                    client.sendall(b"GET /gone HTTP/1.1\r\nHost: x\r\n\r\n")
            wait_for(lambda: sum(line["status"] == "499" for line in host.nginx.access()) == 5, "nginx to notice")
        assert host.statuses(3) == [200] * 3


def h2load(host, *flags):
    return ["h2load", *flags, f"http://127.0.0.1:{host.nginx.port}/"]


def test_streams_of_http2_wait_each_for_itself(store):
    with Host(store, LOG, *PATIENT, listen=" http2") as host:
        done = subprocess.run(h2load(host, "-n300", "-c4", "-m32"), capture_output=True, text=True, timeout=60,
                              check=True)
        assert "300 done, 100 succeeded, 200 failed, 0 errored" in done.stdout, done.stdout


def test_a_client_that_leaves_with_all_its_streams_is_forgotten(store):
    with Host(store, LOG, *PATIENT, listen=" http2", workers=1) as host, frozen(store):
        client = subprocess.Popen(h2load(host, "-n32", "-c1", "-m32"), stdout=subprocess.DEVNULL)
        wait_for(lambda: metric(host, "weir_store_pending") >= 32, "all to wait")
        client.kill()
        client.wait()
        wait_for(lambda: sum(line["status"] == "499" for line in host.nginx.access()) == 32, "nginx to notice")


def test_workers_that_end_wait_for_who_waits(store):
    with Host(store, LOG, *PATIENT, workers=1) as host:
        told = []
        with frozen(store):
            thread = threading.Thread(target=lambda: told.append(host.ask().status))
            thread.start()
            wait_for(lambda: int(metric(host, "weir_store_pending")) >= 1, "it to wait")
            host.nginx.reload()
        thread.join()
        assert told == [200] and host.ask().status == 200


def metric(host, name):
    with urllib.request.urlopen(f"http://{host.weir.address('admin')}/metrics") as page:
        for line in page.read().decode().splitlines():
            if line.startswith((name + " ", name + "{")):
                return float(line.split()[-1])
    return 0


# ---- TCP and UDP ----

def test_connections_are_one_count_for_both(store):
    rules = ALL % ("day", 4, ", algorithm: sliding_window_log")
    with Host(store, rules, *PATIENT, kind=Stream) as one, Host(store, rules, *PATIENT, kind=Stream) as two:
        assert [host.nginx.passes(1) for host in (one, two, one, two, one, two)] == [[True]] * 4 + [[False]] * 2
        assert ("503", "REJECTED") in one.nginx.statuses(3)


def test_a_connection_waits_and_blocks_nobody(store):
    with Host(store, LOG, *PATIENT, kind=Stream, workers=1) as host:
        told = []
        with frozen(store):
            with host.nginx.open() as gone:
                gone.sendall(b"x")
            thread = threading.Thread(target=lambda: told.append(host.nginx.talk()))
            thread.start()
            with socket.create_connection(("127.0.0.1", host.nginx.port)) as free:       # where nothing is limited
                assert free.recv(2) == b"up"
            assert told == []
        thread.join()
        assert told == [b"passed"]


def test_without_the_service_connections_are_decided_here(store):
    with Host(store, ALL % ("day", 2, ""), *PATIENT, kind=Stream, starts=False) as host:
        assert host.nginx.passes(3) == [True, True, False]


# ---- memory ----

class Watched:
    """Before Nginx or Stream: runs it under valgrind, as one process."""

    def command(self, *more):
        return ["valgrind", f"--log-file={self.folder}/valgrind", *super().command(*more)]

    def verdict(self):
        return (self.folder / "valgrind").read_text().strip().splitlines()[-1]


class WatchedNginx(Watched, Nginx):
    pass


class WatchedStream(Watched, Stream):
    pass


def leave(port, said):
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(said)


def test_who_waits_is_not_touched_after_its_end(store):
    kinds = ("log", "slots", "leaky", "some")
    rules = KINDS + """\
  - {key: slots, rate_limit: {unit: minute, requests_per_unit: 9, algorithm: concurrency}}
  - {key: leaky, rate_limit: {unit: second, requests_per_unit: 20, burst: 3, algorithm: leaky_bucket}}
  - {key: some, rate_limit: {unit: day, requests_per_unit: 9, count_if: {status: [404]}}}
"""
    with Host(store, rules, *PATIENT, kind=WatchedNginx, main="master_process off;", workers=1,
              server=places(*kinds)) as host:
        assert host.statuses(5, "/log") == [200] * 4 + [429]
        for kind in kinds[1:]:
            assert host.statuses(3, f"/{kind}") == [200] * 3
        with frozen(store):
            for kind in kinds:
                leave(host.nginx.port, f"GET /{kind} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            wait_for(lambda: [line["status"] for line in host.nginx.access()].count("499") >= 3, "nginx to notice")
        host.weir.kill()
        wait_for(lambda: "is gone" in host.nginx.log(), "it to notice")
        assert [host.ask(f"/{kind}").status for kind in kinds] == [200] * 4
        host.serve()
        host.wait_open(2)
        assert [host.ask(f"/{kind}").status for kind in kinds] == [429] + [200] * 3
        host.nginx.stop()
        assert "ERROR SUMMARY: 0 errors" in host.nginx.verdict()


def test_no_connection_is_touched_after_its_end(store):
    rules = ALL % ("day", 3, ", algorithm: sliding_window_log")
    with Host(store, rules, *PATIENT, kind=WatchedStream, main="master_process off;", workers=1) as host:
        with frozen(store):
            leave(host.nginx.tcp, b"")
            wait_for(lambda: "left before its turn" in host.nginx.log(), "nginx to notice")
        assert host.nginx.passes(3) == [True, True, False]
        host.nginx.stop()
        assert "ERROR SUMMARY: 0 errors" in host.nginx.verdict()


# ---- the gateway ----

def test_two_gateways_have_one_count(store, monkeypatch):
    """On a busy machine some answers may be late: those refuse, and so less may pass, but never more."""
    monkeypatch.setenv("WEIR_STORE_DEADLINE", "10s")
    rules = ALL % ("day", 8, ", algorithm: sliding_window_log, on_store_error: closed")
    with App() as app, contextlib.ExitStack() as stack:
        flags = ("--upstream", f"http://127.0.0.1:{app.port}", "--store", store.url, "--workers", "1")
        one, two = (stack.enter_context(Gateway(*flags, rules=rules)).wait_ready() for _ in range(2))
        told = [(one, two)[i % 2].ask().status for i in range(30)]
        assert 0 < told.count(200) <= 8 and told[-1] == 429
        assert store.ask("DBSIZE") > 0


# ---- what cannot be ----

def test_a_service_on_another_table_is_told_of_and_asked(store):
    rules = ALL % ("day", 4, "")
    with Host(store, rules, *PATIENT) as one, \
            Nginx(rules, http=f"weir_service unix:{one.desk} {WAITING};", workers=1) as other:
        wait_for(lambda: "has another table" in other.log(), "it to be told")
        assert [(one, other)[i % 2].ask().status for i in range(6)] == [200] * 4 + [429] * 2



@pytest.mark.parametrize("words, why", [
    ("127.0.0.1:80", "needs unix:PATH"),
    ("unix:/x timeout=0", 'invalid parameter "timeout=0"'),
    ("unix:/x pending=none", 'invalid parameter "pending=none"'),
    ("unix:/x; weir_service unix:/y", "is duplicate"),
])
def test_bad_words_are_refused(words, why):
    with Nginx(ALL % ("day", 1, ""), http=f"weir_service {words};", starts=False) as nginx:
        good, told = nginx.test()
        assert not good and why in told
