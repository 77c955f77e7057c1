/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/token_bucket.h"
#include "algo_rig.h"

static struct weir_limit bucket(uint32_t requests, uint32_t burst, uint64_t window_s)
{
    return limit_of(
        (struct weir_limit_spec){WEIR_TOKEN_BUCKET, requests, burst, window_s, .buckets = 1});
}

static struct weir_verdict take(const struct weir_limit *l, struct weir_tat *t, uint64_t now_ns,
                                uint64_t hits)
{
    struct weir_verdict v;
    weir_token_bucket_take(l, t, now_ns, hits, &v);
    return v;
}

static void a_bucket_starts_full_and_refills_at_its_rate(void **state)
{
    (void)state;
    struct weir_limit l = bucket(4, 4, 60);
    struct weir_tat t = {0};
    CHECK(take(&l, &t, T0, 4), .allowed = true, .limit = 4, .reset_after_ns = 60 * S);
    CHECK(take(&l, &t, T0, 1), .limit = 4, .reset_after_ns = 60 * S, .retry_after_ns = 15 * S);
    CHECK(take(&l, &t, T0 + 15 * S - 1, 1), .limit = 4, .reset_after_ns = 45 * S + 1,
          .retry_after_ns = 1);
    CHECK(take(&l, &t, T0 + 15 * S, 1), .allowed = true, .limit = 4, .reset_after_ns = 60 * S);
}

static void thirds_of_a_nanosecond_are_not_lost(void **state)
{
    (void)state;
    struct weir_limit l = bucket(3, 3, 1);
    struct weir_tat t = {0};
    CHECK(take(&l, &t, T0, 1), .allowed = true, .limit = 3, .remaining = 2,
          .reset_after_ns = 333333334);
    CHECK(take(&l, &t, T0, 2), .allowed = true, .limit = 3, .reset_after_ns = S);
    assert_int_equal(take(&l, &t, T0, 1).retry_after_ns, 333333334);
    assert_true(take(&l, &t, T0 + 333333334, 1).allowed);
    assert_int_equal(take(&l, &t, T0 + 333333334, 1).retry_after_ns, 333333333);
    assert_true(take(&l, &t, T0 + 666666667, 1).allowed);
    assert_true(take(&l, &t, T0 + S, 1).allowed);
    assert_false(take(&l, &t, T0 + S, 1).allowed);
}

static void what_is_in_use_is_rounded_up_to_tokens(void **state)
{
    (void)state;
    struct weir_limit l = bucket(4, 4, 60);
    struct weir_tat t = {0};
    take(&l, &t, T0, 2);
    assert_int_equal(take(&l, &t, T0 + 1, 0).before, 2);
    assert_int_equal(take(&l, &t, T0 + 15 * S, 0).before, 1);
    assert_int_equal(take(&l, &t, T0 + 30 * S, 0).before, 0);
}

static void more_hits_than_the_burst_can_never_pass(void **state)
{
    (void)state;
    struct weir_limit l = bucket(10, 3, 1);
    struct weir_tat t = {0};
    CHECK(take(&l, &t, T0, 4), .limit = 3, .remaining = 3, .retry_after_ns = WEIR_NEVER);
    CHECK(take(&l, &t, T0, UINT64_MAX), .limit = 3, .remaining = 3, .retry_after_ns = WEIR_NEVER);
    assert_true(take(&l, &t, T0, 3).allowed);
    l = bucket(10, 0, 1);
    t = (struct weir_tat){0};
    CHECK(take(&l, &t, T0, 1), .retry_after_ns = WEIR_NEVER);
    CHECK(take(&l, &t, T0, 0), .allowed = true);
}

static void a_state_from_the_future_is_cut_to_an_empty_bucket(void **state)
{
    (void)state;
    struct weir_limit l = bucket(4, 4, 60);
    struct weir_tat t = {0};
    take(&l, &t, T0, 1);
    CHECK(take(&l, &t, T0 - 3600 * S, 1), .limit = 4, .reset_after_ns = 60 * S,
          .retry_after_ns = 15 * S);
    assert_true(take(&l, &t, T0 - 3585 * S, 1).allowed);
    t = (struct weir_tat){.ns = UINT64_MAX, .num = 0};
    assert_int_equal(take(&l, &t, 0, 1).retry_after_ns, 15 * S);
}

static void the_ends_of_time_are_times(void **state)
{
    (void)state;
    struct weir_limit l = bucket(1, 1, WEIR_WINDOW_S_MAX);
    struct weir_tat t = {0};
    CHECK(take(&l, &t, NOW_MAX, 1), .allowed = true, .limit = 1, .reset_after_ns = l.window_ns);
    CHECK(take(&l, &t, NOW_MAX, 1), .limit = 1, .reset_after_ns = l.window_ns,
          .retry_after_ns = l.window_ns);
    l = bucket(UINT32_MAX, UINT32_MAX, 1);
    t = (struct weir_tat){0};
    assert_true(take(&l, &t, NOW_MAX, UINT32_MAX).allowed);
    assert_int_equal(take(&l, &t, NOW_MAX, 1).retry_after_ns, 1);
}

static void a_limit_of_0_refuses_every_hit_for_good(void **state)
{
    (void)state;
    struct weir_limit l = bucket(0, 5, 60);
    struct weir_tat t = {0};
    struct weir_tick tick = {0};
    struct weir_verdict v;
    CHECK(take(&l, &t, T0, 1), .retry_after_ns = WEIR_NEVER);
    CHECK(take(&l, &t, T0, 0), .allowed = true);
    weir_token_bucket_give(&l, &t, T0, 1, &v);
    CHECK(v, .allowed = true);
    weir_token_tick_take(&l, &tick, T0, 1, &v);
    CHECK(v, .retry_after_ns = WEIR_NEVER);
    weir_token_tick_give(&l, &tick, T0, 1, &v);
    CHECK(v, .allowed = true);
}

static void tokens_given_back_fill_the_bucket_to_the_brim(void **state)
{
    (void)state;
    struct weir_limit l = bucket(4, 4, 60);
    struct weir_tat t = {0};
    struct weir_verdict v;
    take(&l, &t, T0, 4);
    weir_token_bucket_give(&l, &t, T0, 1, &v);
    CHECK(v, .allowed = true, .limit = 4, .remaining = 1, .reset_after_ns = 45 * S);
    assert_int_equal(v.before, 4);
    weir_token_bucket_give(&l, &t, T0, UINT64_MAX, &v);
    CHECK(v, .allowed = true, .limit = 4, .remaining = 4);
}

static void a_changed_rate_keeps_the_tokens_in_use(void **state)
{
    (void)state;
    struct weir_limit slow = bucket(4, 8, 60), fast = bucket(12, 8, 60);
    struct weir_tat t = {0};
    take(&slow, &t, T0, 6);
    t = weir_tat_rescale(t, T0, &fast, 4);
    CHECK(take(&fast, &t, T0, 0), .allowed = true, .limit = 8, .remaining = 2,
          .reset_after_ns = 30 * S);
    t = weir_tat_rescale(t, T0, &slow, 12);
    assert_int_equal(t.ns, T0 + 90 * S);
    t = weir_tat_rescale(t, T0 + 90 * S + 1, &fast, 4); /* full: nothing to keep */
    assert_int_equal(t.ns, 0);
}

static void more_in_use_than_a_bucket_holds_is_an_empty_one(void **state)
{
    (void)state;
    struct weir_limit l = bucket(1, 2, WEIR_WINDOW_S_MAX / 100);
    struct weir_tat t = {.ns = UINT64_MAX};
    t = weir_tat_rescale(t, NOW_MAX, &l, UINT32_MAX);
    assert_int_equal(t.ns, NOW_MAX + l.cap_ns);
    t = (struct weir_tat){.ns = T0 + S};
    t = weir_tat_rescale(t, T0, &l, 0); /* there was no rate: as it is */
    assert_int_equal(t.ns, T0 + S);
}

/* ---- refill at intervals ---- */

static struct weir_verdict tick(const struct weir_limit *l, struct weir_tick *t, uint64_t now_ns,
                                uint64_t hits)
{
    struct weir_verdict v;
    weir_token_tick_take(l, t, now_ns, hits, &v);
    return v;
}

static struct weir_limit interval(uint32_t requests, uint32_t burst, uint64_t window_s)
{
    return limit_of((struct weir_limit_spec){WEIR_TOKEN_BUCKET, requests, burst, window_s, 1,
                                             .refill_interval = true});
}

static void tokens_come_at_whole_multiples_of_the_window(void **state)
{
    (void)state;
    struct weir_limit l = interval(2, 5, 60);
    struct weir_tick t = {0};
    CHECK(tick(&l, &t, T0 + 59 * S, 5), .allowed = true, .limit = 5, .reset_after_ns = 121 * S);
    CHECK(tick(&l, &t, T0 + 59 * S, 3), .limit = 5, .reset_after_ns = 121 * S,
          .retry_after_ns = 61 * S);
    CHECK(tick(&l, &t, T0 + 60 * S, 2), .allowed = true, .limit = 5, .reset_after_ns = 180 * S);
    CHECK(tick(&l, &t, T0 + 60 * S, 6), .limit = 5, .reset_after_ns = 180 * S,
          .retry_after_ns = WEIR_NEVER);
}

static void a_tick_is_not_paid_out_twice(void **state)
{
    (void)state;
    struct weir_limit l = interval(2, 2, 60);
    struct weir_tick t = {0};
    assert_true(tick(&l, &t, T0, 2).allowed);
    assert_false(tick(&l, &t, T0 - 1, 1).allowed);
    assert_false(tick(&l, &t, T0, 1).allowed);
    CHECK(tick(&l, &t, T0 - 3600 * S, 1), .limit = 2, .reset_after_ns = 120 * S,
          .retry_after_ns = 120 * S);
}

static void a_wait_of_ages_is_cut_and_not_never(void **state)
{
    (void)state;
    struct weir_limit l = interval(1, UINT32_MAX, WEIR_WINDOW_S_MAX);
    struct weir_tick t = {0};
    CHECK(tick(&l, &t, NOW_MAX, UINT32_MAX), .allowed = true, .limit = UINT32_MAX,
          .reset_after_ns = WEIR_NEVER - 1);
    assert_int_equal(tick(&l, &t, NOW_MAX, UINT32_MAX).retry_after_ns, WEIR_NEVER - 1);
    assert_int_equal(tick(&l, &t, NOW_MAX, UINT64_MAX).retry_after_ns, WEIR_NEVER);
}

static void ticks_of_all_time_overflow_nothing(void **state)
{
    (void)state;
    struct weir_limit l = interval(UINT32_MAX, UINT32_MAX, 1);
    struct weir_tick t = {0};
    assert_true(tick(&l, &t, 0, UINT32_MAX).allowed);
    assert_true(tick(&l, &t, NOW_MAX, UINT32_MAX).allowed);
}

static void a_smaller_burst_is_an_empty_bucket_at_worst(void **state)
{
    (void)state;
    struct weir_limit large = interval(2, 10, 60), small = interval(2, 3, 60);
    struct weir_tick t = {0};
    tick(&large, &t, T0, 10);
    CHECK(tick(&small, &t, T0, 1), .limit = 3, .reset_after_ns = 120 * S, .retry_after_ns = 60 * S);
    struct weir_verdict v;
    weir_token_tick_give(&small, &t, T0, 1, &v);
    CHECK(v, .allowed = true, .limit = 3, .remaining = 1, .reset_after_ns = 60 * S);
    weir_token_tick_give(&small, &t, T0, UINT64_MAX, &v);
    CHECK(v, .allowed = true, .limit = 3, .remaining = 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_starts_full_and_refills_at_its_rate),
        cmocka_unit_test(thirds_of_a_nanosecond_are_not_lost),
        cmocka_unit_test(what_is_in_use_is_rounded_up_to_tokens),
        cmocka_unit_test(more_hits_than_the_burst_can_never_pass),
        cmocka_unit_test(a_state_from_the_future_is_cut_to_an_empty_bucket),
        cmocka_unit_test(the_ends_of_time_are_times),
        cmocka_unit_test(a_limit_of_0_refuses_every_hit_for_good),
        cmocka_unit_test(tokens_given_back_fill_the_bucket_to_the_brim),
        cmocka_unit_test(a_changed_rate_keeps_the_tokens_in_use),
        cmocka_unit_test(more_in_use_than_a_bucket_holds_is_an_empty_one),
        cmocka_unit_test(tokens_come_at_whole_multiples_of_the_window),
        cmocka_unit_test(a_tick_is_not_paid_out_twice),
        cmocka_unit_test(a_wait_of_ages_is_cut_and_not_never),
        cmocka_unit_test(ticks_of_all_time_overflow_nothing),
        cmocka_unit_test(a_smaller_burst_is_an_empty_bucket_at_worst),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
