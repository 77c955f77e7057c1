/* coarse.h - what counts for a wide state when there is no extent left for it.
 *
 * Two counters in the slot itself, unweighted: what passed in this window and the one before.
 * It refuses early (at worst it holds a rolling window of 2W to L, or to a million), and never
 * passes more than the wide state would have.  The counters are those of an inline sliding
 * counter, so that either is read as the other when a limit is changed; at its maximum a
 * counter means that or more.
 *
 * Purity: no clock, no malloc, no I/O.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_COARSE_H
#define WEIR_STORE_COARSE_H

#include "algo/sliding_counter.h"

/* Half of what a counter holds, so that the sum of two is never its maximum. */
#define WEIR_COARSE_MAX (WEIR_SLIDE_INLINE_MAX / 2)

void weir_coarse_take(const struct weir_limit *limit, struct weir_slide *state, uint64_t now_ns,
                      uint64_t hits, struct weir_verdict *out);
/* Counts hits that were admitted elsewhere, whatever the limit says. */
void weir_coarse_add(const struct weir_limit *limit, struct weir_slide *state, uint64_t at_ns,
                     uint64_t hits);
void weir_coarse_give(const struct weir_limit *limit, struct weir_slide *state, uint64_t now_ns,
                      uint64_t hits, struct weir_verdict *out);

#endif
