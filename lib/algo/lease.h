/* lease.h - tokens that are taken ahead of requests: how many, and for how long.
 *
 * A node that keeps asking for one counter takes tokens beyond what it needs now, and spends them
 * later without asking.  They are charged at once, so nobody else has them.  What makes it exact is
 * when they end:
 *
 *   windows      A lease ends with the window (sub-window, tick) that it was charged in.  A token
 *                is then spent in the window that counted it, so no window sees more than its
 *                limit.  The weighted counter only ever estimates less later in the same window.
 *   token bucket A lease ends at an instant e, and its tokens are not refilled before:
 *
 *                    full_at := max(full_at, e) + n*T
 *
 *                So for every lease i that has not ended, full_at >= e_i + (n_i + all leased after
 *                it)*T.  At an instant a before e_i the tokens that are left, B - (full_at - a)/T,
 *                and all that is leased are then at most B together; whatever passes in an interval
 *                x from a on was leased at a, left at a, or came in x: at most B + floor(L*x/W).
 *
 *   log          A lease ends at an instant e, and its tokens are entries of e.  When a token is
 *                spent, its entry is no earlier.  Take those that were spent in any time from x to
 *                x + W, and of these the one that was taken last, at g, to be spent at a <= x + W.
 *                The entries of the others are not before x >= a - W >= g - W: all of them counted
 *                when it was taken, so they are at most L with it.  (An entry of the instant of the
 *                grant would leave the log while the token may have been spent later.)  An entry
 *                outstays its token by as long as the lease had left: at most 1/250 of W.
 *
 * Whoever counts from before it asked, ends its lease no later than the store thinks, whatever the
 * two clocks show.  A lease that is not spent is lost, or given back: never spent twice.
 *
 * For requests that are waiting a lease takes all that is left, if it must, as they would have one
 * by one.  Ahead of requests it takes at most what is left divided by `shares`, twice the number of
 * nodes, so that one node's hunger leaves something for the others.
 *
 * Not leased: leaky buckets (a place in a queue is an instant, and cannot wait for its request),
 * concurrency (a slot is one already), sliding counters and logs whose refusals count, logs of less
 * than three seconds, and buckets that refill within some 80 ms.
 *
 * Purity: no clock, no malloc, no I/O.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ALGO_LEASE_H
#define WEIR_ALGO_LEASE_H

#include "algo/gcra.h"

#define WEIR_LEASE_TTL_MAX_NS WEIR_NS_PER_S
#define WEIR_LEASE_TTL_MIN_NS (WEIR_NS_PER_S / 100)
#define WEIR_LEASE_BUCKET_MIN_NS (WEIR_NS_PER_S / 200) /* of a full bucket */
#define WEIR_LEASE_TOKENS_MAX ((UINT32_C(1) << 24) - 1)

/* What is asked for beyond the hits. */
struct weir_lease_wish {
    uint32_t tokens; /* at most WEIR_LEASE_TOKENS_MAX */
    uint32_t sure;   /* of these, so many for requests that are waiting */
    uint32_t shares; /* what is not sure is at most what is left, divided by this; above 0 */
    uint32_t ttl_ns;
};

/* Whether tokens of such a limit may be leased at all. */
bool weir_lease_suits(const struct weir_limit *limit);

/* Whether each lease has an end of its own; else all that are alive are of one window. */
bool weir_lease_is_dated(const struct weir_limit *limit);

/* For how long, at most; a bucket that is almost full leases for a shorter time, because what would
 * have been refilled meanwhile is lost. */
uint32_t weir_lease_ttl_ns(const struct weir_limit *limit);

/* For how long tokens that are charged to a window at now_ns may be spent. */
uint64_t weir_lease_lasts_ns(const struct weir_limit *limit, uint32_t ttl_ns, uint64_t now_ns);

/* How many, of a counter of which so many are left.  A window is then charged with them as with
 * hits. */
static inline uint32_t weir_lease_size(const struct weir_lease_wish *wish, uint64_t left)
{
    uint64_t most = weir_max(left / wish->shares, weir_min(wish->sure, left));
    return (uint32_t)weir_min(wish->tokens, most);
}

/* The same of a token bucket, which is charged: *state moves to what it must be, and *lasts_ns is
 * for how long. */
uint32_t weir_lease_from_bucket(const struct weir_limit *limit, const struct weir_lease_wish *wish,
                                struct weir_tat *state, uint64_t now_ns, uint64_t *lasts_ns);

#endif
