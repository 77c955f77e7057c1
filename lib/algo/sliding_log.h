/* sliding_log.h - the time of every hit of the last window: exact in every rolling window.
 *
 * An entry s counts while s >= t - W.  Allowed iff live entries + hits <= L.  Entries lie in a ring
 * of 64-bit cells; what is atomic is the head of the log:
 *
 *     last   the time of the newest entry (entries never go back in time)
 *     run    how many of the newest entries have exactly that time, and may not be in their cells
 *     head   where the next entry goes; entry of rank r (1 = newest) is in cell (head - r) mod
 *            capacity
 *     len    how many entries there are
 *
 *        cells  . . 17 23 23 40 [41 41 41] . .         head, run = 3, last = 41, len = 7
 *
 * A change is one swap of the head; the cells of its run are written afterwards, by whoever comes
 * next (flush).  So nothing is lost when a process dies between the two, and `hits` entries are
 * added at once.  The clock going back by more than W makes the newest entries one run again,
 * dated W ahead.
 *
 * Before take() or give() the run must be in its cells: last_ns in weir_log_cell() of the ranks
 * 1 .. run.
 *
 * A zeroed state is an unused one.
 * Purity: no clock, no malloc, no I/O.  Cells are read with relaxed atomic loads: a stale read is
 * found out by the swap of the head.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ALGO_SLIDING_LOG_H
#define WEIR_ALGO_SLIDING_LOG_H

#include "algo/limit.h"

struct weir_log {
    uint64_t last_ns;
    uint32_t head; /* 0 .. capacity - 1 */
    uint32_t len;  /* 0 .. capacity */
    uint32_t run;  /* 0 .. len */
};

struct weir_log_ring {
    const uint64_t *cells;
    uint32_t capacity; /* at least the limit's L */
};

/* The cell of the entry of a rank, 1 .. len. */
static inline uint32_t weir_log_cell(const struct weir_log *state, const struct weir_log_ring *ring,
                                     uint32_t rank)
{
    return state->head >= rank ? state->head - rank : state->head + ring->capacity - rank;
}

void weir_sliding_log_take(const struct weir_limit *limit, struct weir_log *state,
                           const struct weir_log_ring *ring, uint64_t now_ns, uint64_t hits,
                           struct weir_verdict *out);
/* Removes the newest `hits` live entries. */
void weir_sliding_log_give(const struct weir_limit *limit, struct weir_log *state,
                           const struct weir_log_ring *ring, uint64_t now_ns, uint64_t hits,
                           struct weir_verdict *out);
/* Adds hits that were admitted elsewhere, whatever the limit says, none older than the newest. */
void weir_sliding_log_add(const struct weir_limit *limit, struct weir_log *state,
                          const struct weir_log_ring *ring, uint64_t at_ns, uint64_t hits);
/* Live entries now: for eviction.  Of the limit only the window matters. */
uint32_t weir_sliding_log_live(const struct weir_limit *limit, const struct weir_log *state,
                               const struct weir_log_ring *ring, uint64_t now_ns);

#endif
