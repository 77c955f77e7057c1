/* sub_windows.h - the sliding counter in N sub-windows (`buckets: N`), the oldest counted in full.
 *
 * W is cut into N sub-windows of w = W/N nanoseconds (N divides W).  A hit counts until its whole
 * sub-window is more than W old: at an instant in sub-window m, the sub-windows m-N .. m count.
 * Never more than L in any rolling window; a refusal lasts at most W/N longer than the log's.
 *
 * Kept are not N counters but running totals (modulo 2^32):
 *
 *     total   hits ever, less what was given back
 *     base    the total when sub-window `index`, the newest, was opened
 *     cells   a ring: for each sub-window that was opened, the total at its opening
 *             cell[a mod (N+1)] = a, low 32 bits << 32 | total at the opening of a
 *
 * What counts is total minus the opening total of the oldest opened sub-window in m-N .. m (minus
 * the least of them, once hits were given back).  {index, base, total} is changed by one swap; the
 * cell of `index` is written afterwards, by whoever comes next (it follows from the state alone:
 * weir_sub_cell), so a process may die between the two.  A sub-window is opened by its first hit.
 *
 * Before take() or give() the cell of `index` must be in place.  A zeroed state is an unused one.
 * A clock that went back never opens an older sub-window; a state more than N sub-windows ahead is
 * pulled back to N ahead, with all that counts in one sub-window.  The totals then step back by
 * 2^24 and what is in use, so that the openings in the cells lie ahead of them and are not taken
 * for those of the same sub-windows when their time comes again.  Where that is no help (a hundred
 * times in a row, or 2^24 hits later) such a cell over-counts until its sub-window has passed;
 * nothing ever under-counts.
 *
 * Purity: no clock, no malloc, no I/O.  Cells are read with relaxed atomic loads: a stale read is
 * found out by the swap of the state.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ALGO_SUB_WINDOWS_H
#define WEIR_ALGO_SUB_WINDOWS_H

#include "algo/limit.h"

struct weir_sub {
    uint64_t index; /* below 2^40 */
    uint32_t base;
    uint32_t total;
};

/* Cells that a limit needs: N + 1. */
static inline uint32_t weir_sub_cells(const struct weir_limit *limit)
{
    return limit->buckets + 1;
}

/* What must be in cell (state->index mod (N+1)). */
static inline uint64_t weir_sub_cell(const struct weir_sub *state)
{
    return state->index << 32 | state->base;
}

void weir_sub_windows_take(const struct weir_limit *limit, struct weir_sub *state,
                           const uint64_t *cells, uint64_t now_ns, uint64_t hits,
                           struct weir_verdict *out);
void weir_sub_windows_give(const struct weir_limit *limit, struct weir_sub *state,
                           const uint64_t *cells, uint64_t now_ns, uint64_t hits,
                           struct weir_verdict *out);
/* Counts hits that were admitted elsewhere in the newest sub-window, whatever the limit says. */
void weir_sub_windows_add(const struct weir_limit *limit, struct weir_sub *state,
                          const uint64_t *cells, uint64_t at_ns, uint64_t hits);
/* Hits that count now: for eviction.  Of the limit only window and buckets matter. */
uint32_t weir_sub_windows_used(const struct weir_limit *limit, const struct weir_sub *state,
                               const uint64_t *cells, uint64_t now_ns);

#endif
