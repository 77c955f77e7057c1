/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/http1_chunks.h"

#define SIZE_DIGITS_MAX 8

void weir_http1_chunks_init(struct weir_http1_chunks *chunks)
{
    *chunks = (struct weir_http1_chunks){.state = WEIR_CHUNKS_SIZE_FIRST};
}

static int hex_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool is_text(char c)
{
    return (c >= ' ' && c <= '~') || c == '\t';
}

static enum weir_chunks_state read_size(struct weir_http1_chunks *k, char c)
{
    int digit = hex_of(c);
    if (digit >= 0) {
        k->left = k->left << 4 | (uint32_t)digit;
        return k->digits++ < SIZE_DIGITS_MAX ? WEIR_CHUNKS_SIZE : WEIR_CHUNKS_BAD;
    }
    if (k->state == WEIR_CHUNKS_SIZE && c == ';')
        return WEIR_CHUNKS_EXTENSION;
    return k->state == WEIR_CHUNKS_SIZE && c == '\r' ? WEIR_CHUNKS_SIZE_LF : WEIR_CHUNKS_BAD;
}

/* `then` at this byte, which alone may come here. */
static enum weir_chunks_state expect(char c, char due, enum weir_chunks_state then)
{
    return c == due ? then : WEIR_CHUNKS_BAD;
}

/* Text until CR, and then `then`. */
static enum weir_chunks_state skip_text(char c, enum weir_chunks_state here,
                                        enum weir_chunks_state then)
{
    return c == '\r' ? then : is_text(c) ? here : WEIR_CHUNKS_BAD;
}

static enum weir_chunks_state end_size(struct weir_http1_chunks *k, char c)
{
    k->digits = 0;
    return expect(c, '\n', k->left > 0 ? WEIR_CHUNKS_DATA : WEIR_CHUNKS_TRAILER_FIRST);
}

static enum weir_chunks_state next(struct weir_http1_chunks *k, char c)
{
    switch (k->state) {
    case WEIR_CHUNKS_SIZE_FIRST:
    case WEIR_CHUNKS_SIZE:
        return read_size(k, c);
    case WEIR_CHUNKS_EXTENSION:
        return skip_text(c, WEIR_CHUNKS_EXTENSION, WEIR_CHUNKS_SIZE_LF);
    case WEIR_CHUNKS_SIZE_LF:
        return end_size(k, c);
    case WEIR_CHUNKS_DATA_CR:
        return expect(c, '\r', WEIR_CHUNKS_DATA_LF);
    case WEIR_CHUNKS_DATA_LF:
        return expect(c, '\n', WEIR_CHUNKS_SIZE_FIRST);
    case WEIR_CHUNKS_TRAILER_FIRST:
        return skip_text(c, WEIR_CHUNKS_TRAILER, WEIR_CHUNKS_LAST_LF);
    case WEIR_CHUNKS_TRAILER:
        return skip_text(c, WEIR_CHUNKS_TRAILER, WEIR_CHUNKS_TRAILER_LF);
    case WEIR_CHUNKS_TRAILER_LF:
        return expect(c, '\n', WEIR_CHUNKS_TRAILER_FIRST);
    case WEIR_CHUNKS_LAST_LF:
        return expect(c, '\n', WEIR_CHUNKS_DONE);
    case WEIR_CHUNKS_DATA:
    case WEIR_CHUNKS_DONE:
    case WEIR_CHUNKS_BAD:
        break;
    }
    return WEIR_CHUNKS_BAD;
}

size_t weir_http1_chunks_feed(struct weir_http1_chunks *chunks, const char *bytes, size_t len,
                              struct weir_str *data)
{
    size_t used = 0;
    *data = (struct weir_str){.ptr = bytes};
    while (used < len && chunks->state != WEIR_CHUNKS_DATA && chunks->state < WEIR_CHUNKS_DONE)
        chunks->state = next(chunks, bytes[used++]);
    if (chunks->state == WEIR_CHUNKS_DATA && used < len) {
        size_t part = len - used < chunks->left ? len - used : chunks->left;
        *data = (struct weir_str){.ptr = bytes + used, .len = part};
        used += part;
        chunks->left -= (uint32_t)part;
        if (chunks->left == 0)
            chunks->state = WEIR_CHUNKS_DATA_CR;
    }
    chunks->coded += used;
    return used;
}
