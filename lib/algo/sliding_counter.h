/* sliding_counter.h - two counters, the older weighted by how much the rolling window still covers.
 *
 * estimate = current + round(previous * (W - e) / W), e = t mod W, in exact integers, rounded down
 * (or up).  Allowed iff estimate + hits <= L.  On steady traffic within a fraction of a percent of
 * the log; an adversary can pass up to 2L in a rolling window.
 *
 * A zeroed state is an unused one.
 * Purity: no clock, no malloc, no I/O.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ALGO_SLIDING_COUNTER_H
#define WEIR_ALGO_SLIDING_COUNTER_H

#include "algo/limit.h"
#include "algo/math.h"

struct weir_slide {
    uint64_t index; /* floor(t/W) of `current` */
    uint64_t previous;
    uint64_t current; /* both saturate at the caller's count_max */
};

/* Opens the window that counts now; what was current becomes previous, or is forgotten. */
static inline struct weir_moment weir_slide_open(struct weir_slide *state, uint64_t window_ns,
                                                 uint64_t now_ns)
{
    struct weir_moment at = weir_moment_at(window_ns, state->index, now_ns);
    if (state->index < at.index) {
        state->previous = state->index + 1 == at.index ? state->current : 0;
        state->current = 0;
    }
    state->index = at.index;
    return at;
}

/* When nothing of it counts any more. */
static inline uint64_t weir_slide_reset_after(const struct weir_slide *state,
                                              const struct weir_moment *at, uint64_t window_ns)
{
    if (state->current > 0)
        return weir_moment_until(at, window_ns, 2, 0);
    return state->previous > 0 ? weir_moment_until(at, window_ns, 1, 0) : 0;
}

/* count_max: the most that the caller's state can hold (a slot's half, or a wide state). */
void weir_sliding_counter_take(const struct weir_limit *limit, struct weir_slide *state,
                               uint64_t count_max, uint64_t now_ns, uint64_t hits,
                               struct weir_verdict *out);
/* Counts hits that were admitted elsewhere at at_ns, whatever the limit says, in the window that
 * they belong to. */
void weir_sliding_counter_add(const struct weir_limit *limit, struct weir_slide *state,
                              uint64_t count_max, uint64_t at_ns, uint64_t hits);
/* Gives back from current first, then from previous. */
void weir_sliding_counter_give(const struct weir_limit *limit, struct weir_slide *state,
                               uint64_t now_ns, uint64_t hits, struct weir_verdict *out);

#endif
