"""The load: what is asked of each protocol, and by which generator.

Each function loads a server with so many requests and returns requests a second.
SPDX-License-Identifier: Apache-2.0
"""
import re
import sys

GRPC_PATH = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
GRPC_RULES = """\
domain: bench
descriptors:
  - key: tenant
    descriptors:
      - key: path
        rate_limit: {unit: hour, requests_per_unit: 1000000000}
"""
HTTP_RULES = """\
domain: bench
descriptors:
  - key: remote_address
    rate_limit: {unit: hour, requests_per_unit: 1000000000}
"""
HTTP_HEADERS = ("X-Forwarded-For: 203.0.113.9", "X-Forwarded-Method: GET", "X-Forwarded-Proto: https",
                "X-Forwarded-Host: api.example.com", "X-Forwarded-Uri: /api/v1/items/4711?page=2")
THROTTLE = "CL.THROTTLE", "key:__rand_int__", "15", "30", "60"
INCR = "INCR", "key:__rand_int__"
KEYS = 100000            # of THROTTLE and INCR


def message():
    """A RateLimitRequest with one descriptor of two entries, as Envoy sends it."""
    def field(tag, data):
        return bytes([tag << 3 | 2, len(data)]) + data
    entries = b"".join(field(1, field(1, key) + field(2, value))
                       for key, value in ((b"tenant", b"customer-42"), (b"path", b"/api/v1/items")))
    data = field(1, b"bench") + field(2, entries)
    return b"\0" + len(data).to_bytes(4, "big") + data


def h2load(rig, server, requests, flags, url, good, cpus):
    said = rig.load(["h2load", "-n", requests, *flags, f"http://127.0.0.1:{server.port}{url}"], cpus)
    if int(re.search(rf"(\d+) {good}", said)[1]) != requests:
        sys.exit(f"bench: requests failed\n{said}")
    return float(re.search(r"([\d.]+) req/s", said)[1])


def grpc(rig, server, requests, streams, connections=4, cpus=None):
    body = rig.file("body", message())
    headers = "content-type: application/grpc", "te: trailers", "grpc-timeout: 5S"
    flags = ["-c", connections, "-m", streams, "-d", body, *(word for one in headers for word in ("-H", one))]
    return h2load(rig, server, requests, flags, GRPC_PATH, "succeeded", cpus)


def http(rig, server, requests, depth, connections=16, cpus=None):
    flags = ["--h1", "-c", connections, "-m", depth, *(word for one in HTTP_HEADERS for word in ("-H", one))]
    return h2load(rig, server, requests, flags, "/check", "2xx", cpus)


def resp(rig, server, requests, depth, command=THROTTLE, connections=16, cpus=None):
    said = rig.load(["redis-benchmark", "-p", server.port, "-n", requests, "-c", connections, "-P", depth, "-r", KEYS,
                     "--csv", *command], cpus)
    rate = re.search(rf'^"{re.escape(command[0])}.*?","([\d.]+)"', said, re.M)
    if not rate:
        sys.exit(f"bench: redis-benchmark\n{said}")
    return float(rate[1])


# What stands for each protocol where one kind of load is enough: title, listener, its rules, and the load.
TYPICAL = (
    ("gRPC, 10 streams", "grpc", GRPC_RULES, lambda rig, one, n, **more: grpc(rig, one, n, 10, **more)),
    ("/check, one at a time", "http", HTTP_RULES, lambda rig, one, n, **more: http(rig, one, n, 1, **more)),
    ("CL.THROTTLE, 16 deep", "resp", None, lambda rig, one, n, **more: resp(rig, one, n, 16, **more)),
)
