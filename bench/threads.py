"""What a second thread costs: CPU time for each request with two, against one.  Servers and load share
all processors.

SPDX-License-Identifier: Apache-2.0
"""
from bench import load

TITLE = "Two threads: CPU time against one's"
SPREAD = "95% interval"
TIMES = 1.15


def cases(rig):
    cpus = rig.all_cpus
    for title, listener, rules, requests, run in (
            ("gRPC, 10 streams", "grpc", load.GRPC_RULES, 40000,
             lambda one, n: load.grpc(rig, one, n, 10, connections=8, cpus=cpus)),
            ("/check, one at a time", "http", load.HTTP_RULES, 20000,
             lambda one, n: load.http(rig, one, n, 1, cpus=cpus)),
            ("CL.THROTTLE, 16 deep", "resp", None, 100000, lambda one, n: load.resp(rig, one, n, 16, cpus=cpus))):
        one, two = (rig.weir(listener, rules, threads=threads, cpus=cpus) for threads in (1, 2))

        def cost(server, requests=requests, run=run):
            return rig.cost(server, rig.quick(requests, 1600), run)
        yield rig.pairs(title, ("<=", TIMES), lambda two=two: cost(two), lambda one=one: cost(one), is_share=False)
