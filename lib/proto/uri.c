/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/uri.h"

#include <string.h>

static int hex_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte that "%xy" at `at` stands for; -1: none. */
static int escape_of(const char *at, const char *end)
{
    if (end - at < 3)
        return -1;
    int high = hex_of(at[1]), low = hex_of(at[2]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static void cut_fragment(struct weir_str *str)
{
    const char *hash = str->len > 0 ? memchr(str->ptr, '#', str->len) : NULL;
    if (hash)
        str->len = (size_t)(hash - str->ptr);
}

/* Splits off the query, where an unescaped '?' begins it, and a fragment. */
static struct weir_str split(struct weir_str target, struct weir_str *query)
{
    cut_fragment(&target);
    const char *mark = target.len > 0 ? memchr(target.ptr, '?', target.len) : NULL;
    *query = (struct weir_str){.ptr = NULL};
    if (!mark)
        return target;
    size_t path_len = (size_t)(mark - target.ptr);
    *query = (struct weir_str){.ptr = mark + 1, .len = target.len - path_len - 1};
    return (struct weir_str){.ptr = target.ptr, .len = path_len};
}

/* Whether the path is normal already: no escape, no "//", no "/.". */
static bool is_normal(struct weir_str path)
{
    for (size_t i = 0; i < path.len; i++) {
        if (path.ptr[i] == '%' || path.ptr[i] == '\0')
            return false;
        if (path.ptr[i] == '/' && i + 1 < path.len &&
            (path.ptr[i + 1] == '/' || path.ptr[i + 1] == '.'))
            return false;
    }
    return true;
}

/* Ends the segment that began at `segment`: "." and ".." take effect.  Returns the new end, which
 * is behind a slash in these two cases, or NULL above the root. */
static char *end_segment(char *root, char *segment, char *end)
{
    size_t len = (size_t)(end - segment);
    if (len == 1 && segment[0] == '.')
        return segment;
    if (len != 2 || segment[0] != '.' || segment[1] != '.')
        return end;
    char *slash = segment - 1; /* the one before the segment */
    if (slash == root)
        return NULL;
    do
        slash--;
    while (*slash != '/');
    return slash + 1;
}

/* Writes the normal form of path at out; its length, or -1. */
static ptrdiff_t normalise(struct weir_str path, char *out)
{
    const char *at = path.ptr, *end = path.ptr + path.len;
    char *to = out, *segment = out;
    while (at < end) {
        int c = *at == '%' ? escape_of(at, end) : (unsigned char)*at;
        if (c <= 0)
            return -1;
        at += *at == '%' ? 3 : 1;
        if (c != '/') {
            *to++ = (char)c;
            continue;
        }
        to = to > out ? end_segment(out, segment, to) : to;
        if (!to)
            return -1;
        if (to == out || to[-1] != '/')
            *to++ = '/';
        segment = to;
    }
    to = end_segment(out, segment, to);
    return to ? to - out : -1;
}

int weir_uri_normalise(struct weir_str target, char *out, struct weir_str *path,
                       struct weir_str *query)
{
    struct weir_str raw = split(target, query);
    if (raw.len == 0 || raw.ptr[0] != '/')
        return WEIR_ERR_INVALID;
    if (is_normal(raw)) {
        *path = raw;
        return 0;
    }
    ptrdiff_t len = normalise(raw, out);
    if (len < 0)
        return WEIR_ERR_INVALID;
    *path = (struct weir_str){.ptr = out, .len = (size_t)len};
    return 0;
}

size_t weir_uri_decode(struct weir_str text, char *out)
{
    const char *at = text.ptr, *end = text.ptr + text.len;
    char *to = out;
    while (at < end) {
        int c = *at == '%' ? escape_of(at, end) : -1;
        *to++ = c >= 0 ? (char)c : *at == '+' ? ' ' : *at;
        at += c >= 0 ? 3 : 1;
    }
    return (size_t)(to - out);
}
