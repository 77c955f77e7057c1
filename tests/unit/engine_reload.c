/* Rules change while the engine runs: counts stay, nobody stops, old rules go when nobody holds
 * them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"
#include "engine/publish.h"
#include "engine_rig.h"

#include <poll.h>
#include <stdatomic.h>

/* Waits until the watch has seen what was written; says what it made of it. */
static int watched(struct rig *r)
{
    for (int turn = 0; turn < 100; turn++) {
        int timeout_ms;
        int done = weir_watch_step(r->w, &timeout_ms);
        if (done != 0)
            return done;
        struct pollfd wait = {.fd = weir_watch_fd(r->w), .events = POLLIN};
        poll(&wait, 1, timeout_ms);
    }
    fail_msg("the change was not noticed");
    return 0;
}

/* Publishes at once, without a file: what watching comes to. */
static void publish(struct rig *r, const char *text)
{
    struct weir_rules_options how = {.log = rig_log, .log_ctx = r};
    struct weir_rules *rules = NULL;
    assert_int_equal(weir_rules_load_text(&rules, weir_str_of(text), "test", &how), 0);
    assert_int_equal(weir_publish(r->w, rules), 0);
}

static const char *rules_of(const char *limit)
{
    static char text[256];
    snprintf(text, sizeof(text), "domain: t\ndescriptors:\n  - key: k\n    rate_limit: {%s}\n",
             limit);
    return text;
}

static void a_written_file_takes_effect_and_keeps_the_counts(void **state)
{
    (void)state;
    struct rig *r = rig_open(rules_of("unit: hour, requests_per_unit: 10"), NULL);
    assert_int_equal(weir_rules_generation(r->w), 1);
    assert_true(weir_watch_fd(r->w) >= 0);
    ask_times(r, "t", "k=x", 4);
    rig_write(r, rules_of("unit: hour, requests_per_unit: 100"));
    assert_int_equal(watched(r), 1);
    assert_int_equal(weir_rules_generation(r->w), 2);
    ask(r, "t", "k=x");
    assert_status(r, 0, WEIR_CODE_OK, 100, 95);
    rig_close(r);
}

static void a_bad_file_changes_nothing_and_is_told_once(void **state)
{
    (void)state;
    struct rig *r = rig_open(rules_of("unit: hour, requests_per_unit: 10"), NULL);
    assert_true(weir_watch_fd(r->w) >= 0);
    rig_write(r, rules_of("unit: fortnight, requests_per_unit: 10"));
    assert_int_equal(watched(r), WEIR_ERR_RULES);
    assert_non_null(strstr(r->log, "fortnight"));
    assert_non_null(strstr(r->log, "stay as they were"));
    r->log[0] = '\0';
    int timeout_ms;
    assert_int_equal(weir_watch_step(r->w, &timeout_ms), 0);
    assert_string_equal(r->log, "");
    ask(r, "t", "k=x");
    assert_status(r, 0, WEIR_CODE_OK, 10, 9);
    assert_int_equal(weir_rules_generation(r->w), 1);
    rig_write(r, rules_of("unit: hour, requests_per_unit: 20"));
    assert_int_equal(watched(r), 1);
    rig_close(r);
}

static void a_deleted_file_keeps_the_old_rules(void **state)
{
    (void)state;
    struct rig *r = rig_open(rules_of("unit: hour, requests_per_unit: 10"), NULL);
    assert_true(weir_watch_fd(r->w) >= 0);
    unlink(r->path);
    assert_true(watched(r) < 0);
    assert_non_null(strstr(r->log, "stay as they were"));
    assert_int_equal(ask_times(r, "t", "k=x", 20), 10);
    rig_close(r);
}

/* Uses 4 of 10, changes the limit to 6: 2 are left, of whatever kind it is. */
static void a_changed_limit_meets_what_is_used(void **state)
{
    (void)state;
    static const char *const algorithms[] = {"fixed_window",       "sliding_window_counter",
                                             "sliding_window_log", "token_bucket",
                                             "leaky_bucket",       "concurrency"};
    for (size_t i = 0; i < sizeof(algorithms) / sizeof(algorithms[0]); i++) {
        char limit[128];
        snprintf(limit, sizeof(limit), "unit: day, requests_per_unit: 10, algorithm: %s",
                 algorithms[i]);
        struct rig *r = rig_open(rules_of(limit), NULL);
        uint64_t more = strcmp(algorithms[i], "leaky_bucket") == 0; /* it holds B + 1 */
        assert_int_equal(ask_times(r, "t", "k=x", 4), 4);
        snprintf(limit, sizeof(limit), "unit: day, requests_per_unit: 6, algorithm: %s",
                 algorithms[i]);
        publish(r, rules_of(limit));
        ask(r, "t", "k=x +0");
        assert_status(r, 0, WEIR_CODE_OK, 6 + more, 2 + more);
        assert_int_equal(ask_times(r, "t", "k=x", 20), 2 + more);
        snprintf(limit, sizeof(limit), "unit: day, requests_per_unit: 50, algorithm: %s",
                 algorithms[i]);
        publish(r, rules_of(limit));
        assert_true(ask_times(r, "t", "k=x", 60) > 20);
        rig_close(r);
    }
}

static const char *two_rules(uint32_t a, uint32_t b)
{
    static char text[256];
    snprintf(
        text, sizeof(text),
        "domain: t\ndescriptors:\n"
        "- {key: a, rate_limit: {unit: day, requests_per_unit: %u, algorithm: token_bucket}}\n"
        "- {key: b, rate_limit: {unit: day, requests_per_unit: %u, algorithm: token_bucket}}\n",
        a, b);
    return text;
}

/* Rules that have come to say the same (rules/terms.c) do not mean the same by what is in use. */
static void rules_with_one_number_remember_the_numbers_they_had(void **state)
{
    (void)state;
    struct rig *r = rig_open(two_rules(10, 40), NULL);
    assert_int_equal(ask_times(r, "t", "a=x", 4), 4);
    assert_int_equal(ask_times(r, "t", "b=x", 4), 4);
    publish(r, two_rules(20, 20));
    ask(r, "t", "a=x +0; b=x +0");
    assert_status(r, 0, WEIR_CODE_OK, 20, 16);
    assert_status(r, 1, WEIR_CODE_OK, 20, 16);
    rig_close(r);
}

#define BUCKET "algorithm: token_bucket, unit: day"

/* By `overrides`, by a rule for that value, and back; and never one of several changes lost. */
static void a_value_that_gets_or_loses_a_number_keeps_its_tokens(void **state)
{
    static const char *const changes[] = {
        "- {key: k, rate_limit: {requests_per_unit: 100, " BUCKET "}}\n",
        "- {key: k, overrides: {x: 200}, rate_limit: {requests_per_unit: 100, " BUCKET "}}\n",
        "- {key: k, overrides: {x: 300}, rate_limit: {requests_per_unit: 50, " BUCKET "}}\n",
        "- {key: k, rate_limit: {requests_per_unit: 50, " BUCKET "}}\n",
        "- {key: k, rate_limit: {requests_per_unit: 50, " BUCKET "}}\n"
        "- {key: k, value: x, rate_limit: {requests_per_unit: 80, " BUCKET "}}\n",
        "- {key: k, value: x*, rate_limit: {requests_per_unit: 400, " BUCKET "}}\n",
        "- {key: k, rate_limit: {requests_per_unit: 100, " BUCKET "}}\n",
    };
    static const uint64_t limits[] = {100, 200, 300, 50, 80, 400, 100};
    struct rig *r = NULL;
    (void)state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        char text[512];
        snprintf(text, sizeof(text), "domain: t\ndescriptors:\n%s", changes[i]);
        if (r)
            publish(r, text);
        else
            r = rig_open(text, NULL);
        ask(r, "t", "k=x +4");
        assert_status(r, 0, WEIR_CODE_OK, limits[i], limits[i] - 4 * (i + 1));
    }
    rig_close(r);
}

static void another_window_or_algorithm_starts_afresh(void **state)
{
    (void)state;
    struct rig *r = rig_open(rules_of("unit: hour, requests_per_unit: 3"), NULL);
    assert_int_equal(ask_times(r, "t", "k=x", 4), 3);
    publish(r, rules_of("unit: day, requests_per_unit: 3"));
    assert_int_equal(ask_times(r, "t", "k=x", 4), 3);
    publish(r, rules_of("unit: day, requests_per_unit: 3, algorithm: token_bucket"));
    assert_int_equal(ask_times(r, "t", "k=x", 4), 3);
    publish(r, rules_of("unit: hour, requests_per_unit: 9")); /* and back: it was kept */
    assert_int_equal(ask_times(r, "t", "k=x", 9), 5);
    rig_close(r);
}

static void a_ticket_outlives_the_rules_it_came_from(void **state)
{
    (void)state;
    struct rig *r =
        rig_open(rules_of("unit: hour, requests_per_unit: 1, algorithm: concurrency"), NULL);
    assert_int_equal(ask(r, "t", "k=x"), WEIR_CODE_OK);
    struct weir_ticket ticket = r->statuses[0].ticket;
    publish(r, rules_of("unit: minute, requests_per_unit: 7"));
    ask(r, "t", "k=x");
    publish(r, rules_of("unit: hour, requests_per_unit: 2, algorithm: concurrency"));
    assert_int_equal(ask_times(r, "t", "k=x", 3), 1);
    weir_release(r->s, &ticket, r->now_ns);
    assert_int_equal(ask_times(r, "t", "k=x", 3), 1);
    rig_close(r);
}

/* A place in a queue is known by where it ends; another rate moves all ends. */
static void a_place_taken_at_another_rate_is_forfeited_once_the_queue_has_moved(void **state)
{
    (void)state;
    struct rig *r = rig_open(
        rules_of("unit: second, requests_per_unit: 1, burst: 9, algorithm: leaky_bucket"), NULL);
    ask(r, "t", "k=x");
    ask(r, "t", "k=x");
    struct weir_ticket ticket = r->statuses[0].ticket;
    publish(r, rules_of("unit: second, requests_per_unit: 2, burst: 9, algorithm: leaky_bucket"));
    ask(r, "t", "k=x");
    uint64_t delay_ns = r->statuses[0].delay_ns;
    weir_release(r->s, &ticket, r->now_ns);
    ask(r, "t", "k=x");
    assert_int_equal(r->statuses[0].delay_ns, delay_ns + RIG_SECOND / 2); /* behind the third */
    rig_close(r);
}

static int old_versions(const struct weir *w)
{
    int count = 0;
    for (const struct weir_published *p = w->old; p; p = p->next)
        count++;
    return count;
}

static void old_rules_go_when_no_session_holds_them(void **state)
{
    (void)state;
    struct rig *r = rig_open(rules_of("unit: hour, requests_per_unit: 3"), NULL);
    struct weir_session *idle;
    assert_int_equal(weir_session_open(&idle, r->w), 0);
    for (int i = 0; i < 10; i++) {
        publish(r, rules_of("unit: hour, requests_per_unit: 4"));
        ask(r, "t", "k=x");
        assert_in_range(old_versions(r->w), 1, 2); /* idle's, and perhaps the one before this */
    }
    rig_parse(r, "t", "k=x");
    assert_int_equal(weir_check(idle, &r->request, r->now_ns, &r->decision), 0);
    publish(r, rules_of("unit: hour, requests_per_unit: 4"));
    assert_int_equal(old_versions(r->w), 1); /* both sessions hold the one before */
    ask(r, "t", "k=x");
    weir_session_close(idle);
    assert_int_equal(old_versions(r->w), 0);
    rig_close(r);
}

static void a_status_borrows_its_rule_until_the_next_call(void **state)
{
    (void)state;
    struct rig *r = rig_open(rules_of("unit: hour, requests_per_unit: 3, name: first"), NULL);
    ask(r, "t", "k=x");
    publish(r, rules_of("unit: hour, requests_per_unit: 3, name: second"));
    publish(r, rules_of("unit: hour, requests_per_unit: 3, name: third"));
    assert_true(weir_str_eq(r->statuses[0].rule->name, WEIR_STR("first")));
    ask(r, "t", "k=x");
    assert_true(weir_str_eq(r->statuses[0].rule->name, WEIR_STR("third")));
    rig_close(r);
}

struct worker {
    struct rig *rig;
    atomic_bool *is_over;
    uint64_t asked, admitted;
    bool is_wrong;
};

/* Asks for one key until told to stop; every answer must be by one of the two versions. */
static void *work(void *ctx)
{
    struct worker *w = ctx;
    struct weir_session *s;
    struct weir_entry entry = {WEIR_STR("k"), WEIR_STR("x")};
    struct weir_descriptor d = {.entries = &entry, .entry_count = 1};
    struct weir_request request = {WEIR_STR("t"), &d, 1, 1};
    struct weir_status status;
    struct weir_decision decision = {.statuses = &status};
    if (weir_session_open(&s, w->rig->w) != 0)
        return NULL;
    while (!atomic_load_explicit(w->is_over, memory_order_relaxed)) {
        w->is_wrong |= weir_check(s, &request, RIG_START_NS, &decision) != 0 ||
                       !status.is_limited || (status.limit != 5000 && status.limit != 6000) ||
                       status.rule->requests_per_unit != status.limit;
        w->asked++;
        w->admitted += decision.overall == WEIR_CODE_OK;
    }
    weir_session_close(s);
    return NULL;
}

static void a_hundred_reloads_under_traffic_lose_no_decision_and_admit_no_more(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    static const char *const limits[] = {"unit: day, requests_per_unit: 5000",
                                         "unit: day, requests_per_unit: 6000"};
    struct rig *r = rig_open(rules_of(limits[0]), NULL);
    pthread_t threads[THREADS];
    struct worker workers[THREADS];
    atomic_bool is_over = false;
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.rig = r, .is_over = &is_over};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 100; i++)
        publish(r, rules_of(limits[(i + 1) % 2]));
    atomic_store_explicit(&is_over, true, memory_order_relaxed);
    uint64_t asked = 0, admitted = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(workers[i].is_wrong);
        asked += workers[i].asked;
        admitted += workers[i].admitted;
    }
    assert_true(admitted <= 6000 && admitted <= asked);
    assert_int_equal(weir_rules_generation(r->w), 101);
    assert_int_equal(stats_of(r, "t.k").total_hits, asked);
    assert_int_equal(stats_of(r, "t.k").within_limit, admitted);
    rig_close(r);
}

static void a_regex_that_gives_up_is_told_once_and_again_at_ten_times(void **state)
{
    (void)state;
    struct rig *r = rig_open("domain: t\ndescriptors:\n"
                             "  - {key: k, value: '^(a+)+\\1$', match: regex, id: evil, "
                             "rate_limit: {unit: day, requests_per_unit: 1000}}\n",
                             NULL);
    int timeout_ms;
    assert_int_equal(weir_watch_step(r->w, &timeout_ms), 0);
    assert_null(strstr(r->log, "given up"));
    for (int i = 1; i <= 30; i++) {
        ask(r, "t", "k=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab");
        assert_true(weir_str_eq(r->statuses[0].rule->id, WEIR_STR("evil")));
        r->log[0] = '\0';
        assert_int_equal(weir_watch_step(r->w, &timeout_ms), 0);
        assert_int_equal(strstr(r->log, "'^(a+)+\\1$' has given up") != NULL, i == 1 || i == 10);
    }
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_written_file_takes_effect_and_keeps_the_counts),
        cmocka_unit_test(a_bad_file_changes_nothing_and_is_told_once),
        cmocka_unit_test(a_deleted_file_keeps_the_old_rules),
        cmocka_unit_test(a_changed_limit_meets_what_is_used),
        cmocka_unit_test(rules_with_one_number_remember_the_numbers_they_had),
        cmocka_unit_test(a_value_that_gets_or_loses_a_number_keeps_its_tokens),
        cmocka_unit_test(another_window_or_algorithm_starts_afresh),
        cmocka_unit_test(a_ticket_outlives_the_rules_it_came_from),
        cmocka_unit_test(a_place_taken_at_another_rate_is_forfeited_once_the_queue_has_moved),
        cmocka_unit_test(old_rules_go_when_no_session_holds_them),
        cmocka_unit_test(a_status_borrows_its_rule_until_the_next_call),
        cmocka_unit_test(a_regex_that_gives_up_is_told_once_and_again_at_ten_times),
        cmocka_unit_test(a_hundred_reloads_under_traffic_lose_no_decision_and_admit_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
