#!/usr/bin/python3
"""eventual - limits that machines share eventually: what slips through, what it costs, beside one that shares nothing.

    bench/eventual.py        (of build/weir, or what WEIR_BIN names; takes a minute)

The load is tests/chaos/hammer.c's, and so is the history that admitted hits are counted in.  Processor time is the
service's own (/proc/PID/task/*/schedstat); the two services take turns.

SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import glob
import pathlib
import statistics
import sys
import tempfile

sys.path[:1] = (str(pathlib.Path(__file__).resolve().parents[1] / "tests" / rigs)
                for rigs in ("e2e", "conformance", "chaos"))
import checker  # noqa: E402
from fleet_rig import LONG_WINDOW_S, Fleet  # noqa: E402
from history import by_key  # noqa: E402
from proxy_rig import Proxy  # noqa: E402
from redis_rig import Server  # noqa: E402
from service import wait_until  # noqa: E402

EVENTUAL = ("--consistency", "eventual")
ROUND_TRIPS_MS = (0, 50, 200)
KEYS = 20
PAIRS = 9


def proxies(stack, server):
    for ms in ROUND_TRIPS_MS:
        proxy = stack.enter_context(Proxy(server.port))
        proxy.delay_s = ms / 2000
        yield proxy.url


def settle(fleet):
    for i in range(len(fleet.nodes)):
        wait_until(lambda i=i: fleet.metric(i, "weir_eventual_keys_untold") == 0)


def slipped(folder, limit):
    """Beyond the limit, of each key: three nodes near and far, all of them asked for more than there is."""
    folder.mkdir()
    limits = {"fixed": checker.Limit("fixed_window", limit, LONG_WINDOW_S)}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Server(folder / "redis"))
        fleet = stack.enter_context(Fleet(folder, list(proxies(stack, server)), limits, flags=EVENTUAL))
        with fleet.load(keys=f"fixed*{KEYS}", rate=max(3000, limit * KEYS), seconds=3) as load:
            pass
        settle(fleet)
        over = [max(0, sum(hit.hits for hit in checker.admitted(hits)) - limit) for hits in by_key(load.hits).values()]
        told = sum(fleet.metric(i, "weir_eventual_over_admitted_total") for i in range(3))
    unit = max(1, limit // 10)
    print(f"limit {limit:6}: beyond it at the worst {max(over)}, on average {statistics.mean(over):.1f}; "
          f"proven {3 * 2 * unit}, promised {2 * unit * 5}; counted {sum(over)}, exported {told:.0f}")


def redis_us(server):
    cpu = server.info("cpu")
    return (cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"]) * 1e6


def messages(folder):
    """To the store, for each decision: a key that everybody asks for, and keys that are asked for once."""
    folder.mkdir()
    limits = {"hot": checker.Limit("fixed_window", 1_000_000),
              "cold": checker.Limit("fixed_window", 100, LONG_WINDOW_S)}
    with Server(folder / "redis") as server, Fleet(folder, server.url, limits, count=1, flags=EVENTUAL) as fleet:
        for keys in ("hot", "cold*1000000"):
            before, spent = fleet.metric(0, "weir_eventual_messages_total"), redis_us(server)
            with fleet.load(keys=keys, rate=10000, seconds=3) as load:
                pass
            settle(fleet)
            sent = fleet.metric(0, "weir_eventual_messages_total") - before
            print(f"{keys.partition('*')[0]:5}: {len(load.hits)} decisions, {sent:.0f} messages: "
                  f"{sent / len(load.hits):.4f} each; "
                  f"{(redis_us(server) - spent) / len(load.hits):.2f} us of Redis each")


def cpu_ns(node):
    return sum(int(pathlib.Path(path).read_text(encoding="ascii").split()[0])
               for path in glob.glob(f"/proc/{node.process.pid}/task/*/schedstat"))


def cost(folder):
    """Processor time of a decision, beside one on a machine that shares nothing."""
    folder.mkdir()
    limits = {"fixed": checker.Limit("fixed_window", 1_000_000, 60)}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Server(folder / "redis"))
        fleets = []
        for name, store, flags in (("local", "local", ()), ("eventual", server.url, EVENTUAL)):
            (folder / name).mkdir()
            fleets.append(stack.enter_context(Fleet(folder / name, store, limits, count=1, flags=flags)))
        spent = {0: [], 1: []}
        for _ in range(PAIRS):
            for i, fleet in enumerate(fleets):
                began = cpu_ns(fleet.nodes[0])
                with fleet.load(keys="fixed*1000", rate=10000, seconds=1) as load:
                    pass
                spent[i].append((cpu_ns(fleet.nodes[0]) - began) / len(load.hits))
    local, eventual = (statistics.median(spent[i]) for i in spent)
    print(f"a decision over gRPC, 1000 keys, 10000 a second: local {local / 1000:.2f} us, "
          f"eventual {eventual / 1000:.2f} us")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for limit in (10, 100, 1000):
            slipped(folder / str(limit), limit)
        messages(folder / "messages")
        cost(folder / "cost")


if __name__ == "__main__":
    main()
