/* SPDX-License-Identifier: Apache-2.0 */
#include "table/spill.h"

#include "algo/limit.h"

#define COUNT_BITS 29
#define COUNT_MAX ((UINT64_C(1) << COUNT_BITS) - 1)
#define MIXED (UINT64_C(1) << COUNT_BITS)
#define UNTIL_SHIFT (COUNT_BITS + 1)

/* Decades of 16 from 2^24 ns (17 ms) to 2^60 ns: a debt of less than 2^(24 + 4d) ns is in decade d.
 */
#define DECADES 10u
#define DECADE_BASE_BITS 24u
#define DECADE_BITS 4u

struct region {
    uint64_t *cells;
    uint64_t row_cells;
};

static struct region region_at(const struct weir_table *table, uint64_t first, uint64_t cells)
{
    return (struct region){.cells = table->sketch + first, .row_cells = cells / WEIR_SKETCH_ROWS};
}

static struct region window_region(const struct weir_table *table, uint32_t class)
{
    const struct weir_table_header *h = table->header;
    uint64_t for_windows = h->sketch_cells / 8 * (8 - h->bucket_share);
    uint64_t each = for_windows / h->window_regions;
    return region_at(table, each * (class % h->window_regions), each);
}

static struct region bucket_region(const struct weir_table *table)
{
    const struct weir_table_header *h = table->header;
    uint64_t for_windows = h->sketch_cells / 8 * (8 - h->bucket_share);
    return region_at(table, for_windows, h->sketch_cells - for_windows);
}

static uint64_t *cell_of(const struct region *region, uint32_t row, uint64_t hash)
{
    uint64_t spread = weir_mix64(hash + row * UINT64_C(0x9e3779b97f4a7c15));
    uint64_t at = (uint64_t)(((weir_u128)spread * region->row_cells) >> 64);
    return &region->cells[row * region->row_cells + at];
}

static uint64_t window_hash(struct weir_spill_name name)
{
    return weir_mix64(name.fp ^ weir_mix64(name.index << 6 | name.class));
}

static uint64_t tat_hash(uint64_t fp, uint32_t decade)
{
    return weir_mix64(fp ^ (uint64_t)(decade + 1) << 48);
}

/* Atomic maximum.  Relaxed: the slot's swap that follows publishes it. */
static void raise_to(uint64_t *at, uint64_t value)
{
    uint64_t seen = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (seen < value &&
           !__atomic_compare_exchange_n(at, &seen, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* A cell keeps the later end and the greater count, and whether it was charged with different
 * ends; one that has expired starts anew.  Expired means for longer than any process's clock lags
 * behind another's. */
static void raise_window_cell(uint64_t *at, uint64_t count, uint64_t until_s, uint64_t now_s)
{
    uint64_t seen = __atomic_load_n(at, __ATOMIC_RELAXED);
    uint64_t value;
    do {
        uint64_t seen_until = seen >> UNTIL_SHIFT, seen_count = seen & COUNT_MAX;
        bool has_expired = seen_until + WEIR_CLOCK_LAG_S < now_s;
        uint64_t until = !has_expired && seen_until > until_s ? seen_until : until_s;
        uint64_t most = !has_expired && seen_count > count ? seen_count : count;
        uint64_t mixed = has_expired ? 0 : seen_until != until_s ? MIXED : seen & MIXED;
        value = until << UNTIL_SHIFT | mixed | most;
        if (value == seen)
            return;
    } while (
        !__atomic_compare_exchange_n(at, &seen, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

static uint64_t until_of(const struct weir_table *table, struct weir_spill_name name)
{
    return (name.index + name.lasts) * weir_class_window_s(table, name.class);
}

void weir_spill_window(struct weir_table *table, struct weir_spill_name name, uint64_t count,
                       uint64_t now_ns)
{
    if (count == 0)
        return;
    if (count > COUNT_MAX)
        count = COUNT_MAX;
    struct region region = window_region(table, name.class);
    uint64_t hash = window_hash(name), until_s = until_of(table, name);
    for (uint32_t row = 0; row < WEIR_SKETCH_ROWS; row++)
        raise_window_cell(cell_of(&region, row, hash), count, until_s, now_ns / WEIR_NS_PER_S);
    raise_to(&table->header->sketch_until_ns[name.class % table->header->window_regions],
             until_s * WEIR_NS_PER_S);
}

uint64_t weir_spilled_window(const struct weir_table *table, struct weir_spill_name name,
                             uint64_t now_ns)
{
    if (!weir_spill_has_window(table, name.class, now_ns))
        return 0;
    struct region region = window_region(table, name.class);
    uint64_t hash = window_hash(name), until_s = until_of(table, name);
    uint64_t least = UINT64_MAX;
    for (uint32_t row = 0; row < WEIR_SKETCH_ROWS; row++) {
        uint64_t cell = __atomic_load_n(cell_of(&region, row, hash), __ATOMIC_RELAXED);
        uint64_t until = cell >> UNTIL_SHIFT;
        /* Had this window been charged to it, the cell would last as long, or be mixed. */
        bool may_hold = until == until_s || (until > until_s && cell & MIXED);
        uint64_t count = may_hold ? cell & COUNT_MAX : 0;
        if (count < least)
            least = count;
    }
    return least == COUNT_MAX ? UINT64_MAX >> 1 : least; /* saturated: no limit is above it */
}

static uint32_t decade_of(uint64_t debt_ns)
{
    uint32_t bits = 64u - (uint32_t)__builtin_clzll(debt_ns | 1);
    if (bits <= DECADE_BASE_BITS)
        return 0;
    uint32_t decade = (bits - DECADE_BASE_BITS + DECADE_BITS - 1) / DECADE_BITS;
    return decade < DECADES ? decade : DECADES - 1;
}

/* The longest debt that is charged in this decade. */
static uint64_t decade_end_ns(uint32_t decade)
{
    if (decade == DECADES - 1)
        return UINT64_C(1) << 62;
    return (UINT64_C(1) << (DECADE_BASE_BITS + DECADE_BITS * decade)) - 1;
}

void weir_spill_tat(struct weir_table *table, uint64_t fp, uint64_t tat_ns, uint64_t now_ns)
{
    if (tat_ns <= now_ns)
        return;
    struct region region = bucket_region(table);
    uint64_t hash = tat_hash(fp, decade_of(tat_ns - now_ns));
    for (uint32_t row = 0; row < WEIR_SKETCH_ROWS; row++)
        raise_to(cell_of(&region, row, hash), tat_ns);
    raise_to(&table->header->sketch_until_ns[WEIR_SKETCH_REGIONS_MAX], tat_ns);
}

uint64_t weir_spilled_tat(const struct weir_table *table, uint64_t fp, uint64_t now_ns,
                          uint64_t cap_ns)
{
    if (!weir_spill_has_tat(table, now_ns))
        return 0;
    struct region region = bucket_region(table);
    uint64_t latest = 0;
    /* Who charged it may have read its clock before the bucket was used: the debt then looked
     * longer. */
    uint32_t last = decade_of(cap_ns + WEIR_CLOCK_LAG_S * WEIR_NS_PER_S);
    for (uint32_t decade = 0; decade <= last; decade++) {
        uint64_t hash = tat_hash(fp, decade);
        uint64_t least = UINT64_MAX;
        for (uint32_t row = 0; row < WEIR_SKETCH_ROWS; row++) {
            uint64_t cell = __atomic_load_n(cell_of(&region, row, hash), __ATOMIC_RELAXED);
            if (cell < least)
                least = cell;
        }
        /* Our own debt was in this decade when it was charged, and has only shrunk since. */
        uint64_t most = now_ns + decade_end_ns(decade);
        if (least > most)
            least = most;
        if (least > latest)
            latest = least;
    }
    return latest > now_ns + cap_ns ? now_ns + cap_ns : latest;
}

/* What a slot is charged under: the window of its class that it names, and how long that counts. */
static struct weir_spill_name name_of(union weir_u16b slot, uint64_t index, uint32_t lasts)
{
    return (struct weir_spill_name){
        .fp = weir_slot_fp(slot), .index = index, .class = weir_slot_class(slot), .lasts = lasts};
}

static void spill_leases(struct weir_table *table, union weir_u16b slot, uint64_t now_ns)
{
    uint64_t window_s = weir_class_window_s(table, weir_slot_class(slot));
    uint64_t body = weir_slot_body(slot);
    uint64_t held = (body & 0x3fff) + (body >> 14 & 0x3fff) + (body >> 28);
    if (window_s == 0)
        return;
    uint64_t index = now_ns / WEIR_NS_PER_S / window_s;
    weir_spill_window(table, name_of(slot, index, 2), held, now_ns);
}

/* At its maximum a counter means that or more. */
static uint64_t slide_count(uint64_t count)
{
    return count < WEIR_SLIDE_INLINE_MAX ? count : COUNT_MAX;
}

static void spill_slide(struct weir_table *table, union weir_u16b slot, uint64_t now_ns)
{
    uint64_t index = weir_slot_index(slot), body = weir_slot_body(slot);
    uint64_t current = slide_count(body & WEIR_SLIDE_INLINE_MAX);
    weir_spill_window(table, name_of(slot, index, 2), current, now_ns);
    if (index > 0)
        weir_spill_window(table, name_of(slot, index - 1, 2), slide_count(body >> 21), now_ns);
}

void weir_spill_slot(struct weir_table *table, union weir_u16b slot, uint64_t now_ns)
{
    uint64_t index = weir_slot_index(slot), body = weir_slot_body(slot);
    switch (weir_slot_kind(slot)) {
    case WEIR_KIND_TAT:
        weir_spill_tat(table, weir_slot_fp(slot), slot.lo + (weir_slot_tat_num(slot) != 0), now_ns);
        return;
    case WEIR_KIND_WINDOW:
        weir_spill_window(table, name_of(slot, index, 1), body, now_ns);
        return;
    case WEIR_KIND_SLIDE:
        spill_slide(table, slot, now_ns);
        return;
    case WEIR_KIND_TICK:
        weir_spill_window(table, name_of(slot, index >> (body >> 32 & 63), 2), body & UINT32_MAX,
                          now_ns);
        return;
    case WEIR_KIND_LEASES:
        spill_leases(table, slot, now_ns);
        return;
    case WEIR_KIND_WIDE:
    case WEIR_KIND_EMPTY:
    case WEIR_KIND_CLAIM:
    case WEIR_KIND_LEASE: /* charged in Redis: tokens that are lost are only never spent */
        return;
    }
}
