"""`consistency: eventual`: three nodes, near and far from their store, decide for themselves and tell each other later.

SPDX-License-Identifier: Apache-2.0
"""
import collections
import contextlib
import http.client
import json
import re
import time

import pytest
from proxy_rig import Proxy
from redis_rig import Server
from redis_topologies import CALM_MS, Cluster
from service import PATIENCE_S, Service, together, wait_until

INTERVAL_S = 0.1
ROUND_TRIPS_S = (0, 0.05, 0.2)      # from each node to the store and back
LIMIT = 50
UNIT = LIMIT // 10

# What may pass at once, of limits that no test sees the end of a window of.
FORMS = {
    "fixed": "",
    "slide": "algorithm: sliding_window_counter",
    "sub": "algorithm: sliding_window_counter, buckets: 4",
    "log": "algorithm: sliding_window_log",
    "bucket": "algorithm: token_bucket",
    "tick": "algorithm: token_bucket, refill: interval",
    "leaky": f"algorithm: leaky_bucket, burst: {LIMIT - 1}",
}


def rules_of(forms, unit):
    return "domain: api\ndescriptors:\n" + "".join(
        f"  - {{key: {name}, rate_limit: {{name: {name}, unit: {unit}, requests_per_unit: {LIMIT}, {form}}}}}\n"
        for name, form in forms.items())


RULES = rules_of(FORMS, "year")


def bound(nodes, round_trip_s):
    """semantics: (N-1) * U * (ceil((2s + RTT) / s) + 1)"""
    return (nodes - 1) * UNIT * (-int(-(2 * INTERVAL_S + round_trip_s) // INTERVAL_S) + 1)


class Node:
    """A service, and what it has admitted."""

    def __init__(self, stack, folder, store, rules, *flags):
        folder.mkdir(exist_ok=True)
        self.stack, self.folder, self.rules = stack, folder, rules
        self.flags = ("--store", store, "--consistency", "eventual", *flags)
        self.admitted = collections.Counter()
        self.start()

    def start(self):
        """Also after stop(): on the same table."""
        self.weir = self.stack.enter_context(Service(self.folder, self.rules, flags=self.flags,
                                                     listeners=("http", "admin"), table=self.folder / "table"))

    @contextlib.contextmanager
    def client(self, listener="http"):
        connection = http.client.HTTPConnection("127.0.0.1", self.weir.port(listener), timeout=PATIENCE_S)
        with contextlib.closing(connection):
            yield connection

    def ask(self, client, name, value, hits=1):
        """Whether it passes; what does is written down."""
        client.request("POST", "/json", json.dumps(
            {"domain": "api", "hitsAddend": hits, "descriptors": [{"entries": [{"key": name, "value": value}]}]}))
        answer = client.getresponse()
        answer.read()
        passes = answer.status == 200
        self.admitted[name, value] += hits * passes
        return passes

    def metrics(self):
        with self.client("admin") as client:
            client.request("GET", "/metrics")
            text = client.getresponse().read().decode()
        return {name + (labels or ""): float(value)
                for name, labels, value in re.findall(r"^(weir_eventual\w+)(\{.*\})? (\S+)$", text, re.M)}

    def over(self):
        """What slipped through, and this node heard of first, by rule."""
        return {found[1]: int(value) for name, value in self.metrics().items()
                if (found := re.match(r'weir_eventual_over_admitted_total\{rule="api\.(.*)"\}', name))}

    def global_health(self):
        """Of the store of all sites: in words, and as a metric."""
        with self.client("admin") as client:
            client.request("GET", "/api/v1/store")
            told = json.load(client.getresponse())
        return told["global_health"], self.metrics()["weir_eventual_global_up"]

    def is_settled(self):
        return self.metrics()["weir_eventual_keys_untold"] == 0


class FarNode(Node):
    """Behind a network of its own."""

    def __init__(self, stack, folder, port, round_trip_s, rules, *flags):
        self.proxy = stack.enter_context(Proxy(port))
        self.proxy.delay_s = round_trip_s / 2
        super().__init__(stack, folder, self.proxy.url, rules, *flags)


@contextlib.contextmanager
def fleet(tmp_path, rules=RULES, flags=(), round_trips_s=ROUND_TRIPS_S):
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Server(tmp_path / "redis"))
        yield server, [FarNode(stack, tmp_path / f"node{i}", server.port, seconds, rules, *flags)
                       for i, seconds in enumerate(round_trips_s)]


def hammer(nodes, keys, rounds):
    """All nodes at once, one key after the other.  Returns how many requests passed."""
    passed = []

    def work(node):
        with node.client() as client:
            for _ in range(rounds):
                passed.append(sum(node.ask(client, *key) for key in keys))

    together(work, nodes)
    return sum(passed)


def settle(nodes):
    """Everything is told; a second look, because what was under way the first time may have been heard by few."""
    for _ in range(2):
        for node in nodes:
            wait_until(node.is_settled, "everything to be told")
        time.sleep(2 * INTERVAL_S)


def use_up(nodes, keys, rounds=60):
    """Asks until all nodes refuse, though nothing is held back any more."""
    for _ in range(100):
        if hammer(nodes, keys, rounds) == 0:
            return
        settle(nodes)
        rounds = 2 * UNIT
    raise AssertionError("there is no end")


def in_all(nodes):
    return sum((node.admitted for node in nodes), collections.Counter())


def told(server, name, value, mark="@"):
    """What the store has of a key: {node: hits} for each window.  mark "@@": {site: hits}."""
    with server.client as client:
        return [{who: int(hits) for who, hits in client.hgetall(key).items() if who != b"over"}
                for key in client.keys(f"weir:{{3:api{len(name)}:{name}={len(value)}:{value}}}" + "?" * 11 + mark
                                       + "[0-9]*")]


def test_nodes_near_and_far_exceed_limits_within_the_bound_and_say_by_how_much(tmp_path):
    keys = [(name, f"k{i}") for name in FORMS for i in range(3)]
    with fleet(tmp_path) as (server, nodes):
        use_up(nodes, keys)
        settle(nodes)
        admitted = in_all(nodes)
        most = LIMIT + bound(len(nodes), max(ROUND_TRIPS_S))
        assert all(LIMIT <= admitted[key] <= most for key in keys), admitted
        assert all(admitted[key] <= LIMIT + len(nodes) * 2 * UNIT for key in keys), admitted     # what is proven
        for name in ("fixed", "slide", "sub", "log", "tick"):       # which promise no more than the limit in a window
            slipped = sum(max(0, admitted[key] - LIMIT) for key in keys if key[0] == name)
            assert sum(node.over().get(name, 0) for node in nodes) == slipped
        for name, value in keys:
            assert [sum(window.values()) for window in told(server, name, value)] == [admitted[name, value]]
        assert sum(sum(node.over().values()) for node in nodes) > 0     # or nothing was tried


def test_windows_of_a_second_add_up(tmp_path):
    rules = ("domain: api\ndescriptors:\n"
             "  - {key: brief, rate_limit: {name: brief, unit: second, requests_per_unit: 20}}\n")
    with fleet(tmp_path, rules) as (server, nodes):
        keys = [("brief", f"k{i}") for i in range(3)]
        end = time.monotonic() + 3
        while time.monotonic() < end:
            hammer(nodes, keys, 20)
        settle(nodes)
        windows = [sum(window.values()) for key in keys for window in told(server, *key)]
        assert sum(windows) == sum(in_all(nodes).values())
        assert sum(max(0, hits - 20) for hits in windows) == sum(sum(node.over().values()) for node in nodes)
        assert max(windows) <= 20 + len(nodes) * 2 * 2 and len(windows) >= 6


def test_what_passed_too_soon_is_paid_back(tmp_path):
    """Buckets owe: what slipped through once does not again in the next second."""
    forms = {name: form for name, form in FORMS.items() if name in ("bucket", "leaky", "tick")}
    with fleet(tmp_path, rules_of(forms, "second")) as (_, nodes):
        keys = [(name, "k") for name in forms]
        hammer(nodes, keys, 1)
        began = time.monotonic()
        while time.monotonic() < began + 4:
            hammer(nodes, keys, 10)
        seconds = time.monotonic() - began
        for name, value in keys:
            room = (2 if name == "tick" else 1) * LIMIT         # a tick comes whole, at the end too
            most = room + LIMIT * seconds + len(nodes) * 2 * UNIT
            assert LIMIT * (seconds - 2) / 2 < in_all(nodes)[name, value] <= most, (name, seconds)


def test_a_bucket_is_as_empty_elsewhere_for_as_long_as_it_takes_to_fill(tmp_path):
    """It takes a hundred windows: what another node admitted some windows ago still counts."""
    forms = {"bucket": "algorithm: token_bucket", "leaky": "algorithm: leaky_bucket",
             "tick": "algorithm: token_bucket, refill: interval"}
    rules = "domain: api\ndescriptors:\n" + "".join(
        f"  - {{key: {name}, rate_limit: {{unit: second, requests_per_unit: 1, burst: 100, {form}}}}}\n"
        for name, form in forms.items())
    with fleet(tmp_path, rules, round_trips_s=(0, 0)) as (_, nodes):
        keys = [(name, "k") for name in forms]
        hammer(nodes[:1], keys, 150)
        settle(nodes)
        time.sleep(2.5)
        began = time.monotonic()
        hammer(nodes[1:], keys, 40)
        settle(nodes)
        hammer(nodes[1:], keys, 100)
        refilled = time.monotonic() - began + 5
        for key in keys:
            assert nodes[0].admitted[key] >= 100
            assert nodes[1].admitted[key] <= 2 * 10 + refilled, key


def test_a_node_that_was_cut_off_goes_on_and_tells_when_it_is_back(tmp_path):
    keys = [("fixed", "cut"), ("log", "cut"), ("bucket", "cut")]
    with fleet(tmp_path, flags=("--on-store-error", "open")) as (server, nodes):
        hammer(nodes, keys, 2)
        settle(nodes)
        nodes[2].proxy.cut()
        while hammer(nodes, keys, 20):      # it notices, and then passes what its table lets pass
            time.sleep(INTERVAL_S)
        assert all(nodes[2].admitted[key] > LIMIT / 2 for key in keys), nodes[2].admitted
        assert nodes[2].metrics()["weir_eventual_lag_seconds"] > 0
        nodes[2].proxy.heal()
        settle(nodes)
        admitted = in_all(nodes)
        for name, value in keys:
            assert [sum(window.values()) for window in told(server, name, value)] == [admitted[name, value]]
        assert nodes[2].metrics()["weir_eventual_hits_dropped_total"] == 0
        assert sum(node.over().get("fixed", 0) for node in nodes) == admitted["fixed", "cut"] - LIMIT
        assert hammer(nodes, keys, 5) == 0


def test_a_limit_that_is_raised_within_a_window_goes_on_counting(tmp_path):
    key = ("log", "raised")         # a fixed window would count what it refused
    with fleet(tmp_path, round_trips_s=(0, 0)) as (_, nodes):
        use_up(nodes, [key])
        before = sum(sum(node.over().values()) for node in nodes)
        assert before == in_all(nodes)[key] - LIMIT
        for node in nodes:
            node.weir.rules(RULES.replace(f"requests_per_unit: {LIMIT}", f"requests_per_unit: {3 * LIMIT}"))
            node.weir.wait_for("rules")
        use_up(nodes, [key])
        settle(nodes)
        assert in_all(nodes)[key] >= 3 * LIMIT
        assert sum(sum(node.over().values()) for node in nodes) == max(before, in_all(nodes)[key] - 3 * LIMIT)


def test_a_store_that_forgets_everything_is_told_again(tmp_path):
    key = ("fixed", "again")
    with fleet(tmp_path) as (server, nodes):
        for node in nodes:
            with node.client() as client:
                assert all(node.ask(client, *key) for _ in range(UNIT))
        settle(nodes)
        server.ask("FLUSHALL")
        server.forget_scripts()
        for node in nodes:
            with node.client() as client:
                assert node.ask(client, *key)
        settle(nodes)
        assert [sum(window.values()) for window in told(server, *key)] == [3 * (UNIT + 1)]
        use_up(nodes, [key])
        assert LIMIT <= in_all(nodes)[key] <= LIMIT + len(nodes) * 2 * UNIT


def test_a_node_that_is_started_anew_counts_nothing_twice(tmp_path):
    keys = [(name, "anew") for name in FORMS]
    with fleet(tmp_path, round_trips_s=(0, 0)) as (_, nodes):
        for rounds in (UNIT, 1):            # the second time both hear of all
            for node in nodes:
                hammer([node], keys, rounds)
                settle(nodes)
        nodes[1].weir.stop()
        nodes[1].start()
        hammer([nodes[1]], keys, 1)
        settle(nodes)
        assert nodes[1].metrics()["weir_eventual_hits_heard_total"] == 0
        use_up([nodes[1]], keys)
        assert set(in_all(nodes).values()) == {LIMIT}


@pytest.mark.parametrize("policy,most", [("closed", 2 * UNIT), ("local", LIMIT), ("open", LIMIT)])
def test_on_store_error_says_what_passes_while_nobody_can_be_told(tmp_path, policy, most):
    with fleet(tmp_path, flags=("--on-store-error", policy), round_trips_s=(0,)) as (server, (node,)):
        server.kill()
        key = ("fixed", "away")
        wait_until(lambda: hammer([node], [key], 20) == 0 and node.metrics()["weir_eventual_messages_failed_total"] > 0,
                   "refusals")
        assert node.admitted[key] == most


def test_a_map_that_is_full_leaves_keys_to_on_store_error(tmp_path):
    with fleet(tmp_path, flags=("--eventual-keys", "64", "--on-store-error", "closed"),
               round_trips_s=(0,)) as (_, (node,)):
        with node.client() as client:
            passed = sum(node.ask(client, "fixed", f"k{i}") for i in range(100))
        assert passed == 64
        assert node.metrics()["weir_eventual_no_room_total"] == 36


def test_a_request_of_more_hits_than_may_be_untold_passes(tmp_path):
    with fleet(tmp_path, round_trips_s=(0.2,)) as (_, (node,)):
        with node.client() as client:
            assert node.ask(client, "fixed", "large", 40)
            assert not node.ask(client, "fixed", "large", 5)       # until the store has heard of it
            wait_until(lambda: node.ask(client, "fixed", "large", 5))
            assert node.admitted["fixed", "large"] == 45


def test_a_node_that_goes_tells_before_it_does(tmp_path):
    key = ("fixed", "last")
    with fleet(tmp_path, flags=("--sync-interval", "60s"), round_trips_s=(0.05,)) as (server, (node,)):
        with node.client() as client:
            assert all(node.ask(client, *key) for _ in range(3))
        assert told(server, *key) == []
        node.weir.stop()
        assert [list(window.values()) for window in told(server, *key)] == [[3]]


@contextlib.contextmanager
def sites(tmp_path, has_own=True):
    """Two sites of two nodes: a store near to each, and one far from all of them; or the first
    site's is that of all."""
    with contextlib.ExitStack() as stack:
        far = stack.enter_context(Server(tmp_path / "far"))
        globe = stack.enter_context(Proxy(far.port))
        globe.delay_s = 0.05
        nodes = []
        for site in ("east", "west"):
            near = stack.enter_context(Server(tmp_path / site)) if has_own or nodes else far
            nodes += [Node(stack, tmp_path / f"{site}{i}", near.url, RULES, "--store-global", globe.url, "--site", site)
                      for i in range(2)]
        yield far, globe, nodes


@pytest.mark.parametrize("has_own", [True, False], ids=["a store of its own", "a site's store"])
def test_sites_share_a_limit_through_a_store_of_all(tmp_path, has_own):
    keys = [(name, "k") for name in FORMS]
    with sites(tmp_path, has_own) as (far, _, nodes):
        use_up(nodes, keys)
        settle(nodes)
        admitted = in_all(nodes)
        assert all(LIMIT <= admitted[key] <= LIMIT + len(nodes) * 2 * UNIT for key in keys), admitted
        for name, value in keys:
            (window,) = told(far, name, value, "@@")
            assert len(window) == 2 and sum(window.values()) == admitted[name, value]
        slipped = sum(max(0, admitted[key] - LIMIT) for key in keys if key[0] not in ("bucket", "leaky"))
        over = collections.Counter()
        for node in nodes:
            over.update(node.over())
        assert sum(over.values()) == slipped


def test_sites_that_cannot_reach_each_other_go_on_and_catch_up(tmp_path):
    key = ("fixed", "k")
    with sites(tmp_path) as (far, globe, nodes):
        hammer(nodes, [key], 1)
        settle(nodes)
        assert {node.global_health() for node in nodes} == {("up", 1)}
        globe.cut()
        while hammer(nodes, [key], 10):
            time.sleep(INTERVAL_S)
        wait_until(lambda: {node.global_health() for node in nodes} == {("away", 0)}, "all to know it")
        east, west = in_all(nodes[:2])[key], in_all(nodes[2:])[key]
        assert all(LIMIT - 4 <= site <= LIMIT + 4 * UNIT for site in (east, west))      # each by itself
        globe.heal()
        settle(nodes)
        assert sorted(told(far, *key, "@@")[0].values()) == sorted((east, west))


def test_a_cluster_is_told_as_one_server_is(tmp_path):
    keys = [(name, f"k{i}") for name in FORMS for i in range(3)]
    with Cluster(tmp_path / "redis", replicas=False, timeout_ms=CALM_MS) as cluster, contextlib.ExitStack() as stack:
        nodes = [Node(stack, tmp_path / f"node{i}", cluster.url, RULES) for i in range(2)]
        use_up(nodes, keys)
        settle(nodes)
        admitted = in_all(nodes)
        assert all(LIMIT <= admitted[key] <= LIMIT + len(nodes) * 2 * UNIT for key in keys), admitted
        for key in keys:
            assert [sum(window.values()) for master in cluster.masters
                    for window in told(master, *key)] == [admitted[key]]
        assert all(any(told(master, *key) for key in keys) for master in cluster.masters)        # or nothing was tried


def test_rules_that_cannot_be_eventual_are_refused_or_exact(tmp_path):
    folder = tmp_path / "rules"
    folder.mkdir()
    bad = "domain: api\ndescriptors:\n" \
          "  - {key: a, rate_limit: {unit: day, requests_per_unit: 1, consistency: eventual, %s}}\n"
    with Server(tmp_path / "redis") as server:
        for words, why in (("algorithm: concurrency", "slots"), ("scope: host", "not shared"),
                           ("counting: approximate", "approximate")):
            with pytest.raises(AssertionError, match=f"consistency: eventual.*{why}"):
                Service(folder, bad % words, flags=("--store", server.url))
        with pytest.raises(AssertionError, match="atomic"):
            Service(folder, "atomic: true\n" + bad % "", flags=("--store", server.url))
