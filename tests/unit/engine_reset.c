/* SPDX-License-Identifier: Apache-2.0 */
#include "engine_rig.h"

#include <pthread.h>
#include <stdatomic.h>

static const char rules[] =
    "domain: t\n"
    "descriptors:\n"
    "  - {key: fixed, rate_limit: {unit: hour, requests_per_unit: 3}}\n"
    "  - {key: slide, rate_limit: {unit: hour, requests_per_unit: 3, algorithm: "
    "sliding_window_counter}}\n"
    "  - {key: log, rate_limit: {unit: hour, requests_per_unit: 3, algorithm: "
    "sliding_window_log}}\n"
    "  - {key: token, rate_limit: {unit: hour, requests_per_unit: 3, algorithm: token_bucket}}\n"
    "  - {key: leaky, rate_limit: {unit: hour, requests_per_unit: 3, burst: 3, algorithm: "
    "leaky_bucket}}\n";

static uint32_t reset(struct rig *r, const char *text)
{
    uint32_t cleared = UINT32_MAX;
    rig_parse(r, "t", text);
    assert_int_equal(weir_reset(r->s, &r->request, &cleared), 0);
    return cleared;
}

static void every_algorithm_begins_anew(void **state)
{
    static const char *const keys[] = {"fixed", "slide", "log", "token", "leaky"};
    struct rig *r = rig_open(rules, NULL);
    struct weir_table_stats before, after;
    char text[32], other[32];
    (void)state;
    weir_stats_table(r->w, &before);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        snprintf(text, sizeof(text), "%s=a", keys[i]);
        snprintf(other, sizeof(other), "%s=b", keys[i]);
        int most = ask_times(r, "t", text, 10);
        assert_in_range(most, 3, 4);
        assert_int_equal(ask_times(r, "t", other, 10), most);
        assert_int_equal(reset(r, text), 1);
        assert_int_equal(ask_times(r, "t", text, 10), most);
        assert_int_equal(ask_times(r, "t", other, 10), 0);
        assert_int_equal(reset(r, text), 1);
        assert_int_equal(reset(r, text), 0);
        assert_int_equal(reset(r, other), 1);
    }
    weir_stats_table(r->w, &after);
    assert_int_equal(after.extent_bytes_used, before.extent_bytes_used); /* all given back */
    rig_close(r);
}

static void a_request_resets_all_its_descriptors(void **state)
{
    struct rig *r = rig_open(rules, NULL);
    (void)state;
    ask(r, "t", "fixed=a; token=a; log=a");
    assert_int_equal(reset(r, "fixed=a; token=a; log=a; slide=a; nobody=knows"), 3);
    assert_int_equal(reset(r, "fixed=a +0"), 0);
    rig_close(r);
}

static void a_bad_request_resets_nothing(void **state)
{
    struct rig *r = rig_open(rules, NULL);
    uint32_t cleared = 7;
    (void)state;
    rig_parse(r, "t", "fixed=a");
    r->request.domain.len = 0;
    assert_int_equal(weir_reset(r->s, &r->request, &cleared), WEIR_ERR_DOMAIN_EMPTY);
    assert_int_equal(cleared, 7);
    rig_close(r);
}

struct counting {
    struct rig *rig;
    struct weir_session *s;
    _Atomic bool is_done;
    uint64_t passed;
};

static void *count(void *ctx)
{
    struct counting *c = ctx;
    struct weir_entry entry = {WEIR_STR("log"), WEIR_STR("a")};
    struct weir_descriptor descriptor = {.entries = &entry, .entry_count = 1};
    struct weir_request request = {
        .domain = WEIR_STR("t"), .descriptors = &descriptor, .descriptor_count = 1};
    struct weir_status status;
    struct weir_decision decision = {.statuses = &status};
    while (!atomic_load(&c->is_done)) {
        if (weir_check(c->s, &request, c->rig->now_ns, &decision) == 0)
            c->passed += decision.overall == WEIR_CODE_OK;
    }
    return NULL;
}

/* Whatever a reset races with, it hands out one limit more and not two. */
static void between_two_resets_no_more_than_the_limit_passes(void **state)
{
    struct rig *r = rig_open(rules, NULL);
    struct counting c = {.rig = r};
    pthread_t thread;
    uint32_t cleared, resets = 0;
    struct weir_request request;
    (void)state;
    rig_parse(r, "t", "log=a");
    request = r->request;
    assert_int_equal(weir_session_open(&c.s, r->w), 0);
    assert_int_equal(pthread_create(&thread, NULL, count, &c), 0);
    for (int i = 0; i < 20000; i++) {
        assert_int_equal(weir_reset(r->s, &request, &cleared), 0);
        resets += cleared;
    }
    atomic_store(&c.is_done, true);
    pthread_join(thread, NULL);
    assert_in_range(c.passed, resets, 3 * ((uint64_t)resets + 1));
    weir_session_close(c.s);
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_begins_anew),
        cmocka_unit_test(a_request_resets_all_its_descriptors),
        cmocka_unit_test(a_bad_request_resets_nothing),
        cmocka_unit_test(between_two_resets_no_more_than_the_limit_passes),
    };
    return cmocka_run_group_tests_name("reset", tests, NULL, NULL);
}
