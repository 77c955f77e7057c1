/* identity.h - which counter a descriptor means: 64 bits that name it in the table.
 *
 * Every entry comes behind a head of 8 bytes which says how it is to be read:
 *
 *     | kind 1 | 0 | key length 2 | value length 4 |  key ...  |  value ...  |
 *
 * so no two descriptors have the same bytes: ("a", "b_c") and ("a_b", "c"), which are one counter
 * to envoyproxy/ratelimit, are two here.  The bytes are hashed with the table's secret key; then
 * the limit's tag (domain, name, algorithm, window) goes in.  What may change live and keep its
 * counts - the number itself, burst, flags - does not.
 *
 * Addresses are written in binary, cut to the counter's prefix, so that all ways to write an
 * address are one counter.  An IPv4 address that comes mapped into IPv6 is the IPv4 address.  What
 * is no address counts as text, whole.
 *
 * Purity: no clock, no I/O, no allocation.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_IDENTITY_H
#define WEIR_ENGINE_IDENTITY_H

#include "base/hash.h"
#include "rules/rules.h"
#include "store/redis/key.h"

/* The hash of the entries as they are; never 0. */
uint64_t weir_identity_plain(const struct weir_hash_key *key, const struct weir_entry *entries,
                             uint32_t entry_count);

/* The same in two steps, for who changes nothing but the last value: the hash of all but the last
 * entry, and what it is with that one. */
struct weir_sip weir_identity_before(const struct weir_hash_key *key,
                                     const struct weir_entry *entries, uint32_t entry_count);
uint64_t weir_identity_with(struct weir_sip before, struct weir_str key, struct weir_str value);

/* The hash of the entries as a rule sees them: values shared or cut as the match says. */
uint64_t weir_identity_matched(const struct weir_hash_key *key, const struct weir_entry *entries,
                               uint32_t entry_count, const struct weir_match *match,
                               const struct weir_rule_limit *limit);

/* The entries as a rule sees them, for a store that all hosts share: there a counter is named by
 * text, because each table has a secret of its own. */
struct weir_name {
    uint32_t count;
    struct weir_redis_entry entries[WEIR_ENTRIES_MAX];
    char addresses[WEIR_ENTRIES_MAX][40]; /* cut ones, in hexadecimal: "20010db8...0/64" */
};

/* match NULL: the entries as they are.  What out points to is the caller's, the match's, or in
 * out. */
void weir_identity_name(struct weir_name *out, const struct weir_entry *entries,
                        uint32_t entry_count, const struct weir_match *match,
                        const struct weir_rule_limit *limit);

/* The counter's name: one for each limit on the same entries. */
static inline uint64_t weir_identity_key(uint64_t entries_hash, uint64_t tag)
{
    return weir_mix64(entries_hash ^ tag);
}

#endif
