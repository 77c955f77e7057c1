/* memory.c - what a key costs: the whole file, divided by the keys that are still found
 * exactly.
 *
 * Tables with slots for N keys at 80% load, a byte of sketch beside each slot, and as little of
 * all else as weir makes.  Overflow is the share of keys that had to leave though the table is
 * not full: it is measured at other loads, too.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "store_rig.h"
#include "table/internal.h"
#include "table/slots.h"

#define NOW_NS (RIG_START_NS + 1)

static const struct {
    const char *name;
    struct weir_limit_spec spec;
} kinds[] = {
    {"token_bucket", {.algorithm = WEIR_TOKEN_BUCKET}},
    {"fixed_window", {.algorithm = WEIR_FIXED_WINDOW}},
    {"sliding_window_counter", {.algorithm = WEIR_SLIDING_WINDOW_COUNTER}},
};

static struct weir_limit limit_of(struct weir_table *table, size_t kind)
{
    struct weir_limit_spec spec = kinds[kind].spec;
    spec.window_s = 3600;
    spec.requests_per_unit = 100;
    return rig_limit(table, spec, 1);
}

static struct weir_table *make(uint64_t slots)
{
    struct weir_table_geometry geometry = {
        .slots = slots, .sketch_cells = slots / 8, .extent_bytes = 65536, .records = 64};
    return rig_open(NULL, &geometry);
}

/* Fills the table; the number of keys that had to leave. */
static uint64_t fill(struct weir_table *table, size_t kind, uint64_t keys, uint64_t seed)
{
    struct weir_limit limit = limit_of(table, kind);
    struct weir_table_stats stats;
    for (uint64_t n = 0; n < keys; n++)
        (void)rig_take(table, &limit, rig_key(seed, n), NOW_NS, 1 + n % 50);
    weir_table_stats(table, NOW_NS, &stats);
    return stats.evictions;
}

/* Keys whose count is what they used: not more, as where the sketch had to answer. */
static uint64_t found_of(struct weir_table *table, size_t kind, uint64_t keys, uint64_t seed)
{
    struct weir_limit limit = limit_of(table, kind);
    uint64_t found = 0;
    for (uint64_t n = 0; n < keys; n++) {
        struct weir_home home = weir_slots_locate(table, rig_key(seed, n));
        union weir_u16b value;
        struct weir_verdict verdict;
        weir_local_look(table, &limit, rig_key(seed, n), NOW_NS, 0, &verdict);
        found += weir_slots_find(&home, &value) != NULL && verdict.before == 1 + n % 50;
    }
    return found;
}

static void show_parts(const struct weir_table *table)
{
    const struct weir_table_map *m = &table->map;
    printf("# bytes: slots %" PRIu64 ", sketch %" PRIu64 ", records %" PRIu64
           ", statistics %" PRIu64 ", extents %" PRIu64 ", header %u; in all %" PRIu64 "\n",
           m->sketch_at - m->slots_at, m->records_at - m->sketch_at, m->stats_at - m->records_at,
           m->extents_at - m->stats_at, m->file_bytes - m->extents_at, WEIR_PAGE, m->file_bytes);
}

static void a_key_costs_at_most_24_bytes(void **state)
{
    (void)state;
    uint64_t seed = rig_seed(), keys = rig_scaled(1000000, 500000);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        struct weir_table *table = make(keys * 10 / 8);
        uint64_t evicted = fill(table, kind, keys, seed + kind);
        uint64_t found = found_of(table, kind, keys, seed + kind);
        double bytes = (double)table->map.file_bytes / (double)found;
        printf("# %-24s %" PRIu64 " of %" PRIu64 " keys found exactly: %.2f bytes for each; "
               "overflow %.4f%%\n",
               kinds[kind].name, found, keys, bytes, 100.0 * (double)evicted / (double)keys);
        show_parts(table);
        assert_true(bytes <= 24);
        assert_true(evicted * 1000 <= keys);
        assert_true((keys - found) * 1000 <= keys);
        weir_table_close(table);
    }
}

static void the_overflow_at_80_percent_is_below_a_thousandth(void **state)
{
    (void)state;
    uint64_t seed = rig_seed(), slots = rig_scaled(1000000, 500000);
    for (uint64_t percent = 75; percent <= 95; percent += 5) {
        struct weir_table *table = make(slots);
        uint64_t keys = slots * percent / 100;
        uint64_t evicted = fill(table, 1, keys, seed + percent);
        printf("# load %" PRIu64 "%%: overflow %.4f%%\n", percent,
               100.0 * (double)evicted / (double)keys);
        assert_true(percent > 80 || evicted * 1000 <= keys);
        weir_table_close(table);
    }
}

/* A decision waits for one line of memory: the one that is looked at first should be it. */
static void most_keys_live_where_they_are_looked_for_first(void **state)
{
    (void)state;
    uint64_t seed = rig_seed(), keys = rig_scaled(400000, 100000), in_line[WEIR_LINES + 1] = {0};
    struct weir_table *table = make(keys * 10 / 8);
    (void)fill(table, 1, keys, seed);
    for (uint64_t n = 0; n < keys; n++) {
        struct weir_home home = weir_slots_locate(table, rig_key(seed, n));
        union weir_u16b value, *slot = weir_slots_find(&home, &value);
        uint32_t line = 0;
        while (line < WEIR_LINES &&
               (uintptr_t)slot / 64 != (uintptr_t)weir_slots_line(&home, line) / 64)
            line++;
        in_line[line]++;
    }
    for (uint32_t line = 0; line < WEIR_LINES; line++)
        printf("# line %u: %.1f%%\n", line, 100.0 * (double)in_line[line] / (double)keys);
    assert_true(in_line[0] * 100 >= keys * 70);
    assert_true((in_line[0] + in_line[1]) * 100 >= keys * 90);
    weir_table_close(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_costs_at_most_24_bytes),
        cmocka_unit_test(the_overflow_at_80_percent_is_below_a_thousandth),
        cmocka_unit_test(most_keys_live_where_they_are_looked_for_first),
    };
    /* No threads here, so nothing for ThreadSanitizer to find, and ten times the time. */
    return RIG_HAS_PROCESSES ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
