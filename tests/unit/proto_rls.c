/* SPDX-License-Identifier: Apache-2.0 */
#include "base/maxima.h"
#include "base/str.h"
#include "proto/health.h"
#include "proto/rls.h"
#include "proto/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define SECOND_NS UINT64_C(1000000000)
#define TEXT(literal)                                                                              \
    {                                                                                              \
        literal, sizeof(literal) - 1                                                               \
    }

static _Alignas(16) uint8_t block[WEIR_RLS_METADATA_MEMORY];
static struct weir_bump memory;
static struct weir_rls_room room;
static struct weir_request request;

/* ---- messages, written by hand ---- */

static struct {
    uint8_t bytes[1 << 20];
    size_t len;
} message;

static void put(const void *bytes, size_t len)
{
    assert_true(len <= sizeof(message.bytes) - message.len);
    memcpy(message.bytes + message.len, bytes, len);
    message.len += len;
}

static void put_varint(uint64_t number)
{
    do {
        uint8_t byte = (uint8_t)((number & 0x7F) | (number > 0x7F ? 0x80 : 0));
        put(&byte, 1);
        number >>= 7;
    } while (number > 0);
}

static void put_bytes(uint32_t field, const void *bytes, size_t len)
{
    put_varint(field << 3 | 2);
    put_varint(len);
    put(bytes, len);
}

static int fresh(void **state)
{
    (void)state;
    message.len = 0;
    weir_bump_init(&memory, block, sizeof(block));
    return 0;
}

static struct weir_str whole(void)
{
    return (struct weir_str){(const char *)message.bytes, message.len};
}

static int decode(void)
{
    weir_rls_room_empty(&room);
    return weir_rls_decode(&room, whole(), &request);
}

static void assert_str(struct weir_str got, const char *expected)
{
    assert_int_equal(got.len, strlen(expected));
    assert_memory_equal(got.ptr, expected, got.len);
}

/* ---- requests ---- */

static void a_request_is_read_in_full(void **state)
{
    (void)state;
    put_bytes(1, "api", 3);
    /* entries {key: "k", value: "v"}, {key: "only"}; limit {5, HOUR}; hits 300; negative */
    put_bytes(2, "\x0A\6\x0A\1k\x12\1v\x0A\6\x0A\4only\x12\4\x08\5\x10\3\x1A\3\x08\xAC\2\x20\1",
              8 + 8 + 6 + 5 + 2);
    put_bytes(2, "\x0A\6\x0A\1k\x12\1w\x1A\0", 10); /* hits present, and 0 */
    put("\x18\7", 2);
    assert_int_equal(decode(), 0);
    assert_str(request.domain, "api");
    assert_int_equal(request.hits_addend, 7);
    assert_int_equal(request.descriptor_count, 2);
    const struct weir_descriptor *d = request.descriptors;
    assert_int_equal(d[0].entry_count, 2);
    assert_str(d[0].entries[0].key, "k");
    assert_str(d[0].entries[0].value, "v");
    assert_str(d[0].entries[1].key, "only");
    assert_str(d[0].entries[1].value, "");
    assert_int_equal(d[0].override->requests_per_unit, 5);
    assert_int_equal(d[0].override->unit, WEIR_UNIT_HOUR);
    assert_true(d[0].has_hits && d[0].is_negative_hits);
    assert_int_equal(d[0].hits, 300);
    assert_null(d[1].override);
    assert_true(d[1].has_hits && !d[1].is_negative_hits);
    assert_int_equal(d[1].hits, 0);
}

static void an_empty_message_is_an_empty_request(void **state)
{
    (void)state;
    assert_int_equal(decode(), 0);
    assert_int_equal(request.domain.len, 0);
    assert_int_equal(request.descriptor_count, 0);
}

static void a_value_may_hold_a_nul(void **state)
{
    (void)state;
    put_bytes(2, "\x0A\x08\x0A\1k\x12\3a\0b", 10);
    assert_int_equal(decode(), 0);
    assert_int_equal(request.descriptors[0].entries[0].value.len, 3);
}

static void unknown_fields_are_skipped(void **state)
{
    (void)state;
    put_bytes(1, "api", 3);
    put_bytes(99, "whatever", 8);
    put("\xA0\6\1", 3);
    assert_int_equal(decode(), 0);
    assert_str(request.domain, "api");
}

static void every_cut_of_a_message_is_refused_or_shorter(void **state)
{
    (void)state;
    put_bytes(1, "api", 3);
    put_bytes(2, "\x0A\6\x0A\1k\x12\1v", 8);
    size_t whole = message.len;
    for (message.len = 0; message.len < whole; message.len++) {
        int err = decode();
        assert_true(err == WEIR_ERR_INVALID || request.descriptor_count == 0);
    }
}

static void a_message_that_comes_twice_is_merged(void **state)
{
    (void)state;
    put_bytes(2, "\x12\2\x08\5\x12\2\x10\3\x1A\2\x08\x09\x1A\0", 14);
    assert_int_equal(decode(), 0);
    assert_int_equal(request.descriptors[0].override->requests_per_unit, 5);
    assert_int_equal(request.descriptors[0].override->unit, WEIR_UNIT_HOUR);
    assert_int_equal(request.descriptors[0].hits, 9);
}

static void known_fields_of_a_wrong_type_are_skipped(void **state)
{
    (void)state;
    put("\x08\1\x10\5\x1A\1x", 7);
    put_bytes(1, "api", 3);
    assert_int_equal(decode(), 0);
    assert_str(request.domain, "api");
    assert_int_equal(request.descriptor_count + request.hits_addend, 0);
}

static void what_is_not_utf8_is_refused(void **state)
{
    (void)state;
    put_bytes(1, "a\xFF", 2);
    assert_int_equal(decode(), WEIR_ERR_INVALID);
    message.len = 0;
    put_bytes(2, "\x0A\6\x0A\1\x80\x12\1v", 8);
    assert_int_equal(decode(), WEIR_ERR_INVALID);
    message.len = 0;
    put_bytes(2, "\x0A\6\x0A\1k\x12\1\xC3", 8);
    assert_int_equal(decode(), WEIR_ERR_INVALID);
}

static void units_that_nobody_knows_become_unknown(void **state)
{
    (void)state;
    put_bytes(2, "\x12\4\x08\5\x10\7", 6);
    assert_int_equal(decode(), 0);
    assert_int_equal(request.descriptors[0].override->unit, WEIR_UNIT_WEEK);
    message.len = 0;
    put_bytes(2, "\x12\4\x08\5\x10\x08", 6);
    assert_int_equal(decode(), 0);
    assert_int_equal(request.descriptors[0].override->unit, WEIR_UNIT_UNKNOWN);
    message.len = 0;
    put_bytes(2, "\x12\x0B\x10\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\1", 13); /* -1 */
    assert_int_equal(decode(), 0);
    assert_int_equal(request.descriptors[0].override->unit, WEIR_UNIT_UNKNOWN);
}

static void the_maxima_are_taken_and_one_more_is_not(void **state)
{
    (void)state;
    for (int i = 0; i < WEIR_DESCRIPTORS_MAX; i++)
        put_bytes(2, "\x0A\6\x0A\1k\x12\1v", 8);
    assert_int_equal(decode(), 0);
    assert_int_equal(request.descriptor_count, WEIR_DESCRIPTORS_MAX);
    put_bytes(2, "\x0A\6\x0A\1k\x12\1v", 8);
    assert_int_equal(decode(), WEIR_ERR_TOO_LARGE);
    assert_int_equal(room.descriptor_count, 0);
}

static void entries_of_the_maximum_are_taken_and_one_more_is_not(void **state)
{
    uint8_t entries[8 * (WEIR_ENTRIES_MAX + 1)];
    (void)state;
    for (int i = 0; i <= WEIR_ENTRIES_MAX; i++)
        memcpy(entries + 8 * i, "\x0A\6\x0A\1k\x12\1v", 8);
    put_bytes(2, entries, sizeof(entries) - 8);
    assert_int_equal(decode(), 0);
    message.len = 0;
    put_bytes(2, entries, sizeof(entries));
    assert_int_equal(decode(), WEIR_ERR_TOO_LARGE);
}

static void a_message_that_unfolds_is_cut_off(void **state)
{
    (void)state;
    while (message.len < sizeof(message.bytes) - 2)
        put("\x12\0", 2); /* half a million descriptors of nothing */
    assert_int_equal(decode(), WEIR_ERR_TOO_LARGE);
    assert_int_equal(room.descriptor_count, 0);
}

static void an_empty_room_is_enough_and_a_full_one_says_so(void **state)
{
    uint8_t entries[8 * WEIR_ENTRIES_MAX + 6];
    (void)state;
    memcpy(entries, "\x12\4\x08\5\x10\3", 6);
    for (int i = 0; i < WEIR_ENTRIES_MAX; i++)
        memcpy(entries + 6 + 8 * i, "\x0A\6\x0A\1k\x12\1v", 8);
    for (int i = 0; i < WEIR_DESCRIPTORS_MAX - 1; i++)
        put_bytes(2, entries, sizeof(entries));
    assert_int_equal(decode(), 0);
    message.len = 0;
    put_bytes(2, entries, sizeof(entries));
    struct weir_request other;
    assert_int_equal(weir_rls_decode(&room, whole(), &other), 0);
    assert_int_equal(weir_rls_decode(&room, whole(), &other), WEIR_ERR_FULL);
    assert_int_equal(room.entry_count, WEIR_DESCRIPTORS_MAX * WEIR_ENTRIES_MAX);
    assert_str(request.descriptors[62].entries[31].key, "k");
    assert_int_equal(other.descriptors[0].override->unit, WEIR_UNIT_HOUR);
}

/* ---- responses ---- */

static struct weir_status statuses[WEIR_DESCRIPTORS_MAX];
static struct weir_decision decision = {.overall = WEIR_CODE_OK, .statuses = statuses};
static uint8_t packed[1 << 16];

static size_t respond(const struct weir_rls_options *options)
{
    struct weir_rls_response response;
    weir_bump_init(&memory, block, sizeof(block));
    weir_rls_respond(&response, &memory, options, &request, &decision);
    assert_true(response.len <= sizeof(packed));
    weir_rls_pack(&response, packed);
    return response.len;
}

static const struct weir_rls_options plain;

static void a_limited_status_has_all_numbers(void **state)
{
    static const struct weir_rule_info rule = {.name = {"n4", 2}};
    (void)state;
    decision.overall = WEIR_CODE_OVER_LIMIT;
    decision.status_count = 1;
    statuses[0] = (struct weir_status){.code = WEIR_CODE_OVER_LIMIT,
                                       .is_limited = true,
                                       .rule = &rule,
                                       .unit = WEIR_UNIT_DAY,
                                       .limit = 300,
                                       .reset_after_ns = 36 * SECOND_NS + 1};
    static const uint8_t expected[] = {0x08, 2, 0x12, 17, 0x08, 2,   0x12, 9, 0x08, 0xAC, 2,
                                       0x10, 4, 0x1A, 2,  'n',  '4', 0x22, 2, 0x08, 37};
    size_t len = respond(&plain);
    assert_int_equal(len, sizeof(expected));
    assert_memory_equal(packed, expected, len);
}

static void a_status_without_limit_is_bare_and_unlimited_is_the_most(void **state)
{
    static const uint8_t expected[] = {0x08, 1, 0x12, 2,    0x08, 1,    0x12, 8,
                                       0x08, 1, 0x18, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F};
    (void)state;
    decision.overall = WEIR_CODE_OK;
    decision.status_count = 2;
    statuses[0] = (struct weir_status){.code = WEIR_CODE_OK};
    statuses[1] = (struct weir_status){.code = WEIR_CODE_OK, .is_unlimited = true};
    size_t len = respond(&plain);
    assert_int_equal(len, sizeof(expected));
    assert_memory_equal(packed, expected, len);
}

static void large_numbers_stop_at_32_bits(void **state)
{
    (void)state;
    decision.status_count = 1;
    statuses[0] = (struct weir_status){
        .code = WEIR_CODE_OK, .is_limited = true, .limit = UINT64_MAX, .remaining = UINT64_MAX};
    size_t len = respond(&plain);
    static const uint8_t expected[] = {0x18, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F};
    assert_non_null(memmem(packed, len, expected, sizeof(expected)));
}

static void seconds_are_rounded_up(void **state)
{
    (void)state;
    struct weir_status s = {.reset_after_ns = 0};
    assert_int_equal(weir_rls_reset_s(&s), 0);
    s.reset_after_ns = 1;
    assert_int_equal(weir_rls_reset_s(&s), 1);
    s.reset_after_ns = SECOND_NS;
    assert_int_equal(weir_rls_reset_s(&s), 1);
    s.reset_after_ns = SECOND_NS + 1;
    assert_int_equal(weir_rls_reset_s(&s), 2);
    s.reset_after_ns = UINT64_MAX;
    assert_int_equal(weir_rls_reset_s(&s), 18446744074);
}

static void headers_tell_of_the_last_refusal_or_the_least_left(void **state)
{
    (void)state;
    decision.status_count = 4;
    for (uint32_t i = 0; i < 4; i++)
        statuses[i] = (struct weir_status){
            .code = WEIR_CODE_OK, .is_limited = i > 0, .remaining = 10 - i % 3};
    assert_ptr_equal(weir_rls_told(&decision), &statuses[2]); /* 8 left; the first has no limit */
    statuses[1].code = statuses[2].code = statuses[3].code = WEIR_CODE_OVER_LIMIT;
    statuses[3].is_quota = true;
    assert_ptr_equal(weir_rls_told(&decision), &statuses[2]);
    decision.status_count = 1;
    assert_null(weir_rls_told(&decision));
}

static void headers_are_added_in_their_order(void **state)
{
    static const struct weir_rls_options options = {.has_headers = true,
                                                    .limit_header = {"L", 1},
                                                    .remaining_header = {"R", 1},
                                                    .reset_header = {"T", 1}};
    static const uint8_t expected[] = "\x1A\7\x0A\1L\x12\2"
                                      "10\x1A\6\x0A\1R\x12\1"
                                      "0\x1A\7\x0A\1T\x12\2"
                                      "58";
    (void)state;
    decision.status_count = 1;
    statuses[0] = (struct weir_status){.code = WEIR_CODE_OVER_LIMIT,
                                       .is_limited = true,
                                       .limit = 10,
                                       .reset_after_ns = 58 * SECOND_NS};
    size_t len = respond(&options);
    assert_non_null(memmem(packed, len, expected, sizeof(expected) - 1));
    statuses[0].is_limited = false;
    assert_true(respond(&options) < len - 20); /* no limit, no headers */
}

static void metadata_of_rules_that_passed_is_merged(void **state)
{
    static const struct weir_rls_options options = {.has_metadata = true};
    static const struct weir_rule_info rules[] = {
        {.metadata = TEXT("{\"a\": 1, \"in\": {\"x\": true}}")},
        {.metadata = TEXT("{\"a\": 2, \"in\": {\"x\": null, \"y\": [\"z\"]}}")},
        {.metadata = TEXT("{\"refused\": 1}")},
    };
    (void)state;
    put_bytes(1, "api", 3);
    for (int i = 0; i < 3; i++)
        put_bytes(2, "\x0A\6\x0A\1k\x12\1v", 8);
    assert_int_equal(decode(), 0);
    decision.status_count = 3;
    for (int i = 0; i < 3; i++)
        statuses[i] = (struct weir_status){.code = i < 2 ? WEIR_CODE_OK : WEIR_CODE_OVER_LIMIT,
                                           .rule = &rules[i]};
    struct weir_rls_response response;
    weir_rls_respond(&response, &memory, &options, &request, &decision);
    weir_rls_pack(&response, packed);
    size_t len = response.len;
    assert_non_null(memmem(packed, len, "\x0A\6domain\x12\5\x1A\3api", 15));
    assert_non_null(memmem(packed, len, "\x1A\3k=v", 5));
    assert_non_null(memmem(packed, len, "\x0A\1a\x12\x09\x11\0\0\0\0\0\0\xF0\x3F", 14));
    assert_non_null(memmem(packed, len, "\x0A\1x\x12\2\x20\1", 7));
    assert_non_null(memmem(packed, len, "\x0A\1y\x12\x07\x32\5\x0A\3\x1A\1z", 12));
    assert_null(memmem(packed, len, "refused", 7));
}

/* ---- the rest ---- */

static void utf8_is_what_the_rfc_says(void **state)
{
    static const char *const good[] = {"",
                                       "plain ascii, long",
                                       "\xC2\x80",
                                       "\xDF\xBF",
                                       "\xE0\xA0\x80",
                                       "\xED\x9F\xBF",
                                       "\xEE\x80\x80",
                                       "\xF0\x90\x80\x80",
                                       "\xF4\x8F\xBF\xBF",
                                       "12345678\xC3\xA9 2345678"};
    static const char *const bad[] = {"\x80",
                                      "\xC0\x80",
                                      "\xC1\xBF",
                                      "\xC2",
                                      "\xE0\x9F\xBF",
                                      "\xED\xA0\x80",
                                      "\xE1\x80",
                                      "\xF0\x8F\xBF\xBF",
                                      "\xF4\x90\x80\x80",
                                      "\xF5\x80\x80\x80",
                                      "\xFF",
                                      "1234567\xC3",
                                      "\xE2\x28\xA1"};
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(weir_utf8_is_valid(weir_str_of(good[i])));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(weir_utf8_is_valid(weir_str_of(bad[i])));
    assert_true(weir_utf8_is_valid((struct weir_str){"a\0b", 3}));
}

static void health_is_read_and_written(void **state)
{
    uint8_t out[WEIR_HEALTH_LEN];
    struct weir_str service;
    (void)state;
    assert_int_equal(weir_health_decode(&memory, WEIR_STR("\x0A\x09ratelimit"), &service), 0);
    assert_str(service, "ratelimit");
    assert_int_equal(weir_health_decode(&memory, WEIR_STR(""), &service), 0);
    assert_int_equal(service.len, 0);
    assert_int_equal(weir_health_decode(&memory, WEIR_STR("\x0A\x05rate"), &service),
                     WEIR_ERR_INVALID);
    assert_int_equal(weir_health_decode(&memory, WEIR_STR("\x0A\1\xFF"), &service),
                     WEIR_ERR_INVALID);
    weir_health_pack(WEIR_HEALTH_NOT_SERVING, out);
    assert_memory_equal(out, "\x08\2", 2);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, fresh)
    const struct CMUnitTest tests[] = {
        CASE(a_request_is_read_in_full),
        CASE(an_empty_message_is_an_empty_request),
        CASE(a_value_may_hold_a_nul),
        CASE(unknown_fields_are_skipped),
        CASE(every_cut_of_a_message_is_refused_or_shorter),
        CASE(a_message_that_comes_twice_is_merged),
        CASE(known_fields_of_a_wrong_type_are_skipped),
        CASE(what_is_not_utf8_is_refused),
        CASE(units_that_nobody_knows_become_unknown),
        CASE(the_maxima_are_taken_and_one_more_is_not),
        CASE(entries_of_the_maximum_are_taken_and_one_more_is_not),
        CASE(a_message_that_unfolds_is_cut_off),
        CASE(an_empty_room_is_enough_and_a_full_one_says_so),
        CASE(a_limited_status_has_all_numbers),
        CASE(a_status_without_limit_is_bare_and_unlimited_is_the_most),
        CASE(large_numbers_stop_at_32_bits),
        CASE(seconds_are_rounded_up),
        CASE(headers_tell_of_the_last_refusal_or_the_least_left),
        CASE(headers_are_added_in_their_order),
        CASE(metadata_of_rules_that_passed_is_merged),
        CASE(utf8_is_what_the_rfc_says),
        CASE(health_is_read_and_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
