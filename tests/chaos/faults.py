"""What may befall a store, each as a context: it begins at the beginning, and at its end the store takes writes again.

    with Site(folder) as site, FAULTS["frozen"](site): ...

SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import threading

import redis
from fleet_rig import quick
from proxy_rig import Proxy
from redis_rig import Group, Server
from service import wait_until

# Written before it is acknowledged: safe from kill -9, if not from a power cut, and no slow disk makes it wait.
KEEPS_ALL = "--appendonly", "yes", "--appendfsync", "no"
LOADED = quick(1500, 7000)  # keys, of a millisecond each: longer than the fault is watched
SLOW_S = 0.1                # each way: far beyond any deadline


class Site(Group):
    """One Redis that loses nothing it has acknowledged, behind a proxy that stands for the network."""

    def make(self, folder):
        self.server = self.stack.enter_context(Server(folder / "redis", *KEEPS_ALL, "--busy-reply-threshold", "100"))
        self.proxy = self.stack.enter_context(Proxy(self.server.port))
        self.servers = [self.server]

    def url_for(self, fault):
        """By the proxy where it is the network that fails: it is not fast."""
        return self.proxy.url if fault in NETWORK else self.server.url


def fault(begin, end):
    @contextlib.contextmanager
    def happens(site):
        begin(site)
        try:
            yield
        finally:
            end(site)
            wait_until(site.server.accepts_writes, "the store to accept writes")
    return happens


def is_busy(server):
    try:
        return not server.ask("PING")
    except redis.exceptions.ResponseError as error:
        return str(error).startswith("BUSY")


@contextlib.contextmanager
def busy(site):
    """A script that does not end; others are told BUSY."""
    def run():
        with contextlib.suppress(redis.exceptions.RedisError):      # killed
            site.server.ask("EVAL", "while true do end", "0")
    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: is_busy(site.server), "the script")
        yield
    finally:
        wait_until(lambda: killed(site.server), "the script to end")
        thread.join()


def killed(server):
    try:
        return server.ask("SCRIPT", "KILL") == b"OK"
    except redis.exceptions.RedisError:
        return False


FAULTS = {
    "killed": fault(lambda site: site.server.kill(), lambda site: site.server.start()),
    "frozen": fault(lambda site: site.server.freeze(), lambda site: site.server.thaw()),
    "slow": fault(lambda site: setattr(site.proxy, "delay_s", SLOW_S),
                  lambda site: setattr(site.proxy, "delay_s", 0.0)),
    "cut off": fault(lambda site: site.proxy.cut(), lambda site: site.proxy.heal()),
    "silent": fault(lambda site: site.proxy.silence(), lambda site: site.proxy.heal()),
    "disk full": fault(lambda site: site.server.fill_disk(), lambda site: site.server.free_disk()),
    "out of memory": fault(lambda site: site.server.fill_memory(), lambda site: site.server.free_memory()),
    "a replica": fault(lambda site: site.server.follow(1), lambda site: site.server.lead()),
    "loading": fault(lambda site: site.server.restart_loading(keys=LOADED), lambda site: None),
    "busy": busy,
}
NETWORK = "slow", "cut off", "silent"
BREAK = "killed", "cut off", "loading"      # these end connections
