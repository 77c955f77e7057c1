"""A bounded load over gRPC and HTTP whose every answer is known: what a restart or a reload must not disturb.

    with Load(weir.address("grpc"), weir.port("http")) as load:
        ...                             # restart, reload, whatever
        load.wait_for_more(1000)        # answers
    load.check()

Users come one after the other, and each is asked about ASKED times, by whoever is next and over either protocol.
With a limit of LIMIT each is allowed exactly LIMIT times, and every `remaining` from LIMIT - 1 to 0 is told once:
a count that is lost, made twice, or made for an answer that never came, shows.  Who is not answered asks again, as
clients do where the service says that it has not looked (UNAVAILABLE; a connection that ends before the answer).

SPDX-License-Identifier: Apache-2.0
"""
import http.client
import itertools
import json
import ssl
import threading
import time

import grpc

from rls_wire import OK, OVER_LIMIT, Client
from service import PATIENCE_S

LIMIT, ASKED = 10, 15
RULES = f"""\
domain: load
descriptors:
  - key: user
    rate_limit: {{unit: year, requests_per_unit: {LIMIT}}}
"""
PAUSE_S = 0.001         # between the answers of one asker: a load, not a flood


class NotAnswered(Exception):
    """The service says, or shows, that the request was not looked at."""


class GrpcAsker:
    def __init__(self, address, ca):
        self.client = Client(address, ca and grpc.ssl_channel_credentials(ca), **{
            "grpc.ssl_target_name_override": "weir.test",
            "grpc.initial_reconnect_backoff_ms": 50, "grpc.max_reconnect_backoff_ms": 200,
            "grpc.min_reconnect_backoff_ms": 5000})     # for so long an attempt may take: a busy machine is no refusal

    def ask(self, user):
        """(code, remaining)"""
        try:
            response = self.client.ask("load", [("user", user)], timeout=PATIENCE_S)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAVAILABLE, error
            raise NotAnswered(error.details()) from error
        (status,) = response.statuses
        assert status.code == response.overall and status.limit[0] == LIMIT, response
        return status.code, status.remaining

    def close(self):
        self.client.channel.close()


class JsonAsker:
    def __init__(self, port, ca):
        if ca:
            context = ssl.create_default_context(cadata=ca.decode())
            context.check_hostname = False      # it is asked for by its address
            self.connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE_S, context=context)
        else:
            self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)

    def ask(self, user):
        body = {"domain": "load", "descriptors": [{"entries": [{"key": "user", "value": user}]}]}
        try:
            self.connection.request("POST", "/json", json.dumps(body))
            answer = self.connection.getresponse()
            told = answer.read()
        except (ConnectionError, http.client.RemoteDisconnected) as error:
            self.connection.close()
            raise NotAnswered(str(error)) from error
        assert answer.status in (200, 429), (answer.status, told)
        (status,) = json.loads(told)["statuses"]
        code = {"OK": OK, "OVER_LIMIT": OVER_LIMIT}[status["code"]]
        assert (code == OK) == (answer.status == 200)
        return code, status.get("limitRemaining", 0)

    def close(self):
        self.connection.close()


class Load:
    """Askers in threads of their own, until the end of `with`."""

    def __init__(self, grpc_address, http_port, count=2, ca=None, reconnects=False):
        """ca: of TLS, PEM; reconnects: each request has a connection of its own."""
        self.reconnects = reconnects
        self.make = [lambda: GrpcAsker(grpc_address, ca)] * count + [lambda: JsonAsker(http_port, ca)] * count
        self.numbers = itertools.count()
        self.answers = {}               # user: [(code, remaining)]
        self.answered = self.not_answered = 0       # requests; the latter at the first try
        self.faults = []                # what may not be
        self.lock = threading.Lock()
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(one,)) for one in self.make]

    def _run(self, make):
        asker = make()
        try:
            while not self.is_over.is_set():
                user = f"user {next(self.numbers) // ASKED}"
                answer = self._ask(asker, user)
                with self.lock:
                    self.answers.setdefault(user, []).append(answer)
                    self.answered += 1
                if self.reconnects:
                    asker.close()
                    asker = make()
                time.sleep(PAUSE_S)
        except Exception as fault:      # told in check(): a thread has nobody to raise it to
            self.faults.append(fault)
        finally:
            asker.close()

    def _ask(self, asker, user):
        end, is_first = time.monotonic() + PATIENCE_S, True
        while True:
            try:
                return asker.ask(user)
            except NotAnswered:
                assert time.monotonic() < end, "the service does not come back"
                with self.lock:
                    self.not_answered += is_first
                is_first = False
                time.sleep(10 * PAUSE_S)

    def wait_for_more(self, count):
        """Until so many more requests have been answered."""
        wanted, end = self.answered + count, time.monotonic() + 3 * PATIENCE_S
        while self.answered < wanted and not self.faults:
            assert time.monotonic() < end, f"{self.answered} answers, not {wanted}"
            time.sleep(0.01)

    def check(self):
        """After the end: every answer was right."""
        assert not self.faults, self.faults
        for user, answers in self.answers.items():
            allowed = sorted(remaining for code, remaining in answers if code == OK)
            if len(answers) == ASKED:
                assert allowed == list(range(LIMIT)), (user, answers)
            assert len(set(allowed)) == len(allowed) <= LIMIT, (user, answers)
            assert all(remaining == 0 for code, remaining in answers if code == OVER_LIMIT), (user, answers)

    def __enter__(self):
        for one in self.threads:
            one.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        for one in self.threads:
            one.join()
