/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"
#include "base/str.h"
#include "store/redis/key.h"
#include "store/redis/sha256.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define TAG UINT64_C(0x0123456789abcdef)

static struct weir_redis_entry entry(const char *key, const char *value)
{
    return (struct weir_redis_entry){
        .key = weir_str_of(key), .value = weir_str_of(value), .meaning = WEIR_REDIS_VALUE};
}

/* The key as a string of C, which is the caller's to free. */
static char *key_of(const char *domain, const struct weir_redis_entry *entries, uint32_t count,
                    uint64_t tag)
{
    struct weir_buf buf;
    weir_buf_init(&buf, 1u << 20);
    weir_redis_key_add(&buf, WEIR_STR("weir:"), weir_str_of(domain), entries, count, tag);
    weir_buf_add_char(&buf, '\0');
    assert_false(buf.has_failed);
    return buf.ptr;
}

static void assert_key(const struct weir_redis_entry *entries, uint32_t count, const char *expected)
{
    char *key = key_of("api", entries, count, TAG);
    assert_string_equal(key, expected);
    free(key);
}

static void a_key_can_be_read(void **state)
{
    (void)state;
    struct weir_redis_entry plain[] = {entry("user", "alice"), entry("path", "/pay")};
    assert_key(plain, 1, "weir:{3:api4:user=5:alice}ASNFZ4mrze8");
    assert_key(plain, 2, "weir:{3:api4:user=5:alice4:path=4:/pay}ASNFZ4mrze8");
    plain[0].meaning = WEIR_REDIS_SHARED;
    plain[1].meaning = WEIR_REDIS_ADDRESS;
    assert_key(plain, 2, "weir:{3:api4:user~5:alice4:path/4:/pay}ASNFZ4mrze8");
    assert_key(NULL, 0, "weir:{3:api}ASNFZ4mrze8");
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* All ways to cut a few bytes into entries, with every sign that the format uses among them. */
static void no_two_descriptors_have_one_key(void **state)
{
    (void)state;
    static const char *const texts[] = {"",  "a",   "=",   "1:a", "a1:", "}", "{",
                                        ":", "3:a", "1:=", "a=1", "~",   "/", "0:"};
    enum { TEXTS = sizeof(texts) / sizeof(texts[0]), KEYS = TEXTS * TEXTS * TEXTS * 3 };
    char **keys = calloc(KEYS, sizeof(*keys));
    size_t count = 0;
    assert_non_null(keys);
    for (size_t i = 0; i < TEXTS * TEXTS * TEXTS; i++) {
        const char *a = texts[i % TEXTS], *b = texts[i / TEXTS % TEXTS];
        const char *c = texts[i / TEXTS / TEXTS];
        struct weir_redis_entry two[] = {entry(a, b), entry(c, a)};
        keys[count++] = key_of("d", two, 2, TAG);
        if (i < TEXTS * TEXTS) {
            keys[count++] = key_of("d", two, 1, TAG);
            keys[count++] = key_of("d", two, 1, TAG + 1);
            if (i < TEXTS)
                keys[count++] = key_of(a, NULL, 0, TAG);
        }
    }
    qsort(keys, count, sizeof(*keys), by_text);
    for (size_t i = 1; i < count; i++)
        assert_string_not_equal(keys[i - 1], keys[i]);
    for (size_t i = 0; i < count; i++)
        free(keys[i]);
    free(keys);
}

static void what_is_long_is_hashed(void **state)
{
    (void)state;
    char value[WEIR_REDIS_NAME_MAX + 1] = "";
    /* "3:api" "1:k" "=" "179:" and the value */
    size_t most = WEIR_REDIS_NAME_MAX - (5 + 3 + 1 + 4);
    memset(value, 'v', most);
    char *plain = key_of("api", (struct weir_redis_entry[]){entry("k", value)}, 1, TAG);
    assert_int_equal(strlen(plain), 6 + WEIR_REDIS_NAME_MAX + 1 + 11);
    value[most] = 'v';
    char *hashed = key_of("api", (struct weir_redis_entry[]){entry("k", value)}, 1, TAG);
    assert_int_equal(strlen(hashed), 6 + 1 + 43 + 1 + 11);
    assert_true(strncmp(hashed, "weir:{#", 7) == 0);
    value[0] = 'w';
    char *other = key_of("api", (struct weir_redis_entry[]){entry("k", value)}, 1, TAG);
    assert_string_not_equal(hashed, other);
    free(plain);
    free(hashed);
    free(other);
}

static void limits_of_one_descriptor_share_a_slot(void **state)
{
    (void)state;
    uint16_t first = 0;
    for (uint64_t tag = 0; tag < 20; tag++) {
        struct weir_redis_entry odd = entry("k}", "{v}");
        char *key = key_of("a{b", &odd, 1, tag * UINT64_C(0x9e3779b97f4a7c15));
        uint16_t slot = weir_redis_slot_of(weir_str_of(key));
        first = tag == 0 ? slot : first;
        assert_int_equal(slot, first);
        free(key);
    }
}

/* As CLUSTER KEYSLOT of a server says. */
static void slots_are_those_of_the_cluster(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint16_t slot;
    } known[] = {{"123456789", 0x31c3},  {"foo", 12182}, {"{foo}bar", 12182},
                 {"a{foo}{bar}", 12182}, {"", 0},        {"{}", 15257},
                 {"foo{", 7673}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        assert_int_equal(weir_redis_slot_of(weir_str_of(known[i].key)), known[i].slot);
    assert_int_equal(weir_redis_slot_of(WEIR_STR("weir:{3:api}x")),
                     weir_redis_slot_of(WEIR_STR("3:api")));
}

static void assert_compat(const char *prefix, const char *domain,
                          const struct weir_redis_entry *entries, uint32_t count, uint64_t window_s,
                          uint64_t now_s, const char *expected)
{
    struct weir_buf buf;
    weir_buf_init(&buf, 4096);
    weir_redis_compat_key_add(&buf, weir_str_of(prefix), weir_str_of(domain), entries, count,
                              window_s, now_s * 1000000000 + 999999999);
    weir_buf_add_char(&buf, '\0');
    assert_string_equal(buf.ptr, expected);
    weir_buf_fini(&buf);
}

/* Those of the Go service's own tests, and what follows from its code. */
static void compat_keys_are_those_of_the_go_service(void **state)
{
    (void)state;
    struct weir_redis_entry one[] = {entry("key", "value")};
    struct weir_redis_entry two[] = {entry("key2", "value2"), entry("subkey2", "subvalue2")};
    struct weir_redis_entry empty[] = {entry("k", "")};
    assert_compat("", "domain", one, 1, 1, 1234, "domain_key_value_1234");
    assert_compat("", "domain", two, 2, 60, 1234, "domain_key2_value2_subkey2_subvalue2_1200");
    assert_compat("", "domain", one, 1, 3600, 1000000, "domain_key_value_997200");
    assert_compat("", "domain", one, 1, 86400, 1000000, "domain_key_value_950400");
    assert_compat("prefix:", "domain", empty, 1, 1, 1, "prefix:domain_k__1");
}

static void a_key_that_does_not_fit_says_so(void **state)
{
    (void)state;
    struct weir_redis_entry one = entry("user", "alice");
    struct weir_buf buf;
    for (size_t room = 0; room < 37; room++) {
        weir_buf_init(&buf, room);
        weir_redis_key_add(&buf, WEIR_STR("weir:"), WEIR_STR("api"), &one, 1, TAG);
        assert_true(buf.has_failed && buf.len <= room);
        weir_buf_fini(&buf);
    }
    weir_buf_init(&buf, 37);
    weir_redis_key_add(&buf, WEIR_STR("weir:"), WEIR_STR("api"), &one, 1, TAG);
    assert_false(buf.has_failed);
    weir_buf_fini(&buf);
}

static void assert_sha256(const char *text, size_t times, const char *expected)
{
    uint8_t hash[WEIR_SHA256_LEN];
    char hex[2 * WEIR_SHA256_LEN + 1];
    size_t len = strlen(text);
    char *all = malloc(len * times + 1);
    assert_non_null(all);
    for (size_t i = 0; i < times; i++)
        memcpy(all + i * len, text, len);
    weir_sha256(all, len * times, hash);
    for (size_t i = 0; i < sizeof(hash); i++)
        snprintf(hex + 2 * i, 3, "%02x", hash[i]);
    assert_string_equal(hex, expected);
    free(all);
}

/* FIPS 180-4's examples, and every length around a block. */
static void sha256_is_that_of_the_standard(void **state)
{
    (void)state;
    assert_sha256("", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_sha256("abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
                  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    assert_sha256("a", 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    assert_sha256("a", 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    assert_sha256("a", 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_can_be_read),
        cmocka_unit_test(no_two_descriptors_have_one_key),
        cmocka_unit_test(what_is_long_is_hashed),
        cmocka_unit_test(limits_of_one_descriptor_share_a_slot),
        cmocka_unit_test(slots_are_those_of_the_cluster),
        cmocka_unit_test(compat_keys_are_those_of_the_go_service),
        cmocka_unit_test(a_key_that_does_not_fit_says_so),
        cmocka_unit_test(sha256_is_that_of_the_standard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
