/* response_times.h - how long calls took, in fixed memory: how many, and their sum, for each power
 * of two of microseconds.
 *
 *     bucket    0      1        2        3             24
 *     us       0..1   2..3     4..7     8..15   ...   16777216 and more
 *
 * So a bucket's mean is exact, and what is told of it (statsd.h) is one line, however many calls
 * there were.
 *
 * Threads: one adds; any reads.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_RESPONSE_TIMES_H
#define WEIR_SERVE_RESPONSE_TIMES_H

#include <stdatomic.h>
#include <stdint.h>

#define WEIR_RESPONSE_BUCKETS 25u

struct weir_response_times {
    _Atomic uint64_t counts[WEIR_RESPONSE_BUCKETS];
    _Atomic uint64_t sums_us[WEIR_RESPONSE_BUCKETS];
};

static inline uint32_t weir_response_bucket(uint64_t us)
{
    uint32_t bucket = 63u - (uint32_t)__builtin_clzll(us | 1);
    return bucket < WEIR_RESPONSE_BUCKETS ? bucket : WEIR_RESPONSE_BUCKETS - 1;
}

/* So many calls took from begun_ns to now_ns.  A clock that was set back says nothing. */
static inline void weir_response_times_add(struct weir_response_times *times, uint64_t begun_ns,
                                           uint64_t now_ns, uint64_t calls)
{
    uint64_t us = now_ns > begun_ns ? (now_ns - begun_ns) / 1000 : 0;
    uint32_t bucket = weir_response_bucket(us);
    _Atomic uint64_t *count = &times->counts[bucket], *sum = &times->sums_us[bucket];
    /* relaxed, and no read-modify-write: one writer; a reader between the two gets a mean that is
     * off by a call */
    atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + us * calls,
                          memory_order_relaxed);
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + calls,
                          memory_order_relaxed);
}

#endif
