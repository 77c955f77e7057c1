/* controls.c - operators and deciders at once, in many processes, some of which are killed.
 *
 * Each key may be given one number only, its own: so whatever limit a decision names must be the
 * rule's or that one.  There are more keys than places for overrides: rows change hands all the
 * time.  Afterwards everything can be taken away, and then everything is as the rules say.  The
 * list of busy keys is read and written all the while.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "store_rig.h"

#include <signal.h>
#include <weir/weir.h>

#define KEYS 40u /* a table of 1 MiB has room for 16 overrides */
#define OWN 1000u
#define WORKERS 4u

static const char RULES[] =
    "domain: t\n"
    "descriptors:\n"
    "  - {key: window, rate_limit: {unit: day, requests_per_unit: 7}}\n"
    "  - {key: bucket, rate_limit: {unit: day, requests_per_unit: 7, algorithm: token_bucket}}\n";

struct engine {
    struct weir *w;
    struct weir_session *s;
    char value[16];
    struct weir_entry entry;
    struct weir_descriptor descriptor;
    struct weir_request request;
};

static void engine_open(struct engine *e, const char *table, const char *rules)
{
    const struct weir_options options = {
        .rules_path = rules, .table_path = table, .table_bytes = 1 << 20};
    assert_int_equal(weir_open(&e->w, &options), 0);
    assert_int_equal(weir_session_open(&e->s, e->w), 0);
}

static void engine_close(struct engine *e)
{
    weir_session_close(e->s);
    weir_close(e->w);
}

/* The request that asks for key n, taking `hits`. */
static const struct weir_request *about(struct engine *e, uint32_t n, uint64_t hits)
{
    snprintf(e->value, sizeof e->value, "%u", n);
    e->entry =
        (struct weir_entry){n % 2 ? WEIR_STR("window") : WEIR_STR("bucket"), weir_str_of(e->value)};
    e->descriptor = (struct weir_descriptor){
        .entries = &e->entry, .entry_count = 1, .has_hits = true, .hits = hits};
    e->request = (struct weir_request){WEIR_STR("t"), &e->descriptor, 1, 0};
    return &e->request;
}

/* The limit that a decision names; 0: unlimited. */
static uint64_t limit_of(struct engine *e, uint32_t n, uint64_t hits)
{
    struct weir_status status;
    struct weir_decision decision = {.statuses = &status};
    assert_int_equal(weir_check(e->s, about(e, n, hits), RIG_START_NS, &decision), 0);
    return status.is_unlimited ? 0 : status.limit;
}

static void change_one(struct engine *e, uint64_t *random)
{
    uint32_t n = (uint32_t)(rig_random(random) % KEYS);
    struct weir_key_limit limit = {.requests_per_unit = OWN + n,
                                   .is_unlimited = rig_random(random) % 4 == 0,
                                   .until_ns = RIG_START_NS + 1000};
    int err = rig_random(random) % 2
                  ? weir_key_limit_set(e->s, about(e, n, 0), &limit, RIG_START_NS)
                  : weir_key_limit_drop(e->s, about(e, n, 0), RIG_START_NS);
    assert_true(err == 0 || err == WEIR_ERR_FULL || err == WEIR_ERR_NOT_FOUND);
    err = weir_enforcement_set(e->w, WEIR_STR("t.window"), (uint32_t)(rig_random(random) % 101));
    assert_int_equal(err, 0);
}

static void see_top(void *ctx, const struct weir_top_key *one)
{
    (void)ctx;
    /* Words are a key's own, or missing: never a mixture. */
    if (one->key->domain.len == 0)
        return;
    assert_true(weir_str_eq(one->key->domain, WEIR_STR("t")));
    assert_int_equal(one->key->entry_count, 1);
    assert_in_range(one->key->entries[0].value.len, 1, 2);
    assert_true(one->over_limit <= one->hits);
}

static void decide_one(struct engine *e, uint64_t *random)
{
    if (rig_random(random) % 256 == 0)
        weir_top_each(e->w, RIG_START_NS, see_top, NULL);
    uint32_t n = (uint32_t)(rig_random(random) % KEYS);
    uint64_t limit = limit_of(e, n, rig_random(random) % 2);
    if (limit != 7 && limit != OWN + n && limit != 0)
        fail_msg("key %u has a limit of %" PRIu64, n, limit);
}

/* Works so long, or until it is killed. */
static void work(const char *table, const char *rules, uint64_t seed, uint64_t turns)
{
    struct engine e;
    engine_open(&e, table, rules);
    for (uint64_t i = 0, random = seed; i < turns; i++) {
        if (rig_random(&random) % 4 == 0)
            change_one(&e, &random);
        else
            decide_one(&e, &random);
    }
    engine_close(&e);
}

static pid_t start(const char *table, const char *rules, uint64_t seed, uint64_t turns)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        work(table, rules, seed, turns);
        _exit(0);
    }
    return child;
}

static void count_one(void *ctx, const struct weir_key_limit_view *view)
{
    (void)view;
    ++*(uint32_t *)ctx;
}

/* Everything is taken away, and all is as the rules say. */
static void clear(const char *table, const char *rules)
{
    struct engine e;
    uint32_t left = 0;
    engine_open(&e, table, rules);
    for (uint32_t n = 0; n < KEYS; n++) {
        int err = weir_key_limit_drop(e.s, about(&e, n, 0), RIG_START_NS);
        assert_true(err == 0 || err == WEIR_ERR_NOT_FOUND);
    }
    weir_key_limit_each(e.w, RIG_START_NS, count_one, &left);
    assert_int_equal(left, 0);
    for (uint32_t n = 0; n < KEYS; n++)
        assert_int_equal(limit_of(&e, n, 0), 7);
    engine_close(&e);
}

struct thread {
    const char *table, *rules;
    uint64_t seed, turns;
};

static void *run_thread(void *ctx)
{
    const struct thread *t = ctx;
    work(t->table, t->rules, t->seed, t->turns);
    return NULL;
}

static void write_rules(char *path, size_t len)
{
    rig_path(path, len);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(RULES, f);
    fclose(f);
}

static void threads_see_no_number_but_their_own(void **state)
{
    char table[128], rules[128];
    pthread_t threads[WORKERS];
    struct thread args[WORKERS];
    uint64_t seed = rig_seed();
    (void)state;
    rig_path(table, sizeof table);
    write_rules(rules, sizeof rules);
    for (uint32_t i = 0; i < WORKERS; i++) {
        args[i] = (struct thread){table, rules, rig_random(&seed), rig_scaled(60000, 3000)};
        assert_int_equal(pthread_create(&threads[i], NULL, run_thread, &args[i]), 0);
    }
    for (uint32_t i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    clear(table, rules);
    unlink(table);
    unlink(rules);
}

static void killed_operators_leave_nothing_behind(void **state)
{
    char table[128], rules[128];
    pid_t children[WORKERS];
    uint64_t seed = rig_seed(), kills = rig_scaled(200, 20);
    (void)state;
    rig_path(table, sizeof table);
    write_rules(rules, sizeof rules);
    for (uint32_t i = 0; i < WORKERS; i++)
        children[i] = start(table, rules, rig_random(&seed), UINT64_MAX);
    for (uint64_t n = 0; n < kills; n++) {
        struct timespec pause = {.tv_nsec = (long)(rig_random(&seed) % 8000000)};
        pid_t *child = &children[n % WORKERS];
        int status;
        (void)nanosleep(&pause, NULL);
        assert_int_equal(kill(*child, SIGKILL), 0);
        assert_int_equal(waitpid(*child, &status, 0), *child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        *child = start(table, rules, rig_random(&seed), n + WORKERS < kills ? UINT64_MAX : 1000);
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    clear(table, rules);
    unlink(table);
    unlink(rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_see_no_number_but_their_own),
        cmocka_unit_test(killed_operators_leave_nothing_behind),
    };
    return cmocka_run_group_tests_name("controls", tests, NULL, NULL);
}
