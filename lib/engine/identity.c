/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/identity.h"

#include "base/err.h"
#include "base/hot.h"
#include "rules/address.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* How a value is written.  Numbers of the format: a table outlives the process, so none changes. */
enum kind {
    KIND_VALUE = 1,
    KIND_SHARED = 2,
    KIND_ADDRESS = 3,
};

/* An address as it is written: IPv4 as IPv6, so a prefix is one of 128 bits. */
struct cut_address {
    uint64_t prefix, hi, lo;
};

static inline void add_entry(struct weir_sip *sip, enum kind kind, struct weir_str key,
                             const void *value, size_t value_len)
{
    weir_sip_add_word(sip, (uint64_t)kind | (uint64_t)key.len << 16 | (uint64_t)value_len << 32);
    weir_sip_add(sip, key.ptr, key.len);
    weir_sip_add(sip, value, value_len);
}

/* False where the text is no address. */
static bool cut_address(struct cut_address *out, struct weir_str text,
                        const struct weir_rule_limit *limit)
{
    struct weir_address address;
    if (!weir_address_parse(&address, text))
        return false;
    unsigned prefix =
        weir_address_is_ipv4(address) ? 96u + limit->ipv4_prefix : (unsigned)limit->ipv6_prefix;
    address = weir_address_mask(address, prefix);
    *out = (struct cut_address){.prefix = prefix, .hi = address.hi, .lo = address.lo};
    return true;
}

static inline struct weir_sip begin_with(const struct weir_hash_key *key,
                                         const struct weir_entry *entries, uint32_t count)
{
    struct weir_sip sip = weir_sip_begin(key);
    for (uint32_t i = 0; i < count; i++)
        add_entry(&sip, KIND_VALUE, entries[i].key, entries[i].value.ptr, entries[i].value.len);
    return sip;
}

/* 0 would say that there is none. */
static inline uint64_t end_of(struct weir_sip *sip)
{
    uint64_t hash = weir_sip_end(sip);
    return hash ? hash : 1;
}

uint64_t weir_identity_plain(const struct weir_hash_key *key, const struct weir_entry *entries,
                             uint32_t entry_count)
{
    struct weir_sip sip = begin_with(key, entries, entry_count);
    return end_of(&sip);
}

struct weir_sip weir_identity_before(const struct weir_hash_key *key,
                                     const struct weir_entry *entries, uint32_t entry_count)
{
    return begin_with(key, entries, entry_count - 1);
}

WEIR_HOT uint64_t weir_identity_with(struct weir_sip before, struct weir_str key,
                                     struct weir_str value)
{
    add_entry(&before, KIND_VALUE, key, value.ptr, value.len);
    return end_of(&before);
}

/* What of an entry counts: its value, the pattern that it shares, or in *address a prefix of it. */
static enum kind value_of(const struct weir_match *match, uint32_t i,
                          const struct weir_rule_limit *limit, struct weir_str *value,
                          struct cut_address *address)
{
    if (match->part[i] == WEIR_PART_SHARED) {
        *value = match->shared[i];
        WEIR_ASSERT(value->len <= WEIR_VALUE_LEN_MAX); /* the loader saw to it */
        return KIND_SHARED;
    }
    bool is_cut = match->part[i] == WEIR_PART_PREFIX && cut_address(address, *value, limit);
    return is_cut ? KIND_ADDRESS : KIND_VALUE;
}

uint64_t weir_identity_matched(const struct weir_hash_key *key, const struct weir_entry *entries,
                               uint32_t entry_count, const struct weir_match *match,
                               const struct weir_rule_limit *limit)
{
    struct weir_sip sip = weir_sip_begin(key);
    for (uint32_t i = 0; i < entry_count; i++) {
        struct weir_str value = entries[i].value;
        struct cut_address address;
        enum kind kind = value_of(match, i, limit, &value, &address);
        if (kind == KIND_ADDRESS)
            value = (struct weir_str){.ptr = (const char *)&address, .len = sizeof(address)};
        add_entry(&sip, kind, entries[i].key, value.ptr, value.len);
    }
    return weir_sip_end(&sip);
}

void weir_identity_name(struct weir_name *out, const struct weir_entry *entries,
                        uint32_t entry_count, const struct weir_match *match,
                        const struct weir_rule_limit *limit)
{
    out->count = entry_count;
    for (uint32_t i = 0; i < entry_count; i++) {
        struct weir_redis_entry *entry = &out->entries[i];
        struct cut_address address;
        *entry = (struct weir_redis_entry){
            .key = entries[i].key, .value = entries[i].value, .meaning = WEIR_REDIS_VALUE};
        enum kind kind = match ? value_of(match, i, limit, &entry->value, &address) : KIND_VALUE;
        if (kind == KIND_SHARED)
            entry->meaning = WEIR_REDIS_SHARED;
        if (kind != KIND_ADDRESS)
            continue;
        int len = snprintf(out->addresses[i], sizeof(out->addresses[i]),
                           "%016" PRIx64 "%016" PRIx64 "/%" PRIu64, address.hi, address.lo,
                           address.prefix);
        entry->meaning = WEIR_REDIS_ADDRESS;
        entry->value = (struct weir_str){.ptr = out->addresses[i], .len = (size_t)len};
    }
}
