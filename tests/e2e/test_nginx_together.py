"""Many at once: workers, instances of nginx and `weir serve` on one table count together, to the unit; reloads,
upgrades and killed workers lose no count.

SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import http.client
import os
import pathlib
import signal
import tempfile
import threading

import pytest

from http_rig import ask, serve
from nginx_rig import Nginx, PATIENCE_S, SCALE, wait_for, wrk
from service import together

ALL = "domain: api\ndescriptors: [{key: generic_key, value: all, rate_limit: {unit: %s, requests_per_unit: %d%s}}]\n"


def passed(nginx):
    return sum(line["status"] == "200" for line in nginx.access())


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory(prefix="weir-table-") as path:
        yield pathlib.Path(path)


def test_of_256_connections_exactly_1000_requests_pass():
    with Nginx(ALL % ("minute", 1000, ", algorithm: sliding_window_log"), workers=4) as nginx:
        told = wrk(nginx.port, "-t2", "-c256", "-d2")
        assert told["requests"] > 1000 and told["lost"] is None
        assert told["requests"] - told["refused"] == 1000
        nginx.stop()
        assert passed(nginx) == 1000


def test_two_instances_share_a_table():
    with folder() as shared:
        text = ALL % ("day", 1000, "")
        with Nginx(text, table=shared / "table") as one, Nginx(text, table=shared / "table") as two:
            told = together(lambda n: wrk(n.port, "-t1", "-c64", "-d1"), (one, two))
            assert sum(t["requests"] - t["refused"] for t in told) == 1000
            assert all(t["requests"] > 0 for t in told)


def test_nginx_and_the_service_share_a_table(tmp_path):
    with folder() as shared:
        text = ALL % ("day", 100, "")
        with serve(tmp_path, text, "--table", shared / "table") as service, \
                Nginx(text, table=shared / "table") as nginx:
            port = int(service.address("http").rpartition(":")[2])
            statuses = [(nginx.ask() if i % 2 else ask(port, "/check/")).status for i in range(120)]
            assert statuses == [200] * 100 + [429] * 20


def test_counts_outlive_nginx():
    with folder() as shared:
        for remaining in ("8", "7", "6"):
            with Nginx(ALL % ("day", 9, ""), table=shared / "table") as nginx:
                assert nginx.ask().headers["X-Ratelimit-Remaining"] == remaining


# ---- rules change ----

# Seen from the event loop and compiled in a thread; all of it in a pool; all of it in a thread, as looking
# takes long.
@pytest.mark.parametrize("pool, files", [("", 0), ("compilers", 0), ("", 12000)])
def test_new_rules_are_taken_by_every_worker_and_bad_ones_are_not(pool, files):
    engine = f"weir_table {{folder}}/table size=8m; weir_rules {{folder}}/rules.yaml {pool and 'threads=' + pool};"
    with Nginx(ALL % ("day", 1000, ""), workers=3, main=f"thread_pool {pool} threads=2;" if pool else "",
               starts=False) as nginx:
        nginx.configure(engine=engine)
        for i in range(files):
            (nginx.folder / f"{i}.csv").touch()
        nginx.start()
        nginx.write("rules.yaml", ALL % ("day", 5000, ""))
        wait_for(lambda: nginx.log().count("new rules, generation 2") == 3, "three workers have them")
        assert nginx.ask().headers["X-Ratelimit-Limit"] == "5000"
        nginx.write("rules.yaml", ALL % ("days", 7, ""))
        wait_for(lambda: nginx.log().count("the rules stay as they were") == 3, "three workers refuse them")
        assert "unit 'days' is not known" in nginx.log()
        assert nginx.ask().headers["X-Ratelimit-Limit"] == "5000"
        nginx.signal(signal.SIGHUP)  # nor are they by a reload
        wait_for(lambda: "weir cannot be opened" in nginx.log(), "the reload fails")
        assert nginx.ask().headers["X-Ratelimit-Limit"] == "5000"
        nginx.write("rules.yaml", ALL % ("day", 7, ""))
        wait_for(lambda: nginx.log().count("new rules, generation 3") == 3, "good ones again")
        assert nginx.ask().headers["X-Ratelimit-Limit"] == "7"
        nginx.expects = "weir: |weir cannot be opened"


def test_a_request_names_the_rule_of_its_own_rules():
    """The last request's memory is the next one's, and in it the name that is often the same."""
    rule = ("domain: a\ndescriptors:\n  - {key: remote_address, id: %s, "
            "rate_limit: {unit: day, requests_per_unit: 1000, algorithm: token_bucket}}\n")
    with Nginx(rule % "number-0", location="add_header X-Rule $weir_rule;", workers=1) as nginx:
        for number in range(8):
            if number > 0:
                nginx.write("rules.yaml", rule % f"number-{number}")
                wait_for(lambda: f"new rules, generation {number + 1}" in nginx.log(), "new rules")
            assert [nginx.ask().headers["X-Rule"] for _ in range(6)] == [f"number-{number}"] * 6


# ---- under load ----

class Load:
    """Clients that ask all the time, each on connections of its own, and count what comes back."""

    def __init__(self, port, clients=4):
        self.port, self.passed, self.refused, self.broken = port, 0, 0, 0
        self.stopped = threading.Event()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run) for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def run(self):
        while not self.stopped.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
            try:
                connection.request("GET", "/", headers={"Connection": "close"})
                response = connection.getresponse()
                response.read()
                with self.lock:
                    self.passed += response.status == 200
                    self.refused += response.status == 429
            except (OSError, http.client.HTTPException):
                with self.lock:
                    self.broken += 1
            connection.close()

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()


def used(nginx, limit):
    return limit - int(nginx.ask("/probe/").headers["X-Ratelimit-Remaining"])


PROBE = "location /probe { alias {folder}/html/; weir_limit on; weir_hits 0; access_log off; }"
MANY = 100_000_000


def test_reloads_under_load_lose_no_count_and_no_request():
    reloads = max(10, int(100 * SCALE))
    with Nginx(ALL % ("day", MANY, ""), server=PROBE) as nginx:
        load = Load(nginx.port)
        for _ in range(reloads):
            nginx.reload()
        wait_for(lambda: load.passed > 100, "some traffic")
        load.stop()
        assert load.broken == 0 and load.refused == 0
        assert used(nginx, MANY) == load.passed
        assert nginx.starts() == 1 + reloads


def test_an_upgrade_under_load_keeps_the_counts():
    with Nginx(ALL % ("day", MANY, ""), server=PROBE, daemon=True) as nginx:
        load = Load(nginx.port)
        wait_for(lambda: load.passed > 50, "some traffic")
        old = nginx.master()
        nginx.signal(signal.SIGUSR2)
        wait_for(lambda: (nginx.folder / "pid.oldbin").exists() and (nginx.folder / "pid").exists(), "a new master")
        wait_for(lambda: nginx.master() != old and len(nginx.workers()) == 2, "its workers")
        os.kill(old, signal.SIGQUIT)
        wait_for(lambda: not (nginx.folder / "pid.oldbin").exists(), "the old one ends")
        before = load.passed
        wait_for(lambda: load.passed > before + 50, "the new one answers")
        load.stop()
        assert load.broken == 0 and load.refused == 0
        assert used(nginx, MANY) == load.passed


def test_killed_workers_lose_no_count_and_leak_no_slot():
    rules = """\
domain: api
descriptors:
  - {key: generic_key, value: all, rate_limit: {unit: day, requests_per_unit: %d}}
  - {key: generic_key, value: slots, rate_limit: {unit: second, requests_per_unit: 100, algorithm: concurrency}}
""" % MANY
    with Nginx(rules, server=PROBE, location="weir_headers ietf-11;") as nginx:
        load = Load(nginx.port)
        for _ in range(5):
            before = load.passed
            wait_for(lambda: load.passed > before + 50, "some traffic")
            nginx.kill_workers()
        wait_for(lambda: load.passed > before + 100, "it goes on")
        load.stop()
        assert load.refused == 0
        # What was counted and never answered: at most one for each connection that broke.
        total = MANY - int(probe(nginx, "all"))
        assert load.passed <= total <= load.passed + load.broken
        wait_for(lambda: probe(nginx, "slots") == "100", "all slots are free")


def probe(nginx, name):
    answer = nginx.ask()
    lists = ", ".join(value for key, value in answer.pairs if key == "RateLimit")
    left = dict(part.split(";")[:2] for part in lists.replace('"', "").split(", "))
    # This request itself is counted, and has a slot while it is answered.
    return str(int(left[f"api.generic_key_{name}"].removeprefix("r=")) + 1)


def test_one_process_without_a_master_works():
    with Nginx(ALL % ("day", 3, ""), main="master_process off;") as nginx:
        assert nginx.statuses(4) == [200, 200, 200, 429]
        nginx.write("rules.yaml", ALL % ("day", 5, ""))
        wait_for(lambda: "generation 2" in nginx.log(), "new rules")
        assert nginx.ask().headers["X-Ratelimit-Limit"] == "5"


def test_stopping_at_once_is_quiet():
    with Nginx(ALL % ("day", MANY, "")) as nginx:
        load = Load(nginx.port, clients=2)
        wait_for(lambda: load.passed > 20, "some traffic")
        nginx.signal(signal.SIGTERM)
        nginx.process.wait(PATIENCE_S)
        load.stop()
