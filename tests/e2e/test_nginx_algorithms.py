"""Each algorithm through nginx: windows and buckets, a queue that holds requests, slots that come back, hits that are
given back by the answer's status.

SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import os
import signal
import socket
import subprocess
import threading
import time

import pytest

from nginx_rig import App, Nginx, PATIENCE_S, wait_for

RULE = "domain: api\ndescriptors: [{{key: remote_address, rate_limit: {{{limit}}}}}]\n"


def rules(limit):
    return RULE.format(limit=limit)


@pytest.mark.parametrize("limit", [
    "unit: day, requests_per_unit: 5",
    "unit: day, requests_per_unit: 5, algorithm: sliding_window_counter",
    "unit: day, requests_per_unit: 5, algorithm: sliding_window_counter, buckets: 6",
    "unit: day, requests_per_unit: 5, algorithm: sliding_window_log",
    "unit: day, requests_per_unit: 5, algorithm: token_bucket",
    "unit: day, requests_per_unit: 1, burst: 5, algorithm: token_bucket, refill: interval",
    "unit: day, requests_per_unit: 5, counting: approximate",
])
def test_five_pass_and_no_sixth(limit):
    with Nginx(rules(limit)) as nginx:
        each = ["-s", "-o", "/dev/null", "-w", "%{http_code} ", f"http://127.0.0.1:{nginx.port}/", "--next"]
        said = subprocess.run(["curl", *(each * 7)[:-1]], capture_output=True, text=True, timeout=PATIENCE_S).stdout
        assert said.split() == ["200"] * 5 + ["429"] * 2


@pytest.mark.parametrize("unit", ["hour", "day", "week", "month", "year"])
def test_slow_rates_hold(unit):
    with Nginx(rules(f"unit: {unit}, requests_per_unit: 1, algorithm: token_bucket")) as nginx:
        first, second = nginx.ask(), nginx.ask()
        assert (first.status, second.status) == (200, 429)
        seconds = dict(hour=3600, day=86400, week=604800, month=2592000, year=31536000)[unit]
        assert seconds - PATIENCE_S <= int(second.headers["Retry-After"]) <= seconds


# ---- the queue ----

class Waiting:
    """A request that has been sent, and is waiting."""

    def __init__(self, port, path="/"):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n".encode())

    def answer(self):
        data = b""
        while piece := self.socket.recv(65536):
            data += piece
        self.socket.close()
        return data

    def leave(self):
        self.socket.close()


def test_departures_keep_their_distance_and_their_order():
    step_ns, count = 20_000_000, 40
    with App() as app, Nginx(rules(f"unit: second, requests_per_unit: 50, burst: {count}, algorithm: leaky_bucket"),
                             workers=1, location=f"proxy_pass http://127.0.0.1:{app.port};") as nginx:
        began = time.monotonic_ns()
        waiting = [Waiting(nginx.port, f"/{i:02}") for i in range(count)]
        answers = [w.answer() for w in waiting]
        assert all(a.startswith(b"HTTP/1.1 200") for a in answers)  # none is lost
        assert sorted(path for path, _ in app.seen) == [f"/{i:02}" for i in range(count)]
        for i, (_, when) in enumerate(sorted(app.seen, key=lambda one: one[1])):
            assert when >= began + i * step_ns - 1_000_000  # nobody before his instant
        lines = nginx.wait_for_access(count)
        assert [line["verdict"] for line in lines].count("DELAYED") >= count - 3
        assert [line["uri"] for line in lines] == [f"/{i:02}" for i in range(count)]  # first come, first served
        delays = [float(line["delay"]) for line in lines]
        assert delays[-1] > 0.2 and max(delays) < count * 0.02 + 0.001


def test_late_departures_keep_their_distance_too():
    with App() as app, Nginx(rules("unit: second, requests_per_unit: 50, burst: 40, algorithm: leaky_bucket"),
                             workers=1, location=f"proxy_pass http://127.0.0.1:{app.port};") as nginx:
        waiting = [Waiting(nginx.port, f"/{i:02}") for i in range(30)]
        wait_for(lambda: len(app.seen) > 3, "some have gone")
        [worker] = nginx.workers()
        os.kill(worker, signal.SIGSTOP)
        time.sleep(0.3)     # fifteen are late by then
        before = len(app.seen)
        os.kill(worker, signal.SIGCONT)
        assert all(w.answer().startswith(b"HTTP/1.1 200") for w in waiting)
        late = sorted(when for _, when in app.seen)[before:before + 15]
        assert late[-1] - late[0] > 14 * 17_000_000     # at once, were they not kept apart
        assert [line["uri"] for line in nginx.wait_for_access(30)] == [f"/{i:02}" for i in range(30)]


def probe(nginx):
    """How many places of the queue are free."""
    return int(nginx.ask("/probe/").headers["X-Ratelimit-Remaining"])


# The first passes; the others would wait for 30 s each.
SLOW = rules("unit: minute, requests_per_unit: 2, burst: 5, algorithm: leaky_bucket")
PROBE = "location /probe { alias {folder}/html/; weir_limit on; weir_hits 0; }"


def held(nginx, count):
    places = probe(nginx)
    waiting = []
    for i in range(count):
        waiting.append(Waiting(nginx.port))
        wait_for(lambda: probe(nginx) == places - 1 - i, "a place is taken")
    return waiting


def test_who_leaves_forfeits_his_place_unless_it_is_the_last():
    with App() as app, Nginx(SLOW, workers=1, server=PROBE, http="weir_queue 9 timeout=10m;",
                             location=f"proxy_pass http://127.0.0.1:{app.port};") as nginx:
        assert nginx.ask().status == 200
        first, second, third = held(nginx, 3)
        free = probe(nginx)
        first.leave()
        wait_for(lambda: "499" in [line["status"] for line in nginx.access()], "nginx notices")
        assert probe(nginx) == free
        third.leave()
        wait_for(lambda: probe(nginx) == free + 1, "the last place is free again")
        second.leave()
        wait_for(lambda: probe(nginx) == free + 2, "and the one before it")
        assert len(app.seen) == 1


def test_the_queue_is_bounded():
    with Nginx(SLOW, workers=1, server=PROBE, http="weir_queue 2;") as nginx:
        assert nginx.ask().status == 200
        first, second = held(nginx, 2)
        free = probe(nginx)
        refused = nginx.ask()
        assert refused.status == 429 and int(refused.headers["Retry-After"]) >= 60
        assert probe(nginx) == free  # who finds no place takes none
        second.leave()
        wait_for(lambda: probe(nginx) == free + 1, "a place is free")
        held(nginx, 1)[0].leave()
        first.leave()


def test_nobody_waits_longer_than_the_timeout():
    with Nginx(SLOW, http="weir_queue 100 timeout=29s;") as nginx:
        assert nginx.statuses(2) == [200, 429]


def test_a_stream_of_http2_can_wait_too():
    limit = "unit: second, requests_per_unit: 10, burst: 9, algorithm: leaky_bucket"
    with Nginx(rules(limit), listen=" http2") as nginx:
        done = subprocess.run(["h2load", "-n", "5", "-c", "1", "-m", "5", f"http://127.0.0.1:{nginx.port}/"],
                              capture_output=True, text=True, timeout=PATIENCE_S)
        assert "status codes: 5 2xx" in done.stdout
        assert sum(line["verdict"] == "DELAYED" for line in nginx.wait_for_access(5)) >= 2


def test_a_dry_run_holds_nobody():
    with Nginx(SLOW, location="weir_dry_run on;", workers=1) as nginx:
        assert nginx.statuses(3) == [200] * 3
        assert [line["verdict"] for line in nginx.wait_for_access(3)] == ["PASSED"] + ["DELAYED_DRY_RUN"] * 2


def test_held_requests_outlive_a_reload():
    limit = "unit: second, requests_per_unit: 2, burst: 9, algorithm: leaky_bucket"
    with Nginx(rules(limit), server=PROBE) as nginx:
        waiting = [Waiting(nginx.port) for _ in range(5)]
        wait_for(lambda: probe(nginx) <= 6, "some wait")
        nginx.reload()
        assert all(w.answer().startswith(b"HTTP/1.1 200") for w in waiting)


# ---- slots ----

class Gate:
    """An upstream whose answers wait until it is opened."""

    def __init__(self):
        self.opened = threading.Event()
        self.app = App(self.answer)

    def answer(self, handler):
        if handler.path != "/quick":
            self.opened.wait(PATIENCE_S)
        return 200, {}, b"app\n"

    def __enter__(self):
        self.app.__enter__()
        return self

    def __exit__(self, *_):
        self.opened.set()
        self.app.__exit__()


SLOTS = "requests_per_unit: 2, algorithm: concurrency"


def free_slots(nginx):
    return int(nginx.ask("/probe/").headers["X-Ratelimit-Remaining"])


def test_slots_are_released_when_the_answer_is_sent():
    with Gate() as gate, Nginx(rules(f"unit: hour, {SLOTS}"), server=PROBE,
                               location=f"proxy_pass http://127.0.0.1:{gate.app.port};") as nginx:
        waiting = [Waiting(nginx.port) for _ in range(2)]
        wait_for(lambda: len(gate.app.seen) == 2, "two at the upstream")
        assert nginx.statuses(2) == [429, 429]
        gate.opened.set()
        assert all(w.answer().startswith(b"HTTP/1.1 200") for w in waiting)
        wait_for(lambda: free_slots(nginx) == 2, "both are back")
        assert nginx.statuses(20, "/quick") == [200] * 20


def test_slots_of_clients_that_leave_are_released_once():
    with Gate() as gate, Nginx(rules(f"unit: hour, {SLOTS}"), server=PROBE,
                               location=f"proxy_pass http://127.0.0.1:{gate.app.port};") as nginx:
        for _ in range(3):
            waiting = [Waiting(nginx.port) for _ in range(2)]
            wait_for(lambda: free_slots(nginx) == 0, "both are taken")
            for one in waiting:
                one.leave()
            wait_for(lambda: free_slots(nginx) == 2, "both are back")


def test_streams_that_are_reset_give_their_slots_back():
    with Gate() as gate, Nginx(rules(f"unit: hour, {SLOTS}"), listen=" http2", workers=1,
                               location=f"proxy_pass http://127.0.0.1:{gate.app.port};") as nginx:
        client = subprocess.Popen(["nghttp", f"http://127.0.0.1:{nginx.port}/a", f"http://127.0.0.1:{nginx.port}/b",
                                   f"http://127.0.0.1:{nginx.port}/c"], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        wait_for(lambda: len(gate.app.seen) == 2, "two at the upstream")
        client.kill()
        client.wait()
        lines = nginx.wait_for_access(3)
        assert sorted(line["status"] for line in lines) == ["429", "499", "499"]
        gate.opened.set()
        done = subprocess.run(["h2load", "-n", "20", "-c", "1", "-m", "1", f"http://127.0.0.1:{nginx.port}/quick"],
                              capture_output=True, text=True, timeout=PATIENCE_S)
        assert "status codes: 20 2xx" in done.stdout


def test_a_long_request_keeps_its_slot_and_a_killed_worker_loses_it():
    with Gate() as gate, Nginx(rules(f"unit: second, {SLOTS}"), server=PROBE, workers=1,
                               location=f"proxy_pass http://127.0.0.1:{gate.app.port};") as nginx:
        waiting = [Waiting(nginx.port) for _ in range(2)]
        wait_for(lambda: free_slots(nginx) == 0, "both are taken")
        end = time.monotonic() + 3  # windows are 1 s
        while time.monotonic() < end:
            assert free_slots(nginx) == 0
            time.sleep(0.05)
        nginx.kill_workers()
        wait_for(lambda: can_ask(nginx) and free_slots(nginx) == 2, "a new worker, and the slots of the old one")
        for one in waiting:
            one.leave()


def can_ask(nginx):
    with contextlib.suppress(OSError, Exception):
        return nginx.ask("/probe/").status == 200
    return False


def test_a_refused_request_holds_no_slot():
    text = """\
domain: api
descriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1, algorithm: concurrency}}
  - {key: header.X-Key, rate_limit: {unit: day, requests_per_unit: 1}}
"""
    with Nginx(text, server=PROBE) as nginx:
        assert nginx.statuses(3, X_Key="a") == [200, 429, 429]
        wait_for(lambda: free_slots(nginx) == 1, "it is free")


# ---- hits that may not count ----

COUNT_IF = "unit: day, requests_per_unit: 3, count_if: {status: [401, 403]}"


def test_only_failures_count():
    with App(lambda handler: (int(handler.headers.get("X-Status") or 200), {}, b"")) as app:
        with Nginx(rules(COUNT_IF), location=f"proxy_pass http://127.0.0.1:{app.port};") as nginx:
            assert nginx.statuses(10) == [200] * 10
            assert nginx.statuses(2, X_Status="401") == [401, 401]
            assert nginx.statuses(5, X_Status="500") == [500] * 5
            assert nginx.statuses(1, X_Status="403") == [403]
            assert nginx.statuses(3) == [429] * 3


def test_a_hundred_at_once_do_not_slip_through():
    with Gate() as gate, Nginx(rules(COUNT_IF), location=f"proxy_pass http://127.0.0.1:{gate.app.port};") as nginx:
        waiting = [Waiting(nginx.port) for _ in range(100)]
        wait_for(lambda: len([line for line in nginx.access() if line["status"] == "429"]) == 97, "97 are refused")
        wait_for(lambda: len(gate.app.seen) >= 3, "three at the upstream")
        assert len(gate.app.seen) == 3
        gate.opened.set()
        for one in waiting:
            one.answer()
        wait_for(lambda: len(nginx.access()) == 100, "all are answered")
        assert nginx.statuses(3, "/quick") == [200] * 3  # the three were no failures


def test_who_does_not_wait_for_the_answer_is_counted():
    with Gate() as gate, Nginx(rules(COUNT_IF), location=f"proxy_pass http://127.0.0.1:{gate.app.port};") as nginx:
        for i in range(3):
            one = Waiting(nginx.port)
            wait_for(lambda: len(gate.app.seen) == i + 1, "it is at the upstream")
            one.leave()
            wait_for(lambda: len(nginx.access()) == i + 1, "nginx notices")
        assert nginx.ask("/quick").status == 429


def test_given_back_through_error_pages_by_what_the_client_saw():
    with Nginx(rules(COUNT_IF.replace("[401, 403]", "404")), location="error_page 404 =200 /index.html;") as nginx:
        assert nginx.statuses(9, "/none") == [200] * 9
    with Nginx(rules(COUNT_IF.replace("[401, 403]", "4xx")), location="error_page 404 /index.html;") as nginx:
        assert nginx.statuses(4, "/none") == [404] * 3 + [429]
