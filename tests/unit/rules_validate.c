/* What is refused, what is warned about, and in which words.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "rules_rig.h"

#include <stdbool.h>

#define HEAD "domain: d\ndescriptors:\n"
#define LIMIT "rate_limit: {unit: hour, requests_per_unit: 9}"

static void every_error_of_envoyproxy_ratelimit_is_one_here(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "rules.yaml:1:1: config file cannot have empty domain"},
        {"---\n", "config file cannot have empty domain"},
        {"domain: ''\n", "rules.yaml:1:9: config file cannot have empty domain"},
        {"descriptors: []\n", "config file cannot have empty domain"},
        {HEAD "  - value: v\n", "rules.yaml:3:5: descriptor has empty key"},
        {HEAD "  - {key: '', " LIMIT "}\n", "descriptor has empty key"},
        {HEAD "  - {key: k, value: v}\n  - {key: k, value: v}\n",
         "rules.yaml:4:5: duplicate descriptor composite key 'd.k_v'; the first is at "
         "rules.yaml:3"},
        {HEAD "  - {key: a, value: b_c}\n  - {key: a_b, value: c}\n",
         "duplicate descriptor composite key 'd.a_b_c'"},
        {HEAD "  - {key: k, rate_limit: {unit: foo, requests_per_unit: 1}}\n",
         "rules.yaml:3:33: invalid rate limit unit 'foo'"},
        {HEAD "  - {key: k, rate_limit: {unit: unknown, requests_per_unit: 1}}\n",
         "invalid rate limit unit 'unknown'"},
        {HEAD "  - {key: k, rate_limit: {requests_per_unit: 1}}\n", "invalid rate limit unit ''"},
        {HEAD "  - {key: k, rate_limit: {unit: day, unlimited: true}}\n",
         "should not specify rate limit unit when unlimited"},
        {HEAD "  - {key: k, rate_limit: {unit: day, replaces: [{name: ''}]}}\n",
         "should not have an empty replaces entry"},
        {HEAD "  - {key: k, rate_limit: {unit: day, name: n, replaces: [{name: n}]}}\n",
         "replaces should not contain name of same descriptor"},
        {HEAD "  - {key: k, value: v, share_threshold: true, " LIMIT "}\n",
         "share_threshold can only be used with wildcard values (containing '*'), but found key "
         "'d.k_v'"},
        {HEAD "  - {key: k, metadata: {a: .nan}, " LIMIT "}\n", "error parsing metadata"},
        {"domain: d\n1: x\n", "config error, key is not of type string: 1"},
        {"domain: d\n[a]: x\n", "config error, key is not of type string"},
        {"domain: d\nfoo: x\n", "rules.yaml:2:1: config error, unknown key 'foo'"},
        {HEAD "  - a\n  - b\n",
         "rules.yaml:3:5: config error, yaml file contains list of type other than map: a; a "
         "descriptor starts with '- key:'"},
        {HEAD "  - {key: k, rate_limit: {unit: day, replaces: [n]}}\n",
         "config error, yaml file contains list of type other than map"},
        {"domain: d\ndescriptors: [\n", "not valid YAML"},
        {"a\n", "'a rules file' must be a mapping"},
        {HEAD "  - {key: k, rate_limit: {unit: day, requests_per_unit: -1}}\n",
         "'requests_per_unit' must be a number from 0 to 4294967295, not '-1'"},
        {HEAD "  - {key: k, rate_limit: {unit: day, requests_per_unit: 4294967296}}\n",
         "'requests_per_unit' must be a number from 0 to 4294967295"},
        {HEAD "  - {key: k, rate_limit: {unit: day, requests_per_unit: 5.5}}\n",
         "'requests_per_unit' must be a number"},
        {HEAD "  - {key: k, shadow_mode: maybe, " LIMIT "}\n",
         "'shadow_mode' must be true or false, not 'maybe'"},
        {HEAD "  - {key: [k], " LIMIT "}\n", "'key' must be a text, not a list"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_refused(cases[i].text, cases[i].words);
}

static void a_wrong_word_gets_a_suggestion(void **state)
{
    (void)state;
    assert_refused(HEAD "  - key: k\n    Value: x\n",
                   "rules.yaml:4:5: config error, unknown key 'Value'; did you mean 'value'?");
    assert_refused(HEAD "  - key: k\n    rate_limit: {unit: minutes, requests_per_unit: 1}\n",
                   "rules.yaml:4:24: unit 'minutes' is not known; did you mean 'minute'?");
    assert_refused(HEAD "  - {key: k, rate_limits: {}}\n", "did you mean 'rate_limit'?");
    assert_refused(HEAD "  - {key: k, rate_limit: {unit: day, algoritm: x}}\n",
                   "did you mean 'algorithm'?");
    assert_refused(HEAD "  - {key: k, rate_limit: {unit: day, algorithm: tokenbucket}}\n",
                   "algorithm 'tokenbucket' is not known; did you mean 'token_bucket'?");
    assert_refused(HEAD "  - {key: k, value: v, match: regexp}\n", "did you mean 'regex'?");
}

static void what_is_not_supported_yet_says_so(void **state)
{
    static const char *const fields[] = {"soft",     "elastic",  "priority",
                                         "schedule", "calendar", "ban"};
    char text[256], words[64];
    (void)state;
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        snprintf(text, sizeof(text), HEAD "  - {key: k, rate_limit: {unit: day, %s: x}}\n",
                 fields[i]);
        snprintf(words, sizeof(words), "'%s' is not supported yet", fields[i]);
        assert_refused(text, words);
    }
    assert_refused(HEAD "  - {key: k, over_limit: {action: delay, max: 3}, " LIMIT "}\n",
                   "not supported yet");
    assert_refused(HEAD "  - {key: k, over_limit: {action: defer, queue: q}, " LIMIT "}\n",
                   "not supported yet");
    assert_refused(HEAD "  - {key: k, overrides: {redis: users}, " LIMIT "}\n",
                   "not supported yet");
    assert_quiet("domain: d\ndefaults: {on_store_error: local}\ndescriptors:\n"
                 "  - {key: k, over_limit: {action: drop}, " LIMIT "}\n");
}

static void what_cannot_be_eventual_is_told_where_it_is_written(void **state)
{
    (void)state;
#define EVENTUAL "unit: day, requests_per_unit: 3, consistency: eventual"
    assert_refused(HEAD "  - {key: k, rate_limit: {" EVENTUAL ", algorithm: concurrency}}\n",
                   "'consistency: eventual' cannot be: slots");
    assert_refused(HEAD "  - {key: k, rate_limit: {" EVENTUAL ", scope: host}}\n",
                   "'consistency: eventual' cannot be: 'scope: host'");
    assert_refused(HEAD "  - {key: k, rate_limit: {" EVENTUAL ", counting: approximate}}\n",
                   "'consistency: eventual' cannot be: approximate");
    assert_refused("atomic: true\n" HEAD "  - {key: k, rate_limit: {" EVENTUAL "}}\n",
                   "'consistency: eventual' cannot be: the domain is atomic");
}

static void count_if_names_statuses_that_can_be_given_back(void **state)
{
#define COUNT_IF(what)                                                                             \
    HEAD "  - {key: k, rate_limit: {unit: day, requests_per_unit: 1, " what "}}\n"
    (void)state;
    assert_quiet(COUNT_IF("count_if: {status: [401, 403, 5xx]}"));
    assert_quiet(COUNT_IF("count_if: {status: 401}, algorithm: token_bucket"));
    assert_quiet(COUNT_IF("count_if: {status: [101, 200, 429, 599]}"));
    assert_warned(COUNT_IF("count_if: {status: [401, 100]}"), "no answer has status 100");
    assert_warned(COUNT_IF("count_if: {status: 199}"), "no answer has status 199");
    assert_warned(COUNT_IF("count_if: {status: 444}"), "no answer has status 444");
    assert_warned(COUNT_IF("count_if: {status: 499}"), "no answer has status 499");
    assert_refused(COUNT_IF("count_if: {}"), "needs a status");
    assert_refused(COUNT_IF("count_if: {status: []}"), "empty list");
    assert_refused(COUNT_IF("count_if: {status: [99]}"), "status");
    assert_refused(COUNT_IF("count_if: {status: [6xx]}"), "status");
    assert_refused(COUNT_IF("count_if: {statuses: [401]}"), "did you mean 'status'?");
    assert_refused(COUNT_IF("count_if: {status: [401]}, algorithm: leaky_bucket"), "given back");
    assert_refused(COUNT_IF("count_if: {status: [401]}, algorithm: concurrency"), "given back");
    assert_refused(COUNT_IF("count_if: {status: [401]}, counting: approximate"), "given back");
    assert_quiet(COUNT_IF("count_if: {status: [1xx, 2xx, 3xx, 4xx, 5xx, 400, 401, 402]}"));
    assert_refused(COUNT_IF("count_if: {status: [1xx, 2xx, 3xx, 4xx, 5xx, 400, 401, 402, 403]}"),
                   "at most 8");
}

static void all_errors_are_told_at_once_in_order(void **state)
{
    (void)state;
    assert_refused(HEAD "  - {key: k, foo: 1}\n"
                        "  - {key: k, rate_limit: {unit: x}}\n"
                        "  - {value: v}\n",
                   "rules.yaml:3:14");
    assert_int_equal(said.errors, 4);
    const char *second = strstr(said.text, "rules.yaml:4:5: duplicate");
    const char *third = strstr(said.text, "rules.yaml:5:5: descriptor has empty key");
    assert_true(second && third && second < third);
}

static void errors_beyond_the_maximum_are_counted(void **state)
{
    static char text[WEIR_REPORT_MAX * 32];
    (void)state;
    for (unsigned more = 0; more < 2; more++) {
        size_t len = (size_t)snprintf(text, sizeof(text), HEAD);
        for (unsigned i = 0; i < WEIR_REPORT_MAX + more; i++)
            len += (size_t)snprintf(text + len, sizeof(text) - len, "  - {key: k%u, x: 1}\n", i);
        assert_refused(text, "unknown key 'x'");
        assert_int_equal(said.errors, WEIR_REPORT_MAX + more);
        assert_int_equal(strstr(said.text, "and 1 more errors") != NULL, more);
    }
}

static void yaml_1_1_is_read_as_go_reads_it(void **state)
{
    (void)state;
    struct weir_rules *rules =
        loaded("---\n" HEAD "  - {key: 1, value: 0x10, rate_limit: {unit: MiNuTe, "
               "requests_per_unit: 010}}\n"
               "  - {key: k, value: yes, rate_limit: {unit: week, requests_per_unit: 1_000}}\n"
               "  - {key: k, value: 50.0.0.5, rate_limit: {unit: year, requests_per_unit: 0x10}}\n"
               "  - {key: k, value: ~, shadow_mode: on, rate_limit: {unit: month}}\n"
               "  - {key: z, rate_limit: ~, descriptors: ~, value: 2001-01-01}\n");
    assert_int_equal(said.warnings, 0);
    assert_int_equal(match(rules, "d", "1=0x10").limits->limit.requests, 8);
    assert_int_equal(match(rules, "d", "k=yes").limits->limit.requests, 1000);
    assert_int_equal(match(rules, "d", "k=50.0.0.5").limits->limit.requests, 16);
    struct weir_match m = match(rules, "d", "k=other");
    assert_int_equal(m.limits->limit.requests, 0);
    assert_int_equal(weir_limit_window_s(&m.limits->limit), 30 * 86400);
    assert_true(m.rule->is_shadow);
    weir_rules_free(rules);
}

static void scalars_of_the_wrong_type_are_refused_as_there(void **state)
{
    (void)state;
    assert_refused(HEAD "  - {key: k, value: 1.5, " LIMIT "}\n",
                   "rules.yaml:3:21: error checking config: 'value' must be a text, and 1.5 is a "
                   "number; write \"1.5\"");
    assert_refused(HEAD "  - {key: 1e3, " LIMIT "}\n", "error checking config: 'key'");
    assert_refused(HEAD "  - {key: k, value: 99999999999999999999, " LIMIT "}\n",
                   "error checking config: ");
    assert_refused(HEAD "  - {key: k, rate_limit: {unit: day, requests_per_unit: 5.0}}\n",
                   "error checking config: 'requests_per_unit' must be a number from 0 to "
                   "4294967295, not '5.0'");
    assert_refused(HEAD "  - {key: k, rate_limit: {unit: day, requests_per_unit: '5'}}\n",
                   "error loading config file: 'requests_per_unit' must be a number from 0 to "
                   "4294967295, without quotes, not '5'");
    assert_refused(HEAD "  - {key: k, shadow_mode: 'true', " LIMIT "}\n",
                   "error loading config file: 'shadow_mode' must be true or false, without "
                   "quotes, not 'true'");
    assert_refused(HEAD "  - {key: k, rate_limit: 5}\n", "error loading config file: ");
    assert_refused(HEAD "  - {key: k, descriptors: {key: l}}\n", "error loading config file: ");
    assert_refused("domain: d\ndescriptors: [\n", "error loading config file: not valid YAML: ");
}

static void what_is_surely_not_meant_is_warned_about(void **state)
{
    (void)state;
    assert_warned(HEAD "  - {key: k, unit: day, " LIMIT "}\n",
                  "rules.yaml:3:14: warning: 'unit' has no effect here; it belongs to rate_limit");
    assert_warned("domain: d\ndomain: e\n", "'domain' appears twice in one mapping");
    assert_warned("domain: d\n---\ndomain: [\n", "only the first document");
    assert_warned(HEAD "  - {key: k, value: 'a*', " LIMIT "}\n  - {key: k, value: 'ab*', " LIMIT
                       "}\n",
                  "rules.yaml:4:5: warning: this can never match: 'a*' at line 3");
    assert_warned(HEAD "  - {key: k, " LIMIT "}\n  - {key: k, value: '*', " LIMIT "}\n",
                  "rules.yaml:3:5: warning: this can never match");
    assert_warned(HEAD "  - {key: user_id, " LIMIT "}\n", "'user'");
    assert_warned(HEAD "  - {key: header.X-Key, " LIMIT "}\n", "escapes this limit");
    assert_warned(HEAD "  - {key: k, value: v, " LIMIT "}\n"
                       "  - {key: k, descriptors: [{key: s, " LIMIT "}]}\n",
                  "do not apply to this value");
    assert_warned(HEAD "  - {key: k, rate_limit: {unit: day, requests_per_unit: 10001, "
                       "algorithm: sliding_window_log}}\n",
                  "sliding_window_log");
    assert_warned(HEAD "  - {key: k, rate_limit: {unit: day, burst: 3}}\n",
                  "'burst' has no effect on fixed_window");
    assert_warned(HEAD "  - {key: k, shadow_mode: true, descriptors: [{key: s, " LIMIT "}]}\n",
                  "'shadow_mode' has no effect");
    assert_refused(HEAD "  - {key: k, algorithm: token_bucket, " LIMIT "}\n",
                   "'algorithm' cannot stand here; it belongs to rate_limit");
}

static void good_rules_are_silent(void **state)
{
    (void)state;
    assert_quiet(HEAD "  - {key: header.X-Key, if_absent: none, " LIMIT "}\n"
                      "  - {key: remote_address, descriptors: [{key: header.Y, " LIMIT "}]}\n"
                      "  - {key: k, value: 'ab*', " LIMIT "}\n"
                      "  - {key: k, value: 'a*', " LIMIT "}\n"
                      "  - {key: k, value: white}\n"
                      "  - {key: k, " LIMIT "}\n");
}

static void anchors_and_merge_keys_are_followed(void **state)
{
    (void)state;
    struct weir_rules *rules =
        loaded(HEAD "  - &a {key: k, value: a, rate_limit: &l {unit: hour, requests_per_unit: 3}}\n"
                    "  - {<<: *a, value: b, rate_limit: {requests_per_unit: 4}}\n"
                    "  - {<<: *a, value: c}\n"
                    "  - {key: k, value: d, rate_limit: *l}\n"
                    "  - {value: x, <<: [{value: e}, {key: k, value: f, rate_limit: *l}]}\n");
    assert_int_equal(match(rules, "d", "k=a").limits->limit.requests, 3);
    struct weir_match m = match(rules, "d", "k=b");
    assert_int_equal(m.limits->limit.requests, 4);
    assert_int_equal(weir_limit_window_s(&m.limits->limit), 3600);
    assert_string_equal(id_of(rules, "k=c"), "d.k_c");
    assert_string_equal(id_of(rules, "k=d"), "d.k_d");
    assert_string_equal(id_of(rules, "k=e"), "d.k_e"); /* where the merge stands, it wins */
    weir_rules_free(rules);
}

static void hostile_anchors_are_refused(void **state)
{
    char text[2048];
    size_t len = (size_t)snprintf(text, sizeof(text), "domain: d\nmetadata:\n  - &a0 [x, x]\n");
    (void)state;
    assert_refused("domain: &d [*d]\n", "anchor 'd' contains itself");
    assert_refused("domain: *d\n", "unknown anchor 'd'");
    for (int i = 1; i < 40; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "  - &a%d [*a%d, *a%d]\n", i, i - 1,
                                i - 1);
    assert_refused(text, "too many nodes once aliases are followed");
}

static void nesting_is_bounded(void **state)
{
    char text[1024];
    (void)state;
    for (unsigned more = 0; more < 2; more++) {
        size_t deep = WEIR_YAML_DEPTH_MAX - 1 + more; /* the file itself is one level */
        size_t len = (size_t)snprintf(text, sizeof(text), "domain: d\ndescriptors: ");
        memset(text + len, '[', deep);
        memset(text + len + deep, ']', deep);
        text[len + 2 * deep] = '\0';
        weir_rules_free(load(text));
        assert_int_equal(strstr(said.text, "nested too deeply") != NULL, more);
    }
}

static void lengths_and_counts_are_bounded(void **state)
{
    static char text[WEIR_VALUE_LEN_MAX + WEIR_WILDCARDS_MAX * 100];
    static const struct {
        const char *before, *after, *words;
        size_t most;
    } texts[] = {
        {"domain: ", "\n", "a domain has at most 256 bytes", WEIR_DOMAIN_LEN_MAX},
        {HEAD "  - {key: ", ", " LIMIT "}\n", "'key' has at most 256 bytes", WEIR_KEY_LEN_MAX},
        {HEAD "  - {key: k, value: ", ", " LIMIT "}\n", "'value' has at most 4096 bytes",
         WEIR_VALUE_LEN_MAX},
    };
    (void)state;
    for (size_t i = 0; i < 2 * sizeof(texts) / sizeof(texts[0]); i++) {
        size_t len = texts[i / 2].most + i % 2, before = strlen(texts[i / 2].before);
        snprintf(text, sizeof(text), "%s", texts[i / 2].before);
        memset(text + before, 'x', len);
        snprintf(text + before + len, sizeof(text) - before - len, "%s", texts[i / 2].after);
        weir_rules_free(load(text));
        assert_int_equal(strstr(said.text, texts[i / 2].words) != NULL, i % 2);
        assert_int_equal(said.errors, i % 2);
    }
    for (unsigned kind = 0; kind < 4; kind++) {
        unsigned most = (kind < 2 ? WEIR_WILDCARDS_MAX : WEIR_REGEXES_MAX) + kind % 2;
        size_t len = (size_t)snprintf(text, sizeof(text), HEAD);
        for (unsigned i = 0; i < most; i++)
            len += (size_t)snprintf(text + len, sizeof(text) - len,
                                    "  - {key: k, value: '%u%s, " LIMIT "}\n", i,
                                    kind < 2 ? "x*'" : "$', match: regex");
        weir_rules_free(load(text));
        assert_int_equal(said.errors, kind % 2);
        if (kind % 2)
            assert_said(kind < 2 ? "more than 256 wildcards" : "more than 64 regexes");
    }
}

static void descriptors_are_as_deep_as_requests(void **state)
{
    static char text[WEIR_ENTRIES_MAX * 200];
    (void)state;
    for (unsigned more = 0; more < 2; more++) {
        size_t len = (size_t)snprintf(text, sizeof(text), "domain: d\n");
        for (unsigned i = 0; i < WEIR_ENTRIES_MAX + more; i++)
            len +=
                (size_t)snprintf(text + len, sizeof(text) - len, "%*sdescriptors:\n%*s- key: k\n",
                                 (int)i * 2, "", (int)i * 2, "");
        snprintf(text + len, sizeof(text) - len, "%*s" LIMIT "\n",
                 (int)(WEIR_ENTRIES_MAX + more) * 2, "");
        weir_rules_free(load(text));
        assert_int_equal(said.errors, more);
        if (more)
            assert_said("nested more than 32 levels deep");
    }
}

static void patterns_that_are_none_are_refused_at_their_place(void **state)
{
    (void)state;
    assert_refused(HEAD "  - {key: k, value: a(b, match: regex, " LIMIT "}\n",
                   "rules.yaml:3:24: regex 'a(b' is not valid");
    assert_refused(HEAD "  - {key: k, value: 10.0.0.0/33, match: cidr, " LIMIT "}\n",
                   "an IPv4 prefix length is a number from 0 to 32");
    assert_refused(HEAD "  - {key: k, value: ten, match: cidr, " LIMIT "}\n", "10.0.0.0/8");
    assert_refused(HEAD "  - {key: k, value: '/a/{b}c', match: path, " LIMIT "}\n",
                   "rules.yaml:3:24: path pattern '/a/{b}c' is not valid: {name} must be");
    assert_refused(HEAD "  - {key: k, value: '/a/*/c', match: path, " LIMIT "}\n",
                   "* may only be the last segment");
    assert_refused(HEAD "  - {key: k, value: a, match: path, " LIMIT "}\n", "starts with /");
    assert_refused(HEAD "  - {key: k, match: cidr, " LIMIT "}\n", "'match' needs a value");
    assert_refused(HEAD "  - {key: k, value: 10.0.0.0/8, match: cidr, " LIMIT "}\n"
                        "  - {key: k, value: '::ffff:10.0.0.0/104', match: cidr, " LIMIT "}\n",
                   "this network is there twice");
    assert_refused(HEAD "  - {key: k, value: '/a/{b}', match: path, " LIMIT "}\n"
                        "  - {key: k, value: '/a/{c}', match: path, " LIMIT "}\n",
                   "matches the same as the one at line");
    assert_warned(HEAD "  - {key: k, value: 10.1.2.3/8, match: cidr, " LIMIT "}\n",
                  "bits beyond its prefix");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_error_of_envoyproxy_ratelimit_is_one_here),
        cmocka_unit_test(a_wrong_word_gets_a_suggestion),
        cmocka_unit_test(what_is_not_supported_yet_says_so),
        cmocka_unit_test(what_cannot_be_eventual_is_told_where_it_is_written),
        cmocka_unit_test(count_if_names_statuses_that_can_be_given_back),
        cmocka_unit_test(all_errors_are_told_at_once_in_order),
        cmocka_unit_test(errors_beyond_the_maximum_are_counted),
        cmocka_unit_test(yaml_1_1_is_read_as_go_reads_it),
        cmocka_unit_test(scalars_of_the_wrong_type_are_refused_as_there),
        cmocka_unit_test(what_is_surely_not_meant_is_warned_about),
        cmocka_unit_test(good_rules_are_silent),
        cmocka_unit_test(anchors_and_merge_keys_are_followed),
        cmocka_unit_test(hostile_anchors_are_refused),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(lengths_and_counts_are_bounded),
        cmocka_unit_test(descriptors_are_as_deep_as_requests),
        cmocka_unit_test(patterns_that_are_none_are_refused_at_their_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
