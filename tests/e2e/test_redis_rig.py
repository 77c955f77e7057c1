"""The rigs of Redis do what they say: who tests against a fault must have one.

SPDX-License-Identifier: Apache-2.0
"""
import time

import pytest
import redis
from proxy_rig import Proxy
from redis_rig import Server
from redis_topologies import Cluster, Sentinels
from service import wait_until

SILENT_S = 0.3


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("redis")) as one:
        yield one


def refusal(server):
    """The first word of what a writer is told; empty where it may write."""
    try:
        with server.client as client:
            client.execute_command("SET", "a", "1")
        return ""
    except redis.exceptions.BusyLoadingError:
        return "LOADING"
    except redis.exceptions.ReadOnlyError:
        return "READONLY"
    except redis.exceptions.ResponseError as error:
        return str(error).split()[0].lstrip("-")
    except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
        return "gone"


def test_a_full_disk_and_full_memory_refuse_writes_and_heal(server):
    server.fill_disk()
    assert refusal(server) == "MISCONF"
    server.free_disk()
    assert refusal(server) == ""
    server.fill_memory()
    assert refusal(server) in ("OOM", "command")        # the client cuts the first word off some
    server.free_memory()
    assert refusal(server) == "" and server.accepts_writes()


def test_a_replica_refuses_writes_until_it_leads(server, tmp_path):
    server.follow(1)
    assert refusal(server) == "READONLY" and not server.accepts_writes()
    server.lead()
    assert refusal(server) == ""


def test_a_restart_is_empty_or_loads_for_a_while(tmp_path):
    with Server(tmp_path / "redis") as server:
        server.ask("SET", "kept", "1")
        server.restart_loading(keys=1000)
        wait_until(lambda: refusal(server) == "LOADING", "loading")
        wait_until(server.accepts_writes, "the end of loading")
        assert server.ask("GET", "kept") == b"1"
        server.kill()
        assert refusal(server) == "gone"
        (tmp_path / "redis" / "dump.rdb").unlink()
        server.start()
        assert server.ask("GET", "kept") is None


def test_a_frozen_server_answers_when_it_thaws(server):
    server.freeze()
    with redis.Redis(port=server.port, socket_timeout=SILENT_S) as client, pytest.raises(redis.exceptions.TimeoutError):
        client.ping()
    server.thaw()
    assert server.accepts_writes()


def test_the_proxy_delays_is_silent_is_cut_and_heals(server):
    with Proxy(server.port) as proxy, redis.Redis(port=proxy.port, socket_timeout=SILENT_S) as client:
        assert client.ping()
        proxy.delay_s = 0.05
        began = time.monotonic()
        assert client.ping() and time.monotonic() - began >= 0.1
        proxy.delay_s = 0.0
        proxy.silence()
        with pytest.raises(redis.exceptions.TimeoutError):
            client.ping()
        proxy.heal()
        assert client.ping()
        proxy.cut()
        with pytest.raises(redis.exceptions.ConnectionError):
            client.ping()
        proxy.heal()
        assert client.ping()


def test_a_cluster_moves_slots_and_replaces_a_dead_master(tmp_path):
    with Cluster(tmp_path) as cluster:
        slot = cluster.slot("a")
        owner = cluster.masters[cluster.owner(slot)]
        target = next(one for one in cluster.masters if one is not owner)
        owner.ask("SET", "a", "1")
        cluster.migrate(slot, owner, target)
        assert target.ask("GET", "a") == b"1"
        i = cluster.masters.index(target)
        cluster.fail_over(i)
        wait_until(lambda: cluster.replicas[i].ask("GET", "a") == b"1", "the value")
        other = cluster.masters.index(owner)
        owner.kill()
        cluster.wait_for_successor(other)


def test_sentinels_replace_a_dead_master(tmp_path):
    with Sentinels(tmp_path) as sentinels:
        master = sentinels.current()
        with master.client as client:       # one: WAIT is about what its own connection wrote
            client.set("a", "1")
            assert client.wait(2, 5000) == 2
        master.kill()
        assert sentinels.wait_for_successor(master).ask("GET", "a") == b"1"
