/* envoy.h - what gRPC and /json have in common: a decision, before it is told, is counted, and
 * dressed as envoyproxy/ratelimit would tell it.
 *
 * Threads: a worker's own.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_ENVOY_H
#define WEIR_SERVE_ENVOY_H

#include "serve/worker.h"

/* Of the decisions that are answered together. */
struct weir_envoy_sums {
    uint64_t decided, over, shadowed;
};

/* Adds a decision to sums, and gives limits of nothing a reset. */
void weir_envoy_decided(struct weir_envoy_sums *sums, struct weir_decision *decision,
                        bool has_shadow, uint64_t now_ns);
void weir_envoy_count(const struct weir_envoy_sums *sums, struct weir_worker *worker,
                      enum weir_front front);

#endif
