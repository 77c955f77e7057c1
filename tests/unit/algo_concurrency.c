/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/concurrency.h"
#include "algo_rig.h"
#include "base/maxima.h"

static struct weir_limit slots(uint32_t requests)
{
    return limit_of((struct weir_limit_spec){WEIR_CONCURRENCY, requests, 0, 60, .buckets = 1});
}

static struct weir_verdict take(const struct weir_limit *l, struct weir_leases *s, uint64_t now_ns,
                                uint64_t hits, uint64_t *mark)
{
    struct weir_verdict v;
    weir_concurrency_take(l, s, now_ns, hits, &v, mark);
    return v;
}

static void a_slot_is_free_again_once_released(void **state)
{
    (void)state;
    struct weir_limit l = slots(2);
    struct weir_leases s = {0};
    uint64_t first, second, none;
    CHECK(take(&l, &s, T0, 1, &first), .allowed = true, .limit = 2, .remaining = 1,
          .reset_after_ns = 90 * S);
    CHECK(take(&l, &s, T0 + 29 * S, 1, &second), .allowed = true, .limit = 2,
          .reset_after_ns = 61 * S);
    CHECK(take(&l, &s, T0 + 30 * S, 1, &none), .limit = 2, .reset_after_ns = 60 * S,
          .retry_after_ns = 60 * S);
    assert_int_equal(none, 0);
    assert_true(weir_concurrency_release(&l, &s, T0 + 31 * S, 1, first));
    CHECK(take(&l, &s, T0 + 31 * S, 1, &first), .allowed = true, .limit = 2,
          .reset_after_ns = 89 * S);
    assert_int_equal(first, second + 1);
}

static void a_lease_lasts_between_one_window_and_one_and_a_half(void **state)
{
    (void)state;
    struct weir_limit l = slots(1);
    struct weir_leases s = {0};
    uint64_t mark;
    take(&l, &s, T0 + 30 * S - 1, 1, &mark);
    assert_false(take(&l, &s, T0 + 90 * S - 1, 1, &mark).allowed);
    assert_true(take(&l, &s, T0 + 90 * S, 1, &mark).allowed);
    s = (struct weir_leases){0};
    take(&l, &s, T0, 1, &mark);
    assert_false(take(&l, &s, T0 + 90 * S - 1, 1, &mark).allowed);
    assert_true(take(&l, &s, T0 + 90 * S, 1, &mark).allowed);
}

static void releasing_twice_or_too_late_does_nothing(void **state)
{
    (void)state;
    struct weir_limit l = slots(3);
    struct weir_leases s = {0};
    uint64_t mark, other;
    take(&l, &s, T0, 1, &mark);
    assert_true(weir_concurrency_release(&l, &s, T0, 1, mark));
    assert_false(weir_concurrency_release(&l, &s, T0, 1, mark));
    take(&l, &s, T0, 1, &mark);
    take(&l, &s, T0 + 60 * S, 2, &other);
    assert_false(weir_concurrency_release(&l, &s, T0 + 90 * S, 1, mark));
    assert_false(weir_concurrency_release(&l, &s, T0 + 90 * S, 1, 0));
    assert_int_equal(take(&l, &s, T0 + 90 * S, 0, &mark).before, 2);
    assert_true(weir_concurrency_release(&l, &s, T0 + 90 * S, UINT64_MAX, other));
    assert_int_equal(take(&l, &s, T0 + 90 * S, 0, &mark).before, 0);
}

static void renewing_moves_the_deadline(void **state)
{
    (void)state;
    struct weir_limit l = slots(2);
    struct weir_leases s = {0};
    uint64_t mark, none, kept;
    take(&l, &s, T0, 2, &mark);
    kept = mark;
    assert_true(weir_concurrency_renew(&l, &s, T0 + 60 * S, 2, &mark));
    assert_int_equal(mark, kept + 2);
    assert_true(weir_concurrency_renew(&l, &s, T0 + 60 * S, 1, &mark));  /* nothing to move */
    assert_false(weir_concurrency_renew(&l, &s, T0 + 60 * S, 3, &mark)); /* more than there are */
    assert_false(weir_concurrency_renew(&l, &s, T0 + 60 * S, 1, &kept)); /* moved away */
    assert_false(take(&l, &s, T0 + 150 * S - 1, 1, &none).allowed);
    assert_false(weir_concurrency_renew(&l, &s, T0 + 150 * S, 2, &mark)); /* expired */
    assert_true(take(&l, &s, T0 + 150 * S, 2, &none).allowed);
}

static void a_wait_ends_with_enough_deadlines(void **state)
{
    (void)state;
    struct weir_limit l = slots(6);
    struct weir_leases s = {0};
    uint64_t mark;
    take(&l, &s, T0, 1, &mark);
    take(&l, &s, T0 + 30 * S, 2, &mark);
    take(&l, &s, T0 + 60 * S, 3, &mark);
    assert_int_equal(take(&l, &s, T0 + 60 * S, 1, &mark).retry_after_ns, 30 * S);
    assert_int_equal(take(&l, &s, T0 + 60 * S, 2, &mark).retry_after_ns, 60 * S);
    assert_int_equal(take(&l, &s, T0 + 60 * S, 6, &mark).retry_after_ns, 90 * S);
    assert_int_equal(take(&l, &s, T0 + 60 * S, 7, &mark).retry_after_ns, WEIR_NEVER);
    assert_int_equal(take(&l, &s, T0 + 60 * S, UINT64_MAX, &mark).retry_after_ns, WEIR_NEVER);
}

static void a_clock_that_went_back_keeps_every_lease(void **state)
{
    (void)state;
    struct weir_limit l = slots(4);
    struct weir_leases s = {0};
    uint64_t old, young, none;
    take(&l, &s, T0, 1, &old);
    take(&l, &s, T0 + 30 * S, 1, &young);
    assert_int_equal(take(&l, &s, T0, 0, &none).before, 2);
    /* An hour: the newest deadline is one step ahead of what a new lease would get. */
    CHECK(take(&l, &s, T0 - 3600 * S, 3, &none), .limit = 4, .remaining = 2,
          .reset_after_ns = 120 * S, .retry_after_ns = 120 * S);
    /* Marks of before still release, and only as much as is held. */
    assert_true(weir_concurrency_release(&l, &s, T0 - 3600 * S, 1, old));
    assert_true(weir_concurrency_renew(&l, &s, T0 - 3600 * S, 1, &young));
    assert_true(weir_concurrency_release(&l, &s, T0 - 3600 * S, 1, young));
    assert_false(weir_concurrency_release(&l, &s, T0 - 3600 * S, 1, old));
}

static void once_the_clock_caught_up_such_leases_just_expire(void **state)
{
    (void)state;
    struct weir_limit l = slots(2);
    struct weir_leases s = {0};
    uint64_t mark, none;
    take(&l, &s, T0, 1, &mark);
    take(&l, &s, T0 - 3600 * S, 1, &none);
    assert_false(weir_concurrency_release(&l, &s, T0 - 3570 * S, 1, mark));
    assert_int_equal(take(&l, &s, T0 - 3481 * S, 0, &none).before, 2);
    assert_int_equal(take(&l, &s, T0 - 3480 * S, 0, &none).before, 0);
}

static void without_a_mark_the_oldest_are_given_back(void **state)
{
    (void)state;
    struct weir_limit l = slots(5);
    struct weir_leases s = {0};
    struct weir_verdict v;
    uint64_t old, young;
    take(&l, &s, T0, 2, &old);
    take(&l, &s, T0 + 30 * S, 3, &young);
    weir_concurrency_give(&l, &s, T0 + 30 * S, 3, &v);
    CHECK(v, .allowed = true, .limit = 5, .remaining = 3, .reset_after_ns = 90 * S);
    assert_int_equal(v.before, 5);
    assert_false(weir_concurrency_release(&l, &s, T0 + 30 * S, 1, old));
    assert_true(weir_concurrency_release(&l, &s, T0 + 30 * S, 1, young));
    weir_concurrency_give(&l, &s, T0 + 30 * S, UINT64_MAX, &v);
    CHECK(v, .allowed = true, .limit = 5, .remaining = 5);
}

static void looking_is_allowed_even_above_a_lowered_limit(void **state)
{
    (void)state;
    struct weir_limit l = slots(WEIR_CONCURRENCY_LIMIT_MAX);
    struct weir_leases s = {0};
    uint64_t mark, none;
    assert_true(take(&l, &s, T0, WEIR_CONCURRENCY_LIMIT_MAX, &mark).allowed);
    l = slots(1);
    CHECK(take(&l, &s, T0, 0, &none), .allowed = true, .limit = 1, .reset_after_ns = 90 * S);
    assert_int_equal(none, 0);
    l = slots(0);
    CHECK(take(&l, &s, T0, 1, &none), .retry_after_ns = WEIR_NEVER);
    assert_int_equal(none, 0);
    assert_true(weir_concurrency_release(&l, &s, T0, 1, mark)); /* what is held stays so */
}

static void the_ends_of_time_are_times(void **state)
{
    (void)state;
    struct weir_limit l =
        limit_of((struct weir_limit_spec){WEIR_CONCURRENCY, 1, 0, WEIR_WINDOW_S_MAX, .buckets = 1});
    struct weir_leases s = {0};
    uint64_t mark;
    struct weir_verdict v = take(&l, &s, NOW_MAX, 1, &mark);
    assert_true(v.allowed);
    assert_in_range(v.reset_after_ns, l.window_ns, l.window_ns / 2 * 3);
    assert_int_equal(take(&l, &s, 0, 1, &mark).retry_after_ns, 2 * l.window_ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slot_is_free_again_once_released),
        cmocka_unit_test(a_lease_lasts_between_one_window_and_one_and_a_half),
        cmocka_unit_test(releasing_twice_or_too_late_does_nothing),
        cmocka_unit_test(renewing_moves_the_deadline),
        cmocka_unit_test(a_wait_ends_with_enough_deadlines),
        cmocka_unit_test(a_clock_that_went_back_keeps_every_lease),
        cmocka_unit_test(once_the_clock_caught_up_such_leases_just_expire),
        cmocka_unit_test(without_a_mark_the_oldest_are_given_back),
        cmocka_unit_test(looking_is_allowed_even_above_a_lowered_limit),
        cmocka_unit_test(the_ends_of_time_are_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
