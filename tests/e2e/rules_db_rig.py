"""The rules database as tests use it: rules of a domain, and `weir rules` on a store.

SPDX-License-Identifier: Apache-2.0
"""
import json

from weir_cli import DONE, weir

HEAD = "weir:{rules}"


def rules_of(domain="api", limit=3):
    return (f"domain: {domain}\ndescriptors:\n  - key: user\n"
            f"    rate_limit: {{unit: hour, requests_per_unit: {limit}}}\n")


class Database:
    def __init__(self, folder, url, *flags):
        self.folder, self.url, self.flags = folder, url, flags

    def run(self, *args, **more):
        return weir("rules", *args, "--store", self.url, *self.flags, **more)

    def put(self, text, *flags, **more):
        return self.run("put", "-", *flags, stdin=text, **more)

    def must(self, *args, **more):
        """What it prints as JSON."""
        done = self.run(*args, "--json", **more)
        assert done.returncode == DONE, done.stderr
        return json.loads(done.stdout)

    def version(self, domain="api"):
        """The domain's version; 0 where it is not there."""
        return {one["domain"]: one["version"] for one in self.must("list")["domains"]}.get(domain, 0)
