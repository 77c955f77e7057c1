/* The numbers of a rule: algorithms, defaults, lists, tiers, overrides, identities.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/sketch.h"
#include "rules_rig.h"

#define HEAD "domain: d\ndescriptors:\n"

static void the_fields_of_a_limit_reach_it(void **state)
{
    (void)state;
    struct weir_rules *rules = loaded(
        HEAD "  - {key: t, rate_limit: {unit: hour, unit_multiplier: 3, requests_per_unit: 9, "
             "algorithm: token_bucket, burst: 20, refill: interval, scope: host, "
             "on_store_error: closed}}\n"
             "  - {key: s, rate_limit: {unit: minute, requests_per_unit: 60, rounding: up, "
             "algorithm: sliding_window_counter, count_rejected: true}}\n"
             "  - {key: b, rate_limit: {unit: minute, requests_per_unit: 60, buckets: 6, "
             "algorithm: sliding_window_counter}}\n"
             "  - {key: l, rate_limit: {unit: minute, requests_per_unit: 60, "
             "algorithm: leaky_bucket}}\n");
    assert_int_equal(said.warnings, 0);
    const struct weir_limit *limit = &match(rules, "d", "t=x").limits->limit;
    assert_int_equal(weir_limit_window_s(limit), 3 * 3600);
    assert_int_equal(limit->algorithm, WEIR_TOKEN_BUCKET);
    assert_int_equal(limit->burst, 20);
    assert_true(limit->refill_interval && limit->is_host_scope && !limit->count_rejected);
    assert_int_equal(limit->on_store_error, WEIR_STORE_ERROR_CLOSED);
    assert_int_equal(limit->consistency, WEIR_CONSISTENCY_UNSAID);
    assert_int_equal(match(rules, "d", "t=x").rule->info.unit_multiplier, 3);
    limit = &match(rules, "d", "s=x").limits->limit;
    assert_true(limit->round_up && limit->count_rejected);
    assert_int_equal(match(rules, "d", "b=x").limits->limit.buckets, 6);
    assert_int_equal(match(rules, "d", "l=x").limits->limit.burst, 60);
    weir_rules_free(rules);
}

static void defaults_fill_what_a_limit_does_not_say(void **state)
{
    (void)state;
    struct weir_rules *rules = loaded(
        "domain: d\n"
        "descriptors:\n"
        "  - {key: a, rate_limit: {requests_per_unit: 5}}\n"
        "  - {key: b, rate_limit: {unit: day, requests_per_unit: 6, algorithm: fixed_window}}\n"
        "  - {key: c, rate_limit: {unlimited: true}}\n"
        "defaults: {unit: minute, algorithm: token_bucket, refill: interval}\n");
    assert_int_equal(said.len, 0);
    struct weir_match m = match(rules, "d", "a=x");
    assert_int_equal(weir_limit_window_s(&m.limits->limit), 60);
    assert_int_equal(m.rule->info.algorithm, WEIR_TOKEN_BUCKET);
    assert_int_equal(m.limits->limit.burst, 5);
    m = match(rules, "d", "b=x");
    assert_int_equal(weir_limit_window_s(&m.limits->limit), 86400);
    assert_int_equal(m.limits->limit.algorithm, WEIR_FIXED_WINDOW);
    assert_true(match(rules, "d", "c=x").rule->is_unlimited);
    weir_rules_free(rules);
}

static void a_list_of_limits_is_all_or_nothing(void **state)
{
    (void)state;
    struct weir_rules *rules = loaded(
        HEAD "  - key: user\n    rate_limit:\n"
             "      - {name: burst, unit: second, requests_per_unit: 2, algorithm: token_bucket, "
             "burst: 5}\n"
             "      - {name: daily, unit: day, requests_per_unit: 150, count_rejected: true}\n");
    struct weir_match m = match(rules, "d", "user=x");
    assert_int_equal(m.limit_count, 2);
    assert_int_equal(m.limits[0].limit.burst, 5);
    assert_int_equal(m.limits[1].limit.requests, 150);
    assert_int_equal(m.limits[1].ordinal, 1);
    assert_false(m.limits[1].limit.count_rejected);
    assert_said("'count_rejected' does not apply: several limits are all or nothing");
    assert_int_not_equal(m.limits[0].limit.tag, m.limits[1].limit.tag);
    weir_rules_free(rules);
    assert_refused(HEAD "  - {key: k, rate_limit: []}\n", "empty list");
    assert_refused(HEAD "  - {key: k, rate_limit: [{unit: day}, {unlimited: true}]}\n",
                   "'unlimited' cannot be one of several limits");
    assert_refused(HEAD "  - {key: k, rate_limit: [{name: a, unit: day}, {name: a, unit: hour}]}\n",
                   "two limits of one rule are named 'a'");
}

static void limits_of_a_rule_are_counted(void **state)
{
    char text[1024];
    (void)state;
    for (unsigned more = 0; more < 2; more++) {
        size_t len = (size_t)snprintf(text, sizeof(text), HEAD "  - key: k\n    rate_limit:\n");
        for (unsigned i = 0; i < WEIR_LIMITS_MAX + more; i++)
            len += (size_t)snprintf(text + len, sizeof(text) - len, "    - {unit: day}\n");
        weir_rules_free(load(text));
        assert_int_equal(said.errors, more);
    }
    assert_refused(HEAD "  - key: ip\n    ipv6_prefix: [64, 56, 48]\n"
                        "    rate_limit: [{unit: day}, {unit: hour}, {unit: minute}]\n",
                   "3 limits times 3 prefix tiers are more than 8 counters");
}

static void atomic_domains_do_not_count_refused_hits(void **state)
{
    (void)state;
    struct weir_rules *rules =
        loaded("atomic: true\n" HEAD "  - {key: k, rate_limit: {unit: day}}\n");
    assert_true(weir_domain_is_atomic(weir_rules_domain(rules, WEIR_STR("d"))));
    assert_false(match(rules, "d", "k=x").limits->limit.count_rejected);
    weir_rules_free(rules);
    assert_warned("atomic: true\n" HEAD
                  "  - {key: k, rate_limit: {unit: day, count_rejected: true}}\n",
                  "the domain is atomic");
}

static void prefix_tiers_are_counters_of_their_own(void **state)
{
    (void)state;
    struct weir_rules *rules = loaded(
        HEAD "  - key: remote_address\n    ipv6_prefix: [64, {prefix: 48, times: 16}]\n"
             "    ipv4_prefix: 24\n"
             "    rate_limit: {unit: minute, requests_per_unit: 300, algorithm: token_bucket}\n"
             "    descriptors: [{key: u, rate_limit: {unit: day, requests_per_unit: 1}}]\n"
             "  - {key: plain, rate_limit: {unit: day}}\n");
    struct weir_match m = match(rules, "d", "remote_address=::1");
    assert_int_equal(m.part[0], WEIR_PART_PREFIX);
    assert_true(m.has_shared_parts);
    assert_int_equal(m.limit_count, 2);
    assert_int_equal(m.limits[0].ipv6_prefix, 64);
    assert_int_equal(m.limits[0].ipv4_prefix, 24);
    assert_int_equal(m.limits[0].limit.requests, 300);
    assert_int_equal(m.limits[1].ipv6_prefix, 48);
    assert_int_equal(m.limits[1].limit.requests, 4800);
    assert_int_equal(m.limits[1].limit.burst, 4800);
    assert_int_not_equal(m.limits[0].limit.tag, m.limits[1].limit.tag);
    assert_int_equal(match(rules, "d", "remote_address=::1 u=x").limit_count, 2);
    assert_int_equal(match(rules, "d", "plain=x").part[0], WEIR_PART_VALUE);
    weir_rules_free(rules);
    assert_refused(HEAD "  - {key: ip, ipv6_prefix: 129, rate_limit: {unit: day}}\n", "0 to 128");
    assert_refused(HEAD "  - {key: ip, ipv4_prefix: 33, rate_limit: {unit: day}}\n", "0 to 32");
    assert_refused(HEAD "  - {key: ip, ipv6_prefix: {times: 2}, rate_limit: {unit: day}}\n",
                   "a tier needs a prefix");
    assert_refused(HEAD "  - {key: ip, ipv6_prefix: {prefix: 48, times: 4294967295}, rate_limit: "
                        "{unit: day, requests_per_unit: 2}}\n",
                   "is more than 4294967295");
    assert_refused(HEAD "  - {key: a, ipv6_prefix: 64, descriptors: [{key: b, ipv6_prefix: 64, "
                        "rate_limit: {unit: day}}]}\n",
                   "at one level of a chain only");
}

static void overrides_are_other_numbers_for_some_values(void **state)
{
    (void)state;
    struct weir_rules *rules =
        loaded(HEAD "  - {key: user, overrides: {'4711': 5000, bad: 0}, "
                    "rate_limit: {unit: hour, requests_per_unit: 9, algorithm: token_bucket}}\n"
                    "  - {key: b, overrides: {x: 7}, rate_limit: {unit: hour, requests_per_unit: "
                    "9, algorithm: token_bucket, burst: 3}}\n");
    struct weir_match plain = match(rules, "d", "user=1"), other = match(rules, "d", "user=4711");
    assert_int_equal(plain.limits->limit.requests, 9);
    assert_int_equal(other.limits->limit.requests, 5000);
    assert_int_equal(other.limits->limit.burst, 5000);
    assert_ptr_equal(plain.rule, other.rule);
    assert_int_equal(plain.limits->limit.tag, other.limits->limit.tag);
    assert_int_equal(match(rules, "d", "user=bad").limits->limit.requests, 0);
    assert_int_equal(match(rules, "d", "b=x").limits->limit.burst, 3);
    assert_int_equal(weir_rules_limit_count(rules), 5);
    weir_rules_free(rules);
    assert_refused(HEAD "  - {key: k, overrides: {x: 7}}\n", "need a rate_limit");
    assert_refused(HEAD "  - {key: k, overrides: {x: 7}, rate_limit: {unlimited: true}}\n",
                   "this rule is unlimited");
    assert_refused(HEAD
                   "  - {key: k, overrides: {x: 7}, rate_limit: [{unit: day}, {unit: hour}]}\n",
                   "one limit");
    assert_refused(HEAD "  - {key: k, overrides: {x: -7}, rate_limit: {unit: day}}\n", "number");
    assert_warned(HEAD "  - {key: k, overrides: {x: 7, x: 8}, rate_limit: {unit: day}}\n", "twice");
}

static void approximate_counting_brings_its_size(void **state)
{
    (void)state;
    struct weir_rules *rules = loaded(
        HEAD
        "  - {key: a, rate_limit: {unit: day, counting: {width: 1024, depth: 3, bloom_bits: 96}}}\n"
        "  - {key: b, rate_limit: {unit: day, counting: {approximate: {error: 0.01, confidence: "
        "0.9}}}}\n"
        "  - {key: c, rate_limit: {unit: day, counting: exact}}\n");
    const struct weir_limit *limit = &match(rules, "d", "a=x").limits->limit;
    assert_int_equal(limit->approx->width, 1024);
    assert_int_equal(limit->approx->depth, 3);
    assert_int_equal(limit->approx->bloom_words, 2);
    assert_false(limit->count_rejected);
    assert_true(match(rules, "d", "b=x").limits->limit.approx->width >= 100);
    assert_null(match(rules, "d", "c=x").limits->limit.approx);
    weir_rules_free(rules);
    assert_refused(HEAD "  - {key: a, rate_limit: {unit: day, counting: {depth: 5}}}\n", "needs");
    assert_refused(HEAD "  - {key: a, rate_limit: {unit: day, counting: {error: 2}}}\n",
                   "between 0 and 1");
    assert_refused(HEAD "  - {key: a, rate_limit: {unit: day, algorithm: concurrency, counting: "
                        "{width: 8}}}\n",
                   "approximate counting works with");
}

static void approximate_counting_has_a_default_size(void **state)
{
    (void)state;
    static const char *const ways[] = {"approximate", "{approximate: {}}",
                                       "{approximate: {error: 0.0001, confidence: 0.99}}"};
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        char text[256];
        snprintf(text, sizeof(text), HEAD "  - {key: a, rate_limit: {unit: day, counting: %s}}\n",
                 ways[i]);
        struct weir_rules *rules = loaded(text);
        const struct weir_approx *approx = match(rules, "d", "a=x").limits->limit.approx;
        assert_non_null(approx);
        assert_int_equal(approx->width, 20000); /* 2 / error */
        assert_int_equal(approx->depth, 7);     /* 2^-7 < 1 - confidence */
        assert_int_equal(approx->bloom_words, 0);
        weir_rules_free(rules);
    }
}

static uint64_t tag_of(const char *limit)
{
    char text[256];
    snprintf(text, sizeof(text), HEAD "  - {key: k, rate_limit: {%s}}\n", limit);
    struct weir_rules *rules = loaded(text);
    uint64_t tag = match(rules, "d", "k=x").limits->limit.tag;
    weir_rules_free(rules);
    return tag;
}

static void identity_outlives_numbers_and_flags(void **state)
{
    (void)state;
    uint64_t tag = tag_of("unit: hour, requests_per_unit: 5");
    assert_int_equal(tag, tag_of("unit: hour, requests_per_unit: 6, count_rejected: false"));
    assert_int_equal(tag, tag_of("unit: minute, unit_multiplier: 60, requests_per_unit: 5"));
    assert_int_not_equal(tag, tag_of("unit: day, requests_per_unit: 5"));
    assert_int_not_equal(tag, tag_of("unit: hour, requests_per_unit: 5, name: n"));
    uint64_t bucket = tag_of("unit: hour, requests_per_unit: 5, algorithm: token_bucket");
    assert_int_not_equal(tag, bucket);
    assert_int_equal(bucket, tag_of("unit: hour, algorithm: token_bucket, burst: 9"));
    assert_int_not_equal(bucket, tag_of("unit: hour, algorithm: token_bucket, refill: interval"));
    assert_int_equal(tag, UINT64_C(0x501e37da4249d26e)); /* the same in every process and version */
}

static void ids_are_paths_or_what_the_rule_says(void **state)
{
    (void)state;
    struct weir_rules *rules = loaded(
        HEAD "  - {key: k, id: mine, metadata: {a: [1, 0x10, 2.50, ~, on, \"q\\\"\\n\"], b: {}}, "
             "rate_limit: {unit: day}}\n"
             "  - {key: k, value: v, descriptors: [{key: s, rate_limit: {unit: day}}]}\n");
    assert_string_equal(id_of(rules, "k=x"), "mine");
    assert_string_equal(id_of(rules, "k=v s=x"), "d.k_v.s");
    struct weir_str json = match(rules, "d", "k=x").rule->info.metadata;
    assert_true(
        weir_str_eq(json, WEIR_STR("{\"a\":[1,16,2.5,null,true,\"q\\\"\\u000a\"],\"b\":{}}")));
    assert_int_not_equal(weir_rules_at(rules, 0)->stats_id, weir_rules_at(rules, 1)->stats_id);
    weir_rules_free(rules);
    assert_refused(HEAD "  - {key: a, id: x, rate_limit: {unit: day}}\n"
                        "  - {key: b, id: x, rate_limit: {unit: day}}\n",
                   "rules.yaml:4:18: id 'x' is taken already, at rules.yaml:3");
}

static void statistics_are_named_as_envoyproxy_ratelimit_names_them(void **state)
{
    (void)state;
    struct weir_rules *rules = loaded(
        HEAD
        "  - {key: route, value_to_metric: true, descriptors: [{key: m, value_to_metric: true, "
        "descriptors: [{key: id, rate_limit: {unit: day}}]}]}\n"
        "  - {key: det, value: 'a*', descriptors: [{key: x, detailed_metric: true, rate_limit: "
        "{unit: day}}]}\n"
        "  - {key: sh, value: 'a*', share_threshold: true, value_to_metric: true, rate_limit: "
        "{unit: day}}\n");
    static const struct {
        const char *descriptor, *name;
    } cases[] = {{"route=draw m=GET id=7", "d.route_draw.m_GET.id"},
                 {"route= m=GET id=7", "d.route.m_GET.id"},
                 {"det=ab x=1", "d.det_ab.x_1"},
                 {"sh=ab", "d.sh_a*"},
                 {"det=a:b|c x=10.0.0.1", "d.det_a_b_c.x_10_0_0_1"},
                 {"det=a1.2.3 x=1.2.3.4567", "d.det_a1.2.3.x_1.2.3.4567"},
                 {"det=a x=1.22.333.4:80", "d.det_a.x_1_22_333_4_80"}};
    const struct weir_domain *domain = weir_rules_domain(rules, WEIR_STR("d"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct weir_entry entries[4];
        char work[64], name[64];
        uint32_t count = read_entries(cases[i].descriptor, work, entries);
        size_t len = weir_rules_stats_key(domain, entries, count, name, sizeof(name));
        assert_int_equal(len, strlen(cases[i].name));
        assert_memory_equal(name, cases[i].name, len);
        assert_int_equal(weir_rules_stats_key(domain, entries, count, name, 1), len);
    }
    weir_rules_free(rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fields_of_a_limit_reach_it),
        cmocka_unit_test(defaults_fill_what_a_limit_does_not_say),
        cmocka_unit_test(a_list_of_limits_is_all_or_nothing),
        cmocka_unit_test(limits_of_a_rule_are_counted),
        cmocka_unit_test(atomic_domains_do_not_count_refused_hits),
        cmocka_unit_test(prefix_tiers_are_counters_of_their_own),
        cmocka_unit_test(overrides_are_other_numbers_for_some_values),
        cmocka_unit_test(approximate_counting_brings_its_size),
        cmocka_unit_test(approximate_counting_has_a_default_size),
        cmocka_unit_test(identity_outlives_numbers_and_flags),
        cmocka_unit_test(ids_are_paths_or_what_the_rule_says),
        cmocka_unit_test(statistics_are_named_as_envoyproxy_ratelimit_names_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
