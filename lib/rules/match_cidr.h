/* match_cidr.h - networks: the longest prefix that holds an address.
 *
 * Both families are one: an IPv4 address is its IPv4-mapped IPv6 address, so that 10.0.0.1 and
 * ::ffff:10.0.0.1 are the same.  Networks nest or are apart, so they are sorted by their first
 * address and each knows the one around it: a binary search finds the last network that starts at
 * or before an address, and the way outwards from there passes every network that can hold it, the
 * longest first.
 *
 * Purity: no I/O, no allocation while matching.  Threads: any.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_RULES_MATCH_CIDR_H
#define WEIR_RULES_MATCH_CIDR_H

#include "base/arena.h"
#include "rules/address.h"

#include <weir/weir.h>

struct weir_cidrs;

struct weir_cidr {
    struct weir_address first; /* bits beyond the prefix are 0 */
    uint8_t prefix;            /* of 128 */
    uint32_t node;
    uint32_t
        around; /* the next larger network that holds it, or UINT32_MAX; made by weir_cidrs_new() */
    struct weir_str key;
};

/* Parses 10.0.0.0/8, 2001:db8::/32 or an address alone.  False: *why says in words.  *is_exact: no
 * bits were set beyond the prefix. */
bool weir_cidr_parse(struct weir_cidr *out, struct weir_str text, const char **why, bool *is_exact);

/* ::/0 is all of IPv6: a network that is written as IPv6 holds no IPv4 address. */
bool weir_cidr_holds(const struct weir_cidr *cidr, struct weir_address address);

/* Takes the networks in any order and keeps the array, which must be the arena's.  *twice receives
 * the index of one that is there twice, or UINT32_MAX.  NULL: out of memory. */
struct weir_cidrs *weir_cidrs_new(struct weir_arena *arena, struct weir_cidr *cidrs, uint32_t count,
                                  uint32_t *twice);
uint32_t weir_cidrs_find(const struct weir_cidrs *cidrs, const struct weir_entry *entry);

#endif
