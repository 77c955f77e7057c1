"""How tests run `weir serve --store`: rules of every kind, and how such a service is started and asked.  A Redis is a
fixture: store, or own_store.

SPDX-License-Identifier: Apache-2.0
"""
import json
import urllib.request

import http_rig
from service import Service

ALL = ("grpc", "http", "resp", "admin")
STRICT = ("--store-leases=off",)            # each answer is the store's, to the unit
PATIENT = STRICT + ("--store-deadline", "10s")       # where a busy machine must not be taken for a store that is away

RULES = """\
domain: d
descriptors:
  - {key: fixed, rate_limit: {unit: day, requests_per_unit: 20}}
  - {key: quiet, rate_limit: {unit: day, requests_per_unit: 20, count_rejected: false}}
  - {key: slide, rate_limit: {unit: year, requests_per_unit: 20, algorithm: sliding_window_counter}}
  - {key: sub, rate_limit: {unit: year, requests_per_unit: 20, algorithm: sliding_window_counter, buckets: 6}}
  - {key: log, rate_limit: {unit: year, requests_per_unit: 20, algorithm: sliding_window_log}}
  - {key: bucket, rate_limit: {unit: year, requests_per_unit: 20, algorithm: token_bucket}}
  - {key: tick, rate_limit: {unit: year, requests_per_unit: 20, algorithm: token_bucket, refill: interval}}
  - {key: leaky, rate_limit: {unit: year, requests_per_unit: 20, burst: 19, algorithm: leaky_bucket}}
  - {key: slots, rate_limit: {unit: year, requests_per_unit: 20, algorithm: concurrency}}
  - {key: host, rate_limit: {unit: day, requests_per_unit: 20, scope: host}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: quota, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: never, rate_limit: {unit: day, requests_per_unit: 0}}
  - key: two
    rate_limit:
      - {name: a, unit: day, requests_per_unit: 8}
      - {name: b, unit: year, requests_per_unit: 12, algorithm: token_bucket}
  - {key: net, ipv4_prefix: 24, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: open, rate_limit: {unit: day, requests_per_unit: 5, on_store_error: open}}
  - {key: closed, rate_limit: {unit: day, requests_per_unit: 5, on_store_error: closed}}
"""
KINDS = ["fixed", "quiet", "slide", "sub", "log", "bucket", "tick", "leaky", "slots"]


def serve(tmp_path, url, *flags, rules=RULES, name="node", listeners=ALL, **more):
    """Without leases: what is left is then told to the unit.  Leases have tests of their own."""
    folder = tmp_path / name
    folder.mkdir()
    return Service(folder, rules, flags=("--store", url, "--store-leases=off", *flags), listeners=listeners, **more)


def told(weir):
    """GET /api/v1/store"""
    with urllib.request.urlopen(f"http://{weir.address('admin')}/api/v1/store", timeout=10) as answer:
        return json.load(answer)


def body(*entries, hits=None):
    described = {"entries": [{"key": key, "value": value} for key, value in entries]}
    if hits is not None:
        described["hitsAddend"] = str(hits)
    return json.dumps({"domain": "d", "descriptors": [described]})


def ask_json(weir, key, value, **more):
    answer = http_rig.ask(weir.port("http"), "/json", method="POST", body=body((key, value), **more))
    return answer.status
