"""Restarts, upgrades and reloads while clients go on asking: nobody notices, nothing is counted twice.

SPDX-License-Identifier: Apache-2.0
"""
import os
import signal

from load_rig import RULES, Load
from service import Service, wait_until

BOTH = ("grpc", "http")
RELOADS = 100
SOME = 300              # answers between one event and the next
SCALE = float(os.environ.get("WEIR_TEST_SCALE", "1"))


def addresses(weir):
    """Flags for a service that listens where that one does."""
    return ["--grpc", weir.address("grpc"), "--http", weir.address("http")]


def load_of(weir):
    return Load(weir.address("grpc"), weir.port("http"))


def end(weir):
    weir.signal(signal.SIGTERM)
    weir.wait_gone()
    weir.stop()


# ---- restarts ----

def test_a_successor_takes_over_under_load(tmp_path):
    """The new one starts beside the old one, which then goes: not one request is refused or counted wrongly."""
    table = tmp_path / "table"
    services = [Service(tmp_path, RULES, listeners=BOTH, table=table)]
    with load_of(services[0]) as load:
        for _ in range(3):
            load.wait_for_more(SOME)
            old = services[-1]
            services.append(Service(tmp_path, RULES, listeners=BOTH, table=table, flags=addresses(old)))
            load.wait_for_more(SOME)
            end(old)
        load.wait_for_more(SOME)
    load.check()
    # Each of four askers could lose a request each time; what is left is who connects while a listener closes.
    assert load.not_answered <= 3, load.not_answered
    services[-1].stop()


def test_counts_are_kept_when_it_stops_and_starts_under_load(tmp_path):
    """Between the two nobody answers, and clients ask again: what was allowed before counts after."""
    table = tmp_path / "table"
    first = weir = Service(tmp_path, RULES, listeners=BOTH, table=table)
    with load_of(first) as load:
        for _ in range(3):
            load.wait_for_more(SOME)
            end(weir)
            weir = Service(tmp_path, RULES, listeners=BOTH, table=table, flags=addresses(first))
        load.wait_for_more(SOME)
    load.check()
    assert load.not_answered > 0            # else nothing was shown
    weir.stop()


# ---- reloads ----

def version(number):
    """The same rule for users, among others that come, go, change and move."""
    others = "".join(f"  - {{key: other{i}, rate_limit: {{unit: hour, requests_per_unit: {number + i}}}}}\n"
                     for i in range(number % 7))
    head, user = RULES.split("descriptors:\n")
    return f"{head}descriptors:\n" + (others + user if number % 2 else user + others)


def generation(weir):
    loaded = [one["text"] for one in weir.events() if ": new rules, generation " in one.get("text", "")]
    return len(loaded)


def test_a_hundred_reloads_under_load_are_not_noticed(tmp_path):
    count = max(10, int(RELOADS * SCALE))
    with Service(tmp_path, RULES, listeners=BOTH) as weir:
        with load_of(weir) as load:
            for number in range(1, count + 1):
                weir.rules(version(number))
                wait_until(lambda wanted=number: generation(weir) == wanted, f"reload {number}")
            load.wait_for_more(SOME)
        load.check()
        assert load.not_answered == 0
        assert not [one for one in weir.events() if one["level"] in ("error", "warn")]


def test_bad_rules_under_load_change_nothing_and_are_said_once(tmp_path):
    bad = RULES + "  - key: other\n    rate_limit: {unit: fortnight, requests_per_unit: 1}\n"
    with Service(tmp_path, RULES, listeners=BOTH) as weir:
        with load_of(weir) as load:
            load.wait_for_more(SOME)
            weir.rules(bad)
            wait_until(lambda: errors(weir), "an error")
            load.wait_for_more(SOME)
            weir.signal(signal.SIGHUP)
            load.wait_for_more(SOME)
            first, *rest = errors(weir)
            assert first.startswith(f"{weir.rules_path}:6:24: ") and "fortnight" in first, first
            assert len(rest) == 1 and "the rules stay as they were" in rest[0], rest
            weir.rules(version(1))
            wait_until(lambda: generation(weir) == 1, "good rules")
            load.wait_for_more(SOME)
        load.check()
        assert load.not_answered == 0


def errors(weir):
    return [one["text"] for one in weir.events() if one["level"] == "error"]
