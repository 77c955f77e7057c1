/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/utf8.h"

#include <string.h>

#define HIGH_BITS UINT64_C(0x8080808080808080)

/* Sequences by their first byte; what the second may be keeps out overlong ones and surrogates. */
static const struct {
    uint8_t first_max, len, second_min, second_max;
} kinds[] = {
    {0x7F, 1, 0, 0},       {0xC1, 0, 0, 0},       {0xDF, 2, 0x80, 0xBF}, {0xE0, 3, 0xA0, 0xBF},
    {0xEC, 3, 0x80, 0xBF}, {0xED, 3, 0x80, 0x9F}, {0xEF, 3, 0x80, 0xBF}, {0xF0, 4, 0x90, 0xBF},
    {0xF3, 4, 0x80, 0xBF}, {0xF4, 4, 0x80, 0x8F}, {0xFF, 0, 0, 0},
};

/* The length of the sequence at p, of which left bytes exist; 0 where it is none. */
static size_t sequence_len(const uint8_t *p, size_t left)
{
    size_t kind = 0;
    while (p[0] > kinds[kind].first_max)
        kind++;
    size_t len = kinds[kind].len;
    if (len > left)
        return 0;
    if (len > 1 && (p[1] < kinds[kind].second_min || p[1] > kinds[kind].second_max))
        return 0;
    for (size_t i = 2; i < len; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    }
    return len;
}

static uint64_t load(const uint8_t *p, size_t len)
{
    uint64_t word = 0;
    memcpy(&word, p, len);
    return word;
}

/* Most texts are, and short ones: so no byte is looked at alone.  Loads overlap at the end. */
static bool is_ascii(const uint8_t *p, size_t len)
{
    if (len >= 8) {
        uint64_t seen = load(p + len - 8, 8);
        for (size_t i = 0; i + 8 < len; i += 8)
            seen |= load(p + i, 8);
        return (seen & HIGH_BITS) == 0;
    }
    if (len >= 4)
        return ((load(p, 4) | load(p + len - 4, 4)) & HIGH_BITS) == 0;
    for (size_t i = 0; i < len; i++) {
        if (p[i] >= 0x80)
            return false;
    }
    return true;
}

bool weir_utf8_is_valid(struct weir_str text)
{
    if (text.len == 0) /* ptr may be NULL then */
        return true;
    const uint8_t *p = (const uint8_t *)text.ptr, *end = p + text.len;
    if (is_ascii(p, text.len))
        return true;
    while (p < end) {
        size_t len = sequence_len(p, (size_t)(end - p));
        if (len == 0)
            return false;
        p += len;
    }
    return true;
}
