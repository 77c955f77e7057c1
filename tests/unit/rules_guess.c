/* Where a rule is looked for first must not matter: with a guess, and without one, the same is met.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "rules_rig.h"

#include "base/hash.h"

#define TREES 200u
#define ASKED 500u /* descriptors for each */
#define DEPTH 6u   /* deeper than guesses go */

/* No two have the same text, but (a, b) and (a_b) meet the same entries. */
static const char *const CHILDREN[] = {
    "key: a",
    "key: a, value: b",
    "key: a_b, value: c",
    "key: k, overrides: {v: 7}",
    "key: k, value: v",
    "key: k, value: 'x*'",
    "key: k, value: 'y*', share_threshold: true",
    "key: r, value: '^v+$', match: regex",
    "key: n, value: 10.0.0.0/8, match: cidr",
    "key: p, value: '/a/{b}', match: path",
};
static const char *const KEYS[] = {"a", "a_b", "k", "r", "n", "p", "z", ""};
static const char *const VALUES[] = {"",   "b",   "c",        "b_c",  "v",
                                     "xx", "y12", "10.1.2.3", "/a/q", "no rule has this"};

static uint64_t state_of_chance;

static uint32_t chance(size_t below)
{
    state_of_chance = weir_mix64(state_of_chance + UINT64_C(0x9e3779b97f4a7c15));
    return (uint32_t)(state_of_chance % below);
}

static void add(char *text, size_t size, const char *more)
{
    size_t len = strlen(text);
    assert_true(len + strlen(more) < size);
    memcpy(text + len, more, strlen(more) + 1);
}

/* One to three children, each with a limit or without, and fewer of them further down. */
static void write_level(char *text, size_t size, uint32_t depth)
{
    uint32_t first = chance(sizeof(CHILDREN) / sizeof(CHILDREN[0]));
    uint32_t count = 1 + chance(depth < 2 ? 3 : 2);
    add(text, size, "[");
    for (uint32_t i = 0; i < count; i++) {
        const char *child = CHILDREN[(first + i) % (sizeof(CHILDREN) / sizeof(CHILDREN[0]))];
        bool has_limit = strstr(child, "overrides") || chance(4) > 0;
        add(text, size, i ? ", {" : "{");
        add(text, size, child);
        if (has_limit)
            add(text, size, ", rate_limit: {unit: day, requests_per_unit: 9}");
        if (depth + 1 < DEPTH) {
            add(text, size, ", descriptors: ");
            write_level(text, size, depth + 1);
        }
        add(text, size, "}");
    }
    add(text, size, "]");
}

/* Whether it met a rule. */
static bool ask(const struct weir_domain *domain)
{
    static const struct weir_guess nothing = {.count = 0};
    struct weir_entry entries[DEPTH];
    struct weir_match guessed, plain;
    uint32_t count = 1 + chance(DEPTH);
    for (uint32_t i = 0; i < count; i++)
        entries[i] = (struct weir_entry){
            weir_str_of(KEYS[chance(sizeof(KEYS) / sizeof(KEYS[0]))]),
            weir_str_of(VALUES[chance(sizeof(VALUES) / sizeof(VALUES[0]))]),
        };
    weir_rules_match(domain, entries, count, &guessed);
    weir_rules_find(domain, entries, count, &nothing, &plain);
    weir_rules_settle(&plain);
    assert_ptr_equal(guessed.rule, plain.rule);
    assert_ptr_equal(guessed.limits, plain.limits);
    assert_ptr_equal(guessed.terms, plain.terms);
    if (!guessed.rule)
        return false;
    if (guessed.terms)
        assert_int_equal(guessed.terms->limit.tag, guessed.limits->limit.tag);
    assert_int_equal(guessed.has_shared_parts, plain.has_shared_parts);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(guessed.part[i], plain.part[i]);
    return true;
}

static void a_guess_changes_nothing(void **state)
{
    (void)state;
    static char text[1u << 20];
    uint32_t found = 0;
    for (uint32_t tree = 0; tree < TREES; tree++) {
        state_of_chance = tree;
        text[0] = '\0';
        add(text, sizeof(text), "domain: d\ndescriptors: ");
        write_level(text, sizeof(text), 0);
        struct weir_rules *rules = loaded(text);
        weir_rules_share(rules);
        const struct weir_domain *domain = weir_rules_domain(rules, WEIR_STR("d"));
        for (uint32_t i = 0; i < ASKED; i++)
            found += ask(domain);
        weir_rules_free(rules);
    }
    assert_true(found > TREES * ASKED / 100); /* else nothing was tested */
}

/* Entries that walk down the deepest chain: each guess is right, and the last levels have none. */
static void a_chain_deeper_than_guesses_is_found(void **state)
{
    (void)state;
    struct weir_rules *rules =
        loaded("domain: d\ndescriptors: [{key: a, value: b, descriptors: [{key: c, descriptors: "
               "[{key: e, value: f, descriptors: [{key: g, descriptors: [{key: h, value: i, "
               "descriptors: [{key: j, rate_limit: {unit: day}}]}]}]}]}]}]\n");
    assert_string_equal(id_of(rules, "a=b c=1 e=f g=2 h=i j=3"), "d.a_b.c.e_f.g.h_i.j");
    assert_string_equal(id_of(rules, "a=b c=1 e=f g=2 h=x j=3"), "");
    assert_string_equal(id_of(rules, "a=b c=1 e=x g=2 h=i j=3"), "");
    weir_rules_free(rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_guess_changes_nothing),
        cmocka_unit_test(a_chain_deeper_than_guesses_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
