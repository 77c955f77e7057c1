/* false_refusals.c - after a flood of ten times the slots, how many keys that used nothing are
 * refused?
 *
 * Predicted and measured side by side, with the sizes that weir chooses.  The prediction is the
 * fluid limit of conservative update: with r rows and a load of tau keys for each cell of a
 * row, x_k being the share of cells at k or more,
 *
 *     d x_k / d tau = (x_{k-1} - x_k) * x_{k-1}^(r-1)    x_0 = 1;  a fresh key reads >= k: x_k^r
 *
 * because a key raises a cell from k-1 to k iff that cell is at k-1 and the least of its cells
 * is.  Keys that read the sketch a while before they are charged to it read a little less.  A
 * bucket's debts of different length lie in cells of their own, so it reads more of the small
 * ones and less of the large.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "store_rig.h"
#include "table/layout.h"

#define LEVELS 64u
#define STEPS 9000u /* of the integration */
#define NOW_NS                                                                                     \
    (RIG_START_NS + 1800 * UINT64_C(1000000000)) /* half of an hour's window has passed */

struct rule {
    const char *name;
    struct weir_limit_spec spec;
    uint32_t window_regions, bucket_regions; /* what the rules file would suggest */
    uint64_t part;                           /* of the default size: all sizes are alike */
};

static const struct rule rules[] = {
    {"fixed_window", {.algorithm = WEIR_FIXED_WINDOW, .window_s = 3600}, 1, 0, 1},
    {"token_bucket", {.algorithm = WEIR_TOKEN_BUCKET, .window_s = 3600}, 0, 1, 1},
    {"sliding_window_counter",
     {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .window_s = 3600},
     1,
     0,
     16},
    {"leaky_bucket", {.algorithm = WEIR_LEAKY_BUCKET, .window_s = 3600}, 0, 1, 16},
    {"token_bucket by intervals",
     {.algorithm = WEIR_TOKEN_BUCKET, .window_s = 3600, .refill_interval = true},
     1,
     0,
     16},
    {"concurrency", {.algorithm = WEIR_CONCURRENCY, .window_s = 3600}, 1, 0, 16},
    {"fixed_window beside buckets", {.algorithm = WEIR_FIXED_WINDOW, .window_s = 3600}, 1, 1, 8},
    {"token_bucket beside windows", {.algorithm = WEIR_TOKEN_BUCKET, .window_s = 3600}, 1, 1, 8},
};

/* Fills reads[k] with the odds that a fresh key reads k or more. */
static void predict(double tau, uint32_t rows, double reads[LEVELS])
{
    double x[LEVELS] = {1};
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint32_t k = LEVELS - 1; k > 0; k--) { /* downwards: x[k-1] is still the old one */
            double others = 1;
            for (uint32_t row = 1; row < rows; row++)
                others *= x[k - 1];
            x[k] += (x[k - 1] - x[k]) * others * tau / STEPS;
        }
    }
    for (uint32_t k = 0; k < LEVELS; k++) {
        reads[k] = 1;
        for (uint32_t row = 0; row < rows; row++)
            reads[k] *= x[k];
    }
}

static struct weir_limit limit_of(struct weir_table *table, const struct rule *rule,
                                  uint32_t requests)
{
    struct weir_limit_spec spec = rule->spec;
    spec.requests_per_unit = requests;
    if (spec.algorithm == WEIR_LEAKY_BUCKET)
        spec.burst = requests - 1;
    return rig_limit(table, spec, 1);
}

/* Keys for each cell of a row: all that were evicted, in the part of the sketch that is theirs. */
static double load_of(const struct weir_table *table, bool is_bucket, uint64_t evictions)
{
    struct weir_table_geometry layout;
    weir_table_layout(table, &layout);
    double share = layout.bucket_share / 8.0; /* as the file has it: of 8 */
    double cells = (double)layout.sketch_cells;
    cells = is_bucket ? cells * share : cells * (1 - share) / layout.window_regions;
    return (double)evictions / (cells / WEIR_SKETCH_ROWS);
}

/* How many of so many fresh keys find `k` or more in use, for each k. */
static void measure(struct weir_table *table, const struct weir_limit *limit, uint64_t seed,
                    double reads[LEVELS])
{
    const uint64_t probes = 500000;
    memset(reads, 0, LEVELS * sizeof *reads);
    for (uint64_t n = 0; n < probes; n++) {
        struct weir_verdict verdict;
        weir_local_look(table, limit, rig_key(seed, n), NOW_NS, 1, &verdict);
        for (uint64_t k = 0; k <= verdict.before && k < LEVELS; k++)
            reads[k] += 1.0 / (double)probes;
    }
}

static void show(const char *name, double tau, const double *predicted, const double *measured)
{
    printf("# %s: %.2f keys for each cell of a row\n#   in use, or more  ", name, tau);
    for (uint32_t k = 1; k <= 12; k++)
        printf(" %8u", k);
    printf("\n#   predicted        ");
    for (uint32_t k = 1; k <= 12; k++)
        printf(" %7.3f%%", 100 * predicted[k]);
    printf("\n#   measured         ");
    for (uint32_t k = 1; k <= 12; k++)
        printf(" %7.3f%%", 100 * measured[k]);
    printf("\n");
    fflush(stdout);
}

static void check_rule(const struct rule *rule, uint64_t seed)
{
    static double predicted[LEVELS], measured[LEVELS];
    struct weir_table_geometry geometry = {
        .file_bytes = rig_scaled(WEIR_TABLE_BYTES_DEFAULT / rule->part, 4 << 20),
        .window_regions = rule->window_regions,
        .bucket_regions = rule->bucket_regions};
    struct weir_table *table = rig_open(NULL, &geometry);
    struct weir_table_stats stats;
    weir_table_stats(table, NOW_NS, &stats);
    struct weir_limit limit = limit_of(table, rule, 10);
    for (uint64_t n = 0; n < 10 * stats.slots; n++)
        (void)rig_take(table, &limit, rig_key(seed, n), NOW_NS, 1);
    weir_table_stats(table, NOW_NS, &stats);
    bool is_bucket = !rule->spec.refill_interval && (rule->spec.algorithm == WEIR_TOKEN_BUCKET ||
                                                     rule->spec.algorithm == WEIR_LEAKY_BUCKET);
    double tau = load_of(table, is_bucket, stats.evictions);
    predict(tau, WEIR_SKETCH_ROWS, predicted);
    measure(table, &limit, seed + 1, measured);
    show(rule->name, tau, predicted, measured);
    printf("#   refused at a limit of 10: predicted %.4f%%, measured %.4f%%\n", 100 * predicted[10],
           100 * measured[10]);
    weir_table_close(table);
    assert_true(predicted[10] <= 0.001);
    assert_true(measured[10] <= 0.001);
}

/* A rule by the second and one by the hour, each with half of the flood. */
static void check_two_windows(uint64_t seed)
{
    static double predicted[LEVELS], measured[LEVELS];
    static const uint64_t windows_s[] = {1, 3600};
    struct weir_table_geometry geometry = {.file_bytes = 8 << 20, .window_regions = 2};
    struct weir_table *table = rig_open(NULL, &geometry);
    struct weir_table_stats stats;
    struct weir_limit limits[2];
    for (uint32_t i = 0; i < 2; i++) {
        struct weir_limit_spec spec = {
            .algorithm = WEIR_FIXED_WINDOW, .window_s = windows_s[i], .requests_per_unit = 10};
        limits[i] = rig_limit(table, spec, i + 1);
    }
    weir_table_stats(table, NOW_NS, &stats);
    for (uint64_t n = 0; n < 10 * stats.slots; n++)
        (void)rig_take(table, &limits[n % 2], rig_key(seed, n), NOW_NS, 1);
    weir_table_stats(table, NOW_NS, &stats);
    double tau = load_of(table, false, stats.evictions / 2);
    predict(tau, WEIR_SKETCH_ROWS, predicted);
    for (uint32_t i = 0; i < 2; i++) {
        measure(table, &limits[i], seed + 1, measured);
        show(i == 0 ? "by the second, beside an hour" : "by the hour, beside a second", tau,
             predicted, measured);
        assert_true(measured[10] <= 0.001);
    }
    weir_table_close(table);
}

static void keys_that_used_nothing_are_seldom_refused(void **state)
{
    (void)state;
    uint64_t seed = rig_seed();
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        check_rule(&rules[i], seed + 10 * i);
}

static void two_windows_that_flood_together_stay_apart(void **state)
{
    (void)state;
    check_two_windows(rig_seed());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_that_used_nothing_are_seldom_refused),
        cmocka_unit_test(two_windows_that_flood_together_stay_apart),
    };
    /* No threads here, so nothing for ThreadSanitizer to find, and ten times the time. */
    return RIG_HAS_PROCESSES ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
