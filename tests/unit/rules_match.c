/* Which rule a descriptor meets: as envoyproxy/ratelimit chooses, and by our own patterns.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "rules_rig.h"

#define LIMIT "rate_limit: {unit: hour, requests_per_unit: 9}"

static const char CONFIG_A[] = "domain: d\n"
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
                               "    rate_limit: {unlimited: true}\n";

static int load_a(void **state)
{
    *state = loaded(CONFIG_A);
    return 0;
}

static int free_a(void **state)
{
    weir_rules_free(*state);
    return 0;
}

static void an_unknown_domain_has_no_rules(void **state)
{
    assert_null(weir_rules_domain(*state, WEIR_STR("nope")));
    assert_null(weir_rules_domain(*state, WEIR_STR("")));
}

static void a_value_that_no_rule_names_meets_nothing(void **state)
{
    assert_string_equal(id_of(*state, "k1=something"), "");
}

static void a_node_without_a_limit_meets_nothing(void **state)
{
    assert_string_equal(id_of(*state, "k1=v1"), "");
}

static void a_request_deeper_than_the_tree_meets_nothing(void **state)
{
    assert_string_equal(id_of(*state, "k2=v2 sub=x"), "");
}

static void each_depth_has_its_own_limit(void **state)
{
    assert_int_equal(match(*state, "d", "k5=v5").limits->limit.requests, 15);
    assert_int_equal(match(*state, "d", "k5=v5 s5=sv5").limits->limit.requests, 25);
    assert_string_equal(id_of(*state, "k5=v5 s5=other"), "");
}

static void an_exact_value_comes_before_the_bare_key(void **state)
{
    assert_string_equal(id_of(*state, "k1=v1 sub=any"), "d.k1_v1.sub");
    assert_string_equal(id_of(*state, "k1=v1 sub=sv"), "d.k1_v1.sub_sv");
    assert_string_equal(id_of(*state, "k2=r1"), "d.k2");
    assert_string_equal(id_of(*state, "k2=v2"), "d.k2_v2");
}

static void a_value_without_a_limit_is_a_white_list(void **state)
{
    assert_string_equal(id_of(*state, "k2=v3"), "");
}

static void an_empty_value_meets_the_bare_key(void **state)
{
    assert_string_equal(id_of(*state, "k2="), "d.k2");
}

static void matching_is_case_sensitive_and_ordered(void **state)
{
    assert_string_equal(id_of(*state, "K2=v2"), "");
    assert_string_equal(id_of(*state, "sub=sv k1=v1"), "");
}

static void names_and_units_are_told(void **state)
{
    struct weir_match m = match(*state, "d", "k4=x");
    assert_true(weir_str_eq(m.rule->info.name, WEIR_STR("n4")));
    assert_int_equal(m.rule->info.unit, WEIR_UNIT_DAY);
    assert_int_equal(weir_limit_window_s(&m.limits->limit), 86400);
    assert_true(m.limits->limit.count_rejected);
}

static void unlimited_has_no_counters(void **state)
{
    struct weir_match m = match(*state, "d", "k6=x");
    assert_non_null(m.rule);
    assert_true(m.rule->is_unlimited);
    assert_int_equal(m.limit_count, 0);
}

static void the_joined_key_is_as_ambiguous_as_in_go(void **state)
{
    (void)state;
    struct weir_rules *rules = loaded("domain: d\ndescriptors:\n"
                                      "  - {key: a, value: b_c, " LIMIT "}\n"
                                      "  - {key: remote_address, " LIMIT "}\n");
    assert_string_equal(id_of(rules, "a_b=c"), "d.a_b_c");
    assert_string_equal(id_of(rules, "a_b_c=z"), "d.a_b_c");
    assert_string_equal(id_of(rules, "remote=address"), "d.remote_address");
    weir_rules_free(rules);
}

static void wildcards_match_anywhere_in_the_value(void **state)
{
    (void)state;
    struct weir_rules *rules =
        loaded("domain: d\ndescriptors:\n"
               "  - {key: wild, value: foo*, " LIMIT "}\n"
               "  - {key: mid, value: a*b*c, " LIMIT "}\n"
               "  - {key: no, value: foo, " LIMIT "}\n"
               "  - {key: nested, value: v1, descriptors: [{key: wild, value: goo*, " LIMIT "}]}\n"
               "  - {key: all, value: '*', " LIMIT "}\n");
    assert_string_equal(id_of(rules, "wild=foo1"), "d.wild_foo*");
    assert_string_equal(id_of(rules, "wild=foo"), "d.wild_foo*");
    assert_string_equal(id_of(rules, "wild=bar"), "");
    assert_string_equal(id_of(rules, "no=foo1"), "");
    assert_string_equal(id_of(rules, "nested=v1 wild=goo2"), "d.nested_v1.wild_goo*");
    assert_string_equal(id_of(rules, "mid=axxbxxc"), "d.mid_a*b*c");
    assert_string_equal(id_of(rules, "mid=abc"), "d.mid_a*b*c");
    assert_string_equal(id_of(rules, "mid=acb"), "");
    assert_string_equal(id_of(rules, "mid=ac"), "");
    assert_string_equal(id_of(rules, "all="), "d.all_*");
    assert_string_equal(id_of(rules, "all_more=x"), "d.all_*");
    assert_false(match(rules, "d", "wild=foo1").has_shared_parts);
    weir_rules_free(rules);
}

static void a_star_may_overlap_nothing(void **state)
{
    (void)state;
    struct weir_rules *rules = loaded("domain: d\ndescriptors:\n"
                                      "  - {key: k, value: ab*ba, " LIMIT "}\n");
    assert_string_equal(id_of(rules, "k=aba"), "");
    assert_string_equal(id_of(rules, "k=abba"), "d.k_ab*ba");
    weir_rules_free(rules);
}

static void the_first_wildcard_of_the_file_wins(void **state)
{
    (void)state;
    struct weir_rules *rules = loaded("domain: d\ndescriptors:\n"
                                      "  - {key: k, value: a*, " LIMIT "}\n"
                                      "  - {key: k, value: ab*, " LIMIT "}\n");
    assert_string_equal(id_of(rules, "k=abc"), "d.k_a*");
    assert_string_equal(id_of(rules, "k=ab*"), "d.k_ab*"); /* an exact text still is one */
    weir_rules_free(rules);
}

static void what_is_chosen_stays_chosen(void **state)
{
    (void)state;
    struct weir_rules *rules =
        loaded("domain: d\ndescriptors:\n"
               "  - {key: k, value: v, descriptors: [{key: a, " LIMIT "}]}\n"
               "  - {key: k, value: 'v*', descriptors: [{key: b, " LIMIT "}]}\n"
               "  - {key: k, descriptors: [{key: c, " LIMIT "}]}\n");
    assert_string_equal(id_of(rules, "k=v b=1"), "");
    assert_string_equal(id_of(rules, "k=vv c=1"), "");
    assert_string_equal(id_of(rules, "k=w c=1"), "d.k.c");
    weir_rules_free(rules);
}

static void share_threshold_counts_by_the_pattern(void **state)
{
    (void)state;
    struct weir_rules *rules =
        loaded("domain: d\ndescriptors:\n"
               "  - key: files\n    value: files/*\n    share_threshold: true\n    " LIMIT "\n"
               "    descriptors: [{key: u, " LIMIT "}]\n");
    struct weir_match m = match(rules, "d", "files=files/a");
    assert_true(m.has_shared_parts);
    assert_int_equal(m.part[0], WEIR_PART_SHARED);
    assert_true(weir_str_eq(m.shared[0], WEIR_STR("files/*")));
    m = match(rules, "d", "files=files/a u=1");
    assert_int_equal(m.part[0], WEIR_PART_SHARED);
    assert_int_equal(m.part[1], WEIR_PART_VALUE);
    weir_rules_free(rules);
}

static void the_longest_network_wins(void **state)
{
    (void)state;
    struct weir_rules *rules =
        loaded("domain: d\ndescriptors:\n"
               "  - {key: ip, value: 0.0.0.0/0, match: cidr, id: all, " LIMIT "}\n"
               "  - {key: ip, value: 10.0.0.0/8, match: cidr, id: ten, " LIMIT "}\n"
               "  - {key: ip, value: 10.1.0.0/16, match: cidr, id: one, " LIMIT "}\n"
               "  - {key: ip, value: 10.2.0.7, match: cidr, id: host, " LIMIT "}\n"
               "  - {key: ip, value: '2001:db8::/32', match: cidr, id: six, " LIMIT "}\n"
               "  - {key: ip, value: '::1', match: cidr, id: self, " LIMIT "}\n"
               "  - {key: ip, id: bare, " LIMIT "}\n"
               "  - {key: ip, value: 10.1.1.1, id: exact, " LIMIT "}\n");
    assert_string_equal(id_of(rules, "ip=10.1.2.3"), "one");
    assert_string_equal(id_of(rules, "ip=10.1.1.1"), "exact");
    assert_string_equal(id_of(rules, "ip=10.200.0.1"), "ten");
    assert_string_equal(id_of(rules, "ip=10.2.0.7"), "host");
    assert_string_equal(id_of(rules, "ip=10.2.0.8"), "ten");
    assert_string_equal(id_of(rules, "ip=192.0.2.1"), "all");
    assert_string_equal(id_of(rules, "ip=::ffff:10.1.2.3"), "one");
    assert_string_equal(id_of(rules, "ip=2001:DB8:0:0::5"), "six");
    assert_string_equal(id_of(rules, "ip=0:0:0:0:0:0:0:1"), "self");
    assert_string_equal(id_of(rules, "ip=2001:db9::"), "bare");
    assert_string_equal(id_of(rules, "ip=10.1.2"), "bare");
    assert_string_equal(id_of(rules, "ip=10.1.2.3/32"), "bare");
    assert_true(match(rules, "d", "ip=10.1.2.3").has_shared_parts);
    weir_rules_free(rules);
}

static void all_of_ipv6_is_not_ipv4(void **state)
{
    (void)state;
    struct weir_rules *rules =
        loaded("domain: d\ndescriptors:\n"
               "  - {key: ip, value: '::/0', match: cidr, id: six, " LIMIT "}\n"
               "  - {key: ip, value: '::ffff:10.1.0.0/112', match: cidr, id: mapped, " LIMIT "}\n"
               "  - {key: ip, id: bare, " LIMIT "}\n");
    assert_string_equal(id_of(rules, "ip=2001:db8::1"), "six");
    assert_string_equal(id_of(rules, "ip=::1"), "six");
    assert_string_equal(id_of(rules, "ip=10.1.2.3"), "mapped");
    assert_string_equal(id_of(rules, "ip=10.2.0.1"), "bare");
    assert_string_equal(id_of(rules, "ip=::ffff:10.2.0.1"), "bare");
    weir_rules_free(rules);
}

static void many_networks_are_searched_as_a_list_would_be(void **state)
{
    (void)state;
    enum { NETS = 300 };
    static char text[NETS * 160];
    static uint32_t base[NETS], bits[NETS];
    size_t len = (size_t)snprintf(text, sizeof(text), "domain: d\ndescriptors:\n");
    uint32_t x = 7, count = 0;
    while (count < NETS) {
        x = x * 1664525u + 1013904223u;
        uint32_t prefix = 1 + (x >> 8) % 20;
        uint32_t first = (x & 0xfff00000u) & (UINT32_MAX << (32 - prefix));
        bool is_new = true;
        for (uint32_t i = 0; i < count; i++)
            is_new = is_new && !(base[i] == first && bits[i] == prefix);
        if (!is_new) {
            x += 12345;
            continue;
        }
        base[count] = first;
        bits[count] = prefix;
        len += (size_t)snprintf(text + len, sizeof(text) - len,
                                "  - {key: ip, value: %u.%u.0.0/%u, match: cidr, id: n%u, " LIMIT
                                "}\n",
                                first >> 24, first >> 16 & 255, prefix, count);
        count++;
    }
    struct weir_rules *rules = loaded(text);
    for (uint32_t i = 0; i < 3000; i++) {
        char descriptor[64], want[16] = "";
        uint32_t longest = 0;
        x = x * 1664525u + 1013904223u;
        for (uint32_t n = 0; n < NETS; n++) {
            if ((x & (UINT32_MAX << (32 - bits[n]))) != base[n] || bits[n] < longest)
                continue;
            longest = bits[n];
            snprintf(want, sizeof(want), "n%u", n);
        }
        snprintf(descriptor, sizeof(descriptor), "ip=%u.%u.%u.%u", x >> 24, x >> 16 & 255,
                 x >> 8 & 255, x & 255);
        assert_string_equal(id_of(rules, descriptor), want);
    }
    weir_rules_free(rules);
}

static void the_most_literal_path_wins(void **state)
{
    (void)state;
    struct weir_rules *rules =
        loaded("domain: d\ndescriptors:\n"
               "  - {key: path, value: '/*', match: path, id: any, " LIMIT "}\n"
               "  - {key: path, value: '/v1/*', match: path, id: rest, " LIMIT "}\n"
               "  - {key: path, value: '/v1/{x}', match: path, id: one, " LIMIT "}\n"
               "  - {key: path, value: '/v1/orders/{id}/pay', match: path, id: pay, " LIMIT "}\n"
               "  - {key: path, value: '/{v}/orders/7/pay', match: path, id: seven, " LIMIT "}\n"
               "  - {key: path, value: '/v1/{a}/{b}/pay', match: path, id: loose, " LIMIT "}\n"
               "  - {key: path, value: /v1/orders/8/pay, id: exact, " LIMIT "}\n"
               "  - {key: path, id: bare, " LIMIT "}\n");
    assert_string_equal(id_of(rules, "path=/v1/orders/5/pay"), "pay");
    assert_string_equal(id_of(rules, "path=/v2/orders/7/pay"), "seven");
    assert_string_equal(id_of(rules, "path=/v1/orders/7/pay"), "pay"); /* literal earlier */
    assert_string_equal(id_of(rules, "path=/v1/orders/8/pay"), "exact");
    assert_string_equal(id_of(rules, "path=/v1/users/8/pay"), "loose");
    assert_string_equal(id_of(rules, "path=/v1/users"), "one");
    assert_string_equal(id_of(rules, "path=/v1/users/8"), "rest");
    assert_string_equal(id_of(rules, "path=/v1/"), "rest"); /* {x} is not empty */
    assert_string_equal(id_of(rules, "path=/v1"), "any");
    assert_string_equal(id_of(rules, "path=/"), "any");
    assert_string_equal(id_of(rules, "path=v1"), "bare");
    assert_string_equal(id_of(rules, "path="), "bare");
    struct weir_match m = match(rules, "d", "path=/v1/orders/5/pay");
    assert_true(weir_str_eq(m.shared[0], WEIR_STR("/v1/orders/{id}/pay")));
    weir_rules_free(rules);
}

static void regexes_and_wildcards_are_tried_in_the_order_of_the_file(void **state)
{
    (void)state;
    struct weir_rules *rules =
        loaded("domain: d\ndescriptors:\n"
               "  - {key: ua, value: '^curl/[0-9]+', match: regex, id: curl, " LIMIT "}\n"
               "  - {key: ua, value: 'cu*', id: cu, " LIMIT "}\n"
               "  - {key: ua, value: '(?i)BOT', match: regex, id: bot, " LIMIT "}\n"
               "  - {key: ua, id: bare, " LIMIT "}\n");
    assert_string_equal(id_of(rules, "ua=curl/7"), "curl");
    assert_string_equal(id_of(rules, "ua=curl/x"), "cu");
    assert_string_equal(id_of(rules, "ua=SomeRobot"), "bot");
    assert_string_equal(id_of(rules, "ua=^curl/[0-9]+"), "bare");
    assert_string_equal(id_of(rules, "ua=\xff\xfe"), "bare"); /* not UTF-8 */
    assert_string_equal(id_of(rules, "ua="), "bare");
    assert_string_equal(id_of(rules, "ub=curl/7"), "");
    weir_rules_free(rules);
}

static void a_regex_that_gives_up_has_matched(void **state)
{
    (void)state;
    struct weir_rules *rules =
        loaded("domain: d\ndescriptors:\n"
               "  - {key: k, value: '^(a+)+\\1$', match: regex, id: evil, " LIMIT "}\n");
    char descriptor[80] = "k=";
    memset(descriptor + 2, 'a', 60);
    descriptor[62] = 'b';
    descriptor[63] = '\0';
    assert_string_equal(id_of(rules, descriptor), "evil");
    assert_string_equal(id_of(rules, "k=b"), "");
    weir_rules_free(rules);
}

static void the_stages_follow_each_other(void **state)
{
    (void)state;
    struct weir_rules *rules =
        loaded("domain: d\ndescriptors:\n"
               "  - {key: k, id: bare, " LIMIT "}\n"
               "  - {key: k, value: '/a*', id: glob, " LIMIT "}\n"
               "  - {key: k, value: '/a/{x}', match: path, id: path, " LIMIT "}\n"
               "  - {key: k, value: '/a/b', id: exact, " LIMIT "}\n"
               "  - {key: k, value: 10.0.0.0/8, match: cidr, id: net, " LIMIT "}\n"
               "  - {key: k, value: '10.*', id: ten, " LIMIT "}\n");
    assert_string_equal(id_of(rules, "k=/a/b"), "exact");
    assert_string_equal(id_of(rules, "k=/a/c"), "path");
    assert_string_equal(id_of(rules, "k=/ab"), "glob");
    assert_string_equal(id_of(rules, "k=10.0.0.1"), "net");
    assert_string_equal(id_of(rules, "k=10.0.0.x"), "ten");
    assert_string_equal(id_of(rules, "k=z"), "bare");
    weir_rules_free(rules);
}

static void match_exact_takes_a_star_literally(void **state)
{
    (void)state;
    struct weir_rules *rules = loaded("domain: d\ndescriptors:\n"
                                      "  - {key: k, value: 'a*', match: exact, " LIMIT "}\n");
    assert_string_equal(id_of(rules, "k=a*"), "d.k_a*");
    assert_string_equal(id_of(rules, "k=ab"), "");
    weir_rules_free(rules);
}

static void entries_beyond_the_maxima_meet_nothing(void **state)
{
    static char value[WEIR_VALUE_LEN_MAX + 2];
    memset(value, 'x', sizeof(value));
    struct weir_entry entries[WEIR_ENTRIES_MAX + 1];
    const struct weir_domain *domain = weir_rules_domain(*state, WEIR_STR("d"));
    struct weir_match m;
    for (uint32_t i = 0; i <= WEIR_ENTRIES_MAX; i++)
        entries[i] = (struct weir_entry){WEIR_STR("k2"), WEIR_STR("z")};
    weir_rules_match(domain, entries, WEIR_ENTRIES_MAX + 1, &m);
    assert_null(m.rule);
    weir_rules_match(domain, entries, 0, &m);
    assert_null(m.rule);
    entries[0].value = (struct weir_str){value, WEIR_VALUE_LEN_MAX};
    weir_rules_match(domain, entries, 1, &m);
    assert_non_null(m.rule);
    entries[0].value.len++;
    weir_rules_match(domain, entries, 1, &m);
    assert_null(m.rule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_domain_has_no_rules),
        cmocka_unit_test(a_value_that_no_rule_names_meets_nothing),
        cmocka_unit_test(a_node_without_a_limit_meets_nothing),
        cmocka_unit_test(a_request_deeper_than_the_tree_meets_nothing),
        cmocka_unit_test(each_depth_has_its_own_limit),
        cmocka_unit_test(an_exact_value_comes_before_the_bare_key),
        cmocka_unit_test(a_value_without_a_limit_is_a_white_list),
        cmocka_unit_test(an_empty_value_meets_the_bare_key),
        cmocka_unit_test(matching_is_case_sensitive_and_ordered),
        cmocka_unit_test(names_and_units_are_told),
        cmocka_unit_test(unlimited_has_no_counters),
        cmocka_unit_test(the_joined_key_is_as_ambiguous_as_in_go),
        cmocka_unit_test(wildcards_match_anywhere_in_the_value),
        cmocka_unit_test(a_star_may_overlap_nothing),
        cmocka_unit_test(the_first_wildcard_of_the_file_wins),
        cmocka_unit_test(what_is_chosen_stays_chosen),
        cmocka_unit_test(share_threshold_counts_by_the_pattern),
        cmocka_unit_test(the_longest_network_wins),
        cmocka_unit_test(all_of_ipv6_is_not_ipv4),
        cmocka_unit_test(many_networks_are_searched_as_a_list_would_be),
        cmocka_unit_test(the_most_literal_path_wins),
        cmocka_unit_test(regexes_and_wildcards_are_tried_in_the_order_of_the_file),
        cmocka_unit_test(a_regex_that_gives_up_has_matched),
        cmocka_unit_test(the_stages_follow_each_other),
        cmocka_unit_test(match_exact_takes_a_star_literally),
        cmocka_unit_test(entries_beyond_the_maxima_meet_nothing),
    };
    return cmocka_run_group_tests(tests, load_a, free_a);
}
