/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

uint64_t weir_siphash13(const struct weir_hash_key *key, const void *bytes, size_t len)
{
    struct weir_sip sip = weir_sip_begin(key);
    const unsigned char *p = bytes;
    sip.len = len;
    /* As weir_sip_add() does, but all in one piece: no tail to be carried along. */
    for (; len >= 8; p += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        weir_sip_mix(&sip, word);
    }
    sip.tail = weir_sip_few(p, len);
    return weir_sip_end(&sip);
}
