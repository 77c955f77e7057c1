/* throttle.h - limits that a caller brings along with the key: no rules, no domain.
 *
 * As redis-cell has it: the key alone names the counter, and what a call says of burst and rate is
 * how the counter is read in that call.  The counter is a token bucket's, one instant, so another
 * rate reads it as another number of tokens, and a smaller burst may find more in use than it has.
 * That stands: were it cut to the smaller burst, who asks with two bursts in turn would be handed
 * back the difference every time.
 *
 * A step is counted in 65536ths of a nanosecond whatever the rate, rounded up, so that the fraction
 * of an instant means the same to all of them.  Steps beyond 19 hours are whole nanoseconds: in
 * 65536ths they would not fit, and a fraction left by another rate is then worth at most one.
 *
 * Names of counters cannot meet those of rules: the tag is one that no rule has.
 *
 * A session remembers the last sets of numbers that it saw, because few callers use many.
 *
 * Threads: the session's own.  Time: an argument.  Allocation: none.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_THROTTLE_H
#define WEIR_ENGINE_THROTTLE_H

#include "algo/limit.h"

#define WEIR_THROTTLE_SETS 16 /* remembered by a session */

struct weir_throttle_sets {
    struct weir_limit limits[WEIR_THROTTLE_SETS]; /* window_ns 0: none yet */
};

/* The limit of these numbers; good until the next call.  0, WEIR_ERR_INVALID or _TOO_LARGE. */
WEIR_MUST_CHECK int weir_throttle_limit(struct weir_throttle_sets *sets,
                                        const struct weir_throttle *throttle,
                                        const struct weir_limit **out);

/* What the counter of a key is called. */
uint64_t weir_throttle_key(const struct weir_session *s, struct weir_str key);

/* weir_throttle(), but the list of busy keys does not hear of it. */
WEIR_MUST_CHECK int weir_throttle_quietly(struct weir_session *s,
                                          const struct weir_throttle *throttle, uint64_t now_ns,
                                          struct weir_throttled *out);

/* What the caller is told, of a verdict of that limit. */
void weir_throttle_tell(const struct weir_session *s, const struct weir_limit *limit,
                        const struct weir_throttle *throttle, struct weir_verdict *verdict,
                        struct weir_throttled *out);

#endif
