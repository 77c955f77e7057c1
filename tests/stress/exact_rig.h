/* exact_rig.h - every exact algorithm, with what it must admit while the time stands still.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_EXACT_RIG_H
#define WEIR_TESTS_EXACT_RIG_H

#include "store_rig.h"

struct exact_kind {
    const char *name;
    struct weir_limit_spec spec; /* requests and burst are set by the test */
    uint32_t hits;               /* of one request */
    uint32_t requests_least;     /* so that the kind is what its name says */
    bool has_one_more;           /* a leaky bucket holds B and lets one leave */
};

/* An hour, so that no window of a still clock has ended. */
static const struct exact_kind exact_kinds[] = {
    {"fixed_window", {.algorithm = WEIR_FIXED_WINDOW, .window_s = 3600}, 1, 1, false},
    {"fixed_window counting refusals",
     {.algorithm = WEIR_FIXED_WINDOW, .window_s = 3600, .count_rejected = true},
     1,
     1,
     false},
    {"sliding_window_counter",
     {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .window_s = 3600},
     1,
     1,
     false},
    {"sliding_window_counter, wide",
     {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .window_s = 3600},
     60000,
     3000000,
     false},
    {"sliding_window_counter, 12 sub-windows",
     {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .window_s = 3600, .buckets = 12},
     1,
     1,
     false},
    {"sliding_window_log", {.algorithm = WEIR_SLIDING_WINDOW_LOG, .window_s = 3600}, 1, 1, false},
    {"token_bucket", {.algorithm = WEIR_TOKEN_BUCKET, .window_s = 3600}, 1, 1, false},
    {"token_bucket, by intervals",
     {.algorithm = WEIR_TOKEN_BUCKET, .window_s = 3600, .refill_interval = true},
     1,
     1,
     false},
    {"leaky_bucket", {.algorithm = WEIR_LEAKY_BUCKET, .window_s = 3600}, 1, 1, true},
    {"concurrency", {.algorithm = WEIR_CONCURRENCY, .window_s = 3600}, 1, 1, false},
};
#define EXACT_KINDS (sizeof exact_kinds / sizeof *exact_kinds)

/* The kind's limit for `places` requests; a request of the kind takes kind->hits. */
static inline struct weir_limit exact_limit(struct weir_table *table, const struct exact_kind *kind,
                                            uint32_t places)
{
    struct weir_limit_spec spec = kind->spec;
    spec.requests_per_unit = places * kind->hits;
    if (spec.requests_per_unit < kind->requests_least)
        spec.requests_per_unit = kind->requests_least;
    spec.burst = spec.requests_per_unit - (kind->has_one_more ? 1 : 0);
    return rig_limit(table, spec, (uint64_t)(kind - exact_kinds) + 1);
}

/* How many requests that limit lets pass. */
static inline uint64_t exact_places(const struct exact_kind *kind, uint32_t places)
{
    uint64_t least = kind->requests_least / kind->hits;
    return places > least ? places : least;
}

#endif
