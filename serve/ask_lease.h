/* ask_lease.h - exact decisions without asking: a worker's part in leases.
 *
 *     request --> tokens in the table? --spent--> decided
 *                   |            \--low--> an errand asks for more, while nobody waits
 *                   none
 *                   v
 *                 a call for this counter under way? --yes--> waits for it, then tries again
 *                   |
 *                   no --> LEASE: its hits, and as many tokens as this counter has come to need
 *                            |
 *                   grant --> the table (store/lease.h), for every worker and process of the host
 *                   refusal -> the table
 *
 * Tokens that nobody has touched for 100 ms are collected and given back.  How many to ask for is
 * learnt (store/lease_pace.h).  Everything is bounded: counters beyond the room for paces, flights
 * or things held are asked for as cold ones are, or their tokens expire.
 *
 * Threads: the worker's.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_ASK_LEASE_H
#define WEIR_SERVE_ASK_LEASE_H

#include "serve/ask_internal.h"
#include "store/lease.h"

/* 0, or WEIR_ERR_NOMEM. */
WEIR_MUST_CHECK int weir_ask_leases_new(struct weir_ask_leases **out, struct weir_asks *asks);
void weir_ask_leases_free(struct weir_ask_leases *leases);
/* The service goes: what is in hand, or comes, goes back, and from now on each asks for itself. */
void weir_ask_leases_end(struct weir_ask_leases *leases);

/* Who plans asks this first. */
struct weir_redis_leaser *weir_ask_leases_leaser(struct weir_ask_leases *leases);

/* Redis has answered: what it granted, or refused, is for all to know. */
void weir_ask_part_leases(const struct weir_ask_part *part, const struct weir_redis_answer *answer);

/* ---- tokens ---- */

struct weir_ask_grant {
    uint64_t key;
    const struct weir_redis_counter *counter; /* as it was answered */
    uint64_t sent_ns;                         /* of the boot */
    uint64_t wait;                            /* as in the answer */
    struct weir_ask_flight *flight;           /* to be landed then; NULL: none */
};

/* A call is about to be sent: whether it asks for any.  Where they would be no use it does not. */
bool weir_ask_lease_wishes(const struct weir_ask_part *part);
/* They may be spent from now on. */
void weir_ask_lease_use(struct weir_ask_leases *leases, const struct weir_ask_grant *grant);

/* Nobody used them. */
void weir_ask_lease_unused(struct weir_ask_leases *leases, uint64_t key);
/* Redis gets them back: by the mark of the window that they were taken in, if that counts still. */
void weir_ask_lease_give_back(struct weir_ask_leases *leases, uint64_t key,
                              const struct weir_limit *limit, struct weir_str name, uint64_t mark,
                              uint32_t tokens);
/* Where they lie. */
struct weir_lease_at weir_ask_lease_at(const struct weir_ask_leases *leases, uint64_t key,
                                       const struct weir_limit *limit, uint64_t boot_ns);

/* A counter begins anew, or has another limit: what is leased of it is true no more. */
void weir_ask_lease_drop(const struct weir_ask_leases *leases, const struct weir_charge *charge);

/* ---- calls about one counter ---- */

/* A planned request is about to be asked for.  True: it waits for a call that is under way, and
 * weir_ask_launch() or weir_ask_finish() will be called. */
bool weir_ask_lease_parks(struct weir_ask_leases *leases, struct weir_ask *ask);
/* It is asked for now: what is in hand of its counters, and not enough, goes back before it. */
void weir_ask_lease_recall(struct weir_ask *ask);
/* Its call has ended: those that waited for it are decided, or the first of them asks. */
void weir_ask_lease_landed(struct weir_ask_leases *leases, struct weir_ask_flight *flight, int err);

#endif
