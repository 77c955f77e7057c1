"""Real Redis servers of the test's own, and all that may befall one; nothing is kept on disk unless asked for.

    with redis_server(folder) as (client, url): ...             # on a unix socket, for who only needs a store
    with Server(folder, "--appendonly", "yes") as server:       # on a port, which it keeps when it is started anew
        server.freeze(); server.thaw(); server.kill(); server.start()

Cluster and Sentinel are in redis_topologies.py, cut and slow networks in proxy_rig.py.
SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import os
import signal
import subprocess
import time

import redis
from service import PATIENCE_S, free_port, wait_until


@contextlib.contextmanager
def redis_server(folder, *settings):
    """(client, URL for --store)"""
    path = folder / "redis.sock"
    server = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no",
                               "--dir", folder, "--logfile", folder / "redis.log", *settings])
    try:
        client = redis.Redis(unix_socket_path=str(path))
        wait_for(client, server)
        yield client, f"unix:{path}"
    finally:
        server.kill()
        server.wait()


def wait_for(client, server):
    for _ in range(1500):
        assert server.poll() is None, "redis-server did not start"
        try:
            client.ping()
            return
        except redis.exceptions.AuthenticationError:
            return
        except (redis.exceptions.ConnectionError, redis.exceptions.BusyLoadingError):
            time.sleep(0.02)
    raise AssertionError("redis-server does not answer")


class Server:
    """One redis-server on a port of loopback."""

    def __init__(self, folder, *settings, is_started=True):
        self.folder, self.settings = folder, [str(one) for one in settings]
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.process = None
        if is_started:
            self.start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    @property
    def client(self):
        """A new one each time: whoever was cut off by a fault does not come back by itself."""
        return redis.Redis(port=self.port, socket_timeout=PATIENCE_S, decode_responses=False)

    def command(self):
        return ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                "--dir", str(self.folder), "--logfile", str(self.folder / "redis.log"),
                "--enable-debug-command", "yes", "--enable-protected-configs", "yes", *self.settings]

    def start(self, *more, is_waited_for=True):
        """Also after kill(): empty, unless the settings say that it keeps something."""
        self.process = subprocess.Popen([*self.command(), *map(str, more)], stdin=subprocess.DEVNULL)
        if is_waited_for:
            wait_for(self.client, self.process)

    def ask(self, *command):
        with self.client as client:
            return client.execute_command(*command)

    def info(self, section):
        with self.client as client:
            return client.info(section)

    def accepts_writes(self):
        try:
            return self.ask("SET", "chaos:probe", "1", "EX", "1") in (True, b"OK")
        except redis.exceptions.RedisError:
            return False

    # What may befall it, and how that ends.

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
        if self.process:
            self.process.wait()

    def freeze(self):
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def sleep(self, seconds):
        """Answers nobody for so long; returns afterwards."""
        self.ask("DEBUG", "SLEEP", str(seconds))

    def forget_scripts(self):
        self.ask("SCRIPT", "FLUSH")
        self.ask("FUNCTION", "FLUSH")

    def fill_memory(self):
        """OOM for whoever writes."""
        self.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
        self.ask("CONFIG", "SET", "maxmemory", "1")

    def free_memory(self):
        self.ask("CONFIG", "SET", "maxmemory", "0")

    def fill_disk(self):
        """MISCONF for whoever writes: its snapshots fail, as on a full disk."""
        gone = self.folder / "gone"
        gone.mkdir()
        self.ask("CONFIG", "SET", "save", "3600 1", "dir", str(gone))
        gone.rmdir()
        self._save("err")

    def free_disk(self):
        self.ask("CONFIG", "SET", "dir", str(self.folder))
        self._save("ok")
        self.ask("CONFIG", "SET", "save", "")

    def _save(self, status):
        with contextlib.suppress(redis.exceptions.ResponseError):       # one is under way
            self.ask("BGSAVE")
        wait_until(lambda: self.info("persistence")["rdb_last_bgsave_status"] == status, f"a snapshot to be {status}")

    def follow(self, port):
        """Becomes a replica: READONLY for whoever writes."""
        self.ask("REPLICAOF", "127.0.0.1", str(port))

    def lead(self):
        self.ask("REPLICAOF", "NO", "ONE")

    def restart_loading(self, keys=1500, us_a_key=1000):
        """Comes back with so many keys more, which take keys * us_a_key to load; LOADING for everybody meanwhile.
        Returns at once."""
        self.ask("DEBUG", "POPULATE", str(keys), "chaos:load")
        if "--appendonly" in self.settings:
            self.ask("BGREWRITEAOF")
            wait_until(lambda: not self.info("persistence")["aof_rewrite_in_progress"], "the file of all writes")
        else:
            self.ask("SAVE")
        self.kill()
        self.start("--key-load-delay", us_a_key, "--loading-process-events-interval-bytes", 1024, is_waited_for=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


class Group:
    """Several servers, closed together, even if not all could be made: make() is the subclass's, and puts
    them on self.stack."""

    def __init__(self, *args, **more):
        with contextlib.ExitStack() as self.stack:
            self.make(*args, **more)
            self.stack = self.stack.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stack.close()


def with_replicas(stack, folder, count=1, *settings):
    """(master, replicas): servers that are closed with the stack (contextlib.ExitStack)."""
    settings = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", *settings)
    master = stack.enter_context(Server(folder / "master", *settings))
    replicas = [stack.enter_context(Server(folder / f"replica{i}", "--replicaof", f"127.0.0.1 {master.port}",
                                           *settings))
                for i in range(count)]
    for replica in replicas:
        wait_until(lambda replica=replica: replica.info("replication")["master_link_status"] == "up", "a replica")
    return master, replicas
