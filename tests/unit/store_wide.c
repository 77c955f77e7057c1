/* store_wide.c - wide states whose limit changes, whose extents run out, or whose makers died.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "../stress/store_rig.h"
#include "table/extent.h"
#include "table/slots.h"

#define SECOND UINT64_C(1000000000)
#define NOW_NS (RIG_START_NS + 100 * SECOND)

static struct weir_limit limit_of(struct weir_table *table, enum weir_algorithm algorithm,
                                  uint32_t requests, uint32_t buckets)
{
    struct weir_limit_spec spec = {.algorithm = algorithm,
                                   .window_s = 3600,
                                   .requests_per_unit = requests,
                                   .buckets = buckets};
    return rig_limit(table, spec, 1);
}

static uint64_t used_of(struct weir_table *table, const struct weir_limit *limit, uint64_t key)
{
    struct weir_verdict verdict;
    weir_local_look(table, limit, key, NOW_NS, 0, &verdict);
    return verdict.before;
}

static void a_limit_lowered_below_what_needs_an_extent_keeps_its_count(void **state)
{
    (void)state;
    struct weir_table *table = rig_open(NULL, NULL);
    struct weir_limit wide = limit_of(table, WEIR_SLIDING_WINDOW_COUNTER, 3000000, 1);
    struct weir_limit small = limit_of(table, WEIR_SLIDING_WINDOW_COUNTER, 1000, 1);
    assert_true(rig_take(table, &wide, 7, NOW_NS, 990));
    assert_int_equal(used_of(table, &small, 7), 990);
    assert_false(rig_take(table, &small, 7, NOW_NS, 11));
    assert_true(rig_take(table, &small, 7, NOW_NS, 10));
    assert_false(rig_take(table, &small, 7, NOW_NS, 1));
    weir_table_close(table);
}

static void a_limit_raised_above_what_a_slot_holds_keeps_its_count(void **state)
{
    (void)state;
    struct weir_table *table = rig_open(NULL, NULL);
    struct weir_limit small = limit_of(table, WEIR_SLIDING_WINDOW_COUNTER, 1000, 1);
    struct weir_limit wide = limit_of(table, WEIR_SLIDING_WINDOW_COUNTER, 3000000, 1);
    assert_true(rig_take(table, &small, 7, NOW_NS, 990));
    assert_int_equal(used_of(table, &wide, 7), 990);
    assert_true(rig_take(table, &wide, 7, NOW_NS, 3000000 - 990));
    assert_false(rig_take(table, &wide, 7, NOW_NS, 1));
    weir_table_close(table);
}

/* Takes all extents there are, by keys of their own. */
static void use_up_extents(struct weir_table *table, const struct weir_limit *limit)
{
    struct weir_table_stats stats;
    uint64_t before;
    uint64_t n = 0;
    do {
        weir_table_stats(table, NOW_NS, &stats);
        before = stats.extent_bytes_used;
        for (uint64_t i = 0; i < 200; i++)
            (void)rig_take(table, limit, rig_key(3, n++), NOW_NS, 1);
        weir_table_stats(table, NOW_NS, &stats);
    } while (stats.extent_bytes_used > before);
}

static void without_an_extent_no_more_than_the_limit_passes(void **state)
{
    (void)state;
    static const struct {
        enum weir_algorithm algorithm;
        uint32_t requests, buckets, hits;
    } cases[] = {
        {WEIR_SLIDING_WINDOW_LOG, 1000, 1, 1},
        {WEIR_SLIDING_WINDOW_COUNTER, 1000, 10, 1},
        {WEIR_SLIDING_WINDOW_COUNTER, 3000000, 1, 1000},
        {WEIR_SLIDING_WINDOW_COUNTER, 2000000000, 10, 1000000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const struct weir_table_geometry geometry = {.file_bytes = 1 << 20};
        struct weir_table *table = rig_open(NULL, &geometry);
        struct weir_limit limit =
            limit_of(table, cases[i].algorithm, cases[i].requests, cases[i].buckets);
        use_up_extents(table, &limit);
        uint64_t key = 1, passed = 0, most = cases[i].requests / cases[i].hits;
        for (uint64_t n = 0; n < most + 100; n++)
            passed += rig_take(table, &limit, key, NOW_NS, cases[i].hits);
        assert_true(passed <= most);
        /* Lowered, it still remembers: what is used is no less than what passed. */
        struct weir_limit lower =
            limit_of(table, cases[i].algorithm, cases[i].requests / 4, cases[i].buckets);
        assert_true(used_of(table, &lower, key) >= passed * cases[i].hits / 2);
        /* Evicted by a flood and back again, too. */
        for (uint64_t n = 0; n < rig_scaled(300000, 100000); n++)
            (void)rig_take(table, &limit, rig_key(4, n), NOW_NS, 1);
        for (uint64_t n = 0; n < 100; n++)
            passed += rig_take(table, &limit, key, NOW_NS, cases[i].hits);
        assert_true(passed <= most);
        weir_table_close(table);
    }
}

static void a_log_grows_when_its_limit_is_raised(void **state)
{
    (void)state;
    struct weir_table *table = rig_open(NULL, NULL);
    struct weir_limit small = limit_of(table, WEIR_SLIDING_WINDOW_LOG, 10, 1);
    struct weir_limit large = limit_of(table, WEIR_SLIDING_WINDOW_LOG, 20000, 1);
    for (uint64_t n = 0; n < 10; n++)
        assert_true(rig_take(table, &small, 7, NOW_NS + n, 1));
    assert_false(rig_take(table, &small, 7, NOW_NS + 10, 1));
    assert_true(rig_take(table, &large, 7, NOW_NS + 10, 19990));
    assert_false(rig_take(table, &large, 7, NOW_NS + 10, 1));
    /* Its entries kept their times: the first leaves a window after it came. */
    assert_true(rig_take(table, &large, 7, NOW_NS + 3600 * SECOND + 1, 1));
    assert_false(rig_take(table, &large, 7, NOW_NS + 3600 * SECOND + 1, 1));
    /* And back: what is used stays used. */
    assert_false(rig_take(table, &small, 7, NOW_NS + 3600 * SECOND + 1, 1));
    weir_table_close(table);
}

/* Claims extents that nobody will link, until it is refused for long; how many there were. */
static uint64_t claim_all(struct weir_table *table, uint64_t fp, uint64_t now_ns)
{
    struct weir_home home = weir_slots_locate(table, fp);
    uint64_t claimed = 0, owner;
    for (uint32_t misses = 0; misses < 50;) {
        bool did = weir_extent_claim(table, fp, &home.bucket[0]->slot[0], 100, now_ns, &owner) !=
                   WEIR_EXTENT_NONE;
        claimed += did;
        misses = did ? 0 : misses + 1;
    }
    return claimed;
}

static void extents_of_the_dead_are_used_again(void **state)
{
    (void)state;
    static const struct weir_table_geometry geometry = {.file_bytes = 1 << 20};
    struct weir_table *table = rig_open(NULL, &geometry);
    uint64_t claimed = claim_all(table, 42, NOW_NS);
    assert_true(claimed > 10);
    assert_int_equal(claim_all(table, 43, NOW_NS + 29 * SECOND), 0);
    assert_int_equal(claim_all(table, 43, NOW_NS + 31 * SECOND), claimed);
    weir_table_close(table);
}

/* Stopped for a minute between claiming an extent and using it, then woken up. */
static void one_who_was_taken_for_dead_changes_nothing(void **state)
{
    (void)state;
    static const struct weir_table_geometry geometry = {.file_bytes = 1 << 20};
    struct weir_table *table = rig_open(NULL, &geometry);
    struct weir_home home = weir_slots_locate(table, 42);
    union weir_u16b *slot = &home.bucket[0]->slot[0], control = {.lo = 1, .hi = 1};
    union weir_u16b claim = weir_slot_pack(42, WEIR_KIND_CLAIM, 0, 0, 1);
    uint64_t sleeper, thief;
    *slot = claim;
    uint32_t unit = weir_extent_claim(table, 42, slot, 100, NOW_NS, &sleeper);
    assert_true(unit != WEIR_EXTENT_NONE);
    (void)claim_all(table, 43, NOW_NS);
    uint32_t stolen;
    do
        stolen = weir_extent_claim(table, 44, slot + 1, 100, NOW_NS + 60 * SECOND, &thief);
    while (stolen != unit);
    struct weir_extent *extent = weir_extent_at(table, unit);
    assert_true(weir_extent_store_control(extent, thief, control));
    assert_false(weir_extent_store_control(extent, sleeper, (union weir_u16b){0}));
    assert_true(weir_eq16(weir_load16(&extent->control), control));
    assert_false(weir_cas16(slot, claim, claim)); /* it cannot link it any more, either */
    weir_extent_release(table, unit, 42, weir_extent_nonce(sleeper));
    assert_true(weir_extent_is_of(extent, 44, weir_extent_nonce(thief)));
    weir_table_close(table);
}

/* ---- objects of several chunks ---- */

enum { MANY_CELLS = 30000, CHUNKS = 4 }; /* 240 kB */

static uint32_t claim_cells(struct weir_table *table, uint32_t cells, uint64_t now_ns)
{
    struct weir_home home = weir_slots_locate(table, 42);
    uint64_t owner;
    return weir_extent_claim(table, 42, &home.bucket[0]->slot[0], cells, now_ns, &owner);
}

static uint32_t claim_many(struct weir_table *table, uint64_t now_ns)
{
    return claim_cells(table, MANY_CELLS, now_ns);
}

/* A table whose only room is CHUNKS chunks, in which somebody died after marking so many of them.
 * *first receives where. */
static struct weir_table *left_after(uint64_t marked, uint64_t *first)
{
    struct weir_table *table = rig_open(NULL, NULL);
    uint32_t unit = claim_many(table, NOW_NS);
    assert_true(unit != WEIR_EXTENT_NONE);
    *first = (uint64_t)unit * WEIR_UNIT_BYTES / WEIR_CHUNK_BYTES;
    weir_extent_at(table, unit)->whose = (union weir_u16b){0};
    uint32_t mark = table->chunk_class[*first + 1];
    for (uint64_t i = 0; i < table->extent_chunks; i++) {
        bool is_ours = i >= *first && i < *first + CHUNKS;
        table->chunk_class[i] = !is_ours ? UINT32_MAX : i < *first + marked ? mark : 0;
    }
    return table;
}

static void who_dies_while_claiming_many_chunks_leaks_none(void **state)
{
    (void)state;
    for (uint64_t marked = 1; marked <= CHUNKS; marked++) {
        uint64_t first;
        struct weir_table *table = left_after(marked, &first);
        assert_int_equal(claim_many(table, NOW_NS + 10 * SECOND), WEIR_EXTENT_NONE); /* alive? */
        uint64_t unit = first * WEIR_CHUNK_BYTES / WEIR_UNIT_BYTES;
        assert_int_equal(claim_many(table, NOW_NS + 40 * SECOND), unit);
        /* What has become an object is not cut up, however old its marks are. */
        assert_int_equal(claim_cells(table, 100, NOW_NS + 400 * SECOND), WEIR_EXTENT_NONE);
        for (uint64_t i = 0; i < CHUNKS; i++)
            assert_int_not_equal(table->chunk_class[first + i], 0);
        weir_table_close(table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_lowered_below_what_needs_an_extent_keeps_its_count),
        cmocka_unit_test(a_limit_raised_above_what_a_slot_holds_keeps_its_count),
        cmocka_unit_test(without_an_extent_no_more_than_the_limit_passes),
        cmocka_unit_test(a_log_grows_when_its_limit_is_raised),
        cmocka_unit_test(extents_of_the_dead_are_used_again),
        cmocka_unit_test(one_who_was_taken_for_dead_changes_nothing),
        cmocka_unit_test(who_dies_while_claiming_many_chunks_leaks_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
