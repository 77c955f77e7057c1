/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "proto/request_json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static struct weir_request_json json;
static char why[256];

static int fresh(void **state)
{
    (void)state;
    weir_request_json_init(&json);
    why[0] = '\0';
    return 0;
}

static int done(void **state)
{
    (void)state;
    weir_request_json_fini(&json);
    return 0;
}

static int parse(const char *line)
{
    return weir_request_json_parse(&json, weir_str_of(line), why, sizeof(why));
}

static void assert_str(struct weir_str got, const char *expected)
{
    assert_int_equal(got.len, strlen(expected));
    assert_memory_equal(got.ptr, expected, got.len);
}

/* A line with `count` times `item` as a list between head and tail. */
static const char *repeated(const char *head, const char *item, int count, const char *tail)
{
    static char line[1 << 16];
    size_t used = (size_t)snprintf(line, sizeof(line), "%s", head);
    for (int i = 0; i < count; i++)
        used += (size_t)snprintf(line + used, sizeof(line) - used, "%s%s", i > 0 ? "," : "", item);
    snprintf(line + used, sizeof(line) - used, "%s", tail);
    return line;
}

static void a_request_is_read_in_full(void **state)
{
    (void)state;
    assert_int_equal(parse("{\"t_ns\": 1700000040000000000, \"domain\": \"api\", \"descriptors\": ["
                           "{\"entries\": [[\"user\", \"alice\"], [\"path\", \"\"]]},"
                           "{\"entries\": [{\"key\": \"ip\", \"value\": \"::1\"}], \"hits\": 0,"
                           " \"limit\": {\"requests_per_unit\": 5, \"unit\": \"MINUTE\"}}]}"),
                     0);
    assert_int_equal(json.now_ns, UINT64_C(1700000040000000000));
    assert_str(json.request.domain, "api");
    assert_int_equal(json.request.descriptor_count, 2);

    const struct weir_descriptor *one = &json.request.descriptors[0];
    assert_int_equal(one->entry_count, 2);
    assert_str(one->entries[0].key, "user");
    assert_str(one->entries[0].value, "alice");
    assert_str(one->entries[1].value, "");
    assert_false(one->has_hits);
    assert_null(one->override);

    const struct weir_descriptor *two = &json.request.descriptors[1];
    assert_str(two->entries[0].key, "ip");
    assert_true(two->has_hits);
    assert_int_equal(two->hits, 0);
    assert_int_equal(two->override->requests_per_unit, 5);
    assert_int_equal(two->override->unit, WEIR_UNIT_MINUTE);
}

static void own_hits_go_before_the_request_s(void **state)
{
    (void)state;
    assert_int_equal(
        parse("{\"t_ns\": 1, \"domain\": \"d\", \"hits\": -3, \"descriptors\": ["
              "{\"entries\": [[\"a\", \"b\"]]}, {\"entries\": [[\"a\", \"b\"]], \"hits\": 7}]}"),
        0);
    assert_true(json.request.descriptors[0].is_negative_hits);
    assert_int_equal(json.request.descriptors[0].hits, 3);
    assert_false(json.request.descriptors[1].is_negative_hits);
    assert_int_equal(json.request.descriptors[1].hits, 7);
}

static void the_least_hits_do_not_overflow(void **state)
{
    (void)state;
    assert_int_equal(parse("{\"t_ns\": 1, \"domain\": \"d\", \"hits\": -9223372036854775808,"
                           " \"descriptors\": [{\"entries\": [[\"a\", \"b\"]]}]}"),
                     0);
    assert_true(json.request.descriptors[0].is_negative_hits);
    assert_int_equal(json.request.descriptors[0].hits, UINT64_C(1) << 63);
}

static void bytes_of_zero_are_bytes(void **state)
{
    (void)state;
    assert_int_equal(parse("{\"t_ns\": 1, \"domain\": \"d\", \"descriptors\": [{\"entries\": "
                           "[[\"a\\u0000\", \"\\u0000b\"]]}]}"),
                     0);
    assert_int_equal(json.request.descriptors[0].entries[0].key.len, 2);
    assert_memory_equal(json.request.descriptors[0].entries[0].value.ptr, "\0b", 2);
}

static void a_refusal_says_what_and_where(void **state)
{
    static const struct {
        const char *line, *said;
    } cases[] = {
        {"", "not JSON"},
        {"{\"t_ns\": 1", "not JSON"},
        {"[]", "a request must be an object"},
        {"{\"domain\": \"d\", \"descriptors\": []}", "t_ns must be a whole number"},
        {"{\"t_ns\": -1, \"domain\": \"d\"}", "t_ns must be a whole number"},
        {"{\"t_ns\": 1e30, \"domain\": \"d\"}", "t_ns must be a whole number"},
        {"{\"t_ns\": 18446744073709551616}", "too big integer"},
        {"{\"t_ns\": 1, \"domain\": 7}", "domain must be a string"},
        {"{\"t_ns\": 1, \"domain\": \"d\"}", "descriptors must be a list"},
        {"{\"t_ns\": 1, \"domain\": \"d\", \"descriptors\": [1]}", "descriptors[0]: a descriptor"},
        {"{\"t_ns\": 1, \"domain\": \"d\", \"descriptors\": [{\"entries\": []}]}",
         "descriptors[0]: entries must not be empty"},
        {"{\"t_ns\": 1, \"domain\": \"d\", \"descriptors\": [{\"entries\": [[\"k\"]]}]}",
         "descriptors[0].entries[0]: an entry must be"},
        {"{\"t_ns\": 1, \"domain\": \"d\", \"descriptors\": [{\"entries\": [[\"\", \"v\"]]}]}",
         "descriptors[0].entries[0]: the key is empty"},
        {"{\"t_ns\": 1, \"domain\": \"d\", \"hits\": 1.5, \"descriptors\": [{\"entries\": [[\"k\", "
         "\"v\"]]}]}",
         "hits must be a whole number"},
        {"{\"t_ns\": 1, \"domain\": \"d\", \"descriptors\": [{\"entries\": [[\"k\", \"v\"]], "
         "\"limit\": {}}]}",
         "limit.requests_per_unit"},
        {"{\"t_ns\": 1, \"domain\": \"d\", \"descriptors\": [{\"entries\": [[\"k\", \"v\"]], "
         "\"limit\": "
         "{\"requests_per_unit\": 1, \"unit\": \"minutes\"}}]}",
         "limit.unit must be"},
        {"{\"t_ns\": 1, \"t_ns\": 2}", "duplicate"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(parse(cases[i].line), WEIR_ERR_INVALID);
        if (strstr(why, cases[i].said) == NULL)
            fail_msg("%s: said '%s' instead of '%s'", cases[i].line, why, cases[i].said);
    }
}

static void descriptors_are_taken_up_to_the_maximum(void **state)
{
    const char *head = "{\"t_ns\": 1, \"domain\": \"d\", \"descriptors\": [";
    const char *item = "{\"entries\": [[\"k\", \"v\"]]}";
    (void)state;
    assert_int_equal(parse(repeated(head, item, WEIR_DESCRIPTORS_MAX, "]}")), 0);
    assert_int_equal(parse(repeated(head, item, WEIR_DESCRIPTORS_MAX + 1, "]}")),
                     WEIR_ERR_TOO_LARGE);
    assert_non_null(strstr(why, "65 descriptors; at most 64"));
}

static void entries_are_taken_up_to_the_maximum(void **state)
{
    const char *head = "{\"t_ns\": 1, \"domain\": \"d\", \"descriptors\": [{\"entries\": [";
    (void)state;
    assert_int_equal(parse(repeated(head, "[\"k\", \"v\"]", WEIR_ENTRIES_MAX, "]}]}")), 0);
    assert_int_equal(parse(repeated(head, "[\"k\", \"v\"]", WEIR_ENTRIES_MAX + 1, "]}]}")),
                     WEIR_ERR_TOO_LARGE);
}

/* One entry whose key and value have so many bytes. */
static int parse_lengths(size_t key_len, size_t value_len)
{
    static char line[16384];
    static char letters[8192];
    memset(letters, 'x', sizeof(letters));
    snprintf(line, sizeof(line),
             "{\"t_ns\": 1, \"domain\": \"d\", \"descriptors\": [{\"entries\": [[\"%.*s\", "
             "\"%.*s\"]]}]}",
             (int)key_len, letters, (int)value_len, letters);
    return parse(line);
}

static void keys_and_values_are_taken_up_to_the_maximum(void **state)
{
    (void)state;
    assert_int_equal(parse_lengths(WEIR_KEY_LEN_MAX, WEIR_VALUE_LEN_MAX), 0);
    assert_int_equal(parse_lengths(WEIR_KEY_LEN_MAX + 1, 1), WEIR_ERR_TOO_LARGE);
    assert_int_equal(parse_lengths(1, WEIR_VALUE_LEN_MAX + 1), WEIR_ERR_TOO_LARGE);
}

static void a_decision_is_written_as_the_vectors_show_it(void **state)
{
    static char text[WEIR_DECISION_JSON_LEN_MAX];
    struct weir_status statuses[] = {
        {.code = WEIR_CODE_OK},
        {.code = WEIR_CODE_OVER_LIMIT,
         .is_limited = true,
         .limit = 5,
         .reset_after_ns = 60,
         .retry_after_ns = WEIR_NEVER,
         .delay_ns = 0},
    };
    struct weir_decision decision = {WEIR_CODE_OVER_LIMIT, false, 2, statuses};
    const char *expected =
        "{\"overall\": \"OVER_LIMIT\", \"statuses\": [{\"code\": \"OK\"}, {\"code\": "
        "\"OVER_LIMIT\", "
        "\"limit\": 5, \"remaining\": 0, \"reset_after_ns\": 60, \"retry_after_ns\": null, "
        "\"delay_ns\": 0}]}";
    (void)state;
    size_t len = weir_decision_json_write(&decision, text);
    assert_int_equal(len, strlen(expected));
    assert_memory_equal(text, expected, len);
}

static void the_longest_decision_fits_its_maximum(void **state)
{
    static char text[WEIR_DECISION_JSON_LEN_MAX];
    static struct weir_status statuses[WEIR_DESCRIPTORS_MAX];
    (void)state;
    for (size_t i = 0; i < WEIR_DESCRIPTORS_MAX; i++)
        statuses[i] = (struct weir_status){
            .code = WEIR_CODE_OVER_LIMIT,
            .is_limited = true,
            .limit = UINT64_MAX,
            .remaining = UINT64_MAX,
            .reset_after_ns = UINT64_MAX,
            .retry_after_ns = UINT64_MAX - 1,
            .delay_ns = UINT64_MAX,
        };
    struct weir_decision decision = {WEIR_CODE_OVER_LIMIT, false, WEIR_DESCRIPTORS_MAX, statuses};
    assert_true(weir_decision_json_write(&decision, text) <= sizeof(text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_request_is_read_in_full, fresh, done),
        cmocka_unit_test_setup_teardown(own_hits_go_before_the_request_s, fresh, done),
        cmocka_unit_test_setup_teardown(the_least_hits_do_not_overflow, fresh, done),
        cmocka_unit_test_setup_teardown(bytes_of_zero_are_bytes, fresh, done),
        cmocka_unit_test_setup_teardown(a_refusal_says_what_and_where, fresh, done),
        cmocka_unit_test_setup_teardown(descriptors_are_taken_up_to_the_maximum, fresh, done),
        cmocka_unit_test_setup_teardown(entries_are_taken_up_to_the_maximum, fresh, done),
        cmocka_unit_test_setup_teardown(keys_and_values_are_taken_up_to_the_maximum, fresh, done),
        cmocka_unit_test(a_decision_is_written_as_the_vectors_show_it),
        cmocka_unit_test(the_longest_decision_fits_its_maximum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
