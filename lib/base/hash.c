/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

uint64_t weir_siphash13(const struct weir_hash_key *key, const void *bytes, size_t len)
{
    struct weir_sip sip = weir_sip_begin(key);
    weir_sip_add(&sip, bytes, len);
    return weir_sip_end(&sip);
}
