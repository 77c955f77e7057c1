/* redis_request.h - a request as a call to Redis, and the answer as a decision.
 *
 *     plan      the request's rules, and of each the counters to ask for       no I/O
 *     (the caller sends weir_redis_put_call(), and reads weir_redis_answer_read())
 *     settle    verdicts to where they belong; what must be asked again stays
 *     decide    statuses and the overall code
 *
 * What Redis is never asked for (`scope: host`, `counting: approximate`) is decided by the table,
 * while the request is planned.  In an atomic request it is only looked at then; a counter that
 * stands in for it tells the script what came of that, and it is taken once Redis has said yes.
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

/* Large: not for the stack. */
struct weir_redis_request {
    struct weir_session *session;
    struct weir_plan *plan;
    uint64_t now_ns;       /* of the table */
    struct weir_buf names; /* of the counters */
    uint32_t count;        /* of counters to ask for; 0: none, decide() */
    struct weir_redis_counter counters[WEIR_REDIS_COUNTERS_MAX];
    struct weir_charge *charges[WEIR_REDIS_COUNTERS_MAX]; /* each counter's; NULL: it stands in */
    struct weir_name name;
    struct weir_match match;
    bool is_local[WEIR_DESCRIPTORS_MAX];  /* decided by the table already */
    bool is_looked[WEIR_DESCRIPTORS_MAX]; /* by the table, but only looked at so far */
    struct weir_status *statuses;         /* the caller's: one for each descriptor */
};

void weir_redis_request_init(struct weir_redis_request *r, struct weir_session *session);
void weir_redis_request_fini(struct weir_redis_request *r);

/* Plans.  now_ns is for what the table decides.  0, or the errors of weir_check(), or
 * WEIR_ERR_TOO_LARGE where the names take more than they may. */
WEIR_MUST_CHECK int weir_redis_request_plan(struct weir_redis_request *r,
                                            const struct weir_request *request,
                                            struct weir_str prefix, uint64_t now_ns,
                                            struct weir_status *statuses);

/* What to send. */
struct weir_redis_call weir_redis_request_call(const struct weir_redis_request *r);

/* The counters have been answered: true where all is decided.  Otherwise those that remain are to
 * be asked for again: the rate of their limit has changed. */
bool weir_redis_request_settle(struct weir_redis_request *r);

void weir_redis_request_decide(struct weir_redis_request *r, struct weir_decision *out);

#endif
