/* counter.h - one counter of a call to Redis: what is asked of it, and what came of it.
 *
 *     counter -> record -> script: reads, decides, writes        atomic, in Redis
 *                             |
 *     verdict <- lib/algo <---+ the time, what was stored before, and the script's decision
 *
 * The script knows only enough to decide and to count.  All that a caller is told besides -
 * remaining, the waits, the delay, the mark of a ticket - is computed here, by the same functions
 * of lib/algo as for the table, from what was stored before.  That these come to the same decision
 * as the script is checked each time: two programs that disagree must not both be believed.
 *
 * Refused hits of buckets never count, so that count_rejected means something else there: what is
 * in use may be more than the bucket holds, and stands (lib/engine/throttle.h).
 *
 * A record is at most WEIR_REDIS_RECORD_MAX bytes, numbers with the least significant byte first:
 *
 *     | kind 1 | op 1 | counts 1 | ends 1 | part 1 | hits 6 |  what the kind needs ...
 *
 * and before what the kind needs, for a lease: wish 4, sure 4, shares 4, ttl 4, step 13.
 *
 * Purity: no clock, no I/O, no allocation.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_REDIS_COUNTER_H
#define WEIR_STORE_REDIS_COUNTER_H

#include "algo/lease.h"
#include "store/op.h"

#define WEIR_REDIS_RECORD_MAX 128
#define WEIR_REDIS_TAT_LEN 15 /* bytes of a bucket's state */

/* What an atomic request makes of the rule that a counter belongs to. */
enum weir_redis_part {
    WEIR_REDIS_PART = 0,
    WEIR_REDIS_PART_QUOTA = 1,
    WEIR_REDIS_NO_PART = 2, /* shadow mode, refunds: decided by themselves */
};

/* A bucket whose rule got another rate since: what it held, and what that is at the new rate. */
struct weir_redis_rescale {
    uint8_t from[WEIR_REDIS_TAT_LEN];
    uint8_t to[WEIR_REDIS_TAT_LEN];
};

struct weir_redis_counter {
    /* The question. */
    struct weir_str key;
    const struct weir_limit *limit;
    uint64_t hits;
    uint64_t mark;               /* release, renew, add */
    struct weir_lease_wish wish; /* lease: of a rule with one limit, in no atomic request */
    enum weir_op op;
    enum weir_redis_part part;
    bool ends;        /* the last limit of its rule: a rule's are taken all or none */
    bool is_rescaled; /* rescale, from an answer that was is_stale, is sent along */
    struct weir_redis_rescale rescale;

    /* The answer. */
    bool is_stale;   /* nothing was decided, for all limits of its rule: ask again */
    bool is_charged; /* the hits were taken; release, renew, add: there was something */
    uint64_t new_mark;
    uint64_t hits_mark; /* take, lease: what its hits can be released by; 0: nothing does */
    struct weir_verdict verdict; /* take, lease, look, give */
    uint32_t granted;            /* lease: so many tokens; new_mark is to release them by */
    uint64_t lasts_ns;           /* for so long after the decision */
};

/* Writes the record of a counter; returns its length. */
size_t weir_redis_record_write(const struct weir_redis_counter *counter,
                               uint8_t out[static WEIR_REDIS_RECORD_MAX]);

/* What the script said of a counter, by bits. */
#define WEIR_REDIS_ALLOWED 1u
#define WEIR_REDIS_CHARGED 2u
#define WEIR_REDIS_STALE 4u

/* Fills in the answer.  stored: what the counter held before; ptr NULL: nothing.  granted: what
 * the script leased.  0, or WEIR_ERR_STORE where that is no state of such a counter, or the script
 * decided otherwise. */
WEIR_MUST_CHECK int weir_redis_counter_answer(struct weir_redis_counter *counter, uint64_t now_ns,
                                              struct weir_str stored, unsigned said,
                                              uint32_t granted);

/* ---- between the two files of this module ---- */

/* The kinds of counters, as the scripts number them. */
enum weir_redis_kind {
    WEIR_REDIS_CLOSED = 0, /* a limit of 0: nothing is stored */
    WEIR_REDIS_WINDOW = 1,
    WEIR_REDIS_SLIDE = 2,
    WEIR_REDIS_SUB = 3,
    WEIR_REDIS_BUCKET = 4,
    WEIR_REDIS_TICK = 5,
    WEIR_REDIS_LEASES = 6,
    WEIR_REDIS_LOG = 7,
};
enum weir_redis_kind weir_redis_kind_of(const struct weir_limit *limit);

/* What is really done: a leaky bucket's place is given back by its mark only, so who gives without
 * one just looks (docs/decisions/0013). */
static inline uint64_t weir_redis_hits_of(const struct weir_redis_counter *counter)
{
    bool is_no_more = counter->op == WEIR_OP_GIVE && counter->limit->algorithm == WEIR_LEAKY_BUCKET;
    return is_no_more ? 0 : counter->hits;
}

/* The least significant byte first, in both directions. */
static inline uint8_t *weir_redis_put(uint8_t *at, uint64_t number, unsigned len)
{
    for (unsigned i = 0; i < len; i++)
        at[i] = (uint8_t)(number >> (8 * i));
    return at + len;
}

static inline uint64_t weir_redis_get(const char *at, unsigned len)
{
    uint64_t number = 0;
    for (unsigned i = 0; i < len; i++)
        number |= (uint64_t)(uint8_t)at[i] << (8 * i);
    return number;
}

#endif
