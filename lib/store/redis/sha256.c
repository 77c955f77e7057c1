/* SPDX-License-Identifier: Apache-2.0 */
#include "store/redis/sha256.h"

#include <string.h>

#define BLOCK 64u
#define ROUNDS 64u

/* The first 32 bits of the fractions of the cube roots of the first 64 primes. */
static const uint32_t round_words[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/* And of the square roots of the first 8. */
static const uint32_t first_state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static uint32_t turn(uint32_t word, unsigned by)
{
    return word >> by | word << (32 - by);
}

static uint32_t read_word(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void spread(uint32_t words[static ROUNDS], const uint8_t *block)
{
    for (unsigned i = 0; i < 16; i++)
        words[i] = read_word(block + 4 * (size_t)i);
    for (unsigned i = 16; i < ROUNDS; i++) {
        uint32_t a = words[i - 15], b = words[i - 2];
        words[i] = words[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + words[i - 7] +
                   (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
}

static void compress(uint32_t state[static 8], const uint8_t *block)
{
    uint32_t words[ROUNDS], v[8];
    spread(words, block);
    memcpy(v, state, sizeof(v));
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
        uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        uint32_t one = v[7] + (turn(v[4], 6) ^ turn(v[4], 11) ^ turn(v[4], 25)) + choice +
                       round_words[i] + words[i];
        uint32_t two = (turn(v[0], 2) ^ turn(v[0], 13) ^ turn(v[0], 22)) + majority;
        memmove(v + 1, v, 7 * sizeof(v[0]));
        v[4] += one;
        v[0] = one + two;
    }
    for (unsigned i = 0; i < 8; i++)
        state[i] += v[i];
}

void weir_sha256(const void *bytes, size_t len, uint8_t out[static WEIR_SHA256_LEN])
{
    const uint8_t *at = bytes;
    uint8_t last[2 * BLOCK] = {0};
    uint32_t state[8];
    size_t left = len;
    memcpy(state, first_state, sizeof(state));
    for (; left >= BLOCK; left -= BLOCK, at += BLOCK)
        compress(state, at);
    if (left > 0)
        memcpy(last, at, left);
    last[left] = 0x80;
    size_t padded = left + 9 <= BLOCK ? BLOCK : 2 * BLOCK;
    for (unsigned i = 0; i < 8; i++) /* the length in bits, most significant byte first */
        last[padded - 1 - i] = (uint8_t)((uint64_t)len * 8 >> (8 * i));
    compress(state, last);
    if (padded > BLOCK)
        compress(state, last + BLOCK);
    for (unsigned i = 0; i < WEIR_SHA256_LEN; i++)
        out[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
}
