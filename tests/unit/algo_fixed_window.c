/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/fixed_window.h"
#include "algo_rig.h"

static struct weir_limit per_minute(uint32_t requests, bool count_rejected)
{
    return limit_of((struct weir_limit_spec){WEIR_FIXED_WINDOW, requests, requests, 60, 1,
                                             .count_rejected = count_rejected});
}

static struct weir_verdict take(const struct weir_limit *l, struct weir_window *w, uint64_t now_ns,
                                uint64_t hits)
{
    struct weir_verdict v;
    weir_fixed_window_take(l, w, now_ns, hits, &v);
    return v;
}

static void each_window_of_the_clock_admits_the_limit(void **state)
{
    (void)state;
    struct weir_limit l = per_minute(2, true);
    struct weir_window w = {0};
    CHECK(take(&l, &w, T0, 1), .allowed = true, .limit = 2, .remaining = 1,
          .reset_after_ns = 60 * S);
    CHECK(take(&l, &w, T0 + 60 * S - 1, 1), .allowed = true, .limit = 2, .reset_after_ns = 1);
    CHECK(take(&l, &w, T0 + 60 * S - 1, 1), .limit = 2, .reset_after_ns = 1, .retry_after_ns = 1);
    CHECK(take(&l, &w, T0 + 60 * S, 2), .allowed = true, .limit = 2, .reset_after_ns = 60 * S);
}

static void refused_hits_count_unless_told_not_to(void **state)
{
    (void)state;
    struct weir_limit counts = per_minute(3, true), ignores = per_minute(3, false);
    struct weir_window w = {0};
    assert_true(take(&counts, &w, T0, 2).allowed);
    assert_false(take(&counts, &w, T0, 2).allowed);
    assert_int_equal(take(&counts, &w, T0, 0).before, 4);
    assert_false(take(&counts, &w, T0, 1).allowed);
    w = (struct weir_window){0};
    assert_true(take(&ignores, &w, T0, 2).allowed);
    assert_false(take(&ignores, &w, T0, 2).allowed);
    assert_true(take(&ignores, &w, T0, 1).allowed);
}

static void looking_at_exactly_the_limit_is_allowed(void **state)
{
    (void)state;
    struct weir_limit l = per_minute(2, true);
    struct weir_window w = {0};
    assert_true(take(&l, &w, T0, 2).allowed);
    assert_true(take(&l, &w, T0, 0).allowed);
    assert_false(take(&l, &w, T0, 1).allowed);
    assert_false(take(&l, &w, T0, 0).allowed); /* now it is above */
}

static void more_than_the_limit_can_never_pass(void **state)
{
    (void)state;
    struct weir_limit l = per_minute(UINT32_MAX, false);
    struct weir_window w = {0};
    assert_int_equal(take(&l, &w, T0, (uint64_t)UINT32_MAX + 1).retry_after_ns, WEIR_NEVER);
    assert_int_equal(take(&l, &w, T0, UINT64_MAX).retry_after_ns, WEIR_NEVER);
    assert_true(take(&l, &w, T0, UINT32_MAX).allowed);
    assert_int_equal(take(&l, &w, T0, 1).retry_after_ns, 60 * S);
}

static void a_limit_of_0_refuses_every_hit_for_good(void **state)
{
    (void)state;
    struct weir_limit l = per_minute(0, true);
    struct weir_window w = {0};
    CHECK(take(&l, &w, T0, 1), .retry_after_ns = WEIR_NEVER);
    CHECK(take(&l, &w, T0, 0), .allowed = true);
    assert_int_equal(w.index, 0);
}

static void a_clock_that_went_back_finds_the_window_used(void **state)
{
    (void)state;
    struct weir_limit l = per_minute(1, true);
    struct weir_window w = {0};
    assert_true(take(&l, &w, T0, 1).allowed);
    CHECK(take(&l, &w, T0 - 1, 1), .limit = 1, .reset_after_ns = 60 * S + 1,
          .retry_after_ns = 60 * S + 1);
    /* An hour back: never more than one window ahead. */
    CHECK(take(&l, &w, T0 - 3600 * S, 1), .limit = 1, .reset_after_ns = 120 * S,
          .retry_after_ns = 120 * S);
    assert_true(take(&l, &w, T0 - 3480 * S, 1).allowed);
}

static void counts_saturate(void **state)
{
    (void)state;
    struct weir_limit l = per_minute(1, true);
    struct weir_window w = {0};
    for (int i = 0; i < 3; i++)
        assert_false(take(&l, &w, T0, UINT64_MAX).allowed);
    assert_int_equal(w.count, WEIR_WINDOW_COUNT_MAX);
    assert_false(take(&l, &w, T0, 1).allowed);
}

static void the_ends_of_time_are_times(void **state)
{
    (void)state;
    struct weir_limit l = limit_of(
        (struct weir_limit_spec){WEIR_FIXED_WINDOW, 1, 1, WEIR_WINDOW_S_MAX, .buckets = 1});
    struct weir_window w = {0};
    CHECK(take(&l, &w, NOW_MAX, 1), .allowed = true, .limit = 1,
          .reset_after_ns = 3 * l.window_ns - NOW_MAX);
    CHECK(take(&l, &w, 0, 1), .limit = 1, .reset_after_ns = 2 * l.window_ns,
          .retry_after_ns = 2 * l.window_ns);
}

static void hits_given_back_can_be_taken_again(void **state)
{
    (void)state;
    struct weir_limit l = per_minute(5, true);
    struct weir_window w = {0};
    struct weir_verdict v;
    take(&l, &w, T0, 5);
    weir_fixed_window_give(&l, &w, T0, 2, &v);
    CHECK(v, .allowed = true, .limit = 5, .remaining = 2, .reset_after_ns = 60 * S);
    assert_int_equal(v.before, 5);
    weir_fixed_window_give(&l, &w, T0, UINT64_MAX, &v);
    assert_int_equal(v.remaining, 5);
    take(&l, &w, T0, 5);
    weir_fixed_window_give(&l, &w, T0 + 60 * S, 1, &v); /* of a window that is over */
    assert_int_equal(v.remaining, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_window_of_the_clock_admits_the_limit),
        cmocka_unit_test(refused_hits_count_unless_told_not_to),
        cmocka_unit_test(looking_at_exactly_the_limit_is_allowed),
        cmocka_unit_test(more_than_the_limit_can_never_pass),
        cmocka_unit_test(a_limit_of_0_refuses_every_hit_for_good),
        cmocka_unit_test(a_clock_that_went_back_finds_the_window_used),
        cmocka_unit_test(counts_saturate),
        cmocka_unit_test(the_ends_of_time_are_times),
        cmocka_unit_test(hits_given_back_can_be_taken_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
