"""What a second thread costs: CPU time for each request with two, against one.  Servers and load share
all processors.

SPDX-License-Identifier: Apache-2.0
"""
from bench import load

TITLE = "Two threads: CPU time against one's"
SPREAD = "95% interval"
TIMES = 1.15
REQUESTS = {"grpc": 40000, "http": 20000, "resp": 100000}


def cases(rig):
    cpus = rig.all_cpus
    for title, listener, rules, run in load.TYPICAL:
        requests = rig.quick(REQUESTS[listener], 1600)

        def cost(server, requests=requests, run=run):
            return rig.cost(server, requests, lambda one, n: run(rig, one, n, connections=64, cpus=cpus))
        one, two = (rig.weir(listener, rules, threads=threads, cpus=cpus) for threads in (1, 2))
        yield rig.pairs(title, ("<=", TIMES), lambda two=two: cost(two), lambda one=one: cost(one), is_share=False)
