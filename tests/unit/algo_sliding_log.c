/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/sliding_log.h"
#include "algo_rig.h"

#define CAPACITY 8

/* A log with its cells, kept as a store keeps it. */
struct kept {
    struct weir_limit limit;
    struct weir_log log;
    uint64_t cells[CAPACITY];
};

static struct kept log_of(uint32_t requests, bool count_rejected)
{
    return (struct kept){
        .limit = limit_of((struct weir_limit_spec){WEIR_SLIDING_WINDOW_LOG, requests, 0, 60, 1,
                                                   .count_rejected = count_rejected})};
}

static struct weir_log_ring flushed(struct kept *k)
{
    struct weir_log_ring ring = {.cells = k->cells, .capacity = CAPACITY};
    for (uint32_t rank = 1; rank <= k->log.run; rank++)
        k->cells[weir_log_cell(&k->log, &ring, rank)] = k->log.last_ns;
    return ring;
}

static struct weir_verdict take(struct kept *k, uint64_t now_ns, uint64_t hits)
{
    struct weir_log_ring ring = flushed(k);
    struct weir_verdict v;
    weir_sliding_log_take(&k->limit, &k->log, &ring, now_ns, hits, &v);
    return v;
}

static struct weir_verdict give(struct kept *k, uint64_t now_ns, uint64_t hits)
{
    struct weir_log_ring ring = flushed(k);
    struct weir_verdict v;
    weir_sliding_log_give(&k->limit, &k->log, &ring, now_ns, hits, &v);
    return v;
}

static void an_entry_exactly_one_window_old_still_counts(void **state)
{
    (void)state;
    struct kept k = log_of(2, false);
    CHECK(take(&k, T0, 1), .allowed = true, .limit = 2, .remaining = 1,
          .reset_after_ns = 60 * S + 1);
    CHECK(take(&k, T0 + 10 * S, 1), .allowed = true, .limit = 2, .reset_after_ns = 60 * S + 1);
    CHECK(take(&k, T0 + 60 * S, 1), .limit = 2, .reset_after_ns = 10 * S + 1, .retry_after_ns = 1);
    CHECK(take(&k, T0 + 60 * S + 1, 1), .allowed = true, .limit = 2, .reset_after_ns = 60 * S + 1);
}

static void a_wait_is_for_as_many_entries_as_are_in_the_way(void **state)
{
    (void)state;
    struct kept k = log_of(4, false);
    for (uint64_t i = 0; i < 4; i++)
        take(&k, T0 + i * S, 1);
    for (uint64_t hits = 1; hits <= 4; hits++)
        assert_int_equal(take(&k, T0 + 10 * S, hits).retry_after_ns, (50 + hits - 1) * S + 1);
    assert_int_equal(take(&k, T0 + 10 * S, 5).retry_after_ns, WEIR_NEVER);
    assert_int_equal(take(&k, T0 + 10 * S, UINT64_MAX).retry_after_ns, WEIR_NEVER);
}

static void refused_hits_are_logged_only_if_told_to(void **state)
{
    (void)state;
    struct kept k = log_of(3, false);
    take(&k, T0, 3);
    take(&k, T0 + 30 * S, 2);
    assert_true(take(&k, T0 + 60 * S + 1, 3).allowed);
    k = log_of(3, true);
    take(&k, T0, 3);
    assert_false(take(&k, T0 + 30 * S, 2).allowed);
    assert_false(take(&k, T0 + 60 * S + 1, 2).allowed);
    assert_int_equal(k.log.len, 3); /* only the latest L matter */
    take(&k, T0 + 61 * S, UINT64_MAX);
    assert_int_equal(k.log.len, 3);
    assert_int_equal(take(&k, T0 + 61 * S, 0).reset_after_ns, 60 * S + 1);
}

static void entries_wrap_around_the_ring(void **state)
{
    (void)state;
    struct kept k = log_of(CAPACITY, false);
    for (uint64_t round = 0; round < 20; round++) {
        uint64_t now_ns = T0 + round * 61 * S;
        for (uint64_t i = 0; i < 5; i++)
            assert_int_equal(take(&k, now_ns + i, 1).remaining, CAPACITY - 1 - i);
        assert_true(take(&k, now_ns + 5, 3).allowed);
        assert_false(take(&k, now_ns + 5, 1).allowed);
    }
}

static void a_clock_that_went_back_dates_hits_with_the_last(void **state)
{
    (void)state;
    struct kept k = log_of(3, false);
    take(&k, T0, 1);
    CHECK(take(&k, T0 - 30 * S, 1), .allowed = true, .limit = 3, .remaining = 1,
          .reset_after_ns = 90 * S + 1);
    assert_int_equal(k.log.last_ns, T0);
    /* Further back than a window: all are one window ahead. */
    CHECK(take(&k, T0 - 3600 * S, 2), .limit = 3, .remaining = 1, .reset_after_ns = 120 * S + 1,
          .retry_after_ns = 120 * S + 1);
    assert_int_equal(k.log.last_ns, T0 - 3540 * S);
    assert_int_equal(k.log.run, 2);
}

static void the_newest_are_given_back_first(void **state)
{
    (void)state;
    struct kept k = log_of(5, false);
    take(&k, T0, 2);
    take(&k, T0 + 1 * S, 2);
    CHECK(give(&k, T0 + 2 * S, 1), .allowed = true, .limit = 5, .remaining = 2,
          .reset_after_ns = 59 * S + 1);
    CHECK(give(&k, T0 + 2 * S, 2), .allowed = true, .limit = 5, .remaining = 4,
          .reset_after_ns = 58 * S + 1);
    assert_true(take(&k, T0 + 2 * S, 4).allowed);
    CHECK(give(&k, T0 + 2 * S, UINT64_MAX), .allowed = true, .limit = 5, .remaining = 5);
    assert_int_equal(give(&k, T0 + 2 * S, 1).before, 0);
}

static void a_lower_limit_refuses_until_enough_have_left(void **state)
{
    (void)state;
    struct kept k = log_of(5, false);
    for (uint64_t i = 0; i < 5; i++)
        take(&k, T0 + i * S, 1);
    k.limit.requests = 2;
    CHECK(take(&k, T0 + 5 * S, 0), .limit = 2, .reset_after_ns = 59 * S + 1,
          .retry_after_ns = 57 * S + 1);
    assert_false(take(&k, T0 + 62 * S, 0).allowed);
    assert_true(take(&k, T0 + 62 * S + 1, 0).allowed);
}

static void what_is_live_can_be_counted_without_a_limit(void **state)
{
    (void)state;
    struct kept k = log_of(5, false);
    take(&k, T0, 2);
    take(&k, T0 + S, 3);
    struct weir_log_ring ring = flushed(&k);
    struct weir_limit window = {.window_ns = 60 * S};
    assert_int_equal(weir_sliding_log_live(&window, &k.log, &ring, T0 + 60 * S), 5);
    assert_int_equal(weir_sliding_log_live(&window, &k.log, &ring, T0 + 60 * S + 1), 3);
    assert_int_equal(weir_sliding_log_live(&window, &k.log, &ring, T0 + 62 * S), 0);
    assert_int_equal(weir_sliding_log_live(&window, &k.log, &ring, 0), 5);
    assert_int_equal(k.log.len, 5);
}

static void the_ends_of_time_are_times(void **state)
{
    (void)state;
    struct kept k = log_of(2, false);
    k.limit.window_ns = WEIR_WINDOW_S_MAX * S;
    CHECK(take(&k, NOW_MAX, 2), .allowed = true, .limit = 2,
          .reset_after_ns = k.limit.window_ns + 1);
    CHECK(take(&k, 0, 1), .limit = 2, .reset_after_ns = 2 * k.limit.window_ns + 1,
          .retry_after_ns = 2 * k.limit.window_ns + 1);
}

static void a_limit_of_0_refuses_every_hit_for_good(void **state)
{
    (void)state;
    struct kept k = log_of(0, true);
    CHECK(take(&k, T0, 1), .retry_after_ns = WEIR_NEVER);
    CHECK(take(&k, T0, 0), .allowed = true);
    CHECK(give(&k, T0, 1), .allowed = true);
    assert_int_equal(k.log.len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_entry_exactly_one_window_old_still_counts),
        cmocka_unit_test(a_wait_is_for_as_many_entries_as_are_in_the_way),
        cmocka_unit_test(refused_hits_are_logged_only_if_told_to),
        cmocka_unit_test(entries_wrap_around_the_ring),
        cmocka_unit_test(a_clock_that_went_back_dates_hits_with_the_last),
        cmocka_unit_test(the_newest_are_given_back_first),
        cmocka_unit_test(a_lower_limit_refuses_until_enough_have_left),
        cmocka_unit_test(what_is_live_can_be_counted_without_a_limit),
        cmocka_unit_test(the_ends_of_time_are_times),
        cmocka_unit_test(a_limit_of_0_refuses_every_hit_for_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
