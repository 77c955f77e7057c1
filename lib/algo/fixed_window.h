/* fixed_window.h - a counter for each window of the clock.
 *
 * i = floor(t/W).  A new i starts at 0.  Allowed iff count + hits <= L; refused hits count too
 * unless count_rejected is off.  At most L pass in an aligned window, at most 2L in a rolling one.
 *
 * A zeroed state is an unused one.  A clock that went back never opens a used window again, and
 * the state is never taken to be ahead by more than one window.
 *
 * Purity: no clock, no malloc, no I/O.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ALGO_FIXED_WINDOW_H
#define WEIR_ALGO_FIXED_WINDOW_H

#include "algo/limit.h"

struct weir_window {
    uint64_t index; /* which window: floor(t/W) */
    uint64_t count; /* hits in it; saturates at WEIR_WINDOW_COUNT_MAX */
};

#define WEIR_WINDOW_COUNT_MAX ((UINT64_C(1) << 42) - 1)

/* Decides; *state becomes what it must be afterwards, whether allowed or not. */
void weir_fixed_window_take(const struct weir_limit *limit, struct weir_window *state,
                            uint64_t now_ns, uint64_t hits, struct weir_verdict *out);
/* Gives hits back, down to unused; out is allowed. */
void weir_fixed_window_give(const struct weir_limit *limit, struct weir_window *state,
                            uint64_t now_ns, uint64_t hits, struct weir_verdict *out);
/* Counts hits that were admitted elsewhere at at_ns, whatever the limit says.  Those of a window
 * that is over make no difference. */
void weir_fixed_window_add(const struct weir_limit *limit, struct weir_window *state,
                           uint64_t at_ns, uint64_t hits);

#endif
