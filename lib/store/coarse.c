/* SPDX-License-Identifier: Apache-2.0 */
#include "store/coarse.h"

/* Hits that one unit stands for: so many that L is at most half of what a counter holds. */
static uint64_t unit_of(const struct weir_limit *limit)
{
    uint64_t unit = 1;
    while (limit->requests / unit > WEIR_SLIDE_INLINE_MAX / 2)
        unit *= 2;
    return unit;
}

/* Brings the counters to the window of now.  Never back; never more than one ahead. */
static void roll(const struct weir_limit *limit, struct weir_slide *state, uint64_t now_ns)
{
    uint64_t index = now_ns / limit->window_ns;
    if (state->index > index) {
        if (state->index > index + 1)
            state->index = index + 1;
        return;
    }
    if (state->index != index) {
        state->previous = state->index + 1 == index ? state->current : 0;
        state->current = 0;
        state->index = index;
    }
}

static void answer(const struct weir_limit *limit, const struct weir_slide *state, uint64_t now_ns,
                   uint64_t used, struct weir_verdict *out)
{
    uint64_t ends_ns = (state->index + 1) * limit->window_ns - now_ns;
    out->limit = limit->requests;
    out->remaining = used < limit->requests ? limit->requests - used : 0;
    out->reset_after_ns = state->current > 0    ? ends_ns + limit->window_ns
                          : state->previous > 0 ? ends_ns
                                                : 0;
}

void weir_coarse_take(const struct weir_limit *limit, struct weir_slide *state, uint64_t now_ns,
                      uint64_t hits, struct weir_verdict *out)
{
    *out = (struct weir_verdict){.retry_after_ns = WEIR_NEVER};
    uint64_t unit = unit_of(limit);
    roll(limit, state, now_ns);
    uint64_t used = (state->previous + state->current) * unit;
    uint64_t ends_ns = (state->index + 1) * limit->window_ns - now_ns;
    out->before = used;
    if (hits <= limit->requests && used + hits <= limit->requests) {
        uint64_t units = (hits + unit - 1) / unit;
        state->current += units;
        used += units * unit;
        out->allowed = true;
        out->retry_after_ns = 0;
    } else if (hits <= limit->requests) {
        bool is_short = state->current * unit + hits <= limit->requests;
        out->retry_after_ns = is_short ? ends_ns : ends_ns + limit->window_ns;
    }
    answer(limit, state, now_ns, used, out);
}

void weir_coarse_give(const struct weir_limit *limit, struct weir_slide *state, uint64_t now_ns,
                      uint64_t hits, struct weir_verdict *out)
{
    *out = (struct weir_verdict){.allowed = true};
    uint64_t unit = unit_of(limit);
    roll(limit, state, now_ns);
    uint64_t units = hits / unit; /* rounded down: never more than was taken */
    out->before = (state->previous + state->current) * unit;
    state->current -= units < state->current ? units : state->current;
    answer(limit, state, now_ns, (state->previous + state->current) * unit, out);
}
