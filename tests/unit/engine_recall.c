/* engine_recall.c - requests that are like the last one are decided as any other.
 *
 * Everything is asked of two engines on the same rules: one may recall, and one is asked something
 * else before every request, which makes it forget.  Nobody can tell them apart.  The same of the
 * quickest way, wherever it leads to an answer.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "recall_rig.h"

#include <dirent.h>
#include <jansson.h>

static const char RULES[] =
    "domain: t\n"
    "descriptors:\n"
    "  - {key: generic_key, value: all, rate_limit: {unit: second, requests_per_unit: 30}}\n"
    "  - {key: remote_address, id: address, rate_limit: {unit: minute, requests_per_unit: 9, "
    "algorithm: token_bucket}}\n"
    "  - {key: user, id: shadow, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: "
    "4, algorithm: sliding_window_log}}\n"
    "  - key: path\n"
    "    value: /a/{id}\n"
    "    match: path\n"
    "    descriptors:\n"
    "      - key: user\n"
    "        id: pair\n"
    "        rate_limit:\n"
    "          - {name: short, unit: second, requests_per_unit: 3}\n"
    "          - {name: long, unit: minute, requests_per_unit: 20, algorithm: token_bucket}\n"
    "  - key: header.x\n"
    "    value: none\n"
    "    if_absent: none\n"
    "    rate_limit: {unit: minute, requests_per_unit: 50, algorithm: sliding_window_counter}\n"
    "  - {key: query.q, rate_limit: {unit: second, requests_per_unit: 5, burst: 4, algorithm: "
    "leaky_bucket}}\n";
static const char OTHER_RULES[] =
    "domain: t\n"
    "atomic: true\n"
    "descriptors:\n"
    "  - {key: user, id: shadow, rate_limit: {unit: minute, requests_per_unit: 6}}\n"
    "  - {key: remote_address, id: address, rate_limit: {unit: minute, requests_per_unit: 5, "
    "algorithm: token_bucket}}\n";

static void ask_http(struct rig *r, const char *attributes, const uint64_t *hits)
{
    (void)ask_swiftly(r, attributes, hits, NULL);
}

static void assert_same(const struct weir_decision *a, const struct weir_decision *b)
{
    assert_int_equal(a->overall, b->overall);
    assert_int_equal(a->is_denied, b->is_denied);
    assert_int_equal(a->status_count, b->status_count);
    for (uint32_t i = 0; i < a->status_count; i++) {
        const struct weir_status *s = &a->statuses[i], *t = &b->statuses[i];
        assert_int_equal(s->code, t->code);
        assert_int_equal(s->is_limited, t->is_limited);
        assert_int_equal(s->is_shadow, t->is_shadow);
        assert_int_equal(s->is_quota, t->is_quota);
        assert_int_equal(s->unit, t->unit);
        assert_int_equal(s->limit, t->limit);
        assert_int_equal(s->remaining, t->remaining);
        assert_int_equal(s->reset_after_ns, t->reset_after_ns);
        assert_int_equal(s->retry_after_ns, t->retry_after_ns);
        assert_int_equal(s->delay_ns, t->delay_ns);
        assert_int_equal(s->ticket.count, t->ticket.count);
        assert_int_equal(s->rule != NULL, t->rule != NULL);
        assert_true(!s->rule || weir_str_eq(s->rule->id, t->rule->id));
    }
}

/* ---- random requests ---- */

/* Gives a key a limit of its own, by a session that is not the one asked. */
static void give_elsewhere(struct rig *r, const struct weir_key_limit *limit)
{
    struct weir_session *other;
    assert_int_equal(weir_session_open(&other, r->w), 0);
    rig_parse(r, "t", "remote_address=192.0.2.1");
    assert_int_equal(weir_key_limit_set(other, &r->request, limit, r->now_ns), 0);
    weir_session_close(other);
}

/* Something that changes what requests come to, in both engines. */
static void meddle(struct rig *both[2], uint64_t *seed)
{
    static const char *const ids[] = {"address", "shadow", "pair"};
    uint64_t what = draw(seed, 4), which = draw(seed, 3),
             percent = 100 * draw(seed, 2); /* whom 50 would spare is another one in every table */
    bool is_other = draw(seed, 2);
    for (int i = 0; i < 2; i++) {
        struct rig *r = both[i];
        struct weir_key_limit limit = {12, which == 0, r->now_ns + RIG_SECOND};
        if (what == 0) {
            int err = weir_enforcement_set(r->w, weir_str_of(ids[which]), (uint32_t)percent);
            assert_true(err == 0 || err == WEIR_ERR_NOT_FOUND); /* of the other rules */
        } else if (what == 1) {
            give_elsewhere(r, &limit);
        } else if (what == 2) {
            rig_write(r, is_other ? OTHER_RULES : RULES);
            assert_int_equal(weir_watch_load(r->w), 1);
        }
    }
}

static void requests_alike_are_decided_as_others_are(void **state)
{
    static const char *const requests[] = {
        "remote_address=192.0.2.1",
        "remote_address=192.0.2.1 user=ann path=/a/1 query.q=x",
        "remote_address=2001:db8::1 user=bob path=/a/2",
        "user=ann header.x=y",
        "query.q=1",
        "path=/none",
    };
    const char *scale = getenv("WEIR_TEST_SCALE");
    int rounds = (int)(40000 * (scale ? atof(scale) : 1)), recalled = 0;
    struct rig *both[2] = {rig_open(RULES, NULL), rig_open(RULES, NULL)};
    uint64_t seed = 5, which = 0;
    (void)state;
    for (int i = 0; i < rounds; i++) {
        if (draw(&seed, 8) == 0)
            which = draw(&seed, sizeof(requests) / sizeof(requests[0]));
        if (draw(&seed, 200) == 0)
            meddle(both, &seed);
        uint64_t hits = draw(&seed, 3), step_ns = draw(&seed, 4) * RIG_SECOND / 7;
        bool has_hits = draw(&seed, 16) == 0;
        recalled += both[0]->s->is_recallable;
        for (int k = 0; k < 2; k++) {
            both[k]->now_ns += step_ns;
            if (k == 1)
                forget(both[k]);
            ask_http(both[k], requests[which], has_hits ? &hits : NULL);
        }
        assert_same(&both[0]->decision, &both[1]->decision);
    }
    assert_true(recalled > rounds / 4);
    static const char *const ids[] = {"address", "shadow", "pair", "generic_key_all"};
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
        assert_same_statistics(both[0], both[1], ids[i]);
    rig_close(both[0]);
    rig_close(both[1]);
}

/* Few limits, so that most requests meet one alone; the last one's count depends on the answer. */
static void the_quickest_way_leads_where_all_do(void **state)
{
    static const char rules[] =
        "domain: t\n"
        "descriptors:\n"
        "  - {key: remote_address, id: address, rate_limit: {unit: minute, requests_per_unit: 60, "
        "algorithm: token_bucket}}\n"
        "  - {key: user, id: shadow, shadow_mode: true, rate_limit: {unit: second, "
        "requests_per_unit: 7, algorithm: token_bucket}}\n"
        "  - {key: path, id: pair, rate_limit: {unit: minute, requests_per_unit: 30}}\n"
        "  - {key: host, id: counted, rate_limit: {unit: minute, requests_per_unit: 90, algorithm: "
        "token_bucket, count_if: {status: [401]}}}\n";
    static const char *const requests[] = {"remote_address=192.0.2.1",
                                           "remote_address=192.0.2.2",
                                           "user=ann",
                                           "path=/a",
                                           "host=h",
                                           "remote_address=192.0.2.1 user=ann",
                                           "scheme=none"};
    const char *scale = getenv("WEIR_TEST_SCALE");
    int rounds = (int)(40000 * (scale ? atof(scale) : 1)), swift = 0;
    struct rig *both[2] = {rig_open(rules, NULL), rig_open(rules, NULL)};
    uint64_t seed = 11, which = 0;
    (void)state;
    for (int i = 0; i < rounds; i++) {
        struct weir_told told[2];
        if (draw(&seed, 16) == 0)
            which = draw(&seed, sizeof(requests) / sizeof(requests[0]));
        if (draw(&seed, 400) == 0)
            for (int k = 0; k < 2; k++)
                give_elsewhere(both[k],
                               &(struct weir_key_limit){12, false, both[k]->now_ns + RIG_SECOND});
        uint64_t hits = draw(&seed, 3), step_ns = draw(&seed, 4) * RIG_SECOND / 3;
        bool has_hits = draw(&seed, 32) == 0;
        if (draw(&seed, 300) == 0) /* the clock goes back */
            step_ns -= draw(&seed, 100) * RIG_SECOND;
        if (draw(&seed, 4) == 0)
            (void)foresee(both[0], requests[draw(&seed, sizeof(requests) / sizeof(requests[0]))]);
        for (int k = 0; k < 2; k++) {
            both[k]->now_ns += step_ns;
            if (k == 1)
                forget(both[k]);
            swift += ask_swiftly(both[k], requests[which], has_hits ? &hits : NULL, &told[k]);
        }
        assert_told_alike(&told[0], &told[1]);
    }
    assert_true(swift > rounds / 10);
    static const char *const ids[] = {"address", "shadow", "pair", "counted"};
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
        assert_same_statistics(both[0], both[1], ids[i]);
    rig_close(both[0]);
    rig_close(both[1]);
}

/* ---- by the address alone ---- */

static const char BY_ADDRESS[] =
    "domain: t\n"
    "descriptors:\n"
    "  - {key: remote_address, id: address, rate_limit: {unit: minute, requests_per_unit: 60, "
    "algorithm: token_bucket}}\n"
    "  - {key: remote_address, value: 192.0.2.9, id: known, rate_limit: {unit: minute, "
    "requests_per_unit: 7, algorithm: token_bucket}}\n";

static bool is_taken(struct rig *r, const char *address)
{
    struct weir_told told;
    return weir_check_address_again(r->s, weir_str_of(address), r->now_ns, &told);
}

static void addresses_are_decided_as_requests_are(void **state)
{
    static const char *const requests[] = {
        "remote_address=192.0.2.1",     "remote_address=192.0.2.2",
        "remote_address=192.0.2.9",     "remote_address=2001:db8::1",
        "remote_address=2001:db8::2",   "remote_address=192.0.2.1 user=ann path=/a/1",
        "remote_address=198.51.100.77", "user=ann"};
    const char *scale = getenv("WEIR_TEST_SCALE");
    int rounds = (int)(40000 * (scale ? atof(scale) : 1)), by_address = 0;
    struct rig *both[2] = {rig_open(BY_ADDRESS, NULL), rig_open(BY_ADDRESS, NULL)};
    uint64_t seed = 23, which = 0;
    (void)state;
    for (int i = 0; i < rounds; i++) {
        struct weir_told told[2];
        if (draw(&seed, 8) == 0)
            which = draw(&seed, sizeof(requests) / sizeof(requests[0]));
        if (draw(&seed, 300) == 0)
            meddle(both, &seed);
        if (draw(&seed, 300) == 0)
            for (int k = 0; k < 2; k++) {
                rig_write(both[k], BY_ADDRESS);
                assert_int_equal(weir_watch_load(both[k]->w), 1);
            }
        uint64_t hits = draw(&seed, 3), step_ns = draw(&seed, 4) * RIG_SECOND / 3;
        bool has_hits = draw(&seed, 32) == 0;
        if (draw(&seed, 300) == 0) /* the clock goes back */
            step_ns -= draw(&seed, 100) * RIG_SECOND;
        for (int k = 0; k < 2; k++) {
            both[k]->now_ns += step_ns;
            if (k == 1)
                forget(both[k]);
            (void)ask_swiftly(both[k], requests[which], has_hits ? &hits : NULL, &told[k]);
        }
        by_address += told[0].by_address;
        assert_told_alike(&told[0], &told[1]);
    }
    assert_true(by_address > rounds / 10);
    assert_same_statistics(both[0], both[1], "address");
    rig_close(both[0]);
    rig_close(both[1]);
}

static void an_address_suffices_where_nothing_else_is_asked_for(void **state)
{
    struct rig *r = rig_open(BY_ADDRESS, NULL);
    const uint64_t two = 2;
    struct weir_told told;
    (void)state;
    assert_false(is_taken(r, "192.0.2.1")); /* nothing is known yet */
    for (int i = 0; i < 4; i++)
        (void)ask_swiftly(r, "remote_address=192.0.2.1", NULL, &told);
    assert_true(is_taken(r, "192.0.2.1"));
    assert_true(is_taken(r, "198.51.100.77"));
    assert_false(is_taken(r, "192.0.2.2")); /* as long as one that the rules know */
    assert_int_equal(stats_of(r, "address").total_hits, 6);
    for (int i = 0; i < 4; i++)
        (void)ask_swiftly(r, "remote_address=192.0.2.1", &two, &told);
    assert_false(is_taken(r, "192.0.2.1")); /* of one hit */
    while (!told.is_refused)
        (void)ask_swiftly(r, "remote_address=192.0.2.1", NULL, &told);
    uint64_t hits = stats_of(r, "address").total_hits;
    assert_false(is_taken(r, "192.0.2.1"));
    assert_int_equal(stats_of(r, "address").total_hits, hits);
    rig_write(r, RULES);
    assert_int_equal(weir_watch_load(r->w), 1);
    for (int i = 0; i < 9; i++)
        (void)ask_swiftly(r, "remote_address=192.0.2.1", NULL, &told);
    assert_false(is_taken(r, "192.0.2.1"));
    rig_close(r);
}

/* Who names no domain is told that there are two, whatever others have named. */
static void a_domain_that_another_has_named_is_not_recalled(void **state)
{
    struct rig *r = rig_open(BY_ADDRESS, NULL);
    char address[] = "remote_address=192.0.2.1", path[80];
    struct weir_http named = {.attribute = look_up, .ctx = address, .domain = WEIR_STR("t")};
    struct weir_http unnamed = {.attribute = look_up, .ctx = address};
    struct weir_options options = {.rules_path = r->dir, .table_bytes = UINT64_C(8) << 20};
    struct weir_decision decision;
    struct weir_told told;
    struct weir_session *s;
    struct weir *w;
    (void)state;
    snprintf(path, sizeof(path), "%s/other.yaml", r->dir);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs("domain: other\ndescriptors: [{key: path}]\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(weir_open(&w, &options), 0);
    assert_int_equal(weir_session_open(&s, w), 0);
    for (int i = 0; i < 5; i++)
        assert_int_equal(weir_check_http(s, &named, r->now_ns, &decision), 0);
    assert_true(weir_check_http_again(s, &named, r->now_ns, &told));
    assert_false(told.by_address);
    assert_false(weir_check_address_again(s, WEIR_STR("192.0.2.1"), r->now_ns, &told));
    assert_false(weir_check_http_again(s, &unnamed, r->now_ns, &told));
    assert_int_equal(weir_check_http(s, &unnamed, r->now_ns, &decision), WEIR_ERR_DOMAIN_EMPTY);
    weir_session_close(s);
    weir_close(w);
    assert_int_equal(unlink(path), 0);
    rig_close(r);
}

/* ---- when there is something to recall, and when not ---- */

static void ask_times_http(struct rig *r, const char *attributes, int n)
{
    while (n-- > 0)
        ask_http(r, attributes, NULL);
}

static void the_third_in_a_row_is_kept(void **state)
{
    struct rig *r = rig_open(RULES, NULL);
    (void)state;
    ask_times_http(r, "remote_address=192.0.2.1", 2);
    assert_false(r->s->is_recallable);
    ask_http(r, "remote_address=192.0.2.1", NULL);
    assert_true(r->s->is_recallable);
    ask_http(r, "remote_address=192.0.2.1", NULL);
    assert_true(r->s->is_recallable);
    ask_http(r, "remote_address=192.0.2.2", NULL); /* the first behind a row is listened to, too */
    assert_true(r->s->is_recallable);
    assert_int_equal(r->decision.statuses[1].remaining, 8);
    ask_http(r, "remote_address=192.0.2.3", NULL);
    assert_false(r->s->is_recallable);
    assert_int_equal(r->decision.statuses[1].remaining, 8);
    rig_close(r);
}

static void other_calls_and_new_rules_make_it_forget(void **state)
{
    struct rig *r = rig_open(RULES, NULL);
    (void)state;
    ask_times_http(r, "user=ann", 4);
    forget(r);
    ask_times_http(r, "user=ann", 3);
    assert_true(r->s->is_recallable);
    rig_write(r, OTHER_RULES);
    assert_int_equal(weir_watch_load(r->w), 1);
    ask_http(r, "user=ann", NULL);
    assert_int_equal(r->decision.status_count, 1);
    assert_int_equal(r->decision.statuses[0].limit, 6);
    rig_close(r);
}

/* max and max+1 of what is kept. */
static void what_is_too_long_is_not_kept(void **state)
{
    char text[WEIR_RECALL_BYTES + 32];
    struct rig *r = rig_open("domain: t\ndescriptors:\n  - {key: user, rate_limit: {unit: day, "
                             "requests_per_unit: 99}}\n",
                             NULL);
    (void)state;
    const size_t max = WEIR_RECALL_BYTES - 4; /* the key is kept, too */
    for (size_t len = max; len <= max + 1; len++) {
        memset(text, 'x', sizeof(text));
        memcpy(text, "user=", 5);
        text[5 + len] = '\0';
        ask_times_http(r, text, 5);
        assert_int_equal(r->s->is_recallable, len == max);
        assert_int_equal(r->decision.statuses[0].remaining, 99 - 5);
    }
    rig_close(r);
}

/* ---- the golden vectors ---- */

static json_t *at(json_t *list, size_t i)
{
    json_t *item = json_array_get(list, i);
    assert_non_null(item);
    return item;
}

/* is_swift: by the quickest way, where it leads.  Says whether it did. */
static bool check_line(struct rig *r, json_t *line, bool is_swift)
{
    char text[256];
    json_t *entry = at(json_object_get(at(json_object_get(line, "descriptors"), 0), "entries"), 0);
    json_t *expect = at(json_object_get(json_object_get(line, "expect"), "statuses"), 0);
    uint64_t hits = (uint64_t)json_integer_value(json_object_get(line, "hits"));
    r->now_ns = (uint64_t)json_integer_value(json_object_get(line, "t_ns"));
    snprintf(text, sizeof(text), "%s=%s", json_string_value(at(entry, 0)),
             json_string_value(at(entry, 1)));
    struct weir_told told;
    if (is_swift && ask_swiftly(r, text, &hits, &told)) {
        assert_string_equal("OK", json_string_value(json_object_get(expect, "code")));
        assert_int_equal(told.limit, json_integer_value(json_object_get(expect, "limit")));
        assert_int_equal(told.remaining, json_integer_value(json_object_get(expect, "remaining")));
        assert_int_equal(told.reset_after_ns,
                         json_integer_value(json_object_get(expect, "reset_after_ns")));
        return true;
    }
    if (!is_swift)
        ask_http(r, text, &hits);
    assert_int_equal(r->decision.status_count, 1);
    const struct weir_status *s = &r->decision.statuses[0];
    const char *code = s->code == WEIR_CODE_OK ? "OK" : "OVER_LIMIT";
    assert_string_equal(code, json_string_value(json_object_get(expect, "code")));
    assert_int_equal(s->limit, json_integer_value(json_object_get(expect, "limit")));
    assert_int_equal(s->remaining, json_integer_value(json_object_get(expect, "remaining")));
    assert_int_equal(s->reset_after_ns,
                     json_integer_value(json_object_get(expect, "reset_after_ns")));
    assert_int_equal(s->delay_ns, json_integer_value(json_object_get(expect, "delay_ns")));
    return false;
}

/* What a request's attributes can say: one descriptor of one entry, whose key no other rule has. */
static bool is_plain(json_t *line)
{
    json_t *descriptors = json_object_get(line, "descriptors");
    json_t *entries = json_object_get(json_array_get(descriptors, 0), "entries");
    const char *key = json_string_value(json_array_get(json_array_get(entries, 0), 0));
    return json_array_size(descriptors) == 1 && json_array_size(entries) == 1 &&
           json_is_integer(json_object_get(line, "hits")) && strcmp(key, "generic_key") != 0;
}

struct went {
    int lines, recalled, swiftly;
};

/* Adds to *went: nothing where the vector is not for us. */
static void check_vector(const char *path, bool is_swift, struct went *went)
{
    char rules_path[512], rules[4096] = "", line[4096];
    snprintf(rules_path, sizeof(rules_path), "%.*s.rules.yaml",
             (int)(strlen(path) - strlen(".trace.jsonl")), path);
    FILE *f = fopen(rules_path, "r");
    assert_non_null(f);
    assert_true(fread(rules, 1, sizeof(rules) - 1, f) > 0);
    fclose(f);
    struct weir_options options = {.virtual_time = true};
    struct rig *r = rig_open(rules, &options);
    f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        json_t *root = json_loads(line, 0, NULL);
        assert_non_null(root);
        bool is_ours = is_plain(root);
        if (is_ours)
            went->swiftly += check_line(r, root, is_swift);
        json_decref(root);
        if (!is_ours)
            break;
        went->recalled += r->s->is_recallable;
        went->lines++;
    }
    fclose(f);
    rig_close(r);
}

static void the_golden_vectors_come_out_the_same(void **state)
{
    char folder[256], path[512];
    struct went went = {0};
    (void)state;
    snprintf(folder, sizeof(folder), "%s/tests/vectors", getenv("WEIR_SOURCE"));
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *one; (one = readdir(dir)) != NULL;) {
        const char *end = strstr(one->d_name, ".trace.jsonl");
        if (!end)
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, one->d_name);
        check_vector(path, false, &went);
        check_vector(path, true, &went);
    }
    closedir(dir);
    assert_true(went.lines > 1000);
    assert_true(went.recalled > 100);
    assert_true(went.swiftly > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_alike_are_decided_as_others_are),
        cmocka_unit_test(the_quickest_way_leads_where_all_do),
        cmocka_unit_test(addresses_are_decided_as_requests_are),
        cmocka_unit_test(an_address_suffices_where_nothing_else_is_asked_for),
        cmocka_unit_test(a_domain_that_another_has_named_is_not_recalled),
        cmocka_unit_test(the_third_in_a_row_is_kept),
        cmocka_unit_test(other_calls_and_new_rules_make_it_forget),
        cmocka_unit_test(what_is_too_long_is_not_kept),
        cmocka_unit_test(the_golden_vectors_come_out_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
