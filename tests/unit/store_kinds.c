/* store_kinds.c - take, look, give, release and renew on every kind of state; what is kept when
 * a key has to leave, when a rate changes, and when a table is given another size.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "../stress/store_rig.h"
#include "base/maxima.h"
#include "table/internal.h"
#include "table/record.h"

#define SECOND UINT64_C(1000000000)
#define NOW_NS (RIG_START_NS + 1800 * SECOND)
#define L 10u

static const struct {
    struct weir_limit_spec spec;
    uint64_t places; /* what passes while the time stands still */
} kinds[] = {
    {{.algorithm = WEIR_FIXED_WINDOW, .window_s = 3600}, L},
    {{.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .window_s = 3600}, L},
    {{.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .window_s = 3600, .count_rejected = true}, L},
    {{.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .window_s = 3600, .buckets = 6}, L},
    {{.algorithm = WEIR_SLIDING_WINDOW_LOG, .window_s = 3600}, L},
    {{.algorithm = WEIR_TOKEN_BUCKET, .window_s = 3600}, L},
    {{.algorithm = WEIR_TOKEN_BUCKET, .window_s = 3600, .refill_interval = true}, L},
    {{.algorithm = WEIR_TOKEN_BUCKET, .window_s = 600, .refill_interval = true, .burst = 50}, 50},
    {{.algorithm = WEIR_LEAKY_BUCKET, .window_s = 3600, .burst = L - 1}, L},
    {{.algorithm = WEIR_CONCURRENCY, .window_s = 3600}, L},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static struct weir_limit limit_of(struct weir_table *table, size_t kind)
{
    struct weir_limit_spec spec = kinds[kind].spec;
    spec.requests_per_unit = L;
    return rig_limit(table, spec, kind + 1);
}

static uint64_t remaining_of(struct weir_table *table, const struct weir_limit *limit, uint64_t key,
                             uint64_t now_ns)
{
    struct weir_verdict verdict;
    weir_local_look(table, limit, key, now_ns, 0, &verdict);
    return verdict.remaining;
}

static void looking_changes_nothing_and_takes_no_slot(void **state)
{
    (void)state;
    struct weir_table *table = rig_open(NULL, NULL);
    struct weir_table_stats stats;
    for (size_t kind = 0; kind < KINDS; kind++) {
        struct weir_limit limit = limit_of(table, kind);
        struct weir_verdict verdict;
        uint64_t mark = 1;
        for (int i = 0; i < 100; i++)
            weir_local_look(table, &limit, 5, NOW_NS, 1, &verdict);
        assert_true(verdict.allowed);
        assert_int_equal(verdict.before, 0);
        weir_local_take(table, &limit, 5, NOW_NS, 0, &verdict, &mark);
        assert_true(verdict.allowed);
        assert_int_equal(mark, 0);
        weir_local_give(table, &limit, 5, NOW_NS, 3, &verdict);
        assert_true(verdict.allowed);
        weir_local_release(table, &limit, 5, NOW_NS, 1, 12345);
        mark = 12345;
        assert_int_equal(weir_local_renew(table, &limit, 5, NOW_NS, 1, &mark), WEIR_ERR_NOT_FOUND);
        weir_table_stats(table, NOW_NS, &stats);
        assert_int_equal(stats.slots_used, 0);
    }
    weir_table_close(table);
}

static void what_is_given_back_can_be_taken_again(void **state)
{
    (void)state;
    struct weir_table *table = rig_open(NULL, NULL);
    for (size_t kind = 0; kind < KINDS; kind++) {
        struct weir_limit limit = limit_of(table, kind);
        struct weir_verdict verdict;
        uint64_t marks[64] = {0}, key = kind + 1, places = kinds[kind].places;
        bool is_leaky = limit.algorithm == WEIR_LEAKY_BUCKET;
        for (uint64_t i = 0; i < places; i++) {
            weir_local_take(table, &limit, key, NOW_NS, 1, &verdict, &marks[i]);
            assert_true(verdict.allowed);
            assert_int_equal(verdict.remaining, places - 1 - i);
        }
        assert_false(rig_take(table, &limit, key, NOW_NS, 1) && !limit.count_rejected);
        if (is_leaky) /* a place in a queue is given back by its mark, while it is the last */
            weir_local_release(table, &limit, key, NOW_NS, 1, marks[places - 1]);
        else
            weir_local_give(table, &limit, key, NOW_NS, limit.count_rejected ? 2 : 1, &verdict);
        assert_int_equal(remaining_of(table, &limit, key, NOW_NS), 1);
        assert_true(rig_take(table, &limit, key, NOW_NS, 1));
        if (!is_leaky) {
            weir_local_give(table, &limit, key, NOW_NS, 1000000, &verdict);
            assert_int_equal(remaining_of(table, &limit, key, NOW_NS), places);
        }
    }
    weir_table_close(table);
}

/* Kinds that others' hits are added to: all but concurrency, which is the last. */
#define ADDED_KINDS (KINDS - 1)

static struct weir_limit eventual_limit_of(struct weir_table *table, size_t kind)
{
    struct weir_limit limit = limit_of(table, kind);
    limit.consistency = WEIR_CONSISTENCY_EVENTUAL;
    assert_int_equal(weir_local_bind(table, &limit), 0);
    return limit;
}

/* Where a key was met is only where to look first: it may have gone, and others may live there. */
static void a_key_is_found_wherever_it_was_met_before(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < KINDS; kind++) {
        struct weir_table *table = rig_open(NULL, NULL);
        struct weir_limit limit = limit_of(table, kind);
        const uint64_t keys[] = {rig_key(1, 1), rig_key(1, 2)};
        union weir_u16b *met = NULL;
        struct weir_verdict verdict;
        uint64_t mark;
        for (uint64_t i = 0; i < kinds[kind].places; i++) {
            weir_local_take_again(table, &limit, keys[0], NOW_NS, 1, &verdict, &mark, &met);
            assert_true(verdict.allowed);
            assert_int_equal(verdict.before, i);
        }
        weir_local_take_again(table, &limit, keys[0], NOW_NS, 1, &verdict, &mark, &met);
        assert_false(verdict.allowed);
        weir_local_take_again(table, &limit, keys[1], NOW_NS, 1, &verdict, &mark, &met);
        assert_true(verdict.allowed); /* met: the other's */
        assert_int_equal(verdict.before, 0);
        weir_local_take_again(table, &limit, keys[0], NOW_NS, 1, &verdict, &mark, &met);
        assert_false(verdict.allowed);
        assert_true(weir_local_reset(table, keys[0]));
        weir_local_take_again(table, &limit, keys[0], NOW_NS, 1, &verdict, &mark, &met);
        assert_true(verdict.allowed); /* met: empty */
        assert_int_equal(verdict.before, 0);
        assert_int_equal(remaining_of(table, &limit, keys[0], NOW_NS), verdict.remaining);
        weir_table_close(table);
    }
}

static void what_others_admitted_is_as_good_as_taken(void **state)
{
    (void)state;
    struct weir_table *table = rig_open(NULL, NULL);
    for (size_t kind = 0; kind < ADDED_KINDS; kind++) {
        struct weir_limit limit = eventual_limit_of(table, kind);
        uint64_t key = kind + 1, places = kinds[kind].places;
        weir_local_add(table, &limit, key, NOW_NS, 3); /* there is no slot yet */
        assert_int_equal(remaining_of(table, &limit, key, NOW_NS), places - 3);
        assert_true(rig_take(table, &limit, key, NOW_NS, 1));
        weir_local_add(table, &limit, key, NOW_NS, places - 5);
        assert_int_equal(remaining_of(table, &limit, key, NOW_NS), 1);
        assert_true(rig_take(table, &limit, key, NOW_NS, 1));
        assert_false(rig_take(table, &limit, key, NOW_NS, 1));
        weir_local_add(table, &limit, key, NOW_NS, 0);
        weir_local_add(table, &limit, key, NOW_NS, UINT64_MAX); /* saturates */
        assert_false(rig_take(table, &limit, key, NOW_NS, 1));
        assert_int_equal(remaining_of(table, &limit, key, NOW_NS), 0);
    }
    weir_table_close(table);
}

/* All places at once, and as many again by others: free again is what is paid back twice. */
static void buckets_owe_what_others_admitted_beyond_the_limit(void **state)
{
    (void)state;
    struct weir_table *table = rig_open(NULL, NULL);
    for (size_t kind = 0; kind < ADDED_KINDS; kind++) {
        struct weir_limit limit = eventual_limit_of(table, kind);
        if (limit.algorithm != WEIR_TOKEN_BUCKET && limit.algorithm != WEIR_LEAKY_BUCKET)
            continue;
        uint64_t key = kind + 1, places = kinds[kind].places;
        uint64_t start_ns = NOW_NS - NOW_NS % limit.window_ns; /* tokens may come then only */
        uint64_t full_ns = start_ns + places / L * limit.window_ns;
        assert_true(rig_take(table, &limit, key, start_ns, places));
        weir_local_add(table, &limit, key, start_ns, places);
        assert_false(rig_take(table, &limit, key, full_ns - 1, 1));
        assert_int_equal(remaining_of(table, &limit, key, full_ns), 0);
        assert_true(rig_take(table, &limit, key, 2 * full_ns - start_ns, places));
        assert_false(rig_take(table, &limit, key, 2 * full_ns - start_ns, 1));
    }
    weir_table_close(table);
}

static void what_others_admitted_before_counts_no_longer_than_it_would_have(void **state)
{
    (void)state;
    struct weir_table *table = rig_open(NULL, NULL);
    for (size_t kind = 0; kind < ADDED_KINDS; kind++) {
        struct weir_limit limit = eventual_limit_of(table, kind);
        uint64_t key = kind + 1, places = kinds[kind].places, window_ns = limit.window_ns;
        uint64_t index = NOW_NS / window_ns, before_ns = index * window_ns - 1;
        uint64_t late_ns = (index + 1) * window_ns - 1; /* W after before_ns */
        assert_true(rig_take(table, &limit, key, index * window_ns, 1));
        weir_local_add(table, &limit, key, before_ns, 4); /* learned of in the next window */
        uint64_t used = places - remaining_of(table, &limit, key, index * window_ns);
        bool is_exact_later = limit.algorithm == WEIR_SLIDING_WINDOW_LOG || limit.buckets > 1;
        assert_int_equal(used, limit.algorithm == WEIR_FIXED_WINDOW ? 1 : 5);
        used = places - remaining_of(table, &limit, key, late_ns);
        assert_true(used <= 1 || is_exact_later || limit.refill_interval);
        assert_int_equal(remaining_of(table, &limit, key, late_ns + 2 * window_ns), places);
    }
    weir_table_close(table);
}

static void a_lease_is_renewed_and_released_by_its_mark(void **state)
{
    (void)state;
    struct weir_table *table = rig_open(NULL, NULL);
    struct weir_limit limit = limit_of(table, KINDS - 1);
    struct weir_verdict verdict;
    uint64_t mark, later_ns = NOW_NS + 1800 * SECOND;
    weir_local_take(table, &limit, 9, NOW_NS, 4, &verdict, &mark);
    assert_true(verdict.allowed && mark != 0);
    uint64_t old = mark;
    assert_int_equal(weir_local_renew(table, &limit, 9, later_ns, 4, &mark), 0);
    assert_true(mark > old);
    weir_local_release(table, &limit, 9, later_ns, 4, old); /* nothing is there any more */
    assert_int_equal(remaining_of(table, &limit, 9, later_ns), L - 4);
    weir_local_release(table, &limit, 9, later_ns, 4, mark);
    assert_int_equal(remaining_of(table, &limit, 9, later_ns), L);
    /* After its deadline a release does nothing, also to those who came later. */
    weir_local_take(table, &limit, 9, later_ns, 1, &verdict, &mark);
    uint64_t expired_ns = later_ns + 3 * 3600 * SECOND;
    assert_true(rig_take(table, &limit, 9, expired_ns, L));
    weir_local_release(table, &limit, 9, expired_ns, 1, mark);
    assert_int_equal(remaining_of(table, &limit, 9, expired_ns), 0);
    assert_int_equal(weir_local_renew(table, &limit, 9, expired_ns, 1, &mark), WEIR_ERR_NOT_FOUND);
    weir_table_close(table);
}

/* Pushes every key out of a small table. */
static void flood(struct weir_table *table, uint64_t now_ns)
{
    struct weir_limit_spec spec = {
        .algorithm = WEIR_FIXED_WINDOW, .window_s = 30 * 86400, .requests_per_unit = 1000000};
    struct weir_limit limit = rig_limit(table, spec, 99);
    uint64_t keys = rig_scaled(200000, 80000);
    for (uint64_t n = 0; n < keys; n++)
        (void)rig_take(table, &limit, rig_key(77, n), now_ns, 1);
}

/* One thread's clock is read a second before another's: the key leaves the table by the later,
 * around the end of its window, and comes back by the earlier. */
static void a_key_that_left_is_not_forgiven_by_a_clock_that_lags(void **state)
{
    (void)state;
    static const int64_t lags_ns[] = {0, 1000, 1000000, 900 * 1000000};
    for (size_t kind = 0; kind < KINDS; kind++) {
        for (size_t lag = 0; lag < sizeof lags_ns / sizeof *lags_ns; lag++) {
            static const struct weir_table_geometry geometry = {.file_bytes = 1 << 20,
                                                                .window_regions = 8};
            struct weir_table *table = rig_open(NULL, &geometry);
            struct weir_limit limit = limit_of(table, kind);
            uint64_t late_ns = RIG_START_NS + 7200 * SECOND + 10;
            uint64_t early_ns = late_ns - (uint64_t)lags_ns[lag];
            assert_true(rig_take(table, &limit, 5, late_ns, kinds[kind].places));
            flood(table, late_ns);
            assert_false(rig_take(table, &limit, 5, early_ns, 1));
            assert_false(rig_take(table, &limit, 5, late_ns, 1));
            weir_table_close(table);
        }
    }
}

/* The same, but it is the one who evicts whose clock lags. */
static void a_key_evicted_by_a_clock_that_lags_is_not_forgiven(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < KINDS; kind++) {
        static const struct weir_table_geometry geometry = {.file_bytes = 1 << 20,
                                                            .window_regions = 8};
        struct weir_table *table = rig_open(NULL, &geometry);
        struct weir_limit limit = limit_of(table, kind);
        uint64_t late_ns = RIG_START_NS + 7200 * SECOND + 10;
        assert_true(rig_take(table, &limit, 5, late_ns, kinds[kind].places));
        flood(table, late_ns - SECOND);
        assert_false(rig_take(table, &limit, 5, late_ns, 1));
        weir_table_close(table);
    }
}

static void a_bucket_whose_rate_changes_keeps_the_tokens_used(void **state)
{
    (void)state;
    struct weir_table *table = rig_open(NULL, NULL);
    uint32_t rates[] = {100, 10, 1000, 50, 100};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        struct weir_limit_spec spec = {.algorithm = WEIR_TOKEN_BUCKET,
                                       .window_s = 3600,
                                       .requests_per_unit = rates[i],
                                       .burst = 100};
        struct weir_limit limit = rig_limit(table, spec, 5);
        assert_int_equal(remaining_of(table, &limit, 3, NOW_NS), 100 - 10 * i);
        assert_true(rig_take(table, &limit, 3, NOW_NS, 10));
    }
    weir_table_close(table);
}

/* Twelve rates are remembered for good, wherever they come from, and four more of a limit's own. */
static void as_many_rates_as_there_is_room_for_are_remembered(void **state)
{
    enum { RATES = 16 };
    struct weir_limit limits[RATES];
    struct weir_table *table = rig_open(NULL, NULL);
    (void)state;
    for (uint32_t i = 0; i < RATES; i++) {
        struct weir_limit_spec spec = {.algorithm = WEIR_TOKEN_BUCKET,
                                       .window_s = 3600,
                                       .requests_per_unit = 100 + 10 * i,
                                       .burst = 1000};
        limits[i] = rig_limit(table, spec, 5);
        assert_true(rig_take(table, &limits[i], i, NOW_NS, 10 + i));
    }
    for (uint32_t i = 0; i < RATES; i++)
        for (uint32_t k = 0; k < RATES; k++)
            assert_int_equal(remaining_of(table, &limits[k], i, NOW_NS), 990 - i);
    weir_table_close(table);
}

static void window_lengths_are_known_up_to_their_maximum(void **state)
{
    (void)state;
    struct weir_table *table = rig_open(NULL, NULL);
    for (uint32_t n = 0; n < WEIR_WINDOWS_MAX; n++)
        assert_int_equal(weir_window_class(table, 10 + n), n);
    assert_int_equal(weir_window_class(table, 10), 0);
    assert_int_equal(weir_window_class(table, 9), WEIR_WINDOWS_MAX);
    struct weir_limit_spec spec = {
        .algorithm = WEIR_FIXED_WINDOW, .window_s = 9, .requests_per_unit = 1, .buckets = 1};
    struct weir_limit limit;
    char why[128];
    assert_int_equal(weir_limit_init(&limit, &spec, why, sizeof why), 0);
    assert_int_equal(weir_local_bind(table, &limit), WEIR_ERR_FULL);
    weir_table_close(table);
}

static void a_table_of_another_size_forgives_nothing(void **state)
{
    (void)state;
    static const struct weir_table_geometry small = {.file_bytes = 1 << 20},
                                            large = {.file_bytes = 4 << 20};
    char path[128], new_path[160], why[256] = "";
    rig_path(path, sizeof path);
    snprintf(new_path, sizeof new_path, "%s-new", path);
    struct weir_table *table = rig_open(path, &small);
    uint64_t now_ns = weir_table_now(table);
    for (size_t kind = 0; kind < KINDS; kind++) {
        struct weir_limit limit = limit_of(table, kind);
        assert_true(rig_take(table, &limit, kind + 1, now_ns, kinds[kind].places - 1));
    }
    uint32_t stat = weir_stats_claim(table, 1234);
    weir_stats_add(table, stat, 5, WEIR_COUNTER_OVER_LIMIT, 42);
    weir_stats_add_within(weir_stats_within(table, stat, 6), 17);
    weir_table_close(table);
    assert_int_equal(weir_table_resize(path, new_path, &large, why, sizeof why), 0);
    table = rig_open(new_path, NULL);
    for (size_t kind = 0; kind < KINDS; kind++) {
        struct weir_limit limit = limit_of(table, kind);
        uint64_t passed = 0;
        for (int i = 0; i < 4; i++)
            passed += rig_take(table, &limit, kind + 1, now_ns, 1);
        assert_true(passed <= 1);
    }
    assert_int_equal(weir_stats_read(table, weir_stats_claim(table, 1234), WEIR_COUNTER_OVER_LIMIT),
                     42);
    assert_int_equal(weir_stats_read(table, weir_stats_claim(table, 1234), WEIR_COUNTER_TOTAL_HITS),
                     17);
    weir_table_close(table);
    unlink(path);
    unlink(new_path);
}

static void rules_beyond_the_maximum_share_one_line_of_statistics(void **state)
{
    (void)state;
    static const struct weir_table_geometry geometry = {.file_bytes = 1 << 20};
    struct weir_table *table = rig_open(NULL, &geometry);
    uint64_t rules = table->header->stats_rules;
    for (uint64_t n = 1; n < rules; n++)
        assert_true(weir_stats_claim(table, n) > 0);
    assert_int_equal(weir_stats_claim(table, rules), 0);
    uint32_t found = weir_stats_claim(table, 3);
    assert_true(found > 0);
    weir_stats_add(table, found, UINT32_MAX, WEIR_COUNTER_TOTAL_HITS, 7);
    assert_int_equal(weir_stats_read(table, found, WEIR_COUNTER_TOTAL_HITS), 7);
    weir_table_close(table);
}

static void hits_within_the_limit_are_total_hits_too(void **state)
{
    (void)state;
    static const struct weir_table_geometry geometry = {.file_bytes = 1 << 20};
    static const uint64_t amounts[WEIR_COUNTERS] = {[WEIR_COUNTER_TOTAL_HITS] = 7,
                                                    [WEIR_COUNTER_WITHIN_LIMIT] = 3,
                                                    [WEIR_COUNTER_OVER_LIMIT] = 4};
    struct weir_table *table = rig_open(NULL, &geometry);
    uint32_t stat = weir_stats_claim(table, 3);
    weir_stats_add_all(table, stat, 1, amounts);
    weir_stats_add_within(weir_stats_within(table, stat, 1), 10);
    weir_stats_add_within(weir_stats_within(table, stat, 2), 20);
    assert_int_equal(weir_stats_read(table, stat, WEIR_COUNTER_TOTAL_HITS), 37);
    assert_int_equal(weir_stats_read(table, stat, WEIR_COUNTER_WITHIN_LIMIT), 33);
    assert_int_equal(weir_stats_read(table, stat, WEIR_COUNTER_OVER_LIMIT), 4);
    assert_int_equal(weir_stats_read(table, stat, WEIR_COUNTER_NEAR_LIMIT), 0);
    weir_table_close(table);
}

static void count_kinds(void *ctx, const struct weir_slot_view *slot)
{
    assert_true(slot->expires_ns > NOW_NS);
    assert_true(strlen(slot->kind) > 0);
    ++*(uint64_t *)ctx;
}

static void a_dump_shows_every_live_slot(void **state)
{
    (void)state;
    struct weir_table *table = rig_open(NULL, NULL);
    uint64_t seen = 0;
    for (size_t kind = 0; kind < KINDS; kind++) {
        struct weir_limit limit = limit_of(table, kind);
        assert_true(rig_take(table, &limit, rig_key(1, kind), NOW_NS, 1));
    }
    weir_table_dump(table, NOW_NS, count_kinds, &seen);
    assert_int_equal(seen, KINDS);
    weir_table_close(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(looking_changes_nothing_and_takes_no_slot),
        cmocka_unit_test(what_is_given_back_can_be_taken_again),
        cmocka_unit_test(a_key_is_found_wherever_it_was_met_before),
        cmocka_unit_test(what_others_admitted_is_as_good_as_taken),
        cmocka_unit_test(buckets_owe_what_others_admitted_beyond_the_limit),
        cmocka_unit_test(what_others_admitted_before_counts_no_longer_than_it_would_have),
        cmocka_unit_test(a_lease_is_renewed_and_released_by_its_mark),
        cmocka_unit_test(a_key_that_left_is_not_forgiven_by_a_clock_that_lags),
        cmocka_unit_test(a_key_evicted_by_a_clock_that_lags_is_not_forgiven),
        cmocka_unit_test(a_bucket_whose_rate_changes_keeps_the_tokens_used),
        cmocka_unit_test(as_many_rates_as_there_is_room_for_are_remembered),
        cmocka_unit_test(window_lengths_are_known_up_to_their_maximum),
        cmocka_unit_test(a_table_of_another_size_forgives_nothing),
        cmocka_unit_test(rules_beyond_the_maximum_share_one_line_of_statistics),
        cmocka_unit_test(hits_within_the_limit_are_total_hits_too),
        cmocka_unit_test(a_dump_shows_every_live_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
