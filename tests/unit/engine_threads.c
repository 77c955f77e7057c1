/* Several limits, and atomic domains, under threads: never more than the tightest allows, and what
 * was taken for a request that lost is given back.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine_rig.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 4 };

static const char RULES[] =
    "domain: t\n"
    "descriptors:\n"
    "  - key: both\n"
    "    rate_limit:\n"
    "      - {name: a, unit: day, requests_per_unit: 1000}\n"
    "      - {name: b, unit: day, requests_per_unit: 700, algorithm: token_bucket}\n"
    "      - {name: c, unit: hour, requests_per_unit: 900, algorithm: sliding_window_counter}\n";

static const char ATOMIC[] = "domain: t\n"
                             "atomic: true\n"
                             "descriptors:\n"
                             "  - key: all\n"
                             "    rate_limit: {unit: day, requests_per_unit: 1000}\n"
                             "  - key: user\n"
                             "    rate_limit: {unit: day, requests_per_unit: 200}\n";

struct worker {
    struct weir *engine;
    const struct weir_descriptor *descriptors;
    uint32_t descriptor_count;
    int times;
    uint64_t admitted;
};

static void *work(void *ctx)
{
    struct worker *w = ctx;
    struct weir_session *s;
    struct weir_status statuses[2];
    struct weir_decision decision = {.statuses = statuses};
    struct weir_request request = {WEIR_STR("t"), w->descriptors, w->descriptor_count, 1};
    if (weir_session_open(&s, w->engine) != 0)
        return NULL;
    for (int i = 0; i < w->times; i++) {
        if (weir_check(s, &request, RIG_START_NS, &decision) == 0)
            w->admitted += decision.overall == WEIR_CODE_OK;
    }
    weir_session_close(s);
    return NULL;
}

/* Runs all workers at once; says how many requests passed. */
static uint64_t race(struct worker workers[THREADS])
{
    pthread_t threads[THREADS];
    uint64_t admitted = 0;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        admitted += workers[i].admitted;
    }
    return admitted;
}

static void several_limits_admit_as_many_as_the_tightest_and_no_more(void **state)
{
    (void)state;
    struct rig *r = rig_open(RULES, NULL);
    struct weir_entry entry = {WEIR_STR("both"), WEIR_STR("x")};
    struct weir_descriptor d = {.entries = &entry, .entry_count = 1};
    struct worker workers[THREADS];
    for (int i = 0; i < THREADS; i++)
        workers[i] = (struct worker){r->w, &d, 1, 2000, 0};
    assert_int_equal(race(workers), 700);
    /* The looser limits lost no more than what passed: the next to fail is still the tightest. */
    ask(r, "t", "both=x");
    assert_status(r, 0, WEIR_CODE_OVER_LIMIT, 700, 0);
    ask(r, "t", "both=x -200");
    assert_int_equal(ask_times(r, "t", "both=x", 300), 200);
    rig_close(r);
}

static void an_atomic_domain_never_over_admits_and_strands_nothing(void **state)
{
    (void)state;
    struct rig *r = rig_open(ATOMIC, NULL);
    struct weir_entry all = {WEIR_STR("all"), WEIR_STR("x")};
    struct weir_entry users[THREADS];
    struct weir_descriptor d[THREADS][2];
    static const char *const names[THREADS] = {"a", "a", "b", "c"};
    struct worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        users[i] = (struct weir_entry){WEIR_STR("user"), weir_str_of(names[i])};
        d[i][0] = (struct weir_descriptor){.entries = &users[i], .entry_count = 1};
        d[i][1] = (struct weir_descriptor){.entries = &all, .entry_count = 1};
        workers[i] = (struct worker){r->w, d[i], 2, 1000, 0};
    }
    assert_int_equal(race(workers), 600); /* three users with 200 each, and room for all */
    ask(r, "t", "all=x +0");
    assert_status(r, 0, WEIR_CODE_OK, 1000, 400);
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_limits_admit_as_many_as_the_tightest_and_no_more),
        cmocka_unit_test(an_atomic_domain_never_over_admits_and_strands_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
