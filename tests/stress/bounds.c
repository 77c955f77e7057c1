/* bounds.c - the most that passes in any rolling window, for each algorithm and kind of
 * traffic, beside its bound.
 *
 * In virtual time, through the store.  A line for each, to be compared with docs/algorithms.md:
 *
 *     # bound | ALGORITHM | TRAFFIC | BOUND | MEASURED
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "store_rig.h"

#include <math.h>

#define L 100u
#define WINDOW_S 60u
#define WINDOW_NS (WINDOW_S * UINT64_C(1000000000))
#define WINDOWS 60u /* of each run */

static const struct {
    const char *name; /* as in the docs */
    struct weir_limit_spec spec;
    uint32_t bound;  /* in a rolling window, both ends included */
    bool is_leaving; /* when they leave the queue, not when they come */
} kinds[] = {
    {"fixed_window", {.algorithm = WEIR_FIXED_WINDOW}, 2 * L, false},
    {"sliding_window_counter", {.algorithm = WEIR_SLIDING_WINDOW_COUNTER}, 2 * L, false},
    {"sliding_window_counter buckets",
     {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .buckets = 10},
     L,
     false},
    {"sliding_window_log", {.algorithm = WEIR_SLIDING_WINDOW_LOG}, L, false},
    {"token_bucket", {.algorithm = WEIR_TOKEN_BUCKET}, 2 * L, false},
    {"token_bucket interval",
     {.algorithm = WEIR_TOKEN_BUCKET, .refill_interval = true},
     2 * L,
     false},
    {"leaky_bucket", {.algorithm = WEIR_LEAKY_BUCKET}, 2 * L + 1, false},
    {"leaky_bucket leaving", {.algorithm = WEIR_LEAKY_BUCKET}, L + 1, true},
    {"concurrency", {.algorithm = WEIR_CONCURRENCY}, L, false}, /* never given back */
};
#define KINDS (sizeof kinds / sizeof *kinds)

enum traffic { STEADY, POISSON, EDGE_BURST, FLOOD, TRAFFICS };
static const char *const traffic_names[] = {"steady", "poisson", "edge-burst", "flood"};

/* The instant after `now` at which the next request comes. */
static uint64_t next_ns(enum traffic traffic, uint64_t now_ns, uint64_t n, uint64_t *random)
{
    double mean_ns = (double)WINDOW_NS / L / 2;
    switch (traffic) {
    case STEADY:
        return now_ns + (uint64_t)mean_ns;
    case POISSON: {
        double u = ((double)(rig_random(random) >> 11) + 1) / 9007199254740993.0;
        return now_ns + (uint64_t)(-log(u) * mean_ns);
    }
    case EDGE_BURST: /* two limits' worth just before a window ends, and as much just after */
        if (n % (4 * L) == 0)
            return (now_ns / WINDOW_NS + 2) * WINDOW_NS - 2 * L;
        return n % (4 * L) == 2 * L ? (now_ns / WINDOW_NS + 1) * WINDOW_NS : now_ns + 1;
    case FLOOD:
    case TRAFFICS:
        break;
    }
    return now_ns + WINDOW_NS / L / 20 + rig_random(random) % 1000;
}

/* The most of the times within a window of each other. */
static uint64_t densest(const uint64_t *times, uint64_t count)
{
    uint64_t most = 0, from = 0;
    for (uint64_t to = 0; to < count; to++) {
        while (times[to] - times[from] > WINDOW_NS)
            from++;
        if (to - from + 1 > most)
            most = to - from + 1;
    }
    return most;
}

static uint64_t measure(size_t kind, enum traffic traffic, uint64_t seed)
{
    static uint64_t times[WINDOWS * 4 * L];
    static const struct weir_table_geometry geometry = {.file_bytes = 1 << 20};
    struct weir_table *table = rig_open(NULL, &geometry);
    struct weir_limit_spec spec = kinds[kind].spec;
    spec.window_s = WINDOW_S;
    spec.requests_per_unit = L;
    struct weir_limit limit = rig_limit(table, spec, 1);
    uint64_t now_ns = RIG_START_NS, count = 0, random = seed;
    for (uint64_t n = 0; now_ns < RIG_START_NS + WINDOWS * WINDOW_NS; n++) {
        now_ns = next_ns(traffic, now_ns, n, &random);
        struct weir_verdict verdict;
        uint64_t mark;
        weir_local_take(table, &limit, 1, now_ns, 1, &verdict, &mark);
        if (verdict.allowed && count < WINDOWS * 4 * L)
            times[count++] = now_ns + (kinds[kind].is_leaving ? verdict.delay_ns : 0);
    }
    weir_table_close(table);
    return densest(times, count);
}

static void no_window_admits_more_than_its_bound(void **state)
{
    (void)state;
    uint64_t seed = rig_seed();
    printf("# limit %u in %u s, bursts and queues as long\n", L, WINDOW_S);
    for (size_t kind = 0; kind < KINDS; kind++) {
        uint64_t most = 0;
        for (uint32_t traffic = 0; traffic < TRAFFICS; traffic++) {
            uint64_t measured = measure(kind, (enum traffic)traffic, seed + traffic);
            printf("# bound | %s | %s | %u | %" PRIu64 "\n", kinds[kind].name,
                   traffic_names[traffic], kinds[kind].bound, measured);
            assert_true(measured <= kinds[kind].bound);
            most = measured > most ? measured : most;
        }
        assert_true(most >= L); /* or the traffic was none */
    }
}

/* What leaves a leaky bucket is a step apart, and no more than B wait. */
static void what_leaves_a_leaky_bucket_is_a_step_apart(void **state)
{
    (void)state;
    struct weir_table *table = rig_open(NULL, NULL);
    struct weir_limit_spec spec = {
        .algorithm = WEIR_LEAKY_BUCKET, .window_s = WINDOW_S, .requests_per_unit = L};
    struct weir_limit limit = rig_limit(table, spec, 1);
    uint64_t random = rig_seed(), now_ns = RIG_START_NS, last_ns = 0;
    for (uint64_t n = 0; n < rig_scaled(100000, 10000); n++) {
        struct weir_verdict verdict;
        uint64_t mark;
        now_ns = next_ns((enum traffic)(n / 5000 % TRAFFICS), now_ns, n, &random);
        weir_local_take(table, &limit, 1, now_ns, 1, &verdict, &mark);
        if (!verdict.allowed)
            continue;
        assert_true(verdict.delay_ns <= WINDOW_NS);
        assert_true(now_ns + verdict.delay_ns >= last_ns + WINDOW_NS / L);
        last_ns = now_ns + verdict.delay_ns;
    }
    weir_table_close(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_window_admits_more_than_its_bound),
        cmocka_unit_test(what_leaves_a_leaky_bucket_is_a_step_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
