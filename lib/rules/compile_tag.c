/* Identities of counters and statistics.
 *
 * Hashed with a public key, not a secret one: every process and every load must come to the same
 * number, and whoever writes the rules is trusted.  (The table hashes it once more, with its own
 * secret.)
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "rules/compile.h"

#include <string.h>

static const struct weir_hash_key public_key = {UINT64_C(0x7765697220746167), UINT64_C(1)};

/* Numbers and texts one after the other, each text after its length. */
struct packer {
    size_t len;
    char bytes[64];
};

static void pack_u64(struct packer *p, uint64_t number)
{
    WEIR_ASSERT(p->len + 8 <= sizeof(p->bytes));
    for (int i = 0; i < 8; i++)
        p->bytes[p->len++] = (char)(number >> (8 * i) & 0xff);
}

static uint64_t hash_str(struct weir_str text)
{
    return weir_siphash13(&public_key, text.ptr, text.len);
}

static uint64_t hash_of(const struct packer *p)
{
    return weir_siphash13(&public_key, p->bytes, p->len);
}

uint64_t weir_tag_domain(struct weir_str domain)
{
    return hash_str(domain);
}

uint64_t weir_tag_stats(struct weir_str domain, struct weir_str id)
{
    struct packer p = {0};
    pack_u64(&p, hash_str(domain));
    pack_u64(&p, hash_str(id));
    return hash_of(&p);
}

uint32_t weir_tag_variant(uint64_t stats_id, struct weir_str overridden)
{
    uint64_t hash = stats_id ^ (overridden.len > 0 ? hash_str(overridden) : 0);
    return (uint32_t)(hash ^ hash >> 32);
}

/* Not part of it: the limit, the burst and the flags, which may change live and keep the counts. */
uint64_t weir_tag_limit(uint64_t domain_tag, const struct weir_limit_spec *spec,
                        struct weir_str name, uint32_t ordinal, uint32_t tier)
{
    struct packer p = {0};
    pack_u64(&p, domain_tag);
    pack_u64(&p, spec->algorithm);
    pack_u64(&p, spec->algorithm == WEIR_TOKEN_BUCKET && spec->refill_interval);
    pack_u64(&p, spec->algorithm == WEIR_SLIDING_WINDOW_COUNTER ? spec->buckets : 1);
    pack_u64(&p, spec->window_s);
    pack_u64(&p, tier);
    pack_u64(&p, name.len > 0);
    pack_u64(&p, name.len > 0 ? hash_str(name) : ordinal);
    return hash_of(&p);
}
