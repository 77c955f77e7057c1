/* redis_request.h - a request as calls to Redis, and the answers as a decision.
 *
 *     plan      the request's rules, and of each the counters to ask for       no I/O
 *     (the caller sends weir_redis_put_call(), and reads weir_redis_answer_read())
 *     settle    verdicts to where they belong; what must be asked again stays
 *     decide    statuses and the overall code
 *
 * What Redis is never asked for (`scope: host`, `counting: approximate`) is decided by the table,
 * while the request is planned; so is what it is told of later (`consistency: eventual`).  In an
 * atomic request it is only looked at then; a counter that stands in for it tells the script what
 * came of that, and it is taken once Redis has said yes.
 *
 * A plan lies in its planner and session, and is gone with their next one.  Who waits for Redis
 * moves what is left of it - items, charges, counters, names - into memory of its own: some hundred
 * bytes for a descriptor.
 *
 * The rest is the engine's: it plans, and combines, as for the table.
 *
 * Threads: the session's own.  Time: an argument.  Allocation: names grow to what requests need.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_REDIS_REQUEST_H
#define WEIR_SERVE_REDIS_REQUEST_H

#include "engine/engine.h"
#include "engine/identity.h"
#include "store/redis/command.h"

/* Every charge of a request, and for every descriptor one that stands in. */
#define WEIR_REDIS_COUNTERS_MAX (WEIR_CHARGES_MAX + WEIR_DESCRIPTORS_MAX)

/* Who decides a descriptor. */
enum weir_redis_decider {
    WEIR_BY_STORE,
    WEIR_BY_TABLE,        /* it has already */
    WEIR_BY_TABLE_LOOKED, /* it has only looked so far */
    WEIR_BY_NOBODY,       /* the store was asked, and has failed */
    /* And then, for who must set things right: */
    WEIR_WITHOUT_STORE_PASSED,
    WEIR_WITHOUT_STORE_REFUSED,
};

/* What a counter was made for. */
struct weir_redis_owner {
    uint16_t charge; /* WEIR_REDIS_STAND_IN: none */
    uint16_t item;
    bool is_compat; /* named and counted as envoyproxy/ratelimit does */
};
#define WEIR_REDIS_STAND_IN UINT16_MAX

struct weir_redis_request {
    struct weir_item *items;
    struct weir_charge *charges; /* of all items */
    struct weir_redis_counter *counters;
    struct weir_redis_owner *owners; /* of each counter */
    uint8_t *deciders;               /* of each item; enum weir_redis_decider */
    struct weir_str names;           /* of the counters, one behind the other */
    uint32_t item_count, charge_count;
    uint32_t count; /* of counters to ask for; 0: none, decide() */
    bool is_atomic;
    bool is_moved;       /* to memory of its own */
    uint32_t top_weight; /* so many decisions it stands for among the busy keys; 0: none */
    const struct weir_published *published;
};

struct weir_eventual;

/* Who may know the answer without asking (serve/ask_lease.h).  Only charges that may be leased come
 * here: of a rule with one limit, in a request that is not atomic. */
struct weir_redis_leaser {
    /* Decides, if it can: the charge's verdict is there then.  *is_low: refill() should follow. */
    bool (*decide)(struct weir_redis_leaser *leaser, struct weir_charge *charge, bool *is_low);
    /* Asks for more, while nobody waits. */
    void (*refill)(struct weir_redis_leaser *leaser, const struct weir_charge *charge,
                   struct weir_str name);
    /* Redis must be asked: what is wished for beside the hits. */
    void (*wish)(struct weir_redis_leaser *leaser, const struct weir_charge *charge,
                 struct weir_redis_counter *counter);
};

/* Memory to plan in.  Large: not for the stack. */
struct weir_redis_planner {
    struct weir_session *session;
    struct weir_eventual *eventual;   /* decides what is eventual; NULL: nothing is */
    struct weir_redis_leaser *leaser; /* NULL: Redis decides each time */
    bool is_compat;                   /* envoyproxy/ratelimit's keys, where it has any */
    struct weir_buf names;
    struct weir_redis_counter counters[WEIR_REDIS_COUNTERS_MAX];
    struct weir_redis_owner owners[WEIR_REDIS_COUNTERS_MAX];
    uint8_t deciders[WEIR_DESCRIPTORS_MAX];
    struct weir_name name;
    struct weir_match match;
};

void weir_redis_planner_init(struct weir_redis_planner *planner, struct weir_session *session);
void weir_redis_planner_fini(struct weir_redis_planner *planner);

/* Plans, by the rules that the session holds (weir_publish_hold()).  now_ns, of the table's clock,
 * and statuses, one for each descriptor, are for what the table decides.  0, or the errors of
 * weir_check(), or WEIR_ERR_TOO_LARGE where the names take more than they may. */
WEIR_MUST_CHECK int weir_redis_request_plan(struct weir_redis_request *out,
                                            struct weir_redis_planner *planner,
                                            const struct weir_request *request,
                                            struct weir_str prefix, uint64_t now_ns,
                                            struct weir_status *statuses);

/* Only finds the counters, whatever an operator made of them for a while: those in the store have
 * names then, and nothing was decided or looked at.  The request must have no hits. */
WEIR_MUST_CHECK int weir_redis_request_name(struct weir_redis_request *out,
                                            struct weir_redis_planner *planner,
                                            const struct weir_request *request,
                                            struct weir_str prefix, uint64_t now_ns);

/* Who decides elsewhere, by the same table, finds that its tokens run low: asks for more of them.
 * Takes nothing.  0, or as plan(). */
WEIR_MUST_CHECK int weir_redis_request_refill(struct weir_redis_planner *planner,
                                              const struct weir_request *request,
                                              struct weir_str prefix, uint64_t now_ns);

/* How many bytes a planned request needs to be on its own. */
size_t weir_redis_request_bytes(const struct weir_redis_request *r);
/* Moves it there; memory is aligned for anything. */
void weir_redis_request_move(struct weir_redis_request *r, const struct weir_session *session,
                             void *memory);

/* Counters from .. from + count have been answered.  Returns how many are to be asked for again,
 * because the rate of their limit has changed: they are the first of these then. */
uint32_t weir_redis_request_settle(struct weir_redis_request *r, uint32_t from, uint32_t count);

/* Makes statuses of the verdicts.  Those of items that nobody has decided are there already. */
void weir_redis_request_decide(struct weir_redis_request *r, struct weir_session *session,
                               uint64_t now_ns, struct weir_decision *out);

#endif
