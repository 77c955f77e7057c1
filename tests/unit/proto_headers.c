/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "proto/headers.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define S UINT64_C(1000000000)
#define NOW (UINT64_C(1700000040) * S)

static const struct weir_rule_info daily = {.id = {"api.user", 8},
                                            .name = {"daily", 5},
                                            .unit = WEIR_UNIT_DAY,
                                            .unit_multiplier = 1,
                                            .requests_per_unit = 100};
static const struct weir_rule_info burst = {.id = {"api.path \"x\"\\\n", 14},
                                            .unit = WEIR_UNIT_MINUTE,
                                            .unit_multiplier = 5,
                                            .requests_per_unit = 10,
                                            .algorithm = WEIR_TOKEN_BUCKET};

static char out[1 << 17];

static const char *written(uint32_t dialects, struct weir_status *statuses, uint32_t count,
                           enum weir_code overall)
{
    struct weir_decision decision = {
        .overall = overall, .status_count = count, .statuses = statuses};
    struct weir_text text = weir_text_in(out, WEIR_HEADERS_LEN_MAX);
    weir_headers_write(&text, dialects, &decision, NOW);
    assert_false(text.has_overflowed);
    *text.at = '\0';
    return out;
}

static struct weir_status allowed(uint64_t limit, uint64_t remaining)
{
    return (struct weir_status){.code = WEIR_CODE_OK,
                                .is_limited = true,
                                .rule = &daily,
                                .unit = WEIR_UNIT_DAY,
                                .limit = limit,
                                .remaining = remaining,
                                .reset_after_ns = 30 * S};
}

static struct weir_status refused(uint64_t retry_after_ns)
{
    struct weir_status s = allowed(100, 0);
    s.code = WEIR_CODE_OVER_LIMIT;
    s.retry_after_ns = retry_after_ns;
    return s;
}

static void an_allowed_request_is_told_limit_and_remaining(void **state)
{
    (void)state;
    struct weir_status s = allowed(100, 42);
    assert_string_equal(written(WEIR_DIALECT_LEGACY, &s, 1, WEIR_CODE_OK),
                        "X-Ratelimit-Limit: 100\r\nX-Ratelimit-Remaining: 42\r\n");
}

static void a_refused_request_is_told_when_to_come_again(void **state)
{
    (void)state;
    struct weir_status s = refused(2 * S + 1);
    assert_string_equal(written(WEIR_DIALECT_LEGACY, &s, 1, WEIR_CODE_OVER_LIMIT),
                        "X-Ratelimit-Limit: 100\r\nX-Ratelimit-Remaining: 0\r\n"
                        "X-Ratelimit-Retry-After: 3\r\nRetry-After: 3\r\n"
                        "Cache-Control: no-store\r\n");
}

static void waits_are_whole_seconds_rounded_up_and_at_least_one(void **state)
{
    (void)state;
    static const struct {
        uint64_t ns;
        const char *line;
    } waits[] = {{0, "\r\nRetry-After: 1\r\n"},           {1, "\r\nRetry-After: 1\r\n"},
                 {S, "\r\nRetry-After: 1\r\n"},           {S + 1, "\r\nRetry-After: 2\r\n"},
                 {59 * S + 1, "\r\nRetry-After: 60\r\n"}, {WEIR_NEVER, "\r\nRetry-After: 30\r\n"}};
    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
        struct weir_status s = refused(waits[i].ns);
        assert_non_null(
            strstr(written(WEIR_DIALECT_LEGACY, &s, 1, WEIR_CODE_OVER_LIMIT), waits[i].line));
    }
}

static void who_is_never_let_in_is_told_to_wait_a_window(void **state)
{
    (void)state;
    struct weir_status s = refused(WEIR_NEVER);
    s.reset_after_ns = 0;
    assert_non_null(strstr(written(WEIR_DIALECT_LEGACY, &s, 1, WEIR_CODE_OVER_LIMIT),
                           "\r\nRetry-After: 86400\r\n"));
}

static void the_tightest_limit_speaks(void **state)
{
    (void)state;
    struct weir_status s[] = {
        allowed(100, 42), {.code = WEIR_CODE_OK}, allowed(10, 7), allowed(50, 7)};
    s[3].reset_after_ns = 31 * S;
    assert_non_null(strstr(written(WEIR_DIALECT_LEGACY, s, 4, WEIR_CODE_OK), "Limit: 50\r\n"));
    s[0] = refused(5 * S);
    s[1] = refused(6 * S);
    s[2].remaining = 0;
    assert_non_null(
        strstr(written(WEIR_DIALECT_LEGACY, s, 4, WEIR_CODE_OVER_LIMIT), "\r\nRetry-After: 6\r\n"));
}

static void what_is_in_shadow_is_not_told(void **state)
{
    (void)state;
    struct weir_status s[] = {allowed(100, 0), allowed(10, 7)};
    s[0].is_shadow = true;
    assert_non_null(strstr(written(WEIR_DIALECT_LEGACY, s, 2, WEIR_CODE_OK), "Limit: 10\r\n"));
    assert_string_equal(written(WEIR_DIALECT_LEGACY, s, 1, WEIR_CODE_OK), "");
}

static void without_a_limit_there_is_nothing_to_tell(void **state)
{
    (void)state;
    struct weir_status s = {.code = WEIR_CODE_OK, .is_unlimited = true};
    assert_string_equal(written(WEIR_DIALECT_LEGACY | WEIR_DIALECT_IETF_11, &s, 1, WEIR_CODE_OK),
                        "");
    struct weir_status over = refused(S);
    assert_string_equal(written(0, &over, 1, WEIR_CODE_OVER_LIMIT), "Cache-Control: no-store\r\n");
}

static void put_lines(struct weir_text *to, const struct weir_header *headers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        weir_text_put(to, headers[i].name);
        WEIR_TEXT_PUT(to, ": ");
        weir_text_put(to, headers[i].value);
        WEIR_TEXT_PUT(to, "\r\n");
    }
}

/* Headers that are names and values, numbers and then lists, are the lines.  Of a refusal the lines
 * have the lists in the middle, hence one dialect at a time. */
static void headers_come_as_pairs_too(void **state)
{
    (void)state;
    static const uint32_t dialects[] = {0, WEIR_DIALECT_LEGACY, WEIR_DIALECT_RESET_EPOCH,
                                        WEIR_DIALECT_RESET_DELTA, WEIR_DIALECT_IETF_11};
    struct weir_status s[] = {allowed(100, 42), refused(90 * S)};
    struct weir_told_last last = {0};
    for (size_t i = 0; i < 2 * sizeof(dialects) / sizeof(dialects[0]); i++) {
        enum weir_code code = i % 2 ? WEIR_CODE_OVER_LIMIT : WEIR_CODE_OK;
        struct weir_decision decision = {.overall = code, .status_count = 1, .statuses = &s[i % 2]};
        struct weir_header headers[WEIR_NUMBERS_MAX], lists[WEIR_LISTS_MAX];
        char values[WEIR_NUMBERS_LEN_MAX], list_values[WEIR_HEADERS_LEN_MAX];
        char lines[WEIR_HEADERS_LEN_MAX];
        struct weir_text text = weir_text_in(lines, sizeof(lines));
        struct weir_told told;
        weir_headers_tell(&told, &decision, NOW);
        uint32_t count = weir_headers_numbers(headers, values, dialects[i / 2], &told, &last);
        uint32_t list_count = weir_headers_lists(lists, list_values, dialects[i / 2], &decision);
        assert_in_range(count, 0, WEIR_NUMBERS_MAX);
        assert_int_equal(list_count, dialects[i / 2] == WEIR_DIALECT_IETF_11 ? 2 : 0);
        put_lines(&text, lists, list_count);
        put_lines(&text, headers, count);
        weir_text_put_char(&text, '\0');
        assert_string_equal(lines, written(dialects[i / 2], &s[i % 2], 1, code));
    }
}

/* The most that can be told: every number at its longest. */
static void the_longest_numbers_fit(void **state)
{
    (void)state;
    const struct weir_told told = {
        .is_limited = true,
        .is_refused = true,
        .limit = UINT64_MAX,
        .remaining = UINT64_MAX,
        .wait_s = UINT64_MAX,
        .reset_after_ns = UINT64_MAX - NOW,
        .now_ns = NOW,
    };
    struct weir_header headers[WEIR_NUMBERS_MAX];
    char values[WEIR_NUMBERS_LEN_MAX];
    struct weir_told_last last = {0};
    assert_int_equal(weir_headers_numbers(headers, values, WEIR_DIALECT_RESET_EPOCH, &told, &last),
                     6);
    for (int i = 0; i < 5; i++)
        assert_int_equal(headers[i].value.len, i == 2 ? 11 : 20);
    assert_memory_equal(headers[5].value.ptr, "no-store", headers[5].value.len);
}

static void a_limit_is_told_whatever_was_told_before(void **state)
{
    (void)state;
    static const struct {
        uint64_t limit;
        const char *text;
    } cases[] = {{0, "0"},       {0, "0"},   {7, "7"}, {1000, "1000"},
                 {1000, "1000"}, {12, "12"}, {0, "0"}};
    struct weir_told_last last = {0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct weir_told told = {
            .is_limited = true, .limit = cases[i].limit, .remaining = 42};
        struct weir_header headers[WEIR_NUMBERS_MAX];
        char values[WEIR_NUMBERS_LEN_MAX];
        assert_int_equal(weir_headers_numbers(headers, values, WEIR_DIALECT_LEGACY, &told, &last),
                         2);
        assert_int_equal(headers[0].value.len, strlen(cases[i].text));
        assert_memory_equal(headers[0].value.ptr, cases[i].text, headers[0].value.len);
        assert_memory_equal(headers[1].value.ptr, "42", headers[1].value.len);
    }
}

/* Its last two digits are written, and the others perhaps only copied. */
static void what_remains_is_told_whatever_was_told_before(void **state)
{
    (void)state;
    static const uint64_t numbers[] = {
        0,    7,    9,   10,         42,         99, 100, 101, 99,   100,   199,   200,        999,
        1000, 1001, 999, 4294967295, 4294967296, 0,  100, 107, 9999, 10000, 99999, UINT64_MAX, 1};
    struct weir_told_last last = {0};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        char text[24];
        const struct weir_told told = {.is_limited = true, .limit = 5, .remaining = numbers[i]};
        struct weir_header headers[WEIR_NUMBERS_MAX];
        char values[WEIR_NUMBERS_LEN_MAX], again[WEIR_NUMBERS_LEN_MAX];
        struct weir_two before = weir_headers_two(again, told.limit, told.remaining, &last);
        assert_int_equal(weir_headers_numbers(headers, values, WEIR_DIALECT_LEGACY, &told, &last),
                         2);
        int len = snprintf(text, sizeof(text), "%" PRIu64, numbers[i]);
        assert_int_equal(headers[1].value.len, len);
        assert_memory_equal(headers[1].value.ptr, text, (size_t)len);
        struct weir_two two = weir_headers_two(again, told.limit, told.remaining, &last);
        assert_true(before.limit_len == 0 || before.remaining_len == two.remaining_len);
        assert_int_equal(two.limit_len, 1);
        assert_int_equal(again[0], '5');
        assert_int_equal(two.remaining_len, len);
        assert_memory_equal(again + WEIR_NUMBER_LEN, text, (size_t)len);
    }
}

static void resets_are_told_as_chosen(void **state)
{
    (void)state;
    struct weir_status s = allowed(100, 42);
    s.reset_after_ns = 29 * S + 1;
    assert_string_equal(
        written(WEIR_DIALECT_RESET_EPOCH, &s, 1, WEIR_CODE_OK),
        "X-Ratelimit-Limit: 100\r\nX-Ratelimit-Remaining: 42\r\nX-Ratelimit-Reset: 1700000070\r\n");
    assert_string_equal(
        written(WEIR_DIALECT_RESET_DELTA, &s, 1, WEIR_CODE_OK),
        "X-Ratelimit-Limit: 100\r\nX-Ratelimit-Remaining: 42\r\nX-Ratelimit-Reset: 30\r\n");
}

static void the_ietf_pair_has_all_limits_the_tightest_first(void **state)
{
    (void)state;
    struct weir_status s[] = {allowed(100, 42), allowed(10, 7)};
    s[1].rule = &burst;
    s[1].unit = WEIR_UNIT_MINUTE;
    assert_string_equal(written(WEIR_DIALECT_IETF_11, s, 2, WEIR_CODE_OK),
                        "RateLimit-Policy: \"api.path \\\"x\\\"\\\\?\";q=10;w=300, "
                        "\"daily\";q=100;w=86400\r\n"
                        "RateLimit: \"api.path \\\"x\\\"\\\\?\";r=7;t=30, \"daily\";r=42;t=30\r\n");
    s[1].limit = 25; /* a bucket larger than what its unit refills: no window to tell */
    assert_non_null(strstr(written(WEIR_DIALECT_IETF_11, s, 2, WEIR_CODE_OK), "?\";q=25, \"daily"));
    s[0] = refused(90 * S);
    assert_string_equal(written(WEIR_DIALECT_IETF_11, s, 1, WEIR_CODE_OVER_LIMIT),
                        "RateLimit-Policy: \"daily\";q=100;w=86400\r\n"
                        "RateLimit: \"daily\";r=0;t=90\r\nRetry-After: 90\r\n"
                        "Cache-Control: no-store\r\n");
}

static void a_long_list_ends_with_a_whole_item(void **state)
{
    (void)state;
    static struct weir_status s[64];
    static char name[1500];
    memset(name, 'n', sizeof(name));
    for (size_t i = 0; i < 64; i++)
        s[i] = allowed(UINT64_MAX, UINT64_MAX);
    const char *text = written(WEIR_DIALECT_IETF_11, s, 64, WEIR_CODE_OK);
    assert_true(strlen(text) < WEIR_HEADERS_LEN_MAX);
    assert_non_null(strstr(text, ";q=999999999999999\r\nRateLimit: "));
    assert_non_null(strstr(text, ";q=999999999999999, "));
    const struct weir_rule_info long_name = {.name = {name, sizeof(name)}};
    s[0].rule = &long_name;
    s[0].remaining = 0;
    assert_true(strlen(written(WEIR_DIALECT_IETF_11, s, 64, WEIR_CODE_OK)) < WEIR_HEADERS_LEN_MAX);
}

static void dialects_are_read_as_a_list(void **state)
{
    (void)state;
    uint32_t dialects = 99;
    assert_int_equal(weir_dialects_read(WEIR_STR("legacy, ietf-11"), &dialects), 0);
    assert_int_equal(dialects, WEIR_DIALECT_LEGACY | WEIR_DIALECT_IETF_11);
    assert_int_equal(weir_dialects_read(WEIR_STR("none"), &dialects), 0);
    assert_int_equal(dialects, 0);
    static const char *const bad[] = {"", ",", "legacy,", "Legacy", "reset-epoch,reset-delta"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(weir_dialects_read(weir_str_of(bad[i]), &dialects), WEIR_ERR_INVALID);
    assert_int_equal(dialects, 0);
}

static void a_refusal_has_a_body_of_its_kind(void **state)
{
    (void)state;
    struct weir_status s[] = {refused(S), allowed(10, 7), refused(S)};
    s[2].rule = &burst;
    struct weir_decision decision = {
        .overall = WEIR_CODE_OVER_LIMIT, .status_count = 3, .statuses = s};
    struct weir_text text = weir_text_in(out, sizeof(out));
    struct weir_str type = weir_headers_refusal(&text, WEIR_REFUSAL_PROBLEM, 429, &decision);
    *text.at = '\0';
    assert_memory_equal(type.ptr, "application/problem+json", type.len);
    assert_string_equal(
        out,
        "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\"title\":"
        "\"Request cannot be satisfied as assigned quota has been exceeded\",\"status\":429,"
        "\"violated-policies\":[\"daily\",\"api.path \\u0022x\\u0022\\u005c\\u000a\"]}\n");
    text = weir_text_in(out, sizeof(out));
    weir_headers_refusal(&text, WEIR_REFUSAL_PLAIN, 429, &decision);
    *text.at = '\0';
    assert_string_equal(out, "Too many requests\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_allowed_request_is_told_limit_and_remaining),
        cmocka_unit_test(a_refused_request_is_told_when_to_come_again),
        cmocka_unit_test(waits_are_whole_seconds_rounded_up_and_at_least_one),
        cmocka_unit_test(who_is_never_let_in_is_told_to_wait_a_window),
        cmocka_unit_test(the_tightest_limit_speaks),
        cmocka_unit_test(what_is_in_shadow_is_not_told),
        cmocka_unit_test(without_a_limit_there_is_nothing_to_tell),
        cmocka_unit_test(headers_come_as_pairs_too),
        cmocka_unit_test(the_longest_numbers_fit),
        cmocka_unit_test(a_limit_is_told_whatever_was_told_before),
        cmocka_unit_test(what_remains_is_told_whatever_was_told_before),
        cmocka_unit_test(resets_are_told_as_chosen),
        cmocka_unit_test(the_ietf_pair_has_all_limits_the_tightest_first),
        cmocka_unit_test(a_long_list_ends_with_a_whole_item),
        cmocka_unit_test(dialects_are_read_as_a_list),
        cmocka_unit_test(a_refusal_has_a_body_of_its_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
