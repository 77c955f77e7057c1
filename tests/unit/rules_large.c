/* A hundred thousand rules: all found, small, and matched without an allocation.
 *
 * Under a sanitizer, which brings its own malloc and its own memory, nothing is measured.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "count_allocations.h"
#include "rules_rig.h"

#include <unistd.h>

#define FEW 1000u
#define MANY 101000u
#define BYTES_PER_RULE_MAX 300u

/* n rules as a file has them; the caller frees. */
static char *write_rules(unsigned n)
{
    size_t size = 64 + (size_t)n * 96, len;
    char *text = malloc(size);
    assert_non_null(text);
    len = (size_t)snprintf(text, size, "domain: d\ndescriptors:\n");
    for (unsigned i = 0; i < n; i++)
        len += (size_t)snprintf(text + len, size - len,
                                "  - key: k\n    value: v%u\n"
                                "    rate_limit: {unit: minute, requests_per_unit: %u}\n",
                                i, i);
    return text;
}

static long resident_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d %ld", &pages), 1);
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

/* What a loaded set of n rules adds to the process. */
static long cost_of(unsigned n, struct weir_rules **rules)
{
    char *text = write_rules(n);
    long before = resident_bytes();
    *rules = loaded(text);
    long after = resident_bytes();
    free(text);
    return after - before;
}

static void a_hundred_thousand_rules_are_all_found(void **state)
{
    (void)state;
    char *text = write_rules(MANY);
    struct weir_rules *rules = loaded(text);
    free(text);
    assert_int_equal(said.len, 0);
    assert_int_equal(weir_rules_count(rules), MANY);
    for (unsigned i = 0; i < MANY + 10; i++) {
        char descriptor[32];
        snprintf(descriptor, sizeof(descriptor), "k=v%u", i);
        struct weir_match m = match(rules, "d", descriptor);
        assert_int_equal(m.rule != NULL, i < MANY);
        if (m.rule)
            assert_int_equal(m.limits->limit.requests, i);
    }
    weir_rules_free(rules);
}

static void a_further_simple_rule_costs_less_than_300_bytes(void **state)
{
    (void)state;
    if (!IS_COUNTED)
        skip();
    struct weir_rules *warm_up, *few, *many;
    (void)cost_of(FEW, &warm_up);
    long small = cost_of(FEW, &few);
    long large = cost_of(MANY, &many);
    long each = (large - small) / (long)(MANY - FEW);
    if (each > (long)BYTES_PER_RULE_MAX)
        print_message("%ld bytes a rule\n", each);
    assert_true(each <= (long)BYTES_PER_RULE_MAX);
    weir_rules_free(warm_up);
    weir_rules_free(few);
    weir_rules_free(many);
}

static void matching_allocates_nothing(void **state)
{
    (void)state;
    if (!IS_COUNTED)
        skip();
    struct weir_rules *rules =
        loaded("domain: d\ndescriptors:\n"
               "  - {key: k, value: '^(a|b)+c$', match: regex, rate_limit: {unit: day}}\n"
               "  - {key: k, value: 'x*y', rate_limit: {unit: day}}\n"
               "  - {key: k, value: '/a/{b}', match: path, rate_limit: {unit: day}}\n"
               "  - {key: k, value: 10.0.0.0/8, match: cidr, rate_limit: {unit: day}}\n"
               "  - {key: k, overrides: {o: 1}, rate_limit: {unit: day}}\n");
    static const char *const values[] = {"k=ababc",    "k=ababx", "k=xzy", "k=/a/q",
                                         "k=10.2.3.4", "k=o",     "k=z"};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        unsigned long before = allocations;
        assert_non_null(match(rules, "d", values[i]).rule);
        assert_int_equal(allocations, before);
    }
    weir_rules_free(rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_further_simple_rule_costs_less_than_300_bytes),
        cmocka_unit_test(a_hundred_thousand_rules_are_all_found),
        cmocka_unit_test(matching_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
