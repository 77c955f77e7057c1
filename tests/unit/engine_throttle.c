/* SPDX-License-Identifier: Apache-2.0 */
#include "engine_rig.h"

static const char rules[] = "domain: t\ndescriptors:\n  - key: k\n";

static struct weir_throttled throttle(struct rig *r, const char *key, uint32_t burst,
                                      uint32_t count, uint32_t period_s, int64_t quantity)
{
    struct weir_throttled out;
    const struct weir_throttle t = {.key = weir_str_of(key),
                                    .burst = burst,
                                    .count = count,
                                    .period_s = period_s,
                                    .quantity = quantity};
    assert_int_equal(weir_throttle(r->s, &t, r->now_ns, &out), 0);
    return out;
}

static int refusal(struct rig *r, size_t key_len, uint32_t burst, uint32_t count, uint32_t period_s)
{
    char key[WEIR_VALUE_LEN_MAX + 1];
    struct weir_throttled out;
    memset(key, 'k', sizeof(key));
    const struct weir_throttle t = {.key = {.ptr = key, .len = key_len},
                                    .burst = burst,
                                    .count = count,
                                    .period_s = period_s,
                                    .quantity = 1};
    return weir_throttle(r->s, &t, r->now_ns, &out);
}

static void a_burst_passes_and_then_one_a_step(void **state)
{
    struct rig *r = rig_open(rules, NULL);
    (void)state;
    for (uint64_t i = 0; i < 16; i++) {
        struct weir_throttled out = throttle(r, "user", 16, 30, 60, 1);
        assert_true(out.allowed);
        assert_int_equal(out.limit, 16);
        assert_int_equal(out.remaining, 15 - i);
        assert_int_equal(out.retry_after_ns, 0);
        assert_int_equal(out.reset_after_ns, (i + 1) * 2 * RIG_SECOND);
    }
    struct weir_throttled out = throttle(r, "user", 16, 30, 60, 1);
    assert_false(out.allowed);
    assert_int_equal(out.remaining, 0);
    assert_int_equal(out.retry_after_ns, 2 * RIG_SECOND);
    assert_int_equal(out.reset_after_ns, 32 * RIG_SECOND);
    r->now_ns += 2 * RIG_SECOND - 1;
    assert_false(throttle(r, "user", 16, 30, 60, 1).allowed);
    r->now_ns += 1;
    assert_true(throttle(r, "user", 16, 30, 60, 1).allowed);
    assert_false(throttle(r, "user", 16, 30, 60, 1).allowed);
    rig_close(r);
}

static void a_look_takes_nothing(void **state)
{
    struct rig *r = rig_open(rules, NULL);
    (void)state;
    assert_int_equal(throttle(r, "k", 5, 1, 1, 0).remaining, 5);
    assert_int_equal(throttle(r, "k", 5, 1, 1, 3).remaining, 2);
    for (int i = 0; i < 10; i++) {
        assert_true(throttle(r, "k", 5, 1, 1, 0).allowed);
        assert_int_equal(throttle(r, "k", 5, 1, 1, 0).remaining, 2);
    }
    rig_close(r);
}

static void giving_back_floors_at_unused(void **state)
{
    struct rig *r = rig_open(rules, NULL);
    (void)state;
    throttle(r, "k", 5, 1, 1, 4);
    assert_int_equal(throttle(r, "k", 5, 1, 1, -3).remaining, 4);
    assert_int_equal(throttle(r, "k", 5, 1, 1, -3).remaining, 5);
    throttle(r, "k", 5, 1, 1, 4);
    assert_int_equal(throttle(r, "k", 5, 1, 1, INT64_MIN).remaining, 5);
    assert_int_equal(throttle(r, "never seen", 5, 1, 1, -3).remaining, 5);
    rig_close(r);
}

static void more_than_the_burst_never_passes(void **state)
{
    struct rig *r = rig_open(rules, NULL);
    (void)state;
    struct weir_throttled out = throttle(r, "k", 5, 1, 1, 6);
    assert_false(out.allowed);
    assert_true(out.retry_after_ns == WEIR_NEVER);
    assert_int_equal(out.remaining, 5);
    assert_false(throttle(r, "k", 5, 1, 1, INT64_MAX).allowed);
    assert_true(throttle(r, "k", 5, 1, 1, 5).allowed);
    rig_close(r);
}

static void two_bursts_in_turn_hand_nothing_back(void **state)
{
    struct rig *r = rig_open(rules, NULL);
    (void)state;
    int passed = 0;
    for (int i = 0; i < 1000; i++) {
        passed += throttle(r, "k", 100, 1, 1, 1).allowed;
        passed += throttle(r, "k", 10, 1, 1, 1).allowed;
    }
    assert_int_equal(passed, 100);
    struct weir_throttled look = throttle(r, "k", 10, 1, 1, 0);
    assert_false(look.allowed); /* 100 s are in use, of 10 */
    assert_int_equal(look.retry_after_ns, 90 * RIG_SECOND);
    assert_int_equal(look.remaining, 0);
    rig_close(r);
}

static void an_instant_means_the_same_at_every_rate(void **state)
{
    static const uint32_t periods[] = {1, 7, 60, 86400, 604800, 31536000};
    static const uint32_t counts[] = {1, 3, 7, 1000, 999983};
    struct rig *r = rig_open(rules, NULL);
    (void)state;
    throttle(r, "k", 3, 7, 31, 1);
    uint64_t reset_ns = throttle(r, "k", 3, 7, 31, 0).reset_after_ns;
    for (size_t p = 0; p < sizeof(periods) / sizeof(periods[0]); p++) {
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            struct weir_throttled out = throttle(r, "k", 50, counts[c], periods[p], 0);
            /* Steps of days are in whole nanoseconds, to which a fraction is one. */
            assert_in_range(out.reset_after_ns, reset_ns, reset_ns + 1);
        }
    }
    rig_close(r);
}

static void more_sets_of_numbers_than_a_session_remembers(void **state)
{
    struct rig *r = rig_open(rules, NULL);
    char key[16];
    (void)state;
    for (int round = 0; round < 3; round++) {
        for (uint32_t period = 1; period <= 1000; period++) {
            snprintf(key, sizeof(key), "k%u", period);
            struct weir_throttled out = throttle(r, key, period + 2, 1, period, 1);
            assert_true(out.allowed);
            assert_int_equal(out.limit, period + 2);
            assert_int_equal(out.reset_after_ns, (uint64_t)(round + 1) * period * RIG_SECOND);
        }
    }
    rig_close(r);
}

static void no_rules_counter_bears_a_throttles_name(void **state)
{
    /* What a rule's counter for {k: v} is hashed from: head, key, value.  As a throttle's key. */
    static const char bytes[] = "\1\0\1\0\1\0\0\0kv";
    struct rig *r = rig_open("domain: t\ndescriptors:\n  - key: k\n    rate_limit: {unit: hour, "
                             "requests_per_unit: 5, algorithm: token_bucket}\n",
                             NULL);
    const struct weir_throttle t = {.key = {.ptr = bytes, .len = sizeof(bytes) - 1},
                                    .burst = 5,
                                    .count = 5,
                                    .period_s = 3600,
                                    .quantity = 5};
    struct weir_throttled out;
    (void)state;
    assert_int_equal(weir_throttle(r->s, &t, r->now_ns, &out), 0);
    assert_int_equal(ask(r, "t", "k=v"), WEIR_CODE_OK);
    assert_status(r, 0, WEIR_CODE_OK, 5, 4);
    rig_close(r);
}

static void many_decide_as_one_by_one_would(void **state)
{
    struct rig *one = rig_open(rules, NULL), *many = rig_open(rules, NULL);
    char keys[100][8];
    struct weir_throttle throttles[100];
    struct weir_throttled outs[100], expected;
    int results[100];
    (void)state;
    for (uint32_t i = 0; i < 100; i++) {
        snprintf(keys[i], sizeof(keys[i]), "%u", i % 7);
        throttles[i] = (struct weir_throttle){.key = weir_str_of(keys[i]),
                                              .burst = 3 + i % 3,
                                              .count = i % 11, /* sometimes 0: an error */
                                              .period_s = 60,
                                              .quantity = (int64_t)(i % 5) - 1};
    }
    weir_throttle_many(many->s, throttles, 100, many->now_ns, outs, results);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(weir_throttle(one->s, &throttles[i], one->now_ns, &expected), results[i]);
        if (results[i] != 0)
            continue;
        assert_int_equal(expected.allowed, outs[i].allowed);
        assert_int_equal(expected.remaining, outs[i].remaining);
        assert_int_equal(expected.retry_after_ns, outs[i].retry_after_ns);
        assert_int_equal(expected.reset_after_ns, outs[i].reset_after_ns);
    }
    rig_close(one);
    rig_close(many);
}

static void a_reset_key_begins_anew(void **state)
{
    struct rig *r = rig_open(rules, NULL);
    (void)state;
    throttle(r, "k", 5, 1, 60, 5);
    throttle(r, "other", 5, 1, 60, 5);
    assert_false(weir_throttle_reset(r->s, WEIR_STR("never seen")));
    assert_true(weir_throttle_reset(r->s, WEIR_STR("k")));
    assert_false(weir_throttle_reset(r->s, WEIR_STR("k")));
    assert_int_equal(throttle(r, "k", 5, 1, 60, 1).remaining, 4);
    assert_int_equal(throttle(r, "other", 5, 1, 60, 0).remaining, 0);
    rig_close(r);
}

static void shadow_mode_refuses_nobody(void **state)
{
    struct rig *r = rig_open(rules, &(struct weir_options){.shadow_mode = true});
    (void)state;
    assert_int_equal(throttle(r, "k", 1, 1, 60, 1).remaining, 0);
    struct weir_throttled out = throttle(r, "k", 1, 1, 60, 1);
    assert_true(out.allowed);
    assert_int_equal(out.retry_after_ns, 0);
    rig_close(r);
}

static void bounds_are_kept(void **state)
{
    struct rig *r = rig_open(rules, NULL);
    (void)state;
    assert_int_equal(refusal(r, 1, 0, 1, 1), WEIR_ERR_INVALID);
    assert_int_equal(refusal(r, 1, 1, 0, 1), WEIR_ERR_INVALID);
    assert_int_equal(refusal(r, 1, 1, 1, 0), WEIR_ERR_INVALID);
    assert_int_equal(refusal(r, WEIR_VALUE_LEN_MAX, 1, 1, 1), 0);
    assert_int_equal(refusal(r, WEIR_VALUE_LEN_MAX + 1, 1, 1, 1), WEIR_ERR_TOO_LARGE);
    assert_int_equal(refusal(r, 1, UINT32_MAX, UINT32_MAX, 1), 0);
    assert_int_equal(refusal(r, 1, 1, 1, 3153600000u), 0);
    assert_int_equal(refusal(r, 1, 1, 1, 3153600001u), WEIR_ERR_TOO_LARGE);
    assert_int_equal(refusal(r, 1, 2, 1, 3153600000u), WEIR_ERR_TOO_LARGE);
    assert_int_equal(refusal(r, 1, UINT32_MAX, 1, 3600), WEIR_ERR_TOO_LARGE);
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_passes_and_then_one_a_step),
        cmocka_unit_test(a_look_takes_nothing),
        cmocka_unit_test(giving_back_floors_at_unused),
        cmocka_unit_test(more_than_the_burst_never_passes),
        cmocka_unit_test(two_bursts_in_turn_hand_nothing_back),
        cmocka_unit_test(an_instant_means_the_same_at_every_rate),
        cmocka_unit_test(more_sets_of_numbers_than_a_session_remembers),
        cmocka_unit_test(no_rules_counter_bears_a_throttles_name),
        cmocka_unit_test(many_decide_as_one_by_one_would),
        cmocka_unit_test(a_reset_key_begins_anew),
        cmocka_unit_test(shadow_mode_refuses_nobody),
        cmocka_unit_test(bounds_are_kept),
    };
    return cmocka_run_group_tests_name("throttle", tests, NULL, NULL);
}
