"""A client like rls_wire's, whose calls Node makes through @grpc/grpc-js (rls_client.js).

SPDX-License-Identifier: Apache-2.0
"""
import base64
import collections
import itertools
import json
import os
import pathlib
import queue
import subprocess
import threading

import grpc
from rls_wire import BaseClient

HERE = pathlib.Path(__file__).resolve().parent
CODES = {code.value[0]: code for code in grpc.StatusCode}
PATIENCE_S = 30


class Refused(grpc.RpcError):
    """As grpcio tells of a call that failed."""

    def __init__(self, code, details):
        super().__init__(code, details)
        self.code, self.details = lambda: CODES[code], lambda: details


class Call:
    """A call that was begun: its messages, then its end."""

    def __init__(self, client, number):
        self.client, self.number = client, number

    def __iter__(self):
        return self

    def __next__(self):
        said = self.client.answers[self.number].get(timeout=PATIENCE_S)
        if "data" in said:
            return base64.b64decode(said["data"])
        if said["code"]:
            raise Refused(said["code"], said["details"])
        raise StopIteration

    def cancel(self):
        self.client.say(id=self.number, is_cancelled=True)


class NodeClient(BaseClient):
    """Node runs as long as the client is open."""

    def __init__(self, address):
        env = {**os.environ, "NODE_PATH": str(HERE.parents[1] / "build/node_modules")}
        self.process = subprocess.Popen(["node", HERE / "rls_client.js", address], env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.numbers = itertools.count()
        self.answers = collections.defaultdict(queue.Queue)     # by the number of the call
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            said = json.loads(line)
            self.answers[said["id"]].put(said)

    def say(self, **what):
        self.process.stdin.write(json.dumps(what).encode() + b"\n")
        self.process.stdin.flush()

    def begin(self, path, data, timeout=10, is_stream=False):
        number = next(self.numbers)
        self.answers[number]                                    # made here, not by two threads at once
        self.say(id=number, path=path, data=base64.b64encode(data).decode(), timeout_ms=timeout * 1000,
                 is_stream=is_stream)
        return Call(self, number)

    def unary(self, path, data, timeout=10):
        answer, = self.begin(path, data, timeout)
        return answer

    def unary_many(self, path, data, count, timeout=20):
        return [next(call) for call in [self.begin(path, data, timeout) for _ in range(count)]]

    def stream(self, path, data):
        return self.begin(path, data, is_stream=True)

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=PATIENCE_S)
        self.reader.join(timeout=PATIENCE_S)
        self.process.stdout.close()
