/* engine_top.c - who asks most: exact where little is asked, about right where much is.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine_rig.h"

static const char RULES[] = "domain: t\n"
                            "descriptors:\n"
                            "  - {key: k, rate_limit: {unit: day, requests_per_unit: 100}}\n"
                            "  - {key: other, rate_limit: {unit: day, requests_per_unit: 9}}\n"
                            "  - {key: free, rate_limit: {unlimited: true}}\n";

#define MINUTE (60 * RIG_SECOND)

struct row {
    char domain[16], key[16], value[256], rule[16];
    uint64_t hits, over_limit;
    bool is_cut;
};

struct list {
    struct row rows[WEIR_TOP_KEYS_MAX];
    uint32_t count;
};

static void copy(char *to, size_t room, struct weir_str text)
{
    snprintf(to, room, "%.*s", WEIR_STR_ARG(text));
}

static void see(void *ctx, const struct weir_top_key *one)
{
    struct list *list = ctx;
    struct row *row = &list->rows[list->count++];
    assert_true(list->count <= WEIR_TOP_KEYS_MAX);
    *row =
        (struct row){.hits = one->hits, .over_limit = one->over_limit, .is_cut = one->key->is_cut};
    copy(row->domain, sizeof(row->domain), one->key->domain);
    copy(row->rule, sizeof(row->rule), one->rule_id);
    if (one->key->entry_count > 0) {
        copy(row->key, sizeof(row->key), one->key->entries[0].key);
        copy(row->value, sizeof(row->value), one->key->entries[0].value);
    }
    assert_true(list->count == 1 || row->hits <= row[-1].hits);
}

static const struct list *top(struct rig *r)
{
    static struct list list;
    list.count = 0;
    weir_top_each(r->w, r->now_ns, see, &list);
    return &list;
}

/* Asks so slowly that everything is told. */
static void ask_slowly(struct rig *r, const char *text, int times)
{
    for (int i = 0; i < times; i++, r->now_ns += 100000)
        (void)ask(r, "t", text);
}

static void a_quiet_service_tells_everything(void **state)
{
    struct rig *r = rig_open(RULES, NULL);
    (void)state;
    assert_int_equal(top(r)->count, 0);
    ask_slowly(r, "k=a", 30);
    ask_slowly(r, "other=b", 12);
    ask_slowly(r, "k=c +5", 2);
    ask_slowly(r, "free=d; nobody=e; k=f +0; k=g -1", 5); /* nothing, looks, gives back */
    const struct list *list = top(r);
    assert_int_equal(list->count, 3);
    assert_string_equal(list->rows[0].value, "a");
    assert_string_equal(list->rows[0].key, "k");
    assert_string_equal(list->rows[0].domain, "t");
    assert_string_equal(list->rows[0].rule, "t.k");
    assert_int_equal(list->rows[0].hits, 30);
    assert_int_equal(list->rows[0].over_limit, 0);
    assert_string_equal(list->rows[1].value, "b");
    assert_int_equal(list->rows[1].hits, 12);
    assert_int_equal(list->rows[1].over_limit, 3);
    assert_int_equal(list->rows[2].hits, 10);
    rig_close(r);
}

static void what_is_long_ago_is_forgotten(void **state)
{
    struct rig *r = rig_open(RULES, NULL);
    (void)state;
    ask_slowly(r, "k=a", 60); /* at the beginning of a minute */
    r->now_ns = RIG_START_NS + MINUTE + MINUTE / 2;
    assert_in_range(top(r)->rows[0].hits, 29, 31); /* half of that minute has left the last 60 s */
    ask_slowly(r, "k=b", 40);
    assert_string_equal(top(r)->rows[0].value, "b");
    r->now_ns = RIG_START_NS + 3 * MINUTE;
    assert_int_equal(top(r)->count, 0);
    rig_close(r);
}

/* One of ten asks for a twentieth each; the other half are keys that come once. */
static void a_flood_does_not_hide_who_asks_most(void **state)
{
    enum { HEAVY = 10, DECISIONS = 400000 };
    struct weir_options options = {.table_bytes = UINT64_C(32) << 20};
    struct rig *r = rig_open(RULES, &options);
    char text[32];
    (void)state;
    for (int i = 0; i < DECISIONS; i++) {
        int heavy = i % (2 * HEAVY);
        snprintf(text, sizeof(text), heavy < HEAVY ? "k=heavy%d" : "k=%d",
                 heavy < HEAVY ? heavy : i);
        (void)ask(r, "t", text); /* at one instant: as fast as can be */
    }
    const struct list *list = top(r);
    for (uint32_t i = 0; i < HEAVY; i++) {
        assert_true(strncmp(list->rows[i].value, "heavy", 5) == 0);
        assert_in_range(list->rows[i].hits, DECISIONS / 2 / HEAVY / 2, DECISIONS / 2 / HEAVY * 2);
        assert_true(list->rows[i].over_limit > list->rows[i].hits / 2);
    }
    assert_true(list->rows[HEAVY].hits < list->rows[HEAVY - 1].hits / 2);
    rig_close(r);
}

static void keys_that_come_with_their_limit_are_listed_too(void **state)
{
    struct rig *r = rig_open(RULES, NULL);
    struct weir_throttle throttle = {WEIR_STR("user:1"), 5, 5, 60, 1};
    struct weir_throttled out;
    (void)state;
    for (int i = 0; i < 8; i++)
        assert_int_equal(weir_throttle(r->s, &throttle, r->now_ns += 100000, &out), 0);
    const struct list *list = top(r);
    assert_int_equal(list->count, 1);
    assert_string_equal(list->rows[0].domain, "CL.THROTTLE");
    assert_string_equal(list->rows[0].value, "user:1");
    assert_int_equal(list->rows[0].hits, 8);
    assert_int_equal(list->rows[0].over_limit, 3);
    rig_close(r);
}

static void long_keys_are_cut_with_a_mark(void **state)
{
    struct rig *r = rig_open(RULES, NULL);
    char text[400] = "k=";
    (void)state;
    memset(text + 2, 'x', 300);
    ask_slowly(r, text, 1);
    assert_true(top(r)->rows[0].is_cut);
    assert_in_range(strlen(top(r)->rows[0].value), 100, 176);
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quiet_service_tells_everything),
        cmocka_unit_test(what_is_long_ago_is_forgotten),
        cmocka_unit_test(a_flood_does_not_hide_who_asks_most),
        cmocka_unit_test(keys_that_come_with_their_limit_are_listed_too),
        cmocka_unit_test(long_keys_are_cut_with_a_mark),
    };
    return cmocka_run_group_tests_name("engine_top", tests, NULL, NULL);
}
