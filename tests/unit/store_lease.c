/* lease.c - tokens in the table: spent once, gone in time, given back whole.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "../stress/store_rig.h"

#include "algo/lease.h"
#include "store/lease.h"
#include "table/internal.h"

#define MS UINT64_C(1000000)

struct bench {
    struct weir_table *table;
    struct weir_lease_at at;
    uint64_t start_ns; /* of the boot */
};

/* At so many milliseconds. */
static const struct weir_lease_at *when(struct bench *b, uint64_t ms)
{
    b->at.boot_ns = b->start_ns + ms * MS;
    return &b->at;
}

static bool add(struct bench *b, uint64_t ms, uint32_t tokens, uint64_t until_ms)
{
    const struct weir_lease_at *at = when(b, ms);
    return weir_lease_add(at, tokens, b->start_ns + until_ms * MS, weir_table_now(b->table));
}

static enum weir_lease_said take(struct bench *b, uint64_t ms, uint64_t hits)
{
    return weir_lease_take(when(b, ms), hits).said;
}

static void refuse(struct bench *b, uint64_t ms, uint64_t hits, uint64_t retry_ms)
{
    weir_lease_refuse(when(b, ms), hits, retry_ms * MS, weir_table_now(b->table));
}

static int start(void **state)
{
    static struct bench b;
    const struct weir_table_geometry geometry = {.file_bytes = WEIR_TABLE_BYTES_MIN};
    b = (struct bench){.table = rig_open(NULL, &geometry)};
    b.start_ns = weir_table_boot_ns();
    b.at = (struct weir_lease_at){.table = b.table, .key = 42};
    *state = &b;
    return 0;
}

static int stop(void **state)
{
    struct bench *b = *state;
    weir_table_close(b->table);
    return 0;
}

static void every_token_is_spent_once(void **state)
{
    struct bench *b = *state;
    assert_int_equal(take(b, 0, 1), WEIR_LEASE_NONE);
    assert_true(add(b, 0, 10, 1000));
    assert_int_equal(take(b, 1, 11), WEIR_LEASE_NONE);
    assert_int_equal(take(b, 1, 7), WEIR_LEASE_SPENT);
    assert_int_equal(take(b, 1, 4), WEIR_LEASE_NONE);
    assert_int_equal(take(b, 1, 3), WEIR_LEASE_SPENT);
    assert_int_equal(take(b, 1, 1), WEIR_LEASE_NONE);
    b->at.key = 43;
    assert_int_equal(take(b, 1, 1), WEIR_LEASE_NONE);
}

static void no_hits_and_too_many_are_none_of_its_business(void **state)
{
    struct bench *b = *state;
    assert_true(add(b, 0, 10, 1000));
    assert_int_equal(take(b, 0, 0), WEIR_LEASE_NONE);
    assert_int_equal(take(b, 0, UINT64_MAX), WEIR_LEASE_NONE);
    assert_int_equal(take(b, 0, (UINT64_C(1) << 32) + 1), WEIR_LEASE_NONE);
}

static void a_lease_ends_a_little_early(void **state)
{
    struct bench *b = *state;
    assert_true(add(b, 0, 10, 100));
    assert_int_equal(take(b, 97, 1), WEIR_LEASE_SPENT);
    assert_int_equal(take(b, 98, 1), WEIR_LEASE_NONE);
    assert_int_equal(take(b, 5000, 1), WEIR_LEASE_NONE);
}

static void an_answer_that_comes_too_late_is_worth_nothing(void **state)
{
    struct bench *b = *state;
    assert_false(add(b, 100, 10, 100));
    assert_false(add(b, 100, 10, 102));
    assert_int_equal(take(b, 100, 1), WEIR_LEASE_NONE);
}

static void grants_of_a_window_add_up(void **state)
{
    struct bench *b = *state;
    assert_true(add(b, 0, 10, 500));
    assert_true(add(b, 100, 5, 600));
    assert_int_equal(take(b, 550, 15), WEIR_LEASE_SPENT);
    assert_int_equal(take(b, 550, 1), WEIR_LEASE_NONE);
}

/* What has ended does not come back with what is added. */
static void ended_tokens_stay_ended(void **state)
{
    struct bench *b = *state;
    assert_true(add(b, 0, 10, 500));
    assert_true(add(b, 500, 5, 1000));
    assert_int_equal(take(b, 550, 6), WEIR_LEASE_NONE);
    assert_int_equal(take(b, 550, 5), WEIR_LEASE_SPENT);
}

static void grants_of_a_bucket_end_each_in_its_time(void **state)
{
    struct bench *b = *state;
    b->at.is_dated = true;
    assert_true(add(b, 0, 10, 100));
    assert_true(add(b, 50, 7, 150));
    assert_int_equal(take(b, 60, 4), WEIR_LEASE_SPENT); /* of what ends first */
    assert_int_equal(take(b, 120, 8), WEIR_LEASE_NONE);
    assert_int_equal(take(b, 120, 7), WEIR_LEASE_SPENT);
    assert_int_equal(take(b, 120, 1), WEIR_LEASE_NONE);
}

/* A third that must share a place ends with whom it shares it. */
static void no_grant_of_a_bucket_outlives_its_end(void **state)
{
    struct bench *b = *state;
    b->at.is_dated = true;
    assert_true(add(b, 0, 10, 100));
    assert_true(add(b, 10, 10, 110));
    assert_true(add(b, 20, 10, 120));
    assert_int_equal(take(b, 107, 20), WEIR_LEASE_SPENT);
    assert_true(add(b, 107, 3, 200));
    assert_int_equal(take(b, 119, 4), WEIR_LEASE_NONE);
    assert_int_equal(take(b, 119, 3), WEIR_LEASE_SPENT);
}

static void one_caller_is_told_that_it_is_low(void **state)
{
    struct bench *b = *state;
    uint32_t told = 0;
    assert_true(add(b, 0, 64, 1000));
    for (uint32_t i = 0; i < 64; i++) {
        struct weir_lease_taken taken = weir_lease_take(when(b, 1), 1);
        assert_int_equal(taken.said, WEIR_LEASE_SPENT);
        assert_int_equal(taken.left, 63 - i);
        told += taken.is_low;
        assert_int_equal(told, taken.left <= 16);
    }
    assert_true(add(b, 0, 64, 1000));
    assert_true(weir_lease_take(when(b, 1), 60).is_low);
}

static void a_refusal_is_remembered_until_its_wait_is_over(void **state)
{
    struct bench *b = *state;
    refuse(b, 0, 3, 400);
    assert_int_equal(take(b, 100, 2), WEIR_LEASE_NONE); /* fewer may pass */
    assert_int_equal(take(b, 100, 3), WEIR_LEASE_REFUSED);
    struct weir_lease_taken taken = weir_lease_take(when(b, 100), 4000);
    assert_int_equal(taken.said, WEIR_LEASE_REFUSED);
    assert_in_range(taken.retry_after_ns, 299 * MS, 300 * MS);
    assert_int_equal(take(b, 400, 3), WEIR_LEASE_NONE);
}

static void a_refusal_is_trusted_for_a_second(void **state)
{
    struct bench *b = *state;
    refuse(b, 0, 1, 86400000);
    assert_int_equal(take(b, 990, 1), WEIR_LEASE_REFUSED);
    assert_in_range(weir_lease_take(when(b, 990), 1).retry_after_ns, 86399000 * MS, 86399010 * MS);
    assert_int_equal(take(b, 1040, 1), WEIR_LEASE_NONE);
    for (uint64_t ms = 2000; ms < 86400000; ms += 1234567)
        assert_int_equal(take(b, ms, 1), WEIR_LEASE_NONE);
    refuse(b, 2000, 1, 86398000);
    assert_int_equal(take(b, 2500, 1), WEIR_LEASE_REFUSED);
}

static void a_refusal_of_many_does_not_take_the_tokens_for_few(void **state)
{
    struct bench *b = *state;
    assert_true(add(b, 0, 5, 1000));
    refuse(b, 0, 50, 500);
    assert_int_equal(take(b, 1, 50), WEIR_LEASE_NONE);
    assert_int_equal(take(b, 1, 5), WEIR_LEASE_SPENT);
    refuse(b, 1, 1, 500);
    assert_int_equal(take(b, 2, 1), WEIR_LEASE_REFUSED);
    assert_true(add(b, 2, 5, 1000));
    assert_int_equal(take(b, 3, 1), WEIR_LEASE_SPENT);
}

static void what_nobody_touched_is_collected_whole(void **state)
{
    struct bench *b = *state;
    assert_int_equal(weir_lease_collect(when(b, 0), 0), 0);
    assert_true(add(b, 0, 5, 1000));
    assert_int_equal(weir_lease_count(when(b, 1)), 5);
    assert_int_equal(take(b, 1, 1), WEIR_LEASE_SPENT);
    assert_int_equal(weir_lease_collect(when(b, 2), 5), 0);
    assert_int_equal(weir_lease_collect(when(b, 2), 4), 4);
    assert_int_equal(take(b, 2, 1), WEIR_LEASE_NONE);
    assert_int_equal(weir_lease_collect(when(b, 2), 4), 0);
    assert_true(add(b, 3, 6, 100));
    assert_int_equal(weir_lease_collect(when(b, 200), 6), 6); /* also when they have ended */
}

static void what_can_be_spent_is_recalled_whole(void **state)
{
    struct bench *b = *state;
    assert_int_equal(weir_lease_recall(when(b, 0)), 0);
    assert_true(add(b, 0, 5, 1000));
    assert_int_equal(take(b, 1, 1), WEIR_LEASE_SPENT);
    assert_int_equal(weir_lease_left(when(b, 1)), 4);
    assert_int_equal(weir_lease_recall(when(b, 2)), 4);
    assert_int_equal(weir_lease_left(when(b, 2)), 0);
    assert_int_equal(take(b, 2, 1), WEIR_LEASE_NONE);
    assert_true(add(b, 3, 6, 100));
    assert_int_equal(weir_lease_left(when(b, 200)), 0);
    assert_int_equal(weir_lease_recall(when(b, 200)), 0); /* what has ended is of a window before */
}

/* CLOCK_BOOTTIME begins anew with each boot, and the file may be older. */
static void leases_of_another_boot_are_not_found(void **state)
{
    struct bench *b = *state;
    assert_true(add(b, 0, 5, 1000));
    b->table->header->clock_boot_id[3] ^= 1;
    assert_int_equal(take(b, 1, 1), WEIR_LEASE_NONE);
    b->table->header->clock_boot_id[3] ^= 1;
    assert_int_equal(take(b, 1, 1), WEIR_LEASE_SPENT);
}

/* A table that is full loses leases, and never finds more than there were. */
static void leases_make_room_and_are_not_doubled(void **state)
{
    struct bench *b = *state;
    uint64_t found = 0;
    for (uint64_t key = 0; key < 100000; key++) {
        b->at.key = rig_key(3, key);
        assert_true(add(b, 0, 1, 1000));
    }
    for (uint64_t key = 0; key < 100000; key++) {
        b->at.key = rig_key(3, key);
        found += take(b, 1, 1) == WEIR_LEASE_SPENT;
        assert_int_equal(take(b, 1, 1), WEIR_LEASE_NONE);
    }
    assert_in_range(found, 1000, 99999);
}

static void a_counter_that_begins_anew_has_neither_tokens_nor_refusals(void **state)
{
    struct bench *b = *state;
    weir_lease_drop(when(b, 0)); /* of nothing */
    b->at.is_dated = true;
    assert_true(add(b, 0, 10, 1000));
    assert_true(add(b, 0, 20, 900));
    weir_lease_drop(when(b, 1));
    assert_int_equal(take(b, 1, 1), WEIR_LEASE_NONE);
    assert_int_equal(weir_lease_count(when(b, 1)), 0);
    refuse(b, 1, 1, 500);
    assert_int_equal(take(b, 2, 1), WEIR_LEASE_REFUSED);
    weir_lease_drop(when(b, 2));
    assert_int_equal(take(b, 2, 1), WEIR_LEASE_NONE);
    assert_true(add(b, 2, 5, 1000)); /* and goes on as any other */
    assert_int_equal(take(b, 3, 5), WEIR_LEASE_SPENT);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(every_token_is_spent_once),
        CASE(no_hits_and_too_many_are_none_of_its_business),
        CASE(a_lease_ends_a_little_early),
        CASE(an_answer_that_comes_too_late_is_worth_nothing),
        CASE(grants_of_a_window_add_up),
        CASE(ended_tokens_stay_ended),
        CASE(grants_of_a_bucket_end_each_in_its_time),
        CASE(no_grant_of_a_bucket_outlives_its_end),
        CASE(one_caller_is_told_that_it_is_low),
        CASE(a_refusal_is_remembered_until_its_wait_is_over),
        CASE(a_refusal_is_trusted_for_a_second),
        CASE(a_refusal_of_many_does_not_take_the_tokens_for_few),
        CASE(what_nobody_touched_is_collected_whole),
        CASE(what_can_be_spent_is_recalled_whole),
        CASE(a_counter_that_begins_anew_has_neither_tokens_nor_refusals),
        CASE(leases_of_another_boot_are_not_found),
        CASE(leases_make_room_and_are_not_doubled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
