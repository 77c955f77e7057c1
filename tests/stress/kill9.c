/* kill9.c - processes are killed at random instants while others work on the same table.
 *
 * Before a worker asks it notes so in shared memory, and when it has been told yes it notes
 * that: so what the table admitted is known to the unit, but for the hits in flight when their
 * worker was killed.  The time is the parent's and moves on, so that leases expire and extents
 * of the dead can be told.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "store_rig.h"

#include <signal.h>

#define WORKERS 4u
#define KEYS 3u /* of each kind */
#define KINDS 6u
#define L 4000u
#define SECOND UINT64_C(1000000000)

struct note {
    uint64_t asked, told; /* told: and they were let pass */
};

/* Every so many kills the workers turn to other keys, so that there is always something left to
 * admit. */
#define EPOCH_KILLS 8u
#define EPOCHS_MAX 126u

struct shared {
    uint64_t now_ns;
    uint32_t epoch;
    struct note notes[EPOCHS_MAX][KINDS][KEYS];
};

static uint64_t key_of(uint64_t epoch, uint64_t kind, uint64_t key)
{
    return rig_key(1000 + epoch, kind * KEYS + key);
}

static const struct weir_limit_spec specs[KINDS] = {
    {.algorithm = WEIR_FIXED_WINDOW, .window_s = 86400, .requests_per_unit = L},
    {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .window_s = 86400, .requests_per_unit = L},
    {.algorithm = WEIR_SLIDING_WINDOW_LOG, .window_s = 86400, .requests_per_unit = L},
    {.algorithm = WEIR_SLIDING_WINDOW_COUNTER,
     .window_s = 86400,
     .buckets = 8,
     .requests_per_unit = L},
    {.algorithm = WEIR_TOKEN_BUCKET,
     .window_s = 86400,
     .requests_per_unit = L,
     .refill_interval = true},
    /* So large that it is wide, so slow that nothing leaves it: hits of a thousandth of it. */
    {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .window_s = 86400, .requests_per_unit = L * 1000},
};

static const struct weir_limit_spec lease_spec = {
    .algorithm = WEIR_CONCURRENCY, .window_s = 10, .requests_per_unit = 20};
static const struct weir_limit_spec churn_spec = {
    .algorithm = WEIR_SLIDING_WINDOW_LOG, .window_s = 2, .requests_per_unit = 30};

static uint64_t now_of(const struct shared *shared)
{
    return __atomic_load_n(&shared->now_ns, __ATOMIC_RELAXED);
}

static void add(uint64_t *to, uint64_t n)
{
    __atomic_add_fetch(to, n, __ATOMIC_SEQ_CST);
}

static void take_one(struct weir_table *table, struct shared *shared,
                     const struct weir_limit *limits, uint64_t *random)
{
    uint64_t kind = rig_random(random) % KINDS, key = rig_random(random) % KEYS;
    uint32_t epoch = __atomic_load_n(&shared->epoch, __ATOMIC_RELAXED);
    struct note *note = &shared->notes[epoch][kind][key];
    uint64_t hits = limits[kind].requests / L;
    add(&note->asked, 1);
    bool passed = rig_take(table, &limits[kind], key_of(epoch, kind, key), now_of(shared), hits);
    if (passed)
        add(&note->told, 1);
    else
        add(&note->asked, UINT64_MAX); /* it is not in doubt */
}

/* Works until it is killed: counts, leases, and many logs that come and go. */
static void work(const char *path, struct shared *shared, uint64_t seed)
{
    struct weir_table *table = rig_open(path, NULL);
    struct weir_limit limits[KINDS];
    for (uint32_t i = 0; i < KINDS; i++)
        limits[i] = rig_limit(table, specs[i], i + 1);
    struct weir_limit leases = rig_limit(table, lease_spec, 50);
    struct weir_limit churn = rig_limit(table, churn_spec, 51);
    for (uint64_t random = seed;;) {
        uint64_t dice = rig_random(&random) % 4;
        if (dice < 2) {
            take_one(table, shared, limits, &random);
        } else if (dice == 2) {
            struct weir_verdict verdict;
            uint64_t mark, now_ns = now_of(shared);
            weir_local_take(table, &leases, 77, now_ns, 1, &verdict, &mark);
            if (verdict.allowed && rig_random(&random) % 8 != 0)
                weir_local_release(table, &leases, 77, now_ns, 1, mark);
        } else {
            (void)rig_take(table, &churn, rig_key(9, rig_random(&random) % 100000), now_of(shared),
                           1);
        }
    }
}

static pid_t start(const char *path, struct shared *shared, uint64_t seed)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        work(path, shared, seed);
        _exit(0);
    }
    return child;
}

static void kill_one(pid_t child)
{
    int status;
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    /* One that crashed, or gave up on an assertion, was not killed by us. */
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* Kills them one after the other, each after a random while, and starts another in its place. */
static uint64_t kill_many(const char *path, struct shared *shared, uint64_t kills, uint64_t seed)
{
    pid_t children[WORKERS];
    uint64_t random = seed, extents_most = 0;
    struct weir_table *table = rig_open(path, NULL);
    for (uint32_t i = 0; i < WORKERS; i++)
        children[i] = start(path, shared, rig_random(&random));
    for (uint64_t n = 0; n < kills; n++) {
        struct timespec pause = {.tv_nsec = (long)(rig_random(&random) % 12000000)};
        nanosleep(&pause, NULL); /* not waiting for anything: a random instant is what is tested */
        kill_one(children[n % WORKERS]);
        add(&shared->now_ns, SECOND / 2);
        __atomic_store_n(&shared->epoch, (uint32_t)(n / EPOCH_KILLS), __ATOMIC_RELAXED);
        children[n % WORKERS] = start(path, shared, rig_random(&random));
        struct weir_table_stats stats;
        weir_table_stats(table, now_of(shared), &stats);
        if (n > kills / 2 && stats.extent_bytes_used > extents_most)
            extents_most = stats.extent_bytes_used;
    }
    for (uint32_t i = 0; i < WORKERS; i++)
        kill_one(children[i]);
    weir_table_close(table);
    return extents_most;
}

/* Uses up what is left of a limit: what passed in all is then known.  Returns the hits in doubt. */
static uint64_t check_key(struct weir_table *table, const struct weir_limit *limit, uint64_t key,
                          const struct note *note, uint64_t now_ns)
{
    uint64_t rest = 0, in_doubt = note->asked - note->told;
    while (rig_take(table, limit, key, now_ns, limit->requests / L))
        rest++;
    uint64_t passed = note->told + rest;
    if (passed > L || passed + in_doubt < L)
        printf("# algorithm %u: %" PRIu64 " passed, %" PRIu64 " in doubt\n", limit->algorithm,
               passed, in_doubt);
    assert_true(passed <= L);            /* nothing was forgiven */
    assert_true(passed + in_doubt >= L); /* nothing was lost */
    return in_doubt;
}

static void check_counts(struct weir_table *table, struct shared *shared, uint64_t kills)
{
    uint64_t in_doubt = 0, told = 0;
    for (uint64_t kind = 0; kind < KINDS; kind++) {
        struct weir_limit limit = rig_limit(table, specs[kind], kind + 1);
        for (uint64_t n = 0; n <= shared->epoch * KEYS; n++) {
            uint64_t epoch = n / KEYS, key = n % KEYS;
            const struct note *note = &shared->notes[epoch][kind][key];
            told += note->told;
            in_doubt += check_key(table, &limit, key_of(epoch, kind, key), note, now_of(shared));
        }
    }
    printf("# %" PRIu64 " hits admitted while %" PRIu64 " processes were killed; %" PRIu64
           " were in flight\n",
           told, kills, in_doubt);
    assert_true(in_doubt <= kills + WORKERS);
}

static void check_leases(struct weir_table *table, struct shared *shared)
{
    struct weir_limit leases = rig_limit(table, lease_spec, 50);
    struct weir_verdict verdict;
    weir_local_look(table, &leases, 77, now_of(shared), 0, &verdict);
    printf("# leases left by the dead: %" PRIu64 "\n", verdict.limit - verdict.remaining);
    assert_true(verdict.remaining <= 20);
    weir_local_look(table, &leases, 77, now_of(shared) + verdict.reset_after_ns, 0, &verdict);
    assert_int_equal(verdict.remaining, 20);
}

static void killed_processes_leave_a_table_that_counts_right(void **state)
{
    (void)state;
    static const struct weir_table_geometry geometry = {.slots = 1 << 17, .extent_bytes = 48 << 20};
    char path[128];
    uint64_t seed = rig_seed(), kills = rig_scaled(1000, 50);
    struct shared *shared = rig_shared(sizeof *shared);
    rig_path(path, sizeof path);
    shared->now_ns = RIG_START_NS;
    weir_table_close(rig_open(path, &geometry));
    uint64_t extents_most = kill_many(path, shared, kills, seed);
    struct weir_table *table = rig_open(path, NULL);
    struct weir_table_stats stats;
    weir_table_stats(table, now_of(shared), &stats);
    printf("# %" PRIu64 " kills; extents: %" PRIu64 " KiB of %" PRIu64 " in use at most\n", kills,
           extents_most >> 10, stats.extent_bytes >> 10);
    check_counts(table, shared, kills);
    check_leases(table, shared);
    weir_table_close(table);
    unlink(path);
    munmap(shared, sizeof *shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_processes_leave_a_table_that_counts_right),
    };
    return RIG_HAS_PROCESSES ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
