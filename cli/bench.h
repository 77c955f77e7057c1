/* bench.h - what `weir bench` times, and on what ground.
 *
 * Four loops, each over the same walk through the keys, so that their times can be compared:
 *
 *     FLOOR   read, add one, write: a random 16-byte word of as many bytes as the slots have
 *     HASH    the hash of a 24-byte key, alone
 *     TABLE   hash, then weir_local_take()
 *     FULL    weir_check(): descriptors, rules, hash, table
 *
 * With `dependent` the next key follows from the last answer, so that no two cache misses overlap:
 * latency.  Without it the processor overlaps what it can: throughput.
 *
 * Threads: the only place in cli/ that has any: each runs a loop with a walk of its own.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_BENCH_H
#define WEIR_CLI_BENCH_H

#include "algo/limit.h"
#include "base/hash.h"
#include "table/table.h"

#include <stdbool.h>
#include <stdint.h>
#include <weir/weir.h>

#define BENCH_BATCH_MAX 256
#define BENCH_THREADS_MAX 64

enum bench_loop { BENCH_FLOOR, BENCH_HASH, BENCH_TABLE, BENCH_FULL, BENCH_LOOPS };

struct bench_plan {
    enum weir_algorithm algorithm;
    uint64_t keys, threads, batch, rules;
    uint64_t fixed; /* 0: measure time; else decide so often, always the same, and count nothing */
    bool is_dependent, is_full, is_uniform;
};

/* All that the loops work on; built by bench_ground_init(), shared by the threads. */
struct bench_ground {
    struct bench_plan plan;
    struct weir_table *table;
    struct weir_hash_key hash_key;
    struct weir_limit limit;
    uint64_t start_ns; /* virtual: the middle of a day, so that no window ends under us */
    uint64_t tick_ns;  /* how far each decision moves the time */
    uint64_t *floor;   /* two words for each slot */
    uint64_t floor_len;
    uint64_t slots, table_bytes;
    struct weir *engine; /* only with is_full */
    char folder[64];     /* of its rules and table; empty: none */
};

/* 0 or an error, with the reason in why[].  Fini accepts what init left behind. */
WEIR_MUST_CHECK int bench_ground_init(struct bench_ground *ground, const struct bench_plan *plan,
                                      char *why, size_t why_len);
void bench_ground_fini(struct bench_ground *ground);

struct bench_time {
    double ns_per_op; /* in one thread */
    double ops_per_s; /* in all of them */
};

/* Runs one loop in all threads for so long.  0, or WEIR_ERR_IO where threads cannot be had. */
WEIR_MUST_CHECK int bench_measure(struct bench_ground *ground, enum bench_loop loop,
                                  uint64_t duration_ns, struct bench_time *out);

/* Runs the last loop of the plan for plan.fixed decisions, in this thread, on a walk that is always
 * the same.  For a tool that counts instructions between the begin and the end of
 * bench_fixed_loop(), which is all that it calls after opening a session. */
WEIR_MUST_CHECK int bench_fixed(struct bench_ground *ground);

/* Decides once for every key, so that the table is as full as it is meant to be. */
WEIR_MUST_CHECK int bench_fill(struct bench_ground *ground);

#endif
