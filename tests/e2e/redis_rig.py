"""A real redis-server of the test's own: on a unix socket in a folder of its own, nothing kept on disk.

SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import subprocess
import time

import redis


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
