/* concurrency.h - at most L requests in flight; a slot is a lease with a deadline.
 *
 * W is the least time that a lease lasts.  Deadlines lie on a grid of g = W/2: a slot taken in
 * [q*g, (q+1)*g) ends at (q+3)*g, so it lasts between W and 1.5 W, and at any instant at most three
 * deadlines are alive: three counts are the whole state.  Who crashes gives its slots back at its
 * deadline.
 *
 * The mark of a lease is its deadline's number, q + 3.  Releasing after the deadline does nothing;
 * renewing moves the hits to the newest deadline.  A clock that went back keeps the state's own
 * newest deadline, but never one ahead of now's by more than one grid step, so that nobody is
 * locked out for long: leases that end later are brought to that one.
 *
 * retry_after of a refusal: when enough leases will have expired if nobody releases; reset_after:
 * when the last expires.  A zeroed state is an unused one.
 * Purity: no clock, no malloc, no I/O.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ALGO_CONCURRENCY_H
#define WEIR_ALGO_CONCURRENCY_H

#include "algo/limit.h"

struct weir_leases {
    uint64_t deadline; /* number of the newest deadline: it is deadline * g */
    uint32_t held[3];  /* leases that end at deadline, deadline - 1, deadline - 2 */
};

/* *mark: the deadline number of what was taken; 0 where nothing was. */
void weir_concurrency_take(const struct weir_limit *limit, struct weir_leases *state,
                           uint64_t now_ns, uint64_t hits, struct weir_verdict *out,
                           uint64_t *mark);
/* Says whether there was something to release. */
bool weir_concurrency_release(const struct weir_limit *limit, struct weir_leases *state,
                              uint64_t now_ns, uint64_t hits, uint64_t mark);
/* Moves hits from mark's deadline to the newest; *mark is then that one.  false: they have
 * expired, all or some of them, and nothing was moved. */
bool weir_concurrency_renew(const struct weir_limit *limit, struct weir_leases *state,
                            uint64_t now_ns, uint64_t hits, uint64_t *mark);
/* Gives back the oldest leases first, without a mark. */
void weir_concurrency_give(const struct weir_limit *limit, struct weir_leases *state,
                           uint64_t now_ns, uint64_t hits, struct weir_verdict *out);

#endif
