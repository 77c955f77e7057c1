/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/sketch.h"
#include "algo_rig.h"

#define WIDTH 64
#define DEPTH 4

static _Alignas(16) unsigned char cells[WIDTH * DEPTH * 16];
static uint64_t bloom[WIDTH];

static struct weir_approx empty_sketch(uint32_t bloom_words)
{
    memset(cells, 0, sizeof(cells));
    memset(bloom, 0, sizeof(bloom));
    return (struct weir_approx){WIDTH, DEPTH, bloom_words, cells, bloom};
}

static struct weir_limit limit(enum weir_algorithm algorithm, uint32_t requests)
{
    return limit_of(
        (struct weir_limit_spec){algorithm, requests, requests, 60, 1, .count_rejected = true});
}

static struct weir_verdict take(const struct weir_limit *l, const struct weir_approx *a,
                                uint64_t now_ns, uint64_t hits)
{
    struct weir_verdict v;
    weir_sketch_take(l, a, 7, now_ns, hits, &v);
    return v;
}

static struct weir_verdict look(const struct weir_limit *l, const struct weir_approx *a,
                                uint64_t now_ns, uint64_t hits)
{
    struct weir_verdict v;
    weir_sketch_look(l, a, 7, now_ns, hits, &v);
    return v;
}

static struct weir_verdict give(const struct weir_limit *l, const struct weir_approx *a,
                                uint64_t now_ns, uint64_t hits)
{
    struct weir_verdict v;
    weir_sketch_give(l, a, 7, now_ns, hits, &v);
    return v;
}

static void its_size_is_its_cells_and_its_words(void **state)
{
    (void)state;
    struct weir_approx a = {.width = 1000, .depth = 4, .bloom_words = 10};
    struct weir_limit fixed = limit(WEIR_FIXED_WINDOW, 1),
                      slide = limit(WEIR_SLIDING_WINDOW_LOG, 1),
                      token = limit(WEIR_TOKEN_BUCKET, 1);
    assert_int_equal(weir_approx_bytes(&fixed, &a), 32080);
    assert_int_equal(weir_approx_bytes(&slide, &a), 32000); /* no filter */
    assert_int_equal(weir_approx_bytes(&token, &a), 64000);
    a = (struct weir_approx){.width = WEIR_SKETCH_WIDTH_MAX, .depth = WEIR_SKETCH_DEPTH_MAX};
    assert_int_equal(weir_approx_bytes(&token, &a), UINT64_C(1) << 35);
}

static void width_and_depth_follow_from_error_and_confidence(void **state)
{
    (void)state;
    struct weir_approx a = {.bloom_words = 5};
    weir_approx_from_error(&a, 0.001, 0.99);
    assert_int_equal(a.width, 2000);
    assert_int_equal(a.depth, 7); /* 1/128 < 1% */
    assert_int_equal(a.bloom_words, 5);
    weir_approx_from_error(&a, 0.3, 0.5);
    assert_int_equal(a.width, 7);
    assert_int_equal(a.depth, 1);
    weir_approx_from_error(&a, 0.0, 1.0);
    assert_int_equal(a.width, WEIR_SKETCH_WIDTH_MAX);
    assert_int_equal(a.depth, WEIR_SKETCH_DEPTH_MAX);
    weir_approx_from_error(&a, 100.0, -3.0);
    assert_int_equal(a.width, 1);
    assert_int_equal(a.depth, 1);
}

static void refused_hits_are_not_added(void **state)
{
    (void)state;
    struct weir_limit l = limit(WEIR_FIXED_WINDOW, 3);
    struct weir_approx a = empty_sketch(0);
    assert_true(take(&l, &a, T0, 2).allowed);
    CHECK(take(&l, &a, T0, 2), .limit = 3, .remaining = 1, .reset_after_ns = 60 * S,
          .retry_after_ns = 60 * S);
    assert_true(take(&l, &a, T0, 1).allowed);
    assert_int_equal(take(&l, &a, T0, 4).retry_after_ns, WEIR_NEVER);
    assert_int_equal(take(&l, &a, T0, UINT64_MAX).retry_after_ns, WEIR_NEVER);
    assert_true(take(&l, &a, T0 + 60 * S, 3).allowed);
}

static void looking_changes_nothing(void **state)
{
    (void)state;
    static const enum weir_algorithm some[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW_LOG,
                                               WEIR_TOKEN_BUCKET};
    for (size_t i = 0; i < 3; i++) {
        struct weir_limit l = limit(some[i], 3);
        struct weir_approx a = empty_sketch(WIDTH);
        unsigned char before[sizeof(cells)];
        take(&l, &a, T0, 2);
        memcpy(before, cells, sizeof(cells));
        assert_true(look(&l, &a, T0 + 90 * S, 1).allowed);
        assert_false(look(&l, &a, T0, 2).allowed);
        assert_memory_equal(before, cells, sizeof(cells));
    }
}

static void a_log_counts_both_windows_in_full(void **state)
{
    (void)state;
    struct weir_limit l = limit(WEIR_SLIDING_WINDOW_LOG, 5);
    struct weir_approx a = empty_sketch(0);
    assert_true(take(&l, &a, T0, 3).allowed);
    CHECK(take(&l, &a, T0 + 119 * S, 2), .allowed = true, .limit = 5, .reset_after_ns = 61 * S);
    CHECK(take(&l, &a, T0 + 119 * S, 1), .limit = 5, .reset_after_ns = 61 * S,
          .retry_after_ns = 1 * S);
    CHECK(take(&l, &a, T0 + 119 * S, 4), .limit = 5, .reset_after_ns = 61 * S,
          .retry_after_ns = 61 * S);
    assert_int_equal(take(&l, &a, T0 + 119 * S, 6).retry_after_ns, WEIR_NEVER);
    assert_true(take(&l, &a, T0 + 120 * S, 3).allowed);
}

static void sub_windows_count_as_a_log_does(void **state)
{
    (void)state;
    struct weir_limit l =
        limit_of((struct weir_limit_spec){WEIR_SLIDING_WINDOW_COUNTER, 5, 5, 60, .buckets = 4});
    struct weir_approx a = empty_sketch(0);
    take(&l, &a, T0, 5);
    assert_false(take(&l, &a, T0 + 120 * S - 1, 1).allowed);
    assert_true(take(&l, &a, T0 + 120 * S, 5).allowed);
}

static void a_limit_beyond_its_counts_is_kept_at_them(void **state)
{
    (void)state;
    struct weir_limit l = limit(WEIR_FIXED_WINDOW, UINT32_MAX);
    struct weir_approx a = empty_sketch(0);
    CHECK(take(&l, &a, T0, WEIR_SKETCH_COUNT_MAX - 1), .allowed = true, .limit = UINT32_MAX,
          .reset_after_ns = 60 * S);
    assert_false(take(&l, &a, T0, 1).allowed);
    assert_int_equal(take(&l, &a, T0, WEIR_SKETCH_COUNT_MAX).retry_after_ns, WEIR_NEVER);
    l = limit(WEIR_TOKEN_BUCKET, UINT32_MAX); /* buckets do not count */
    a = empty_sketch(0);
    assert_true(take(&l, &a, T0, UINT32_MAX).allowed);
}

static void windows_give_back_and_buckets_do_not(void **state)
{
    (void)state;
    struct weir_limit fixed = limit(WEIR_FIXED_WINDOW, 5), token = limit(WEIR_TOKEN_BUCKET, 5);
    struct weir_approx a = empty_sketch(0);
    take(&fixed, &a, T0, 5);
    CHECK(give(&fixed, &a, T0, 2), .allowed = true, .limit = 5, .remaining = 2,
          .reset_after_ns = 60 * S);
    assert_int_equal(give(&fixed, &a, T0, UINT64_MAX).remaining, 5);
    take(&fixed, &a, T0, 5);
    assert_int_equal(give(&fixed, &a, T0 + 60 * S, 5).remaining, 5);
    a = empty_sketch(0);
    take(&token, &a, T0, 5);
    CHECK(give(&token, &a, T0, 5), .allowed = true, .limit = 5, .reset_after_ns = 60 * S);
}

static void the_filter_keeps_the_first_hit_out_of_the_rows(void **state)
{
    (void)state;
    struct weir_limit l = limit(WEIR_FIXED_WINDOW, 3);
    struct weir_approx a = empty_sketch(WIDTH);
    CHECK(take(&l, &a, T0, 1), .allowed = true, .limit = 3, .remaining = 2,
          .reset_after_ns = 60 * S);
    uint64_t counted = 0;
    for (size_t i = 0; i < WIDTH * DEPTH; i++) {
        uint64_t cell;
        memcpy(&cell, cells + 8 * i, 8);
        counted += cell & WEIR_SKETCH_COUNT_MAX;
    }
    assert_int_equal(counted, 0);
    CHECK(take(&l, &a, T0, 2), .allowed = true, .limit = 3, .reset_after_ns = 60 * S);
    assert_false(take(&l, &a, T0, 1).allowed);
    assert_int_equal(give(&l, &a, T0, 3).remaining, 2); /* what the filter holds stays */
    assert_true(take(&l, &a, T0 + 60 * S, 3).allowed);
    assert_false(take(&l, &a, T0 + 60 * S, 1).allowed);
}

static void a_cell_that_was_left_alone_for_ages_is_behind(void **state)
{
    (void)state;
    struct weir_limit l = limit(WEIR_FIXED_WINDOW, 1);
    for (uint64_t windows = 1; windows < 4086; windows += 5) {
        struct weir_approx a = empty_sketch(0);
        take(&l, &a, T0, 1);
        assert_true(take(&l, &a, T0 + windows * 60 * S, 1).allowed);
    }
}

static void a_clock_that_went_back_finds_the_window_used(void **state)
{
    (void)state;
    struct weir_limit l = limit(WEIR_FIXED_WINDOW, 1);
    struct weir_approx a = empty_sketch(0);
    take(&l, &a, T0, 1);
    assert_int_equal(look(&l, &a, T0 - 1, 1).retry_after_ns, 60 * S + 1);
    CHECK(take(&l, &a, T0 - 8 * 60 * S, 1), .limit = 1, .reset_after_ns = 120 * S,
          .retry_after_ns = 120 * S);
    assert_true(take(&l, &a, T0 - 6 * 60 * S, 1).allowed); /* for two windows, not for eight */
}

static void the_ends_of_time_are_times(void **state)
{
    (void)state;
    static const enum weir_algorithm some[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW_COUNTER,
                                               WEIR_SLIDING_WINDOW_LOG, WEIR_TOKEN_BUCKET,
                                               WEIR_LEAKY_BUCKET};
    for (size_t i = 0; i < 5; i++) {
        struct weir_limit l =
            limit_of((struct weir_limit_spec){some[i], 1, 1, WEIR_WINDOW_S_MAX, .buckets = 1});
        struct weir_approx a = empty_sketch(WIDTH);
        assert_true(take(&l, &a, NOW_MAX, 1).allowed);
        assert_false(take(&l, &a, NOW_MAX, 2).allowed);
        assert_false(take(&l, &a, 0, 2).allowed);
        a = empty_sketch(WIDTH);
        assert_true(take(&l, &a, 0, 1).allowed);
    }
}

static void a_limit_of_0_refuses_every_hit_for_good(void **state)
{
    (void)state;
    struct weir_limit l = limit(WEIR_FIXED_WINDOW, 0);
    struct weir_approx a = empty_sketch(WIDTH);
    CHECK(take(&l, &a, T0, 1), .retry_after_ns = WEIR_NEVER);
    CHECK(look(&l, &a, T0, 0), .allowed = true);
    CHECK(give(&l, &a, T0, 1), .allowed = true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_size_is_its_cells_and_its_words),
        cmocka_unit_test(width_and_depth_follow_from_error_and_confidence),
        cmocka_unit_test(refused_hits_are_not_added),
        cmocka_unit_test(looking_changes_nothing),
        cmocka_unit_test(a_log_counts_both_windows_in_full),
        cmocka_unit_test(sub_windows_count_as_a_log_does),
        cmocka_unit_test(a_limit_beyond_its_counts_is_kept_at_them),
        cmocka_unit_test(windows_give_back_and_buckets_do_not),
        cmocka_unit_test(the_filter_keeps_the_first_hit_out_of_the_rows),
        cmocka_unit_test(a_cell_that_was_left_alone_for_ages_is_behind),
        cmocka_unit_test(a_clock_that_went_back_finds_the_window_used),
        cmocka_unit_test(the_ends_of_time_are_times),
        cmocka_unit_test(a_limit_of_0_refuses_every_hit_for_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
