/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/sub_windows.h"

#include "algo/math.h"

/* The most that is ever in use.  A difference of two totals above it is less than nothing: the
 * opening is of hits that were given back, or of a time that the clock went back behind. */
#define USED_MAX ((UINT32_C(1) << 31) - 1)

/* How far the totals step back behind the openings that are not to count any more: so many hits
 * later they would again, if they are not overwritten by then. */
#define STEP_BACK (UINT32_C(1) << 24)

/* now in sub-windows. */
struct sub_moment {
    uint64_t index;
    uint64_t elapsed_ns;
    uint64_t width_ns;
};

/* Hits since the opening of the sub-window that is `age` before the newest; 0 if it was never
 * opened.  newest_at is the newest one's cell. */
static uint32_t hits_since(const struct weir_limit *limit, const struct weir_sub *state,
                           const uint64_t *cells, uint32_t newest_at, uint32_t age)
{
    if (age == 0)
        return state->total - state->base;
    uint32_t at = newest_at >= age ? newest_at - age : newest_at + weir_sub_cells(limit) - age;
    /* Relaxed: a cell that was overtaken belongs to a state that was too, and its swap fails. */
    uint64_t cell = __atomic_load_n(&cells[at], __ATOMIC_RELAXED);
    uint32_t hits = state->total - (uint32_t)cell;
    return cell >> 32 == (uint32_t)(state->index - age) && hits <= USED_MAX ? hits : 0;
}

static uint32_t newest_cell(const struct weir_limit *limit, const struct weir_sub *state)
{
    return (uint32_t)(state->index % weir_sub_cells(limit));
}

/* Hits in the sub-windows from `oldest` on.  Not simply those since the oldest opening: hits that
 * were given back may reach behind younger openings, whose totals are then too high; the one that
 * was the newest when they were given back has the true one. */
static uint32_t used_since(const struct weir_limit *limit, const struct weir_sub *state,
                           const uint64_t *cells, uint64_t oldest)
{
    uint32_t newest_at = newest_cell(limit, state);
    uint32_t used = 0;
    for (uint32_t age = 0; age <= limit->buckets && oldest + age <= state->index; age++) {
        uint32_t hits = hits_since(limit, state, cells, newest_at, age);
        used = hits > used ? hits : used;
    }
    return used;
}

/* Brings a state from the future within N sub-windows of now; returns now. */
static struct sub_moment catch_up(const struct weir_limit *limit, struct weir_sub *state,
                                  const uint64_t *cells, uint64_t now_ns)
{
    struct sub_moment at = {.width_ns = limit->window_ns / limit->buckets};
    at.index = now_ns / at.width_ns;
    at.elapsed_ns = now_ns - at.index * at.width_ns;
    if (state->index > at.index + limit->buckets) {
        uint32_t used = used_since(limit, state, cells, state->index - limit->buckets);
        /* The cells speak of a time that is to come again.  The oldest opening that counts is
         * total - used: step back behind it. */
        state->total -= used + STEP_BACK;
        state->base = state->total - used;
        state->index = at.index + limit->buckets;
    }
    return at;
}

/* The sub-window that counts now, and the oldest that does. */
static uint64_t current_index(const struct weir_sub *state, const struct sub_moment *at)
{
    return weir_max(state->index, at->index);
}

static uint64_t oldest_index(const struct weir_limit *limit, const struct weir_sub *state,
                             const struct sub_moment *at)
{
    return weir_sat_sub(current_index(state, at), limit->buckets);
}

/* From now until at most `room` are in use; more than that are now. */
static uint64_t wait_until_used(const struct weir_limit *limit, const struct weir_sub *state,
                                const uint64_t *cells, const struct sub_moment *at, uint64_t room)
{
    uint32_t newest_at = newest_cell(limit, state);
    uint32_t age = 0; /* of the youngest sub-window that must go */
    while (age < limit->buckets && hits_since(limit, state, cells, newest_at, age) <= room)
        age++;
    /* It counts for N more sub-windows after its own. */
    uint64_t gone_at = state->index - age + limit->buckets + 1;
    return (gone_at - at->index) * at->width_ns - at->elapsed_ns;
}

static void report(const struct weir_limit *limit, const struct weir_sub *state,
                   const uint64_t *cells, const struct sub_moment *at, struct weir_verdict *out)
{
    uint32_t used = used_since(limit, state, cells, oldest_index(limit, state, at));
    out->limit = limit->requests;
    out->remaining = weir_sat_sub(limit->requests, used);
    if (used > 0)
        out->reset_after_ns = wait_until_used(limit, state, cells, at, 0);
}

void weir_sub_windows_take(const struct weir_limit *limit, struct weir_sub *state,
                           const uint64_t *cells, uint64_t now_ns, uint64_t hits,
                           struct weir_verdict *out)
{
    if (weir_limit_is_closed(limit, hits, out))
        return;
    struct sub_moment at = catch_up(limit, state, cells, now_ns);
    uint32_t used = used_since(limit, state, cells, oldest_index(limit, state, &at));
    *out = (struct weir_verdict){
        .allowed = weir_sat_add(used, hits) <= limit->requests,
        .before = used,
    };
    if (hits > 0 && (out->allowed || limit->count_rejected)) {
        if (state->index < at.index) {
            state->index = at.index;
            state->base = state->total;
        }
        state->total += (uint32_t)weir_min(hits, USED_MAX - used);
    }
    if (!out->allowed)
        out->retry_after_ns = hits > limit->requests ? WEIR_NEVER
                                                     : wait_until_used(limit, state, cells, &at,
                                                                       limit->requests - hits);
    report(limit, state, cells, &at, out);
}

void weir_sub_windows_give(const struct weir_limit *limit, struct weir_sub *state,
                           const uint64_t *cells, uint64_t now_ns, uint64_t hits,
                           struct weir_verdict *out)
{
    if (weir_limit_is_closed(limit, 0, out))
        return;
    struct sub_moment at = catch_up(limit, state, cells, now_ns);
    uint32_t used = used_since(limit, state, cells, oldest_index(limit, state, &at));
    *out = (struct weir_verdict){.allowed = true, .before = used};
    uint32_t gone = (uint32_t)weir_min(hits, used);
    if (gone > state->total - state->base)
        state->base = state->total - gone;
    state->total -= gone;
    report(limit, state, cells, &at, out);
}

void weir_sub_windows_add(const struct weir_limit *limit, struct weir_sub *state,
                          const uint64_t *cells, uint64_t at_ns, uint64_t hits)
{
    struct weir_limit counting = *limit;
    struct weir_verdict ignored;
    counting.count_rejected = true;
    weir_sub_windows_take(&counting, state, cells, at_ns, hits, &ignored);
}

uint32_t weir_sub_windows_used(const struct weir_limit *limit, const struct weir_sub *state,
                               const uint64_t *cells, uint64_t now_ns)
{
    struct weir_sub sub = *state;
    struct sub_moment at = catch_up(limit, &sub, cells, now_ns);
    return used_since(limit, &sub, cells, oldest_index(limit, &sub, &at));
}
