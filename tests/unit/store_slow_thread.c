/* A thread that read the clock a while ago gives nothing back that a faster one has taken.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "store/local.h"
#include "table/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define START_NS UINT64_C(1700000040000000000)
#define MS UINT64_C(1000000)

static struct weir_table *table;

static int open_table(void **state)
{
    char why[256];
    struct weir_table_geometry geometry = {.file_bytes = WEIR_TABLE_BYTES_MIN};
    (void)state;
    return weir_table_open(&table, NULL, &geometry, why, sizeof why);
}

static int close_table(void **state)
{
    (void)state;
    weir_table_close(table);
    return 0;
}

static struct weir_limit limit_of(enum weir_algorithm algorithm)
{
    struct weir_limit limit;
    char why[256];
    struct weir_limit_spec spec = {.algorithm = algorithm,
                                   .requests_per_unit = 1000,
                                   .burst = 10,
                                   .window_s = 1,
                                   .buckets = 1};
    assert_int_equal(weir_limit_init(&limit, &spec, why, sizeof why), 0);
    limit.tag = 1;
    assert_int_equal(weir_local_bind(table, &limit), 0);
    return limit;
}

/* Ten seconds of two threads that ask every 100 us, one of them behind by lag_ns. */
static uint64_t passed_in_ten_seconds(const struct weir_limit *limit, uint64_t key, uint64_t lag_ns)
{
    uint64_t passed = 0, mark;
    struct weir_verdict verdict;
    for (uint64_t now_ns = START_NS; now_ns < START_NS + 10000 * MS; now_ns += MS / 10) {
        weir_local_take(table, limit, key, now_ns, 1, &verdict, &mark);
        passed += verdict.allowed;
        weir_local_take(table, limit, key, now_ns - lag_ns, 1, &verdict, &mark);
        passed += verdict.allowed;
    }
    return passed;
}

static void a_token_bucket_keeps_its_rate_with_a_thread_behind(void **state)
{
    (void)state;
    struct weir_limit limit = limit_of(WEIR_TOKEN_BUCKET);
    static const uint64_t lags_ms[] = {0, 1, 5, 50, 1000};
    for (uint64_t i = 0; i < sizeof lags_ms / sizeof *lags_ms; i++) {
        uint64_t passed = passed_in_ten_seconds(&limit, 1000 + i, lags_ms[i] * MS);
        assert_in_range(passed, 10000, 10 + 10000);
    }
}

static void a_leaky_bucket_keeps_its_rate_with_a_thread_behind(void **state)
{
    (void)state;
    struct weir_limit limit = limit_of(WEIR_LEAKY_BUCKET);
    uint64_t passed = passed_in_ten_seconds(&limit, 77, 5 * MS);
    assert_in_range(passed, 10000, 11 + 10000);
}

static void a_clock_that_went_back_far_locks_nobody_out(void **state)
{
    (void)state;
    struct weir_limit limit = limit_of(WEIR_TOKEN_BUCKET);
    struct weir_verdict verdict;
    uint64_t mark;
    weir_local_take(table, &limit, 9, START_NS, 10, &verdict, &mark);
    assert_true(verdict.allowed);
    uint64_t earlier_ns = START_NS - 3600 * 1000 * MS;
    weir_local_take(table, &limit, 9, earlier_ns, 1, &verdict, &mark);
    assert_false(verdict.allowed);
    assert_int_equal(verdict.retry_after_ns, MS);
    weir_local_take(table, &limit, 9, earlier_ns + MS, 1, &verdict, &mark);
    assert_true(verdict.allowed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_bucket_keeps_its_rate_with_a_thread_behind),
        cmocka_unit_test(a_leaky_bucket_keeps_its_rate_with_a_thread_behind),
        cmocka_unit_test(a_clock_that_went_back_far_locks_nobody_out),
    };
    return cmocka_run_group_tests(tests, open_table, close_table);
}
