"""What a /check costs, against a bare server (bench/bare_http.c) with the same headers: a gateway's
question with seven headers, once one at a time on each connection, and once pipelined.

SPDX-License-Identifier: Apache-2.0
"""
from bench import load

TITLE = "/check: share of a bare server's speed"
SPREAD = "95% interval"
SHARE = 0.85


def cases(rig):
    weir = rig.weir("http", load.HTTP_RULES)
    bare = rig.serve(lambda port: [rig.build / "bench/bare_http", port])
    for depth in 1, 16:
        def cost(server, depth=depth):
            return rig.cost(server, rig.quick(20000, 400), lambda one, n: load.http(rig, one, n, depth))
        yield rig.pairs(f"{depth} at once" if depth > 1 else "one at a time", (">=", SHARE) if depth == 1 else None,
                        lambda: cost(weir), lambda: cost(bare), is_share=True)
