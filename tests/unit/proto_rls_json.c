/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "proto/rls_json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define S UINT64_C(1000000000)

static struct weir_rls_json json;
static char why[200];

static int parse(const char *text)
{
    weir_rls_json_fini(&json);
    why[0] = '\0';
    return weir_rls_json_parse(&json, weir_str_of(text), why, sizeof(why));
}

static int done(void **state)
{
    (void)state;
    weir_rls_json_fini(&json);
    return 0;
}

static void assert_str(struct weir_str got, const char *expected)
{
    assert_int_equal(got.len, strlen(expected));
    assert_memory_equal(got.ptr, expected, got.len);
}

static void a_request_is_read_in_either_case(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"domain\":\"api\",\"hitsAddend\":2,\"descriptors\":[{\"entries\":[{\"key\":\"k\","
        "\"value\":\"v\"},{\"key\":\"l\"}],\"hitsAddend\":\"18446744073709551615\","
        "\"isNegativeHits\":true,\"limit\":{\"requestsPerUnit\":5,\"unit\":\"MINUTE\"}},{}]}",
        "{\"descriptors\":[{\"is_negative_hits\":true,\"limit\":{\"unit\":2,"
        "\"requests_per_unit\":\"5\"},\"hits_addend\":\"18446744073709551615\","
        "\"entries\":[{\"value\":\"v\",\"key\":\"k\"},{\"key\":\"l\",\"value\":null}]},"
        "{\"entries\":null,\"limit\":null}],\"domain\":\"api\",\"hits_addend\":2.0}",
    };
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(parse(texts[i]), 0);
        assert_str(json.request.domain, "api");
        assert_int_equal(json.request.hits_addend, 2);
        assert_int_equal(json.request.descriptor_count, 2);
        const struct weir_descriptor *one = &json.request.descriptors[0];
        assert_int_equal(one->entry_count, 2);
        assert_str(one->entries[0].key, "k");
        assert_str(one->entries[0].value, "v");
        assert_str(one->entries[1].key, "l");
        assert_str(one->entries[1].value, "");
        assert_true(one->has_hits && one->is_negative_hits);
        assert_true(one->hits == UINT64_MAX);
        assert_int_equal(one->override->requests_per_unit, 5);
        assert_int_equal(one->override->unit, WEIR_UNIT_MINUTE);
        const struct weir_descriptor *two = &json.request.descriptors[1];
        assert_int_equal(two->entry_count, 0);
        assert_false(two->has_hits || two->is_negative_hits);
        assert_null(two->override);
    }
}

static void what_is_absent_is_left_to_the_engine(void **state)
{
    (void)state;
    assert_int_equal(parse("{}"), 0);
    assert_int_equal(json.request.domain.len, 0);
    assert_int_equal(json.request.descriptor_count, 0);
    assert_int_equal(parse("{\"descriptors\":[{\"limit\":{}}]}"), 0);
    assert_int_equal(json.request.descriptors[0].override->unit, WEIR_UNIT_UNKNOWN);
    assert_int_equal(parse("{\"descriptors\":[{\"limit\":{\"unit\":99}}]}"), 0);
    assert_int_equal(json.request.descriptors[0].override->unit, WEIR_UNIT_UNKNOWN);
    assert_int_equal(parse("{\"descriptors\":[{\"limit\":{\"unit\":7}}]}"), 0);
    assert_int_equal(json.request.descriptors[0].override->unit, WEIR_UNIT_WEEK);
}

static void any_number_of_strings_may_have_escapes(void **state)
{
    (void)state;
    static char text[3 * WEIR_RLS_JSON_SPACE];
    size_t used = 0;
    for (int i = 0; i < 30; i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s{\"key\":\"\\t%0200d\"}",
                                 i > 0 ? "," : "{\"descriptors\":[{\"entries\":[", i);
    }
    snprintf(text + used, sizeof(text) - used, "]}]}");
    assert_int_equal(parse(text), 0);
    assert_non_null(json.large);
    for (uint32_t i = 0; i < 30; i++) {
        const struct weir_entry *entry = &json.request.descriptors[0].entries[i];
        assert_int_equal(entry->key.len, 201);
        assert_int_equal(entry->key.ptr[0], '\t');
        assert_int_equal(entry->key.ptr[200], '0' + i % 10);
    }
}

static void what_is_wrong_is_refused_in_words(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        " ",
        "nonsense",
        "[]",
        "null",
        "\"text\"",
        "{} {}",
        "{",
        "{\"Domain\":\"x\"}",
        "{\"domain\":\"x\",\"domain\":\"x\"}",
        "{\"hitsAddend\":1,\"hits_addend\":1}",
        "{\"domain\":1}",
        "{\"domain\":\"x\"",
        "{\"domain\":\"x\",}",
        "{\"domain\":\"x\"}}",
        "{\"domain\":nil}",
        "{\"domain\":}",
        "{\"hitsAddend\":}",
        "{\"hitsAddend\":01}",
        "{\"hitsAddend\":1e999}",
        "{\"descriptors\":[{\"limit\":{\"unit\":}}]}",
        "{\"descriptors\":[{\"limit\":{\"unit\":1.0}}]}",
        "{\"descriptors\":[{}",
        "{\"descriptors\":[{}}",
        "{\"descriptors\":[{\"entries\":[{}}]}",
        "{\"descriptors\":[{\"isNegativeHits\":truth}]}",
        "{\"domain\":\"\xff\"}",
        "{\"hitsAddend\":-1}",
        "{\"hitsAddend\":1.5}",
        "{\"hitsAddend\":4294967296}",
        "{\"hitsAddend\":\"\"}",
        "{\"hitsAddend\":\" 1\"}",
        "{\"hitsAddend\":\"0x1\"}",
        "{\"hitsAddend\":true}",
        "{\"hitsAddend\":[1]}",
        "{\"descriptors\":{}}",
        "{\"descriptors\":[null]}",
        "{\"descriptors\":[[]]}",
        "{\"descriptors\":[{\"other\":1}]}",
        "{\"descriptors\":[{\"entries\":[null]}]}",
        "{\"descriptors\":[{\"entries\":[[\"k\",\"v\"]]}]}",
        "{\"descriptors\":[{\"entries\":[{\"key\":1}]}]}",
        "{\"descriptors\":[{\"entries\":{}}]}",
        "{\"descriptors\":[{\"hitsAddend\":\"18446744073709551616\"}]}",
        "{\"descriptors\":[{\"hitsAddend\":{\"value\":1}}]}",
        "{\"descriptors\":[{\"isNegativeHits\":1}]}",
        "{\"descriptors\":[{\"limit\":[]}]}",
        "{\"descriptors\":[{\"limit\":{\"unit\":\"minute\"}}]}",
        "{\"descriptors\":[{\"limit\":{\"unit\":true}}]}",
        "{\"descriptors\":[{\"limit\":{\"requestsPerUnit\":4294967296}}]}",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(parse(bad[i]), WEIR_ERR_INVALID);
        assert_true(why[0] != '\0');
    }
}

static int parse_many(const char *head, const char *item, int count, const char *tail)
{
    static char text[1 << 17];
    size_t used = (size_t)snprintf(text, sizeof(text), "%s", head);
    for (int i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", i > 0 ? "," : "", item);
    snprintf(text + used, sizeof(text) - used, "%s", tail);
    return parse(text);
}

static void maxima_hold(void **state)
{
    (void)state;
    assert_int_equal(parse_many("{\"descriptors\":[", "{}", WEIR_DESCRIPTORS_MAX, "]}"), 0);
    assert_int_equal(parse_many("{\"descriptors\":[", "{}", WEIR_DESCRIPTORS_MAX + 1, "]}"),
                     WEIR_ERR_TOO_LARGE);
    assert_int_equal(parse_many("{\"descriptors\":[{\"entries\":[", "{}", WEIR_ENTRIES_MAX, "]}]}"),
                     0);
    assert_int_equal(
        parse_many("{\"descriptors\":[{\"entries\":[", "{}", WEIR_ENTRIES_MAX + 1, "]}]}"),
        WEIR_ERR_TOO_LARGE);
    static char text[WEIR_VALUE_LEN_MAX + 100], value[WEIR_VALUE_LEN_MAX + 2];
    for (size_t len = WEIR_VALUE_LEN_MAX; len <= WEIR_VALUE_LEN_MAX + 1; len++) {
        memset(value, 'v', len);
        snprintf(text, sizeof(text), "{\"descriptors\":[{\"entries\":[{\"value\":\"%s\"}]}]}",
                 value);
        assert_int_equal(parse(text), len > WEIR_VALUE_LEN_MAX ? WEIR_ERR_TOO_LARGE : 0);
    }
    /* As many entries as can be, over as many descriptors. */
    char descriptor[32 * 3 + 20] = "{\"entries\":[{}";
    for (int i = 1; i < WEIR_ENTRIES_MAX; i++)
        strncat(descriptor, ",{}", sizeof(descriptor) - strlen(descriptor) - 1);
    strncat(descriptor, "]}", sizeof(descriptor) - strlen(descriptor) - 1);
    assert_int_equal(parse_many("{\"descriptors\":[", descriptor, WEIR_DESCRIPTORS_MAX, "]}"), 0);
    assert_int_equal(json.entry_count, WEIR_DESCRIPTORS_MAX * WEIR_ENTRIES_MAX);
}

static const char *answer(const struct weir_rls_options *options, struct weir_status *statuses,
                          uint32_t count, enum weir_code overall)
{
    static char out[4096];
    struct weir_text text = weir_text_in(out, sizeof(out) - 1);
    struct weir_decision decision = {
        .overall = overall, .status_count = count, .statuses = statuses};
    weir_rls_json_write(&text, options, &json.request, &decision);
    assert_false(text.has_overflowed);
    *text.at = '\0';
    return out;
}

static void answers_are_as_the_go_service_writes_them(void **state)
{
    (void)state;
    const struct weir_rls_options plain = {.has_headers = false};
    const struct weir_rule_info rule = {.name = {"a\"b", 3}};
    struct weir_status s[] = {
        {.code = WEIR_CODE_OVER_LIMIT,
         .is_limited = true,
         .unit = WEIR_UNIT_MINUTE,
         .limit = 1,
         .reset_after_ns = 36 * S + 1},
        {.code = WEIR_CODE_OK},
        {.code = WEIR_CODE_OK, .is_unlimited = true},
        {.code = WEIR_CODE_OK,
         .is_limited = true,
         .unit = WEIR_UNIT_WEEK,
         .limit = UINT64_MAX,
         .remaining = UINT64_MAX - 1,
         .reset_after_ns = S,
         .rule = &rule},
        {.code = WEIR_CODE_OVER_LIMIT, .is_limited = true, .unit = WEIR_UNIT_DAY, .limit = 0},
    };
    assert_string_equal(
        answer(&plain, s, 1, WEIR_CODE_OVER_LIMIT),
        "{\"overallCode\":\"OVER_LIMIT\",\"statuses\":[{\"code\":\"OVER_LIMIT\",\"currentLimit\":{"
        "\"requestsPerUnit\":1,\"unit\":\"MINUTE\"},\"durationUntilReset\":\"37s\"}]}");
    assert_string_equal(
        answer(&plain, s + 1, 4, WEIR_CODE_OK),
        "{\"overallCode\":\"OK\",\"statuses\":[{\"code\":\"OK\"},"
        "{\"code\":\"OK\",\"limitRemaining\":4294967295},"
        "{\"code\":\"OK\",\"currentLimit\":{\"name\":\"a\\u0022b\",\"requestsPerUnit\":4294967295,"
        "\"unit\":\"WEEK\"},\"limitRemaining\":4294967295,\"durationUntilReset\":\"1s\"},"
        "{\"code\":\"OVER_LIMIT\",\"currentLimit\":{\"unit\":\"DAY\"},\"durationUntilReset\":"
        "\"0s\"}"
        "]}");
    const struct weir_rls_options headers = {.has_headers = true,
                                             .limit_header = WEIR_STR("L"),
                                             .remaining_header = WEIR_STR("R"),
                                             .reset_header = WEIR_STR("T")};
    const char *text = answer(&headers, s, 1, WEIR_CODE_OVER_LIMIT);
    assert_string_equal(strstr(text, ",\"responseH"),
                        ",\"responseHeadersToAdd\":[{\"key\":\"L\",\"value\":\"1\"},{\"key\":\"R\","
                        "\"value\":\"0\"},"
                        "{\"key\":\"T\",\"value\":\"37\"}]}");
    assert_null(strstr(answer(&headers, s + 1, 1, WEIR_CODE_OK), "Headers"));
    const struct weir_rls_options metadata = {.has_metadata = true};
    assert_int_equal(parse("{\"domain\":\"d\",\"descriptors\":[{\"entries\":[{\"key\":\"k\","
                           "\"value\":\"v\"}]}]}"),
                     0);
    assert_string_equal(answer(&metadata, s + 1, 1, WEIR_CODE_OK),
                        "{\"overallCode\":\"OK\",\"statuses\":[{\"code\":\"OK\"}],"
                        "\"dynamicMetadata\":{\"domain\":\"d\",\"descriptors\":[{\"entries\":["
                        "\"k=v\"]}]}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_request_is_read_in_either_case, done),
        cmocka_unit_test_teardown(what_is_absent_is_left_to_the_engine, done),
        cmocka_unit_test_teardown(any_number_of_strings_may_have_escapes, done),
        cmocka_unit_test_teardown(what_is_wrong_is_refused_in_words, done),
        cmocka_unit_test_teardown(maxima_hold, done),
        cmocka_unit_test_teardown(answers_are_as_the_go_service_writes_them, done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
