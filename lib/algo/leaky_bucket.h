/* leaky_bucket.h - a queue of B requests, one leaving every T = W/L.
 *
 * The state is `free`: when the next request may leave.  A request of h hits leaves at
 * max(t, free) + (h-1)*T; it is allowed iff that is at most B*T from now, and told to wait so
 * long (delay).  What leaves is at least T apart; no more than B wait.  limit = B + 1, h = 0 is
 * always allowed.
 *
 * The mark of a request is free after it, as one number; who gives up waiting while still the
 * last (free is still the mark) gives the place back, anyone else forfeits it.
 *
 * A zeroed state is an unused one.
 * Purity: no clock, no malloc, no I/O.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ALGO_LEAKY_BUCKET_H
#define WEIR_ALGO_LEAKY_BUCKET_H

#include "algo/token_bucket.h"

void weir_leaky_bucket_take(const struct weir_limit *limit, struct weir_tat *state, uint64_t now_ns,
                            uint64_t hits, struct weir_verdict *out);

/* 64 bits that name a place: ns << 16 ^ num.  Two places of one queue have the same name only if
 * they lie a multiple of 2^48 ns, three days, apart to the nanosecond. */
uint64_t weir_leaky_bucket_mark(const struct weir_tat *state);

/* Takes `hits` back out iff mark is the state's own and the request has not left yet; says
 * whether it did. */
bool weir_leaky_bucket_release(const struct weir_limit *limit, struct weir_tat *state,
                               uint64_t now_ns, uint64_t hits, uint64_t mark);

#endif
