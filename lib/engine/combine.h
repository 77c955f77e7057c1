/* combine.h - many answers into one.
 *
 * The statuses of a request, as envoyproxy/ratelimit combines them: over limit where some
 * descriptor outside quota mode is over, or where some are in quota mode and all of those are over.
 *
 * The verdicts of one descriptor's limits, all or nothing: the status shown is the tightest.
 *
 * Purity: no clock, no I/O, no state.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_COMBINE_H
#define WEIR_ENGINE_COMBINE_H

#include "base/hot.h"
#include "engine/engine.h"

enum weir_code weir_combine_many(const struct weir_status *statuses, uint32_t count);

/* Of one status it is its own code, whatever its mode; and nearly all requests have one. */
static inline enum weir_code weir_combine(const struct weir_status *statuses, uint32_t count)
{
    return WEIR_MOSTLY(count == 1) ? statuses[0].code : weir_combine_many(statuses, count);
}

/* The tightest of count >= 1 charges: of those that refuse, the one with the longest wait; where
 * none refuses, the one with the least left, then the longest reset.  Of equals the first. */
const struct weir_charge *weir_tightest_of_many(const struct weir_charge *charges, uint32_t count);

static inline const struct weir_charge *weir_tightest(const struct weir_charge *charges,
                                                      uint32_t count)
{
    return WEIR_MOSTLY(count == 1) ? charges : weir_tightest_of_many(charges, count);
}

/* How long the caller must hold the request: the longest of the delays; 0 where it is refused. */
uint64_t weir_longest_delay_of_many(const struct weir_charge *charges, uint32_t count);

static inline uint64_t weir_longest_delay(const struct weir_charge *charges, uint32_t count)
{
    if (count != 1)
        return weir_longest_delay_of_many(charges, count);
    return charges->verdict.allowed ? charges->verdict.delay_ns : 0;
}

#endif
