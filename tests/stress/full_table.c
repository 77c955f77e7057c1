/* full_table.c - a flood of ten times the slots in fresh keys: nothing that was used is
 * forgiven, to any key.
 *
 * Every kind of state, with different windows, in one small table: victims use 999 of 1000,
 * then threads flood the table so that every victim has to leave it, many times over, and then
 * the victims come back.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "store_rig.h"

#define L 1000u
/* Of each kind: few among the cells, for two of them that meet in a flooding key are both
 * raised by it. */
#define VICTIMS 200u
#define NOW_NS (RIG_START_NS + 1)

static const struct {
    const char *name;
    struct weir_limit_spec spec;
} kinds[] = {
    {"fixed_window, an hour", {.algorithm = WEIR_FIXED_WINDOW, .window_s = 3600}},
    {"fixed_window, a minute", {.algorithm = WEIR_FIXED_WINDOW, .window_s = 60}},
    {"sliding_window_counter", {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .window_s = 3600}},
    {"sliding_window_counter, wide",
     {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .window_s = 3600, .requests_per_unit = 3000000}},
    {"sub-windows", {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .window_s = 3600, .buckets = 10}},
    {"sliding_window_log", {.algorithm = WEIR_SLIDING_WINDOW_LOG, .window_s = 3600}},
    {"token_bucket, an hour", {.algorithm = WEIR_TOKEN_BUCKET, .window_s = 3600}},
    {"token_bucket, a second", {.algorithm = WEIR_TOKEN_BUCKET, .window_s = 1}},
    {"token_bucket by intervals",
     {.algorithm = WEIR_TOKEN_BUCKET, .window_s = 3600, .refill_interval = true}},
    {"token_bucket by intervals, four of them",
     {.algorithm = WEIR_TOKEN_BUCKET,
      .window_s = 600,
      .refill_interval = true,
      .requests_per_unit = 250,
      .burst = L}},
    {"leaky_bucket", {.algorithm = WEIR_LEAKY_BUCKET, .window_s = 3600, .burst = L - 1}},
    {"concurrency", {.algorithm = WEIR_CONCURRENCY, .window_s = 3600}},
};
#define KINDS (sizeof kinds / sizeof *kinds)

#define MIXED KINDS /* a flood of all of them */

struct about {
    uint64_t seed;
    uint64_t flood; /* keys, of all workers together */
    size_t kind;    /* of the flood */
};

static struct weir_limit limit_of(struct weir_table *table, size_t kind)
{
    struct weir_limit_spec spec = kinds[kind].spec;
    if (spec.requests_per_unit == 0)
        spec.requests_per_unit = L;
    return rig_limit(table, spec, kind + 1);
}

/* What one of a thousand parts is, in hits. */
static uint64_t part_of(size_t kind)
{
    uint32_t requests = kinds[kind].spec.requests_per_unit;
    return requests > L ? requests / L : 1;
}

static uint64_t victim_key(uint64_t seed, size_t kind, uint64_t n)
{
    return rig_key(seed + 1000 + kind, n);
}

/* Two workers flood with keys of their own, the others all with the same ones, which pass once:
 * L = 1. */
static void flood(const struct rig_crew *crew, struct weir_table *table, uint32_t worker)
{
    const struct about *about = crew->about;
    uint8_t *admitted = crew->shared;
    struct weir_limit limits[KINDS];
    for (size_t i = 0; i < KINDS; i++)
        limits[i] = limit_of(table, about->kind == MIXED ? i : about->kind);
    struct weir_limit_spec once = {
        .algorithm = WEIR_FIXED_WINDOW, .window_s = 3600, .requests_per_unit = 1};
    struct weir_limit one = rig_limit(table, once, 99);
    rig_meet(crew->barrier, RIG_CREW);
    for (uint64_t i = 0; i < about->flood / RIG_CREW; i++) {
        if (worker >= 2 && about->kind == MIXED) {
            uint64_t n = i + about->flood / RIG_CREW * (worker % 2);
            if (rig_take(table, &one, rig_key(about->seed + 7, n), NOW_NS, 1))
                __atomic_add_fetch(&admitted[n], 1, __ATOMIC_RELAXED);
        } else {
            uint64_t key = rig_key(about->seed + worker, i);
            (void)rig_take(table, &limits[i % KINDS], key, NOW_NS, 1);
        }
    }
}

/* How many of three more tries pass. */
static uint32_t try_again(struct weir_table *table, const struct weir_limit *limit, size_t kind,
                          uint64_t key, uint64_t now_ns)
{
    uint32_t passed = 0;
    for (int i = 0; i < 3; i++)
        passed += rig_take(table, limit, key, now_ns, part_of(kind));
    return passed;
}

/* Returns how many victims of a kind could not use their last part, though they had it. */
static uint64_t check_victims(struct weir_table *table, uint64_t seed, size_t kind)
{
    struct weir_limit limit = limit_of(table, kind);
    uint64_t refused = 0, over = 0;
    for (uint64_t n = 0; n < VICTIMS; n++) {
        uint32_t passed = try_again(table, &limit, kind, victim_key(seed, kind, n), NOW_NS);
        refused += passed == 0;
        over += passed > 1;
    }
    printf("# %-40s %u came back: %" PRIu64 " refused early, %" PRIu64 " passed too much\n",
           kinds[kind].name, VICTIMS, refused, over);
    assert_int_equal(over, 0);
    return refused;
}

static void use_victims(struct weir_table *table, uint64_t seed, size_t kind)
{
    struct weir_limit limit = limit_of(table, kind);
    for (uint64_t n = 0; n < VICTIMS; n++)
        assert_true(
            rig_take(table, &limit, victim_key(seed, kind, n), NOW_NS, part_of(kind) * (L - 1)));
}

/* Floods with one kind, or with all; returns how many victims were refused too early. */
static uint64_t check(enum rig_kind workers, size_t kind)
{
    static const struct weir_table_geometry geometry = {.file_bytes = 4 << 20, .window_regions = 1};
    char path[128];
    rig_path(path, sizeof path);
    struct weir_table *table = rig_open(path, &geometry);
    struct weir_table_stats stats;
    weir_table_stats(table, NOW_NS, &stats);
    struct about about = {.seed = rig_seed(), .kind = kind};
    about.flood = rig_scaled(10 * stats.slots, 3 * stats.slots);
    size_t first = kind == MIXED ? 0 : kind, last = kind == MIXED ? KINDS - 1 : kind;
    for (size_t i = first; i <= last; i++)
        use_victims(table, about.seed, i);
    uint8_t *admitted = rig_shared(about.flood);
    struct rig_crew crew = {.path = path, .work = flood, .shared = admitted, .about = &about};
    rig_run(&crew, workers);
    uint64_t refused = 0, over = 0;
    for (size_t i = first; i <= last; i++)
        refused += check_victims(table, about.seed, i);
    for (uint64_t n = 0; n < about.flood; n++)
        over += admitted[n] > 1;
    weir_table_stats(table, NOW_NS, &stats);
    printf("# %" PRIu64 " slots, %" PRIu64 " insertions, %" PRIu64 " evictions\n", stats.slots,
           stats.insertions, stats.evictions);
    assert_int_equal(over, 0);
    assert_true(stats.evictions > stats.slots / 4);
    weir_table_close(table);
    unlink(path);
    munmap(admitted, about.flood);
    return refused;
}

static void processes_that_flood_a_table_forgive_nobody(void **state)
{
    (void)state;
    (void)check(RIG_PROCESSES, MIXED);
}

static void threads_that_flood_a_table_forgive_nobody(void **state)
{
    (void)state;
    (void)check(RIG_THREADS, MIXED);
}

/* Of rules that differ a thousandfold, the small ones are refused early where they share cells
 * with the large ones; a rule alone is not. */
static void a_flood_of_its_own_kind_leaves_a_key_what_it_had(void **state)
{
    (void)state;
    uint64_t refused = 0;
    for (size_t kind = 0; kind < KINDS; kind++)
        if (part_of(kind) == 1) /* wide counters that find no extent are coarse, and refuse early */
            refused += check(RIG_THREADS, kind);
    assert_true(refused * 1000 <= KINDS * VICTIMS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_that_flood_a_table_forgive_nobody),
        cmocka_unit_test(threads_that_flood_a_table_forgive_nobody),
        cmocka_unit_test(a_flood_of_its_own_kind_leaves_a_key_what_it_had),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
