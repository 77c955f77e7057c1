/* http1_chunks.h - the chunked transfer coding, read strictly.
 *
 *     5;name=value CRLF  hello CRLF  0 CRLF  Trailer: value CRLF  CRLF
 *
 * Sizes are 1 to 8 hex digits; extensions and trailers are ignored, but hold printable bytes only;
 * every line ends in CRLF.  All bytes are counted (coded), so that a body of one-byte chunks or
 * endless extensions comes to an end.
 *
 * Purity: no I/O, no allocation.  Threads: one at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PROTO_HTTP1_CHUNKS_H
#define WEIR_PROTO_HTTP1_CHUNKS_H

#include <weir/types.h>

enum weir_chunks_state {
    WEIR_CHUNKS_SIZE_FIRST, /* a digit is due */
    WEIR_CHUNKS_SIZE,
    WEIR_CHUNKS_EXTENSION,
    WEIR_CHUNKS_SIZE_LF,
    WEIR_CHUNKS_DATA,
    WEIR_CHUNKS_DATA_CR,
    WEIR_CHUNKS_DATA_LF,
    WEIR_CHUNKS_TRAILER_FIRST, /* a line, or the empty line */
    WEIR_CHUNKS_TRAILER,
    WEIR_CHUNKS_TRAILER_LF,
    WEIR_CHUNKS_LAST_LF,
    WEIR_CHUNKS_DONE,
    WEIR_CHUNKS_BAD,
};

struct weir_http1_chunks {
    enum weir_chunks_state state;
    uint8_t digits; /* of the size, so far */
    uint32_t left;  /* of this chunk */
    uint64_t coded; /* bytes read, framing included */
};

void weir_http1_chunks_init(struct weir_http1_chunks *chunks);

/* Reads until some data has come, or the body is done or bad, or the bytes are used up; returns
 * how many were.  *data: a slice of bytes, perhaps empty. */
size_t weir_http1_chunks_feed(struct weir_http1_chunks *chunks, const char *bytes, size_t len,
                              struct weir_str *data);

#endif
