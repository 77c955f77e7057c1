/* What a caller of envoyproxy/ratelimit may rely on, asked of our engine.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine_rig.h"

static const char RULES[] = "domain: t\n"
                            "descriptors:\n"
                            "  - key: k1\n"
                            "    value: v1\n"
                            "    descriptors:\n"
                            "      - key: sub\n"
                            "        rate_limit: {unit: second, requests_per_unit: 5}\n"
                            "      - key: sub\n"
                            "        value: sv\n"
                            "        rate_limit: {unit: second, requests_per_unit: 10}\n"
                            "  - key: k2\n"
                            "    rate_limit: {unit: minute, requests_per_unit: 20}\n"
                            "  - key: k2\n"
                            "    value: v2\n"
                            "    rate_limit: {unit: minute, requests_per_unit: 30}\n"
                            "  - key: k2\n"
                            "    value: v3\n"
                            "  - key: k3\n"
                            "    rate_limit: {unit: hour, requests_per_unit: 1}\n"
                            "  - key: k4\n"
                            "    rate_limit: {unit: day, requests_per_unit: 1, name: n4}\n"
                            "  - key: k5\n"
                            "    value: v5\n"
                            "    rate_limit: {unit: day, requests_per_unit: 15}\n"
                            "    descriptors:\n"
                            "      - key: s5\n"
                            "        value: sv5\n"
                            "        rate_limit: {unit: day, requests_per_unit: 25}\n"
                            "  - key: k6\n"
                            "    rate_limit: {unlimited: true}\n"
                            "  - key: eight\n"
                            "    rate_limit: {unit: hour, requests_per_unit: 8}\n"
                            "  - key: fifteen\n"
                            "    rate_limit: {unit: hour, requests_per_unit: 15}\n"
                            "  - key: ten\n"
                            "    rate_limit: {unit: hour, requests_per_unit: 10}\n"
                            "  - key: none\n"
                            "    rate_limit: {unit: minute, requests_per_unit: 0}\n"
                            "  - key: shadow\n"
                            "    shadow_mode: true\n"
                            "    rate_limit: {unit: minute, requests_per_unit: 3}\n"
                            "  - key: files\n"
                            "    value: files/*\n"
                            "    share_threshold: true\n"
                            "    rate_limit: {unit: hour, requests_per_unit: 10}\n"
                            "  - key: wild\n"
                            "    value: files/*\n"
                            "    rate_limit: {unit: hour, requests_per_unit: 10}\n";

static int open_rules(void **state)
{
    *state = rig_open(RULES, NULL);
    return 0;
}

static int close_rules(void **state)
{
    rig_close(*state);
    return 0;
}

static void where_no_rule_applies_the_answer_is_a_bare_ok(void **state)
{
    struct rig *r = *state;
    static const char *const asked[][2] = {
        {"nope", "x=y"},       /* no such domain */
        {"t", "k1=something"}, /* no such value */
        {"t", "k1=v1"},        /* a node without a limit */
        {"t", "k2=v2,sub=x"},  /* deeper than the rules */
        {"t", "k2=v3"},        /* a value that hides the bare key */
        {"nope", "k2=r"},
    };
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        assert_int_equal(ask(r, asked[i][0], asked[i][1]), WEIR_CODE_OK);
        assert_bare(r, 0);
    }
}

static void a_descriptor_without_entries_meets_no_limit(void **state)
{
    struct rig *r = *state;
    rig_parse(r, "t", "k2=r");
    r->descriptors[0].entry_count = 0;
    assert_int_equal(weir_check(r->s, &r->request, r->now_ns, &r->decision), 0);
    assert_int_equal(r->decision.overall, WEIR_CODE_OK);
    assert_bare(r, 0);
}

static void each_depth_has_its_own_limit_and_counter(void **state)
{
    struct rig *r = *state;
    assert_int_equal(ask(r, "t", "k5=v5"), WEIR_CODE_OK);
    assert_status(r, 0, WEIR_CODE_OK, 15, 14);
    assert_int_equal(r->statuses[0].unit, WEIR_UNIT_DAY);
    assert_int_equal(ask(r, "t", "k5=v5,s5=sv5"), WEIR_CODE_OK);
    assert_status(r, 0, WEIR_CODE_OK, 25, 24);
    ask(r, "t", "k5=v5");
    assert_status(r, 0, WEIR_CODE_OK, 15, 13);
}

static void an_exact_value_goes_before_the_bare_key(void **state)
{
    struct rig *r = *state;
    ask(r, "t", "k1=v1,sub=any; k1=v1,sub=sv; k2=r1; k2=v2");
    assert_status(r, 0, WEIR_CODE_OK, 5, 4);
    assert_int_equal(r->statuses[0].unit, WEIR_UNIT_SECOND);
    assert_status(r, 1, WEIR_CODE_OK, 10, 9);
    assert_status(r, 2, WEIR_CODE_OK, 20, 19);
    assert_status(r, 3, WEIR_CODE_OK, 30, 29);
}

static void a_limit_tells_its_name(void **state)
{
    struct rig *r = *state;
    assert_int_equal(ask(r, "t", "k4=x"), WEIR_CODE_OK);
    assert_true(weir_str_eq(r->statuses[0].rule->name, WEIR_STR("n4")));
    assert_status(r, 0, WEIR_CODE_OK, 1, 0);
    assert_int_equal(ask(r, "t", "k4=x"), WEIR_CODE_OVER_LIMIT);
    assert_status(r, 0, WEIR_CODE_OVER_LIMIT, 1, 0);
}

static void unlimited_is_ok_with_all_that_32_bits_hold(void **state)
{
    struct rig *r = *state;
    assert_int_equal(ask(r, "t", "k2=r; zz=1; k6=1"), WEIR_CODE_OK);
    assert_status(r, 0, WEIR_CODE_OK, 20, 19);
    assert_bare(r, 1);
    assert_int_equal(r->statuses[2].code, WEIR_CODE_OK);
    assert_true(r->statuses[2].is_unlimited);
    assert_false(r->statuses[2].is_limited);
    assert_int_equal(r->statuses[2].remaining, UINT32_MAX);
    assert_int_equal(stats_of(r, "t.k6").total_hits, 0);
}

static void twenty_of_twenty_five_pass_and_the_statistics_agree(void **state)
{
    struct rig *r = *state;
    for (uint64_t i = 0; i < 25; i++) {
        enum weir_code code = i < 20 ? WEIR_CODE_OK : WEIR_CODE_OVER_LIMIT;
        assert_int_equal(ask(r, "t", "k2=rand"), code);
        assert_status(r, 0, code, 20, i < 20 ? 19 - i : 0);
        struct weir_rule_stats s = stats_of(r, "t.k2");
        assert_int_equal(s.total_hits, i + 1);
        assert_int_equal(s.over_limit, i < 20 ? 0 : i - 19);
        assert_int_equal(s.within_limit, i < 20 ? i + 1 : 20);
        assert_int_equal(s.near_limit, i < 16 ? 0 : i < 20 ? i - 15 : 4);
    }
}

static void one_descriptor_over_makes_the_whole_over_in_any_order(void **state)
{
    struct rig *r = *state;
    assert_int_equal(ask(r, "t", "k3=x"), WEIR_CODE_OK);
    assert_int_equal(ask(r, "t", "k3=x; zz=1"), WEIR_CODE_OVER_LIMIT);
    assert_int_equal(r->statuses[0].code, WEIR_CODE_OVER_LIMIT);
    assert_bare(r, 1);
    assert_int_equal(ask(r, "t", "zz=1; k3=x"), WEIR_CODE_OVER_LIMIT);
    assert_bare(r, 0);
    assert_int_equal(ask(r, "t", "k2=c; k3=x"), WEIR_CODE_OVER_LIMIT);
    assert_status(r, 0, WEIR_CODE_OK, 20, 19); /* counted all the same */
    ask(r, "t", "k2=c");
    assert_status(r, 0, WEIR_CODE_OK, 20, 18);
}

static void the_reset_comes_nearer(void **state)
{
    struct rig *r = *state;
    ask(r, "t", "k5=v5");
    assert_int_equal(r->statuses[0].reset_after_ns, 86400 * RIG_SECOND);
    r->now_ns += 2 * RIG_SECOND;
    ask(r, "t", "k5=v5");
    assert_int_equal(r->statuses[0].reset_after_ns, 86398 * RIG_SECOND);
    r->now_ns = RIG_START_NS + 86400 * RIG_SECOND - 1;
    ask(r, "t", "k5=v5");
    assert_int_equal(r->statuses[0].reset_after_ns, 1);
    r->now_ns++;
    ask(r, "t", "k5=v5");
    assert_status(r, 0, WEIR_CODE_OK, 15, 14);
}

static void hits_count_as_many_as_they_are(void **state)
{
    struct rig *r = *state;
    ask_times(r, "t", "k2=h", 2);
    r->hits_addend = 3;
    assert_int_equal(ask(r, "t", "k2=h"), WEIR_CODE_OK);
    assert_status(r, 0, WEIR_CODE_OK, 20, 15);
    assert_int_equal(stats_of(r, "t.k2").within_limit, 5);
    assert_int_equal(stats_of(r, "t.k2").near_limit, 0);
    assert_int_equal(ask(r, "t", "eight=h +5"), WEIR_CODE_OK);
    assert_int_equal(ask(r, "t", "eight=h +2"), WEIR_CODE_OK);
    assert_status(r, 0, WEIR_CODE_OK, 8, 1);
    assert_int_equal(stats_of(r, "t.eight").near_limit, 1);
}

static void near_limit_is_counted_from_four_fifths(void **state)
{
    struct rig *r = *state;
    ask(r, "t", "fifteen=n +10");
    ask(r, "t", "fifteen=n");
    assert_int_equal(stats_of(r, "t.fifteen").near_limit, 0);
    ask_times(r, "t", "fifteen=n", 2);
    assert_int_equal(stats_of(r, "t.fifteen").near_limit, 1);
    ask_times(r, "t", "fifteen=n", 2);
    assert_int_equal(stats_of(r, "t.fifteen").near_limit, 3);
    assert_int_equal(ask(r, "t", "fifteen=n"), WEIR_CODE_OVER_LIMIT);
    assert_int_equal(stats_of(r, "t.fifteen").over_limit, 1);
    assert_int_equal(stats_of(r, "t.fifteen").near_limit, 3);
}

static void a_look_at_what_is_over_says_so_and_counts_nothing(void **state)
{
    struct rig *r = *state;
    ask(r, "t", "ten=x +10");
    assert_int_equal(ask(r, "t", "ten=x +0"), WEIR_CODE_OK); /* at exactly the limit */
    assert_status(r, 0, WEIR_CODE_OK, 10, 0);
    ask(r, "t", "ten=x");
    struct weir_rule_stats before = stats_of(r, "t.ten");
    assert_int_equal(ask(r, "t", "ten=x +0; k2=beside"), WEIR_CODE_OVER_LIMIT);
    assert_status(r, 0, WEIR_CODE_OVER_LIMIT, 10, 0);
    assert_status(r, 1, WEIR_CODE_OK, 20, 19);
    struct weir_rule_stats after = stats_of(r, "t.ten");
    assert_int_equal(after.total_hits, before.total_hits);
    assert_int_equal(after.over_limit, before.over_limit);
    assert_int_equal(after.near_limit, before.near_limit);
    assert_int_equal(after.within_limit, before.within_limit);
    assert_int_equal(stats_of(r, "t.k2").total_hits, 1);
}

static void a_limit_of_nothing_refuses_the_first(void **state)
{
    struct rig *r = *state;
    assert_int_equal(ask(r, "t", "none=x"), WEIR_CODE_OVER_LIMIT);
    assert_status(r, 0, WEIR_CODE_OVER_LIMIT, 0, 0);
    assert_int_equal(r->statuses[0].unit, WEIR_UNIT_MINUTE);
    assert_int_equal(r->statuses[0].retry_after_ns, WEIR_NEVER);
}

static void a_shared_threshold_is_one_counter_for_all_values(void **state)
{
    struct rig *r = *state;
    assert_int_equal(ask_times(r, "t", "files=files/a", 10), 10);
    assert_int_equal(ask(r, "t", "files=files/b"), WEIR_CODE_OVER_LIMIT);
    assert_status(r, 0, WEIR_CODE_OVER_LIMIT, 10, 0);
    for (char c = 'a'; c < 'k'; c++) {
        char text[] = "wild=files/?";
        text[strlen(text) - 1] = c;
        assert_int_equal(ask(r, "t", text), WEIR_CODE_OK);
        assert_status(r, 0, WEIR_CODE_OK, 10, 9);
    }
}

static void shadow_mode_counts_and_lets_pass(void **state)
{
    struct rig *r = *state;
    for (uint64_t i = 0; i < 5; i++) {
        assert_int_equal(ask(r, "t", "shadow=x"), WEIR_CODE_OK);
        assert_status(r, 0, WEIR_CODE_OK, 3, i < 3 ? 2 - i : 0);
        assert_int_equal(r->statuses[0].is_shadow, i >= 3);
    }
    assert_int_equal(stats_of(r, "t.shadow").shadow_mode, 2);
    assert_int_equal(stats_of(r, "t.shadow").over_limit, 2);
    ask(r, "t", "k3=m");
    assert_int_equal(ask(r, "t", "shadow=x; k3=m"), WEIR_CODE_OVER_LIMIT);
    assert_int_equal(r->statuses[0].code, WEIR_CODE_OK);
    assert_int_equal(r->statuses[1].code, WEIR_CODE_OVER_LIMIT);
}

static void global_shadow_mode_answers_ok_and_shows_what_was_decided(void **state)
{
    (void)state;
    struct weir_options o = {.shadow_mode = true};
    struct rig *r = rig_open(RULES, &o);
    ask(r, "t", "k3=x");
    assert_int_equal(ask(r, "t", "k3=x"), WEIR_CODE_OK);
    assert_status(r, 0, WEIR_CODE_OVER_LIMIT, 1, 0);
    rig_close(r);
}

static void negative_hits_give_back_down_to_nothing(void **state)
{
    struct rig *r = *state;
    ask(r, "t", "ten=g +5");
    assert_int_equal(ask(r, "t", "ten=g -3"), WEIR_CODE_OK);
    assert_status(r, 0, WEIR_CODE_OK, 10, 8);
    ask(r, "t", "ten=g -10");
    assert_status(r, 0, WEIR_CODE_OK, 10, 10);
    ask(r, "t", "ten=g +15");
    assert_int_equal(ask(r, "t", "ten=g -1"), WEIR_CODE_OK); /* over, and OK all the same */
    ask(r, "t", "ten=g +0");
    assert_status(r, 0, WEIR_CODE_OVER_LIMIT, 10, 0);
}

static void a_refund_undoes_a_request(void **state)
{
    struct rig *r = *state;
    ask(r, "t", "ten=u +4; k2=u; k6=1; zz=1");
    assert_int_equal(weir_refund(r->s, &r->request, r->now_ns, &r->decision), 0);
    assert_int_equal(r->decision.overall, WEIR_CODE_OK);
    assert_status(r, 0, WEIR_CODE_OK, 10, 10);
    assert_status(r, 1, WEIR_CODE_OK, 20, 20);
    assert_true(r->statuses[2].is_unlimited);
    assert_bare(r, 3);
}

static void a_batch_decides_as_one_after_the_other(void **state)
{
    struct rig *r = *state;
    enum { N = 200 };
    static struct weir_entry entries[N];
    static struct weir_descriptor descriptors[N];
    static struct weir_request requests[N];
    static struct weir_decision decisions[N];
    static struct weir_status statuses[N];
    static int results[N];
    for (int i = 0; i < N; i++) {
        entries[i] = (struct weir_entry){WEIR_STR("ten"), WEIR_STR("batch")};
        descriptors[i] = (struct weir_descriptor){.entries = &entries[i], .entry_count = 1};
        requests[i] = (struct weir_request){WEIR_STR("t"), &descriptors[i], 1, 1};
        decisions[i].statuses = &statuses[i];
    }
    requests[3].domain.len = 0;
    requests[5].descriptor_count = 0;
    weir_check_many(r->s, requests, N, r->now_ns, decisions, results);
    int passed = 0;
    for (int i = 0; i < N; i++) {
        int wrong = i == 3 ? WEIR_ERR_DOMAIN_EMPTY : i == 5 ? WEIR_ERR_DESCRIPTORS_EMPTY : 0;
        assert_int_equal(results[i], wrong);
        if (wrong)
            continue;
        passed += decisions[i].overall == WEIR_CODE_OK;
        assert_int_equal(statuses[i].remaining, passed < 10 ? 10 - passed : 0);
    }
    assert_int_equal(passed, 10);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, open_rules, close_rules)
    const struct CMUnitTest tests[] = {
        T(where_no_rule_applies_the_answer_is_a_bare_ok),
        T(a_descriptor_without_entries_meets_no_limit),
        T(each_depth_has_its_own_limit_and_counter),
        T(an_exact_value_goes_before_the_bare_key),
        T(a_limit_tells_its_name),
        T(unlimited_is_ok_with_all_that_32_bits_hold),
        T(twenty_of_twenty_five_pass_and_the_statistics_agree),
        T(one_descriptor_over_makes_the_whole_over_in_any_order),
        T(the_reset_comes_nearer),
        T(hits_count_as_many_as_they_are),
        T(near_limit_is_counted_from_four_fifths),
        T(a_look_at_what_is_over_says_so_and_counts_nothing),
        T(a_limit_of_nothing_refuses_the_first),
        T(a_shared_threshold_is_one_counter_for_all_values),
        T(shadow_mode_counts_and_lets_pass),
        cmocka_unit_test(global_shadow_mode_answers_ok_and_shows_what_was_decided),
        T(negative_hits_give_back_down_to_nothing),
        T(a_refund_undoes_a_request),
        T(a_batch_decides_as_one_after_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
