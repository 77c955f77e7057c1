/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#define LEN_MAX 64

/* The key and the messages for which SipHash's authors publish vectors: bytes that count up. */
static const struct weir_hash_key KEY = {.k0 = 0x0706050403020100, .k1 = 0x0f0e0d0c0b0a0908};

/* SipHash-1-3 of the messages "", 00, 00 01, ... */
static const uint64_t VECTORS[LEN_MAX] = {
    0xabac0158050fc4dc, 0xc9f49bf37d57ca93, 0x82cb9b024dc7d44d, 0x8bf80ab8e7ddf7fb,
    0xcf75576088d38328, 0xdef9d52f49533b67, 0xc50d2b50c59f22a7, 0xd3927d989bb11140,
    0x369095118d299a8e, 0x25a48eb36c063de4, 0x79de85ee92ff097f, 0x70c118c1f94dc352,
    0x78a384b157b4d9a2, 0x306f760c1229ffa7, 0x605aa111c0f95d34, 0xd320d86d2a519956,
    0xcc4fdd1a7d908b66, 0x9cf2689063dbd80c, 0x8ffc389cb473e63e, 0xf21f9de58d297d1c,
    0xc0dc2f46a6cce040, 0xb992abfe2b45f844, 0x7ffe7b9ba320872e, 0x525a0e7fdae6c123,
    0xf464aeb267349c8c, 0x45cd5928705b0979, 0x3a3e35e3ca9913a5, 0xa91dc74e4ade3b35,
    0xfb0bed02ef6cd00d, 0x88d93cb44ab1e1f4, 0x540f11d643c5e663, 0x2370dd1f8c21d1bc,
    0x81157b6c16a7b60d, 0x4d54b9e57a8ff9bf, 0x759f12781f2a753e, 0xcea1a3bebf186b91,
    0x2cf508d3ada26206, 0xb6101c2da3c33057, 0xb3f47496ae3a36a1, 0x626b57547b108392,
    0xc1d2363299e41531, 0x667cc1923f1ad944, 0x65704ffec8138825, 0x24f280d1c28949a6,
    0xc2ca1cedfaf8876b, 0xc2164bfc9f042196, 0xa16e9c9368b1d623, 0x49fb169c8b5114fd,
    0x9f3143f8df074c46, 0xc6fdaf2412cc86b3, 0x7eaf49d10a52098f, 0x1cf313559d292f9a,
    0xc44a30dda2f41f12, 0x36fae98943a71ed0, 0x318fb34c73f0bce6, 0xa27abf3670a7e980,
    0xb4bcc0db243c6d75, 0x23f8d852fdb71513, 0x8f035f4da67d8a08, 0xd89cd0e5b7e8f148,
    0xf6f4e6bcf7a644ee, 0xaec59ad80f1837f2, 0xc3b2f6154b6694e0, 0x9d199062b7bbb3a8,
};

static void agrees_with_the_published_vectors(void **state)
{
    (void)state;
    unsigned char message[LEN_MAX];
    for (size_t len = 0; len < LEN_MAX; len++) {
        message[len] = (unsigned char)len;
        assert_int_equal(weir_siphash13(&KEY, message, len), VECTORS[len]);
    }
}

static void bytes_in_three_pieces_are_the_same_bytes(void **state)
{
    (void)state;
    unsigned char message[LEN_MAX];
    for (size_t i = 0; i < LEN_MAX; i++)
        message[i] = (unsigned char)i;
    for (size_t len = 0; len < LEN_MAX; len++) {
        for (size_t first = 0; first <= len; first++) {
            for (size_t second = first; second <= len; second++) {
                struct weir_sip sip = weir_sip_begin(&KEY);
                weir_sip_add(&sip, message, first);
                weir_sip_add(&sip, message + first, second - first);
                weir_sip_add(&sip, message + second, len - second);
                assert_int_equal(weir_sip_end(&sip), VECTORS[len]);
            }
        }
    }
}

static void a_number_is_its_eight_bytes(void **state)
{
    (void)state;
    unsigned char message[LEN_MAX];
    for (size_t i = 0; i < LEN_MAX; i++)
        message[i] = (unsigned char)i;
    for (size_t before = 0; before + 9 < LEN_MAX; before++) {
        struct weir_sip sip = weir_sip_begin(&KEY);
        uint64_t word;
        memcpy(&word, message + before, sizeof(word));
        weir_sip_add(&sip, message, before);
        weir_sip_add_word(&sip, word);
        weir_sip_add(&sip, message + before + 8, 1);
        assert_int_equal(weir_sip_end(&sip), VECTORS[before + 9]);
    }
}

static void does_not_depend_on_alignment(void **state)
{
    (void)state;
    unsigned char room[LEN_MAX + 8];
    for (size_t offset = 0; offset < 8; offset++) {
        for (size_t i = 0; i < LEN_MAX; i++)
            room[offset + i] = (unsigned char)i;
        for (size_t len = 0; len < LEN_MAX; len++)
            assert_int_equal(weir_siphash13(&KEY, room + offset, len), VECTORS[len]);
    }
}

static void reads_nothing_beyond_the_message(void **state)
{
    (void)state;
    unsigned char message[LEN_MAX + 16];
    for (size_t len = 0; len < LEN_MAX; len++) {
        memset(message, 0xff, sizeof message);
        for (size_t i = 0; i < len; i++)
            message[8 + i] = (unsigned char)i;
        assert_int_equal(weir_siphash13(&KEY, message + 8, len), VECTORS[len]);
    }
}

/* 256 bytes and none differ though the length is kept in one byte. */
static void the_length_counts_beyond_one_byte(void **state)
{
    (void)state;
    static const unsigned char zeroes[512];
    assert_int_not_equal(weir_siphash13(&KEY, zeroes, 0), weir_siphash13(&KEY, zeroes, 256));
    assert_int_not_equal(weir_siphash13(&KEY, zeroes, 256), weir_siphash13(&KEY, zeroes, 512));
}

static void every_bit_of_key_and_message_changes_the_hash(void **state)
{
    (void)state;
    unsigned char message[LEN_MAX] = {0};
    uint64_t plain = weir_siphash13(&KEY, message, sizeof message);
    for (size_t bit = 0; bit < 8 * sizeof message; bit++) {
        message[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_not_equal(weir_siphash13(&KEY, message, sizeof message), plain);
        message[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    for (unsigned bit = 0; bit < 64; bit++) {
        struct weir_hash_key low = {KEY.k0 ^ UINT64_C(1) << bit, KEY.k1};
        struct weir_hash_key high = {KEY.k0, KEY.k1 ^ UINT64_C(1) << bit};
        assert_int_not_equal(weir_siphash13(&low, message, sizeof message), plain);
        assert_int_not_equal(weir_siphash13(&high, message, sizeof message), plain);
    }
}

/* Flipping one bit of the input flips each bit of the output about half of the time. */
static void mix_spreads_every_bit_over_all_others(void **state)
{
    (void)state;
    enum { SAMPLES = 4096 };
    for (unsigned in = 0; in < 64; in++) {
        unsigned flips[64] = {0};
        for (uint64_t i = 0; i < SAMPLES; i++) {
            uint64_t x = i * UINT64_C(0x9e3779b97f4a7c15);
            uint64_t changed = weir_mix64(x) ^ weir_mix64(x ^ UINT64_C(1) << in);
            for (unsigned out = 0; out < 64; out++)
                flips[out] += (unsigned)(changed >> out & 1);
        }
        for (unsigned out = 0; out < 64; out++)
            assert_in_range(flips[out], SAMPLES * 3 / 8, SAMPLES * 5 / 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_published_vectors),
        cmocka_unit_test(bytes_in_three_pieces_are_the_same_bytes),
        cmocka_unit_test(a_number_is_its_eight_bytes),
        cmocka_unit_test(does_not_depend_on_alignment),
        cmocka_unit_test(reads_nothing_beyond_the_message),
        cmocka_unit_test(the_length_counts_beyond_one_byte),
        cmocka_unit_test(every_bit_of_key_and_message_changes_the_hash),
        cmocka_unit_test(mix_spreads_every_bit_over_all_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
