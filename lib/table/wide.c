/* SPDX-License-Identifier: Apache-2.0 */
#include "table/wide.h"

#include "table/spill.h"

#define LAST_MASK ((UINT64_C(1) << 63) - 1)
#define BITS_20 ((UINT64_C(1) << 20) - 1)
#define BITS_21 ((UINT64_C(1) << 21) - 1)

union weir_u16b weir_wide_pack_log(const struct weir_log *log, uint64_t nonce)
{
    return (union weir_u16b){
        .lo = nonce << 63 | (log->last_ns & LAST_MASK),
        .hi = (uint64_t)log->head << 42 | (uint64_t)log->len << 21 | log->run,
    };
}

struct weir_log weir_wide_unpack_log(union weir_u16b control, uint32_t capacity)
{
    struct weir_log log = {
        .last_ns = control.lo & LAST_MASK,
        .head = (uint32_t)(control.hi >> 42 & BITS_20),
        .len = (uint32_t)(control.hi >> 21 & BITS_21),
        .run = (uint32_t)(control.hi & BITS_21),
    };
    if (log.head >= capacity)
        log.head = 0;
    if (log.len > capacity)
        log.len = capacity;
    if (log.run > log.len)
        log.run = log.len;
    return log;
}

union weir_u16b weir_wide_pack_sub(const struct weir_sub *sub)
{
    return (union weir_u16b){.lo = (uint64_t)sub->base << 32 | sub->total, .hi = sub->index};
}

struct weir_sub weir_wide_unpack_sub(union weir_u16b control)
{
    return (struct weir_sub){
        .index = control.hi & ((UINT64_C(1) << 40) - 1),
        .base = (uint32_t)(control.lo >> 32),
        .total = (uint32_t)control.lo,
    };
}

union weir_u16b weir_wide_pack_slide(const struct weir_slide *slide, uint64_t nonce)
{
    return (union weir_u16b){
        .lo = slide->current << 24 | (slide->index & 0xffffff),
        .hi = (nonce & 0x1fff) << 50 | slide->previous << 10 | slide->index >> 24,
    };
}

struct weir_slide weir_wide_unpack_slide(union weir_u16b control)
{
    return (struct weir_slide){
        .index = (control.hi & 0x3ff) << 24 | (control.lo & 0xffffff),
        .previous = control.hi >> 10 & WEIR_WIDE_COUNT_MAX,
        .current = control.lo >> 24,
    };
}

/* Sets one cell, but only while the control word is what the value was made from.  A helper that
 * sleeps between the check and the swap does no harm: entries never go back in time, so the swap
 * succeeds late only where it changes nothing. */
bool weir_wide_set_cell(struct weir_extent *extent, uint32_t at, uint64_t value,
                        union weir_u16b control)
{
    uint64_t seen = __atomic_load_n(&extent->cells[at], __ATOMIC_ACQUIRE);
    while (seen != value) {
        if (!weir_eq16(weir_load16(&extent->control), control))
            return false;
        if (__atomic_compare_exchange_n(&extent->cells[at], &seen, value, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE))
            return true;
    }
    return true;
}

bool weir_wide_flush(struct weir_extent *extent, uint32_t capacity, struct weir_wide_ref ref,
                     union weir_u16b control)
{
    if (ref.flavour == WEIR_WIDE_SUB) {
        struct weir_sub sub = weir_wide_unpack_sub(control);
        uint32_t at = (uint32_t)(sub.index % (ref.buckets + 1));
        return weir_wide_set_cell(extent, at, weir_sub_cell(&sub), control);
    }
    if (ref.flavour != WEIR_WIDE_LOG)
        return true;
    struct weir_log log = weir_wide_unpack_log(control, capacity);
    uint32_t at = log.head;
    for (uint32_t rank = 1; rank <= log.run; rank++) {
        at = at == 0 ? capacity - 1 : at - 1;
        if (!weir_wide_set_cell(extent, at, log.last_ns, control))
            return false;
    }
    return true;
}

/* Whether the cells of such a state lie within its extent. */
static bool is_sound(struct weir_wide_ref ref, uint32_t capacity)
{
    switch (ref.flavour) {
    case WEIR_WIDE_LOG:
        return capacity > 0;
    case WEIR_WIDE_SUB:
        return ref.buckets > 1 && ref.buckets <= WEIR_BUCKETS_MAX && ref.buckets < capacity;
    case WEIR_WIDE_SLIDE:
        return true;
    }
    return false;
}

bool weir_wide_read(const struct weir_table *table, union weir_u16b slot,
                    struct weir_extent **extent, union weir_u16b *control)
{
    struct weir_wide_ref ref = weir_wide_unpack_ref(weir_slot_body(slot));
    *extent = weir_extent_at(table, ref.unit);
    if (*extent == NULL || !is_sound(ref, weir_extent_capacity(table, ref.unit)))
        return false;
    *control = weir_load16(&(*extent)->control);
    /* After the control word: an extent changes hands before its control word is made anew. */
    return weir_extent_is_of(*extent, weir_slot_fp(slot), ref.nonce);
}

bool weir_wide_freeze(const struct weir_table *table, union weir_u16b slot,
                      struct weir_extent **extent, union weir_u16b *control)
{
    while (weir_wide_read(table, slot, extent, control)) {
        if (control->hi & WEIR_CONTROL_FROZEN)
            return true;
        union weir_u16b frozen = *control;
        frozen.hi |= WEIR_CONTROL_FROZEN;
        if (weir_cas16(&(*extent)->control, *control, frozen)) {
            *control = frozen;
            return true;
        }
    }
    return false;
}

/* Charges what a control word says to a table's sketch: this table's, or another's that it is
 * moved to. */
void weir_wide_charge(struct weir_table *to, const struct weir_table *from, union weir_u16b slot,
                      const struct weir_extent *extent, union weir_u16b control, uint64_t now_ns)
{
    struct weir_wide_ref ref = weir_wide_unpack_ref(weir_slot_body(slot));
    struct weir_spill_name name = {.fp = weir_slot_fp(slot),
                                   .index = weir_slot_index(slot),
                                   .class = weir_slot_class(slot),
                                   .lasts = 2};
    uint32_t capacity = weir_extent_capacity(from, ref.unit);
    uint64_t window_s = weir_class_window_s(from, name.class);
    struct weir_limit limit = {.window_ns = window_s * WEIR_NS_PER_S,
                               .buckets = (uint8_t)ref.buckets};
    /* A damaged list of windows must not be divided by. */
    if (window_s == 0 || window_s > WEIR_WINDOW_S_MAX)
        return;
    if (ref.flavour == WEIR_WIDE_SLIDE) {
        struct weir_slide slide = weir_wide_unpack_slide(control);
        name.index = slide.index;
        weir_spill_window(to, name, slide.current, now_ns);
        if (name.index-- > 0)
            weir_spill_window(to, name, slide.previous, now_ns);
        return;
    }
    uint64_t count = 0;
    if (ref.flavour == WEIR_WIDE_LOG) {
        struct weir_log log = weir_wide_unpack_log(control, capacity);
        struct weir_log_ring ring = {.cells = extent->cells, .capacity = capacity};
        count = weir_sliding_log_live(&limit, &log, &ring, now_ns);
    } else {
        struct weir_sub sub = weir_wide_unpack_sub(control);
        count = weir_sub_windows_used(&limit, &sub, extent->cells, now_ns);
    }
    /* One count for the window that the slot is dated in: whoever comes back reads that window and
     * the one before. */
    weir_spill_window(to, name, count, now_ns);
}

bool weir_wide_evict(struct weir_table *table, union weir_u16b slot, uint64_t now_ns)
{
    struct weir_extent *extent;
    union weir_u16b control;
    if (!weir_wide_freeze(table, slot, &extent, &control))
        return true; /* its extent is another's: there is nothing to charge */
    struct weir_wide_ref ref = weir_wide_unpack_ref(weir_slot_body(slot));
    if (!weir_wide_flush(extent, weir_extent_capacity(table, ref.unit), ref, control))
        return false;
    weir_wide_charge(table, table, slot, extent, control, now_ns);
    return true;
}

void weir_wide_release(struct weir_table *table, union weir_u16b slot)
{
    struct weir_wide_ref ref = weir_wide_unpack_ref(weir_slot_body(slot));
    weir_extent_release(table, ref.unit, weir_slot_fp(slot), ref.nonce);
}
