/* leases.c - threads and processes add, spend and collect leases of the same keys; some are killed.
 *
 * What is granted is noted before it is added, what is spent or collected after it was: so whoever
 * is killed between the two makes the sums differ in one direction only, and never is more spent
 * than was granted.  Without kills the rest lies in the table, to the token.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "store_rig.h"

#include "store/lease.h"

#include <signal.h>

#define KEYS 5u
#define STEPS 60000u
#define SECOND UINT64_C(1000000000)

struct account {
    uint64_t granted, spent;
};

struct shared {
    struct account accounts[KEYS];
    uint64_t boot_ns; /* one instant for all */
    bool is_dated;
};

static void note(uint64_t *to, uint64_t n)
{
    __atomic_add_fetch(to, n, __ATOMIC_RELAXED);
}

static struct weir_lease_at lease_of(const struct shared *s, struct weir_table *table, uint32_t key)
{
    return (struct weir_lease_at){
        .table = table, .key = rig_key(11, key), .boot_ns = s->boot_ns, .is_dated = s->is_dated};
}

static void step(struct shared *s, struct weir_table *table, uint64_t *random)
{
    uint32_t key = (uint32_t)(rig_random(random) % KEYS);
    struct weir_lease_at at = lease_of(s, table, key);
    struct account *account = &s->accounts[key];
    uint64_t dice = rig_random(random) % 64;
    if (dice == 0) {
        uint32_t tokens = 1 + (uint32_t)(rig_random(random) % 100);
        note(&account->granted, tokens);
        (void)weir_lease_add(&at, tokens, s->boot_ns + SECOND, weir_table_now(table));
    } else if (dice == 1) {
        note(&account->spent, weir_lease_collect(&at, weir_lease_count(&at)));
    } else if (dice == 2) {
        weir_lease_refuse(&at, 1 + rig_random(random) % 5, SECOND, weir_table_now(table));
    } else {
        uint64_t hits = 1 + rig_random(random) % 3;
        if (weir_lease_take(&at, hits).said == WEIR_LEASE_SPENT)
            note(&account->spent, hits);
    }
}

static void work(const struct rig_crew *crew, struct weir_table *table, uint32_t worker)
{
    uint64_t random = *(const uint64_t *)crew->about + worker;
    uint64_t steps = rig_scaled(STEPS, 2000);
    for (uint64_t i = 0; i < steps; i++)
        step(crew->shared, table, &random);
}

/* All that is left, by taking it. */
static uint64_t rest_of(const struct shared *s, struct weir_table *table, uint32_t key)
{
    struct weir_lease_at at = lease_of(s, table, key);
    uint64_t rest = 0;
    while (weir_lease_take(&at, 1).said == WEIR_LEASE_SPENT)
        rest++;
    return rest;
}

static void account_for_all(enum rig_kind kind, bool is_dated)
{
    char path[96];
    uint64_t seed = rig_seed();
    const struct weir_table_geometry geometry = {.file_bytes = WEIR_TABLE_BYTES_MIN};
    struct shared *shared = rig_shared(sizeof(*shared));
    rig_path(path, sizeof(path));
    struct weir_table *table = rig_open(path, &geometry);
    shared->boot_ns = weir_table_boot_ns();
    shared->is_dated = is_dated;
    struct rig_crew crew = {.path = path, .work = work, .shared = shared, .about = &seed};
    rig_run(&crew, kind);
    for (uint32_t key = 0; key < KEYS; key++) {
        const struct account *a = &shared->accounts[key];
        assert_true(a->spent > 0);
        assert_int_equal(a->spent + rest_of(shared, table, key), a->granted);
    }
    weir_table_close(table);
    unlink(path);
    munmap(shared, sizeof(*shared));
}

static void threads_spend_what_was_granted(void **state)
{
    (void)state;
    account_for_all(RIG_THREADS, false);
}

static void processes_spend_what_was_granted(void **state)
{
    (void)state;
    account_for_all(RIG_PROCESSES, false);
}

static void threads_spend_what_a_bucket_granted(void **state)
{
    (void)state;
    account_for_all(RIG_THREADS, true);
}

static pid_t start(const char *path, struct shared *shared, uint64_t seed)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct weir_table *table = rig_open(path, NULL);
        for (uint64_t random = seed;;)
            step(shared, table, &random);
    }
    return child;
}

static void the_killed_take_nothing_from_the_others(void **state)
{
    (void)state;
    if (!RIG_HAS_PROCESSES)
        return;
    char path[96];
    uint64_t random = rig_seed(), kills = rig_scaled(60, 10);
    const struct weir_table_geometry geometry = {.file_bytes = WEIR_TABLE_BYTES_MIN};
    struct shared *shared = rig_shared(sizeof(*shared));
    pid_t children[4];
    rig_path(path, sizeof(path));
    struct weir_table *table = rig_open(path, &geometry);
    shared->boot_ns = weir_table_boot_ns();
    fflush(stdout);
    for (uint32_t i = 0; i < 4; i++)
        children[i] = start(path, shared, rig_random(&random));
    for (uint64_t n = 0; n < kills + 4; n++) {
        struct timespec pause = {.tv_nsec = (long)(rig_random(&random) % 8000000)};
        int status;
        nanosleep(&pause, NULL);
        assert_int_equal(kill(children[n % 4], SIGKILL), 0);
        assert_int_equal(waitpid(children[n % 4], &status, 0), children[n % 4]);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        if (n < kills)
            children[n % 4] = start(path, shared, rig_random(&random));
    }
    for (uint32_t key = 0; key < KEYS; key++) {
        const struct account *a = &shared->accounts[key];
        uint64_t accounted = a->spent + rest_of(shared, table, key);
        assert_true(a->spent > 0);
        assert_true(accounted <= a->granted);
        assert_true(a->granted - accounted <= 100 * (kills + 4)); /* what each had in hand */
    }
    weir_table_close(table);
    unlink(path);
    munmap(shared, sizeof(*shared));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_spend_what_was_granted),
        cmocka_unit_test(processes_spend_what_was_granted),
        cmocka_unit_test(threads_spend_what_a_bucket_granted),
        cmocka_unit_test(the_killed_take_nothing_from_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
