/* Requests at every maximum pass, one more is refused, and what is refused has counted nothing.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine_rig.h"

static const char RULES[] = "domain: t\n"
                            "descriptors:\n"
                            "  - key: k\n"
                            "    rate_limit: {unit: hour, requests_per_unit: 1000}\n";

static int open_rules(void **state)
{
    *state = rig_open(RULES, NULL);
    return 0;
}

static int close_rules(void **state)
{
    rig_close(*state);
    return 0;
}

static int check(struct rig *r)
{
    return weir_check(r->s, &r->request, r->now_ns, &r->decision);
}

static uint64_t used(struct rig *r)
{
    ask(r, "t", "k=v +0");
    return 1000 - r->statuses[0].remaining;
}

static void an_empty_domain_and_an_empty_list_are_errors(void **state)
{
    struct rig *r = *state;
    rig_parse(r, "", "k=v");
    assert_int_equal(check(r), WEIR_ERR_DOMAIN_EMPTY);
    rig_parse(r, "t", "k=v");
    r->request.descriptor_count = 0;
    assert_int_equal(check(r), WEIR_ERR_DESCRIPTORS_EMPTY);
    assert_string_equal(weir_strerror(check(r)), "rate limit descriptor list must not be empty");
    assert_int_equal(used(r), 0);
}

static void descriptors_up_to_64_and_not_65(void **state)
{
    struct rig *r = *state;
    struct weir_entry entry = {WEIR_STR("k"), WEIR_STR("v")};
    for (int i = 0; i <= WEIR_DESCRIPTORS_MAX; i++)
        r->descriptors[i] = (struct weir_descriptor){.entries = &entry, .entry_count = 1};
    r->request = (struct weir_request){WEIR_STR("t"), r->descriptors, WEIR_DESCRIPTORS_MAX + 1, 1};
    assert_int_equal(check(r), WEIR_ERR_TOO_LARGE);
    r->request.descriptor_count = WEIR_DESCRIPTORS_MAX;
    assert_int_equal(check(r), 0);
    assert_int_equal(r->decision.status_count, WEIR_DESCRIPTORS_MAX);
    assert_int_equal(r->statuses[WEIR_DESCRIPTORS_MAX - 1].remaining, 1000 - WEIR_DESCRIPTORS_MAX);
    assert_int_equal(used(r), WEIR_DESCRIPTORS_MAX);
}

static void entries_up_to_32_and_not_33(void **state)
{
    struct rig *r = *state;
    struct weir_entry entries[WEIR_ENTRIES_MAX + 1];
    for (int i = 0; i <= WEIR_ENTRIES_MAX; i++)
        entries[i] = (struct weir_entry){WEIR_STR("k"), WEIR_STR("v")};
    struct weir_descriptor d[] = {{.entries = entries, .entry_count = 1},
                                  {.entries = entries, .entry_count = WEIR_ENTRIES_MAX + 1}};
    r->request = (struct weir_request){WEIR_STR("t"), d, 2, 1};
    assert_int_equal(check(r), WEIR_ERR_TOO_LARGE);
    assert_int_equal(used(r), 0);
    d[1].entry_count = WEIR_ENTRIES_MAX;
    r->request = (struct weir_request){WEIR_STR("t"), d, 2, 1};
    assert_int_equal(check(r), 0);
    assert_int_equal(used(r), 1);
}

static void keys_and_values_and_domains_up_to_their_length_and_not_beyond(void **state)
{
    struct rig *r = *state;
    char *bytes = calloc(1, WEIR_VALUE_LEN_MAX + 1);
    memset(bytes, 'x', WEIR_VALUE_LEN_MAX + 1);
    const struct {
        size_t domain, key, value;
        int err;
    } cases[] = {
        {1, 1, WEIR_VALUE_LEN_MAX, 0},
        {1, 1, WEIR_VALUE_LEN_MAX + 1, WEIR_ERR_TOO_LARGE},
        {1, WEIR_KEY_LEN_MAX, 0, 0},
        {1, WEIR_KEY_LEN_MAX + 1, 0, WEIR_ERR_TOO_LARGE},
        {1, 0, 0, 0},
        {WEIR_DOMAIN_LEN_MAX, 1, 1, 0},
        {WEIR_DOMAIN_LEN_MAX + 1, 1, 1, WEIR_ERR_TOO_LARGE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct weir_entry entry = {{bytes, cases[i].key}, {bytes, cases[i].value}};
        struct weir_descriptor d = {.entries = &entry, .entry_count = 1};
        struct weir_str domain =
            cases[i].domain == 1 ? WEIR_STR("t") : (struct weir_str){bytes, cases[i].domain};
        r->request = (struct weir_request){domain, &d, 1, 1};
        assert_int_equal(check(r), cases[i].err);
    }
    struct weir_entry longest = {WEIR_STR("k"), {bytes, WEIR_VALUE_LEN_MAX}};
    struct weir_descriptor d = {.entries = &longest, .entry_count = 1};
    r->request = (struct weir_request){WEIR_STR("t"), &d, 1, 1};
    assert_int_equal(check(r), 0);
    assert_status(r, 0, WEIR_CODE_OK, 1000, 999);
    free(bytes);
}

static void a_limit_in_the_request_without_a_unit_is_an_error_and_counts_nothing(void **state)
{
    struct rig *r = *state;
    struct weir_override bad = {1, WEIR_UNIT_UNKNOWN};
    for (int unit = -1; unit <= WEIR_UNIT_WEEK + 1; unit++) {
        bool is_unit = unit >= WEIR_UNIT_SECOND && unit <= WEIR_UNIT_WEEK;
        rig_parse(r, "t", "k=v; other=x");
        bad.unit = (enum weir_unit)unit;
        r->descriptors[0].has_hits = true; /* a look, so that only errors could count */
        r->descriptors[1].override = &bad;
        assert_int_equal(check(r), is_unit ? 0 : WEIR_ERR_OVERRIDE_UNIT);
    }
    assert_int_equal(used(r), 0);
}

static void more_hits_than_any_limit_are_refused_for_good(void **state)
{
    struct rig *r = *state;
    rig_parse(r, "t", "k=huge");
    r->descriptors[0].has_hits = true;
    r->descriptors[0].hits = UINT64_MAX;
    assert_int_equal(check(r), 0);
    assert_int_equal(r->decision.overall, WEIR_CODE_OVER_LIMIT);
    assert_int_equal(r->statuses[0].retry_after_ns, WEIR_NEVER);
    r->descriptors[0].is_negative_hits = true;
    assert_int_equal(check(r), 0);
    assert_int_equal(r->decision.overall, WEIR_CODE_OK);
}

static void without_rules_nothing_is_limited(void **state)
{
    struct rig *r = *state;
    struct weir_options o = {.table_bytes = UINT64_C(4) << 20};
    struct weir *w;
    struct weir_session *s;
    int timeout_ms;
    assert_int_equal(weir_open(&w, &o), 0);
    assert_int_equal(weir_session_open(&s, w), 0);
    rig_parse(r, "t", "k=v");
    assert_int_equal(weir_check(s, &r->request, weir_now(w), &r->decision), 0);
    assert_bare(r, 0);
    assert_int_equal(weir_watch_fd(w), -1);
    assert_int_equal(weir_watch_step(w, &timeout_ms), 0);
    assert_true(timeout_ms > 0);
    weir_session_close(s);
    weir_close(w);
    weir_close(NULL);
    weir_session_close(NULL);
}

static void what_cannot_be_opened_says_why(void **state)
{
    (void)state;
    struct rig r = {0};
    struct weir *w = NULL;
    struct weir_options o = {.rules_path = "no/such/rules.yaml", .log = rig_log, .log_ctx = &r};
    assert_int_not_equal(weir_open(&w, &o), 0);
    assert_non_null(strstr(r.log, "no/such/rules.yaml"));
    r.log[0] = '\0';
    o = (struct weir_options){.table_path = "no/such/folder/t", .log = rig_log, .log_ctx = &r};
    assert_int_not_equal(weir_open(&w, &o), 0);
    assert_non_null(strstr(r.log, "no/such/folder"));
    assert_null(w);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, open_rules, close_rules)
    const struct CMUnitTest tests[] = {
        T(an_empty_domain_and_an_empty_list_are_errors),
        T(descriptors_up_to_64_and_not_65),
        T(entries_up_to_32_and_not_33),
        T(keys_and_values_and_domains_up_to_their_length_and_not_beyond),
        T(a_limit_in_the_request_without_a_unit_is_an_error_and_counts_nothing),
        T(more_hits_than_any_limit_are_refused_for_good),
        T(without_rules_nothing_is_limited),
        cmocka_unit_test(what_cannot_be_opened_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
