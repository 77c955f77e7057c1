/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/utf8.h"

#include <string.h>

#define HIGH_BITS UINT64_C(0x8080808080808080)

static bool is_tail(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

/* The length of the sequence at p, of which left bytes exist; 0 where it is none. */
static size_t sequence_len(const uint8_t *p, size_t left)
{
    if (p[0] < 0x80)
        return 1;
    if (p[0] >= 0xC2 && p[0] <= 0xDF)
        return left >= 2 && is_tail(p[1]) ? 2 : 0;
    if (p[0] >= 0xE0 && p[0] <= 0xEF) {
        uint8_t low = p[0] == 0xE0 ? 0xA0 : 0x80, high = p[0] == 0xED ? 0x9F : 0xBF;
        return left >= 3 && p[1] >= low && p[1] <= high && is_tail(p[2]) ? 3 : 0;
    }
    if (p[0] >= 0xF0 && p[0] <= 0xF4) {
        uint8_t low = p[0] == 0xF0 ? 0x90 : 0x80, high = p[0] == 0xF4 ? 0x8F : 0xBF;
        return left >= 4 && p[1] >= low && p[1] <= high && is_tail(p[2]) && is_tail(p[3]) ? 4 : 0;
    }
    return 0;
}

bool weir_utf8_is_valid(struct weir_str text)
{
    const uint8_t *p = (const uint8_t *)text.ptr;
    size_t left = text.len;
    while (left > 0) {
        uint64_t eight;
        if (left >= 8 && (memcpy(&eight, p, 8), (eight & HIGH_BITS) == 0)) {
            p += 8; /* ASCII, as nearly everything is */
            left -= 8;
            continue;
        }
        size_t len = sequence_len(p, left);
        if (len == 0)
            return false;
        p += len;
        left -= len;
    }
    return true;
}
