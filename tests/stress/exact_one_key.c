/* exact_one_key.c - eight threads, and eight processes, on one key: what is admitted is the limit.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "exact_rig.h"

struct counters {
    uint64_t admitted;
    int64_t held; /* leases that are out now, as their holders count */
    uint64_t above;
};

struct about {
    const struct exact_kind *kind;
    uint64_t key;
    uint64_t tries; /* of each worker */
    uint32_t places;
};

static void hit(const struct rig_crew *crew, struct weir_table *table, uint32_t worker)
{
    const struct about *about = crew->about;
    struct counters *counters = crew->shared;
    struct weir_limit limit = exact_limit(table, about->kind, about->places);
    uint64_t admitted = 0;
    (void)worker;
    rig_meet(crew->barrier, RIG_CREW);
    for (uint64_t i = 0; i < about->tries; i++)
        admitted += rig_take(table, &limit, about->key, RIG_START_NS, about->kind->hits);
    __atomic_add_fetch(&counters->admitted, admitted, __ATOMIC_RELAXED);
}

static void check_all_kinds(enum rig_kind workers, uint64_t seed)
{
    static const struct weir_table_geometry geometry = {.file_bytes = 4 << 20};
    for (size_t i = 0; i < EXACT_KINDS; i++) {
        char path[128];
        struct counters *counters = rig_shared(sizeof *counters);
        struct about about = {.kind = &exact_kinds[i], .key = rig_key(seed, i)};
        about.tries = rig_scaled(20000, 200);
        about.places = (uint32_t)(about.tries * RIG_CREW / 11);
        if (about.places > 16383) /* WEIR_CONCURRENCY_LIMIT_MAX */
            about.places = 16383;
        struct rig_crew crew = {
            .path = path, .geometry = &geometry, .work = hit, .shared = counters, .about = &about};
        rig_path(path, sizeof path);
        rig_run(&crew, workers);
        printf("# %-40s %" PRIu64 " of %" PRIu64 " admitted\n", about.kind->name,
               counters->admitted, about.tries * RIG_CREW);
        assert_int_equal(counters->admitted, exact_places(about.kind, about.places));
        unlink(path);
        munmap(counters, sizeof *counters);
    }
}

static void eight_processes_on_one_key_pass_exactly_the_limit(void **state)
{
    (void)state;
    check_all_kinds(RIG_PROCESSES, rig_seed());
}

static void eight_threads_on_one_key_pass_exactly_the_limit(void **state)
{
    (void)state;
    check_all_kinds(RIG_THREADS, rig_seed());
}

/* Takes a slot, checks that no more than the limit are out, and gives it back; now and then
 * renews it. */
static void churn(const struct rig_crew *crew, struct weir_table *table, uint32_t worker)
{
    const struct about *about = crew->about;
    struct counters *counters = crew->shared;
    struct weir_limit limit = exact_limit(table, about->kind, about->places);
    uint64_t random = worker, admitted = 0;
    rig_meet(crew->barrier, RIG_CREW);
    for (uint64_t i = 0; i < about->tries; i++) {
        struct weir_verdict verdict;
        uint64_t mark;
        weir_local_take(table, &limit, about->key, RIG_START_NS, 1, &verdict, &mark);
        if (!verdict.allowed) {
            sched_yield(); /* or one who is refused has used up its turns before the holders run */
            continue;
        }
        admitted++;
        if (__atomic_add_fetch(&counters->held, 1, __ATOMIC_SEQ_CST) > (int64_t)about->places)
            __atomic_add_fetch(&counters->above, 1, __ATOMIC_RELAXED);
        uint64_t dice = rig_random(&random) % 8;
        if (dice == 0)
            sched_yield();
        if (dice == 1 && weir_local_renew(table, &limit, about->key, RIG_START_NS, 1, &mark) != 0)
            abort();
        __atomic_add_fetch(&counters->held, -1, __ATOMIC_SEQ_CST);
        weir_local_release(table, &limit, about->key, RIG_START_NS, 1, mark);
    }
    __atomic_add_fetch(&counters->admitted, admitted, __ATOMIC_RELAXED);
}

static void check_churn(enum rig_kind workers)
{
    static const struct weir_table_geometry geometry = {.file_bytes = 1 << 20};
    char path[128];
    struct counters *counters = rig_shared(sizeof *counters);
    struct about about = {.kind = &exact_kinds[EXACT_KINDS - 1], .places = 3, .key = 42};
    about.tries = rig_scaled(100000, 1000);
    struct rig_crew crew = {
        .path = path, .geometry = &geometry, .work = churn, .shared = counters, .about = &about};
    rig_path(path, sizeof path);
    rig_run(&crew, workers);
    printf("# %" PRIu64 " acquired and released\n", counters->admitted);
    assert_int_equal(counters->above, 0);
    assert_int_equal(counters->held, 0);
    /* All came back: the limit is as if unused. */
    struct weir_table *table = rig_open(path, NULL);
    struct weir_limit limit = exact_limit(table, about.kind, about.places);
    struct weir_verdict verdict;
    weir_local_look(table, &limit, about.key, RIG_START_NS, 0, &verdict);
    assert_int_equal(verdict.remaining, about.places);
    weir_table_close(table);
    unlink(path);
    munmap(counters, sizeof *counters);
}

static void processes_never_hold_more_slots_than_the_limit(void **state)
{
    (void)state;
    check_churn(RIG_PROCESSES);
}

static void threads_never_hold_more_slots_than_the_limit(void **state)
{
    (void)state;
    check_churn(RIG_THREADS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_processes_on_one_key_pass_exactly_the_limit),
        cmocka_unit_test(eight_threads_on_one_key_pass_exactly_the_limit),
        cmocka_unit_test(processes_never_hold_more_slots_than_the_limit),
        cmocka_unit_test(threads_never_hold_more_slots_than_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
