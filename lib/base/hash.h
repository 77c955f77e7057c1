/* hash.h - SipHash-1-3, keyed: what names a counter.
 *
 * Keyed, so that nobody who does not know the table's key can choose requests that meet in one
 * bucket.  1-3 rather than 2-4: half the rounds, the margin that hash tables are given elsewhere
 * too.  Checked against the published vectors.
 *
 * What is hashed mostly comes in pieces: heads, keys, values.  They are taken as they come, word by
 * word in registers; to write them one behind the other first, and to read that back, costs about
 * as much as the hash.  Inline for the same reason.
 *
 *     struct weir_sip sip = weir_sip_begin(&key);
 *     weir_sip_add(&sip, "ab", 2);
 *     weir_sip_add(&sip, "c", 1);
 *     weir_sip_end(&sip) == weir_siphash13(&key, "abc", 3)
 *
 * Purity: no state.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_HASH_H
#define WEIR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct weir_hash_key {
    uint64_t k0, k1;
};

uint64_t weir_siphash13(const struct weir_hash_key *key, const void *bytes, size_t len);

/* A hash under way. */
struct weir_sip {
    uint64_t a, b, c, d;
    uint64_t tail; /* the bytes that make no whole word yet, the first of them lowest */
    size_t len;    /* of all so far */
};

static inline struct weir_sip weir_sip_begin(const struct weir_hash_key *key)
{
    return (struct weir_sip){
        .a = key->k0 ^ UINT64_C(0x736f6d6570736575),
        .b = key->k1 ^ UINT64_C(0x646f72616e646f6d),
        .c = key->k0 ^ UINT64_C(0x6c7967656e657261),
        .d = key->k1 ^ UINT64_C(0x7465646279746573),
    };
}

static inline uint64_t weir_sip_rotl(uint64_t x, unsigned by)
{
    return (x << by) | (x >> (64 - by));
}

static inline void weir_sip_round(struct weir_sip *s)
{
    s->a += s->b;
    s->b = weir_sip_rotl(s->b, 13) ^ s->a;
    s->a = weir_sip_rotl(s->a, 32);
    s->c += s->d;
    s->d = weir_sip_rotl(s->d, 16) ^ s->c;
    s->a += s->d;
    s->d = weir_sip_rotl(s->d, 21) ^ s->a;
    s->c += s->b;
    s->b = weir_sip_rotl(s->b, 17) ^ s->c;
    s->c = weir_sip_rotl(s->c, 32);
}

static inline void weir_sip_mix(struct weir_sip *s, uint64_t word)
{
    s->d ^= word;
    weir_sip_round(s);
    s->a ^= word;
}

/* The whole word that the tail makes with the next 8 bytes goes in; the rest of them is the tail.
 * shift: 8 for each byte of the tail. */
static inline void weir_sip_shift_in(struct weir_sip *s, uint64_t next, unsigned shift)
{
    weir_sip_mix(s, s->tail | next << shift);
    s->tail = next >> 1 >> (63 - shift); /* by 64 where there was no tail */
}

/* The 8 bytes of a number, lowest first. */
static inline void weir_sip_add_word(struct weir_sip *s, uint64_t word)
{
    weir_sip_shift_in(s, word, 8 * (s->len & 7));
    s->len += 8;
}

/* Fewer than 8 bytes as a number, without a loop: what is read twice falls on itself. */
static inline uint64_t weir_sip_few(const unsigned char *p, size_t len)
{
    uint32_t low, high;
    if (len >= 4) {
        memcpy(&low, p, 4);
        memcpy(&high, p + len - 4, 4);
        return low | (uint64_t)high << (8 * (len - 4));
    }
    if (len == 0)
        return 0;
    return p[0] | (uint64_t)p[len / 2] << (8 * (len / 2)) | (uint64_t)p[len - 1] << (8 * (len - 1));
}

static inline void weir_sip_add(struct weir_sip *s, const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    unsigned shift = 8 * (s->len & 7);
    s->len += len;
    for (; len >= 8; p += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        weir_sip_shift_in(s, word, shift);
    }
    uint64_t few = weir_sip_few(p, len);
    if (shift + 8 * len >= 64)
        weir_sip_shift_in(s, few, shift);
    else
        s->tail |= few << shift;
}

static inline uint64_t weir_sip_end(struct weir_sip *s)
{
    weir_sip_mix(s, s->tail | (uint64_t)s->len << 56); /* as the definition says */
    s->c ^= 0xff;
    weir_sip_round(s);
    weir_sip_round(s);
    weir_sip_round(s);
    return s->a ^ s->b ^ s->c ^ s->d;
}

/* A bijection on 64 bits that spreads every bit over all others (for values already keyed). */
static inline uint64_t weir_mix64(uint64_t x)
{
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    return x;
}

#endif
