/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/fixed_window.h"

#include "algo/math.h"

/* Opens the window that counts now. */
static struct weir_moment open_window(const struct weir_limit *limit, struct weir_window *state,
                                      uint64_t now_ns)
{
    struct weir_moment at = weir_moment_at(limit->window_ns, state->index, now_ns);
    if (state->index < at.index)
        state->count = 0;
    state->index = at.index;
    return at;
}

static void report(const struct weir_limit *limit, const struct weir_window *state,
                   const struct weir_moment *at, struct weir_verdict *out)
{
    out->limit = limit->requests;
    out->remaining = weir_sat_sub(limit->requests, state->count);
    out->reset_after_ns = weir_moment_until(at, limit->window_ns, 1, 0);
}

void weir_fixed_window_take(const struct weir_limit *limit, struct weir_window *state,
                            uint64_t now_ns, uint64_t hits, struct weir_verdict *out)
{
    if (weir_limit_is_closed(limit, hits, out))
        return;
    struct weir_moment at = open_window(limit, state, now_ns);
    uint64_t after = weir_sat_add(state->count, hits);
    *out = (struct weir_verdict){.allowed = after <= limit->requests, .before = state->count};
    if (out->allowed || limit->count_rejected)
        state->count = weir_min(after, WEIR_WINDOW_COUNT_MAX);
    report(limit, state, &at, out);
    if (!out->allowed)
        out->retry_after_ns = hits > limit->requests ? WEIR_NEVER : out->reset_after_ns;
}

void weir_fixed_window_give(const struct weir_limit *limit, struct weir_window *state,
                            uint64_t now_ns, uint64_t hits, struct weir_verdict *out)
{
    if (weir_limit_is_closed(limit, 0, out))
        return;
    struct weir_moment at = open_window(limit, state, now_ns);
    *out = (struct weir_verdict){.allowed = true, .before = state->count};
    state->count = weir_sat_sub(state->count, hits);
    report(limit, state, &at, out);
}

void weir_fixed_window_add(const struct weir_limit *limit, struct weir_window *state,
                           uint64_t at_ns, uint64_t hits)
{
    uint64_t index = at_ns / limit->window_ns;
    if (index < state->index)
        return;
    uint64_t count = index == state->index ? state->count : 0;
    *state = (struct weir_window){
        .index = index, .count = weir_min(weir_sat_add(count, hits), WEIR_WINDOW_COUNT_MAX)};
}
