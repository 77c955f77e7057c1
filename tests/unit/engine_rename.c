/* engine_rename.c - a request that differs from the last one in what names its counter alone is
 * decided as any other, though it has the last one's plan.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "recall_rig.h"

static const char RULES[] =
    "domain: t\n"
    "descriptors:\n"
    "  - {key: user, id: user, rate_limit: {unit: minute, requests_per_unit: 9, algorithm: "
    "token_bucket}}\n"
    "  - {key: user, value: vip, id: vip, rate_limit: {unit: minute, requests_per_unit: 99}}\n"
    "  - {key: user_name, id: name, rate_limit: {unit: hour, requests_per_unit: 70}}\n"
    "  - {key: remote_address, id: address, rate_limit: {unit: minute, requests_per_unit: 20, "
    "algorithm: token_bucket}}\n"
    "  - key: generic_key\n"
    "    value: all\n"
    "    descriptors:\n"
    "      - key: query.two\n"
    "        id: two\n"
    "        rate_limit:\n"
    "          - {name: a, unit: second, requests_per_unit: 2}\n"
    "          - {name: b, unit: minute, requests_per_unit: 9, algorithm: leaky_bucket}\n"
    "  - {key: query.by, id: by, overrides: {acme: 600}, rate_limit: {unit: minute, "
    "requests_per_unit: 3}}\n"
    "  - {key: query.seen, id: seen, detailed_metric: true, rate_limit: {unit: minute, "
    "requests_per_unit: 7, algorithm: token_bucket}}\n"
    "  - key: generic_key\n"
    "    value: wild\n"
    "    descriptors:\n"
    "      - {key: query.wild, id: wild, rate_limit: {unit: minute, requests_per_unit: 8, "
    "algorithm: token_bucket}}\n"
    "      - {key: query.wild, value: xxx*, id: star, rate_limit: {unit: minute, "
    "requests_per_unit: 8, algorithm: token_bucket}}\n"
    "  - key: generic_key\n"
    "    value: deep\n"
    "    descriptors:\n"
    "      - key: path\n"
    "        value: /a/{id}\n"
    "        match: path\n"
    "        descriptors:\n"
    "          - {key: query.deep, id: deep, rate_limit: {unit: minute, requests_per_unit: "
    "8}}\n";

/* Of all names with values in them. */
static void assert_same_value_statistics(struct rig *a, struct rig *b)
{
    const struct weir_hash_key *secret = weir_table_hash_key(b->w->table);
    int count = 0;
    for (uint32_t i = 0; i < WEIR_VALUE_PLACES; i++) {
        const struct weir_value_stat *x = weir_value_stats_at(a->w->values, i);
        if (!x)
            continue;
        struct weir_value_stat *y = weir_value_stats_named(
            b->w->values, secret, (struct weir_str){.ptr = x->name, .len = x->len});
        for (int k = 0; k < WEIR_COUNTERS; k++)
            assert_int_equal(x->counts[k], y->counts[k]);
        count++;
    }
    assert_true(count > 10);
}

/* Most are like others; some the rules know, by their words, by a text that means another entry, by
 * number; one is an address that is cut. */
static void draw_value(uint64_t *seed, char *out, size_t size)
{
    static const char *const known[] = {"", "vip", "name", "acme", "192.0.2.7", "2001:db8:0:1::7"};
    uint64_t which = draw(seed, 40);
    size_t len = which == 39 ? 700 : draw(seed, 24);
    if (which < sizeof(known) / sizeof(known[0])) {
        snprintf(out, size, "%s", known[which]);
        return;
    }
    assert_true(len + 4 < size);
    memset(out, 'x', len);
    snprintf(out + len, size - len, "%d", (int)draw(seed, 50));
}

static void another_value_is_decided_as_any_other(void **state)
{
    static const char *const keys[] = {"user",     "remote_address",      "query.two",
                                       "query.by", "query.seen",          "query.wild",
                                       "user",     "path=/a/1 query.deep"};
    static const char *const ids[] = {"user", "vip", "name", "address",
                                      "two",  "by",  "seen", "deep"};
    const char *scale = getenv("WEIR_TEST_SCALE");
    int rounds = (int)(60000 * (scale ? atof(scale) : 1)), swift = 0;
    struct rig *both[2] = {rig_open(RULES, NULL), rig_open(RULES, NULL)};
    uint64_t seed = 17, which = 0;
    (void)state;
    for (int i = 0; i < rounds; i++) {
        char value[1000], text[1100];
        struct weir_told told[2];
        if (draw(&seed, 16) == 0)
            which = draw(&seed, sizeof(keys) / sizeof(keys[0]));
        draw_value(&seed, value, sizeof(value));
        snprintf(text, sizeof(text), "%s=%s", keys[which], value);
        uint64_t step_ns = draw(&seed, 4) * RIG_SECOND / 7;
        if (draw(&seed, 2) == 0)
            (void)foresee(both[0], text);
        if (draw(&seed, 8) == 0)
            (void)foresee(both[0],
                          "user=somebody query.two=who query.seen=never path=/a/1 query.deep=c");
        for (int k = 0; k < 2; k++) {
            both[k]->now_ns += step_ns;
            if (k == 1)
                forget(both[k]);
            swift += ask_swiftly(both[k], text, NULL, &told[k]);
        }
        assert_told_alike(&told[0], &told[1]);
    }
    assert_true(swift > rounds / 10);
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
        assert_same_statistics(both[0], both[1], ids[i]);
    assert_same_value_statistics(both[0], both[1]);
    rig_close(both[0]);
    rig_close(both[1]);
}

static void it_is_known_who_comes_with_another_key(void **state)
{
    struct rig *r = rig_open(RULES, NULL);
    struct weir_told told;
    char text[32];
    (void)state;
    for (int i = 0; i < 5; i++) {
        snprintf(text, sizeof(text), "user=%d", i);
        (void)ask_swiftly(r, text, NULL, &told);
    }
    assert_true(told.foretell);
    assert_true(foresee(r, "user=5"));
    assert_true(ask_swiftly(r, "user=5", NULL, &told));
    assert_true(told.foretell);
    assert_int_equal(told.remaining, 8);
    assert_false(foresee(r, "user=5")); /* as the last one was */
    assert_true(ask_swiftly(r, "user=5", NULL, &told));
    assert_false(told.foretell);
    assert_int_equal(told.remaining, 7);
    assert_true(ask_swiftly(r, "user=6", NULL, &told));
    assert_true(told.foretell);
    assert_int_equal(told.remaining, 8);
    assert_false(foresee(r, "remote_address=192.0.2.1")); /* other rules: nothing is known */
    rig_close(r);
}

struct seen {
    char value;
    uint64_t hits;
};

static void see(void *ctx, const struct weir_top_key *one)
{
    struct seen *seen = ctx;
    assert_int_equal(one->key->entry_count, 1);
    assert_int_equal(one->key->entries[0].value.len, 1);
    if (one->key->entries[0].value.ptr[0] == seen->value)
        seen->hits = one->hits;
}

/* Seldom enough for each to be told. */
static void busy_keys_have_their_own_words(void **state)
{
    struct rig *r = rig_open("domain: t\ndescriptors:\n  - {key: user, rate_limit: {unit: day, "
                             "requests_per_unit: 99, algorithm: token_bucket}}\n",
                             NULL);
    int swift = 0;
    (void)state;
    for (int i = 0; i < 60; i++) {
        struct weir_told told;
        char text[] = "user=a";
        text[5] = (char)('a' + (i % 6 < 3 ? 0 : i % 3));
        r->now_ns += RIG_SECOND / 1000;
        swift += ask_swiftly(r, text, NULL, &told);
    }
    assert_true(swift > 50);
    for (char c = 'a'; c <= 'c'; c++) {
        struct seen seen = {.value = c};
        weir_top_each(r->w, r->now_ns, see, &seen);
        assert_int_equal(seen.hits, c == 'a' ? 40 : 10);
    }
    rig_close(r);
}

/* max and max+1 of what a value may have. */
static void a_value_that_is_too_long_is_told(void **state)
{
    static char text[WEIR_VALUE_LEN_MAX + 8];
    struct rig *r = rig_open("domain: t\ndescriptors:\n  - {key: user, rate_limit: {unit: day, "
                             "requests_per_unit: 99, algorithm: token_bucket}}\n",
                             NULL);
    struct weir_http http = {.attribute = look_up, .ctx = text};
    struct weir_told told;
    (void)state;
    for (size_t len = WEIR_VALUE_LEN_MAX; len <= WEIR_VALUE_LEN_MAX + 1; len++) {
        for (const char *before = "abcd"; *before; before++) {
            snprintf(text, sizeof(text), "user=%c", *before);
            (void)ask_swiftly(r, text, NULL, &told);
        }
        assert_true(r->s->is_recallable);
        memset(text + 5, 'x', len);
        text[5 + len] = '\0';
        assert_false(weir_check_http_again(r->s, &http, r->now_ns, &told));
        assert_int_equal(weir_check_http(r->s, &http, r->now_ns, &r->decision),
                         len > WEIR_VALUE_LEN_MAX ? WEIR_ERR_TOO_LARGE : 0);
    }
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_value_is_decided_as_any_other),
        cmocka_unit_test(it_is_known_who_comes_with_another_key),
        cmocka_unit_test(busy_keys_have_their_own_words),
        cmocka_unit_test(a_value_that_is_too_long_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
