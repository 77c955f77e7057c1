/* tally.h - what this process has admitted of one key in one window, and what it knows of others'.
 *
 *     own      hits that this process admitted: only grows
 *     acked    of these, what the shared store is known to have
 *     doubt    hits that a thread is about to decide on
 *     peers    what each other node was last heard to have admitted: only grows
 *
 * Everything is cumulative and merged by maximum, so messages may be lost, repeated and overtake
 * each other: whoever has heard all in the end knows the same sums.  What a peer has more than was
 * known of it is counted here once (weir_local_add()).
 *
 * A decision reserves before it takes from the table, and settles afterwards.  At most `most` hits
 * are admitted and not acked; who would go beyond is held back until the store has answered.  That
 * is what bounds how far all nodes together can exceed a limit L.  Let x be the instant at which
 * the store's sum first exceeds L.  What a node had acked by x lies in a sum of at most L; beyond
 * that it admits at most `most` before it hears an answer from after x, and nothing then.  So N
 * nodes admit at most L + N * most, however slow their messages are.  (One request of more hits
 * than `most` is let pass where nothing else is unacked: it could never pass otherwise.)
 *
 * Threads: reserve() and settle() from any; the rest is the keeper's, one thread.  The tally's
 * memory may become another's between finding it and reserving: reserve() says so, and what is
 * reserved stays.  Purity: no clock, no I/O, no allocation.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_TALLY_H
#define WEIR_STORE_TALLY_H

#include "algo/limit.h"

#include <stdatomic.h>

#define WEIR_TALLY_NAME_MAX 320 /* bytes of a counter's name in the store */
#define WEIR_TALLY_PEERS 14     /* nodes that are known one by one; all others as one */

/* What one process, or all of a site, have admitted.  The upper half of an id is the table's, or
 * the site's: what others on our table have admitted, or we did before we were started anew, is
 * counted in it already. */
struct weir_peer {
    uint64_t id;
    uint64_t hits;
};

struct weir_peers {
    uint32_t count;
    uint64_t rest; /* hits of all nodes that are not in the list */
    struct weir_peer list[WEIR_TALLY_PEERS];
};

/* What is said of all nodes, at one instant.  Returns by how much others have more than was known
 * of them; who shares the upper half of self is not one of them. */
uint64_t weir_peers_merge(struct weir_peers *peers, const struct weir_peer *heard, uint32_t count,
                          uint64_t self);

/* Hits that may be admitted before the store must be told, and the most of a key that may be
 * unknown to it: a tenth of what the limit lets pass at once or in a window, and twice that. */
static inline uint64_t weir_tally_unit(const struct weir_limit *limit)
{
    uint64_t most = limit->burst > limit->requests ? limit->burst : limit->requests;
    return most >= 20 ? most / 10 : 1;
}

struct weir_tally {
    /* word: frozen 1 << 63 | doubt 20 << 43 | own 43.  Frozen: about to become another's. */
    _Atomic uint64_t word;
    _Atomic uint64_t tag; /* which key and window it is of; 0: none */
    _Atomic uint64_t acked;
    _Atomic uint64_t sent; /* own of the last message, whether it arrived or not */
    /* The limit's numbers as they are now, requests << 32 | burst: rules change within windows. */
    _Atomic uint64_t numbers;
    /* Lists of the map (gossip.c), by number + 1; 0 ends them. */
    _Atomic uint32_t next, next_dirty, next_urgent;
    _Atomic bool is_dirty, is_urgent; /* in the list */

    /* Of its window; fixed while it is in the map. */
    uint64_t key, index;
    struct weir_limit limit;
    uint32_t stat; /* of the rule's statistics */
    uint32_t name_len;
    char name[WEIR_TALLY_NAME_MAX];

    /* The keeper's. */
    _Atomic bool is_cut; /* the store did not answer last time */
    bool is_asked;       /* a message is under way */
    bool is_far_due;     /* the sites' store has yet to be told what the near one was */
    uint64_t since_ns;   /* when the keeper found something to tell; 0: all is told */
    uint64_t site_hits;  /* of all nodes of this site, as last heard */
    struct weir_peers peers, sites;
};

enum weir_reserved {
    WEIR_RESERVED,
    WEIR_HELD_BACK, /* too many are unacked */
    WEIR_TALLY_GONE /* it is not of this tag any more: find again */
};

/* tag: what it was found by.  After WEIR_RESERVED, settle() must follow, soon and in any case. */
enum weir_reserved weir_tally_reserve(struct weir_tally *tally, uint64_t tag, uint64_t hits,
                                      uint64_t most);
/* Returns the hits that were admitted and are not part of a message yet. */
uint64_t weir_tally_settle(struct weir_tally *tally, uint64_t hits, bool is_admitted);

/* Whoever decides says what the limit is. */
static inline void weir_tally_note_limit(struct weir_tally *tally, const struct weir_limit *limit)
{
    uint64_t numbers = (uint64_t)limit->requests << 32 | limit->burst;
    /* relaxed, both: a number of its own, that hardly ever changes */
    if (atomic_load_explicit(&tally->numbers, memory_order_relaxed) != numbers)
        atomic_store_explicit(&tally->numbers, numbers, memory_order_relaxed);
}
/* Its limit, with the numbers that were last noted. */
struct weir_limit weir_tally_limit(const struct weir_tally *tally);

/* Hits admitted so far. */
uint64_t weir_tally_own(const struct weir_tally *tally);
/* The store has so many of them; less than before changes nothing. */
void weir_tally_ack(struct weir_tally *tally, uint64_t hits);
/* For who wants its memory back: nobody can reserve any more.  False: somebody has, or it counts
 * other than `own` hits by now. */
bool weir_tally_freeze(struct weir_tally *tally, uint64_t own);

#endif
