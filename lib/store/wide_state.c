/* wide_state.c - decisions on states that live in an extent.
 *
 * The slot says where the extent is; the extent's control word is what is decided on and
 * swapped.  The slot's date is moved on before the control word is, so that a slot never expires
 * before its extent.
 *
 * A frozen control word (an eviction that did not finish, or a move) and a ring too small for a
 * raised limit lead to the same place: the state is frozen, copied into a new extent, and the
 * slot is pointed there.  Whoever gets there first wins; the others find again.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "store/call.h"
#include "store/coarse.h"
#include "store/seed.h"
#include "table/wide.h"

struct wide {
    struct weir_extent *extent;
    uint32_t capacity;
    struct weir_wide_ref ref;
    uint64_t owner; /* of an extent that we have claimed */
};

static enum weir_wide flavour_of(const struct weir_limit *limit)
{
    if (limit->algorithm == WEIR_SLIDING_WINDOW_LOG)
        return WEIR_WIDE_LOG;
    return limit->buckets > 1 ? WEIR_WIDE_SUB : WEIR_WIDE_SLIDE;
}

static uint32_t cells_needed(const struct weir_limit *limit)
{
    switch (flavour_of(limit)) {
    case WEIR_WIDE_LOG:
        return limit->requests;
    case WEIR_WIDE_SUB:
        return weir_sub_cells(limit);
    case WEIR_WIDE_SLIDE:
        break;
    }
    return 0;
}

/* Each flavour: from a control word, through the algorithm, to a control word. ------------------
 */

static union weir_u16b step_log(struct weir_call *c, const struct wide *w, union weir_u16b control)
{
    struct weir_log log = weir_wide_unpack_log(control, w->capacity);
    struct weir_log_ring ring = {.cells = w->extent->cells, .capacity = w->capacity};
    if (c->op <= WEIR_OP_LOOK)
        weir_sliding_log_take(c->limit, &log, &ring, c->now_ns, c->hits, c->out);
    else if (c->op == WEIR_OP_GIVE)
        weir_sliding_log_give(c->limit, &log, &ring, c->now_ns, c->hits, c->out);
    else
        weir_sliding_log_add(c->limit, &log, &ring, c->now_ns, c->hits);
    return weir_wide_pack_log(&log, control.lo >> 63);
}

static union weir_u16b step_sub(struct weir_call *c, const struct wide *w, union weir_u16b control)
{
    struct weir_sub sub = weir_wide_unpack_sub(control);
    if (c->op <= WEIR_OP_LOOK)
        weir_sub_windows_take(c->limit, &sub, w->extent->cells, c->now_ns, c->hits, c->out);
    else if (c->op == WEIR_OP_GIVE)
        weir_sub_windows_give(c->limit, &sub, w->extent->cells, c->now_ns, c->hits, c->out);
    else
        weir_sub_windows_add(c->limit, &sub, w->extent->cells, c->now_ns, c->hits);
    return weir_wide_pack_sub(&sub);
}

static union weir_u16b step_slide(struct weir_call *c, union weir_u16b control)
{
    struct weir_slide slide = weir_wide_unpack_slide(control);
    if (c->op <= WEIR_OP_LOOK)
        weir_sliding_counter_take(c->limit, &slide, WEIR_WIDE_COUNT_MAX, c->now_ns, c->hits,
                                  c->out);
    else if (c->op == WEIR_OP_GIVE)
        weir_sliding_counter_give(c->limit, &slide, c->now_ns, c->hits, c->out);
    else
        weir_sliding_counter_add(c->limit, &slide, WEIR_WIDE_COUNT_MAX, c->now_ns, c->hits);
    return weir_wide_pack_slide(&slide, control.hi >> 50);
}

static union weir_u16b step(struct weir_call *c, const struct wide *w, union weir_u16b control)
{
    switch (w->ref.flavour) {
    case WEIR_WIDE_LOG:
        return step_log(c, w, control);
    case WEIR_WIDE_SUB:
        return step_sub(c, w, control);
    case WEIR_WIDE_SLIDE:
        break;
    }
    return step_slide(c, control);
}

/* A new extent. ---------------------------------------------------------------------------------
 */

static bool claim_extent(struct weir_call *c, uint64_t fp, union weir_u16b *slot, struct wide *out)
{
    uint32_t unit =
        weir_extent_claim(c->table, fp, slot, cells_needed(c->limit), c->now_ns, &out->owner);
    if (unit == WEIR_EXTENT_NONE)
        return false;
    out->extent = weir_extent_at(c->table, unit);
    if (out->extent == NULL) /* a damaged file */
        return false;
    out->capacity = weir_extent_capacity(c->table, unit);
    out->ref = (struct weir_wide_ref){
        .unit = unit,
        .flavour = flavour_of(c->limit),
        .buckets = c->limit->buckets > 1 ? c->limit->buckets : 0,
        .nonce = weir_extent_nonce(out->owner),
    };
    return true;
}

static void release_extent(struct weir_call *c, uint64_t fp, const struct wide *w)
{
    weir_extent_release(c->table, w->ref.unit, fp, w->ref.nonce);
}

/* The first control word, with what the sketch remembers.  Numbers that may begin anywhere begin
 * somewhere else each time, so that no control word of an earlier owner can be mistaken for one
 * of ours. */
static union weir_u16b first_control(struct weir_call *c, const struct wide *w, uint64_t fp,
                                     struct weir_seed_counts seed)
{
    uint64_t nonce = weir_mix64(w->owner);
    if (w->ref.flavour == WEIR_WIDE_SUB) {
        uint64_t width_ns = c->limit->window_ns / c->limit->buckets;
        uint32_t used = seed.current < INT32_MAX ? (uint32_t)seed.current : INT32_MAX;
        struct weir_sub sub = {.index = c->now_ns / width_ns,
                               .base = (uint32_t)nonce,
                               .total = (uint32_t)nonce + used};
        return weir_wide_pack_sub(&sub);
    }
    if (w->ref.flavour == WEIR_WIDE_LOG) {
        uint64_t most = w->capacity;
        uint32_t run = (uint32_t)(seed.current < most ? seed.current : most);
        struct weir_log log = {
            .last_ns = c->now_ns, .head = (uint32_t)(nonce % w->capacity), .len = run, .run = run};
        return weir_wide_pack_log(&log, nonce >> 63);
    }
    struct weir_slide slide = {.index = c->now_ns / c->limit->window_ns,
                               .previous = seed.previous & WEIR_WIDE_COUNT_MAX,
                               .current = seed.current & WEIR_WIDE_COUNT_MAX};
    (void)fp;
    return weir_wide_pack_slide(&slide, nonce);
}

static union weir_u16b slot_value(const struct weir_call *c, uint64_t fp, struct weir_wide_ref ref,
                                  uint64_t index)
{
    return weir_slot_pack(fp, WEIR_KIND_WIDE, c->limit->window_class, index,
                          weir_wide_pack_ref(ref));
}

/* Without an extent: two counters in the slot. */
static struct weir_slide coarse_of(union weir_u16b value)
{
    if (weir_slot_kind(value) != WEIR_KIND_SLIDE)
        return (struct weir_slide){0};
    uint64_t body = weir_slot_body(value);
    return (struct weir_slide){.index = weir_slot_index(value),
                               .previous = body >> 21,
                               .current = body & WEIR_SLIDE_INLINE_MAX};
}

static union weir_u16b step_coarse(struct weir_call *c, uint64_t fp, union weir_u16b value)
{
    struct weir_slide slide = coarse_of(value);
    if (c->op <= WEIR_OP_LOOK)
        weir_coarse_take(c->limit, &slide, c->now_ns, c->hits, c->out);
    else if (c->op == WEIR_OP_GIVE)
        weir_coarse_give(c->limit, &slide, c->now_ns, c->hits, c->out);
    else
        weir_coarse_add(c->limit, &slide, c->now_ns, c->hits);
    return weir_slot_pack(fp, WEIR_KIND_SLIDE, c->limit->window_class, slide.index,
                          slide.previous << 21 | slide.current);
}

/* What a coarse slot looks like that starts with these counts.  One that does not fit is full,
 * and says so by its greatest number. */
static union weir_u16b coarse_seed(const struct weir_call *c, uint64_t fp,
                                   struct weir_seed_counts seed)
{
    uint64_t previous = seed.previous <= WEIR_COARSE_MAX ? seed.previous : WEIR_SLIDE_INLINE_MAX;
    uint64_t current = seed.current <= WEIR_COARSE_MAX ? seed.current : WEIR_SLIDE_INLINE_MAX;
    return weir_slot_pack(fp, WEIR_KIND_SLIDE, c->limit->window_class,
                          c->now_ns / c->limit->window_ns, previous << 21 | current);
}

/* Answers without leaving a trace: on nothing, or on what the sketch remembers, coarsely. */
static void answer_untraced(struct weir_call *c, uint64_t fp)
{
    struct weir_seed_counts seed = weir_seed_wide(c, fp);
    if (seed.current + seed.previous > 0) {
        (void)step_coarse(c, fp, coarse_seed(c, fp, seed));
        c->out->by_sketch = !c->out->allowed;
        return;
    }
    struct weir_extent nothing = {0};
    struct wide w = {.extent = &nothing,
                     .capacity = c->limit->requests,
                     .ref = {.flavour = flavour_of(c->limit)}};
    union weir_u16b zero = {.lo = 0, .hi = 0};
    uint64_t blank_cells[WEIR_BUCKETS_MAX + 1];
    if (w.ref.flavour == WEIR_WIDE_SUB) {
        struct weir_sub sub = {0};
        for (uint32_t i = 0; i <= WEIR_BUCKETS_MAX; i++)
            blank_cells[i] = UINT64_MAX;
        if (c->op == WEIR_OP_GIVE)
            weir_sub_windows_give(c->limit, &sub, blank_cells, c->now_ns, c->hits, c->out);
        else
            weir_sub_windows_take(c->limit, &sub, blank_cells, c->now_ns, c->hits, c->out);
        return;
    }
    (void)step(c, &w, zero); /* an empty log reads no cell */
}

/* Writes a state into a new extent, takes the hits, and swaps what the slot held for a link to
 * it. */
static bool install(struct weir_call *c, uint64_t fp, union weir_u16b *slot, union weir_u16b old,
                    const struct wide *w, struct weir_seed_counts seed)
{
    union weir_u16b control = first_control(c, w, fp, seed);
    bool is_ours = weir_extent_store_control(w->extent, w->owner, control);
    if (w->ref.flavour == WEIR_WIDE_SUB) /* no sub-window has this number */
        for (uint32_t i = 0; is_ours && i < weir_sub_cells(c->limit); i++)
            is_ours = weir_wide_set_cell(w->extent, i, UINT64_MAX, control);
    if (!is_ours || !weir_wide_flush(w->extent, w->capacity, w->ref, control))
        return false;
    union weir_u16b next = step(c, w, control);
    if (!weir_cas16(&w->extent->control, control, next) ||
        !weir_wide_flush(w->extent, w->capacity, w->ref, next))
        return false;
    uint64_t index = c->now_ns / c->limit->window_ns;
    return weir_cas16(slot, old, slot_value(c, fp, w->ref, index));
}

/* The key has no slot. */
static bool first(struct weir_call *c, const struct weir_home *home)
{
    if (c->op != WEIR_OP_ADD)
        answer_untraced(c, home->fp);
    if (!weir_call_leaves_trace(c))
        return true;
    union weir_u16b *slot, claim;
    if (weir_slots_claim(c->table, home, c->now_ns, &slot, &claim))
        return false;
    struct weir_seed_counts seed = weir_seed_wide(c, home->fp);
    if (seed.current + seed.previous > 0)
        WEIR_TABLE_COUNT(c->table, home->fp, seeds);
    struct wide w;
    if (!claim_extent(c, home->fp, slot, &w)) {
        WEIR_TABLE_COUNT(c->table, home->fp, fallbacks);
        union weir_u16b value = step_coarse(c, home->fp, coarse_seed(c, home->fp, seed));
        return weir_cas16(slot, claim, value);
    }
    if (install(c, home->fp, slot, claim, &w, seed))
        return true;
    release_extent(c, home->fp, &w);
    return false;
}

/* A coarse state, or one of before the limit was raised, gets an extent if there is one by
 * now.  Asked when a window begins, and when the coarse counters are too small: not by every
 * refusal. */
static bool refine(struct weir_call *c, uint64_t fp, union weir_u16b *slot, union weir_u16b value)
{
    struct weir_slide slide = coarse_of(value);
    (void)weir_slide_open(&slide, c->limit->window_ns, c->now_ns);
    uint64_t used = slide.previous + slide.current;
    bool is_known = slide.previous < WEIR_SLIDE_INLINE_MAX && slide.current < WEIR_SLIDE_INLINE_MAX;
    bool is_new = weir_slot_index(value) < slide.index;
    bool is_cramped = !c->out->allowed && used + c->hits <= c->limit->requests;
    struct wide w;
    if (c->op != WEIR_OP_TAKE || c->hits == 0 || !is_known || !(is_new || is_cramped) ||
        !claim_extent(c, fp, slot, &w))
        return false;
    struct weir_seed_counts seed = {.current = used};
    if (w.ref.flavour == WEIR_WIDE_SLIDE)
        seed = (struct weir_seed_counts){.previous = slide.previous, .current = slide.current};
    if (install(c, fp, slot, value, &w, seed))
        return true;
    release_extent(c, fp, &w);
    return false;
}

/* Copies a frozen state into an extent that is large enough.  The cells keep their order.
 * False: the extent is no longer ours, or the state no longer what it was. */
static bool copy_state(const struct wide *from, union weir_u16b frozen, const struct wide *to)
{
    frozen.hi &= ~WEIR_CONTROL_FROZEN;
    union weir_u16b control = frozen;
    struct weir_log log = weir_wide_unpack_log(frozen, from->capacity);
    uint32_t cells = from->ref.flavour == WEIR_WIDE_SUB ? from->ref.buckets + 1 : 0;
    uint32_t first_cell = 0;
    if (from->ref.flavour == WEIR_WIDE_LOG) {
        WEIR_ASSERT(to->capacity > 0);
        cells = log.len < to->capacity ? log.len : to->capacity;
        first_cell = log.head + from->capacity - cells;
        log.len = cells;
        log.head = cells % to->capacity;
        log.run = 0; /* all of it is in the cells */
        control = weir_wide_pack_log(&log, frozen.lo >> 63);
    }
    bool is_ours = weir_extent_store_control(to->extent, to->owner, control);
    for (uint32_t i = 0; is_ours && i < cells; i++) {
        uint32_t at = (first_cell + i) % from->capacity;
        uint64_t entry = __atomic_load_n(&from->extent->cells[at], __ATOMIC_ACQUIRE);
        is_ours = weir_wide_set_cell(to->extent, i, entry, control);
    }
    return is_ours;
}

/* Moves the state to a new extent.  Always "find again": the slot has changed, by us or another. */
static void move(struct weir_call *c, uint64_t fp, union weir_u16b *slot, union weir_u16b value,
                 const struct wide *from)
{
    struct weir_extent *extent;
    union weir_u16b frozen;
    if (!weir_wide_freeze(c->table, value, &extent, &frozen) ||
        !weir_wide_flush(extent, from->capacity, from->ref, frozen))
        return;
    struct wide to;
    if (!claim_extent(c, fp, slot, &to)) {
        /* No room to move: charged to the sketch, it starts again from there, coarsely if need be.
         */
        const union weir_u16b empty = {.lo = 0, .hi = 0};
        if (weir_wide_evict(c->table, value, c->now_ns) && weir_cas16(slot, value, empty))
            weir_wide_release(c->table, value);
        return;
    }
    if (copy_state(from, frozen, &to) &&
        weir_cas16(slot, value, slot_value(c, fp, to.ref, weir_slot_index(value))))
        weir_wide_release(c->table, value);
    else
        release_extent(c, fp, &to);
}

/* The slot points to an extent that is not the key's: its maker was taken for dead.  Nothing was
 * counted in it since, so the slot is as good as empty. */
static void forget(union weir_u16b *slot, union weir_u16b value)
{
    const union weir_u16b empty = {.lo = 0, .hi = 0};
    (void)weir_cas16(slot, value, empty);
}

/* The date by which a slot expires is moved on before anything is counted under the new one. */
static bool date_slot(const struct weir_call *c, union weir_u16b *slot, union weir_u16b *value)
{
    uint64_t index = c->now_ns / c->limit->window_ns;
    if (weir_slot_index(*value) >= index)
        return true;
    union weir_u16b dated =
        slot_value(c, weir_slot_fp(*value), weir_wide_unpack_ref(weir_slot_body(*value)), index);
    if (!weir_cas16(slot, *value, dated))
        return false;
    *value = dated;
    return true;
}

/* The key has an extent. */
static bool again(struct weir_call *c, const struct weir_home *home, union weir_u16b *slot,
                  union weir_u16b value)
{
    struct wide w = {.ref = weir_wide_unpack_ref(weir_slot_body(value))};
    union weir_u16b control;
    bool is_alike = w.ref.flavour == flavour_of(c->limit) &&
                    (w.ref.flavour != WEIR_WIDE_SUB || w.ref.buckets == c->limit->buckets);
    if (!is_alike || !weir_wide_read(c->table, value, &w.extent, &control)) {
        forget(slot, value);
        return false;
    }
    w.capacity = weir_extent_capacity(c->table, w.ref.unit);
    if ((control.hi & WEIR_CONTROL_FROZEN) || w.capacity < cells_needed(c->limit)) {
        move(c, home->fp, slot, value, &w);
        return false;
    }
    if (!weir_wide_flush(w.extent, w.capacity, w.ref, control))
        return false;
    union weir_u16b next = step(c, &w, control);
    if (c->op == WEIR_OP_LOOK || weir_eq16(next, control))
        return weir_eq16(weir_load16(&w.extent->control), control);
    if (!date_slot(c, slot, &value) || !weir_cas16(&w.extent->control, control, next))
        return false;
    (void)weir_wide_flush(w.extent, w.capacity, w.ref, next);
    return true;
}

bool weir_wide_apply(struct weir_call *c, const struct weir_home *home, union weir_u16b *slot,
                     union weir_u16b value)
{
    if (slot == NULL)
        return first(c, home);
    if (weir_slot_kind(value) == WEIR_KIND_WIDE)
        return again(c, home, slot, value);
    union weir_u16b next = step_coarse(c, home->fp, value);
    if (refine(c, home->fp, slot, value))
        return true;
    if (c->op == WEIR_OP_LOOK || weir_eq16(next, value))
        return weir_eq16(weir_peek16(slot), value);
    return weir_cas16(slot, value, next);
}
