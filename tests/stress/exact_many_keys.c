/* exact_many_keys.c - eight threads, and eight processes, on many keys at once, and on keys
 * that none of them has ever seen, released from a barrier: each key passes exactly its limit.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "exact_rig.h"

#define MANY 1000u
#define PLACES 9u
#define FRESH 64u /* keys of one round */

struct about {
    const struct exact_kind *kind;
    uint64_t seed;
    uint64_t rounds;
    uint32_t places;
    uint32_t keys;
};

/* Every worker asks for every key in each round, in an order of its own. */
static void hit_many(const struct rig_crew *crew, struct weir_table *table, uint32_t worker)
{
    const struct about *about = crew->about;
    uint32_t *admitted = crew->shared;
    struct weir_limit limit = exact_limit(table, about->kind, about->places);
    uint64_t random = about->seed + worker;
    rig_meet(crew->barrier, RIG_CREW);
    for (uint64_t round = 0; round < about->rounds; round++) {
        uint64_t start = rig_random(&random) % MANY;
        for (uint64_t i = 0; i < MANY; i++) {
            uint64_t n = (start + i * 7) % MANY; /* 7 and MANY have no common divisor */
            uint64_t key = rig_key(about->seed, n);
            if (rig_take(table, &limit, key, RIG_START_NS, about->kind->hits))
                __atomic_add_fetch(&admitted[n], 1, __ATOMIC_RELAXED);
        }
    }
}

/* In each round all workers ask for the same keys in the same order, each key for the first
 * time. */
static void hit_fresh(const struct rig_crew *crew, struct weir_table *table, uint32_t worker)
{
    const struct about *about = crew->about;
    uint32_t *admitted = crew->shared;
    struct weir_limit limit = exact_limit(table, about->kind, about->places);
    (void)worker;
    for (uint64_t round = 0; round < about->rounds; round++) {
        rig_meet(crew->barrier, RIG_CREW);
        for (uint64_t i = 0; i < FRESH; i++) {
            uint64_t n = round * FRESH + i;
            uint64_t key = rig_key(about->seed, n);
            if (rig_take(table, &limit, key, RIG_START_NS, about->kind->hits))
                __atomic_add_fetch(&admitted[n], 1, __ATOMIC_RELAXED);
        }
    }
}

static void check(const struct about *about, enum rig_kind workers,
                  void (*work)(const struct rig_crew *, struct weir_table *, uint32_t))
{
    static const struct weir_table_geometry geometry = {.slots = 1 << 17, .extent_bytes = 64 << 20};
    char path[128];
    size_t bytes = about->keys * sizeof(uint32_t);
    uint32_t *admitted = rig_shared(bytes);
    struct rig_crew crew = {
        .path = path, .geometry = &geometry, .work = work, .shared = admitted, .about = about};
    rig_path(path, sizeof path);
    rig_run(&crew, workers);
    uint64_t expected = exact_places(about->kind, about->places), wrong = 0;
    for (uint32_t n = 0; n < about->keys; n++)
        wrong += admitted[n] != expected;
    printf("# %-40s %u keys, %" PRIu64 " of them wrong\n", about->kind->name, about->keys, wrong);
    assert_int_equal(wrong, 0);
    struct weir_table *table = rig_open(path, NULL);
    struct weir_table_stats stats;
    weir_table_stats(table, RIG_START_NS, &stats);
    assert_int_equal(stats.evictions, 0);
    assert_int_equal(stats.slots_live, about->keys); /* no key has two slots */
    weir_table_close(table);
    unlink(path);
    munmap(admitted, bytes);
}

static void check_many(enum rig_kind workers)
{
    uint64_t seed = rig_seed();
    for (size_t i = 0; i < EXACT_KINDS; i++) {
        struct about about = {.kind = &exact_kinds[i], .seed = seed + i, .places = PLACES};
        about.keys = MANY;
        about.rounds = rig_scaled(20, 2);
        if (exact_places(about.kind, PLACES) > about.rounds * RIG_CREW)
            about.rounds = exact_places(about.kind, PLACES) / RIG_CREW + 1;
        check(&about, workers, hit_many);
    }
}

static void check_fresh(enum rig_kind workers)
{
    uint64_t seed = rig_seed();
    for (size_t i = 0; i < EXACT_KINDS; i++) {
        struct about about = {.kind = &exact_kinds[i], .seed = seed + 100 + i, .places = 3};
        if (about.kind->requests_least > 1)
            continue; /* eight workers cannot reach a wide limit with one request each */
        about.rounds = rig_scaled(300, 10);
        about.keys = (uint32_t)about.rounds * FRESH;
        check(&about, workers, hit_fresh);
    }
}

static void eight_processes_pass_exactly_the_limit_of_each_key(void **state)
{
    (void)state;
    check_many(RIG_PROCESSES);
}

static void eight_threads_pass_exactly_the_limit_of_each_key(void **state)
{
    (void)state;
    check_many(RIG_THREADS);
}

static void eight_processes_never_make_two_slots_of_a_fresh_key(void **state)
{
    (void)state;
    check_fresh(RIG_PROCESSES);
}

static void eight_threads_never_make_two_slots_of_a_fresh_key(void **state)
{
    (void)state;
    check_fresh(RIG_THREADS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_processes_pass_exactly_the_limit_of_each_key),
        cmocka_unit_test(eight_processes_never_make_two_slots_of_a_fresh_key),
        cmocka_unit_test(eight_threads_pass_exactly_the_limit_of_each_key),
        cmocka_unit_test(eight_threads_never_make_two_slots_of_a_fresh_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
