"""What a gRPC decision costs, against bare servers (bench/bare_h2.c): one that reads the path and packs
the same message, and one that answers a constant.  One thread each.

SPDX-License-Identifier: Apache-2.0
"""
from bench import load

TITLE = "gRPC: share of a bare server's speed"
SPREAD = "95% interval"
KINDS = {"packing": ("packs", 0.85), "constant": ("answers a constant", 0.70)}


def cases(rig):
    weir = rig.weir("grpc", load.GRPC_RULES)
    for kind, (words, share) in KINDS.items():
        bare = rig.serve(lambda port, kind=kind: [rig.build / "bench/bare_h2", port, kind])
        for streams in 1, 10, 100:
            requests = rig.quick(10000 if streams == 1 else 40000, 400)

            def cost(server, streams=streams, requests=requests):
                return rig.cost(server, requests, lambda one, n: load.grpc(rig, one, n, streams))
            title = f"{streams} stream{'s' * (streams > 1)}, of one that {words}"
            yield rig.pairs(title, (">=", share), lambda: cost(weir), lambda bare=bare: cost(bare), is_share=True)
