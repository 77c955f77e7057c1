/* SPDX-License-Identifier: Apache-2.0 */
#include "table/slots.h"

#include "algo/limit.h"
#include "table/spill.h"
#include "table/wide.h"

#include <time.h>

/* A claim is promoted within microseconds.  One this old belongs to a process that died or sleeps.
 */
#define CLAIM_LIFE_NS WEIR_NS_PER_S
/* With the clock held still no claim ever ages; after so many looks it is taken to be dead. */
#define PATIENCE 1000u

struct spot {
    union weir_u16b *slot; /* NULL: none */
    union weir_u16b value;
};

/* In the order by which claims are settled. */
static union weir_u16b *place_at(const struct weir_home *home, uint32_t i)
{
    return &home->bucket[i / WEIR_BUCKET_SLOTS]->slot[i % WEIR_BUCKET_SLOTS];
}

uint64_t weir_slot_expires_ns(const struct weir_table *table, union weir_u16b value)
{
    uint64_t window_ns = weir_class_window_s(table, weir_slot_class(value)) * WEIR_NS_PER_S;
    uint64_t index = weir_slot_index(value);
    switch (weir_slot_kind(value)) {
    case WEIR_KIND_TAT:
        return value.lo + 1;
    case WEIR_KIND_WINDOW:
        return (index + 1) * window_ns;
    case WEIR_KIND_SLIDE:
    case WEIR_KIND_WIDE:
        return (index + 2) * window_ns;
    case WEIR_KIND_TICK:
        return ((index >> (weir_slot_body(value) >> 32 & 63)) + 2) * window_ns;
    case WEIR_KIND_LEASE:
        return weir_clock_at_boot(table, weir_slot_lease(value).until << WEIR_LEASE_UNIT_BITS);
    case WEIR_KIND_LEASES:
        return index * (window_ns / 4);
    case WEIR_KIND_EMPTY:
    case WEIR_KIND_CLAIM:
        break;
    }
    return 0;
}

/* Free to take without asking anyone: empty, expired for longer than clocks differ, a dead claim.
 */
static bool is_free(const struct weir_table *table, union weir_u16b value, uint64_t now_ns,
                    uint32_t looks)
{
    enum weir_kind kind = weir_slot_kind(value);
    if (kind == WEIR_KIND_EMPTY)
        return true;
    if (kind == WEIR_KIND_CLAIM)
        return value.lo + CLAIM_LIFE_NS < now_ns || looks > PATIENCE;
    return weir_slot_expires_ns(table, value) + WEIR_CLOCK_LAG_S * WEIR_NS_PER_S < now_ns;
}

/* Half of the first bucket is a key's own; from there on the emptier of the two is chosen.  The
 * emptier from the beginning would overflow at 80% load by 0.02% of the keys instead of 0.03%, and
 * 32 of 100 decisions instead of 23 would wait for the second bucket's memory, too. */
#define HALF (WEIR_BUCKET_SLOTS / 2)

/* Where a new key goes: a free place, in the line nearest to it; else whatever expires first. */
static struct spot choose(const struct weir_table *table, const struct weir_home *home,
                          uint64_t now_ns, uint32_t looks)
{
    struct spot first_free[2] = {{0}, {0}}, soonest = {0};
    uint32_t free_count[2] = {0, 0};
    uint64_t soonest_ns = UINT64_MAX;
    for (uint32_t i = 0; i < WEIR_PLACES; i++) {
        uint32_t line = i / WEIR_LINE_SLOTS, b = line % 2;
        struct spot here = {.slot = &weir_slots_line(home, line)[i % WEIR_LINE_SLOTS]};
        here.value = weir_peek16(here.slot);
        if (is_free(table, here.value, now_ns, looks)) {
            if (free_count[b]++ == 0)
                first_free[b] = here;
        } else if (weir_slot_kind(here.value) != WEIR_KIND_CLAIM) {
            uint64_t expires_ns = weir_slot_expires_ns(table, here.value);
            if (expires_ns < soonest_ns) {
                soonest_ns = expires_ns;
                soonest = here;
            }
        }
    }
    if (free_count[0] + free_count[1] > 0)
        return first_free[free_count[0] <= HALF && free_count[1] > free_count[0]];
    return soonest;
}

/* Charges the key that lives there to the sketch, so that its slot may be given away. */
static bool charge(struct weir_table *table, struct spot *victim, uint64_t now_ns)
{
    /* Read as one: half of one key's state charged to another's name would be a false debt. */
    victim->value = weir_load16(victim->slot);
    if (weir_slot_kind(victim->value) == WEIR_KIND_WIDE)
        return weir_wide_evict(table, victim->value, now_ns);
    weir_spill_slot(table, victim->value, now_ns);
    return true;
}

/* Differs between a process and its fork, which share the table's handle. */
static uint64_t now_cycles(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    struct timespec ts = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &ts); /* only to be different */
    return (uint64_t)ts.tv_nsec;
#endif
}

uint64_t weir_table_unique(struct weir_table *table)
{
    uint64_t count = __atomic_add_fetch(&table->claims, 1, __ATOMIC_RELAXED);
    return weir_mix64(table->nonce + count + (now_cycles() << 20));
}

static union weir_u16b new_claim(struct weir_table *table, uint64_t fp, uint64_t now_ns)
{
    uint64_t nonce = weir_table_unique(table) & 0x3ffff; /* the class and body bits of hi */
    return (union weir_u16b){.hi = fp << WEIR_FP_SHIFT | (uint64_t)WEIR_KIND_CLAIM << 18 | nonce,
                             .lo = now_ns};
}

/* Step 1.  NULL slot: somebody was faster, look again. */
static struct spot make_claim(struct weir_table *table, const struct weir_home *home,
                              uint64_t now_ns, uint32_t looks)
{
    struct spot none = {0};
    struct spot at = choose(table, home, now_ns, looks);
    if (at.slot == NULL)
        return none;
    bool was_live = !is_free(table, at.value, now_ns, looks);
    if (was_live && !charge(table, &at, now_ns))
        return none;
    union weir_u16b claim = new_claim(table, home->fp, now_ns);
    if (!weir_cas16(at.slot, at.value, claim))
        return none;
    uint64_t spread = (uint64_t)(home->bucket[0] - table->buckets);
    if (weir_slot_kind(at.value) == WEIR_KIND_WIDE)
        weir_wide_release(table, at.value);
    if (was_live)
        WEIR_TABLE_COUNT(table, spread, evictions);
    WEIR_TABLE_COUNT(table, spread, insertions);
    return (struct spot){.slot = at.slot, .value = claim};
}

/* Step 2: the live slot of the key, if there is one, and its claims in order. */
static struct spot look(const struct weir_home *home, struct spot claims[WEIR_PLACES],
                        uint32_t *claim_count)
{
    struct spot live = {0};
    *claim_count = 0;
    for (uint32_t i = 0; i < WEIR_PLACES; i++) {
        struct spot here = {.slot = place_at(home, i)};
        here.value = weir_peek16(here.slot);
        if (weir_slot_fp(here.value) != home->fp)
            continue;
        enum weir_kind kind = weir_slot_kind(here.value);
        if (kind == WEIR_KIND_CLAIM)
            claims[(*claim_count)++] = here;
        else if (kind != WEIR_KIND_EMPTY)
            live = here;
    }
    return live;
}

/* Step 3: swaps out the claims from number `from` on.  False: one of them had moved already. */
static bool drop_claims(const struct spot *claims, uint32_t from, uint32_t count)
{
    const union weir_u16b empty = {.lo = 0, .hi = 0};
    bool all = true;
    for (uint32_t i = from; i < count; i++)
        all = weir_cas16(claims[i].slot, claims[i].value, empty) && all;
    return all;
}

bool weir_slots_claim(struct weir_table *table, const struct weir_home *home, uint64_t now_ns,
                      union weir_u16b **slot, union weir_u16b *value)
{
    struct spot claims[WEIR_PLACES];
    struct spot seen = {0}; /* a claim that was there before the look that follows */
    for (uint32_t looks = 0;; looks++) {
        uint32_t count;
        struct spot live = look(home, claims, &count);
        if (live.slot != NULL) {
            (void)drop_claims(claims, 0, count);
            *slot = live.slot;
            *value = live.value;
            return true;
        }
        if (count == 0) {
            seen = make_claim(table, home, now_ns, looks);
            continue;
        }
        bool is_settled = seen.slot == claims[0].slot && weir_eq16(seen.value, claims[0].value);
        if (is_settled && drop_claims(claims, 1, count)) {
            *slot = seen.slot;
            *value = seen.value;
            return false;
        }
        seen = claims[0];
    }
}
