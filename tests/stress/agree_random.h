/* agree_random.h - a Redis, and random limits, times and hits to hold its scripts to.
 *
 * Times are at the edges of windows more often than not, and now and then back; hits are few, or as
 * many as a limit holds, or more.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_AGREE_RANDOM_H
#define WEIR_TESTS_AGREE_RANDOM_H

#include "redis_rig.h"

/* Random steps reach far; a microsecond fits a sorted set's score until 2255. */
#define AGREE_LATEST_NS UINT64_C(8000000000000000000)

static inline uint64_t agree_below(uint64_t *random, uint64_t n)
{
    return rig_random(random) % n;
}

/* Each test has a Redis of its own. */
static struct redis_rig rig;

static int start(void **state)
{
    (void)state;
    redis_rig_start(&rig);
    redis_rig_load(&rig);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    redis_rig_stop(&rig);
    return 0;
}

/* A test of agree_on(), which finds the kind of its limits, the fields of a spec, in *state. */
#define AGREE_TEST(sentence, ...)                                                                  \
    {                                                                                              \
        .name = #sentence, .test_func = agree_on, .setup_func = start, .teardown_func = stop,      \
        .initial_state = &(struct weir_limit_spec){__VA_ARGS__},                                   \
    }

/* ---- random limits ---- */

static inline uint32_t agree_requests(uint64_t *random, enum weir_algorithm algorithm)
{
    static const uint32_t odd[] = {1, 2, 3, 7, 10, 60, 97, 100, 997, 1000, 65537, 1000003};
    static const uint32_t large[] = {2097151, 2097152, 16777259, 2147483647};
    if (algorithm == WEIR_SLIDING_WINDOW_LOG)
        return odd[agree_below(random, 9)];
    if (algorithm == WEIR_CONCURRENCY)
        return odd[agree_below(random, 10)];
    return agree_below(random, 4) > 0 ? odd[agree_below(random, 12)]
                                      : large[agree_below(random, 4)];
}

static inline struct weir_limit agree_limit(uint64_t *random, struct weir_table *table,
                                            struct weir_limit_spec spec, uint64_t tag)
{
    static const uint64_t windows_s[] = {1, 2, 3, 7, 60, 61, 3600, 86400, 604800, 31536000};
    spec.requests_per_unit = agree_requests(random, spec.algorithm);
    spec.window_s = windows_s[agree_below(random, 10)];
    spec.burst = agree_below(random, 3) > 0 ? spec.requests_per_unit
                                            : 1 + (uint32_t)agree_below(random, 200);
    if (spec.buckets > 1) { /* that divide every window */
        static const uint32_t parts[] = {2, 4, 5, 8, 10, 16, 20, 25, 32, 40, 50, 64};
        spec.buckets = parts[agree_below(random, 12)];
    }
    /* What takes centuries to fill is refused when rules are loaded. */
    uint64_t fill_s = spec.window_s / spec.requests_per_unit * spec.burst;
    if (fill_s > UINT64_C(4000000000))
        spec.burst = spec.requests_per_unit;
    return rig_limit(table, spec, tag);
}

/* ---- random times and hits ---- */

/* In sub-windows of many hits the table may count too much for a while after the clock went back
 * (algo/sub_windows.h), and the script does not. */
static inline bool agree_may_go_back(const struct weir_limit *limit)
{
    return limit->buckets == 1 || (limit->requests <= 1000 && !limit->count_rejected);
}

static inline uint64_t agree_time(uint64_t *random, const struct weir_limit *limit, uint64_t now_ns,
                                  uint64_t *backwards)
{
    uint64_t window = limit->window_ns, step = window / limit->requests + 1;
    uint64_t part = window / limit->buckets;
    uint64_t edge = now_ns - now_ns % part + part;
    switch (agree_below(random, 16)) {
    case 0:
    case 1:
        return now_ns;
    case 2:
        return now_ns + 1;
    case 3:
        return now_ns + agree_below(random, 3000);
    case 4:
    case 5:
        return now_ns + agree_below(random, 2 * step);
    case 6:
        return now_ns + agree_below(random, 10 * step);
    case 7:
    case 8:
        return now_ns + agree_below(random, window / 4);
    case 9:
        return edge - 1 + agree_below(random, 3);
    case 10:
        return now_ns + (agree_below(random, 8) == 0 ? agree_below(random, 4 * window) : 0);
    case 11:
        if (agree_below(random, 12) > 0 || !agree_may_go_back(limit))
            return now_ns + 7;
        (*backwards)++;
        return now_ns - agree_below(random, agree_below(random, 2) ? 3 * window : window / 3);
    default:
        return now_ns + agree_below(random, 1000000);
    }
}

static inline uint64_t agree_hits(uint64_t *random, const struct weir_limit *limit)
{
    uint64_t most = limit->algorithm == WEIR_SLIDING_WINDOW_LOG ? limit->requests : limit->burst;
    switch (agree_below(random, 12)) {
    case 0:
        return 0;
    case 1:
        return most + agree_below(random, 3) - (most > 1);
    case 2:
    case 3:
        return 1 + agree_below(random, most / 2 + 1);
    case 4:
        return 1 + agree_below(random, most / 10 + 1);
    case 5:
        return limit->requests - agree_below(random, limit->requests);
    case 6:
        return agree_below(random, 20) == 0 ? UINT64_MAX >> agree_below(random, 40) : 2;
    default:
        return 1 + agree_below(random, 3);
    }
}

#endif
