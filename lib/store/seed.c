/* SPDX-License-Identifier: Apache-2.0 */
#include "store/seed.h"

#include "table/spill.h"

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* A process whose clock was read a moment later may have counted in the next window already.  So
 * near the end of a window what was charged to the next one counts, too; elsewhere nobody can
 * have been there, and what its cells say is other keys'. */
static bool is_near_end(const struct weir_call *c, uint64_t window_ns)
{
    uint64_t left_ns = window_ns - c->now_ns % window_ns;
    return left_ns <= WEIR_CLOCK_LAG_S * WEIR_NS_PER_S;
}

static uint64_t spilled(const struct weir_call *c, uint64_t fp, uint64_t index)
{
    struct weir_spill_name name = {.fp = fp,
                                   .index = index,
                                   .class = c->limit->window_class,
                                   .lasts = c->limit->algorithm == WEIR_FIXED_WINDOW ? 1 : 2};
    return weir_spilled_window(c->table, name, c->now_ns);
}

static uint64_t spilled_ahead(const struct weir_call *c, uint64_t fp, uint64_t window_ns)
{
    return is_near_end(c, window_ns) ? spilled(c, fp, c->now_ns / window_ns + 1) : 0;
}

/* For states that are charged with all they hold to the class window that they were last seen in.
 */
static uint64_t spilled_lately(const struct weir_call *c, uint64_t fp, uint64_t window_ns)
{
    uint64_t index = c->now_ns / window_ns;
    uint64_t now = spilled(c, fp, index);
    uint64_t before = index > 0 ? spilled(c, fp, index - 1) : 0;
    return most(most(now, before), spilled_ahead(c, fp, window_ns));
}

static union weir_u16b seed_tick(const struct weir_call *c, uint64_t fp)
{
    const struct weir_limit *limit = c->limit;
    uint64_t tick = c->now_ns / limit->window_ns;
    uint64_t class_ns = limit->window_ns << limit->window_shift;
    /* Shift 0: one tick refills everything, so only what was used in this tick matters. */
    uint64_t used = limit->window_shift == 0
                        ? most(spilled(c, fp, tick), spilled_ahead(c, fp, class_ns))
                        : spilled_lately(c, fp, class_ns);
    if (used > 0 && is_near_end(c, limit->window_ns))
        tick++; /* it may have had the next refill already */
    return weir_slot_pack(fp, WEIR_KIND_TICK, limit->window_class, tick,
                          (uint64_t)limit->window_shift << 32 | least(used, UINT32_MAX));
}

static union weir_u16b seed_leases(const struct weir_call *c, uint64_t fp)
{
    uint64_t window_ns = c->limit->window_ns, grid_ns = window_ns / 2;
    uint64_t held = spilled_lately(c, fp, 2 * window_ns);
    uint64_t deadline = c->now_ns / grid_ns + 3 + is_near_end(c, grid_ns);
    return weir_slot_pack(fp, WEIR_KIND_LEASES, c->limit->window_class, deadline,
                          least(held, WEIR_CONCURRENCY_LIMIT_MAX));
}

static union weir_u16b seed_tat(const struct weir_call *c, uint64_t fp)
{
    uint64_t cap_ns = c->limit->cap_ns + c->limit->step_ns + 2; /* a leaky bucket's, rounded up */
    uint64_t tat_ns = weir_spilled_tat(c->table, fp, c->now_ns, cap_ns);
    return weir_slot_pack_tat(fp, c->limit->generation, tat_ns, 0);
}

static union weir_u16b remembered(const struct weir_call *c, uint64_t fp)
{
    const union weir_u16b empty = {.lo = 0, .hi = 0};
    const struct weir_limit *limit = c->limit;
    bool is_tick = limit->algorithm == WEIR_TOKEN_BUCKET && limit->refill_interval;
    if (limit->algorithm == WEIR_LEAKY_BUCKET || weir_limit_drips(limit))
        return weir_spill_has_tat(c->table, c->now_ns) ? seed_tat(c, fp) : empty;
    if (!weir_spill_has_window(c->table, limit->window_class, c->now_ns))
        return empty;
    if (is_tick)
        return seed_tick(c, fp);
    if (limit->algorithm == WEIR_CONCURRENCY)
        return seed_leases(c, fp);
    uint64_t index = c->now_ns / limit->window_ns;
    uint64_t current = spilled(c, fp, index), ahead = spilled_ahead(c, fp, limit->window_ns);
    uint64_t previous = index > 0 ? spilled(c, fp, index - 1) : 0;
    if (ahead > 0) {
        index++;
        previous = current;
        current = ahead;
    }
    if (limit->algorithm == WEIR_FIXED_WINDOW) /* ahead or not: this window's count still holds */
        return weir_slot_pack(fp, WEIR_KIND_WINDOW, limit->window_class, index,
                              least(ahead > 0 ? most(previous, current) : current, WEIR_BODY_MAX));
    return weir_slot_pack(fp, WEIR_KIND_SLIDE, limit->window_class, index,
                          least(previous, WEIR_SLIDE_INLINE_MAX) << 21 |
                              least(current, WEIR_SLIDE_INLINE_MAX));
}

union weir_u16b weir_seed_slot(const struct weir_call *c, uint64_t fp)
{
    const union weir_u16b empty = {.lo = 0, .hi = 0};
    union weir_u16b value = remembered(c, fp);
    enum weir_kind kind = weir_slot_kind(value);
    uint64_t body = weir_slot_body(value);
    bool holds_nothing = kind == WEIR_KIND_TAT    ? value.lo == 0
                         : kind == WEIR_KIND_TICK ? (body & UINT32_MAX) == 0
                                                  : body == 0;
    return holds_nothing ? empty : value;
}

struct weir_seed_counts weir_seed_wide(const struct weir_call *c, uint64_t fp)
{
    struct weir_seed_counts counts = {0, 0};
    const struct weir_limit *limit = c->limit;
    if (!weir_spill_has_window(c->table, limit->window_class, c->now_ns))
        return counts;
    uint64_t index = c->now_ns / limit->window_ns;
    if (limit->algorithm == WEIR_SLIDING_WINDOW_COUNTER && limit->buckets == 1) {
        /* What is ahead counts here already: there is no index to say otherwise. */
        counts.current = most(spilled(c, fp, index), spilled_ahead(c, fp, limit->window_ns));
        counts.previous = index > 0 ? spilled(c, fp, index - 1) : 0;
    } else {
        counts.current = spilled_lately(c, fp, limit->window_ns);
    }
    return counts;
}
