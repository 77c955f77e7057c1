/* SPDX-License-Identifier: Apache-2.0 */
#include "store/tally.h"

#include "algo/math.h"

#define OWN_BITS 43
#define OWN_MASK ((UINT64_C(1) << OWN_BITS) - 1)
#define DOUBT_ONE (UINT64_C(1) << OWN_BITS)
#define DOUBT_MASK (((UINT64_C(1) << 20) - 1) << OWN_BITS)
#define FROZEN (UINT64_C(1) << 63)

/* What a request's hits count for while they are in doubt: so that those of 256 threads fit. */
#define DOUBT_MAX 4095u

static uint64_t doubt_of(uint64_t hits)
{
    return weir_min(hits, DOUBT_MAX) * DOUBT_ONE;
}

static bool is_too_much(uint64_t word, uint64_t acked, uint64_t hits, uint64_t most)
{
    uint64_t own = word & OWN_MASK, doubt = (word & DOUBT_MASK) >> OWN_BITS;
    uint64_t unacked = weir_sat_sub(own, acked) + doubt;
    if (weir_sat_add(own + doubt, hits) > OWN_MASK)
        return true;
    return unacked > 0 && weir_sat_add(unacked, hits) > most;
}

enum weir_reserved weir_tally_reserve(struct weir_tally *tally, uint64_t tag, uint64_t hits,
                                      uint64_t most)
{
    uint64_t word = atomic_load_explicit(&tally->word, memory_order_acquire);
    do {
        if (word & FROZEN || atomic_load_explicit(&tally->tag, memory_order_relaxed) != tag)
            return WEIR_TALLY_GONE;
        /* relaxed: an older value only holds back sooner */
        uint64_t acked = atomic_load_explicit(&tally->acked, memory_order_relaxed);
        if (is_too_much(word, acked, hits, most))
            return WEIR_HELD_BACK;
        /* acquire: if the word is of its next life, so is the tag that is read next (it was stored
         * before the word, see gossip.c) */
    } while (!atomic_compare_exchange_weak_explicit(&tally->word, &word, word + doubt_of(hits),
                                                    memory_order_acq_rel, memory_order_acquire));
    if (atomic_load_explicit(&tally->tag, memory_order_relaxed) == tag)
        return WEIR_RESERVED;
    (void)weir_tally_settle(tally, hits, false);
    return WEIR_TALLY_GONE;
}

uint64_t weir_tally_settle(struct weir_tally *tally, uint64_t hits, bool is_admitted)
{
    uint64_t less = doubt_of(hits) - (is_admitted ? hits : 0);
    /* Sequentially consistent, as is own(): see weir_gossip_mark(). */
    uint64_t word = atomic_fetch_sub(&tally->word, less) - less;
    return weir_sat_sub(word & OWN_MASK, atomic_load_explicit(&tally->sent, memory_order_relaxed));
}

struct weir_limit weir_tally_limit(const struct weir_tally *tally)
{
    struct weir_limit limit = tally->limit;
    uint64_t numbers = atomic_load_explicit(&tally->numbers, memory_order_relaxed);
    limit.requests = (uint32_t)(numbers >> 32);
    limit.burst = (uint32_t)numbers;
    return limit;
}

uint64_t weir_tally_own(const struct weir_tally *tally)
{
    return atomic_load(&tally->word) & OWN_MASK;
}

void weir_tally_ack(struct weir_tally *tally, uint64_t hits)
{
    /* relaxed: one writer; who reads an older value is held back sooner */
    if (hits > atomic_load_explicit(&tally->acked, memory_order_relaxed))
        atomic_store_explicit(&tally->acked, hits, memory_order_relaxed);
}

bool weir_tally_freeze(struct weir_tally *tally, uint64_t own)
{
    uint64_t word = own; /* nothing in doubt */
    /* strong: a failure means that somebody is at it */
    return atomic_compare_exchange_strong_explicit(&tally->word, &word, own | FROZEN,
                                                   memory_order_acq_rel, memory_order_acquire);
}

/* ---- peers ---- */

static struct weir_peer *find(struct weir_peers *peers, uint64_t id)
{
    for (uint32_t i = 0; i < peers->count; i++) {
        if (peers->list[i].id == id)
            return &peers->list[i];
    }
    if (peers->count == WEIR_TALLY_PEERS)
        return NULL;
    peers->list[peers->count] = (struct weir_peer){.id = id};
    return &peers->list[peers->count++];
}

/* Raises *known to what was heard; returns by how much. */
static uint64_t raise(uint64_t *known, uint64_t heard)
{
    uint64_t more = weir_sat_sub(heard, *known);
    *known += more;
    return more;
}

uint64_t weir_peers_merge(struct weir_peers *peers, const struct weir_peer *heard, uint32_t count,
                          uint64_t self)
{
    uint64_t more = 0, rest = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (heard[i].id >> 32 == self >> 32)
            continue;
        struct weir_peer *peer = find(peers, heard[i].id);
        if (peer != NULL)
            more = weir_sat_add(more, raise(&peer->hits, heard[i].hits));
        else
            rest = weir_sat_add(rest, heard[i].hits);
    }
    return weir_sat_add(more, raise(&peers->rest, rest));
}
