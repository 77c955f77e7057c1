/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/sliding_counter.h"

/* current + round(previous * (W - e) / W) */
static uint64_t estimate(const struct weir_limit *limit, const struct weir_slide *state,
                         const struct weir_moment *at)
{
    uint64_t left_ns = limit->window_ns - at->elapsed_ns;
    uint64_t weighed;
    if (left_ns == limit->window_ns || state->previous == 0) {
        weighed = state->previous;
    } else {
        weighed = weir_mul_div(state->previous, left_ns, 0, limit->window_ns);
        /* Both products are modulo 2^64: only whether they are equal is asked. */
        if (limit->round_up && weighed * limit->window_ns != state->previous * left_ns)
            weighed++;
    }
    return weir_sat_add(state->current, weighed);
}

/* The most of a window that may be left so that round(count * left / W) <= room:
 *
 *     up:    count * left <= room * W              left = floor(room * W / count)
 *     down:  count * left <  (room + 1) * W        left = floor(((room + 1) * W - 1) / count)
 */
static uint64_t left_max(const struct weir_limit *limit, uint64_t count, uint64_t room)
{
    if (count == 0)
        return limit->window_ns;
    uint64_t left_ns = limit->round_up ? weir_mul_div(room, limit->window_ns, 0, count)
                                       : weir_mul_div(room + 1, limit->window_ns, 1, count);
    return weir_min(left_ns, limit->window_ns);
}

/* The least wait until hits fit.  The estimate only falls while nothing comes, in three stretches:
 * to the end of this window, to the end of the next (where current has become previous), and
 * after that it is 0. */
static uint64_t retry_after(const struct weir_limit *limit, const struct weir_slide *state,
                            const struct weir_moment *at, uint64_t hits)
{
    uint64_t window_ns = limit->window_ns;
    if (hits > limit->requests)
        return WEIR_NEVER;
    uint64_t room = limit->requests - hits;
    if (state->current <= room) {
        uint64_t left_ns = left_max(limit, state->previous, room - state->current);
        if (left_ns > 0)
            return weir_moment_until(at, window_ns, 0,
                                     weir_max(at->elapsed_ns, window_ns - left_ns));
    }
    uint64_t left_ns = left_max(limit, state->current, room);
    if (left_ns > 0)
        return weir_moment_until(at, window_ns, 1, window_ns - left_ns);
    return weir_moment_until(at, window_ns, 2, 0);
}

static void report(const struct weir_limit *limit, const struct weir_slide *state,
                   const struct weir_moment *at, uint64_t used, struct weir_verdict *out)
{
    out->limit = limit->requests;
    out->remaining = weir_sat_sub(limit->requests, used);
    out->reset_after_ns = weir_slide_reset_after(state, at, limit->window_ns);
}

void weir_sliding_counter_take(const struct weir_limit *limit, struct weir_slide *state,
                               uint64_t count_max, uint64_t now_ns, uint64_t hits,
                               struct weir_verdict *out)
{
    if (weir_limit_is_closed(limit, hits, out))
        return;
    struct weir_moment at = weir_slide_open(state, limit->window_ns, now_ns);
    uint64_t before = estimate(limit, state, &at);
    uint64_t after = weir_sat_add(before, hits);
    bool allowed = after <= limit->requests;
    bool counts = allowed || limit->count_rejected;
    if (counts)
        state->current = weir_min(weir_sat_add(state->current, hits), count_max);
    *out = (struct weir_verdict){.allowed = allowed, .before = before};
    if (!allowed)
        out->retry_after_ns = retry_after(limit, state, &at, hits);
    report(limit, state, &at, counts ? after : before, out);
}

void weir_sliding_counter_give(const struct weir_limit *limit, struct weir_slide *state,
                               uint64_t now_ns, uint64_t hits, struct weir_verdict *out)
{
    if (weir_limit_is_closed(limit, 0, out))
        return;
    struct weir_moment at = weir_slide_open(state, limit->window_ns, now_ns);
    *out = (struct weir_verdict){.allowed = true, .before = estimate(limit, state, &at)};
    uint64_t rest = weir_sat_sub(hits, state->current);
    state->current = weir_sat_sub(state->current, hits);
    state->previous = weir_sat_sub(state->previous, rest);
    report(limit, state, &at, estimate(limit, state, &at), out);
}

void weir_sliding_counter_add(const struct weir_limit *limit, struct weir_slide *state,
                              uint64_t count_max, uint64_t at_ns, uint64_t hits)
{
    uint64_t index = at_ns / limit->window_ns;
    if (index > state->index)
        weir_slide_open(state, limit->window_ns, at_ns);
    if (index == state->index)
        state->current = weir_min(weir_sat_add(state->current, hits), count_max);
    else if (index + 1 == state->index)
        state->previous = weir_min(weir_sat_add(state->previous, hits), count_max);
}
