/* ask_internal.h - pending decisions as their own files see them.
 *
 *     ask.c           from a request to its calls, and from the answers to a decision
 *     ask_throttle.c  the same for CL.THROTTLE
 *     ask_forget.c    counters that begin anew
 *     ask_lease.c     what is decided without asking
 *     ask_lease_held.c, ask_lease_wait.c  leases that nobody uses; that replicas must hear of first
 *     ask_compat.c    the same for counters that envoyproxy/ratelimit shares
 *     ask_elsewhere.c what other processes decide by themselves
 *     ask_ticket.c    what they give back
 *     ask_policy.c    who decides in the store's stead
 *     ask_late.c      what is set right when an answer comes too late
 *     ask_debts.c     what is charged when the store is back
 *     ask_nodes.c     how many machines there are
 *     ask_life.c      start and end
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
    struct weir_lease_board *board;    /* what its workers know of leased keys */
    struct weir_redis_complaints complaints;
    _Atomic uint32_t nodes;
};

/* A version of the rules that requests which wait were planned by. */
struct weir_ask_version {
    struct weir_published *published;
    uint32_t users;
    struct weir_ask_version *next;
};

/* A call that gives hits back; first: done() gets the call. */
struct weir_ask_return {
    struct weir_redis_ask call;
    struct weir_asks *asks;
    struct weir_ask_return *next;                 /* of those that wait for the store */
    void (*finish)(struct weir_ask_return *done); /* it was carried out, or never will be */
    uint32_t waits;                               /* how often it has */
};

/* One call of a request: the counters that lie in one place. */
struct weir_ask_part {
    struct weir_ask_return sent; /* first, too: it asks, and may give back afterwards */
    struct weir_ask *ask;
    uint32_t from, count; /* of its counters, those that are asked for now */
    uint32_t size;        /* all of them */
    uint32_t tries;
    int err;             /* why it has failed; 0: it has not */
    uint64_t decided_ns; /* by the store's clock; of envoyproxy/ratelimit's keys by ours */
    uint64_t sent_ns;    /* of the boot: just before it was */
    bool is_compat;      /* its only counter has such a key */
};

/* A call of a part beside the one that decides: when a key of envoyproxy/ratelimit's ends. */
struct weir_ask_expire {
    struct weir_redis_ask call;
    struct weir_ask_part *part;
};

struct weir_ask_leases; /* serve/ask_lease.h */
struct weir_ask_waits;  /* serve/ask_lease_wait.h */
struct weir_ask_flight;

struct weir_ask {
    struct weir_asks *asks;
    struct weir_waiter *waiter; /* NULL: nobody waits any more */
    struct weir_ask_version *version;
    struct weir_redis_request request;
    struct weir_ask_part *parts;
    struct weir_ask_expire *expires; /* as many; NULL: there are none */
    uint32_t part_count, parts_left, parts_late;
    uint64_t decided_ns; /* without the store, by the table's clock */
    bool has_failed;
    bool is_split;   /* atomic, but not decided in one place: what is refused must be given back */
    bool is_kept;    /* by who was told, for its places */
    bool is_forfeit; /* nobody uses them */
    bool is_look;    /* only the store's own answer is wanted */
    struct weir_forget_waiter *forgets; /* or this one waits; see ask_forget.c */
    uint32_t cleared;                   /* for it */
    struct weir_ask_flight *flight;     /* others may wait for its call; NULL: they do not */
    struct weir_ask *behind;            /* the next of those that wait, where it is one */
    uint64_t since_ns;  /* it waits, which its deadline is counted from; 0: since it is asked for */
    size_t large_bytes; /* of memory beside the block; 0: none */
    struct weir_ask_large *large;
};

#define WEIR_ASK_BLOCK 2048 /* bytes: a request of two descriptors or so */

/* Memory of a request that its block does not hold: all of it, so that it can be freed. */
struct weir_ask_large {
    _Alignas(16) struct weir_ask_large *before;
    struct weir_ask_large *after;
};

/* A block that is free. */
struct weir_ask_block {
    struct weir_ask_block *next;
};

/* Who else asks the store; of one worker of a process. */
struct weir_ask_nodes {
    struct weir_redis_ask call; /* first: done() gets this */
    struct weir_asks *asks;
    bool is_asked;
    uint32_t wait;  /* ticks to the next time */
    uint32_t falls; /* how often fewer were counted than before, just now */
    struct weir_buf key;
    char name[24];
};

struct weir_ask_debts; /* ask_debts.c */

struct weir_asks {
    struct weir_worker *worker;
    struct weir_ask_shared *shared;
    struct weir_redis_link *link;
    struct weir_str prefix;
    uint8_t *blocks; /* handed out from the front: what is never needed is never touched */
    struct weir_ask_block *free;
    uint32_t used, max; /* of blocks */
    struct weir_ask_large *large;
    struct weir_ask_version *versions;
    struct weir_ask_return *returns; /* that found the store away */
    struct weir_ask *telling;        /* whose waiter is being told; NULL: none is */
    struct weir_ask_debts *debts;
    struct weir_ask_nodes nodes; /* of the first worker */
    _Atomic uint64_t counts[WEIR_ASK_COUNTS];
    struct weir_redis_planner planner;
    struct weir_ask_leases *leases;
    struct weir_ask_waits *waits;
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

/* ask.c: takes what was planned out of the session.  NULL: there is no room. */
struct weir_ask *weir_ask_take(struct weir_asks *asks, struct weir_redis_request *planned);
/* Where one server has all keys, so has one call; else each place has one. */
void weir_ask_make_parts(struct weir_ask *ask);
/* Sends its calls; decides by what they brought, and tells who waits. */
void weir_ask_launch(struct weir_ask *ask);
/* It will never be sent: decides without the store. */
void weir_ask_fail(struct weir_ask *ask);
void weir_ask_finish(struct weir_ask *ask);

/* ask_policy.c: decides what the store was asked for in vain, by each rule's on_store_error. */
void weir_ask_fall_back(struct weir_asks *asks, struct weir_redis_request *r, uint64_t now_ns,
                        struct weir_status *statuses);

/* Forgets what it has counted in a counter's stead. */
void weir_ask_forget_share(struct weir_asks *asks, uint64_t key);

/* ask_throttle.c: what the counter of a key is called; good until the next name is made. */
struct weir_str weir_ask_throttle_name(struct weir_asks *asks, struct weir_str key);

/* ask_compat.c: makes a part of a counter that is counted as envoyproxy/ratelimit does. */
void weir_ask_compat_part(struct weir_ask_part *part, uint64_t now_ns);
/* The reply to it: a verdict.  False: it is none. */
WEIR_MUST_CHECK bool weir_ask_compat_read(struct weir_ask_part *part,
                                          const struct weir_redis_answer *answer);
/* One of its calls is done: the part is, when both are. */
void weir_ask_part_done(struct weir_ask_part *part, int err);

/* ask_debts.c */
WEIR_MUST_CHECK int weir_ask_debts_new(struct weir_ask_debts **out);
void weir_ask_debts_free(struct weir_ask_debts *debts);
/* So many hits of a counter have passed without the store. */
void weir_ask_owe(struct weir_asks *asks, struct weir_str name, const struct weir_limit *limit,
                  uint64_t hits, uint64_t now_ns);
/* Charges what is owed, if the store is there.  Now and then. */
void weir_ask_pay(struct weir_asks *asks);

/* ask_nodes.c */
WEIR_MUST_CHECK int weir_ask_nodes_init(struct weir_ask_nodes *nodes, struct weir_asks *asks);
void weir_ask_nodes_fini(struct weir_ask_nodes *nodes);
void weir_ask_nodes_tick(struct weir_ask_nodes *nodes);

/* ---- calls of which more is heard after their deadline ---- */

enum weir_ask_tag {
    WEIR_TAG_PART = 1,
    WEIR_TAG_THROTTLE = 2,
    WEIR_TAG_DEBT = 3,
    WEIR_TAG_ERRAND = 4,
};

/* What the link is to say then: whose call it was. */
static inline uint64_t weir_ask_tag(const void *of, enum weir_ask_tag tag)
{
    return (uint64_t)(uintptr_t)of | tag;
}

/* The link's on_late(): ctx is the weir_asks. */
void weir_ask_late(void *ctx, uint64_t tag, int err, const struct weir_redis_answer *answer);

/* Makes of a counter's answer the question that gives its hits back: by their mark, and so only
 * what is still as they have left it.  (A gift to a bucket or a log may be more than they took:
 * it was refilled meanwhile, or a later entry goes in place of theirs.) */
void weir_ask_make_return(struct weir_redis_counter *counter);
/* Sends a call that gives back; where the store is away, again and again for a while. */
void weir_ask_return(struct weir_ask_return *sent, void (*finish)(struct weir_ask_return *done));
/* Sends those that wait.  Now and then. */
void weir_ask_return_more(struct weir_asks *asks);
/* Frees a request that nothing is heard of any more. */
void weir_ask_free(struct weir_ask *ask);
/* Once all is decided: what was not carried out is owed, what must not count is given back. */
void weir_ask_settle(struct weir_ask *ask);
/* Gives back the places that a request has taken: in queues, and slots.  Frees it then. */
void weir_ask_release(struct weir_ask *ask);
/* What passed without the store is owed to it. */
void weir_ask_part_owe(const struct weir_ask_part *part);

/* Each kind of them. */
void weir_ask_part_late(void *part, int err, const struct weir_redis_answer *answer);
void weir_ask_throttle_late(void *ask, int err, const struct weir_redis_answer *answer);
void weir_ask_debt_late(void *debt, int err);
void weir_ask_errand_late(void *errand, int err, const struct weir_redis_answer *answer);

#endif
