/* lease_pace.h - how many tokens a key should lease: learnt from how often it has to ask.
 *
 * Nobody configures a size.  A key that is asked for the first time wants none.  One that must ask
 * again soon, though it got all that it wished for, wishes for twice as much; one that asks seldom,
 * or that had tokens left over, for half.  So a lease comes to last between an eighth and a half of
 * its time to live, whatever the rate is, and a key that falls silent is forgotten.
 *
 * Remembered is the last that was heard of each key, in a table of fixed size where a key has one
 * place: two keys that share it forget each other, which costs them leases and nothing else.
 *
 * Purity: no clock, no I/O; memory is taken when it is made.  Threads: one at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_LEASE_PACE_H
#define WEIR_STORE_LEASE_PACE_H

#include <stdint.h>
#include <weir/weir.h>

#define WEIR_LEASE_WISH_FIRST 4u

struct weir_lease_pace {
    uint64_t key;
    uint64_t asked_ns;   /* when it was asked for; refused: when it may be asked for again */
    uint64_t refused_ns; /* until when it was refused the last time */
    uint64_t hold_ns;    /* the least that a refusal lasts */
    uint32_t wish;       /* 0: none yet */
    uint32_t granted;    /* of that */
};

struct weir_lease_paces; /* opaque: the keys of one worker */

/* 0, or WEIR_ERR_NOMEM.  count: a power of 2. */
WEIR_MUST_CHECK int weir_lease_paces_new(struct weir_lease_paces **out, uint32_t count);
void weir_lease_paces_free(struct weir_lease_paces *paces);

/* The key's place, emptied where it was another's. */
struct weir_lease_pace *weir_lease_pace_of(struct weir_lease_paces *paces, uint64_t key);

/* The key must ask now; says how many tokens to wish for. */
uint32_t weir_lease_pace_ask(struct weir_lease_pace *pace, uint64_t now_ns, uint64_t ttl_ns);

/* How many tokens are as good as spent, because more is asked for than there is: without waiting
 * for those who will. */
uint32_t weir_lease_pace_sure(const struct weir_lease_pace *pace);

/* What came of it.  A refusal: for how long nobody should ask again, which is as long as it said,
 * or longer where somebody always asks as soon as may be: then tokens come one by one, and are
 * better fetched a few at a time.  At most half of ttl_ns, so that none is lost. */
void weir_lease_pace_granted(struct weir_lease_pace *pace, uint32_t tokens);
uint64_t weir_lease_pace_refused(struct weir_lease_pace *pace, uint64_t now_ns, uint64_t wait_ns,
                                 uint64_t ttl_ns);

/* Tokens were left over. */
void weir_lease_pace_unused(struct weir_lease_pace *pace);

#endif
