/* SPDX-License-Identifier: Apache-2.0 */
#include "algo_rig.h"
#include "base/maxima.h"

static const enum weir_algorithm all[] = {WEIR_FIXED_WINDOW,       WEIR_SLIDING_WINDOW_COUNTER,
                                          WEIR_SLIDING_WINDOW_LOG, WEIR_TOKEN_BUCKET,
                                          WEIR_LEAKY_BUCKET,       WEIR_CONCURRENCY};
#define ALL (sizeof(all) / sizeof(all[0]))

static void refused(struct weir_limit_spec spec, const char *because)
{
    struct weir_limit limit = {.requests = 77};
    char why[200] = "";
    assert_int_equal(weir_limit_init(&limit, &spec, why, sizeof(why)), WEIR_ERR_TOO_LARGE);
    assert_string_equal(why, because);
    assert_int_equal(limit.requests, 77); /* changed on success only */
}

static void a_step_is_a_fraction_in_lowest_terms(void **state)
{
    (void)state;
    struct weir_limit l =
        limit_of((struct weir_limit_spec){WEIR_TOKEN_BUCKET, 3, 9, 1, .buckets = 1});
    assert_int_equal(l.step_ns, 333333333);
    assert_int_equal(l.step_num, 1);
    assert_int_equal(l.step_den, 3);
    assert_int_equal(l.cap_ns, 3 * S);
    assert_int_equal(l.cap_num, 0);
    l = limit_of((struct weir_limit_spec){WEIR_LEAKY_BUCKET, 6, 2, 60, .buckets = 1});
    assert_int_equal(l.step_ns, 10 * S);
    assert_int_equal(l.step_den, 1);
    assert_int_equal(l.cap_ns, 20 * S);
}

static void a_step_finer_than_a_65536th_is_rounded_up(void **state)
{
    (void)state;
    struct weir_limit l =
        limit_of((struct weir_limit_spec){WEIR_TOKEN_BUCKET, 65536, 1, 1, .buckets = 1});
    assert_int_equal(l.step_den, 128); /* 65536 / gcd(10^9, 65536) */
    l = limit_of((struct weir_limit_spec){WEIR_TOKEN_BUCKET, 65521, 1, 1, .buckets = 1});
    assert_int_equal(l.step_den, 65521); /* a prime */
    l = limit_of((struct weir_limit_spec){WEIR_TOKEN_BUCKET, 65537, 1, 1, .buckets = 1});
    assert_int_equal(l.step_den, 65536); /* a prime too, and one too many */
    assert_int_equal(l.step_ns, 15258);
    assert_int_equal(l.step_num, 36454); /* 36453.4, rounded up */
    l = limit_of((struct weir_limit_spec){WEIR_TOKEN_BUCKET, UINT32_MAX, 1, 1, .buckets = 1});
    assert_int_equal(l.step_ns, 0);
    assert_true(l.step_num > 0);
}

static void the_longest_window_fits_and_the_next_does_not(void **state)
{
    (void)state;
    for (size_t i = 0; i < ALL; i++) {
        struct weir_limit_spec spec = {all[i], 1, 1, WEIR_WINDOW_S_MAX, .buckets = 1};
        assert_int_equal(limit_of(spec).window_ns, WEIR_WINDOW_S_MAX * S);
        spec.window_s++;
        refused(spec, "a window of 3153600001 seconds is longer than 100 years");
        spec.window_s = UINT64_MAX;
        refused(spec, "a window of 18446744073709551615 seconds is longer than 100 years");
        spec.window_s = 0;
        refused(spec, "a window of no length");
    }
}

static void a_limit_of_0_is_a_limit(void **state)
{
    (void)state;
    for (size_t i = 0; i < ALL; i++) {
        struct weir_limit l = limit_of((struct weir_limit_spec){all[i], 0, 0, 60, .buckets = 1});
        assert_int_equal(l.requests, 0);
        l = limit_of((struct weir_limit_spec){all[i], 0, UINT32_MAX, 60, .buckets = 0});
        assert_int_equal(l.buckets, 1);
    }
}

static void a_bucket_must_fill_within_146_years(void **state)
{
    (void)state;
    struct weir_limit_spec spec = {WEIR_TOKEN_BUCKET, 1, 146, 31536000, .buckets = 1};
    assert_int_equal(limit_of(spec).cap_ns, 146 * UINT64_C(31536000) * S);
    spec.burst = 147;
    refused(spec, "burst 147 at 1 per year takes longer than 146 years to refill");
    spec.algorithm = WEIR_LEAKY_BUCKET;
    refused(spec, "burst 147 at 1 per year takes longer than 146 years to drain");
    spec.window_s = 3 * 31536000;
    spec.burst = UINT32_MAX;
    refused(spec, "burst 4294967295 at 1 per 3 years takes longer than 146 years to drain");
}

static void with_refill_at_intervals_it_may_take_longer(void **state)
{
    (void)state;
    struct weir_limit l = limit_of((struct weir_limit_spec){
        WEIR_TOKEN_BUCKET, 1, UINT32_MAX, WEIR_WINDOW_S_MAX, 1, .refill_interval = true});
    assert_int_equal(l.cap_ns, WEIR_BUCKET_SPAN_NS_MAX);
}

static void counts_are_bounded_by_what_a_table_holds(void **state)
{
    (void)state;
    struct weir_limit_spec spec = {WEIR_SLIDING_WINDOW_LOG, WEIR_LOG_LIMIT_MAX, 0, 1, .buckets = 1};
    assert_int_equal(limit_of(spec).requests, WEIR_LOG_LIMIT_MAX);
    spec.requests_per_unit++;
    refused(spec, "1000001 requests are more than a log's 1000000");
    spec.algorithm = WEIR_CONCURRENCY;
    spec.requests_per_unit = WEIR_CONCURRENCY_LIMIT_MAX;
    assert_int_equal(limit_of(spec).requests, WEIR_CONCURRENCY_LIMIT_MAX);
    spec.requests_per_unit++;
    refused(spec, "16384 requests at once are more than 16383");
}

static void buckets_divide_their_window(void **state)
{
    (void)state;
    struct weir_limit_spec spec = {WEIR_SLIDING_WINDOW_COUNTER, INT32_MAX, 0, 1,
                                   .buckets = WEIR_BUCKETS_MAX};
    assert_int_equal(limit_of(spec).buckets, 64);
    spec.buckets++;
    refused(spec, "65 buckets are more than 64");
    spec.buckets = 7;
    refused(spec, "7 buckets per second are not whole nanoseconds long");
    spec.window_s = 7 * 60;
    assert_int_equal(limit_of(spec).buckets, 7);
    spec.requests_per_unit = UINT32_C(1) << 31;
    refused(spec, "2147483648 requests are more than 2147483647, the most that buckets can count");
    spec.buckets = 1;
    assert_int_equal(limit_of(spec).requests, UINT32_C(1) << 31);
    spec.algorithm = WEIR_FIXED_WINDOW;
    spec.buckets = 65;
    assert_int_equal(limit_of(spec).buckets, 1); /* nobody else has any */
}

static void another_rate_keeps_the_place_in_the_table(void **state)
{
    (void)state;
    struct weir_limit base =
        limit_of((struct weir_limit_spec){WEIR_TOKEN_BUCKET, 2, 4, 60, 1, .count_rejected = true});
    struct weir_limit out;
    base.tag = 99;
    base.generation = 3;
    base.window_class = 7;
    base.record = 12;
    base.is_host_scope = true;
    assert_int_equal(weir_limit_with(&out, &base, 3, 6, NULL, 0), 0);
    assert_int_equal(out.requests, 3);
    assert_int_equal(out.burst, 6);
    assert_int_equal(out.step_ns, 20 * S);
    assert_int_equal(out.cap_ns, 120 * S);
    assert_int_equal(out.tag, 99);
    assert_int_equal(out.generation, 3);
    assert_int_equal(out.window_class, 7);
    assert_int_equal(out.record, 12);
    assert_true(out.is_host_scope);
    assert_true(out.count_rejected);
    assert_int_equal(weir_limit_with(&out, &base, 1, UINT32_MAX, NULL, 0), WEIR_ERR_TOO_LARGE);
    assert_int_equal(out.requests, 3);
}

static void units_and_algorithms_have_names(void **state)
{
    (void)state;
    assert_int_equal(weir_unit_seconds(WEIR_UNIT_SECOND), 1);
    assert_int_equal(weir_unit_seconds(WEIR_UNIT_WEEK), 604800);
    assert_int_equal(weir_unit_seconds(WEIR_UNIT_MONTH), 30 * 86400);
    assert_int_equal(weir_unit_seconds(WEIR_UNIT_UNKNOWN), 0);
    assert_int_equal(weir_unit_seconds((enum weir_unit)8), 0);
    assert_string_equal(weir_unit_name(WEIR_UNIT_YEAR), "year");
    assert_null(weir_unit_name(WEIR_UNIT_UNKNOWN));
    assert_null(weir_unit_name((enum weir_unit)8));
    assert_string_equal(weir_algorithm_name(WEIR_CONCURRENCY), "concurrency");
    assert_null(weir_algorithm_name((enum weir_algorithm)6));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_a_fraction_in_lowest_terms),
        cmocka_unit_test(a_step_finer_than_a_65536th_is_rounded_up),
        cmocka_unit_test(the_longest_window_fits_and_the_next_does_not),
        cmocka_unit_test(a_limit_of_0_is_a_limit),
        cmocka_unit_test(a_bucket_must_fill_within_146_years),
        cmocka_unit_test(with_refill_at_intervals_it_may_take_longer),
        cmocka_unit_test(counts_are_bounded_by_what_a_table_holds),
        cmocka_unit_test(buckets_divide_their_window),
        cmocka_unit_test(another_rate_keeps_the_place_in_the_table),
        cmocka_unit_test(units_and_algorithms_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
