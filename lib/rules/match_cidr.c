/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/match_cidr.h"

#include "base/str.h"

#include <stdlib.h>
#include <string.h>

/* The networks of one key; a level has one or two keys with networks, not many. */
struct group {
    struct weir_str key;
    const struct weir_cidr *cidrs;
    uint32_t count;
};

struct weir_cidrs {
    uint32_t count;
    struct group groups[];
};

/* Digits only: no sign, no space, no leading zero. */
static bool parse_prefix(struct weir_str text, unsigned most, unsigned *out)
{
    unsigned number = 0;
    if (text.len == 0 || text.len > 3 || (text.len > 1 && text.ptr[0] == '0'))
        return false;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return false;
        number = number * 10 + (unsigned)(text.ptr[i] - '0');
    }
    *out = number;
    return number <= most;
}

bool weir_cidr_parse(struct weir_cidr *out, struct weir_str text, const char **why, bool *is_exact)
{
    const char *slash = memchr(text.ptr, '/', text.len);
    struct weir_str host = {.ptr = text.ptr, .len = slash ? (size_t)(slash - text.ptr) : text.len};
    struct weir_address address;
    if (!weir_address_parse(&address, host)) {
        *why = "it must be an address and a prefix length, as in 10.0.0.0/8 or 2001:db8::/32";
        return false;
    }
    /* ::ffff:10.0.0.0/104 counts its prefix in 128 bits, as it is written. */
    bool is_short = weir_address_is_ipv4(address) && !memchr(host.ptr, ':', host.len);
    unsigned most = is_short ? 32 : 128;
    unsigned prefix = most;
    if (slash) {
        struct weir_str digits = {.ptr = slash + 1, .len = text.len - host.len - 1};
        if (!parse_prefix(digits, most, &prefix)) {
            *why = is_short ? "an IPv4 prefix length is a number from 0 to 32"
                            : "an IPv6 prefix length is a number from 0 to 128";
            return false;
        }
    }
    out->prefix = (uint8_t)(is_short ? 96 + prefix : prefix);
    out->first = weir_address_mask(address, out->prefix);
    *is_exact = out->first.hi == address.hi && out->first.lo == address.lo;
    return true;
}

static int compare_u64(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int compare_keys(struct weir_str a, struct weir_str b)
{
    size_t len = a.len < b.len ? a.len : b.len;
    int order = memcmp(a.ptr, b.ptr, len);
    return order ? order : compare_u64(a.len, b.len);
}

/* By key, then by first address, the larger network first. */
static int by_place(const void *left, const void *right)
{
    const struct weir_cidr *a = left, *b = right;
    int order = compare_keys(a->key, b->key);
    if (order == 0)
        order = compare_u64(a->first.hi, b->first.hi);
    if (order == 0)
        order = compare_u64(a->first.lo, b->first.lo);
    if (order == 0)
        order = compare_u64(a->prefix, b->prefix);
    return order;
}

/* Of either family: IPv4 lies inside of IPv6 here. */
static bool is_around(const struct weir_cidr *cidr, struct weir_address address)
{
    struct weir_address first = weir_address_mask(address, cidr->prefix);
    return first.hi == cidr->first.hi && first.lo == cidr->first.lo;
}

bool weir_cidr_holds(const struct weir_cidr *cidr, struct weir_address address)
{
    return is_around(cidr, address) && (cidr->prefix >= 96 || !weir_address_is_ipv4(address));
}

/* Each network's surrounding one: its predecessor, or one that is around that. */
static void link_around(struct weir_cidr *cidrs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t around = i == 0 ? UINT32_MAX : i - 1;
        while (around != UINT32_MAX && !is_around(&cidrs[around], cidrs[i].first))
            around = cidrs[around].around;
        cidrs[i].around = around;
    }
}

struct weir_cidrs *weir_cidrs_new(struct weir_arena *arena, struct weir_cidr *cidrs, uint32_t count,
                                  uint32_t *twice)
{
    qsort(cidrs, count, sizeof(*cidrs), by_place);
    *twice = UINT32_MAX;
    uint32_t groups = 0;
    for (uint32_t i = 0; i < count; i++) {
        groups += i == 0 || !weir_str_eq(cidrs[i - 1].key, cidrs[i].key);
        if (i > 0 && by_place(&cidrs[i - 1], &cidrs[i]) == 0)
            *twice = i;
    }
    struct weir_cidrs *set = weir_arena_alloc(arena, sizeof(*set) + groups * sizeof(struct group),
                                              _Alignof(struct weir_cidrs));
    if (!set)
        return NULL;
    for (uint32_t i = 0; i < count;) {
        uint32_t end = i + 1;
        while (end < count && weir_str_eq(cidrs[i].key, cidrs[end].key))
            end++;
        link_around(cidrs + i, end - i);
        set->groups[set->count++] =
            (struct group){.key = cidrs[i].key, .cidrs = cidrs + i, .count = end - i};
        i = end;
    }
    return set;
}

/* The last network that starts at or before the address, then outwards. */
static uint32_t find_in(const struct group *group, struct weir_address address)
{
    uint32_t low = 0, high = group->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct weir_cidr *cidr = &group->cidrs[middle];
        bool is_after = cidr->first.hi > address.hi ||
                        (cidr->first.hi == address.hi && cidr->first.lo > address.lo);
        if (is_after)
            high = middle;
        else
            low = middle + 1;
    }
    uint32_t at = low == 0 ? UINT32_MAX : low - 1;
    while (at != UINT32_MAX && !weir_cidr_holds(&group->cidrs[at], address))
        at = group->cidrs[at].around;
    return at == UINT32_MAX ? UINT32_MAX : group->cidrs[at].node;
}

uint32_t weir_cidrs_find(const struct weir_cidrs *cidrs, const struct weir_entry *entry)
{
    for (uint32_t i = 0; i < cidrs->count; i++) {
        struct weir_address address;
        if (weir_str_eq(cidrs->groups[i].key, entry->key))
            return weir_address_parse(&address, entry->value) ? find_in(&cidrs->groups[i], address)
                                                              : UINT32_MAX;
    }
    return UINT32_MAX;
}
