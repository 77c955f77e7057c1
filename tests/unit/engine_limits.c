/* What rules add to a plain limit: overrides in the request, replaces, quota mode, several limits,
 * atomic domains, prefix tiers.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine_rig.h"

static const char RULES[] =
    "domain: t\n"
    "descriptors:\n"
    "  - key: k1\n"
    "    value: v1\n"
    "    descriptors:\n"
    "      - key: sub\n"
    "        shadow_mode: true\n"
    "        rate_limit: {unit: second, requests_per_unit: 1}\n"
    "  - key: free\n"
    "    rate_limit: {unlimited: true}\n"
    "  - key: foo\n"
    "    descriptors:\n"
    "      - key: bar\n"
    "        value: banned\n"
    "        rate_limit: {unit: minute, requests_per_unit: 0, name: banned_limit}\n"
    "      - key: bar\n"
    "        value: slow\n"
    "        rate_limit: {unit: minute, requests_per_unit: 1, name: slow_limit}\n"
    "  - key: proxy\n"
    "    value: one\n"
    "    rate_limit: {unit: minute, requests_per_unit: 2, replaces: [{name: banned_limit}]}\n"
    "  - key: proxy\n"
    "    value: two\n"
    "    rate_limit:\n"
    "      unit: minute\n"
    "      requests_per_unit: 4\n"
    "      replaces: [{name: banned_limit}, {name: slow_limit}]\n"
    "  - key: mutual\n"
    "    value: a\n"
    "    rate_limit: {unit: minute, requests_per_unit: 0, name: a, replaces: [{name: b}]}\n"
    "  - key: mutual\n"
    "    value: b\n"
    "    rate_limit: {unit: minute, requests_per_unit: 0, name: b, replaces: [{name: a}]}\n"
    "  - key: quota\n"
    "    quota_mode: true\n"
    "    rate_limit: {unit: minute, requests_per_unit: 1}\n"
    "  - key: plain\n"
    "    rate_limit: {unit: minute, requests_per_unit: 1}\n"
    "  - key: both\n"
    "    rate_limit:\n"
    "      - {name: burst, unit: second, requests_per_unit: 2}\n"
    "      - {name: daily, unit: day, requests_per_unit: 5}\n"
    "  - key: queue\n"
    "    rate_limit:\n"
    "      - {name: q, unit: second, requests_per_unit: 1, burst: 3, algorithm: leaky_bucket}\n"
    "      - {name: h, unit: hour, requests_per_unit: 2}\n"
    "  - key: address\n"
    "    ipv6_prefix: [64, {prefix: 48, times: 2}]\n"
    "    rate_limit: {unit: hour, requests_per_unit: 3}\n";

static const char ATOMIC[] =
    "domain: a\n"
    "atomic: true\n"
    "descriptors:\n"
    "  - key: one\n"
    "    rate_limit: {unit: hour, requests_per_unit: 3}\n"
    "  - key: two\n"
    "    rate_limit: {unit: hour, requests_per_unit: 1}\n"
    "  - key: queue\n"
    "    rate_limit: {unit: second, requests_per_unit: 1, burst: 2, algorithm: leaky_bucket}\n"
    "  - key: shadow\n"
    "    shadow_mode: true\n"
    "    rate_limit: {unit: hour, requests_per_unit: 2}\n"
    "  - key: quota\n"
    "    quota_mode: true\n"
    "    rate_limit: {unit: hour, requests_per_unit: 1}\n";

static int open_rules(void **state)
{
    *state = rig_open(RULES, NULL);
    return 0;
}

static int open_atomic(void **state)
{
    *state = rig_open(ATOMIC, NULL);
    return 0;
}

static int close_rules(void **state)
{
    rig_close(*state);
    return 0;
}

/* ---- a limit in the request ---- */

static void a_limit_in_the_request_goes_before_the_rules(void **state)
{
    struct rig *r = *state;
    struct weir_override day = {10, WEIR_UNIT_DAY}, hour = {42, WEIR_UNIT_HOUR};
    r->override = &day;
    assert_int_equal(ask(r, "t", "k1=v1,sub=x"), WEIR_CODE_OK);
    assert_status(r, 0, WEIR_CODE_OK, 10, 9);
    assert_int_equal(r->statuses[0].unit, WEIR_UNIT_DAY);
    assert_null(r->statuses[0].rule);
    r->override = &hour;
    ask(r, "t", "k1=v1,sub=x");
    assert_status(r, 0, WEIR_CODE_OK, 42, 41);
    assert_int_equal(stats_of(r, "other").total_hits, 2);
}

static void a_limit_in_the_request_ignores_shadow_mode_and_unlimited(void **state)
{
    struct rig *r = *state;
    struct weir_override one = {1, WEIR_UNIT_WEEK};
    r->override = &one;
    assert_int_equal(ask_times(r, "t", "k1=v1,sub=y", 3), 1);
    assert_int_equal(ask_times(r, "t", "free=y", 3), 1);
    assert_int_equal(r->statuses[0].code, WEIR_CODE_OVER_LIMIT);
}

static void a_limit_in_the_request_needs_its_domain_but_no_rule(void **state)
{
    struct rig *r = *state;
    struct weir_override one = {1, WEIR_UNIT_SECOND};
    r->override = &one;
    assert_int_equal(ask_times(r, "nope", "a=b", 3), 3);
    assert_bare(r, 0);
    assert_int_equal(ask_times(r, "t", "unheard=of", 3), 1);
}

static void another_number_in_the_request_meets_what_is_used(void **state)
{
    struct rig *r = *state;
    struct weir_override small = {5, WEIR_UNIT_MINUTE}, large = {8, WEIR_UNIT_MINUTE};
    r->override = &small;
    assert_int_equal(ask_times(r, "t", "x=y", 5), 5);
    r->override = &large;
    ask(r, "t", "x=y");
    assert_status(r, 0, WEIR_CODE_OK, 8, 2);
    r->override = NULL;
    ask(r, "t", "plain=p");
    r->override = &small; /* the rule's own counter, as long as the window is the same */
    ask(r, "t", "plain=p");
    assert_status(r, 0, WEIR_CODE_OK, 5, 3);
}

/* ---- replaces ---- */

static void a_replaced_limit_is_neither_charged_nor_shown(void **state)
{
    struct rig *r = *state;
    for (int i = 0; i < 3; i++) {
        enum weir_code code = i < 2 ? WEIR_CODE_OK : WEIR_CODE_OVER_LIMIT;
        assert_int_equal(ask(r, "t", "foo=x,bar=banned; proxy=one"), code);
        assert_bare(r, 0);
    }
    assert_int_equal(stats_of(r, "t.foo.bar_banned").total_hits, 0);
    assert_int_equal(ask(r, "t", "foo=x,bar=banned"), WEIR_CODE_OVER_LIMIT);
}

static void one_rule_replaces_two(void **state)
{
    struct rig *r = *state;
    static const char text[] = "foo=x,bar=banned; foo=x,bar=slow; proxy=two";
    assert_int_equal(ask_times(r, "t", text, 6), 4);
    assert_int_equal(ask(r, "t", "foo=x,bar=slow"), WEIR_CODE_OK); /* untouched */
    assert_status(r, 0, WEIR_CODE_OK, 1, 0);
}

static void two_that_replace_each_other_both_go(void **state)
{
    struct rig *r = *state;
    assert_int_equal(ask(r, "t", "mutual=a; mutual=b"), WEIR_CODE_OK);
    assert_bare(r, 0);
    assert_bare(r, 1);
    assert_int_equal(ask(r, "t", "mutual=a"), WEIR_CODE_OVER_LIMIT);
}

/* ---- quota mode ---- */

static void in_quota_mode_one_that_has_some_left_is_enough(void **state)
{
    struct rig *r = *state;
    assert_int_equal(ask(r, "t", "quota=a"), WEIR_CODE_OK);
    assert_int_equal(ask(r, "t", "quota=a; quota=b"), WEIR_CODE_OK);
    assert_int_equal(r->statuses[0].code, WEIR_CODE_OVER_LIMIT);
    assert_true(r->statuses[0].is_quota);
    assert_int_equal(ask(r, "t", "quota=a; quota=b"), WEIR_CODE_OVER_LIMIT);
    assert_int_equal(ask(r, "t", "quota=a; nothing=x"), WEIR_CODE_OVER_LIMIT);
}

static void global_quota_mode_takes_in_all_but_the_unlimited(void **state)
{
    (void)state;
    struct weir_options o = {.quota_mode = true};
    struct rig *r = rig_open(RULES, &o);
    assert_int_equal(ask(r, "t", "plain=a"), WEIR_CODE_OK);
    assert_int_equal(ask(r, "t", "plain=a; nothing=x"), WEIR_CODE_OK);
    assert_int_equal(ask(r, "t", "plain=a; free=x"), WEIR_CODE_OVER_LIMIT);
    rig_close(r);
}

/* ---- several limits on one descriptor ---- */

static void several_limits_are_all_or_nothing_and_show_the_tightest(void **state)
{
    struct rig *r = *state;
    ask(r, "t", "both=x");
    assert_status(r, 0, WEIR_CODE_OK, 2, 1);
    assert_int_equal(r->statuses[0].unit, WEIR_UNIT_SECOND);
    assert_int_equal(ask_times(r, "t", "both=x", 9), 1); /* the daily limit loses no more than 2 */
    assert_status(r, 0, WEIR_CODE_OVER_LIMIT, 2, 0);
    r->now_ns += RIG_SECOND;
    assert_int_equal(ask_times(r, "t", "both=x", 2), 2);
    r->now_ns += RIG_SECOND;
    ask(r, "t", "both=x");
    assert_status(r, 0, WEIR_CODE_OK, 5, 0);
    assert_int_equal(r->statuses[0].unit, WEIR_UNIT_DAY);
    ask(r, "t", "both=x"); /* a second's limit has room, the day's has none */
    assert_status(r, 0, WEIR_CODE_OVER_LIMIT, 5, 0);
    ask(r, "t", "both=x +3"); /* no wait helps with the one, a day with the other */
    assert_status(r, 0, WEIR_CODE_OVER_LIMIT, 2, 1);
    assert_int_equal(r->statuses[0].retry_after_ns, WEIR_NEVER);
}

static void several_limits_are_one_decision_in_the_statistics(void **state)
{
    struct rig *r = *state;
    ask_times(r, "t", "both=s", 3);
    struct weir_rule_stats s = stats_of(r, "t.both");
    assert_int_equal(s.total_hits, 3);
    assert_int_equal(s.within_limit, 2);
    assert_int_equal(s.over_limit, 1);
}

static void the_delay_shown_is_the_longest(void **state)
{
    struct rig *r = *state;
    ask(r, "t", "queue=x");
    assert_int_equal(r->statuses[0].delay_ns, 0);
    ask(r, "t", "queue=x");
    assert_status(r, 0, WEIR_CODE_OK, 2, 0); /* the hour is tighter, the queue makes it wait */
    assert_int_equal(r->statuses[0].delay_ns, RIG_SECOND);
    assert_int_equal(ask(r, "t", "queue=x"), WEIR_CODE_OVER_LIMIT);
    assert_int_equal(r->statuses[0].delay_ns, 0);
}

static void giving_back_several_gives_back_each(void **state)
{
    struct rig *r = *state;
    ask_times(r, "t", "both=g", 2);
    ask(r, "t", "both=g -1");
    assert_int_equal(ask_times(r, "t", "both=g", 2), 1);
}

/* ---- prefix tiers ---- */

static void tiers_count_an_address_and_the_net_around_it(void **state)
{
    struct rig *r = *state;
    assert_int_equal(ask_times(r, "t", "address=2001:db8:0:1::1", 2), 2);
    assert_int_equal(ask_times(r, "t", "address=2001:db8:0:1::2", 2), 1); /* the same /64 */
    assert_int_equal(ask_times(r, "t", "address=2001:db8:0:2::1", 3), 3);
    assert_int_equal(ask(r, "t", "address=2001:db8:0:3::1"), WEIR_CODE_OVER_LIMIT); /* the /48 */
    assert_status(r, 0, WEIR_CODE_OVER_LIMIT, 6, 0);
    assert_int_equal(ask(r, "t", "address=2001:db8:1::1"), WEIR_CODE_OK);
    assert_int_equal(ask_times(r, "t", "address=192.0.2.1", 2), 2);
    assert_int_equal(ask_times(r, "t", "address=::ffff:192.0.2.1", 2), 1);
}

/* ---- atomic domains ---- */

static void a_refused_request_consumes_nothing_anywhere(void **state)
{
    struct rig *r = *state;
    assert_int_equal(ask(r, "a", "one=x; two=x"), WEIR_CODE_OK);
    assert_int_equal(ask_times(r, "a", "one=x; two=x; queue=x", 5), 0);
    assert_int_equal(r->statuses[1].code, WEIR_CODE_OVER_LIMIT);
    assert_int_equal(r->statuses[2].ticket.count, 0);
    assert_int_equal(ask(r, "a", "one=x; queue=x"), WEIR_CODE_OK);
    assert_status(r, 0, WEIR_CODE_OK, 3, 1);
    assert_int_equal(r->statuses[1].delay_ns, 0); /* nobody queues before us */
}

static void what_a_refused_request_did_not_take_is_told_and_counted_so(void **state)
{
    struct rig *r = *state;
    ask(r, "a", "one=x; two=x");
    assert_int_equal(ask(r, "a", "one=x; two=x; queue=x"), WEIR_CODE_OVER_LIMIT);
    assert_status(r, 0, WEIR_CODE_OK, 3, 2);
    assert_int_equal(r->statuses[2].delay_ns, 0);
    assert_int_equal(r->statuses[2].reset_after_ns, 0);
    struct weir_rule_stats one = stats_of(r, "a.one"), two = stats_of(r, "a.two");
    assert_int_equal(one.total_hits, 2);
    assert_int_equal(one.within_limit, 1); /* that of the refused request is neither */
    assert_int_equal(one.over_limit, 0);
    assert_int_equal(two.total_hits, 2);
    assert_int_equal(two.within_limit, 1);
    assert_int_equal(two.over_limit, 1);
}

static void the_same_counter_twice_in_a_request_is_charged_twice_or_not_at_all(void **state)
{
    struct rig *r = *state;
    assert_int_equal(ask(r, "a", "two=x; two=x"), WEIR_CODE_OVER_LIMIT);
    assert_int_equal(ask(r, "a", "two=x"), WEIR_CODE_OK);
    assert_int_equal(ask(r, "a", "one=x; one=x"), WEIR_CODE_OK);
    assert_int_equal(ask(r, "a", "one=x; one=x"), WEIR_CODE_OVER_LIMIT);
    assert_int_equal(ask(r, "a", "one=x"), WEIR_CODE_OK);
}

static void shadow_limits_take_no_part_in_all_or_nothing(void **state)
{
    struct rig *r = *state;
    ask(r, "a", "two=x");
    assert_int_equal(ask(r, "a", "two=x; shadow=x"), WEIR_CODE_OVER_LIMIT);
    ask(r, "a", "shadow=x +0");
    assert_status(r, 0, WEIR_CODE_OK, 2, 1); /* counted though refused */
    assert_int_equal(ask(r, "a", "one=x; shadow=x +5"), WEIR_CODE_OK);
    assert_true(r->statuses[1].is_shadow);
    assert_status(r, 0, WEIR_CODE_OK, 3, 2);
}

static void quota_mode_is_combined_before_anything_is_charged(void **state)
{
    struct rig *r = *state;
    assert_int_equal(ask(r, "a", "quota=a; one=x"), WEIR_CODE_OK);
    assert_int_equal(ask(r, "a", "quota=a; quota=b; one=x"), WEIR_CODE_OK);
    assert_int_equal(r->statuses[0].code, WEIR_CODE_OVER_LIMIT);
    assert_status(r, 2, WEIR_CODE_OK, 3, 1);
    assert_int_equal(ask(r, "a", "quota=a; quota=b; one=x"), WEIR_CODE_OVER_LIMIT);
    assert_int_equal(ask(r, "a", "one=x"), WEIR_CODE_OK);
    assert_status(r, 0, WEIR_CODE_OK, 3, 0);
}

static void refunds_in_an_atomic_domain_are_given_whatever_is_decided(void **state)
{
    struct rig *r = *state;
    ask(r, "a", "one=x +2; two=x");
    assert_int_equal(ask(r, "a", "one=x -1; two=x"), WEIR_CODE_OVER_LIMIT);
    ask(r, "a", "one=x +0");
    assert_status(r, 0, WEIR_CODE_OK, 3, 2);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, open_rules, close_rules)
#define A(f) cmocka_unit_test_setup_teardown(f, open_atomic, close_rules)
    const struct CMUnitTest tests[] = {
        T(a_limit_in_the_request_goes_before_the_rules),
        T(a_limit_in_the_request_ignores_shadow_mode_and_unlimited),
        T(a_limit_in_the_request_needs_its_domain_but_no_rule),
        T(another_number_in_the_request_meets_what_is_used),
        T(a_replaced_limit_is_neither_charged_nor_shown),
        T(one_rule_replaces_two),
        T(two_that_replace_each_other_both_go),
        T(in_quota_mode_one_that_has_some_left_is_enough),
        cmocka_unit_test(global_quota_mode_takes_in_all_but_the_unlimited),
        T(several_limits_are_all_or_nothing_and_show_the_tightest),
        T(several_limits_are_one_decision_in_the_statistics),
        T(the_delay_shown_is_the_longest),
        T(giving_back_several_gives_back_each),
        T(tiers_count_an_address_and_the_net_around_it),
        A(a_refused_request_consumes_nothing_anywhere),
        A(what_a_refused_request_did_not_take_is_told_and_counted_so),
        A(the_same_counter_twice_in_a_request_is_charged_twice_or_not_at_all),
        A(shadow_limits_take_no_part_in_all_or_nothing),
        A(quota_mode_is_combined_before_anything_is_charged),
        A(refunds_in_an_atomic_domain_are_given_whatever_is_decided),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
