"""Random rules and random requests over /json, against our own reading (reading.py) of what envoyproxy/ratelimit
answers.

Days and longer, so that no window ends under a test (or if one does, all of its counts are new here and there).  Seeds
are printed; WEIR_SEED runs one again.
SPDX-License-Identifier: Apache-2.0
"""
import http.client
import json
import os
import random
import time

import pytest
from reading import Reading
from service import Service

KEYS = ["a", "b", "a_b", "c", "k_", "w"]
VALUES = ["", "x", "y", "b_x", "foo1", "foo2", "foobar", "o", "_", "b", "b_", "*", "a*"]
PATTERNS = ["foo*", "*", "*o*", "f*1", "*bar", "b*x", "**", "foo*foo*"]
NAMES = ["n1", "n2", "n3"]
UNITS = ["day", "week", "month", "year"]
TRIALS = max(2, int(10 * float(os.environ.get("WEIR_TEST_SCALE", "1"))))


def random_limit(rng):
    limit = {"unlimited": True} if rng.random() < .1 else {
        "unit": rng.choice(UNITS), "requests_per_unit": rng.choice([0, 1, 2, 3, 5, 10, 20])}
    if rng.random() < .4:
        limit["name"] = rng.choice(NAMES)
    if rng.random() < .2:
        others = [name for name in NAMES if name != limit.get("name")]
        limit["replaces"] = [{"name": name} for name in rng.sample(others, rng.choice([1, 2]))]
    return limit


def random_rules(rng, depth=0):
    rules = {}
    for _ in range(rng.choice([1, 2, 3, 5])):
        rule = {"key": rng.choice(KEYS), "value": rng.choice([*VALUES[1:], *PATTERNS, *[""] * 8])}
        text = rule["key"] + "_" * bool(rule["value"]) + rule["value"]
        flags = ["shadow_mode", "quota_mode", *["share_threshold"] * ("*" in text)]
        rule.update({flag: True for flag in flags if rng.random() < .2})
        if rng.random() < .75:
            rule["rate_limit"] = random_limit(rng)
        if depth < 3 and rng.random() < .4:
            rule["descriptors"] = random_rules(rng, depth + 1)
        rules.setdefault(text, rule)
    return list(rules.values())


def random_descriptor(rng):
    one = {"entries": [(rng.choice(KEYS), rng.choice(VALUES)) for _ in range(rng.choice([1, 1, 1, 2, 2, 3]))]}
    if rng.random() < .1:
        one["limit"] = rng.choice([0, 1, 3, 10]), rng.choice(UNITS)
    if rng.random() < .25:
        one["hits"] = rng.choice([0, 1, 2, 5, 30])
        one["negative"] = rng.random() < .3
    return one


def as_json(one):
    out = {"entries": [{"key": key, "value": value} for key, value in one["entries"]]}
    if "limit" in one:
        number, unit = one["limit"]
        out["limit"] = {"requestsPerUnit": number, "unit": 7 if unit == "week" else unit.upper()}
    if "hits" in one:
        out.update(hitsAddend=one["hits"], isNegativeHits=one["negative"])
    return out


def as_read(status, wanted):
    """A status of /json as reading.py has it.  Time went on between the two: a few seconds are none."""
    out = {"code": status["code"]}
    if "currentLimit" in status or "limitRemaining" in status:
        out["limitRemaining"] = status.get("limitRemaining", 0)
    if "currentLimit" in status:
        limit = status["currentLimit"]
        out["limit"] = limit.get("name", ""), limit.get("requestsPerUnit", 0), limit["unit"]
        reset = int(status["durationUntilReset"].rstrip("s"))
        out["reset"] = wanted["reset"] if abs(reset - wanted.get("reset", -100)) < 30 else reset
    return out


@pytest.mark.parametrize("trial", range(TRIALS))
def test_random_requests_are_answered_as_read(tmp_path, trial):
    seed = int(os.environ.get("WEIR_SEED") or random.SystemRandom().randrange(2**32))
    print("WEIR_SEED", seed)
    rng = random.Random(seed)
    modes = {mode: rng.random() < .2 for mode in ("shadow_mode", "quota_mode")}
    domains = {name: random_rules(rng) for name in ("d", "e")}
    for name, rules in domains.items():
        (tmp_path / f"{name}.yaml").write_text(json.dumps({"domain": name, "descriptors": rules}))
    reading = Reading(domains, **modes)
    env = {mode.upper(): str(is_on).lower() for mode, is_on in modes.items()}
    with Service(tmp_path, None, ["--rules", tmp_path], env, listeners=("http",)) as weir:
        connection = http.client.HTTPConnection("127.0.0.1", weir.port("http"), timeout=30)
        for number in range(300):
            domain, addend = rng.choice(["d", "d", "e", "nobody's"]), rng.choice([0, 0, 1, 2, 7])
            asked = [random_descriptor(rng) for _ in range(rng.choice([1, 1, 2, 3, 4]))]
            overall, wanted = reading.ask(domain, asked, addend, int(time.time()))
            connection.request("POST", "/json", json.dumps(
                {"domain": domain, "hitsAddend": addend, "descriptors": [as_json(one) for one in asked]}))
            response = connection.getresponse()
            answer = json.loads(response.read())
            got = [as_read(*pair) for pair in zip(answer["statuses"], wanted)]
            assert (answer["overallCode"], got) == (overall, wanted), (seed, number, domain, asked, addend)
            assert response.status == (200 if overall == "OK" else 429)
        connection.close()
