/* hash.h - SipHash-1-3, keyed: what names a counter.
 *
 * Keyed, so that nobody who does not know the table's key can choose requests that meet in one
 * bucket.  1-3 rather than 2-4: half the rounds, the margin that hash tables are given elsewhere
 * too.  Checked against the published vectors.
 *
 * Purity: no state.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_HASH_H
#define WEIR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct weir_hash_key {
    uint64_t k0, k1;
};

uint64_t weir_siphash13(const struct weir_hash_key *key, const void *bytes, size_t len);

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
