/* eventual_internal.h - eventual limits as their own files see them: eventual.c decides,
 * eventual_keeper.c tells and hears.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_EVENTUAL_INTERNAL_H
#define WEIR_SERVE_EVENTUAL_INTERNAL_H

#include "serve/eventual.h"
#include "store/gossip.h"
#include "store/redis/gossip.h"

/* One message. */
struct weir_eventual_call {
    struct weir_redis_ask ask; /* the first member */
    struct weir_eventual *eventual;
    struct weir_tally *tally;
    uint64_t own;  /* what this process had admitted */
    uint64_t says; /* what is said: that, or the sum of the site */
    bool is_far;
    struct weir_eventual_call *next; /* that is free */
};

/* A store: the near one, or the one of all sites. */
struct weir_eventual_side {
    struct weir_redis_link *link; /* NULL: there is none */
    uint64_t id;                  /* of this process; of this site */
};

struct weir_eventual {
    struct weir_worker *keeper;
    struct weir_ask_shared *shared;
    struct weir_gossip *gossip;
    enum weir_on_store_error on_error; /* of rules that do not say */
    uint64_t interval_ns;
    struct weir_post wake, flush;
    _Atomic uint64_t counts[WEIR_EVENTUAL_COUNTS];
    _Atomic uint64_t lag_ns, round_trip_ns;
    _Atomic uint64_t over[WEIR_STATS_RULES_MAX + 1];

    /* The keeper's. */
    struct weir_eventual_side near, far;
    struct weir_eventual_call *calls, *free;
    uint64_t now_ns;
    uint64_t swept_ns;
    uint64_t oldest_ns;  /* of what this turn found untold */
    uint32_t tries_left; /* while the store is away */
    struct weir_redis_gossip_answer heard;
};

static inline void weir_eventual_add(struct weir_eventual *e, enum weir_eventual_count count,
                                     uint64_t n)
{
    /* relaxed: a number to look at */
    atomic_fetch_add_explicit(&e->counts[count], n, memory_order_relaxed);
}

/* eventual_keeper.c */
WEIR_MUST_CHECK int weir_eventual_keep(struct weir_eventual *e, char *why, size_t why_len);
void weir_eventual_leave(struct weir_eventual *e);

#endif
