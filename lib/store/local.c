/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local.h"

#include "algo/concurrency.h"
#include "algo/fixed_window.h"
#include "algo/leaky_bucket.h"
#include "algo/sketch.h"
#include "algo/sliding_counter.h"
#include "algo/token_bucket.h"
#include "base/err.h"
#include "base/hot.h"
#include "store/call.h"
#include "store/rates.h"
#include "store/seed.h"
#include "store/there.h"
#include "table/spill.h"

#define LEASE_BITS 14
#define LEASE_MASK ((UINT64_C(1) << LEASE_BITS) - 1)

/* Each kind of state: from a slot, through the algorithm, to a slot. ----------------------------
 *
 * A slot of another kind than the limit's reads as unused: the empty slot does, too.  Each is a
 * function of its own, and stays one: inlined into step_slot(), all would pay for the registers and
 * the stack of the most demanding. */
#define STEP static __attribute__((noinline)) union weir_u16b

STEP step_window(struct weir_call *c, uint64_t fp, union weir_u16b value)
{
    struct weir_window state = {0};
    if (weir_slot_kind(value) == WEIR_KIND_WINDOW)
        state =
            (struct weir_window){.index = weir_slot_index(value), .count = weir_slot_body(value)};
    if (c->op <= WEIR_OP_LOOK)
        weir_fixed_window_take(c->limit, &state, c->now_ns, c->hits, c->out);
    else if (c->op == WEIR_OP_GIVE)
        weir_fixed_window_give(c->limit, &state, c->now_ns, c->hits, c->out);
    else
        weir_fixed_window_add(c->limit, &state, c->now_ns, c->hits);
    return weir_slot_pack(fp, WEIR_KIND_WINDOW, c->limit->window_class, state.index, state.count);
}

STEP step_slide(struct weir_call *c, uint64_t fp, union weir_u16b value)
{
    struct weir_slide state = {0};
    if (weir_slot_kind(value) == WEIR_KIND_SLIDE)
        state = (struct weir_slide){.index = weir_slot_index(value),
                                    .previous = weir_slot_body(value) >> 21,
                                    .current = weir_slot_body(value) & WEIR_SLIDE_INLINE_MAX};
    if (c->op <= WEIR_OP_LOOK)
        weir_sliding_counter_take(c->limit, &state, WEIR_SLIDE_INLINE_MAX, c->now_ns, c->hits,
                                  c->out);
    else if (c->op == WEIR_OP_GIVE)
        weir_sliding_counter_give(c->limit, &state, c->now_ns, c->hits, c->out);
    else
        weir_sliding_counter_add(c->limit, &state, WEIR_SLIDE_INLINE_MAX, c->now_ns, c->hits);
    return weir_slot_pack(fp, WEIR_KIND_SLIDE, c->limit->window_class, state.index,
                          state.previous << 21 | state.current);
}

STEP step_tick(struct weir_call *c, uint64_t fp, union weir_u16b value)
{
    struct weir_tick state = {0};
    if (weir_slot_kind(value) == WEIR_KIND_TICK)
        state = (struct weir_tick){.tick = weir_slot_index(value),
                                   .used = weir_slot_body(value) & UINT32_MAX};
    if (c->op <= WEIR_OP_LOOK)
        weir_token_tick_take(c->limit, &state, c->now_ns, c->hits, c->out);
    else if (c->op == WEIR_OP_GIVE)
        weir_token_tick_give(c->limit, &state, c->now_ns, c->hits, c->out);
    else
        weir_token_tick_add(c->limit, &state, c->now_ns, c->hits);
    return weir_slot_pack(fp, WEIR_KIND_TICK, c->limit->window_class, state.tick,
                          (uint64_t)c->limit->window_shift << 32 | state.used);
}

/* A bucket that got another rate since: the same tokens are in use, at the new rate. */
static __attribute__((noinline, cold)) struct weir_tat rescaled(const struct weir_call *c,
                                                                struct weir_tat tat,
                                                                uint32_t generation)
{
    uint32_t requests = weir_rates_find(c->table, c->limit, c->key, generation);
    return weir_tat_rescale(tat, c->now_ns, c->limit, requests);
}

static struct weir_tat unpack_tat(const struct weir_call *c, union weir_u16b value)
{
    const struct weir_limit *limit = c->limit;
    if (weir_slot_kind(value) != WEIR_KIND_TAT)
        return (struct weir_tat){0};
    struct weir_tat tat = {.ns = value.lo, .num = weir_slot_tat_num(value)};
    uint32_t generation = weir_slot_tat_generation(value);
    if (WEIR_SELDOM(generation != limit->generation) && limit->record != WEIR_NO_RECORD)
        return rescaled(c, tat, generation);
    return tat;
}

STEP give_or_add_tokens(struct weir_call *c, uint64_t fp, union weir_u16b value)
{
    struct weir_tat state = unpack_tat(c, value);
    if (c->op == WEIR_OP_GIVE)
        weir_token_bucket_give(c->limit, &state, c->now_ns, c->hits, c->out);
    else
        weir_token_bucket_add(c->limit, &state, c->now_ns, c->hits);
    return weir_slot_pack_tat(fp, c->limit->generation, state.ns, state.num);
}

WEIR_HOT STEP step_token(struct weir_call *c, uint64_t fp, union weir_u16b value)
{
    if (c->op > WEIR_OP_LOOK)
        return give_or_add_tokens(c, fp, value);
    struct weir_tat state = unpack_tat(c, value);
    weir_token_bucket_take(c->limit, &state, c->now_ns, c->hits, c->out);
    return weir_slot_pack_tat(fp, c->limit->generation, state.ns, state.num);
}

STEP step_leaky(struct weir_call *c, uint64_t fp, union weir_u16b value)
{
    struct weir_tat state = unpack_tat(c, value);
    if (c->op == WEIR_OP_RELEASE) {
        c->did = weir_leaky_bucket_release(c->limit, &state, c->now_ns, c->hits, c->mark);
    } else if (c->op == WEIR_OP_ADD) {
        weir_token_bucket_add(c->limit, &state, c->now_ns, c->hits);
    } else {
        /* A place in the queue is given back by its mark only: who gives without one just looks. */
        uint64_t hits = c->op == WEIR_OP_GIVE ? 0 : c->hits;
        weir_leaky_bucket_take(c->limit, &state, c->now_ns, hits, c->out);
        c->new_mark = weir_leaky_bucket_mark(&state);
    }
    return weir_slot_pack_tat(fp, c->limit->generation, state.ns, state.num);
}

STEP step_leases(struct weir_call *c, uint64_t fp, union weir_u16b value)
{
    struct weir_leases state = {0};
    if (weir_slot_kind(value) == WEIR_KIND_LEASES) {
        uint64_t held = weir_slot_body(value);
        state = (struct weir_leases){.deadline = weir_slot_index(value),
                                     .held = {(uint32_t)(held & LEASE_MASK),
                                              (uint32_t)(held >> LEASE_BITS & LEASE_MASK),
                                              (uint32_t)(held >> (2 * LEASE_BITS))}};
    }
    switch (c->op) {
    case WEIR_OP_TAKE:
    case WEIR_OP_LEASE: /* never asked of the table */
    case WEIR_OP_LOOK:
        weir_concurrency_take(c->limit, &state, c->now_ns, c->hits, c->out, &c->new_mark);
        break;
    case WEIR_OP_GIVE:
        weir_concurrency_give(c->limit, &state, c->now_ns, c->hits, c->out);
        break;
    case WEIR_OP_RELEASE:
        c->did = weir_concurrency_release(c->limit, &state, c->now_ns, c->hits, c->mark);
        break;
    case WEIR_OP_RENEW:
        c->new_mark = c->mark;
        c->did = weir_concurrency_renew(c->limit, &state, c->now_ns, c->hits, &c->new_mark);
        break;
    case WEIR_OP_ADD: /* see weir_local_add() */
        break;
    }
    uint64_t body = (uint64_t)state.held[2] << (2 * LEASE_BITS) |
                    (uint64_t)state.held[1] << LEASE_BITS | state.held[0];
    return weir_slot_pack(fp, WEIR_KIND_LEASES, c->limit->window_class, state.deadline, body);
}

WEIR_HOT static union weir_u16b step_slot(struct weir_call *c, uint64_t fp, union weir_u16b value)
{
    switch ((enum weir_algorithm)c->limit->algorithm) {
    case WEIR_FIXED_WINDOW:
        return step_window(c, fp, value);
    case WEIR_SLIDING_WINDOW_COUNTER:
    case WEIR_SLIDING_WINDOW_LOG: /* not wide: see apply() */
        return step_slide(c, fp, value);
    case WEIR_LEAKY_BUCKET:
        return step_leaky(c, fp, value);
    case WEIR_CONCURRENCY:
        return step_leases(c, fp, value);
    case WEIR_TOKEN_BUCKET:
        break;
    }
    return c->limit->refill_interval ? step_tick(c, fp, value) : step_token(c, fp, value);
}

/* A key without a slot.  True: done.  Apart from the way of all others, which it would lengthen. */
static __attribute__((noinline, cold)) bool first(struct weir_call *c, const struct weir_home *home)
{
    /* Most answers to a first look leave no trace; those that do are decided again under a claim,
     * because what the sketch says is only then sure to be the last word. */
    union weir_u16b seed = weir_seed_slot(c, home->fp);
    (void)step_slot(c, home->fp, seed);
    c->out->by_sketch = seed.hi != 0 && !c->out->allowed;
    if (!weir_call_leaves_trace(c))
        return true;
    union weir_u16b *slot, claim;
    if (weir_slots_claim(c->table, home, c->now_ns, &slot, &claim))
        return false;
    seed = weir_seed_slot(c, home->fp);
    union weir_u16b value = step_slot(c, home->fp, seed);
    if (!weir_call_leaves_trace(c))
        value = (union weir_u16b){.lo = 0, .hi = 0};
    if (seed.hi != 0)
        WEIR_TABLE_COUNT(c->table, home->fp, seeds);
    return weir_cas16(slot, claim, value);
}

/* A limit that needed an extent before it was lowered still has it. */
static inline bool is_wide_still(const struct weir_call *c, union weir_u16b value)
{
    return c->limit->algorithm == WEIR_SLIDING_WINDOW_COUNTER &&
           WEIR_SELDOM(weir_slot_kind(value) == WEIR_KIND_WIDE);
}

/* A key with a slot.  True: done. */
static inline bool again(struct weir_call *c, uint64_t fp, union weir_u16b *slot,
                         union weir_u16b value)
{
    union weir_u16b next = step_slot(c, fp, value);
    bool found_nothing = (c->op == WEIR_OP_RELEASE || c->op == WEIR_OP_RENEW) && !c->did;
    return weir_slot_put(slot, value, c->op == WEIR_OP_LOOK || found_nothing ? value : next);
}

static __attribute__((noinline, cold)) void apply_wide(struct weir_call *c,
                                                       const struct weir_home *home)
{
    union weir_u16b value, *slot;
    do
        slot = weir_slots_find(home, &value);
    while (!weir_wide_apply(c, home, slot, value));
}

static inline bool apply_in(struct weir_call *c, const struct weir_home *home,
                            union weir_u16b *slot, union weir_u16b value)
{
    if (is_wide_still(c, value))
        return weir_wide_apply(c, home, slot, value);
    return again(c, home->fp, slot, value);
}

/* One copy for each operation below, which need not ask then what it is.  Returns the slot that the
 * key had before; NULL: it had none, or has more than a slot. */
static inline __attribute__((always_inline)) union weir_u16b *apply(struct weir_call *c)
{
    struct weir_home home = weir_slots_locate(c->table, c->key);
    weir_slots_prefetch(&home);
    if (weir_limit_is_wide(c->limit)) {
        apply_wide(c, &home);
        return NULL;
    }
    union weir_u16b value, *slot;
    do
        slot = weir_slots_find(&home, &value);
    while (!(slot != NULL ? apply_in(c, &home, slot, value) : first(c, &home)));
    return slot;
}

/* The same where the key was met before.  False: it is there no longer, and nothing was done. */
static inline bool apply_there(struct weir_call *c, union weir_u16b *slot)
{
    uint64_t fp = weir_key_fp(c->key);
    union weir_u16b value = weir_peek16(slot);
    return weir_slot_is_live(value, fp) && !is_wide_still(c, value) && again(c, fp, slot, value);
}

void weir_local_prefetch(const struct weir_table *table, uint64_t key)
{
    struct weir_home home = weir_slots_locate(table, key);
    weir_slots_prefetch(&home);
}

WEIR_HOT void weir_local_prefetch_likely(const struct weir_table *table, uint64_t key)
{
    struct weir_home home = weir_slots_locate(table, key);
    for (uint32_t line = 0; line < 2; line++)
        __builtin_prefetch(weir_slots_line(&home, line), 1);
}

WEIR_HOT union weir_u16b *weir_local_find(const struct weir_table *table, uint64_t key)
{
    union weir_u16b value;
    struct weir_home home = weir_slots_locate(table, key);
    return weir_slots_find(&home, &value);
}

WEIR_HOT void weir_local_take_again(struct weir_table *table, const struct weir_limit *limit,
                                    uint64_t key, uint64_t now_ns, uint64_t hits,
                                    struct weir_verdict *out, uint64_t *mark, union weir_u16b **met)
{
    *mark = 0;
    if (weir_limit_is_closed(limit, hits, out))
        return;
    if (limit->approx != NULL) {
        weir_sketch_take(limit, limit->approx, key, now_ns, hits, out);
        return;
    }
    struct weir_call c = weir_call_of(table, limit, key, now_ns, hits, WEIR_OP_TAKE, out);
    if (*met == NULL || !apply_there(&c, *met))
        *met = apply(&c);
    if (out->allowed && hits > 0)
        *mark = c.new_mark;
}

void weir_local_take(struct weir_table *table, const struct weir_limit *limit, uint64_t key,
                     uint64_t now_ns, uint64_t hits, struct weir_verdict *out, uint64_t *mark)
{
    union weir_u16b *met = NULL;
    weir_local_take_again(table, limit, key, now_ns, hits, out, mark, &met);
}

/* A token bucket where it was met, if it is still there and still at its limit's rate: one
 * comparison says so.  False: it is not, or somebody else was faster, and nothing was done. */
static __attribute__((noinline)) bool take_parts_there(const struct weir_limit *limit, uint64_t key,
                                                       uint64_t now_ns, uint64_t hits,
                                                       struct weir_verdict *out,
                                                       union weir_u16b *slot)
{
    union weir_u16b value = weir_peek16(slot);
    uint64_t fp = weir_key_fp(key);
    struct weir_tat state = {.ns = value.lo, .num = weir_slot_tat_num(value)};
    if (value.hi != weir_slot_pack_tat(fp, limit->generation, 0, state.num).hi)
        return false;
    weir_token_bucket_take(limit, &state, now_ns, hits, out);
    return weir_slot_put(slot, value,
                         weir_slot_pack_tat(fp, limit->generation, state.ns, state.num));
}

/* Most rates have steps of whole nanoseconds. */
WEIR_HOT bool weir_local_take_there(const struct weir_limit *limit, uint64_t key, uint64_t now_ns,
                                    uint64_t hits, struct weir_verdict *out, union weir_u16b *slot)
{
    if (WEIR_SELDOM(!weir_there_is_whole(limit)))
        return take_parts_there(limit, key, now_ns, hits, out, slot);
    return weir_there_take(limit, weir_there_mark(limit->generation, key), now_ns, hits, out, slot);
}

void weir_local_look(struct weir_table *table, const struct weir_limit *limit, uint64_t key,
                     uint64_t now_ns, uint64_t hits, struct weir_verdict *out)
{
    if (weir_limit_is_closed(limit, hits, out))
        return;
    if (limit->approx != NULL) {
        weir_sketch_look(limit, limit->approx, key, now_ns, hits, out);
        return;
    }
    struct weir_call c = weir_call_of(table, limit, key, now_ns, hits, WEIR_OP_LOOK, out);
    (void)apply(&c);
}

void weir_local_add(struct weir_table *table, const struct weir_limit *limit, uint64_t key,
                    uint64_t at_ns, uint64_t hits)
{
    struct weir_verdict unused = {0};
    WEIR_ASSERT(limit->approx == NULL && limit->algorithm != WEIR_CONCURRENCY);
    if (limit->requests == 0 || hits == 0)
        return;
    struct weir_call c = weir_call_of(table, limit, key, at_ns, hits, WEIR_OP_ADD, &unused);
    c.did = true;
    (void)apply(&c);
}

void weir_local_give(struct weir_table *table, const struct weir_limit *limit, uint64_t key,
                     uint64_t now_ns, uint64_t hits, struct weir_verdict *out)
{
    if (weir_limit_is_closed(limit, 0, out))
        return;
    if (limit->approx != NULL) {
        weir_sketch_give(limit, limit->approx, key, now_ns, hits, out);
        return;
    }
    struct weir_call c = weir_call_of(table, limit, key, now_ns, hits, WEIR_OP_GIVE, out);
    /* A key that the sketch remembers gets its slot back, so that there is something to give to. */
    struct weir_home home = weir_slots_locate(table, key);
    c.did = weir_seed_slot(&c, home.fp).hi != 0;
    (void)apply(&c);
}

void weir_local_release(struct weir_table *table, const struct weir_limit *limit, uint64_t key,
                        uint64_t now_ns, uint64_t hits, uint64_t mark)
{
    struct weir_verdict unused = {0};
    bool has_marks = limit->algorithm == WEIR_CONCURRENCY || limit->algorithm == WEIR_LEAKY_BUCKET;
    if (!has_marks || mark == 0 || limit->requests == 0)
        return;
    struct weir_call c = weir_call_of(table, limit, key, now_ns, hits, WEIR_OP_RELEASE, &unused);
    c.mark = mark;
    (void)apply(&c);
}

int weir_local_renew(struct weir_table *table, const struct weir_limit *limit, uint64_t key,
                     uint64_t now_ns, uint64_t hits, uint64_t *mark)
{
    struct weir_verdict unused = {0};
    if (limit->algorithm != WEIR_CONCURRENCY || limit->requests == 0)
        return WEIR_ERR_NOT_FOUND;
    struct weir_call c = weir_call_of(table, limit, key, now_ns, hits, WEIR_OP_RENEW, &unused);
    c.mark = *mark;
    (void)apply(&c);
    if (!c.did)
        return WEIR_ERR_NOT_FOUND;
    *mark = c.new_mark;
    return 0;
}
