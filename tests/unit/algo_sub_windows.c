/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/sub_windows.h"
#include "algo_rig.h"

struct kept {
    struct weir_limit limit;
    struct weir_sub sub;
    uint64_t cells[65];
};

static struct kept kept_of(uint32_t requests, uint32_t buckets, uint64_t window_s)
{
    return (struct kept){
        .limit = limit_of((struct weir_limit_spec){WEIR_SLIDING_WINDOW_COUNTER, requests, 0,
                                                   window_s, buckets, .round_up = false})};
}

static void flush(struct kept *k)
{
    k->cells[k->sub.index % weir_sub_cells(&k->limit)] = weir_sub_cell(&k->sub);
}

static struct weir_verdict take(struct kept *k, uint64_t now_ns, uint64_t hits)
{
    struct weir_verdict v;
    flush(k);
    weir_sub_windows_take(&k->limit, &k->sub, k->cells, now_ns, hits, &v);
    return v;
}

static struct weir_verdict give(struct kept *k, uint64_t now_ns, uint64_t hits)
{
    struct weir_verdict v;
    flush(k);
    weir_sub_windows_give(&k->limit, &k->sub, k->cells, now_ns, hits, &v);
    return v;
}

static void a_hit_counts_until_its_sub_window_is_a_window_old(void **state)
{
    (void)state;
    struct kept k = kept_of(2, 4, 60); /* of 15 s each */
    CHECK(take(&k, T0 + 14 * S, 1), .allowed = true, .limit = 2, .remaining = 1,
          .reset_after_ns = 61 * S);
    CHECK(take(&k, T0 + 15 * S, 1), .allowed = true, .limit = 2, .reset_after_ns = 75 * S);
    CHECK(take(&k, T0 + 75 * S - 1, 1), .limit = 2, .reset_after_ns = 15 * S + 1,
          .retry_after_ns = 1);
    CHECK(take(&k, T0 + 75 * S, 1), .allowed = true, .limit = 2, .reset_after_ns = 75 * S);
}

static void a_refusal_waits_for_the_sub_windows_in_the_way(void **state)
{
    (void)state;
    struct kept k = kept_of(6, 4, 60);
    take(&k, T0, 1);
    take(&k, T0 + 15 * S, 2);
    take(&k, T0 + 30 * S, 3);
    assert_int_equal(take(&k, T0 + 30 * S, 1).retry_after_ns, 45 * S);
    assert_int_equal(take(&k, T0 + 30 * S, 2).retry_after_ns, 60 * S);
    assert_int_equal(take(&k, T0 + 30 * S, 4).retry_after_ns, 75 * S);
    assert_int_equal(take(&k, T0 + 30 * S, 6).retry_after_ns, 75 * S);
    assert_int_equal(take(&k, T0 + 30 * S, 7).retry_after_ns, WEIR_NEVER);
}

static void refused_hits_count_only_if_told_to(void **state)
{
    (void)state;
    struct kept k = kept_of(2, 2, 60);
    take(&k, T0, 2);
    assert_false(take(&k, T0, 2).allowed);
    assert_int_equal(take(&k, T0, 0).before, 2);
    k.limit.count_rejected = true;
    assert_false(take(&k, T0, 2).allowed);
    assert_int_equal(take(&k, T0, 0).before, 4);
    for (int i = 0; i < 3; i++)
        take(&k, T0, UINT64_MAX);
    assert_int_equal(take(&k, T0, 0).before, INT32_MAX); /* saturated */
}

static void hits_given_back_reach_behind_openings(void **state)
{
    (void)state;
    struct kept k = kept_of(20, 4, 60);
    take(&k, T0, 5);
    take(&k, T0 + 15 * S, 5);
    take(&k, T0 + 30 * S, 5);
    CHECK(give(&k, T0 + 30 * S, 8), .allowed = true, .limit = 20, .remaining = 13,
          .reset_after_ns = 60 * S);
    take(&k, T0 + 30 * S, 6);
    take(&k, T0 + 45 * S, 1);
    /* The first 5 have gone: of the second 2 are left, then 6 and 1. */
    assert_int_equal(take(&k, T0 + 75 * S, 0).before, 9);
    assert_int_equal(take(&k, T0 + 90 * S, 0).before, 7);
    assert_int_equal(give(&k, T0 + 90 * S, UINT64_MAX).remaining, 20);
}

static void a_clock_that_went_back_opens_no_older_sub_window(void **state)
{
    (void)state;
    struct kept k = kept_of(3, 4, 60);
    take(&k, T0, 1);
    CHECK(take(&k, T0 - 30 * S, 1), .allowed = true, .limit = 3, .remaining = 1,
          .reset_after_ns = 105 * S);
    /* More than a window back: all is one window ahead. */
    CHECK(take(&k, T0 - 3600 * S, 2), .limit = 3, .remaining = 1, .reset_after_ns = 135 * S,
          .retry_after_ns = 135 * S);
}

static void what_the_clock_went_back_behind_does_not_come_again(void **state)
{
    (void)state;
    struct kept k = kept_of(100, 4, 60);
    take(&k, T0, 10);
    take(&k, T0 + 15 * S, 10);
    assert_int_equal(take(&k, T0 - 75 * S, 0).before, 20); /* pulled back to T0 - 15 s */
    assert_int_equal(take(&k, T0 + 30 * S, 0).before, 20);
    assert_int_equal(take(&k, T0 + 60 * S, 1).before, 0);
    assert_int_equal(take(&k, T0 + 60 * S, 0).before, 1);
}

static void totals_wrap(void **state)
{
    (void)state;
    struct kept k = kept_of(INT32_MAX, 2, 60);
    for (uint64_t i = 0; i < 9; i++) {
        assert_true(take(&k, T0 + i * 90 * S, INT32_MAX).allowed);
        assert_false(take(&k, T0 + i * 90 * S, 1).allowed);
        assert_false(take(&k, T0 + i * 90 * S + 30 * S, UINT64_MAX).allowed);
    }
}

static void the_ends_of_time_are_times(void **state)
{
    (void)state;
    struct kept k = kept_of(1, 64, 1);
    CHECK(take(&k, 0, 1), .allowed = true, .limit = 1, .reset_after_ns = S + S / 64);
    assert_true(take(&k, NOW_MAX, 1).allowed);
    assert_true(k.sub.index < UINT64_C(1) << 40);
    CHECK(take(&k, 0, 1), .limit = 1, .reset_after_ns = 2 * S + S / 64,
          .retry_after_ns = 2 * S + S / 64);
    k = kept_of(1, 64, WEIR_WINDOW_S_MAX);
    assert_true(take(&k, NOW_MAX, 1).allowed);
    assert_int_equal(take(&k, 0, 1).retry_after_ns, k.limit.window_ns / 64 * 129);
}

static void what_is_used_can_be_counted_without_a_limit(void **state)
{
    (void)state;
    struct kept k = kept_of(9, 4, 60);
    take(&k, T0, 4);
    take(&k, T0 + 15 * S, 5);
    flush(&k);
    struct weir_limit window = {.window_ns = 60 * S, .buckets = 4};
    assert_int_equal(weir_sub_windows_used(&window, &k.sub, k.cells, T0 + 60 * S), 9);
    assert_int_equal(weir_sub_windows_used(&window, &k.sub, k.cells, T0 + 75 * S), 5);
    assert_int_equal(weir_sub_windows_used(&window, &k.sub, k.cells, T0 + 90 * S), 0);
    assert_int_equal(weir_sub_windows_used(&window, &k.sub, k.cells, 0), 9);
}

static void a_limit_of_0_refuses_every_hit_for_good(void **state)
{
    (void)state;
    struct kept k = kept_of(0, 4, 60);
    CHECK(take(&k, T0, 1), .retry_after_ns = WEIR_NEVER);
    CHECK(take(&k, T0, 0), .allowed = true);
    CHECK(give(&k, T0, 1), .allowed = true);
    assert_int_equal(k.sub.index, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hit_counts_until_its_sub_window_is_a_window_old),
        cmocka_unit_test(a_refusal_waits_for_the_sub_windows_in_the_way),
        cmocka_unit_test(refused_hits_count_only_if_told_to),
        cmocka_unit_test(hits_given_back_reach_behind_openings),
        cmocka_unit_test(a_clock_that_went_back_opens_no_older_sub_window),
        cmocka_unit_test(what_the_clock_went_back_behind_does_not_come_again),
        cmocka_unit_test(totals_wrap),
        cmocka_unit_test(the_ends_of_time_are_times),
        cmocka_unit_test(what_is_used_can_be_counted_without_a_limit),
        cmocka_unit_test(a_limit_of_0_refuses_every_hit_for_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
