/* resp.h - what Redis's clients speak: commands in, replies out.  RESP2 and RESP3.
 *
 *     *2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n        an array of bulk strings: what programs send
 *     ECHO hi\r\n                             an inline command: what people type
 *
 * A command is read where it lies: its arguments are slices of the bytes that were fed.  Only one
 * that comes in pieces is copied aside, and only itself.  What is not whole is read again from its
 * beginning when more comes, which is cheap, because lengths are skipped over, not read through.
 *
 * Strict: lengths in plain digits, CRLF where it is due, nothing but bulk strings in a command.
 * What announces more than a maximum is refused when it announces it, not when it has sent it.
 *
 * Purity: no clock, no I/O; allocates only where a command comes in pieces.
 * Threads: one at a time for each struct weir_resp.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PROTO_RESP_H
#define WEIR_PROTO_RESP_H

#include "base/buf.h"
#include "base/maxima.h"
#include "proto/text.h"

#include <weir/weir.h>

struct weir_resp_command {
    uint32_t count; /* at least 1 */
    struct weir_str args[WEIR_RESP_ARGS_MAX];
};

enum weir_resp_next {
    WEIR_RESP_COMMAND, /* here is one */
    WEIR_RESP_MORE,    /* there is no other whole one in what was fed */
    WEIR_RESP_BAD,     /* no command that we take: `fault` says why; nothing more can be read */
};

struct weir_resp {
    const char *at, *end; /* what was fed and not read yet */
    struct weir_buf side; /* a command that comes in pieces; its budget is the user's to set */
    bool is_side_read;    /* it was whole, and has been handed out */
    const char *fault;    /* in Redis's words, without "ERR Protocol error: " */
};

void weir_resp_init(struct weir_resp *resp);
void weir_resp_fini(struct weir_resp *resp);

/*     feed(bytes); while (next(&command) == WEIR_RESP_COMMAND) ...; end();
 *
 * The bytes, and the arguments of all these commands, are good until end(). */
void weir_resp_feed(struct weir_resp *resp, const void *bytes, size_t len);
enum weir_resp_next weir_resp_next(struct weir_resp *resp, struct weir_resp_command *out);
void weir_resp_end(struct weir_resp *resp);
/* After end(): whether a command has begun and is not whole yet. */
static inline bool weir_resp_is_amid(const struct weir_resp *resp)
{
    return resp->side.len > 0;
}

/* ---- replies ---- */

/* version: 2 or 3, where they differ. */
void weir_resp_put_simple(struct weir_text *text, struct weir_str words);
void weir_resp_put_bulk(struct weir_text *text, struct weir_str bytes);
void weir_resp_put_null(struct weir_text *text, int version);
void weir_resp_put_array(struct weir_text *text, uint64_t count);
/* A map of so many pairs; to RESP2 an array of twice as many. */
void weir_resp_put_map(struct weir_text *text, uint64_t pairs, int version);
/* An error: words of ours, then, quoted, what the client sent: made printable, and cut. */
void weir_resp_put_error(struct weir_text *text, struct weir_str words);
void weir_resp_put_error_about(struct weir_text *text, struct weir_str words, struct weir_str about,
                               struct weir_str more);

#define WEIR_RESP_INT_MAX 23 /* bytes of a number: its type, a sign, 19 digits, CRLF */

/* At least three of them; returns their end. */
static inline char *weir_resp_digits(char *at, uint64_t number)
{
    for (uint64_t more = number; more != 0; more /= 10)
        at++;
    for (char *digit = at; number != 0; number /= 10) /* from the last one: only constants divide */
        *--digit = (char)('0' + number % 10);
    return at;
}

/* At `at`, where there must be room for the longest; returns its end.  A reply to CL.THROTTLE is
 * five of these, most of one digit or two. */
static inline char *weir_resp_int(char *at, int64_t number)
{
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    *at++ = ':';
    if (number < 0)
        *at++ = '-';
    if (rest < 10) {
        *at++ = (char)('0' + rest);
    } else if (rest < 100) {
        *at++ = (char)('0' + rest / 10);
        *at++ = (char)('0' + rest % 10);
    } else {
        at = weir_resp_digits(at, rest);
    }
    memcpy(at, "\r\n", 2);
    return at + 2;
}

static inline void weir_resp_put_int(struct weir_text *text, int64_t number)
{
    if (text->end - text->at < WEIR_RESP_INT_MAX)
        text->has_overflowed = true;
    else
        text->at = weir_resp_int(text->at, number);
}

#endif
