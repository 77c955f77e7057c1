/* coarse.h - what counts for a wide state when there is no extent left for it.
 *
 * Two counters in the slot itself, unweighted: what passed in this window and the one before, in
 * units coarse enough to fit.  It refuses early (at worst it holds a rolling window of 2W to L),
 * and never passes more than the wide state would have.
 *
 * Purity: no clock, no malloc, no I/O.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_COARSE_H
#define WEIR_STORE_COARSE_H

#include "algo/sliding_counter.h"

void weir_coarse_take(const struct weir_limit *limit, struct weir_slide *state, uint64_t now_ns,
                      uint64_t hits, struct weir_verdict *out);
void weir_coarse_give(const struct weir_limit *limit, struct weir_slide *state, uint64_t now_ns,
                      uint64_t hits, struct weir_verdict *out);

#endif
