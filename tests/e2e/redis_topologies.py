"""Redis Cluster and Redis Sentinel of the test's own, with time-outs short enough to fail over in a test.

    with Cluster(folder) as cluster:            # 3 masters, each with a replica
        cluster.url                             # redis-cluster://...
        cluster.masters[0].kill()               # its replica takes over: cluster.wait_for_successor(0)
    with Sentinels(folder) as sentinels:        # 1 master, 2 replicas, 3 sentinels
        sentinels.url                           # redis-sentinel://...
    with Sentinels(folder, login="user:password"):      # of an ACL of the sentinels' own; or only "password"

Made by hand rather than by `redis-cli --cluster`, which waits whole seconds where we look.
SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import secrets
import subprocess
import urllib.parse

import redis
from redis_rig import Group, Server, wait_for, with_replicas
from service import free_port, wait_until

SLOTS = 16384
NODE_TIMEOUT_MS = 1000      # before a member of a Cluster is held for dead; on a busy machine also one that is not
CALM_MS = 10000             # the same, where no failover is wanted that was not asked for; all is heard later, too
DOWN_AFTER_MS = 1500        # before Sentinel holds the master for dead
FAILOVER_S = 60             # patience: on a busy machine elections fail, and are held again
QUICK_REPLICATION = "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"


class ClusterNode(Server):
    def __init__(self, folder, *settings):
        self.bus = free_port()
        super().__init__(folder, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-port",
                         self.bus, "--cluster-node-timeout", NODE_TIMEOUT_MS, *QUICK_REPLICATION, *settings)
        self.id = self.cluster("MYID").decode()

    def cluster(self, *words):
        return self.ask("CLUSTER", *map(str, words))

    def rows(self):
        """Who is in the Cluster, as this one sees it: id, address, flags, master, ping, pong, epoch, link, slots"""
        return [row.split() for row in self.cluster("NODES").decode().splitlines()]

    def known_masters(self):
        """Their ids; None while it is not in touch with everyone."""
        rows = self.rows()
        is_in_touch = all(row[7] == "connected" for row in rows)
        return {row[0] for row in rows if "master" in row[2].split(",")} if is_in_touch else None

    def is_master(self):
        return self.ask("ROLE")[0] == b"master"

    def is_ready(self, count):
        """It knows so many others, and all slots are served."""
        try:
            return b"cluster_state:ok" in self.cluster("INFO") and len(self.rows()) == count
        except redis.exceptions.RedisError:
            return False


class Cluster(Group):
    """Masters, each with a replica.  Slots are dealt out evenly, in the order of the masters."""

    def make(self, folder, masters=3, replicas=True, timeout_ms=NODE_TIMEOUT_MS, settings=()):
        count = masters * 2 if replicas else masters
        self.nodes = [self.stack.enter_context(ClusterNode(folder / f"node{i}", *settings)) for i in range(count)]
        self.masters, self.replicas = self.nodes[:masters], self.nodes[masters:]
        for epoch, node in enumerate(self.nodes, 1):
            node.cluster("SET-CONFIG-EPOCH", epoch)     # else they quarrel first about whose is higher
        for i, node in enumerate(self.masters):
            node.cluster("ADDSLOTSRANGE", i * SLOTS // masters, (i + 1) * SLOTS // masters - 1)
        for node in self.nodes[1:]:
            self.nodes[0].cluster("MEET", "127.0.0.1", node.port, node.bus)
        wait_until(lambda: all(node.is_ready(count) for node in self.nodes), "the Cluster")
        for master, replica in zip(self.masters, self.replicas):
            wait_until(lambda replica=replica, master=master: self._replicates(replica, master), "a replica")
        wait_until(self._know_roles, "all to hear of it")
        for node in self.nodes:
            node.ask("CONFIG", "SET", "cluster-node-timeout", timeout_ms)

    @staticmethod
    def _replicates(replica, master):
        with contextlib.suppress(redis.exceptions.ResponseError):       # it has not heard of its master yet
            replica.cluster("REPLICATE", master.id)
        return replica.info("replication").get("master_link_status") == "up"

    def _know_roles(self):
        """Who does not know that a replica is one refuses it its vote."""
        masters = {node.id for node in self.masters}
        return all(node.known_masters() == masters for node in self.nodes)

    @property
    def url(self):
        return "redis-cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.masters)

    def slot(self, key):
        return self.masters[0].cluster("KEYSLOT", key)

    def owner(self, slot):
        """Which of the first masters had it."""
        return slot * len(self.masters) // SLOTS

    def fail_over(self, i):
        """Master i and its replica change places in good order, as for an upgrade."""
        replica = self.replicas[i]
        replica.cluster("FAILOVER")         # once: asked again, it would begin anew
        wait_until(replica.is_master, "the replica to get the votes", FAILOVER_S)
        wait_until(self._agree, "all to hear of it")

    def wait_for_successor(self, i):
        """After masters[i] has died: until its replica serves."""
        wait_until(lambda: self.replicas[i].is_master() and self.replicas[i].is_ready(len(self.nodes)),
                   "the replica to take over", FAILOVER_S)

    def migrate(self, slot, source, target, keys_at_once=10):
        """Moves a slot with all its keys from one node to another, while it is used."""
        target.cluster("SETSLOT", slot, "IMPORTING", source.id)
        source.cluster("SETSLOT", slot, "MIGRATING", target.id)
        while keys := source.cluster("GETKEYSINSLOT", slot, keys_at_once):
            source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        for node in (target, source, *(one for one in self.masters if one not in (source, target))):
            node.cluster("SETSLOT", slot, "NODE", target.id)
        wait_until(self._agree, "all to hear of it")        # else the next move may take a number that is taken

    def _agree(self):
        """All count the changes of the Cluster alike, and no two masters claim the same number of one."""
        told = [dict(row.split(":") for row in node.cluster("INFO").decode().split()) for node in self.nodes]
        epochs = [one["cluster_my_epoch"] for node, one in zip(self.nodes, told, strict=True) if node.is_master()]
        return len({one["cluster_current_epoch"] for one in told}) == 1 and len(set(epochs)) == len(epochs)


class Sentinels(Group):
    """Three sentinels that know each other from the start, and what they watch over, called `weir`."""

    NAME, COUNT = "weir", 3

    def make(self, folder, replicas=2, settings=(), login=None):
        self.user, _, self.password = login.rpartition(":") if login else (None, None, None)
        self.master, self.replicas = with_replicas(self.stack, folder, replicas, *settings)
        self.servers = [self.master, *self.replicas]
        self.members = [(free_port(), secrets.token_hex(20)) for _ in range(self.COUNT)]
        for i in range(self.COUNT):
            self._start(folder / f"sentinel{i}", i)
        wait_until(self._is_settled, "the sentinels")

    def _start(self, folder, i):
        folder.mkdir()
        port, identity = self.members[i]
        lines = [f"port {port}", "bind 127.0.0.1", f"dir {folder}", f"logfile {folder}/sentinel.log",
                 f"sentinel myid {identity}", f"sentinel monitor {self.NAME} 127.0.0.1 {self.master.port} 2",
                 f"sentinel down-after-milliseconds {self.NAME} {DOWN_AFTER_MS}",
                 f"sentinel failover-timeout {self.NAME} 4000"]
        lines += [f"sentinel known-sentinel {self.NAME} 127.0.0.1 {other} {name}"
                  for other, name in self.members if other != port]
        lines += [f"sentinel known-replica {self.NAME} 127.0.0.1 {one.port}" for one in self.replicas]
        lines += self._login_lines()
        (folder / "sentinel.conf").write_text("\n".join(lines) + "\n")
        process = subprocess.Popen(["redis-server", folder / "sentinel.conf", "--sentinel"], stdin=subprocess.DEVNULL)
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        wait_for(redis.Redis(port=port), process)

    def _login_lines(self):
        """Whoever asks a sentinel says this first; so do other sentinels."""
        if self.password is None:
            return []
        lines = [f"sentinel sentinel-pass {self.password}"]
        if not self.user:
            return [*lines, f"requirepass {self.password}"]
        return [*lines, f"sentinel sentinel-user {self.user}", "user default off",
                f"user {self.user} on >{self.password} allchannels +@all"]

    def ask(self, i, *command):
        with redis.Redis(port=self.members[i][0], username=self.user or None, password=self.password) as client:
            return client.execute_command("SENTINEL", *command)

    def _is_settled(self):
        return all(self.ask(i, "CKQUORUM", self.NAME).startswith(b"OK") for i in range(self.COUNT))

    @property
    def url(self):
        hosts = ",".join(f"127.0.0.1:{port}" for port, _ in self.members)
        return f"redis-sentinel://{self.NAME}@{hosts}{self._query()}"

    def _query(self):
        if self.password is None:
            return ""
        words = {"sentinel_password": self.password, **({"sentinel_user": self.user} if self.user else {})}
        return "?" + urllib.parse.urlencode(words)

    def current(self):
        """The server that the sentinels say is the master."""
        port = int(self.ask(0, "GET-MASTER-ADDR-BY-NAME", self.NAME)[1])
        return next(one for one in self.servers if one.port == port)

    def fail_over(self):
        """In good order, by a sentinel's command."""
        before = self.current()
        self.ask(0, "FAILOVER", self.NAME)
        self.wait_for_successor(before)

    def wait_for_successor(self, dead):
        """Until another leads; returns it."""
        wait_until(lambda: self.current() is not dead and self.current().accepts_writes(), "the failover", FAILOVER_S)
        return self.current()
