/* JSON, read step by step: what RFC 8259 allows, and nothing else.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "proto/json_read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static char space[256];

/* The string that the text is, to its end; ptr is NULL where it is none. */
static struct weir_str string_of(struct weir_str text)
{
    struct weir_json json = weir_json_of(text, space, sizeof(space));
    struct weir_str out;
    if (!weir_json_string(&json, &out) || !weir_json_end(&json)) {
        assert_non_null(json.fault);
        return (struct weir_str){.ptr = NULL};
    }
    return out;
}

static void strings_are_written_out(void **state)
{
    (void)state;
    const struct {
        struct weir_str text, value;
    } cases[] = {
        {WEIR_STR("\"\""), WEIR_STR("")},
        {WEIR_STR(" \t\r\n\"plain\" "), WEIR_STR("plain")},
        {WEIR_STR("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\""), WEIR_STR("\"\\/\b\f\n\r\t")},
        {WEIR_STR("\"a\\u0041\\u00e9\\u20AC\\ud83D\\uDE00z\""),
         WEIR_STR("aA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z")},
        {WEIR_STR("\"\\u0000\""), WEIR_STR("\0")},
        {WEIR_STR("\"\xc3\xa9\\n\xe2\x82\xac\""), WEIR_STR("\xc3\xa9\n\xe2\x82\xac")},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct weir_str got = string_of(cases[i].text);
        assert_int_equal(got.len, cases[i].value.len);
        assert_memory_equal(got.ptr, cases[i].value.ptr, got.len);
    }
}

static void strings_that_are_none_are_refused(void **state)
{
    (void)state;
    const struct weir_str bad[] = {
        WEIR_STR(""),
        WEIR_STR("\""),
        WEIR_STR("\"a"),
        WEIR_STR("\"a\\\""),
        WEIR_STR("\"\\"),
        WEIR_STR("\"\\x\""),
        WEIR_STR("\"\\u12\""),
        WEIR_STR("\"\\u12g4\""),
        WEIR_STR("\"\\ud800\""),
        WEIR_STR("\"\\ud800\\u0041\""),
        WEIR_STR("\"\\udc00\\ud800\""),
        WEIR_STR("\"\\ud800\\"),
        WEIR_STR("\"a\nb\""),
        WEIR_STR("\"\\n\nb\""),
        WEIR_STR("\"\0\""),
        WEIR_STR("\"\xff\""),
        WEIR_STR("\"\\n\xff\""),
        WEIR_STR("\"\xed\xa0\x80\""),
        WEIR_STR("\"a\" b"),
        WEIR_STR("'a'"),
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_null(string_of(bad[i]).ptr);
    assert_null(string_of((struct weir_str){.ptr = NULL, .len = 0}).ptr);
}

static void escapes_need_as_much_space_as_they_are_long(void **state)
{
    (void)state;
    struct weir_str text = WEIR_STR("\"12\\n45\""), out;
    for (size_t len = 5; len <= 6; len++) {
        struct weir_json json = weir_json_of(text, space, len);
        assert_int_equal(weir_json_string(&json, &out), len == 6);
        assert_int_equal(json.is_short_of_space, len < 6);
    }
}

static bool is_number(const char *text)
{
    struct weir_json json = weir_json_of(weir_str_of(text), space, sizeof(space));
    struct weir_str out;
    return weir_json_kind(&json) == WEIR_JSON_NUMBER && weir_json_number(&json, &out) &&
           weir_json_end(&json) && out.len == strlen(text);
}

static void numbers_are_what_the_grammar_says(void **state)
{
    (void)state;
    static const char *const good[] = {"0",   "-0",  "7",    "10",     "-12",
                                       "0.5", "1e3", "1E+3", "2.50e-7"};
    static const char *const bad[] = {"-",   "01", "1.",  ".5",  "1e",
                                      "1e+", "+1", "0x1", "1 2", "--1"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(is_number(good[i]));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(is_number(bad[i]));
}

/* A list of words: how many; -1 where it is none. */
static int words_in(const char *text)
{
    struct weir_json json = weir_json_of(weir_str_of(text), space, sizeof(space));
    int count = 0;
    for (bool more = weir_json_open(&json, '['); more; more = weir_json_more(&json, ']')) {
        enum weir_json_kind kind = weir_json_kind(&json);
        if (kind < WEIR_JSON_TRUE || !weir_json_word(&json))
            return -1;
        count++;
    }
    return weir_json_end(&json) ? count : -1;
}

static void lists_have_commas_between_and_nowhere_else(void **state)
{
    (void)state;
    assert_int_equal(words_in("[]"), 0);
    assert_int_equal(words_in(" [ ] "), 0);
    assert_int_equal(words_in("[true]"), 1);
    assert_int_equal(words_in("[ true , false,null ]"), 3);
    static const char *const bad[] = {
        "",       "[",       "]",     "[true", "[true,", "[true,]", "[,true]", "[true false]",
        "[true}", "[true]]", "[tru]", "[nil]", "{true]"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(words_in(bad[i]), -1);
}

static void a_name_has_a_colon(void **state)
{
    (void)state;
    struct weir_str name;
    struct weir_json json = weir_json_of(WEIR_STR("\"a\" : 1"), space, sizeof(space));
    assert_true(weir_json_name(&json, &name));
    assert_int_equal(name.len, 1);
    json = weir_json_of(WEIR_STR("\"a\" 1"), space, sizeof(space));
    assert_false(weir_json_name(&json, &name));
    assert_string_equal(json.fault, "a colon is missing");
    assert_false(weir_json_end(&json)); /* a fault stays */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_are_written_out),
        cmocka_unit_test(strings_that_are_none_are_refused),
        cmocka_unit_test(escapes_need_as_much_space_as_they_are_long),
        cmocka_unit_test(numbers_are_what_the_grammar_says),
        cmocka_unit_test(lists_have_commas_between_and_nowhere_else),
        cmocka_unit_test(a_name_has_a_colon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
