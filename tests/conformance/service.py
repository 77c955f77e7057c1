"""How the tests of the network run `weir serve`: on free ports of loopback, on rules of their own.

    with Service(tmp_path, RULES, env={"SHADOW_MODE": "true"}) as weir:
        weir.address("grpc")          # "127.0.0.1:41234"
        weir.rules(OTHER_RULES)       # written anew; weir.wait_for("...") waits for a line of the log

WEIR_BIN names the program; else it is in WEIR_BUILD, else in build/.
SPDX-License-Identifier: Apache-2.0
"""
import concurrent.futures
import json
import os
import pathlib
import secrets
import signal
import socket
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEIR = os.environ.get("WEIR_BIN") or os.path.join(os.environ.get("WEIR_BUILD") or ROOT / "build", "weir")
PATIENCE_S = 30
given_ports = set()


class Service:
    """A running service.  flags: more options; env: more environment."""

    def __init__(self, tmp_path, rules="", flags=(), env=None, threads=2, listeners=("grpc",), table="none"):
        self.rules_path = pathlib.Path(tmp_path) / "rules.yaml"
        self.lines = []
        self.changed = threading.Condition()
        if rules is not None:
            self.rules(rules)
        args = [WEIR, "serve", "--table", str(table), "--threads", str(threads), "--log-format", "json"]
        for name in ("grpc", "http", "resp", "admin"):
            args += [f"--{name}", "127.0.0.1:0" if name in listeners else "off"]
        if rules is not None:
            args += ["--rules", str(self.rules_path)]
        clean = {name: value for name, value in os.environ.items()
                 if name in ("PATH", "HOME", "LD_LIBRARY_PATH") or name.endswith("_OPTIONS")}
        self.process = subprocess.Popen(args + [str(flag) for flag in flags], env={**clean, **(env or {})},
                                        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        try:
            self.wait_for("ready")
        except AssertionError:
            self.kill()
            raise

    def _read(self):
        for line in self.process.stderr:
            with self.changed:
                self.lines.append(line.decode(errors="replace").rstrip("\n"))
                self.changed.notify_all()
        with self.changed:
            self.lines.append("")         # the end: whoever waits may stop
            self.changed.notify_all()

    def rules(self, text):
        """Writes the rules, whole at once."""
        fresh = self.rules_path.with_suffix(".new")
        fresh.write_text(text)
        fresh.rename(self.rules_path)

    def events(self):
        """The log so far, without what is no JSON."""
        return [json.loads(line) for line in list(self.lines) if line.startswith("{")]

    def wait_for(self, event, count=1):
        """Waits for a line of the log about this event."""
        def found():
            return sum(one.get("event") == event for one in self.events()) >= count

        with self.changed:
            self.changed.wait_for(lambda: found() or (self.lines and self.lines[-1] == ""), PATIENCE_S)
        assert found(), f"no {event!r} in the log:\n" + "\n".join(self.lines)

    def address(self, protocol):
        """Where it listens, as HOST:PORT."""
        return next(one["address"] for one in self.events()
                    if one.get("event") == "listening" and one["protocol"] == protocol)

    def port(self, protocol):
        return int(self.address(protocol).rpartition(":")[2])

    def rss(self):
        """Bytes of memory that are its own; shared ones, such as the table, aside."""
        fields = dict(line.split(":", 1) for line in open(f"/proc/{self.process.pid}/status"))
        return int(fields["RssAnon"].split()[0]) * 1024

    def is_running(self):
        return self.process.poll() is None

    def signal(self, number):
        self.process.send_signal(number)

    def wait_gone(self):
        """After a signal: a second one would end it at once."""
        self.process.wait(timeout=PATIENCE_S)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Asks it to go, and looks whether all was well: the exit status, and what sanitizers said."""
        if self.is_running():
            self.signal(signal.SIGTERM)
        try:
            status = self.process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("does not stop:\n" + "\n".join(self.lines[-20:])) from None
        self.reader.join(timeout=PATIENCE_S)
        text = "\n".join(self.lines)
        assert status == 0 and "Sanitizer" not in text and "runtime error" not in text, f"{status}\n{text}"

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.stop()
        else:
            self.kill()


def free_port(kind=socket.SOCK_STREAM):
    """For programs that cannot choose one themselves and tell us.  Below those that the kernel gives away, and none
    twice: who shares a port on purpose, as weir's workers do, would share it with a stranger."""
    while True:
        port = 10000 + secrets.randbelow(22000)
        if port not in given_ports and can_bind(port, kind):
            given_ports.add(port)
            return port


def can_bind(port, kind):
    with socket.socket(type=kind) as probe:
        try:
            probe.bind(("127.0.0.1", port))
            return True
        except OSError:
            return False


def can_connect(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


def together(work, ones):
    """What work returns for each of them, all at once: every call has a thread of its own.  Fails if one does."""
    with concurrent.futures.ThreadPoolExecutor(len(ones)) as pool:
        return list(pool.map(work, ones))


def wait_until(claim, what="it", patience_s=PATIENCE_S):
    """For what other programs do in their own time."""
    end = time.monotonic() + patience_s
    while not claim():
        assert time.monotonic() < end, f"waited for {what}"
        time.sleep(0.01)
