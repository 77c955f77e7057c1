/* address.h - IP addresses as 128 bits, read from text, cut to a prefix, written again.
 *
 * IPv4 lies in ::ffff:0:0/96, so both families are compared in one way and the two spellings of an
 * IPv4 address are the same address.
 *
 * Purity: no I/O, no allocation.  Threads: any.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_RULES_ADDRESS_H
#define WEIR_RULES_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/types.h>

#define WEIR_ADDRESS_TEXT_MAX 64 /* bytes of an address as text, with its prefix and a NUL */

struct weir_address {
    uint64_t hi, lo;
};

/* False: no address.  A zone (%eth0), brackets or a port are none of its business. */
bool weir_address_parse(struct weir_address *out, struct weir_str text);
bool weir_address_is_ipv4(struct weir_address address);
/* Keeps the first `bits` of 128. */
struct weir_address weir_address_mask(struct weir_address address, unsigned bits);
/* Canonical text, with /prefix where prefix >= 0.  Returns its length. */
size_t weir_address_print(char out[WEIR_ADDRESS_TEXT_MAX], struct weir_address address, int prefix);

#endif
