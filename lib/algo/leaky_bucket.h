/* leaky_bucket.h - a queue of B requests, one leaving every T = W/L.
 *
 * The state is `free`: when the next request may leave.  A request of h hits leaves at
 * max(t, free) + (h-1)*T; it is allowed iff that is at most B*T from now, and told to wait so long (delay).
 * What leaves is at least T apart; no more than B wait.  limit = B + 1, h = 0 is always allowed.
 *
 * The mark of a request is free after it, as one number; who leaves the queue while still the last (free is
 * still the mark) gives the place back, anyone else forfeits it.
 *
 * A zeroed state is an unused one.
 * Purity: no clock, no malloc, no I/O.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ALGO_LEAKY_BUCKET_H
#define WEIR_ALGO_LEAKY_BUCKET_H

#include "algo/token_bucket.h"

void weir_leaky_bucket_take(const struct weir_limit *limit, struct weir_tat *state, uint64_t now_ns,
                            uint64_t hits, struct weir_verdict *out);

/* 64 bits that name a place: equal only for the same free (ns in the high 48 bits of its low 47,
 * num in the low 16). */
uint64_t weir_leaky_bucket_mark(const struct weir_tat *state);

/* Takes `hits` back out iff mark is the state's own; says whether it did. */
bool weir_leaky_bucket_release(const struct weir_limit *limit, struct weir_tat *state,
                               uint64_t now_ns, uint64_t hits, uint64_t mark);

#endif
