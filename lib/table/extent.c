/* SPDX-License-Identifier: Apache-2.0 */
#include "table/extent.h"

#include "algo/limit.h"

#define UNITS_PER_CHUNK (WEIR_CHUNK_BYTES / WEIR_UNIT_BYTES)
#define CHUNK_SKETCH (UINT32_MAX - 1) /* belongs to a sketch, for good */
/* From here on: taken for something that lies in several chunks, by whom and when; see claim_run().
 * UINT32_MAX, which older versions left in all chunks of an object but the first, is nobody's. */
#define CHUNK_MARK (UINT32_C(1) << 31)
#define CHUNK_MARK_MAX (CHUNK_MARK | MARK_SECOND_MAX << MARK_NONCE_BITS | MARK_NONCE_MAX)
#define MARK_NONCE_BITS 18
#define MARK_NONCE_MAX ((UINT32_C(1) << MARK_NONCE_BITS) - 1)
#define MARK_SECOND_MAX UINT32_C(0xfff)
#define NONCE_MASK ((UINT64_C(1) << WEIR_FP_SHIFT) - 1)
/* Longer than any live process takes from claiming an extent to linking it. */
#define LINK_PATIENCE_S 30u
#define TRIES_MAX 64u

/* Objects come in sizes an eighth apart, so that at most an eighth is wasted and chunks are shared.
 */
static uint64_t units_for(uint32_t cells)
{
    uint64_t bytes = sizeof(struct weir_extent) + (uint64_t)cells * 8;
    uint64_t units = (bytes + WEIR_UNIT_BYTES - 1) / WEIR_UNIT_BYTES;
    if (units <= 16)
        return units;
    uint32_t shift = 60u - (uint32_t)__builtin_clzll(units); /* keep the top four bits */
    uint64_t step = UINT64_C(1) << shift;
    return (units + step - 1) & ~(step - 1);
}

static uint32_t class_of(const struct weir_table *table, uint64_t chunk)
{
    return __atomic_load_n(&table->chunk_class[chunk], __ATOMIC_ACQUIRE);
}

static bool swap_class(struct weir_table *table, uint64_t chunk, uint32_t from, uint32_t to)
{
    return __atomic_compare_exchange_n(&table->chunk_class[chunk], &from, to, false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static uint32_t make_mark(struct weir_table *table, uint64_t now_s)
{
    return CHUNK_MARK | ((uint32_t)now_s & MARK_SECOND_MAX) << MARK_NONCE_BITS |
           ((uint32_t)weir_table_unique(table) & MARK_NONCE_MAX);
}

static bool is_mark(uint32_t class)
{
    return class >= CHUNK_MARK && class <= CHUNK_MARK_MAX;
}

static bool is_old_mark(uint32_t class, uint64_t now_s)
{
    uint32_t age_s = ((uint32_t)now_s - (class >> MARK_NONCE_BITS)) & MARK_SECOND_MAX;
    return is_mark(class) && age_s >= LINK_PATIENCE_S;
}

/* Gives back what bears our mark still. */
static void drop_run(struct weir_table *table, uint64_t first, uint64_t count, uint32_t mark)
{
    for (uint64_t i = 0; i < count; i++)
        (void)swap_class(table, first + i, mark, 0);
}

/* Takes `count` chunks in a row from `first` on.  They all get our mark; then the first is swapped
 * for the class, and from that instant the run is an object, whose further chunks keep the mark.
 * Who dies before has left marks that begin no object (reclaim_runs()); who slept for so long that
 * others took it for dead finds the first chunk without its mark. */
static bool take_run(struct weir_table *table, uint64_t first, uint64_t count, uint32_t class,
                     uint32_t mark)
{
    for (uint64_t i = 0; i < count; i++) {
        if (swap_class(table, first + i, 0, mark))
            continue;
        drop_run(table, first, i, mark);
        return false;
    }
    if (swap_class(table, first, mark, class))
        return true;
    drop_run(table, first, count, mark);
    return false;
}

/* Whether what begins at `head` reaches beyond its chunk. */
static bool reaches_on(uint32_t head)
{
    return head == CHUNK_SKETCH || (head > UNITS_PER_CHUNK && head < CHUNK_MARK);
}

/* Frees runs that somebody has marked and left; says whether there were any.  The first chunk goes
 * first: that is where a sleeper would make the run its own. */
static bool reclaim_runs(struct weir_table *table, uint64_t now_s)
{
    bool has_freed = false;
    for (uint64_t chunk = 0, end; chunk < table->extent_chunks; chunk = end) {
        uint32_t mark = class_of(table, chunk);
        for (end = chunk + 1; end < table->extent_chunks && class_of(table, end) == mark;)
            end++;
        bool is_part = chunk > 0 && reaches_on(class_of(table, chunk - 1));
        if (is_old_mark(mark, now_s) && !is_part && swap_class(table, chunk, mark, 0)) {
            drop_run(table, chunk + 1, end - chunk - 1, mark);
            has_freed = true;
        }
    }
    return has_freed;
}

/* Large things go to the end of the region, so that they do not cut up the room for small ones. */
static uint64_t claim_run(struct weir_table *table, uint64_t count, uint32_t class, uint64_t now_s)
{
    if (count > table->extent_chunks)
        return UINT64_MAX;
    uint32_t mark = make_mark(table, now_s);
    do {
        for (uint64_t first = table->extent_chunks - count + 1; first-- > 0;) {
            if (class_of(table, first) == 0 && take_run(table, first, count, class, mark))
                return first;
        }
    } while (reclaim_runs(table, now_s));
    return UINT64_MAX;
}

uint64_t weir_extent_claim_chunks(struct weir_table *table, uint64_t bytes)
{
    uint64_t count = (bytes + WEIR_CHUNK_BYTES - 1) / WEIR_CHUNK_BYTES;
    uint64_t now_s = weir_table_now(table) / WEIR_NS_PER_S;
    uint64_t chunk = claim_run(table, count, CHUNK_SKETCH, now_s);
    return chunk == UINT64_MAX ? UINT64_MAX : chunk * WEIR_CHUNK_BYTES;
}

void weir_extent_release_chunks(struct weir_table *table, uint64_t offset, uint64_t bytes)
{
    uint64_t count = (bytes + WEIR_CHUNK_BYTES - 1) / WEIR_CHUNK_BYTES;
    for (uint64_t i = 0; i < count; i++)
        __atomic_store_n(&table->chunk_class[offset / WEIR_CHUNK_BYTES + i], 0, __ATOMIC_RELEASE);
}

static struct weir_extent *at_unit(const struct weir_table *table, uint64_t unit)
{
    /* Units are 64 bytes in a mapping that starts on a page: always aligned. */
    return (struct weir_extent *)(void *)(table->extents + unit * WEIR_UNIT_BYTES);
}

struct weir_extent *weir_extent_at(const struct weir_table *table, uint32_t unit)
{
    uint64_t chunk = unit / UNITS_PER_CHUNK;
    if (chunk >= table->extent_chunks)
        return NULL;
    uint32_t class = class_of(table, chunk);
    if (class == 0 || class >= CHUNK_MARK)
        return NULL;
    uint64_t within = unit % UNITS_PER_CHUNK;
    bool fits =
        class <= UNITS_PER_CHUNK
            ? within % class == 0 && within + class <= UNITS_PER_CHUNK
            : within == 0 && (uint64_t)unit + class <= table->extent_chunks * UNITS_PER_CHUNK;
    return fits ? at_unit(table, unit) : NULL;
}

uint32_t weir_extent_capacity(const struct weir_table *table, uint32_t unit)
{
    uint64_t units = class_of(table, unit / UNITS_PER_CHUNK);
    uint64_t cells = (units * WEIR_UNIT_BYTES - sizeof(struct weir_extent)) / 8;
    return cells < WEIR_EXTENT_CELLS_MAX ? (uint32_t)cells : WEIR_EXTENT_CELLS_MAX;
}

/* Whether its process died between claiming and linking, or between unlinking and giving back.
 * It may as well be asleep; so a claim of the key that it might still swap for a link is taken
 * from under it first. */
static bool is_orphan(struct weir_table *table, union weir_u16b whose, uint64_t now_s)
{
    uint64_t age_s = (now_s - whose.hi) & 0xffffff;
    uint64_t slot = whose.hi >> 24, fp = whose.lo >> WEIR_FP_SHIFT;
    if (age_s < LINK_PATIENCE_S || slot >= table->bucket_count * WEIR_BUCKET_SLOTS)
        return false;
    union weir_u16b *at = &table->buckets[slot / WEIR_BUCKET_SLOTS].slot[slot % WEIR_BUCKET_SLOTS];
    union weir_u16b value = weir_load16(at);
    if (weir_slot_fp(value) != fp)
        return true;
    if (weir_slot_kind(value) == WEIR_KIND_CLAIM)
        return weir_cas16(at, value, (union weir_u16b){.lo = 0, .hi = 0});
    /* Linked; or its key lives elsewhere, and a sleeper might still move it here. */
    return weir_slot_kind(value) != WEIR_KIND_WIDE;
}

static bool claim_object(struct weir_table *table, uint64_t unit, union weir_u16b whose,
                         uint64_t now_s, bool steal)
{
    struct weir_extent *extent = at_unit(table, unit);
    union weir_u16b seen = weir_peek16(&extent->whose);
    if (seen.lo != 0 && !(steal && is_orphan(table, seen, now_s)))
        return false;
    return weir_cas16(&extent->whose, seen, whose);
}

bool weir_extent_store_control(struct weir_extent *extent, uint64_t owner, union weir_u16b control)
{
    union weir_u16b seen;
    do {
        seen = weir_load16(&extent->control);
        /* After the control word: who took the extent from us swaps that, too, or overwrites
         * ours. */
        if (__atomic_load_n(&extent->owner, __ATOMIC_ACQUIRE) != owner)
            return false;
    } while (!weir_cas16(&extent->control, seen, control));
    return true;
}

/* Tries objects of a size, from where the last one was found, but not so many that a decision
 * would be felt: with the region nearly full the state is counted coarsely instead. */
static uint32_t claim_among(struct weir_table *table, uint64_t units, union weir_u16b whose,
                            uint64_t now_s, bool steal)
{
    uint64_t start = __atomic_load_n(&table->extent_hint, __ATOMIC_RELAXED);
    uint64_t objects = units <= UNITS_PER_CHUNK ? UNITS_PER_CHUNK / units : 1;
    uint32_t tries = TRIES_MAX;
    for (uint64_t n = 0; n < table->extent_chunks; n++) {
        uint64_t chunk = (start + n) % table->extent_chunks;
        if (class_of(table, chunk) != units)
            continue;
        for (uint64_t i = 0; i < objects; i++) {
            uint64_t unit = chunk * UNITS_PER_CHUNK + (start + i) % objects * units;
            if (claim_object(table, unit, whose, now_s, steal)) {
                __atomic_store_n(&table->extent_hint, chunk, __ATOMIC_RELAXED);
                return (uint32_t)unit;
            }
            if (--tries == 0) {
                __atomic_store_n(&table->extent_hint, weir_mix64(whose.lo), __ATOMIC_RELAXED);
                return WEIR_EXTENT_NONE;
            }
        }
    }
    return WEIR_EXTENT_NONE;
}

uint32_t weir_extent_claim(struct weir_table *table, uint64_t fp, union weir_u16b *home,
                           uint32_t cells, uint64_t now_ns, uint64_t *owner)
{
    if (table->extent_chunks == 0)
        return WEIR_EXTENT_NONE;
    uint64_t units = units_for(cells);
    uint64_t now_s = now_ns / WEIR_NS_PER_S;
    uint64_t slot = (uint64_t)(home - &table->buckets[0].slot[0]);
    union weir_u16b whose = {
        .lo = fp << WEIR_FP_SHIFT | (weir_table_unique(table) & NONCE_MASK) | 1, /* never 0 */
        .hi = slot << 24 | (now_s & 0xffffff),
    };
    *owner = whose.lo;
    uint32_t unit = claim_among(table, units, whose, now_s, false);
    if (unit != WEIR_EXTENT_NONE)
        return unit;
    uint64_t chunks = (units + UNITS_PER_CHUNK - 1) / UNITS_PER_CHUNK;
    uint64_t chunk = claim_run(table, chunks, (uint32_t)units, now_s);
    if (chunk != UINT64_MAX && claim_object(table, chunk * UNITS_PER_CHUNK, whose, now_s, false))
        return (uint32_t)(chunk * UNITS_PER_CHUNK);
    return claim_among(table, units, whose, now_s, true);
}

void weir_extent_release(struct weir_table *table, uint32_t unit, uint64_t fp, uint32_t nonce)
{
    struct weir_extent *extent = weir_extent_at(table, unit);
    if (extent == NULL)
        return;
    uint64_t seen = __atomic_load_n(&extent->owner, __ATOMIC_ACQUIRE);
    if (seen >> WEIR_FP_SHIFT == fp && weir_extent_nonce(seen) == nonce)
        (void)__atomic_compare_exchange_n(&extent->owner, &seen, 0, false, __ATOMIC_ACQ_REL,
                                          __ATOMIC_RELAXED);
}

uint64_t weir_extent_bytes_used(const struct weir_table *table)
{
    uint64_t used = 0;
    bool is_sketch = false;
    for (uint64_t chunk = 0; chunk < table->extent_chunks; chunk++) {
        uint32_t class = class_of(table, chunk);
        is_sketch = class == CHUNK_SKETCH || (is_sketch && is_mark(class));
        if (is_sketch)
            used += WEIR_CHUNK_BYTES;
        if (class == 0 || class >= CHUNK_MARK)
            continue;
        uint64_t objects = class <= UNITS_PER_CHUNK ? UNITS_PER_CHUNK / class : 1;
        for (uint64_t i = 0; i < objects; i++) {
            const struct weir_extent *e = at_unit(table, chunk * UNITS_PER_CHUNK + i * class);
            if (__atomic_load_n(&e->owner, __ATOMIC_RELAXED) != 0)
                used += (uint64_t) class * WEIR_UNIT_BYTES;
        }
    }
    return used;
}
