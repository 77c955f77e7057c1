/* lease.h - tokens that Redis has granted, in the table, for whoever on this host needs them.
 *
 *     Redis --grant---> weir_lease_add() ----> slot {until, tokens} <--- weir_lease_take()
 *           --refusal-> weir_lease_refuse() -> slot {until, hits}        any thread and process
 *
 * A lease is one slot, changed by one swap of 16 bytes like every state: a token is spent once,
 * whoever dies when.  Whoever dies with tokens in hand has lost them; they are charged in Redis,
 * and so never spent twice.  Nothing here is worth keeping: a slot that must make room for another
 * key is simply gone, and so are all of an earlier boot.
 *
 * Time is the boot's (weir_table_boot_ns()), because a lease is a length of time that begins before
 * Redis was asked (algo/lease.h).  It is to be read for each take, and not once for a turn of a
 * loop: a thread that has lost its processor since would spend what has ended.  Beside that a lease
 * ends WEIR_LEASE_MARGIN_NS early, which is more than two clocks drift apart in a second.
 *
 * Leases of a window are added up: all that have not ended are of the same one.  Those of a bucket
 * or a log have each their own end (is_dated), so a key has a second place, and what must share one
 * of the two ends with the first of them.
 *
 * A refusal is remembered until its wait is over, and trusted for a second: others may give back
 * what they leased, and an operator may raise the limit.
 *
 * Threads: any number, in any number of processes; no locks.  Time: an argument.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_LEASE_H
#define WEIR_STORE_LEASE_H

#include "algo/lease.h"

struct weir_table;

#define WEIR_LEASE_MARGIN_NS UINT64_C(2000000)
#define WEIR_LEASE_TRUST_NS UINT64_C(1000000000) /* in a refusal */

/* Whose lease, and when. */
struct weir_lease_at {
    struct weir_table *table;
    uint64_t key;     /* the counter's name in the table */
    uint64_t boot_ns; /* now */
    bool is_dated;    /* of a bucket or a log: each grant has an end of its own */
};

/* The lease of a counter in the store of this name; key: the counter's name in the table. */
static inline struct weir_lease_at weir_lease_at(struct weir_table *table, uint64_t store,
                                                 uint64_t key, const struct weir_limit *limit,
                                                 uint64_t boot_ns)
{
    return (struct weir_lease_at){
        .table = table,
        .key = key ^ store,
        .boot_ns = boot_ns,
        .is_dated = weir_lease_is_dated(limit),
    };
}

enum weir_lease_said {
    WEIR_LEASE_NONE, /* not enough here: Redis is to be asked */
    WEIR_LEASE_SPENT,
    WEIR_LEASE_REFUSED,
};

struct weir_lease_taken {
    enum weir_lease_said said;
    bool is_low;             /* spent: more should be asked for; one caller is told */
    uint32_t left;           /* spent */
    uint64_t retry_after_ns; /* refused */
};

/* Whether there are as many tokens now, or a refusal; somebody may be faster. */
bool weir_lease_has(const struct weir_lease_at *at, uint64_t hits);

/* Spends `hits` tokens, if they are there. */
struct weir_lease_taken weir_lease_take(const struct weir_lease_at *at, uint64_t hits);

/* Tokens of a grant that may be spent until until_ns, less the margin.  Says whether there was time
 * left.  now_ns is the table's clock, for a slot that must be found. */
bool weir_lease_add(const struct weir_lease_at *at, uint32_t tokens, uint64_t until_ns,
                    uint64_t now_ns);

/* So many hits are refused, for so long; not remembered where there are tokens for fewer. */
void weir_lease_refuse(const struct weir_lease_at *at, uint64_t hits, uint64_t retry_after_ns,
                       uint64_t now_ns);

/* How many can be spent now. */
uint32_t weir_lease_left(const struct weir_lease_at *at);

/* Takes all out that can still be spent, of a window, to be given back.  Returns how many. */
uint32_t weir_lease_recall(const struct weir_lease_at *at);

/* Tokens of the first place, whether they have ended or not. */
uint32_t weir_lease_count(const struct weir_lease_at *at);

/* Takes these out, to be given back, if they are still `tokens`.  Returns how many these were: 0
 * where somebody has been there meanwhile. */
uint32_t weir_lease_collect(const struct weir_lease_at *at, uint32_t tokens);

/* The counter begins anew: tokens of it, or that it refuses, are true no more. */
void weir_lease_drop(const struct weir_lease_at *at);

#endif
