/* slots.h - finds the slot of a key, or makes one: never two.
 *
 * A key may live in any of 16 places: two buckets of 8 slots, each bucket two cache lines.  The
 * places of a key have an order (first bucket, then second), which all who share a table settle
 * by.  Inserting without locks and without doubles:
 *
 *   1. claim     swap {key, CLAIM, nonce} into a free place (or an expired one; or one whose key
 *                was charged to the sketch).  A claim holds no count, so a process that dies
 *                here has lost nothing.
 *   2. look      at all 16 places again.  A live slot of the key: take it, drop our claim.
 *   3. settle    of several claims the lowest wins; the higher ones are swapped out first.
 *                Whoever looks, helps.
 *   4. promote   swap the claim, nonce and all, for the first state.
 *
 * Two claimers cannot both miss each other, because each looks after it has claimed.  Who
 * promotes a claim, its own or another's, has looked at all places after having seen that very
 * claim (the nonce tells), and has read the sketch after it: a claim that is still there proves
 * that the key was not counted anywhere meanwhile.  tests/model/insert.pml checks this
 * exhaustively.
 *
 * Threads: any number, in any number of processes.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TABLE_SLOTS_H
#define WEIR_TABLE_SLOTS_H

#include "table/internal.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#if defined(__has_feature)
#define WEIR_THREAD_SANITIZER __has_feature(thread_sanitizer)
#else
#define WEIR_THREAD_SANITIZER 0
#endif

#define WEIR_PLACES (2 * WEIR_BUCKET_SLOTS)
#define WEIR_LINE_SLOTS 4u /* of a cache line */
#define WEIR_LINES (WEIR_PLACES / WEIR_LINE_SLOTS)

struct weir_home {
    struct weir_bucket *bucket[2];
    uint64_t fp;
    uint32_t near; /* the line of a bucket in which it would rather live: 0 or 1 */
};

/* What of a key is in its slot. */
static inline uint64_t weir_key_fp(uint64_t key)
{
    return key & ((UINT64_C(1) << WEIR_FP_BITS) - 1);
}

/* Whether a slot that holds this is one of its key's, and no claim. */
static inline bool weir_slot_is_live(union weir_u16b value, uint64_t fp)
{
    return weir_slot_kind(value) > WEIR_KIND_CLAIM && weir_slot_fp(value) == fp;
}

static inline struct weir_home weir_slots_locate(const struct weir_table *table, uint64_t key)
{
    uint64_t n = table->bucket_count;
    uint64_t first = (uint64_t)(((weir_u128)key * n) >> 64);
    uint64_t fp = weir_key_fp(key);
    /* Any bucket but the first, chosen by bits that the first hardly depends on. */
    uint64_t spread = (fp ^ fp >> 21) * UINT64_C(0x9e3779b97f4a7c15);
    uint64_t second = first + 1 + (uint64_t)(((weir_u128)spread * (n - 1)) >> 64);
    if (second >= n)
        second -= n;
    return (struct weir_home){.bucket = {&table->buckets[first], &table->buckets[second]},
                              .fp = fp,
                              .near = (uint32_t)fp & 1};
}

/* The lines of a key, the likeliest first: the near one of the first bucket, that of the second,
 * the far ones.  Where new keys go (slots.c) sees to it that at 80% load 72 of 100 live in the
 * first of them, and 21 in the next.  Only a habit: any place of a key is as good as any other. */
static inline union weir_u16b *weir_slots_line(const struct weir_home *home, uint32_t line)
{
    return &home->bucket[line % 2]->slot[(line / 2 ^ home->near) * WEIR_LINE_SLOTS];
}

static inline void weir_slots_prefetch(const struct weir_home *home)
{
    for (uint32_t line = 0; line < WEIR_LINES; line++)
        __builtin_prefetch(weir_slots_line(home, line), 1);
}

/* Bit i is set where slot i of the line may bear this fingerprint; who looks closer checks all of
 * it.
 *
 * On x86-64 the upper halves of four fingerprints are compared at once.  Plain loads of memory
 * that others swap: each slot's 4 bytes are read whole, and nothing is decided on them.  (Where
 * the thread sanitizer watches, it is told the truth in the portable form.) */
#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__) && !WEIR_THREAD_SANITIZER
static inline uint32_t weir_line_matches(const union weir_u16b *slot, uint64_t fp)
{
    __m128i want = _mm_set1_epi32((int)(uint32_t)(fp >> (WEIR_FP_BITS - 32)));
    __m128i a = _mm_load_si128((const __m128i *)(const void *)&slot[0]);
    __m128i b = _mm_load_si128((const __m128i *)(const void *)&slot[1]);
    __m128i c = _mm_load_si128((const __m128i *)(const void *)&slot[2]);
    __m128i d = _mm_load_si128((const __m128i *)(const void *)&slot[3]);
    __m128i tops = _mm_unpackhi_epi64(_mm_unpackhi_epi32(a, b), _mm_unpackhi_epi32(c, d));
    return (uint32_t)_mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(tops, want)));
}
#else
static inline uint32_t weir_line_matches(const union weir_u16b *slot, uint64_t fp)
{
    uint32_t mask = 0;
    for (uint32_t i = 0; i < WEIR_LINE_SLOTS; i++) {
        uint64_t hi = __atomic_load_n(&slot[i].hi, __ATOMIC_RELAXED);
        mask |= (uint32_t)(hi >> WEIR_FP_SHIFT == fp) << i;
    }
    return mask;
}
#endif

/* The key's live slot and what it holds, or NULL.  Half of *value may be newer than the other:
 * see atomic16.h.
 *
 * Line by line, though that guesses wrong now and then: all four lines are on their way, and who
 * waits only for the one that has the key waits less than who waits for two or four. */
static inline union weir_u16b *weir_slots_find(const struct weir_home *home, union weir_u16b *value)
{
    for (uint32_t line = 0; line < WEIR_LINES; line++) {
        union weir_u16b *first = weir_slots_line(home, line);
        uint32_t mask = weir_line_matches(first, home->fp);
        for (; mask != 0; mask &= mask - 1) {
            union weir_u16b *slot = &first[__builtin_ctz(mask)];
            *value = weir_peek16(slot);
            if (weir_slot_is_live(*value, home->fp))
                return slot;
        }
    }
    return NULL;
}

/* Makes sure that the key has a slot.  True: *slot is live.  False: *slot holds the claim *value,
 * and the caller may swap it for a first state; if that swap fails, it finds again. */
bool weir_slots_claim(struct weir_table *table, const struct weir_home *home, uint64_t now_ns,
                      union weir_u16b **slot, union weir_u16b *value);

/* When what a slot holds may be forgotten; 0 for empty ones. */
uint64_t weir_slot_expires_ns(const struct weir_table *table, union weir_u16b value);

#endif
