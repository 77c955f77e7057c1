"""How the tests of the command line run it.

SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import subprocess

from service import ROOT, WEIR  # noqa: F401  (offered with the rest)

DONE, NO, USAGE, WORLD = 0, 1, 2, 3

RULES = """\
domain: api
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 3}
  - key: path
    value: /pay
    descriptors:
      - key: user
        id: pay
        rate_limit: {algorithm: token_bucket, unit: second, requests_per_unit: 2, burst: 5}
"""

T0 = 1700000040000000000


def weir(*args, stdin=None, env=None, timeout=60):
    """Runs weir; stdin and output are text, with whatever bytes there are kept."""
    if isinstance(stdin, str):
        stdin = stdin.encode()
    done = subprocess.run([WEIR, *map(str, args)], input=stdin if stdin is not None else b"",
                          capture_output=True, timeout=timeout, env=dict(os.environ, **(env or {})))
    done.stdout = done.stdout.decode(errors="surrogateescape")
    done.stderr = done.stderr.decode(errors="surrogateescape")
    assert done.returncode >= 0, f"killed by signal {-done.returncode}: {done.stderr}"
    assert "Sanitizer" not in done.stderr, done.stderr
    return done


def rules_file(tmp_path, text=RULES, name="rules.yaml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def request(t_ns=T0, domain="api", entries=(("user", "alice"),), **more):
    """One line of a trace, with one descriptor."""
    return dict(t_ns=t_ns, domain=domain, descriptors=[dict(entries=[list(e) for e in entries])], **more)


def lines(*requests):
    return "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in requests)


def replay(rules, *requests, flags=()):
    """The decisions on these requests."""
    done = weir("replay", "--rules", rules, *flags, stdin=lines(*requests))
    assert done.returncode == DONE, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
