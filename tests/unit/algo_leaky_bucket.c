/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/leaky_bucket.h"
#include "algo_rig.h"

static struct weir_limit queue(uint32_t requests, uint32_t burst, uint64_t window_s)
{
    return limit_of(
        (struct weir_limit_spec){WEIR_LEAKY_BUCKET, requests, burst, window_s, .buckets = 1});
}

static struct weir_verdict take(const struct weir_limit *l, struct weir_tat *t, uint64_t now_ns,
                                uint64_t hits)
{
    struct weir_verdict v;
    weir_leaky_bucket_take(l, t, now_ns, hits, &v);
    return v;
}

static void requests_leave_one_step_apart(void **state)
{
    (void)state;
    struct weir_limit l = queue(6, 2, 60);
    struct weir_tat t = {0};
    CHECK(take(&l, &t, T0, 1), .allowed = true, .limit = 3, .remaining = 2,
          .reset_after_ns = 10 * S);
    CHECK(take(&l, &t, T0, 1), .allowed = true, .limit = 3, .remaining = 1,
          .reset_after_ns = 20 * S, .delay_ns = 10 * S);
    CHECK(take(&l, &t, T0, 1), .allowed = true, .limit = 3, .reset_after_ns = 30 * S,
          .delay_ns = 20 * S);
    CHECK(take(&l, &t, T0, 1), .limit = 3, .reset_after_ns = 30 * S, .retry_after_ns = 10 * S);
    CHECK(take(&l, &t, T0 + 10 * S, 1), .allowed = true, .limit = 3, .reset_after_ns = 30 * S,
          .delay_ns = 20 * S);
}

static void a_request_of_several_hits_leaves_with_its_last(void **state)
{
    (void)state;
    struct weir_limit l = queue(6, 2, 60);
    struct weir_tat t = {0};
    CHECK(take(&l, &t, T0, 3), .allowed = true, .limit = 3, .reset_after_ns = 30 * S,
          .delay_ns = 20 * S);
    CHECK(take(&l, &t, T0, 4), .limit = 3, .reset_after_ns = 30 * S, .retry_after_ns = WEIR_NEVER);
    CHECK(take(&l, &t, T0, UINT64_MAX), .limit = 3, .reset_after_ns = 30 * S,
          .retry_after_ns = WEIR_NEVER);
    CHECK(take(&l, &t, T0, 0), .allowed = true, .limit = 3, .reset_after_ns = 30 * S);
}

static void without_a_queue_one_passes_at_a_time(void **state)
{
    (void)state;
    struct weir_limit l = queue(1, 0, 1);
    struct weir_tat t = {0};
    CHECK(take(&l, &t, T0, 1), .allowed = true, .limit = 1, .reset_after_ns = S);
    CHECK(take(&l, &t, T0 + 1, 1), .limit = 1, .reset_after_ns = S - 1, .retry_after_ns = S - 1);
}

static void the_longest_queue_overflows_nothing(void **state)
{
    (void)state;
    struct weir_limit l = queue(1, 1, WEIR_WINDOW_S_MAX);
    struct weir_tat t = {0};
    CHECK(take(&l, &t, NOW_MAX, 2), .allowed = true, .limit = 2, .reset_after_ns = 2 * l.window_ns,
          .delay_ns = l.window_ns);
    CHECK(take(&l, &t, 0, 1), .limit = 2, .reset_after_ns = 2 * l.window_ns,
          .retry_after_ns = l.window_ns);
    l = queue(UINT32_MAX, UINT32_MAX, 1);
    t = (struct weir_tat){0};
    assert_true(take(&l, &t, NOW_MAX, (uint64_t)UINT32_MAX + 1).allowed);
    assert_int_equal(take(&l, &t, 0, (uint64_t)UINT32_MAX + 2).retry_after_ns, WEIR_NEVER);
}

static void a_limit_of_0_refuses_every_hit_for_good(void **state)
{
    (void)state;
    struct weir_limit l = queue(0, 5, 60);
    struct weir_tat t = {0};
    CHECK(take(&l, &t, T0, 1), .retry_after_ns = WEIR_NEVER);
    CHECK(take(&l, &t, T0, 0), .allowed = true);
    assert_false(weir_leaky_bucket_release(&l, &t, T0, 1, weir_leaky_bucket_mark(&t)));
}

static void the_last_in_the_queue_may_leave_it(void **state)
{
    (void)state;
    struct weir_limit l = queue(6, 3, 60);
    struct weir_tat t = {0};
    take(&l, &t, T0, 1);
    take(&l, &t, T0, 1);
    uint64_t second = weir_leaky_bucket_mark(&t);
    take(&l, &t, T0, 1);
    uint64_t third = weir_leaky_bucket_mark(&t);
    assert_false(weir_leaky_bucket_release(&l, &t, T0, 1, second)); /* not the last */
    assert_true(weir_leaky_bucket_release(&l, &t, T0 + 1, 1, third));
    assert_false(weir_leaky_bucket_release(&l, &t, T0 + 1, 1, third)); /* not twice */
    assert_true(weir_leaky_bucket_release(&l, &t, T0 + 2, 1, second)); /* now it is */
    assert_int_equal(take(&l, &t, T0 + 2, 1).delay_ns, 10 * S - 2);
}

static void a_place_that_was_used_is_not_given_back(void **state)
{
    (void)state;
    struct weir_limit l = queue(6, 3, 60);
    struct weir_tat t = {0};
    take(&l, &t, T0, 1);
    uint64_t mark = weir_leaky_bucket_mark(&t);
    assert_false(weir_leaky_bucket_release(&l, &t, T0 + 1, 1, mark));
    assert_int_equal(take(&l, &t, T0 + 1, 0).reset_after_ns, 10 * S - 1);
    assert_true(weir_leaky_bucket_release(&l, &t, T0, 1, mark)); /* at once, it was not */
    assert_int_equal(take(&l, &t, T0, 0).reset_after_ns, 0);
}

static void marks_tell_fractions_apart(void **state)
{
    (void)state;
    struct weir_tat a = {.ns = T0, .num = 1}, b = {.ns = T0, .num = 65535}, c = {.ns = T0 + 1};
    assert_int_not_equal(weir_leaky_bucket_mark(&a), weir_leaky_bucket_mark(&b));
    assert_int_not_equal(weir_leaky_bucket_mark(&a), weir_leaky_bucket_mark(&c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_leave_one_step_apart),
        cmocka_unit_test(a_request_of_several_hits_leaves_with_its_last),
        cmocka_unit_test(without_a_queue_one_passes_at_a_time),
        cmocka_unit_test(the_longest_queue_overflows_nothing),
        cmocka_unit_test(a_limit_of_0_refuses_every_hit_for_good),
        cmocka_unit_test(the_last_in_the_queue_may_leave_it),
        cmocka_unit_test(a_place_that_was_used_is_not_given_back),
        cmocka_unit_test(marks_tell_fractions_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
