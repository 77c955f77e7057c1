/* pb.h - protobuf's wire format, field by field, for messages whose cost counts.
 *
 *     tag = field number * 8 + type, then by type: a varint, 8 bytes, a length and bytes, 4 bytes
 *
 * A reader walks over bytes that it borrows and copies nothing.  Groups, which proto3 never writes,
 * are refused.  A writer needs room for what the *_len functions said, and looks at nothing.
 *
 * Purity: no I/O, no allocation.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PROTO_PB_H
#define WEIR_PROTO_PB_H

#include <string.h>
#include <weir/types.h>

enum weir_pb_type { WEIR_PB_VARINT = 0, WEIR_PB_64 = 1, WEIR_PB_BYTES = 2, WEIR_PB_32 = 5 };

#define WEIR_PB_FIELD_MAX ((1u << 29) - 1)

struct weir_pb_reader {
    const uint8_t *at, *end;
    bool is_bad; /* what was read is no protobuf; nothing more is then */
};

struct weir_pb_field {
    uint32_t number;
    enum weir_pb_type type;
    uint64_t varint;       /* set for that type only */
    struct weir_str bytes; /* the same */
};

static inline struct weir_pb_reader weir_pb_read(struct weir_str message)
{
    const uint8_t *at = (const uint8_t *)message.ptr;
    return (struct weir_pb_reader){.at = at, .end = at + message.len};
}

/* Numbers below 128 are nearly all that there are. */
static inline uint64_t weir_pb_varint(struct weir_pb_reader *r)
{
    if (r->at < r->end && *r->at < 0x80)
        return *r->at++;
    uint64_t number = 0;
    for (unsigned shift = 0; shift < 64 && r->at < r->end; shift += 7) {
        uint8_t byte = *r->at++;
        number |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return number; /* bits beyond the 64th are lost, as in most decoders */
    }
    r->is_bad = true;
    return 0;
}

/* The next field; false at the end, and where is_bad. */
static inline bool weir_pb_next(struct weir_pb_reader *r, struct weir_pb_field *field)
{
    if (r->at == r->end)
        return false;
    uint64_t tag = weir_pb_varint(r), skip = 0;
    field->number = (uint32_t)(tag >> 3);
    field->type = tag & 7;
    switch (field->type) {
    case WEIR_PB_BYTES:
        skip = weir_pb_varint(r);
        field->bytes = (struct weir_str){.ptr = (const char *)r->at, .len = skip};
        break;
    case WEIR_PB_VARINT:
        field->varint = weir_pb_varint(r);
        break;
    case WEIR_PB_64:
        skip = 8;
        break;
    case WEIR_PB_32:
        skip = 4;
        break;
    default:
        r->is_bad = true;
    }
    if (skip > (uint64_t)(r->end - r->at) || tag >> 3 == 0 || tag >> 3 > WEIR_PB_FIELD_MAX)
        r->is_bad = true;
    if (r->is_bad)
        return false;
    r->at += skip;
    return true;
}

/* ---- writing ---- */

static inline size_t weir_pb_varint_len(uint64_t number)
{
    return (size_t)(70 - __builtin_clzll(number | 1)) / 7;
}

/* Fields of numbers below 16: one byte of tag.  A number of 0, and empty bytes, are not written. */
static inline size_t weir_pb_number_len(uint64_t number)
{
    return number == 0 ? 0 : 1 + weir_pb_varint_len(number);
}

static inline size_t weir_pb_message_len(size_t len)
{
    return 1 + weir_pb_varint_len(len) + len;
}

static inline size_t weir_pb_bytes_len(struct weir_str bytes)
{
    return bytes.len == 0 ? 0 : weir_pb_message_len(bytes.len);
}

static inline uint8_t *weir_pb_put_varint(uint8_t *to, uint64_t number)
{
    while (number > 0x7F) {
        *to++ = (uint8_t)(number | 0x80);
        number >>= 7;
    }
    *to++ = (uint8_t)number;
    return to;
}

static inline uint8_t *weir_pb_put_number(uint8_t *to, uint32_t field, uint64_t number)
{
    if (number == 0)
        return to;
    *to++ = (uint8_t)(field << 3 | WEIR_PB_VARINT);
    return weir_pb_put_varint(to, number);
}

/* The head of a message of len bytes, which follow. */
static inline uint8_t *weir_pb_put_message(uint8_t *to, uint32_t field, size_t len)
{
    *to++ = (uint8_t)(field << 3 | WEIR_PB_BYTES);
    return weir_pb_put_varint(to, len);
}

static inline uint8_t *weir_pb_put_bytes(uint8_t *to, uint32_t field, struct weir_str bytes)
{
    if (bytes.len == 0)
        return to;
    to = weir_pb_put_message(to, field, bytes.len);
    memcpy(to, bytes.ptr, bytes.len);
    return to + bytes.len;
}

#endif
