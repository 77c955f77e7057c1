/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <string.h>

struct sip {
    uint64_t a, b, c, d;
};

static inline uint64_t rotl(uint64_t x, unsigned by)
{
    return (x << by) | (x >> (64 - by));
}

static inline void sip_round(struct sip *s)
{
    s->a += s->b;
    s->b = rotl(s->b, 13) ^ s->a;
    s->a = rotl(s->a, 32);
    s->c += s->d;
    s->d = rotl(s->d, 16) ^ s->c;
    s->a += s->d;
    s->d = rotl(s->d, 21) ^ s->a;
    s->c += s->b;
    s->b = rotl(s->b, 17) ^ s->c;
    s->c = rotl(s->c, 32);
}

static inline void sip_word(struct sip *s, uint64_t word)
{
    s->d ^= word;
    sip_round(s);
    s->a ^= word;
}

/* The bytes after the last whole word, with the length on top, as the definition says. */
static inline uint64_t last_word(const unsigned char *tail, size_t left, size_t len)
{
    uint64_t word = (uint64_t)len << 56;
    uint64_t bytes = 0;
    if (len >= 8 && left > 0) { /* one load that ends at the end, instead of a loop */
        memcpy(&bytes, tail + left - 8, 8);
        return word | (bytes >> (8 * (8 - left)));
    }
    for (size_t i = 0; i < left; i++)
        bytes |= (uint64_t)tail[i] << (8 * i);
    return word | bytes;
}

uint64_t weir_siphash13(const struct weir_hash_key *key, const void *bytes, size_t len)
{
    struct sip s = {
        .a = key->k0 ^ UINT64_C(0x736f6d6570736575),
        .b = key->k1 ^ UINT64_C(0x646f72616e646f6d),
        .c = key->k0 ^ UINT64_C(0x6c7967656e657261),
        .d = key->k1 ^ UINT64_C(0x7465646279746573),
    };
    const unsigned char *p = bytes;
    const unsigned char *end = p + (len & ~(size_t)7);
    for (; p < end; p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        sip_word(&s, word);
    }
    sip_word(&s, last_word(p, len & 7, len));
    s.c ^= 0xff;
    sip_round(&s);
    sip_round(&s);
    sip_round(&s);
    return s.a ^ s.b ^ s.c ^ s.d;
}
