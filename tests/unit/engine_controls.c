/* engine_controls.c - what an operator sets: shares of enforcement, keys with their own limits.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine_rig.h"

static const char RULES[] =
    "domain: t\n"
    "descriptors:\n"
    "  - {key: fixed, rate_limit: {unit: hour, requests_per_unit: 3}}\n"
    "  - {key: slide, rate_limit: {unit: hour, requests_per_unit: 3, algorithm: "
    "sliding_window_counter}}\n"
    "  - {key: log, rate_limit: {unit: hour, requests_per_unit: 3, algorithm: "
    "sliding_window_log}}\n"
    "  - {key: token, rate_limit: {unit: hour, requests_per_unit: 10, algorithm: token_bucket}}\n"
    "  - {key: tick, rate_limit: {unit: hour, requests_per_unit: 10, burst: 20, refill: interval, "
    "algorithm: token_bucket}}\n"
    "  - {key: leaky, rate_limit: {unit: hour, requests_per_unit: 3, burst: 3, algorithm: "
    "leaky_bucket}}\n"
    "  - {key: busy, rate_limit: {unit: hour, requests_per_unit: 2, algorithm: concurrency}}\n"
    "  - {key: free, rate_limit: {unlimited: true}}\n"
    "  - key: both\n"
    "    rate_limit:\n"
    "      - {name: a, unit: hour, requests_per_unit: 10}\n"
    "      - {name: b, unit: day, requests_per_unit: 25}\n"
    "  - {key: named, id: mine, rate_limit: {unit: hour, requests_per_unit: 1}}\n";

static const char ATOMIC[] = "domain: t\n"
                             "atomic: true\n"
                             "descriptors:\n"
                             "  - {key: all, rate_limit: {unit: hour, requests_per_unit: 5}}\n"
                             "  - {key: user, rate_limit: {unit: hour, requests_per_unit: 2}}\n";

static int enforce(struct rig *r, const char *id, uint32_t percent)
{
    return weir_enforcement_set(r->w, weir_str_of(id), percent);
}

static uint32_t enforced(struct rig *r, const char *id)
{
    uint32_t percent = UINT32_MAX;
    assert_int_equal(weir_enforcement_get(r->w, weir_str_of(id), &percent), 0);
    return percent;
}

static int give_until(struct rig *r, const char *text, uint32_t requests, bool is_unlimited,
                      uint64_t until_ns)
{
    struct weir_key_limit limit = {requests, is_unlimited, until_ns};
    rig_parse(r, "t", text);
    return weir_key_limit_set(r->s, &r->request, &limit, r->now_ns);
}

static void give(struct rig *r, const char *text, uint32_t requests)
{
    assert_int_equal(give_until(r, text, requests, false, r->now_ns + 60 * RIG_SECOND), 0);
}

static int drop(struct rig *r, const char *text)
{
    rig_parse(r, "t", text);
    return weir_key_limit_drop(r->s, &r->request, r->now_ns);
}

/* ---- enforcement ---- */

static void a_killed_rule_refuses_nobody_and_counts_on(void **state)
{
    struct rig *r = rig_open(RULES, NULL);
    (void)state;
    assert_int_equal(enforced(r, "t.fixed"), 100);
    assert_int_equal(enforce(r, "t.fixed", 0), 0);
    assert_int_equal(ask_times(r, "t", "fixed=a", 10), 10);
    assert_true(r->statuses[0].is_shadow);
    assert_status(r, 0, WEIR_CODE_OK, 3, 0);
    struct weir_rule_stats stats = stats_of(r, "t.fixed");
    assert_int_equal(stats.over_limit, 7);
    assert_int_equal(stats.shadow_mode, 7);
    assert_int_equal(stats.enforced_percent, 0);
    assert_int_equal(ask_times(r, "t", "slide=a", 10), 3); /* others are as they were */
    assert_int_equal(enforce(r, "t.fixed", 100), 0);
    assert_int_equal(ask(r, "t", "fixed=a"), WEIR_CODE_OVER_LIMIT);
    assert_false(r->statuses[0].is_shadow);
    rig_close(r);
}

static void a_share_is_the_same_clients_every_time(void **state)
{
    enum { CLIENTS = 2000 };
    struct rig *r = rig_open(RULES, NULL);
    static bool is_refused[CLIENTS], was_refused[CLIENTS];
    char text[32];
    (void)state;
    for (uint32_t percent = 0; percent <= 100; percent += 10) {
        int refused = 0;
        assert_int_equal(enforce(r, "mine", percent), 0);
        for (int i = 0; i < CLIENTS; i++) {
            snprintf(text, sizeof(text), "named=%d", i);
            (void)ask(r, "t", text);
            is_refused[i] = ask(r, "t", text) == WEIR_CODE_OVER_LIMIT;
            assert_int_equal(ask(r, "t", text) == WEIR_CODE_OVER_LIMIT, is_refused[i]);
            assert_true(is_refused[i] || !was_refused[i]); /* more of them, never others */
            was_refused[i] = is_refused[i];
            refused += is_refused[i];
        }
        assert_in_range(refused, percent * CLIENTS / 100 - percent * (100 - percent) / 15,
                        percent * CLIENTS / 100 + percent * (100 - percent) / 15);
    }
    rig_close(r);
}

static void several_limits_and_atomic_domains_are_spared_too(void **state)
{
    struct rig *r = rig_open(RULES, NULL);
    (void)state;
    assert_int_equal(enforce(r, "t.both", 0), 0);
    assert_int_equal(ask_times(r, "t", "both=a", 30), 30);
    rig_close(r);
    r = rig_open(ATOMIC, NULL);
    assert_int_equal(ask_times(r, "t", "all=x; user=a", 9), 2);
    assert_int_equal(enforce(r, "t.user", 0), 0);
    assert_int_equal(ask_times(r, "t", "all=x; user=a", 9), 3); /* what was left of the other */
    rig_close(r);
}

static void a_share_outlives_reloads_and_restarts(void **state)
{
    char table[64];
    (void)state;
    snprintf(table, sizeof(table), "/dev/shm/weir-controls-%d", (int)getpid());
    struct weir_options options = {.table_path = table};
    struct rig *r = rig_open(RULES, &options);
    assert_int_equal(enforce(r, "t.fixed", 25), 0);
    give(r, "slide=a", 1);
    rig_close(r);
    r = rig_open(RULES, &options);
    assert_int_equal(enforced(r, "t.fixed"), 25);
    assert_int_equal(ask_times(r, "t", "slide=a", 5), 1);
    rig_close(r);
    unlink(table);
}

static void what_is_no_rule_or_no_share_is_refused(void **state)
{
    struct rig *r = rig_open(RULES, NULL);
    uint32_t percent;
    (void)state;
    assert_int_equal(enforce(r, "t.nobody", 0), WEIR_ERR_NOT_FOUND);
    assert_int_equal(enforce(r, "t.fixed", 101), WEIR_ERR_INVALID);
    assert_int_equal(enforced(r, "t.fixed"), 100);
    assert_int_equal(weir_enforcement_get(r->w, WEIR_STR("x"), &percent), WEIR_ERR_NOT_FOUND);
    assert_int_equal(enforce(r, "other", 50), 0);
    assert_int_equal(enforced(r, "other"), 50);
    rig_close(r);
}

/* ---- keys with limits of their own ---- */

static void a_key_gets_another_number_and_keeps_what_it_used(void **state)
{
    static const char *const keys[] = {"fixed=a", "slide=a", "log=a"};
    struct rig *r = rig_open(RULES, NULL);
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ask_times(r, "t", keys[i], 2), 2);
        give(r, keys[i], 5);
        assert_int_equal(ask_times(r, "t", keys[i], 3), 3);
        assert_status(r, 0, WEIR_CODE_OK, 5, 0);
        give(r, keys[i], 7); /* instead */
        assert_int_equal(ask_times(r, "t", keys[i], 10), 2);
        assert_status(r, 0, WEIR_CODE_OVER_LIMIT, 7, 0);
        assert_int_equal(drop(r, keys[i]), 0);
        assert_int_equal(ask(r, "t", keys[i]), WEIR_CODE_OVER_LIMIT);
        assert_int_equal(r->statuses[0].limit, 3);
        assert_int_equal(drop(r, keys[i]), WEIR_ERR_NOT_FOUND);
    }
    assert_int_equal(ask_times(r, "t", "fixed=b", 10), 3); /* nobody else has it */
    rig_close(r);
}

static void tokens_in_use_stay_in_use(void **state)
{
    struct rig *r = rig_open(RULES, NULL);
    (void)state;
    assert_int_equal(ask_times(r, "t", "token=a", 4), 4); /* of 10 */
    give(r, "token=a", 100);
    ask(r, "t", "token=a +0");
    assert_status(r, 0, WEIR_CODE_OK, 100, 96);
    assert_int_equal(ask_times(r, "t", "token=a", 2), 2);
    give(r, "token=a", 20); /* another rate again */
    ask(r, "t", "token=a +0");
    assert_status(r, 0, WEIR_CODE_OK, 20, 14);
    r->now_ns += 61 * RIG_SECOND; /* it has ended; 20 an hour came back meanwhile */
    ask(r, "t", "token=a +0");
    assert_in_range(r->statuses[0].remaining, 4, 5);
    assert_int_equal(r->statuses[0].limit, 10);
    assert_int_equal(ask_times(r, "t", "token=a", 10), (int)r->statuses[0].remaining);
    rig_close(r);
}

static void every_other_algorithm_can_have_one(void **state)
{
    struct rig *r = rig_open(RULES, NULL);
    (void)state;
    assert_int_equal(ask_times(r, "t", "tick=a", 15), 15); /* of 20 */
    give(r, "tick=a", 1);
    assert_int_equal(ask_times(r, "t", "tick=a", 30), 5);
    assert_int_equal(ask_times(r, "t", "leaky=a", 2), 2);
    give(r, "leaky=a", 9);
    assert_int_equal(ask_times(r, "t", "leaky=a", 30), 8); /* 9 wait and one leaves, less 2 */
    assert_int_equal(ask_times(r, "t", "busy=a", 9), 2);
    give(r, "busy=a", 3);
    assert_int_equal(ask_times(r, "t", "busy=a", 9), 1);
    weir_release(r->s, &r->statuses[0].ticket, r->now_ns); /* empty: that one was refused */
    rig_close(r);
}

static void further_limits_follow_in_proportion(void **state)
{
    struct rig *r = rig_open(RULES, NULL);
    (void)state;
    give(r, "both=a", 5); /* of 10; so 13 of 25 */
    assert_int_equal(ask_times(r, "t", "both=a", 9), 5);
    r->now_ns += 3600 * RIG_SECOND; /* the day's limit: what was asked for an hour ago counts */
    give(r, "both=a", 5);
    assert_int_equal(ask_times(r, "t", "both=a", 9), 5);
    r->now_ns += 3600 * RIG_SECOND;
    give(r, "both=a", 5);
    assert_int_equal(ask_times(r, "t", "both=a", 9), 3);
    rig_close(r);
}

static void a_key_can_be_blocked_or_freed(void **state)
{
    struct rig *r = rig_open(RULES, NULL);
    (void)state;
    give(r, "fixed=a", 0);
    assert_int_equal(ask(r, "t", "fixed=a"), WEIR_CODE_OVER_LIMIT);
    assert_int_equal(r->statuses[0].retry_after_ns, 60 * RIG_SECOND); /* when it ends */
    assert_int_equal(give_until(r, "fixed=a", 0, true, r->now_ns + 60 * RIG_SECOND), 0);
    assert_int_equal(ask_times(r, "t", "fixed=a", 100), 100);
    assert_true(r->statuses[0].is_unlimited);
    r->now_ns += 60 * RIG_SECOND; /* it ends on the dot */
    assert_int_equal(ask_times(r, "t", "fixed=a", 9), 3);
    rig_close(r);
}

static void what_cannot_be_is_refused(void **state)
{
    struct rig *r = rig_open(RULES, NULL);
    uint64_t soon = r->now_ns + RIG_SECOND;
    (void)state;
    assert_int_equal(give_until(r, "nobody=a", 1, false, soon), WEIR_ERR_NOT_FOUND);
    assert_int_equal(give_until(r, "free=a", 1, false, soon), WEIR_ERR_NOT_FOUND);
    assert_int_equal(give_until(r, "fixed=a; slide=a", 1, false, soon), WEIR_ERR_INVALID);
    assert_int_equal(give_until(r, "fixed=a", 1, false, r->now_ns), WEIR_ERR_INVALID);
    assert_int_equal(give_until(r, "fixed=a", 1, false, UINT64_MAX), WEIR_ERR_INVALID);
    assert_int_equal(give_until(r, "log=a", WEIR_LOG_LIMIT_MAX, false, soon), 0);
    assert_int_equal(give_until(r, "log=a", WEIR_LOG_LIMIT_MAX + 1, false, soon),
                     WEIR_ERR_TOO_LARGE);
    assert_int_equal(give_until(r, "busy=a", WEIR_CONCURRENCY_LIMIT_MAX + 1, false, soon),
                     WEIR_ERR_TOO_LARGE);
    rig_close(r);
}

struct seen {
    uint32_t count;
    struct weir_key_limit last;
    char words[512];
    bool is_cut;
};

static void see(void *ctx, const struct weir_key_limit_view *view)
{
    struct seen *seen = ctx;
    const struct weir_key_words *key = view->key;
    seen->count++;
    seen->last = view->limit;
    seen->is_cut = key->is_cut;
    int len = snprintf(seen->words, sizeof(seen->words), "%.*s", WEIR_STR_ARG(key->domain));
    for (uint32_t i = 0; i < key->entry_count; i++)
        len += snprintf(seen->words + len, sizeof(seen->words) - (size_t)len, " %.*s=%.*s",
                        WEIR_STR_ARG(key->entries[i].key), WEIR_STR_ARG(key->entries[i].value));
}

static struct seen list(struct rig *r)
{
    struct seen seen = {0};
    weir_key_limit_each(r->w, r->now_ns, see, &seen);
    return seen;
}

static void all_that_are_in_force_are_listed_in_words(void **state)
{
    struct rig *r = rig_open(RULES, NULL);
    char text[512] = "fixed=";
    (void)state;
    assert_int_equal(list(r).count, 0);
    give(r, "fixed=somebody", 5);
    struct seen seen = list(r);
    assert_int_equal(seen.count, 1);
    assert_string_equal(seen.words, "t fixed=somebody");
    assert_int_equal(seen.last.requests_per_unit, 5);
    assert_false(seen.is_cut);
    give(r, "both=x", 5);
    assert_int_equal(list(r).count, 3); /* two counters */
    r->now_ns += 61 * RIG_SECOND;
    assert_int_equal(list(r).count, 0);
    memset(text + 6, 'v', 400); /* longer than there is room for */
    give(r, text, 1);
    seen = list(r);
    assert_true(seen.is_cut);
    assert_true(strncmp(seen.words, "t fixed=vvvv", 12) == 0);
    rig_close(r);
}

static void there_is_room_for_so_many_and_then_it_is_full(void **state)
{
    struct weir_options options = {.table_bytes = UINT64_C(128) << 20};
    struct rig *r = rig_open(RULES, &options);
    char text[32];
    int given = 0, err = 0;
    (void)state;
    while (err == 0 && given <= WEIR_KEY_OVERRIDES_MAX) {
        snprintf(text, sizeof(text), "fixed=%d", given);
        err = give_until(r, text, 1, false, r->now_ns + RIG_SECOND);
        given += err == 0;
    }
    assert_int_equal(err, WEIR_ERR_FULL);
    assert_in_range(given, WEIR_KEY_OVERRIDES_MAX * 6 / 10, WEIR_KEY_OVERRIDES_MAX);
    print_message("# %d of %d found a place\n", given, WEIR_KEY_OVERRIDES_MAX);
    for (int i = 0; i < given; i++) {
        snprintf(text, sizeof(text), "fixed=%d", i);
        assert_int_equal(ask_times(r, "t", text, 5), 1);
    }
    r->now_ns += RIG_SECOND; /* their places are free again */
    give(r, "fixed=later", 9);
    assert_int_equal(ask_times(r, "t", "fixed=later", 99), 9);
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rule_refuses_nobody_and_counts_on),
        cmocka_unit_test(a_share_is_the_same_clients_every_time),
        cmocka_unit_test(several_limits_and_atomic_domains_are_spared_too),
        cmocka_unit_test(a_share_outlives_reloads_and_restarts),
        cmocka_unit_test(what_is_no_rule_or_no_share_is_refused),
        cmocka_unit_test(a_key_gets_another_number_and_keeps_what_it_used),
        cmocka_unit_test(tokens_in_use_stay_in_use),
        cmocka_unit_test(every_other_algorithm_can_have_one),
        cmocka_unit_test(further_limits_follow_in_proportion),
        cmocka_unit_test(a_key_can_be_blocked_or_freed),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(all_that_are_in_force_are_listed_in_words),
        cmocka_unit_test(there_is_room_for_so_many_and_then_it_is_full),
    };
    return cmocka_run_group_tests_name("engine_controls", tests, NULL, NULL);
}
