/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/address.h"

#include <arpa/inet.h>
#include <endian.h>
#include <stdio.h>
#include <string.h>

#define MAPPED UINT64_C(0x0000ffff00000000)

/* By hand, as print_ipv4(), and as strict as inet_pton(): four numbers up to 255, no zero before
 * another digit. */
static bool parse_ipv4(uint32_t *out, struct weir_str text)
{
    const char *at = text.ptr, *end = text.ptr + text.len;
    uint32_t bits = 0;
    for (int part = 0; part < 4; part++) {
        if (part > 0 && (at == end || *at++ != '.'))
            return false;
        const char *first = at;
        uint32_t byte = 0;
        while (at < end && *at >= '0' && *at <= '9' && byte <= 255)
            byte = byte * 10 + (uint32_t)(*at++ - '0');
        if (at == first || byte > 255 || (*first == '0' && at > first + 1))
            return false;
        bits = bits << 8 | byte;
    }
    *out = bits;
    return at == end;
}

bool weir_address_parse(struct weir_address *out, struct weir_str text)
{
    char copy[INET6_ADDRSTRLEN];
    uint32_t four;
    struct in6_addr six;
    if (parse_ipv4(&four, text)) {
        *out = (struct weir_address){0, MAPPED | four};
        return true;
    }
    if (text.len == 0 || text.len >= sizeof(copy) || memchr(text.ptr, '\0', text.len))
        return false;
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    if (inet_pton(AF_INET6, copy, &six) != 1)
        return false;
    uint64_t words[2];
    memcpy(words, &six, sizeof(words));
    *out = (struct weir_address){be64toh(words[0]), be64toh(words[1])};
    return true;
}

bool weir_address_is_ipv4(struct weir_address address)
{
    return address.hi == 0 && (address.lo & ~(uint64_t)UINT32_MAX) == MAPPED;
}

/* The first `bits` of 64. */
static uint64_t high_bits(unsigned bits)
{
    return bits == 0 ? 0 : ~UINT64_C(0) << (64 - (bits < 64 ? bits : 64));
}

struct weir_address weir_address_mask(struct weir_address address, unsigned bits)
{
    address.hi &= high_bits(bits);
    address.lo &= high_bits(bits > 64 ? bits - 64 : 0);
    return address;
}

/* By hand: inet_ntop() goes through printf, and front ends do this for every request. */
static void print_ipv4(char *out, uint32_t bits)
{
    for (int shift = 24; shift >= 0; shift -= 8) {
        unsigned byte = bits >> shift & 255;
        if (byte >= 100)
            *out++ = (char)('0' + byte / 100);
        if (byte >= 10)
            *out++ = (char)('0' + byte / 10 % 10);
        *out++ = (char)('0' + byte % 10);
        *out++ = shift > 0 ? '.' : '\0';
    }
}

size_t weir_address_print(char out[WEIR_ADDRESS_TEXT_MAX], struct weir_address address, int prefix)
{
    if (weir_address_is_ipv4(address)) {
        print_ipv4(out, (uint32_t)address.lo);
    } else {
        struct in6_addr six;
        uint64_t words[2] = {htobe64(address.hi), htobe64(address.lo)};
        memcpy(&six, words, sizeof(six));
        inet_ntop(AF_INET6, &six, out, WEIR_ADDRESS_TEXT_MAX);
    }
    size_t len = strlen(out);
    if (prefix >= 0) {
        int added = snprintf(out + len, WEIR_ADDRESS_TEXT_MAX - len, "/%d", prefix);
        len += added > 0 ? (size_t)added : 0;
    }
    return len;
}
