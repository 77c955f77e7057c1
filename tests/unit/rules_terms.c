/* What rules share (rules/terms.c): the same numbers, whatever they are called; nothing else.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "rules_rig.h"

#include "rules/tree.h"

static struct weir_rules *shared(const char *descriptors)
{
    static char text[4096];
    snprintf(text, sizeof(text), "domain: d\ndescriptors:\n%s", descriptors);
    struct weir_rules *rules = loaded(text);
    weir_rules_share(rules);
    return rules;
}

static const struct weir_terms *terms(const struct weir_rules *rules, const char *descriptor)
{
    struct weir_match m = match(rules, "d", descriptor);
    assert_non_null(m.rule);
    if (m.terms) {
        assert_int_equal(m.terms->limit.tag, m.limits->limit.tag);
        assert_int_equal(m.terms->limit.requests, m.limits->limit.requests);
        assert_int_equal(m.terms->is_shadow, m.rule->is_shadow);
        assert_int_equal(m.stat, m.rule->stat);
    }
    return m.terms;
}

static void rules_that_say_the_same_share_it(void **state)
{
    (void)state;
    struct weir_rules *rules =
        shared("- {key: a, rate_limit: {unit: day, requests_per_unit: 9}}\n"
               "- {key: b, value: c, rate_limit: {unit: day, requests_per_unit: 9}}\n"
               "- {key: more, rate_limit: {unit: day, requests_per_unit: 10}}\n"
               "- {key: shadow, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 9}}\n"
               "- {key: named, rate_limit: {unit: day, requests_per_unit: 9, name: n}}\n");
    const struct weir_terms *a = terms(rules, "a=x");
    assert_non_null(a);
    assert_ptr_equal(terms(rules, "b=c"), a);
    assert_ptr_not_equal(terms(rules, "more=x"), a);
    assert_ptr_not_equal(terms(rules, "shadow=x"), a);
    assert_ptr_not_equal(terms(rules, "named=x"), a);
    weir_rules_free(rules);
}

static void what_is_more_than_one_number_is_asked_of_the_rule(void **state)
{
    (void)state;
    struct weir_rules *rules =
        shared("- {key: none, rate_limit: {unlimited: true}}\n"
               "- {key: two, rate_limit: [{unit: day, requests_per_unit: 9},\n"
               "                          {unit: hour, requests_per_unit: 3}]}\n"
               "- {key: own, rate_limit: {unit: day, requests_per_unit: 9}, overrides: {v: 7}}\n");
    assert_null(terms(rules, "none=x"));
    assert_null(terms(rules, "two=x"));
    assert_null(terms(rules, "own=v"));
    assert_non_null(terms(rules, "own=x"));
    weir_rules_free(rules);
}

static void until_they_are_shared_there_are_none(void **state)
{
    (void)state;
    struct weir_rules *rules =
        loaded("domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 9}}]");
    assert_null(terms(rules, "a=x"));
    weir_rules_free(rules);
}

static void what_comes_after_the_maximum_is_asked_of_the_rule(void **state)
{
    (void)state;
    static char text[(WEIR_TERMS_MAX + 2) * 64];
    char descriptor[32];
    size_t len = (size_t)snprintf(text, sizeof(text), "domain: d\ndescriptors:\n");
    for (uint32_t i = 0; i <= WEIR_TERMS_MAX; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len,
                                "- {key: k%u, rate_limit: {unit: day, requests_per_unit: %u}}\n", i,
                                i + 1);
    struct weir_rules *rules = loaded(text);
    weir_rules_share(rules);
    uint32_t without = 0;
    for (uint32_t i = 0; i <= WEIR_TERMS_MAX; i++) {
        snprintf(descriptor, sizeof(descriptor), "k%u=x", i);
        without += terms(rules, descriptor) == NULL;
    }
    assert_int_equal(without, 1);
    weir_rules_free(rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_that_say_the_same_share_it),
        cmocka_unit_test(what_is_more_than_one_number_is_asked_of_the_rule),
        cmocka_unit_test(until_they_are_shared_there_are_none),
        cmocka_unit_test(what_comes_after_the_maximum_is_asked_of_the_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
