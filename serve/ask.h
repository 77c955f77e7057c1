/* ask.h - decisions that may have to wait, because the store that all hosts share is asked.
 *
 *     start --> plan --> all by the table? -----------------------------> decided at once
 *                 |
 *                 +--> a block of memory --> calls to Redis (redis_link.h) --> waiter->done()
 *                                              |  away, late                       ^
 *                                              +--> the rule's on_store_error -----+
 *
 * One script call decides all counters of a request where they lie in one place; where they do not
 * (a Cluster, shards), each place is called, all at once.  What waits is a block of a kilobyte or
 * two from memory that is taken at start, and the version of the rules that it was planned by; the
 * session is free for the next request.  Nobody waits longer than store_deadline, and no more than
 * store_pending of a worker do: who comes then is decided as if the store were away.
 *
 * A client that leaves cancels: nobody is told then, but what was asked for counts, as it does when
 * a client leaves behind an answer.
 *
 * Threads: each weir_asks is one worker's.  Counters may be read by any.
 * Allocation: for requests of many descriptors only.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_ASK_H
#define WEIR_SERVE_ASK_H

#include "algo/limit.h"
#include "serve/redis_link.h"
#include "serve/worker.h"

struct weir_settings;
struct weir_eventual; /* serve/eventual.h */

/* ---- who waits ---- */

struct weir_ask;

/* In memory of the front end's, which stays where it is until done() or cancel(). */
struct weir_waiter {
    /* The decision is good until this returns. */
    void (*done)(struct weir_waiter *waiter, struct weir_decision *decision);
    struct weir_ask *ask; /* NULL: it waits for nothing */
};

#define WEIR_ASK_PENDING 1

/* Decides by the rules that the worker's session holds: weir_publish_hold() comes first.
 * out->statuses must hold request->descriptor_count of them.  0: decided; WEIR_ASK_PENDING: done()
 * will be called, later and once; or the errors of weir_check(): nothing was counted then. */
WEIR_MUST_CHECK int weir_ask_start(struct weir_asks *asks, const struct weir_request *request,
                                   uint64_t now_ns, struct weir_decision *out,
                                   struct weir_waiter *waiter);
/* The same for an operator, who wants to know what the store says, and nobody in its stead: where
 * it does not answer, done() gets NULL, and for want of room the result is WEIR_ERR_STORE_AWAY.
 * The request must have no hits. */
WEIR_MUST_CHECK int weir_ask_look(struct weir_asks *asks, const struct weir_request *request,
                                  uint64_t now_ns, struct weir_decision *out,
                                  struct weir_waiter *waiter);
/* done() will not be called.  Does nothing where it does not wait. */
void weir_ask_cancel(struct weir_waiter *waiter);

/* From within done(): its places, in queues of leaky buckets and slots, will not be used. */
void weir_ask_forfeit(struct weir_asks *asks);
/* Or that is not known yet: NULL where there are none; else let_go() must follow. */
struct weir_ask *weir_ask_keep(struct weir_asks *asks);
void weir_ask_let_go(struct weir_ask *ask, bool is_forfeit);

/* ---- for who decides in other processes, on the same table (front_desk.c) ---- */

struct weir_desk_place; /* proto/desk.h */
struct weir_desk_spent;

/* What leases in the table are named by, beside their counters. */
uint64_t weir_ask_store_name(const struct weir_asks *asks);
/* More tokens are needed of a request's counters; nobody waits for them. */
void weir_ask_refill(struct weir_asks *asks, const struct weir_request *request, uint64_t now_ns);

/* A request has passed elsewhere, while nobody was here to be asked: the store is told. */
void weir_ask_owed(struct weir_asks *asks, const struct weir_request *request, uint32_t times,
                   uint64_t since_ns);
/* So much was decided elsewhere by leases. */
void weir_ask_spent(struct weir_asks *asks, const struct weir_desk_spent *spent);

/* From within done(): fills in the tickets of what the store has charged.  names: memory for what
 * it knows them by. */
void weir_ask_tickets(struct weir_asks *asks, struct weir_decision *decision,
                      struct weir_buf *names);
/* A place of such a ticket comes back.  Does nothing where that cannot be. */
void weir_ask_give(struct weir_asks *asks, const struct weir_desk_place *place);

struct weir_renewal;

struct weir_renew_waiter {
    /* 0 and the place's new mark, or an error. */
    void (*done)(struct weir_renew_waiter *waiter, int err, uint64_t mark);
    struct weir_renewal *renewal; /* NULL: it waits for nothing */
};

/* A slot is to be kept for longer.  0: done() follows; or an error. */
WEIR_MUST_CHECK int weir_ask_renew(struct weir_asks *asks, const struct weir_desk_place *place,
                                   struct weir_renew_waiter *waiter);
void weir_ask_renew_cancel(struct weir_renew_waiter *waiter);

/* ---- the same for a limit that the caller brings (weir_throttle()) ---- */

struct weir_throttle_ask;

struct weir_throttle_waiter {
    void (*done)(struct weir_throttle_waiter *waiter, const struct weir_throttled *out);
    struct weir_throttle_ask *ask; /* NULL: it waits for nothing */
};

/* 0, WEIR_ASK_PENDING, or the errors of weir_throttle(). */
WEIR_MUST_CHECK int weir_ask_throttle(struct weir_asks *asks, const struct weir_throttle *throttle,
                                      uint64_t now_ns, struct weir_throttled *out,
                                      struct weir_throttle_waiter *waiter);
void weir_ask_throttle_cancel(struct weir_throttle_waiter *waiter);

/* ---- what was used is forgotten ---- */

struct weir_forget_waiter {
    /* err 0: so many counters there were, and they are gone; else the store has not said so. */
    void (*done)(struct weir_forget_waiter *waiter, int err, uint32_t cleared);
    struct weir_ask *ask; /* NULL: it waits for nothing */
};

/* Forgets the counters that a request meets, wherever they are, and what this host remembers of
 * those in the store.  0 with *cleared, WEIR_ASK_PENDING, the errors of weir_check(), or
 * WEIR_ERR_STORE_AWAY where there is no room.  The request must have no hits. */
WEIR_MUST_CHECK int weir_ask_forget(struct weir_asks *asks, const struct weir_request *request,
                                    uint64_t now_ns, uint32_t *cleared,
                                    struct weir_forget_waiter *waiter);
/* The same for a key of weir_ask_throttle(). */
WEIR_MUST_CHECK int weir_ask_forget_throttle(struct weir_asks *asks, struct weir_str key,
                                             struct weir_forget_waiter *waiter);
/* done() will not be called.  Does nothing where it does not wait. */
void weir_ask_forget_cancel(struct weir_forget_waiter *waiter);

/* A request's counters have other limits now: what this host has leased of them, or remembers that
 * they refuse, was by the old ones.  The request must have no hits. */
void weir_ask_unlease(struct weir_asks *asks, const struct weir_request *request, uint64_t now_ns);

/* ---- life ---- */

struct weir_ask_shared; /* of a service: where the store is, and who else asks it */

/* *out is NULL where the settings name no store.  0, WEIR_ERR_NOMEM, or WEIR_ERR_INVALID with why
 * in words. */
WEIR_MUST_CHECK int weir_ask_shared_new(struct weir_ask_shared **out,
                                        const struct weir_settings *settings, struct weir_log *log,
                                        char *why, size_t why_len);
void weir_ask_shared_free(struct weir_ask_shared *shared);

/* Before the worker's loop runs. */
WEIR_MUST_CHECK int weir_asks_new(struct weir_asks **out, struct weir_worker *worker,
                                  struct weir_ask_shared *shared, char *why, size_t why_len);
/* Before the loop runs: who decides what is eventual.  Without, it is exact. */
void weir_asks_set_eventual(struct weir_asks *asks, struct weir_eventual *eventual);
/* In its loop: the service goes, so no tokens are to be in hand. */
void weir_asks_end(struct weir_asks *asks);
/* When the loop does not run any more. */
void weir_asks_free(struct weir_asks *asks);

/* ---- from any thread ---- */

enum weir_ask_count {
#define X(name, metric, help) WEIR_ASK_COUNT_##name,
#include "serve/ask.def"
#undef X
    WEIR_ASK_COUNTS
};
uint64_t weir_asks_count(const struct weir_asks *asks, enum weir_ask_count count);
const struct weir_redis_link *weir_asks_link(const struct weir_asks *asks);
/* Who decides while it is away, for rules that do not say; how it is spoken to. */
enum weir_on_store_error weir_ask_on_error(const struct weir_ask_shared *shared);
struct weir_redis_complaints *weir_ask_complaints(struct weir_ask_shared *shared);
struct weir_tls *weir_ask_tls(const struct weir_ask_shared *shared);
/* How many machines ask the store, ourselves included, as far as is known; at least 1. */
uint32_t weir_ask_nodes(const struct weir_ask_shared *shared);

#endif
