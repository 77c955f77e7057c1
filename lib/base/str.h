/* str.h - small helpers for bytes with a length (struct weir_str).
 *
 * Purity: no I/O, no allocation.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_STR_H
#define WEIR_BASE_STR_H

#include <string.h>
#include <weir/types.h>

#define WEIR_STR(literal) ((struct weir_str){.ptr = (literal), .len = sizeof(literal) - 1})

/* "%.*s" with WEIR_STR_ARG(s) prints s. */
#define WEIR_STR_ARG(s) (int)(s).len, (s).ptr

static inline struct weir_str weir_str_of(const char *c)
{
    return (struct weir_str){.ptr = c, .len = strlen(c)};
}

static inline bool weir_str_eq(struct weir_str a, struct weir_str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static inline bool weir_str_starts(struct weir_str s, struct weir_str prefix)
{
    return s.len >= prefix.len && (prefix.len == 0 || memcmp(s.ptr, prefix.ptr, prefix.len) == 0);
}

static inline bool weir_str_ends(struct weir_str s, struct weir_str suffix)
{
    return s.len >= suffix.len &&
           (suffix.len == 0 || memcmp(s.ptr + s.len - suffix.len, suffix.ptr, suffix.len) == 0);
}

#endif
