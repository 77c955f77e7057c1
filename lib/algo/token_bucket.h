/* token_bucket.h - B tokens, refilled at L per W; a request takes its hits or is refused.
 *
 * Continuous refill keeps one number: the instant `full_at` when the bucket is full again (GCRA).
 * tokens(t) = B - (full_at - t)/T.  A take of h moves full_at by h*T; it is allowed iff full_at
 * is then at most B*T from now.  At most B + floor(L*x/W) pass in any interval x.
 *
 * Interval refill keeps the tick and what is in use: L tokens come back at every whole multiple of
 * W since the epoch.
 *
 * A zeroed state is an unused one.  A state from the future is clamped to what an empty bucket
 * could have produced, so that a clock that went back locks nobody out for long.
 *
 * Purity: no clock, no malloc, no I/O.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ALGO_TOKEN_BUCKET_H
#define WEIR_ALGO_TOKEN_BUCKET_H

#include "algo/gcra.h"

struct weir_tick {
    uint64_t tick; /* floor(t/W) at the last refill */
    uint64_t used; /* tokens missing from a full bucket, at most 2^32 - 1 */
};

/* Inline, so that on the way from slot to slot the state stays in registers. */
static inline void weir_token_bucket_take(const struct weir_limit *limit, struct weir_tat *state,
                                          uint64_t now_ns, uint64_t hits, struct weir_verdict *out)
{
    if (weir_limit_is_closed(limit, hits, out))
        return;
    struct weir_gcra g = weir_gcra_of_tokens(limit);
    if (g.den == 1 && state->num == 0)
        weir_gcra_take_whole(&g, state, now_ns, hits, out);
    else
        weir_gcra_take(&g, state, now_ns, hits, out);
}

void weir_token_bucket_give(const struct weir_limit *limit, struct weir_tat *state, uint64_t now_ns,
                            uint64_t hits, struct weir_verdict *out);
void weir_token_tick_take(const struct weir_limit *limit, struct weir_tick *state, uint64_t now_ns,
                          uint64_t hits, struct weir_verdict *out);
void weir_token_tick_give(const struct weir_limit *limit, struct weir_tick *state, uint64_t now_ns,
                          uint64_t hits, struct weir_verdict *out);

/* Takes tokens for hits that were admitted elsewhere at at_ns, whether there are any or not: the
 * bucket then owes them (gcra.h; a limit's lag_ms says how many it may). */
void weir_token_bucket_add(const struct weir_limit *limit, struct weir_tat *state, uint64_t at_ns,
                           uint64_t hits);
void weir_token_tick_add(const struct weir_limit *limit, struct weir_tick *state, uint64_t at_ns,
                         uint64_t hits);

/* The rate of a rule was changed live: the same tokens in use, at the new rate.  Rounded up.  Also
 * right for leaky buckets: the same number of places taken.  The window is the same; from_requests
 * is the L of before. */
struct weir_tat weir_tat_rescale(struct weir_tat state, uint64_t now_ns,
                                 const struct weir_limit *to, uint32_t from_requests);

#endif
