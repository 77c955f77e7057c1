/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/identity.h"

#include <arpa/inet.h>
#include <string.h>

/* How a value is written.  Numbers of the format: a table outlives the process, so none changes. */
enum kind {
    KIND_VALUE = 1,
    KIND_SHARED = 2,
    KIND_IPV4 = 4, /* prefix length, then 4 bytes */
    KIND_IPV6 = 6, /* prefix length, then 16 bytes */
};

#define ADDRESS_LEN_MAX 17

static uint8_t *write_entry(uint8_t *at, enum kind kind, struct weir_str key, const void *value,
                            size_t value_len)
{
    uint64_t head = (uint64_t)kind | (uint64_t)key.len << 16 | (uint64_t)value_len << 32;
    memcpy(at, &head, WEIR_IDENTITY_HEAD);
    at += WEIR_IDENTITY_HEAD;
    if (key.len > 0)
        memcpy(at, key.ptr, key.len);
    at += key.len;
    if (value_len > 0)
        memcpy(at, value, value_len);
    return at + value_len;
}

static void cut(uint8_t *address, size_t len, unsigned prefix)
{
    for (size_t i = 0; i < len; i++) {
        unsigned bits = prefix > 8 * i ? prefix - 8 * (unsigned)i : 0;
        if (bits < 8)
            address[i] &= (uint8_t)(0xff00u >> bits);
    }
}

/* Parses text as an address and cuts it.  out: prefix length, then the bytes.  Returns how many, or
 * 0 where it is no address. */
static size_t address_of(struct weir_str text, const struct weir_rule_limit *limit,
                         uint8_t out[ADDRESS_LEN_MAX], enum kind *kind)
{
    static const uint8_t MAPPED[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    char text0[INET6_ADDRSTRLEN]; /* inet_pton wants a NUL */
    if (text.len == 0 || text.len >= sizeof(text0) || memchr(text.ptr, 0, text.len))
        return 0;
    memcpy(text0, text.ptr, text.len);
    text0[text.len] = '\0';

    uint8_t *address = out + 1;
    bool is_ipv4 = inet_pton(AF_INET, text0, address) == 1;
    if (!is_ipv4) {
        if (inet_pton(AF_INET6, text0, address) != 1)
            return 0;
        if (memcmp(address, MAPPED, sizeof(MAPPED)) == 0) {
            memmove(address, address + sizeof(MAPPED), 4);
            is_ipv4 = true;
        }
    }
    size_t len = is_ipv4 ? 4 : 16;
    *kind = is_ipv4 ? KIND_IPV4 : KIND_IPV6;
    out[0] = is_ipv4 ? limit->ipv4_prefix : limit->ipv6_prefix;
    cut(address, len, out[0]);
    return 1 + len;
}

uint64_t weir_identity_plain(const struct weir_hash_key *key, uint8_t *bytes,
                             const struct weir_entry *entries, uint32_t entry_count)
{
    uint8_t *end = bytes;
    for (uint32_t i = 0; i < entry_count; i++)
        end = write_entry(end, KIND_VALUE, entries[i].key, entries[i].value.ptr,
                          entries[i].value.len);
    return weir_siphash13(key, bytes, (size_t)(end - bytes));
}

uint64_t weir_identity_matched(const struct weir_hash_key *key, uint8_t *bytes,
                               const struct weir_entry *entries, uint32_t entry_count,
                               const struct weir_match *match, const struct weir_rule_limit *limit)
{
    uint8_t *end = bytes;
    for (uint32_t i = 0; i < entry_count; i++) {
        enum kind kind = KIND_VALUE;
        struct weir_str value = entries[i].value;
        uint8_t address[ADDRESS_LEN_MAX];
        if (match->part[i] == WEIR_PART_SHARED) {
            kind = KIND_SHARED;
            value = match->shared[i];
        } else if (match->part[i] == WEIR_PART_PREFIX) {
            size_t len = address_of(value, limit, address, &kind);
            if (len > 0)
                value = (struct weir_str){.ptr = (const char *)address, .len = len};
        }
        end = write_entry(end, kind, entries[i].key, value.ptr, value.len);
    }
    return weir_siphash13(key, bytes, (size_t)(end - bytes));
}
