/* ask_internal.h - pending decisions as their own files see them: ask.c, ask_policy.c, ask_life.c.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_ASK_INTERNAL_H
#define WEIR_SERVE_ASK_INTERNAL_H

#include "algo/limit.h"
#include "serve/ask.h"
#include "serve/redis_request.h"
#include "serve/settings.h"
#include "store/redis/url.h"

/* Of a service. */
struct weir_ask_shared {
    const struct weir_settings *settings;
    enum weir_redis_topology topology;
    enum weir_on_store_error on_error; /* of rules that do not say */
    struct weir_tls *tls;              /* NULL: plain */
    _Atomic uint32_t nodes;
};

/* A version of the rules that requests which wait were planned by. */
struct weir_ask_version {
    struct weir_published *published;
    uint32_t users;
    struct weir_ask_version *next;
};

/* One call of a request: the counters that lie in one place. */
struct weir_ask_part {
    struct weir_redis_ask call;
    struct weir_ask *ask;
    uint32_t from, count;
    uint32_t tries;
};

struct weir_ask {
    struct weir_asks *asks;
    struct weir_waiter *waiter; /* NULL: nobody waits any more */
    struct weir_ask_version *version;
    struct weir_redis_request request;
    struct weir_ask_part *parts;
    uint32_t part_count, parts_left;
    size_t large_bytes; /* of memory beside the block; 0: none */
    void *large;
};

#define WEIR_ASK_BLOCK 2048 /* bytes: a request of two descriptors or so */

/* A block that is free. */
struct weir_ask_block {
    struct weir_ask_block *next;
};

struct weir_asks {
    struct weir_worker *worker;
    struct weir_ask_shared *shared;
    struct weir_redis_link *link;
    struct weir_str prefix;
    uint8_t *blocks; /* handed out from the front: what is never needed is never touched */
    struct weir_ask_block *free;
    uint32_t used, max; /* of blocks */
    struct weir_ask_version *versions;
    _Atomic uint64_t counts[WEIR_ASK_COUNTS];
    struct weir_redis_planner planner;
    struct weir_status statuses[WEIR_DESCRIPTORS_MAX]; /* of who is told now */
    struct weir_limit limits[WEIR_CHARGES_MAX];        /* shares of who is decided now */
};

static inline void weir_ask_add(struct weir_asks *asks, enum weir_ask_count count, uint64_t n)
{
    /* relaxed, and no read-modify-write: one writer; readers want a number that was true once */
    uint64_t before = atomic_load_explicit(&asks->counts[count], memory_order_relaxed);
    atomic_store_explicit(&asks->counts[count], before + n, memory_order_relaxed);
}

/* NULL: all are in use. */
void *weir_ask_block_take(struct weir_asks *asks);
void weir_ask_block_give(struct weir_asks *asks, void *block);

/* ask_policy.c: decides what the store was asked for in vain, by each rule's on_store_error. */
void weir_ask_fall_back(struct weir_asks *asks, struct weir_redis_request *r, uint64_t now_ns,
                        struct weir_status *statuses);

#endif
