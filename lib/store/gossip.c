/* SPDX-License-Identifier: Apache-2.0 */
#include "store/gossip.h"

#include "base/err.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

/* Longer than a chain is, but for one time in a billion: who has come so far has left it. */
#define STEPS_MAX 64

struct weir_gossip {
    uint32_t tallies_max;
    uint32_t head_mask;
    struct weir_tally *tallies;
    _Atomic uint64_t *heads;            /* version 32 << 32 | number + 1 of the first; 0: none */
    _Alignas(64) _Atomic uint64_t free; /* a chain like those, of tallies that were used before */
    _Atomic uint32_t fresh;             /* and how many ever were */
    _Atomic uint32_t used;
    _Alignas(64) _Atomic uint32_t dirty, urgent; /* lists: number + 1 of the first */
};

int weir_gossip_new(struct weir_gossip **out, uint32_t tallies_max)
{
    WEIR_ASSERT(tallies_max > 0 && tallies_max < UINT32_C(1) << 24);
    struct weir_gossip *g = aligned_alloc(64, sizeof(*g));
    if (g == NULL)
        return WEIR_ERR_NOMEM;
    memset(g, 0, sizeof(*g));
    uint32_t heads = 1;
    while (heads < tallies_max)
        heads *= 2;
    g->tallies_max = tallies_max;
    g->head_mask = heads - 1;
    /* Pages that are never touched are never there: it takes what was once used of it. */
    g->tallies = calloc(tallies_max, sizeof(*g->tallies));
    g->heads = calloc(heads, sizeof(*g->heads));
    if (g->tallies == NULL || g->heads == NULL) {
        weir_gossip_free(g);
        return WEIR_ERR_NOMEM;
    }
    *out = g;
    return 0;
}

void weir_gossip_free(struct weir_gossip *g)
{
    if (g == NULL)
        return;
    free(g->tallies);
    free(g->heads);
    free(g);
}

static struct weir_tally *at(const struct weir_gossip *g, uint64_t head)
{
    uint32_t place = (uint32_t)head; /* without its version */
    return place == 0 ? NULL : &g->tallies[place - 1];
}

static uint32_t place_of(const struct weir_gossip *g, const struct weir_tally *tally)
{
    return (uint32_t)(tally - g->tallies) + 1;
}

/* Another first, and another version. */
static bool swap(_Atomic uint64_t *head, uint64_t *seen, uint32_t first)
{
    /* release: what was written into the tally comes first; pairs with whoever loads the head */
    return atomic_compare_exchange_weak_explicit(head, seen, ((*seen >> 32) + 1) << 32 | first,
                                                 memory_order_acq_rel, memory_order_acquire);
}

/* ---- what is nobody's ---- */

static struct weir_tally *pop_free(struct weir_gossip *g)
{
    uint64_t head = atomic_load_explicit(&g->free, memory_order_acquire);
    for (struct weir_tally *tally; (tally = at(g, head)) != NULL;) {
        if (swap(&g->free, &head, atomic_load_explicit(&tally->next, memory_order_relaxed)))
            return tally;
    }
    /* relaxed: a number is a tally, and nobody else has it */
    uint32_t fresh = atomic_load_explicit(&g->fresh, memory_order_relaxed);
    while (fresh < g->tallies_max) {
        if (atomic_compare_exchange_weak_explicit(&g->fresh, &fresh, fresh + 1,
                                                  memory_order_relaxed, memory_order_relaxed))
            return &g->tallies[fresh];
    }
    return NULL;
}

static void push(struct weir_gossip *g, _Atomic uint64_t *head, struct weir_tally *tally)
{
    uint64_t seen = atomic_load_explicit(head, memory_order_relaxed);
    do
        atomic_store_explicit(&tally->next, (uint32_t)seen, memory_order_relaxed);
    while (!swap(head, &seen, place_of(g, tally)));
}

/* ---- chains ---- */

uint64_t weir_gossip_tag(uint64_t key, uint64_t index)
{
    uint64_t tag = weir_mix64(key ^ weir_mix64(index + 1));
    return tag != 0 ? tag : 1;
}

static _Atomic uint64_t *head_of(const struct weir_gossip *g, uint64_t tag)
{
    return &g->heads[tag & g->head_mask];
}

static struct weir_tally *walk(const struct weir_gossip *g, uint64_t head, uint64_t tag)
{
    struct weir_tally *tally = at(g, head);
    for (int steps = 0; tally != NULL && steps < STEPS_MAX; steps++) {
        /* relaxed, both: reserve() looks at the tag again, and add() at the version */
        if (atomic_load_explicit(&tally->tag, memory_order_relaxed) == tag)
            return tally;
        tally = at(g, atomic_load_explicit(&tally->next, memory_order_relaxed));
    }
    return NULL;
}

struct weir_tally *weir_gossip_find(struct weir_gossip *g, uint64_t tag)
{
    return walk(g, atomic_load_explicit(head_of(g, tag), memory_order_acquire), tag);
}

/* Begins a life.  What concerns the lists of the marked stays: it may be in one. */
static void begin(struct weir_tally *tally, const struct weir_tally_of *of, uint64_t tag)
{
    WEIR_ASSERT(of->name.len <= WEIR_TALLY_NAME_MAX);
    tally->key = of->key;
    tally->index = of->index;
    tally->limit = *of->limit;
    weir_tally_note_limit(tally, of->limit);
    tally->stat = of->stat;
    tally->name_len = (uint32_t)of->name.len;
    memcpy(tally->name, of->name.ptr, of->name.len);
    tally->peers.count = tally->sites.count = 0;
    tally->peers.rest = tally->sites.rest = 0;
    tally->site_hits = tally->since_ns = 0;
    tally->is_asked = tally->is_far_due = false;
    atomic_store_explicit(&tally->is_cut, false, memory_order_relaxed);
    atomic_store_explicit(&tally->acked, 0, memory_order_relaxed);
    atomic_store_explicit(&tally->sent, 0, memory_order_relaxed);
    atomic_store_explicit(&tally->tag, tag, memory_order_relaxed);
    /* release: whoever reserves in this word sees the tag, too (tally.c) */
    atomic_store_explicit(&tally->word, 0, memory_order_release);
}

static void end(struct weir_gossip *g, struct weir_tally *tally)
{
    atomic_store_explicit(&tally->tag, 0, memory_order_relaxed);
    push(g, &g->free, tally);
}

struct weir_tally *weir_gossip_add(struct weir_gossip *g, const struct weir_tally_of *of)
{
    uint64_t tag = weir_gossip_tag(of->key, of->index);
    _Atomic uint64_t *head = head_of(g, tag);
    uint64_t seen = atomic_load_explicit(head, memory_order_acquire);
    struct weir_tally *found = walk(g, seen, tag);
    struct weir_tally *made = found == NULL ? pop_free(g) : NULL;
    if (made == NULL)
        return found;
    begin(made, of, tag);
    for (;;) {
        atomic_store_explicit(&made->next, (uint32_t)seen, memory_order_relaxed);
        if (swap(head, &seen, place_of(g, made)))
            break;
        found = walk(g, seen, tag);
        if (found != NULL) { /* another was faster */
            end(g, made);
            return found;
        }
    }
    atomic_fetch_add_explicit(&g->used, 1, memory_order_relaxed); /* a number to look at */
    return made;
}

/* Nobody else changes what follows another; they only put themselves before the first. */
static void take_out(struct weir_gossip *g, struct weir_tally *tally)
{
    _Atomic uint64_t *head = head_of(g, atomic_load_explicit(&tally->tag, memory_order_relaxed));
    uint32_t next = atomic_load_explicit(&tally->next, memory_order_relaxed);
    uint64_t seen = atomic_load_explicit(head, memory_order_acquire);
    while (at(g, seen) == tally) {
        if (swap(head, &seen, next))
            return;
    }
    struct weir_tally *before = at(g, seen);
    while (at(g, atomic_load_explicit(&before->next, memory_order_relaxed)) != tally)
        before = at(g, atomic_load_explicit(&before->next, memory_order_relaxed));
    atomic_store_explicit(&before->next, next, memory_order_relaxed);
    while (!swap(head, &seen, (uint32_t)seen)) /* whoever is on the way must look again */
        ;
}

/* For the keeper, under whom no chain loses a tally: what is in its chain is whole. */
static bool is_linked(struct weir_gossip *g, const struct weir_tally *tally)
{
    uint64_t tag = atomic_load_explicit(&tally->tag, memory_order_relaxed);
    return tag != 0 && weir_gossip_find(g, tag) == tally;
}

/* ---- the marked ---- */

bool weir_gossip_mark(struct weir_gossip *g, struct weir_tally *tally, bool is_urgent)
{
    _Atomic bool *is_in = is_urgent ? &tally->is_urgent : &tally->is_dirty;
    _Atomic uint32_t *next = is_urgent ? &tally->next_urgent : &tally->next_dirty;
    _Atomic uint32_t *list = is_urgent ? &g->urgent : &g->dirty;
    /* Sequentially consistent, as are settle() before it, and the keeper's clearing of the flag and
     * reading of the count after that: either this sees it cleared, or the keeper sees the hits. */
    if (atomic_load(is_in) || atomic_exchange(is_in, true))
        return false;
    uint32_t first = atomic_load_explicit(list, memory_order_relaxed);
    do
        atomic_store_explicit(next, first, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(list, &first, place_of(g, tally),
                                                  memory_order_release, memory_order_relaxed));
    return is_urgent;
}

void weir_gossip_each_marked(struct weir_gossip *g, bool is_urgent,
                             void (*fn)(void *ctx, struct weir_tally *tally), void *ctx)
{
    /* acquire: pairs with the release in mark().  All at once: what is marked meanwhile, perhaps by
     * fn(), is not one of them. */
    struct weir_tally *tally = at(
        g, atomic_exchange_explicit(is_urgent ? &g->urgent : &g->dirty, 0, memory_order_acquire));
    while (tally != NULL) {
        struct weir_tally *next =
            at(g, atomic_load_explicit(is_urgent ? &tally->next_urgent : &tally->next_dirty,
                                       memory_order_relaxed));
        atomic_store(is_urgent ? &tally->is_urgent : &tally->is_dirty, false);
        if (is_linked(g, tally)) /* or it was marked late, after it was let go */
            fn(ctx, tally);
        tally = next;
    }
}

/* ---- going ---- */

uint32_t weir_gossip_used(const struct weir_gossip *g)
{
    return atomic_load_explicit(&g->used, memory_order_relaxed);
}

bool weir_gossip_is_short(const struct weir_gossip *g)
{
    return g->tallies_max - weir_gossip_used(g) < g->tallies_max / 8;
}

uint64_t weir_tally_over_ns(const struct weir_tally *tally, uint64_t now_ns)
{
    uint64_t windows = tally->index + 1 + weir_gossip_looks_back(&tally->limit);
    return weir_sat_sub(now_ns, weir_sat_mul(windows, weir_gossip_window_ns(&tally->limit)));
}

/* own: what was judged; hits that came since keep it. */
static bool let_go(struct weir_gossip *g, struct weir_tally *tally, uint64_t own)
{
    if (tally->is_asked || atomic_load(&tally->is_dirty) || atomic_load(&tally->is_urgent) ||
        !weir_tally_freeze(tally, own))
        return false;
    take_out(g, tally);
    atomic_fetch_sub_explicit(&g->used, 1, memory_order_relaxed); /* a number to look at */
    end(g, tally);
    return true;
}

bool weir_gossip_drop(struct weir_gossip *g, struct weir_tally *tally)
{
    return let_go(g, tally, weir_tally_own(tally));
}

void weir_gossip_sweep(struct weir_gossip *g, uint64_t now_ns, uint64_t keep_ns)
{
    uint32_t fresh = atomic_load_explicit(&g->fresh, memory_order_relaxed);
    for (uint32_t i = 0; i < fresh; i++) {
        struct weir_tally *tally = &g->tallies[i];
        if (!is_linked(g, tally) || weir_tally_over_ns(tally, now_ns) <= keep_ns)
            continue;
        /* Only with as many as were told: one that has settled may not have marked it yet. */
        (void)let_go(g, tally, atomic_load_explicit(&tally->acked, memory_order_relaxed));
    }
}
