"""gRPC's health checks.

SPDX-License-Identifier: Apache-2.0
"""
import signal

import grpc

from rls_wire import HEALTH_CHECK, NOT_SERVING, OK, SERVICE_UNKNOWN, SERVING, bytes_field, request
from service import Service

RULES = "domain: t\ndescriptors: []\n"


def test_check_knows_two_services(tmp_path, connect):                                            # 62
    with Service(tmp_path, RULES) as weir, connect(weir.address("grpc")) as client:
        assert client.health("ratelimit") == SERVING
        assert client.health("") == SERVING
        assert client.refusal(bytes_field(1, "other"), HEALTH_CHECK) == (grpc.StatusCode.NOT_FOUND, "unknown service")
        assert client.refusal(bytes_field(1, "x" * 9000), HEALTH_CHECK)[0] == grpc.StatusCode.NOT_FOUND
        assert client.refusal(b"\x0a\x09short", HEALTH_CHECK)[0] == grpc.StatusCode.INTERNAL


def test_watch_tells_at_once_and_stays_open(tmp_path, connect):
    with Service(tmp_path, RULES) as weir, connect(weir.address("grpc")) as client:
        watches = {name: client.watch(name) for name in ("ratelimit", "", "other")}
        assert {name: next(watch) for name, watch in watches.items()} == {
            "ratelimit": SERVING, "": SERVING, "other": SERVICE_UNKNOWN}
        assert client.health("ratelimit") == SERVING        # beside them
        for watch in watches.values():
            watch.cancel()
        again = client.watch("ratelimit")
        assert next(again) == SERVING
        again.cancel()


def test_watch_tells_when_the_service_goes_down(tmp_path, connect):
    with Service(tmp_path, RULES) as weir, connect(weir.address("grpc")) as client:
        watch = client.watch("ratelimit")
        assert next(watch) == SERVING
        weir.signal(signal.SIGTERM)
        seen = []
        try:
            seen.extend(watch)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAVAILABLE
        assert seen == [NOT_SERVING]
        weir.wait_gone()


def test_health_turns_first_and_requests_are_answered_on(tmp_path, connect):
    with Service(tmp_path, RULES, ["--drain-delay", "1s"]) as weir, connect(weir.address("grpc")) as client:
        watch = client.watch("ratelimit")
        assert next(watch) == SERVING
        weir.signal(signal.SIGTERM)
        assert next(watch) == NOT_SERVING
        assert client.health("ratelimit") == NOT_SERVING and client.health("") == SERVING
        assert client.ask("t", [("k", "v")]).overall == OK
        weir.wait_gone()


def test_health_waits_for_rules_where_told_so(tmp_path, connect):
    flags = "--start-without-rules", "--healthy-with-rules"
    with Service(tmp_path, "domain: t\ndescriptors: oops\n", flags) as weir, connect(weir.address("grpc")) as client:
        watch = client.watch("ratelimit")
        assert next(watch) == NOT_SERVING
        assert client.refusal(request("t", [("k", "v")])) == (                          # 51
            grpc.StatusCode.UNAVAILABLE, "no rate limit configuration loaded")
        assert client.refusal(request("t"))[1] == "rate limit descriptor list must not be empty"
        weir.rules(RULES)
        assert next(watch) == SERVING
        watch.cancel()
