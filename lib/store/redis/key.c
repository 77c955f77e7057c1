/* SPDX-License-Identifier: Apache-2.0 */
#include "store/redis/key.h"

#include "base/str.h"
#include "store/redis/sha256.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NS_PER_S UINT64_C(1000000000)

static void add_number(struct weir_buf *out, uint64_t number)
{
    char text[24];
    int len = snprintf(text, sizeof(text), "%" PRIu64, number);
    weir_buf_add(out, (struct weir_str){.ptr = text, .len = (size_t)len});
}

/* Base64 as for URLs, without padding; the last digit holds what bits are left. */
static void add_base64(struct weir_buf *out, const uint8_t *bytes, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint32_t bits = 0;
    unsigned held = 0;
    for (size_t i = 0; i < len; i++) {
        bits = bits << 8 | bytes[i];
        held += 8;
        for (; held >= 6; held -= 6)
            weir_buf_add_char(out, digits[bits >> (held - 6) & 63]);
    }
    if (held > 0)
        weir_buf_add_char(out, digits[bits << (6 - held) & 63]);
}

static void add_text(struct weir_buf *out, struct weir_str text)
{
    add_number(out, text.len);
    weir_buf_add_char(out, ':');
    weir_buf_add(out, text);
}

/* Too long: its hash takes its place.  A plain name begins with a digit, never with this sign. */
static void shorten(struct weir_buf *out, size_t from)
{
    uint8_t hash[WEIR_SHA256_LEN];
    weir_sha256(out->ptr + from, out->len - from, hash);
    weir_buf_cut(out, from);
    weir_buf_add_char(out, '#');
    add_base64(out, hash, sizeof(hash));
}

void weir_redis_key_add(struct weir_buf *out, struct weir_str prefix, struct weir_str domain,
                        const struct weir_redis_entry *entries, uint32_t count, uint64_t tag)
{
    uint8_t limit[8];
    weir_buf_add(out, prefix);
    weir_buf_add_char(out, '{');
    size_t from = out->len;
    add_text(out, domain);
    for (uint32_t i = 0; i < count; i++) {
        add_text(out, entries[i].key);
        weir_buf_add_char(out, (char)entries[i].meaning);
        add_text(out, entries[i].value);
    }
    if (!out->has_failed && out->len - from > WEIR_REDIS_NAME_MAX)
        shorten(out, from);
    weir_buf_add_char(out, '}');
    for (unsigned i = 0; i < sizeof(limit); i++)
        limit[i] = (uint8_t)(tag >> (56 - 8 * i));
    add_base64(out, limit, sizeof(limit));
}

void weir_redis_compat_key_add(struct weir_buf *out, struct weir_str prefix, struct weir_str domain,
                               const struct weir_redis_entry *entries, uint32_t count,
                               uint64_t window_s, uint64_t now_ns)
{
    uint64_t now_s = now_ns / NS_PER_S;
    weir_buf_add(out, prefix);
    weir_buf_add(out, domain);
    weir_buf_add_char(out, '_');
    for (uint32_t i = 0; i < count; i++) {
        weir_buf_add(out, entries[i].key);
        weir_buf_add_char(out, '_');
        weir_buf_add(out, entries[i].value);
        weir_buf_add_char(out, '_');
    }
    add_number(out, now_s - now_s % window_s);
}

/* CRC-16/XMODEM, by half bytes. */
static uint16_t crc16(const char *bytes, size_t len)
{
    static const uint16_t steps[16] = {0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5,
                                       0x60c6, 0x70e7, 0x8108, 0x9129, 0xa14a, 0xb16b,
                                       0xc18c, 0xd1ad, 0xe1ce, 0xf1ef};
    unsigned crc = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned byte = (uint8_t)bytes[i];
        crc = (crc << 4 & 0xffff) ^ steps[(crc >> 12 ^ byte >> 4) & 15];
        crc = (crc << 4 & 0xffff) ^ steps[(crc >> 12 ^ byte) & 15];
    }
    return (uint16_t)crc;
}

uint16_t weir_redis_slot_of(struct weir_str key)
{
    const char *open = key.len > 0 ? memchr(key.ptr, '{', key.len) : NULL;
    if (open != NULL) {
        size_t rest = key.len - (size_t)(open + 1 - key.ptr);
        const char *close = memchr(open + 1, '}', rest);
        if (close != NULL && close > open + 1)
            key = (struct weir_str){.ptr = open + 1, .len = (size_t)(close - open - 1)};
    }
    return crc16(key.ptr, key.len) & 16383;
}
