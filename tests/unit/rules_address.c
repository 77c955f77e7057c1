/* Addresses are read as the C library reads them, and printed as it prints them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "rules/address.h"

#include "base/hash.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* What the C library makes of it. */
static bool expected(const char *text, struct weir_address *out)
{
    struct in_addr four;
    struct in6_addr six;
    *out = (struct weir_address){0};
    if (inet_pton(AF_INET, text, &four) == 1) {
        out->lo = UINT64_C(0xffff00000000) | ntohl(four.s_addr);
        return true;
    }
    if (inet_pton(AF_INET6, text, &six) != 1)
        return false;
    for (int i = 0; i < 8; i++) {
        out->hi = out->hi << 8 | six.s6_addr[i];
        out->lo = out->lo << 8 | six.s6_addr[i + 8];
    }
    return true;
}

static void compare(const char *text)
{
    struct weir_address want, got = {0};
    bool is_good = expected(text, &want);
    if (weir_address_parse(&got, weir_str_of(text)) != is_good || got.hi != want.hi ||
        got.lo != want.lo)
        fail_msg("'%s' is read otherwise than by inet_pton()", text);
}

static void addresses_are_read_as_the_library_reads_them(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "0.0.0.0",
        "255.255.255.255",
        "256.0.0.1",
        "1.2.3",
        "1.2.3.4.5",
        "1.2.3.4.",
        ".1.2.3",
        "1..2.3",
        "01.2.3.4",
        "1.2.3.00",
        "1.2.3.4 ",
        " 1.2.3.4",
        "1.2.3.a",
        "1.2.3.-4",
        "1.2.3.4294967297",
        "",
        ".",
        "...",
        "::",
        "::1",
        "2001:db8::1",
        "::ffff:1.2.3.4",
        "1:2:3:4:5:6:7:8",
        ":::",
        "2001:db8::g",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        compare(texts[i]);
}

static void any_few_bytes_are_read_as_the_library_reads_them(void **state)
{
    (void)state;
    static const char bytes[] = "0012345.....:a25";
    for (uint64_t i = 0; i < 200000; i++) {
        uint64_t random = weir_mix64(i + 1);
        char text[16] = {0};
        size_t len = random % sizeof(text);
        for (size_t k = 0; k < len; k++)
            text[k] = bytes[weir_mix64(random + k) % (sizeof(bytes) - 1)];
        compare(text);
        snprintf(text, sizeof(text), "%u.%u.%u.%u", (unsigned)(random & 511) / 2,
                 (unsigned)(random >> 10 & 255), (unsigned)(random >> 20 & 255),
                 (unsigned)(random >> 30 & 255));
        compare(text);
    }
}

static void an_address_ends_where_its_length_says(void **state)
{
    (void)state;
    struct weir_address address;
    assert_true(weir_address_parse(&address, (struct weir_str){.ptr = "1.2.3.45", .len = 7}));
    assert_int_equal(address.lo, UINT64_C(0xffff01020304));
    assert_false(weir_address_parse(&address, (struct weir_str){.ptr = "1.2.3.45", .len = 6}));
    assert_false(weir_address_parse(&address, (struct weir_str){.ptr = "1.2.3.4\0", .len = 8}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_read_as_the_library_reads_them),
        cmocka_unit_test(any_few_bytes_are_read_as_the_library_reads_them),
        cmocka_unit_test(an_address_ends_where_its_length_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
