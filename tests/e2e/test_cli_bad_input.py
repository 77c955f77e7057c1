"""Lines that no trace should have: a clear refusal each, never a crash.

SPDX-License-Identifier: Apache-2.0
"""
import json

import pytest

from weir_cli import DONE, NO, T0, lines, request, rules_file, weir

GOOD = json.dumps(request())


def many_descriptors(count):
    return dict(t_ns=T0, domain="api", descriptors=[dict(entries=[["user", str(i)]]) for i in range(count)])


BAD = {
    "truncated": (GOOD[:-20], "not JSON"),
    "a word": ("hello", "not JSON"),
    "two objects": (GOOD + GOOD, "not JSON"),
    "a list": ("[]", "must be an object"),
    "no time": ('{"domain": "api", "descriptors": []}', "t_ns must be"),
    "negative time": (request(t_ns=-1), "t_ns must be"),
    "time with an exponent": (GOOD.replace(str(T0), "1e30"), "t_ns must be"),
    "time beyond 64 bits": (GOOD.replace(str(T0), str(2**64)), "too big integer"),
    "time as text": (GOOD.replace(str(T0), f'"{T0}"'), "t_ns must be"),
    "hits beyond 64 bits": (request(hits=2**64), "too big integer"),
    "half a hit": (request(hits=0.5), "hits must be"),
    "hits as text": (request(hits="1"), "hits must be"),
    "no domain": ('{"t_ns": 1, "descriptors": []}', "domain must be"),
    "an empty domain": (request(domain=""), "domain must not be empty"),
    "a long domain": (request(domain="d" * 257), "at most 256"),
    "no descriptors": (many_descriptors(0), "descriptor list must not be empty"),
    "65 descriptors": (many_descriptors(65), "at most 64"),
    "33 entries": (request(entries=[("k", "v")] * 33), "at most 32"),
    "no entries": (request(entries=[]), "entries must not be empty"),
    "an empty key": (request(entries=[("", "v")]), "the key is empty"),
    "a key of 4096 bytes": (request(entries=[("k" * 4096, "v")]), "at most 256"),
    "a value of 4097 bytes": (request(entries=[("user", "v" * 4097)]), "at most 4096"),
    "an entry of three": (request(entries=[("k", "v", "w")]), "an entry must be"),
    "a number as value": (request(entries=[("k", 7)]), "the value must be a string"),
    "a field twice": (GOOD[:-1] + ', "t_ns": 1}', "duplicate"),
    "deep nesting": ("[" * 100000, "not JSON"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_refused_with_its_place(tmp_path, name):
    bad, said = BAD[name]
    done = weir("replay", "--rules", rules_file(tmp_path), stdin=lines(GOOD, bad, GOOD))
    assert done.returncode == NO
    assert done.stderr.startswith("stdin:2: ") and said in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1 and len(done.stdout.splitlines()) == 1


def test_keep_going_decides_the_rest(tmp_path):
    trace = lines(GOOD, *[bad for bad, _ in BAD.values()], GOOD)
    done = weir("replay", "--keep-going", "--rules", rules_file(tmp_path), stdin=trace)
    assert done.returncode == NO
    assert len(done.stdout.splitlines()) == 2
    assert [line.split(" ")[0] for line in done.stderr.splitlines()] == [f"stdin:{n}:" for n in range(2, len(BAD) + 2)]


def test_binary_garbage_is_refused(tmp_path):
    for garbage in (bytes(range(256)), b"\0" * 100, b"\xff" * 4096, b'{"t_ns": \xc3\x28}'):
        done = weir("replay", "--rules", rules_file(tmp_path), stdin=garbage)
        assert done.returncode == NO and done.stderr.startswith("stdin:1: ")


def test_what_is_at_a_maximum_is_decided(tmp_path):
    rules = rules_file(tmp_path)
    for line in (many_descriptors(64), request(entries=[("k", "v")] * 32), request(entries=[("user", "v" * 4096)]),
                 request(entries=[("k" * 256, "v")]), request(entries=[("user", "")]), request(domain="d" * 256),
                 request(t_ns=0), request(t_ns=2**63 - 1), request(hits=2**63 - 1), request(hits=-2**63)):
        done = weir("replay", "--rules", rules, stdin=lines(line))
        assert done.returncode == DONE, done.stderr
        assert json.loads(done.stdout)["overall"] in ("OK", "OVER_LIMIT")


def test_times_in_any_order_are_decided(tmp_path):
    times = [2**63 - 1, 0, T0, 1, 2**62, T0 + 1, 0, 2**63 - 1]
    for algorithm in ("fixed_window", "token_bucket", "leaky_bucket", "sliding_window_log", "sliding_window_counter"):
        rules = rules_file(tmp_path, f"""\
domain: api
descriptors:
  - key: user
    rate_limit: {{unit: minute, requests_per_unit: 3, algorithm: {algorithm}}}
""")
        done = weir("replay", "--rules", rules, stdin=lines(*[request(t_ns=t) for t in times]))
        assert done.returncode == DONE, done.stderr
        assert len(done.stdout.splitlines()) == len(times)


def test_a_huge_line_is_refused_in_bounded_memory(tmp_path):
    trace = tmp_path / "trace"
    with open(trace, "w") as file:
        file.write(GOOD + "\n")
        for _ in range(64):
            file.write("x" * (1 << 20))
        file.write("\n" + GOOD + "\n")
    done = weir("replay", "--keep-going", "--rules", rules_file(tmp_path), trace)
    assert done.returncode == NO
    assert done.stderr == f"{trace}:2: the line is too long; at most 16777216 bytes are allowed\n"
    assert len(done.stdout.splitlines()) == 2
