"""RESP as real clients speak it: redis-cli, redis-py, ioredis; replies as redis-cell and throttlecrab give them;
and peers that mean no good.

SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import socket
import subprocess

import pytest
import redis

from service import ROOT, Service, together

CELL_USAGE = "Cell error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]"


@pytest.fixture(scope="module")
def weir(tmp_path_factory):
    with Service(tmp_path_factory.mktemp("resp"), None, listeners=("resp",)) as service:
        yield service


@pytest.fixture
def client(weir):
    with redis.Redis(port=weir.port("resp"), socket_timeout=10) as one:
        yield one


def cli(weir, *words, resp3=False, env=None):
    command = ["redis-cli", "-p", str(weir.port("resp")), *(["-3"] if resp3 else []), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, env={**os.environ, **(env or {})},
                          check=False).stdout.strip()


class Raw:
    """A socket, and what comes back on it."""

    def __init__(self, weir):
        self.socket = socket.create_connection(("127.0.0.1", weir.port("resp")), timeout=10)

    def send(self, data):
        self.socket.sendall(data)
        return self

    def read(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(65536)
            if not more:
                break
            data += more
        return data

    def read_all(self):
        """Until the service closes."""
        data = b""
        try:
            while more := self.socket.recv(65536):
                data += more
        except ConnectionResetError:
            pass
        return data

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


def bulk(*words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


# ---- replies ----

def test_cl_throttle_replies_as_redis_cell(client):
    assert client.execute_command("CL.THROTTLE", "user123", 15, 30, 60) == [0, 16, 15, -1, 2]
    for left in range(14, -1, -1):
        reply = client.execute_command("cl.throttle", "user123", 15, 30, 60)
        assert reply[:4] == [0, 16, left, -1] and reply[4] in (2 * (16 - left), 2 * (16 - left) - 1)
    limited, limit, remaining, retry, reset = client.execute_command("CL.THROTTLE", "user123", 15, 30, 60)
    assert (limited, limit, remaining) == (1, 16, 0)
    assert retry in (1, 2) and reset in (31, 32)


def test_quantity_looks_takes_and_gives_back(client):
    assert client.execute_command("CL.THROTTLE", "q", 9, 1, 60, 4) == [0, 10, 6, -1, 240]
    assert client.execute_command("CL.THROTTLE", "q", 9, 1, 60, 0)[:4] == [0, 10, 6, -1]
    assert client.execute_command("CL.THROTTLE", "q", 9, 1, 60, -2)[:4] == [0, 10, 8, -1]
    assert client.execute_command("CL.THROTTLE", "q", 9, 1, 60, -99) == [0, 10, 10, -1, 0]
    assert client.execute_command("CL.THROTTLE", "q", 9, 1, 60, 11) == [1, 10, 10, -1, 0]


def test_seconds_are_rounded_up_from_a_millisecond_on(client):
    assert client.execute_command("CL.THROTTLE", "ms", 0, 1000, 1) == [0, 1, 0, -1, 1]          # 1 ms
    assert client.execute_command("CL.THROTTLE", "below ms", 0, 1001, 1) == [0, 1, 0, -1, 0]    # 0.999 ms


@pytest.mark.parametrize("words, error", [
    (("k", 15, 0, 60), "Cell error: Zero rates are not supported"),
    (("k", "x", 30, 60), "Cell error: Couldn't parse as integer: x"),
    (("k", 15, 30, "6.5"), "Cell error: Couldn't parse as integer: 6.5"),
    (("k", 15, 30, 2 ** 63), "Cell error: Couldn't parse as integer: 9223372036854775808"),
    (("k", 15, 30, "a\r\n:1"), "Cell error: Couldn't parse as integer: a??:1"),
    (("k", 15, 30), CELL_USAGE),
    (("k", 15, 30, 60, 1, 1), CELL_USAGE),
    (("k", -1, 30, 60), "Cell error: max_burst is too small"),
    (("k", 15, -1, 60), "Cell error: count per period and period must be positive"),
    (("k", 15, 30, 0), "Cell error: count per period and period must be positive"),
    (("k", 2 ** 32 - 1, 30, 60), "Cell error: max_burst, count per period or period is over a maximum"),
    (("k", 2 ** 63 - 1, 30, 60), "Cell error: max_burst, count per period or period is over a maximum"),
    (("k", 15, 1, 3153600000), "Cell error: the key, or burst and period, are over a maximum"),
    (("k" * 4097, 15, 30, 60), "Cell error: the key, or burst and period, are over a maximum"),
])
def test_cl_throttle_refuses_as_redis_cell(client, words, error):
    with pytest.raises(redis.ResponseError) as raised:
        client.execute_command("CL.THROTTLE", *words)
    assert str(raised.value) == error


def test_throttle_replies_as_throttlecrab(client):
    assert client.execute_command("THROTTLE", "crab", 2, 1, 60) == [1, 2, 1, 60, 0]
    assert client.execute_command("throttle", "crab", 2, 1, 60)[:3] == [1, 2, 0]
    allowed, limit, remaining, reset, retry = client.execute_command("THROTTLE", "crab", 2, 1, 60)
    assert (allowed, limit, remaining) == (0, 2, 0) and reset in (119, 120) and retry in (59, 60)
    for words, error in (((), "wrong number of arguments for 'throttle' command"),
                         (("k", "x", 1, 1), "invalid max_burst"),
                         (("k", 1, "x", 1), "invalid count_per_period"), (("k", 1, 1, "x"), "invalid period"),
                         (("k", 1, 1, 1, "x"), "invalid quantity"), (("k", 0, 1, 1), "max_burst is too small")):
        with pytest.raises(redis.ResponseError, match=error):
            client.execute_command("THROTTLE", *words)


def test_both_commands_count_in_one_bucket(client):
    client.execute_command("CL.THROTTLE", "both", 9, 1, 60, 3)
    assert client.execute_command("THROTTLE", "both", 10, 1, 60, 0)[:3] == [1, 10, 7]


def test_del_resets_a_key(client):
    client.execute_command("CL.THROTTLE", "gone", 0, 1, 60)
    assert client.execute_command("CL.THROTTLE", "gone", 0, 1, 60)[0] == 1
    assert client.delete("gone", "never there") == 1
    assert client.execute_command("CL.THROTTLE", "gone", 0, 1, 60)[0] == 0


def test_keys_are_bytes(client):
    for key in (b"", b"\r\n", b"\0\xff", b"x" * 4096):
        assert client.execute_command("CL.THROTTLE", key, 1, 1, 60)[2] == 1
        assert client.execute_command("CL.THROTTLE", key, 1, 1, 60)[2] == 0


# ---- real clients ----

def test_redis_cli_of_both_versions(weir):
    assert cli(weir, "PING") == "PONG"
    assert cli(weir, "CL.THROTTLE", "cli", 15, 30, 60).split() == ["0", "16", "15", "-1", "2"]
    assert cli(weir, "CL.THROTTLE", "cli3", 15, 30, 60, resp3=True).split() == ["0", "16", "15", "-1", "2"]
    assert "proto 3" in cli(weir, "HELLO", 3, resp3=True)
    assert "weir_version:" in cli(weir, "INFO")
    assert cli(weir, "nope") == "ERR unknown command 'nope'"


def test_redis_py_pipelines_and_names(client, weir):
    with client.pipeline(transaction=False) as pipe:
        for _ in range(100):
            pipe.execute_command("CL.THROTTLE", "py", 49, 1, 3600)
        replies = pipe.execute()
    assert [reply[0] for reply in replies] == [0] * 50 + [1] * 50
    assert [reply[2] for reply in replies[:50]] == list(range(49, -1, -1))
    with redis.Redis(port=weir.port("resp"), client_name="me", single_connection_client=True) as named:
        assert named.client_getname() == "me"
        assert named.client_id() != client.client_id()
    assert client.ping() and client.echo("hi") == b"hi"
    assert client.info()["loading"] == 0
    assert client.config_get("save") == {}
    assert client.command_count() == len(client.execute_command("COMMAND"))
    assert set(client.command()) >= {"cl.throttle", "throttle", "ping"}


def test_ioredis(weir):
    env = {**os.environ, "NODE_PATH": str(ROOT / "build/node_modules")}
    done = subprocess.run(["node", ROOT / "tests/e2e/resp_client.js", str(weir.port("resp"))], timeout=30, check=True,
                          capture_output=True, text=True, env=env)
    said = json.loads(done.stdout)
    assert said["one"] == [0, 3, 2, -1, 60]
    assert [reply[0] for reply in said["many"]] == [0, 0, 1, 1]
    assert said["error"] == "Cell error: Zero rates are not supported" and said["ping"] == "PONG"


def test_what_clients_send_on_connecting(weir):
    with Raw(weir) as raw:
        commands = [("HELLO", 3, "SETNAME", "n"), ("CLIENT", "GETNAME"), ("CLIENT", "SETINFO", "lib-name", "x"),
                    ("CLIENT", "NO-EVICT", "on"), ("SELECT", 0), ("RESET",), ("CLIENT", "GETNAME"),
                    ("CONFIG", "GET", "*"),
                    ("COMMAND", "INFO", "nope"), ("QUIT",)]
        raw.send(b"".join(bulk(*command) for command in commands))
        replies = raw.read_all()
    assert replies.startswith(b"%7\r\n$6\r\nserver\r\n$4\r\nweir\r\n")
    assert replies.endswith(b"$1\r\nn\r\n+OK\r\n+OK\r\n+OK\r\n+RESET\r\n$-1\r\n*0\r\n*1\r\n$-1\r\n+OK\r\n")


@pytest.mark.parametrize("words, error", [
    (("HELLO", 4), "NOPROTO unsupported protocol version"),
    (("HELLO", 3, "AUTH"), "syntax error"),
    (("SELECT", 1), "DB index is out of range"),
    (("ECHO",), "wrong number of arguments for 'echo' command"),
    (("CLIENT", "KILL", "x"), "unknown subcommand"),
    (("CLIENT", "SETNAME", "a b"), "Client names"),
    (("CONFIG", "SET", "a", "b"), "not changed"),
    (("AUTH", "x"), "without any password configured"),
    (("GET", "x"), "unknown command 'GET'"),
])
def test_what_is_not_possible(client, words, error):
    with pytest.raises(redis.ResponseError, match=error):
        client.execute_command(*words)


def test_a_password_comes_first(tmp_path):
    with Service(tmp_path, None, listeners=("resp",), env={"WEIR_RESP_PASSWORD": "open sesame"}) as weir:
        port = weir.port("resp")
        with pytest.raises(redis.ResponseError, match="WRONGPASS"):
            redis.Redis(port=port, password="wrong").ping()
        with pytest.raises(redis.RedisError, match="Authentication required"):
            redis.Redis(port=port).execute_command("CL.THROTTLE", "k", 1, 1, 1)
        assert redis.Redis(port=port, password="open sesame").execute_command("CL.THROTTLE", "k", 1, 1, 1)[0] == 0
        assert redis.Redis(port=port, username="default", password="open sesame").ping()
        with Raw(weir) as raw:
            raw.send(bulk("HELLO", 3) + bulk("HELLO", 3, "AUTH", "default", "open sesame") + bulk("PING")
                     + bulk("QUIT"))
            replies = raw.read_all()
            assert replies.startswith(b"-NOAUTH HELLO") and replies.endswith(b"+PONG\r\n+OK\r\n")
        with Raw(weir) as raw:      # guessing ends
            raw.send(bulk("AUTH", "x") * 100)
            assert raw.read_all().count(b"-WRONGPASS") == 8
        assert "open sesame" not in "\n".join(weir.lines)


# ---- peers that mean no good ----

@pytest.mark.parametrize("data", [
    b"*x\r\n", b"*1000000\r\n", b"*1\r\n$999999999\r\n", b"*1\r\n$-5\r\n", b"*2\r\n:1\r\n", b"*1\r\n$4\r\nPINGPING",
    b"A" * 5000, b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 500 + b"\n",
    b"*64\r\n" + b"$8192\r\n" + b"x" * 8192 + b"\r\n" + b"$8192\r\n" + b"x" * 8192 + b"\r\n$8192\r\n" + b"x" * 8192
    + b"\r\n$8192\r\n" + b"x" * 8192 + b"\r\n$1\r\n",
])
def test_nonsense_is_answered_once_and_closed(weir, client, data):
    with Raw(weir) as raw:
        replies = raw.send(data).read_all()
        assert replies.startswith(b"-ERR ") and replies.count(b"\r\n") == 1
    assert client.ping()


def test_bytes_may_come_one_by_one(weir):
    with Raw(weir) as raw:
        for byte in bulk("CL.THROTTLE", "slow", 1, 1, 60) + b"PING\r\n":
            raw.send(bytes([byte]))
        expected = b"*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:60\r\n+PONG\r\n"
        assert raw.read(len(expected)) == expected


def test_numbers_said_again_are_read_as_the_first_time(weir):
    """Commands of one feed, whose numbers are like those before or nearly so, and the same one by one."""
    numbers = [(9, 1, 60), (9, 1, 60), (9, 1, 60, 2), (9, 1, 60, 2), (91, 6, 0), ("9", "16", "0"), (9, 1, 60), (9, 1),
               (9, 1, 60), ("x", 1, 60), ("x", 1, 60), (9, 0, 60), (9, 0, 60), (9, 1, 60), ("9\r\n$1\r\n1", 60),
               (9, 1, 60), (-1, 1, 60), (9, 1, 60, -1), (9, 1, 60, 0), (9, 1, 60), (12345, 67890, 3600),
               (12345, 67890, 3600)]
    commands = [(name, *one) for one in numbers for name in ("CL.THROTTLE", "THROTTLE", "cl.throttle", "cl.throttle")]
    with Raw(weir) as raw:
        raw.send(b"".join(bulk(name, f"fed{number}", *rest) for number, (name, *rest) in enumerate(commands))
                 + bulk("QUIT"))
        at_once = raw.read_all()
    one_by_one = b""
    for number, (name, *rest) in enumerate(commands):
        with Raw(weir) as raw:
            one_by_one += raw.send(bulk(name, f"alone{number}", *rest)
                                   + bulk("QUIT")).read_all().removesuffix(b"+OK\r\n")
    assert at_once == one_by_one + b"+OK\r\n"


def test_replies_keep_the_order_of_commands(weir):
    with Raw(weir) as raw:
        raw.send((bulk("CL.THROTTLE", "order", 99, 1, 60) + bulk("ECHO", "x" * 8000) + bulk("CL.THROTTLE", "order")
                  + bulk("nope")) * 50 + bulk("QUIT"))
        lines = raw.read_all().split(b"\r\n")
    assert [line[:1] for line in lines[:-2]] == [b"*", b":", b":", b":", b":", b":", b"$", b"x", b"-", b"-"] * 50
    assert [int(line[1:]) for line in lines[3::10][:50]] == list(range(99, 49, -1))


def test_who_does_not_read_harms_nobody(weir, client):
    before = weir.rss()
    with Raw(weir) as raw:
        raw.socket.setblocking(False)
        data = bulk("COMMAND") * 1000
        for _ in range(2000):
            try:
                raw.socket.send(data)
            except (BlockingIOError, ConnectionError):
                break
        assert client.ping()
        assert weir.rss() - before < 64 << 20
    assert client.ping()


def test_many_threads_admit_exactly_the_burst(weir):
    def hammer(_):
        with redis.Redis(port=weir.port("resp")) as one, one.pipeline(transaction=False) as pipe:
            for _ in range(500):
                pipe.execute_command("CL.THROTTLE", "hammered", 699, 1, 86400)
            return sum(reply[0] == 0 for reply in pipe.execute())

    assert sum(together(hammer, range(8))) == 700
