/* Different descriptors are different counters, and one address is one counter however written.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/identity.h"

#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

static const struct weir_hash_key KEY = {1, 2};

static uint64_t plain(const struct weir_entry *entries, uint32_t count)
{
    return weir_identity_plain(&KEY, entries, count);
}

static uint64_t matched(const struct weir_entry *entries, uint32_t count,
                        const struct weir_match *match, uint8_t ipv4, uint8_t ipv6)
{
    struct weir_rule_limit limit = {.ipv4_prefix = ipv4, .ipv6_prefix = ipv6};
    return weir_identity_matched(&KEY, entries, count, match, &limit);
}

static uint64_t address(const char *text, uint8_t ipv4, uint8_t ipv6)
{
    struct weir_entry entry = {WEIR_STR("remote_address"), weir_str_of(text)};
    struct weir_match match = {.has_shared_parts = true, .part = {WEIR_PART_PREFIX}};
    return matched(&entry, 1, &match, ipv4, ipv6);
}

#define E(k, v)                                                                                    \
    {                                                                                              \
        WEIR_STR(k), WEIR_STR(v)                                                                   \
    }
#define PLAIN(...)                                                                                 \
    plain((const struct weir_entry[]){__VA_ARGS__},                                                \
          sizeof((const struct weir_entry[]){__VA_ARGS__}) / sizeof(struct weir_entry))

static void no_way_of_joining_makes_two_descriptors_one(void **state)
{
    (void)state;
    const uint64_t all[] = {
        PLAIN(E("a", "b_c")),
        PLAIN(E("a_b", "c")),
        PLAIN(E("a", "b_c_d")),
        PLAIN(E("a", "b"), E("c", "d")),
        PLAIN(E("c", "d"), E("a", "b")),
        PLAIN(E("a", "")),
        PLAIN(E("", "a")),
        PLAIN(E("", "")),
        PLAIN(E("", ""), E("", "")),
        PLAIN(E("a", "b"), E("", "")),
        PLAIN(E("a", "b\0")),
        PLAIN(E("a", "b")),
        plain(NULL, 0),
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(all[i], all[k]);
    }
}

static void a_value_that_spells_out_another_entry_is_still_a_value(void **state)
{
    (void)state;
    /* The bytes of the second entry, head included, appended to the first one's value. */
    struct weir_entry two[] = {E("a", "b"), E("c", "d")};
    static const char forged[] = "b\1\0\1\0\1\0\0\0cd";
    struct weir_entry one = {WEIR_STR("a"), {forged, sizeof(forged) - 1}};
    assert_int_not_equal(plain(two, 2), plain(&one, 1));
}

static void the_same_descriptor_is_the_same_counter_and_a_tag_makes_another(void **state)
{
    (void)state;
    uint64_t hash = PLAIN(E("user", "ada"));
    assert_int_equal(hash, PLAIN(E("user", "ada")));
    assert_int_not_equal(weir_identity_key(hash, 1), weir_identity_key(hash, 2));
    struct weir_entry entry = E("user", "ada");
    struct weir_match values = {.part = {WEIR_PART_VALUE}};
    assert_int_equal(hash, matched(&entry, 1, &values, 32, 128));
}

static void a_shared_pattern_is_one_counter_but_not_that_of_its_text(void **state)
{
    (void)state;
    struct weir_entry a = E("path", "files/a"), b = E("path", "files/b"),
                      star = E("path", "files/*");
    struct weir_match match = {
        .has_shared_parts = true, .part = {WEIR_PART_SHARED}, .shared = {WEIR_STR("files/*")}};
    assert_int_equal(matched(&a, 1, &match, 32, 128), matched(&b, 1, &match, 32, 128));
    assert_int_not_equal(matched(&a, 1, &match, 32, 128), plain(&star, 1));
}

static void all_spellings_of_an_address_are_one_counter(void **state)
{
    (void)state;
    assert_int_equal(address("2001:db8::1", 32, 128), address("2001:DB8:0:0::0:1", 32, 128));
    assert_int_equal(address("192.0.2.1", 32, 128), address("::ffff:192.0.2.1", 32, 128));
    assert_int_equal(address("192.0.2.1", 32, 128), address("::ffff:c000:201", 32, 64));
    assert_int_not_equal(address("192.0.2.1", 32, 128), address("192.0.2.2", 32, 128));
}

static void addresses_count_by_their_prefix(void **state)
{
    (void)state;
    assert_int_equal(address("2001:db8:0:1::1", 32, 64), address("2001:db8:0:1:ffff::", 32, 64));
    assert_int_not_equal(address("2001:db8:0:1::1", 32, 64), address("2001:db8:0:2::1", 32, 64));
    assert_int_equal(address("192.0.2.1", 24, 64), address("192.0.2.255", 24, 64));
    assert_int_not_equal(address("192.0.2.1", 25, 64), address("192.0.2.255", 25, 64));
    assert_int_equal(address("192.0.2.1", 0, 0), address("8.8.8.8", 0, 0));
    assert_int_not_equal(address("::1", 0, 0), address("8.8.8.8", 0, 0)); /* families stay apart */
    /* A prefix is part of the name: a /64 and the /48 around it are two counters. */
    assert_int_not_equal(address("2001:db8::", 32, 64), address("2001:db8::", 32, 48));
}

static void what_is_no_address_counts_whole(void **state)
{
    (void)state;
    struct weir_entry entry = E("remote_address", "unix:");
    assert_int_equal(address("unix:", 32, 64), plain(&entry, 1));
    assert_int_equal(address("unix:", 8, 8), plain(&entry, 1));
    assert_int_not_equal(address("192.0.2.1.5", 8, 8), address("192.0.2.1.6", 8, 8));
    assert_int_not_equal(address("", 8, 8), address("fe80::1%eth0", 8, 8));
}

/* A table outlives the process that made it, and so do the names in it. */
static void a_name_is_the_hash_of_the_bytes_of_the_format(void **state)
{
    (void)state;
    static const char bytes[] = "\1\0\3\0\5\0\0\0keyvalue\1\0\0\0\1\0\0\0x";
    assert_int_equal(PLAIN(E("key", "value"), E("", "x")),
                     weir_siphash13(&KEY, bytes, sizeof(bytes) - 1));
}

/* As weir_recall_rename() needs it: the last value comes later than the rest. */
static void the_last_value_may_come_later(void **state)
{
    const struct weir_entry entries[] = {E("a", "longer than a word"), E("b", ""), E("key", "v")};
    static const char value[] = "a value of any length";
    (void)state;
    for (uint32_t count = 1; count <= 3; count++) {
        struct weir_sip before = weir_identity_before(&KEY, entries, count);
        for (size_t len = 0; len < sizeof(value); len++) {
            struct weir_entry all[3];
            memcpy(all, entries, sizeof(all));
            all[count - 1].value = (struct weir_str){.ptr = value, .len = len};
            assert_int_equal(weir_identity_with(before, all[count - 1].key, all[count - 1].value),
                             weir_identity_plain(&KEY, all, count));
        }
    }
}

static void the_largest_descriptor_fits(void **state)
{
    (void)state;
    char *value = calloc(1, WEIR_VALUE_LEN_MAX), *key = calloc(1, WEIR_KEY_LEN_MAX);
    struct weir_entry entries[WEIR_ENTRIES_MAX];
    for (int i = 0; i < WEIR_ENTRIES_MAX; i++)
        entries[i] = (struct weir_entry){{key, WEIR_KEY_LEN_MAX}, {value, WEIR_VALUE_LEN_MAX}};
    uint64_t hash = weir_identity_plain(&KEY, entries, WEIR_ENTRIES_MAX);
    value[WEIR_VALUE_LEN_MAX - 1] = 1; /* the last byte counts as much as the first */
    assert_int_not_equal(hash, weir_identity_plain(&KEY, entries, WEIR_ENTRIES_MAX));
    free(key);
    free(value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_way_of_joining_makes_two_descriptors_one),
        cmocka_unit_test(a_value_that_spells_out_another_entry_is_still_a_value),
        cmocka_unit_test(the_same_descriptor_is_the_same_counter_and_a_tag_makes_another),
        cmocka_unit_test(a_shared_pattern_is_one_counter_but_not_that_of_its_text),
        cmocka_unit_test(all_spellings_of_an_address_are_one_counter),
        cmocka_unit_test(addresses_count_by_their_prefix),
        cmocka_unit_test(what_is_no_address_counts_whole),
        cmocka_unit_test(a_name_is_the_hash_of_the_bytes_of_the_format),
        cmocka_unit_test(the_last_value_may_come_later),
        cmocka_unit_test(the_largest_descriptor_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
