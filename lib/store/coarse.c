/* SPDX-License-Identifier: Apache-2.0 */
#include "store/coarse.h"

/* The most that may be in use: what the counters can hold, if that is less than L. */
static uint64_t most_of(const struct weir_limit *limit)
{
    return weir_min(limit->requests, WEIR_COARSE_MAX);
}

static void answer(const struct weir_limit *limit, const struct weir_slide *state,
                   const struct weir_moment *at, struct weir_verdict *out)
{
    out->limit = limit->requests;
    out->remaining = weir_sat_sub(most_of(limit), state->previous + state->current);
    out->reset_after_ns = weir_slide_reset_after(state, at, limit->window_ns);
}

void weir_coarse_take(const struct weir_limit *limit, struct weir_slide *state, uint64_t now_ns,
                      uint64_t hits, struct weir_verdict *out)
{
    struct weir_moment at = weir_slide_open(state, limit->window_ns, now_ns);
    uint64_t used = state->previous + state->current, most = most_of(limit);
    *out = (struct weir_verdict){.allowed = weir_sat_add(used, hits) <= most, .before = used};
    if (out->allowed)
        state->current += hits;
    else if (hits > limit->requests)
        out->retry_after_ns = WEIR_NEVER;
    else
        out->retry_after_ns = weir_moment_until(
            &at, limit->window_ns, weir_sat_add(state->current, hits) <= most ? 1 : 2, 0);
    answer(limit, state, &at, out);
}

void weir_coarse_give(const struct weir_limit *limit, struct weir_slide *state, uint64_t now_ns,
                      uint64_t hits, struct weir_verdict *out)
{
    struct weir_moment at = weir_slide_open(state, limit->window_ns, now_ns);
    *out = (struct weir_verdict){.allowed = true, .before = state->previous + state->current};
    if (state->current < WEIR_SLIDE_INLINE_MAX) /* at its maximum it has forgotten what it holds */
        state->current = weir_sat_sub(state->current, hits);
    answer(limit, state, &at, out);
}

void weir_coarse_add(const struct weir_limit *limit, struct weir_slide *state, uint64_t at_ns,
                     uint64_t hits)
{
    (void)weir_slide_open(state, limit->window_ns, at_ns);
    uint64_t sum = weir_sat_add(state->current, hits);
    state->current = sum <= WEIR_COARSE_MAX ? sum : WEIR_SLIDE_INLINE_MAX;
}
