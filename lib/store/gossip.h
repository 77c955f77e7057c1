/* gossip.h - the tallies of a process: which keys it has to tell others of (`consistency:
 * eventual`).
 *
 *                    find, else make           dirty, urgent
 *     any thread  ------------------> tally -------------------> the keeper: tells the store, hears
 *                   reserve, settle                              of others, lets old ones go
 *
 * A map of a fixed number of tallies, by key and window.  It is chains in an array: a chain's head
 * is one word, {version, first}, swapped by whoever adds a tally; only the keeper takes one out.
 * Every change of a chain changes its version, so who adds has seen the whole chain as it is, and a
 * key has one tally.  Who reads a chain may step onto one that has just become another's; reserve()
 * notices, and whoever finds nothing adds with the version that it saw, or begins anew.
 *
 * A tally goes when its window is over and all that it counts has been told; or it was not, but
 * room is short.  Where there is no room at all, the caller decides without.
 *
 * Threads: as said for each.  Purity: no clock, no I/O.  Allocation: new() only.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_GOSSIP_H
#define WEIR_STORE_GOSSIP_H

#include "algo/math.h"
#include "store/tally.h"

struct weir_gossip;

/* How long a tally's window is: the limit's, or where a bucket takes longer to fill as many of
 * them.  So what was admitted before the window before makes no difference any more. */
static inline uint64_t weir_gossip_window_ns(const struct weir_limit *limit)
{
    bool is_bucket = limit->algorithm == WEIR_TOKEN_BUCKET || limit->algorithm == WEIR_LEAKY_BUCKET;
    if (!is_bucket || limit->cap_ns <= limit->window_ns)
        return limit->window_ns;
    return weir_ceil_div(limit->cap_ns, limit->window_ns) * limit->window_ns;
}

WEIR_MUST_CHECK int weir_gossip_new(struct weir_gossip **out, uint32_t tallies_max);
void weir_gossip_free(struct weir_gossip *gossip);

/* ---- any thread ---- */

/* What a key's tally in a window is found by; never 0.  index: floor(t / window). */
uint64_t weir_gossip_tag(uint64_t key, uint64_t index);
/* NULL: there is none. */
struct weir_tally *weir_gossip_find(struct weir_gossip *gossip, uint64_t tag);

/* What a new tally is of. */
struct weir_tally_of {
    uint64_t key, index;
    const struct weir_limit *limit; /* copied */
    uint32_t stat;
    struct weir_str name; /* at most WEIR_TALLY_NAME_MAX bytes, copied */
};
/* Finds, or makes.  NULL: there is no room. */
struct weir_tally *weir_gossip_add(struct weir_gossip *gossip, const struct weir_tally_of *of);

/* Something was admitted: the keeper is to tell.  is_urgent: now.  True where it need be woken. */
bool weir_gossip_mark(struct weir_gossip *gossip, struct weir_tally *tally, bool is_urgent);

/* How many tallies there are. */
uint32_t weir_gossip_used(const struct weir_gossip *gossip);

/* ---- the keeper ---- */

/* Each that was marked since, urgently or otherwise; it is not marked then. */
void weir_gossip_each_marked(struct weir_gossip *gossip, bool is_urgent,
                             void (*fn)(void *ctx, struct weir_tally *tally), void *ctx);

/* Whether decisions in a window depend on what was admitted in the one before. */
static inline bool weir_gossip_looks_back(const struct weir_limit *limit)
{
    return limit->algorithm != WEIR_FIXED_WINDOW;
}
/* For how long its hits have made no difference to any decision; 0: they still may. */
uint64_t weir_tally_over_ns(const struct weir_tally *tally, uint64_t now_ns);

/* Lets go all that are over for keep_ns and have nothing to tell or to wait for. */
void weir_gossip_sweep(struct weir_gossip *gossip, uint64_t now_ns, uint64_t keep_ns);
/* Less than an eighth is free. */
bool weir_gossip_is_short(const struct weir_gossip *gossip);
/* Lets one go that is neither marked nor waits for an answer, told or not.  False: somebody is
 * counting in it. */
bool weir_gossip_drop(struct weir_gossip *gossip, struct weir_tally *tally);

#endif
