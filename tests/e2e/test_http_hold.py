"""/check?hold=1: a request that a leaky bucket lets through later is answered later.

SPDX-License-Identifier: Apache-2.0
"""
import concurrent.futures
import json
import signal
import time

import pytest

from http_rig import PATIENCE_S, ask, connect, read_all, serve
from service import wait_until

QUICK_S, SLOW_S = 0.1, 60       # from one request that leaves to the next
WAITING = 3                     # in the queue; one more is leaving
HOLD = b"GET /check?hold=1 HTTP/1.1\r\nHost: h\r\n\r\n"


def rules(unit, requests):
    return f"""\
domain: api
descriptors:
  - key: remote_address
    rate_limit: {{algorithm: leaky_bucket, unit: {unit}, requests_per_unit: {requests}, burst: {WAITING}}}
"""


QUICK, SLOW = rules("second", 10), rules("minute", 1)


def held(weir):
    """A client whose answer waits: the connection."""
    connection = connect(weir.port("http"))
    connection.sendall(HOLD)
    connection.settimeout(0.1)
    with pytest.raises(TimeoutError):
        connection.recv(1)
    connection.settimeout(PATIENCE_S)
    return connection


def metric(weir, name):
    page = ask(weir.port("admin"), "/metrics").body.decode()
    return next(int(line.split()[1]) for line in page.splitlines() if line.startswith(name + " "))


def look(weir):
    """What is left of the queue."""
    answer = ask(weir.port("http"), "/check?domain=api")
    return answer.status, int(answer.headers["X-Ratelimit-Remaining"])


def look_only(weir):
    """The same without taking a place."""
    body = b'{"domain":"api","descriptors":[{"entries":[{"key":"remote_address","value":"127.0.0.1"}],"hitsAddend":0}]}'
    answer = ask(weir.port("http"), "/json", "POST", body)
    return json.loads(answer.body)["statuses"][0].get("limitRemaining", 0)


def test_answers_leave_at_the_bucket_s_pace_and_never_early(tmp_path):
    with serve(tmp_path, QUICK) as weir, concurrent.futures.ThreadPoolExecutor(8) as pool:
        began = time.monotonic()

        def one():
            answer = ask(weir.port("http"), "/check?hold=1")
            return answer.status, time.monotonic() - began

        answers = [future.result() for future in [pool.submit(one) for _ in range(WAITING + 1)]]
        assert [status for status, _ in answers] == [200] * (WAITING + 1)
        for place, waited in enumerate(sorted(waited for _, waited in answers)):
            assert waited >= place * QUICK_S - 0.002            # the table's clock and ours differ by a little


def test_without_hold_nobody_waits(tmp_path):
    with serve(tmp_path, SLOW) as weir:
        for target in "/check", "/check?hold=0":
            assert ask(weir.port("http"), target).status == 200


@pytest.mark.parametrize("value", ["", "2", "yes", "10s"])
def test_hold_is_0_or_1(tmp_path, value):
    with serve(tmp_path, SLOW) as weir:
        assert ask(weir.port("http"), f"/check?hold={value}").status == 400


def test_who_leaves_gives_its_place_back_if_it_is_the_last(tmp_path):
    with serve(tmp_path, SLOW, "--hold-max", "1h") as weir:
        assert look(weir) == (200, WAITING)
        first = held(weir)
        second = held(weir)
        assert look(weir) == (200, 0)           # the last place, by one who does not wait
        assert look(weir)[0] == 429
        first.close()
        second.close()
        time.sleep(0.2)
        assert look(weir)[0] == 429             # neither was the last
    with serve(tmp_path, SLOW, "--hold-max", "1h") as weir:
        assert look(weir) == (200, WAITING)
        for _ in range(5):                      # each is, and makes room for the next
            held(weir).close()
            end = time.monotonic() + PATIENCE_S
            while look_only(weir) != WAITING and time.monotonic() < end:
                time.sleep(0.01)
            assert look_only(weir) == WAITING


def test_who_would_wait_too_long_is_refused_and_takes_no_place(tmp_path):
    with serve(tmp_path, SLOW, "--hold-max", "20s") as weir:
        assert ask(weir.port("http"), "/check?hold=1").status == 200
        for _ in range(2 * WAITING):
            answer = ask(weir.port("http"), "/check?hold=1&deny_status=403")
            assert answer.status == 403
            assert 30 <= int(answer.headers["Retry-After"]) <= SLOW_S - 20


def test_only_so_many_wait_at_once(tmp_path):
    with serve(tmp_path, SLOW, "--hold-max", "1h", "--hold-requests", "2", "--admin", "127.0.0.1:0", threads=1) as weir:
        assert ask(weir.port("http"), "/check?hold=1").status == 200
        waiting = [held(weir), held(weir)]
        assert ask(weir.port("http"), "/check?hold=1").status == 429
        assert metric(weir, 'weir_hold_refusals_total{bound="hold_requests"}') == 1
        waiting.pop().close()
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            with connect(weir.port("http")) as again:
                again.settimeout(0.2)
                again.sendall(HOLD)
                try:
                    assert b" 429 " in again.recv(1000)
                except TimeoutError:
                    break
        assert time.monotonic() < end
        waiting.pop().close()


def test_metrics_say_how_many_wait_and_who_could_not(tmp_path):
    refused = 'weir_hold_refusals_total{bound="%s"}'
    with serve(tmp_path, SLOW, "--hold-max", "90s", "--hold-requests", "1", "--admin", "127.0.0.1:0",
               threads=1) as weir:
        assert ask(weir.port("http"), "/check?hold=1").status == 200
        assert (metric(weir, "weir_holds"), metric(weir, "weir_holds_total")) == (0, 0)
        first = held(weir)
        assert (metric(weir, "weir_holds"), metric(weir, "weir_holds_total")) == (1, 1)
        assert look(weir)[0] == 200             # a place more, so that the next would wait for longer than 90 s
        assert ask(weir.port("http"), "/check?hold=1").status == 429
        assert (metric(weir, refused % "hold_max"), metric(weir, refused % "hold_requests")) == (1, 0)
        first.close()
        wait_until(lambda: metric(weir, "weir_holds") == 0, "nobody is held")
        assert metric(weir, "weir_holds_total") == 1


def test_what_is_pipelined_behind_is_answered_behind(tmp_path):
    with serve(tmp_path, QUICK) as weir, connect(weir.port("http")) as client:
        client.sendall(HOLD * 3 + b"GET /healthcheck HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        told = read_all(client)
        assert told.count(b"HTTP/1.1 200 OK") == 4 and told.endswith(b"OK"), told
        left = [line for line in told.split(b"\r\n") if line.startswith(b"X-Ratelimit-Remaining")]
        assert left == sorted(left, reverse=True) and len(left) == 3


def test_a_client_that_wants_to_close_is_answered_first(tmp_path):
    with serve(tmp_path, QUICK) as weir:
        for _ in range(3):
            with connect(weir.port("http")) as client:
                client.sendall(HOLD.replace(b"Host", b"Connection: close\r\nHost"))
                assert read_all(client).startswith(b"HTTP/1.1 200 OK")


def test_who_sends_without_end_while_it_waits_is_let_go(tmp_path):
    with serve(tmp_path, SLOW, "--hold-max", "1h") as weir:
        assert ask(weir.port("http"), "/check?hold=1").status == 200
        with held(weir) as client:
            client.sendall(b"x" * 200000)
            assert read_all(client) == b""
        assert ask(weir.port("http"), "/healthcheck").status == 200


def test_the_idle_time_does_not_count_while_it_waits(tmp_path):
    with serve(tmp_path, rules("second", 1), "--idle-timeout", "100ms", "--first-timeout", "200ms") as weir:
        assert ask(weir.port("http"), "/check?hold=1").status == 200
        assert ask(weir.port("http"), "/check?hold=1").status == 200


def test_draining_waits_for_those_who_can_be_let_through(tmp_path):
    weir = serve(tmp_path, rules("second", 1))
    assert ask(weir.port("http"), "/check?hold=1").status == 200
    with held(weir) as client:
        weir.signal(signal.SIGTERM)
        assert read_all(client).startswith(b"HTTP/1.1 200 OK")
    weir.wait_gone()


def test_draining_refuses_those_who_cannot(tmp_path):
    weir = serve(tmp_path, SLOW, "--hold-max", "1h", "--grace", "5s")
    assert ask(weir.port("http"), "/check?hold=1").status == 200
    with held(weir) as client:
        weir.signal(signal.SIGTERM)
        told = read_all(client)
        assert told.startswith(b"HTTP/1.1 503 ") and b"Connection: close" in told, told
    weir.wait_gone()
