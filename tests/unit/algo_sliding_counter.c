/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/sliding_counter.h"
#include "algo_rig.h"

#define COUNT_MAX ((UINT64_C(1) << 40) - 1)

static struct weir_limit per_minute(uint32_t requests, bool round_up)
{
    return limit_of((struct weir_limit_spec){WEIR_SLIDING_WINDOW_COUNTER, requests, requests, 60, 1,
                                             .round_up = round_up});
}

static struct weir_verdict take(const struct weir_limit *l, struct weir_slide *s, uint64_t now_ns,
                                uint64_t hits)
{
    struct weir_verdict v;
    weir_sliding_counter_take(l, s, COUNT_MAX, now_ns, hits, &v);
    return v;
}

static void the_window_before_counts_by_what_is_left_of_it(void **state)
{
    (void)state;
    struct weir_limit l = per_minute(10, false);
    struct weir_slide s = {0};
    assert_true(take(&l, &s, T0, 10).allowed);
    struct weir_verdict v = take(&l, &s, T0 + 75 * S, 0); /* a quarter into the next */
    assert_int_equal(v.before, 7);                        /* floor(7.5) */
    CHECK(take(&l, &s, T0 + 75 * S, 3), .allowed = true, .limit = 10, .reset_after_ns = 105 * S);
}

static void rounding_up_is_the_other_choice(void **state)
{
    (void)state;
    struct weir_limit l = per_minute(10, true);
    struct weir_slide s = {0};
    take(&l, &s, T0, 10);
    assert_int_equal(take(&l, &s, T0 + 75 * S, 0).before, 8);
    assert_int_equal(take(&l, &s, T0 + 72 * S, 0).before, 8); /* exactly 8 */
    assert_int_equal(take(&l, &s, T0 + 72 * S + 1, 0).before, 8);
    assert_int_equal(take(&l, &s, T0 + 72 * S - 1, 0).before, 9);
}

static void retry_after_is_exact_to_the_nanosecond(void **state)
{
    (void)state;
    struct weir_limit down = per_minute(10, false), up = per_minute(10, true);
    struct weir_slide s = {0};
    take(&down, &s, T0, 10);
    /* Down: below 10 from the first nanosecond on; up: once a tenth has passed. */
    assert_int_equal(take(&down, &s, T0 + 60 * S, 1).retry_after_ns, 1);
    assert_int_equal(take(&up, &s, T0 + 60 * S, 1).retry_after_ns, 6 * S);
    assert_false(take(&up, &s, T0 + 66 * S - 1, 1).allowed);
    assert_true(take(&up, &s, T0 + 66 * S, 1).allowed);
}

static void a_wait_may_last_into_the_next_window(void **state)
{
    (void)state;
    struct weir_limit l = per_minute(10, false);
    struct weir_slide s = {0};
    take(&l, &s, T0 + 30 * S, 10);
    assert_int_equal(take(&l, &s, T0 + 30 * S, 1).retry_after_ns, 30 * S + 1);
    assert_int_equal(take(&l, &s, T0 + 30 * S, 10).retry_after_ns, 84 * S + 1);
    CHECK(take(&l, &s, T0 + 30 * S, 11), .limit = 10, .reset_after_ns = 90 * S,
          .retry_after_ns = WEIR_NEVER);
}

static void refused_hits_do_not_count_unless_told_to(void **state)
{
    (void)state;
    struct weir_limit l = per_minute(2, false);
    struct weir_slide s = {0};
    take(&l, &s, T0, 2);
    assert_false(take(&l, &s, T0, 2).allowed);
    assert_int_equal(s.current, 2);
    l.count_rejected = true;
    assert_int_equal(take(&l, &s, T0, 2).retry_after_ns, 105 * S + 1);
    assert_int_equal(s.current, 4);
}

static void both_counts_saturate(void **state)
{
    (void)state;
    struct weir_limit l = per_minute(1, true);
    l.count_rejected = true;
    struct weir_slide s = {0};
    for (int i = 0; i < 3; i++)
        take(&l, &s, T0, UINT64_MAX);
    assert_int_equal(s.current, COUNT_MAX);
    take(&l, &s, T0 + 60 * S, UINT64_MAX);
    assert_int_equal(s.previous, COUNT_MAX);
    assert_int_equal(s.current, COUNT_MAX);
    assert_int_equal(take(&l, &s, T0 + 60 * S, 1).retry_after_ns, 120 * S);
}

static void a_clock_that_went_back_finds_the_window_used(void **state)
{
    (void)state;
    struct weir_limit l = per_minute(4, false);
    struct weir_slide s = {0};
    take(&l, &s, T0 - 60 * S, 2);
    take(&l, &s, T0, 2);
    CHECK(take(&l, &s, T0 - 1, 1), .limit = 4, .reset_after_ns = 120 * S + 1, .retry_after_ns = 2);
    CHECK(take(&l, &s, T0 - 3600 * S, 1), .limit = 4, .reset_after_ns = 180 * S,
          .retry_after_ns = 60 * S + 1);
}

static void the_ends_of_time_are_times(void **state)
{
    (void)state;
    struct weir_limit l = limit_of((struct weir_limit_spec){WEIR_SLIDING_WINDOW_COUNTER, UINT32_MAX,
                                                            0, WEIR_WINDOW_S_MAX, .buckets = 1});
    struct weir_slide s = {0};
    uint64_t elapsed_ns = NOW_MAX % l.window_ns;
    CHECK(take(&l, &s, NOW_MAX, UINT32_MAX), .allowed = true, .limit = UINT32_MAX,
          .reset_after_ns = 2 * l.window_ns - elapsed_ns);
    CHECK(take(&l, &s, 0, 1), .limit = UINT32_MAX, .reset_after_ns = 3 * l.window_ns,
          .retry_after_ns = 2 * l.window_ns + 1);
    assert_int_equal(take(&l, &s, 0, UINT64_MAX).retry_after_ns, WEIR_NEVER);
}

static void hits_given_back_leave_the_current_window_first(void **state)
{
    (void)state;
    struct weir_limit l = per_minute(10, false);
    struct weir_slide s = {0};
    struct weir_verdict v;
    take(&l, &s, T0, 4);
    take(&l, &s, T0 + 60 * S, 3);
    weir_sliding_counter_give(&l, &s, T0 + 60 * S, 5, &v);
    CHECK(v, .allowed = true, .limit = 10, .remaining = 8, .reset_after_ns = 60 * S);
    assert_int_equal(v.before, 7);
    assert_int_equal(s.current, 0);
    assert_int_equal(s.previous, 2);
    weir_sliding_counter_give(&l, &s, T0 + 60 * S, UINT64_MAX, &v);
    CHECK(v, .allowed = true, .limit = 10, .remaining = 10);
}

static void a_limit_of_0_refuses_every_hit_for_good(void **state)
{
    (void)state;
    struct weir_limit l = per_minute(0, false);
    struct weir_slide s = {0};
    CHECK(take(&l, &s, T0, 1), .retry_after_ns = WEIR_NEVER);
    CHECK(take(&l, &s, T0, 0), .allowed = true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_window_before_counts_by_what_is_left_of_it),
        cmocka_unit_test(rounding_up_is_the_other_choice),
        cmocka_unit_test(retry_after_is_exact_to_the_nanosecond),
        cmocka_unit_test(a_wait_may_last_into_the_next_window),
        cmocka_unit_test(refused_hits_do_not_count_unless_told_to),
        cmocka_unit_test(both_counts_saturate),
        cmocka_unit_test(a_clock_that_went_back_finds_the_window_used),
        cmocka_unit_test(the_ends_of_time_are_times),
        cmocka_unit_test(hits_given_back_leave_the_current_window_first),
        cmocka_unit_test(a_limit_of_0_refuses_every_hit_for_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
