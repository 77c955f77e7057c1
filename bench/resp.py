"""What a CL.THROTTLE costs, against Redis's INCR: random keys, one command at a time on each
connection, and 16 in a pipeline.

SPDX-License-Identifier: Apache-2.0
"""
from bench import load

TITLE = "CL.THROTTLE: CPU time against INCR's"
SPREAD = "95% interval"
TIMES = 0.6


def cases(rig):
    weir = rig.weir("resp")
    redis = rig.serve(lambda port: ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly",
                                    "no", "--dir", rig.folder, "--loglevel", "warning"])
    for depth in 1, 16:
        requests = rig.quick(20000 if depth == 1 else 100000, 1600)

        def cost(server, command, depth=depth, requests=requests):
            return rig.cost(server, requests, lambda one, n: load.resp(rig, one, n, depth, command))
        yield rig.pairs(f"{depth} deep", ("<=", TIMES) if depth == 16 else None, lambda: cost(weir, load.THROTTLE),
                        lambda: cost(redis, load.INCR), is_share=False)
