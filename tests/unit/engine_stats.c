/* Near-limit statistics, number by number as envoyproxy/ratelimit counts them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/stats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* What a fixed window of `limit` adds when `before` hits came earlier and `hits` come now. */
static struct weir_stats_increment increment(uint64_t limit, uint64_t before, uint64_t hits)
{
    struct weir_verdict v = {.allowed = before + hits <= limit, .limit = limit, .before = before};
    return weir_stats_increment_of(&v, hits, 0.8f, false);
}

static void hits_below_the_near_threshold_are_within_only(void **state)
{
    (void)state;
    struct weir_stats_increment inc = increment(20, 2, 3);
    assert_int_equal(inc.total_hits, 3);
    assert_int_equal(inc.within_limit, 3);
    assert_int_equal(inc.near_limit, 0);
    assert_int_equal(inc.over_limit, 0);
    assert_int_equal(inc.shadow_mode, 0);
}

static void of_hits_that_cross_the_threshold_the_part_beyond_is_near(void **state)
{
    (void)state;
    assert_int_equal(increment(8, 5, 2).near_limit, 1); /* the threshold is 6 */
    assert_int_equal(increment(8, 4, 2).near_limit, 0);
    assert_int_equal(increment(8, 6, 2).near_limit, 2);
    assert_int_equal(increment(15, 10, 1).near_limit, 0); /* 12 */
    assert_int_equal(increment(15, 12, 1).near_limit, 1);
    assert_int_equal(increment(20, 14, 5).near_limit, 3); /* 16 */
}

static void a_refused_request_counts_over_only_beyond_the_limit(void **state)
{
    (void)state;
    struct weir_stats_increment inc = increment(20, 15, 7);
    assert_int_equal(inc.over_limit, 2);
    assert_int_equal(inc.near_limit, 4); /* 16 .. 20 */
    assert_int_equal(inc.within_limit, 0);
    inc = increment(20, 18, 7);
    assert_int_equal(inc.over_limit, 5);
    assert_int_equal(inc.near_limit, 2);
    inc = increment(15, 15, 1);
    assert_int_equal(inc.over_limit, 1);
    assert_int_equal(inc.near_limit, 0);
    inc = increment(15, 40, 30);
    assert_int_equal(inc.over_limit, 30);
}

static void a_look_counts_nothing(void **state)
{
    (void)state;
    struct weir_stats_increment none = {0}, inc = increment(10, 11, 0);
    assert_memory_equal(&inc, &none, sizeof(inc));
    inc = increment(10, 9, 0);
    assert_memory_equal(&inc, &none, sizeof(inc));
}

static void a_limit_of_zero_is_all_over(void **state)
{
    (void)state;
    struct weir_stats_increment inc = increment(0, 0, 3);
    assert_int_equal(inc.over_limit, 3);
    assert_int_equal(inc.near_limit, 0);
}

static void shadow_counts_what_would_have_been_over(void **state)
{
    (void)state;
    struct weir_verdict v = {.allowed = false, .limit = 3, .before = 2};
    assert_int_equal(weir_stats_increment_of(&v, 4, 0.8f, true).shadow_mode, 3);
    v.before = 5;
    assert_int_equal(weir_stats_increment_of(&v, 4, 0.8f, true).shadow_mode, 4);
    v = (struct weir_verdict){.allowed = true, .limit = 3, .before = 0};
    assert_int_equal(weir_stats_increment_of(&v, 1, 0.8f, true).shadow_mode, 0);
}

static void refusals_by_the_sketch_are_counted_apart_too(void **state)
{
    (void)state;
    struct weir_verdict v = {.allowed = false, .by_sketch = true, .limit = 3, .before = 2};
    assert_int_equal(weir_stats_increment_of(&v, 4, 0.8f, false).over_limit, 3);
    assert_int_equal(weir_stats_increment_of(&v, 4, 0.8f, false).over_limit_by_sketch, 3);
    v.by_sketch = false;
    assert_int_equal(weir_stats_increment_of(&v, 4, 0.8f, false).over_limit_by_sketch, 0);
}

static void the_threshold_is_rounded_in_float32(void **state)
{
    (void)state;
    /* 0.8f x 5 is 4 in float32, though 0.8f alone is a little more than 0.8. */
    assert_int_equal(increment(5, 4, 1).near_limit, 1);
    assert_int_equal(increment(5, 3, 1).near_limit, 0);
    /* 0.8f x 16777217 cannot be told from 0.8f x 16777216. */
    assert_int_equal(increment(16777217, 13421773, 1).near_limit,
                     increment(16777216, 13421773, 1).near_limit);
}

static void numbers_at_their_ends_do_not_wrap(void **state)
{
    (void)state;
    struct weir_verdict v = {.allowed = false, .limit = UINT32_MAX, .before = 1};
    struct weir_stats_increment inc = weir_stats_increment_of(&v, UINT64_MAX, 0.8f, false);
    assert_int_equal(inc.over_limit, UINT64_MAX - UINT32_MAX);
    v = (struct weir_verdict){.allowed = false, .limit = 10, .before = 5};
    inc = weir_stats_increment_of(&v, 6, 2.0f, false); /* a threshold above the limit */
    assert_int_equal(inc.near_limit, 0);
    assert_int_equal(inc.over_limit, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hits_below_the_near_threshold_are_within_only),
        cmocka_unit_test(of_hits_that_cross_the_threshold_the_part_beyond_is_near),
        cmocka_unit_test(a_refused_request_counts_over_only_beyond_the_limit),
        cmocka_unit_test(a_look_counts_nothing),
        cmocka_unit_test(a_limit_of_zero_is_all_over),
        cmocka_unit_test(shadow_counts_what_would_have_been_over),
        cmocka_unit_test(refusals_by_the_sketch_are_counted_apart_too),
        cmocka_unit_test(the_threshold_is_rounded_in_float32),
        cmocka_unit_test(numbers_at_their_ends_do_not_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
