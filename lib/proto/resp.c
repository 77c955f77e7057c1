/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/resp.h"

#include "base/err.h"
#include "base/str.h"

#include <assert.h>

#define DIGITS_MAX 9     /* of a length: more than any maximum has */
#define FRAMING_MAX 1024 /* beside the arguments of a command: type, digits, CRLF, of each */
#define SIDE_STEP 256    /* a command in pieces is gathered in steps of this, then doubled */
#define ABOUT_MAX 128    /* bytes of a client's own words in an error */

static_assert(WEIR_RESP_ARGS_MAX * (1 + DIGITS_MAX + 2 + 2) <= FRAMING_MAX, "framing fits");

void weir_resp_init(struct weir_resp *resp)
{
    *resp = (struct weir_resp){0};
    /* Twice, because what comes behind the end of a command may be gathered with it. */
    weir_buf_init(&resp->side, (size_t)2 * (WEIR_RESP_COMMAND_MAX + FRAMING_MAX));
}

void weir_resp_fini(struct weir_resp *resp)
{
    weir_buf_fini(&resp->side);
}

/* ---- one command, from its beginning ---- */

/* Where reading is.  All readers below return WEIR_RESP_COMMAND where they are done. */
struct reader {
    const char *at, *end;
    const char *fault;
};

static enum weir_resp_next bad(struct reader *r, const char *fault)
{
    r->fault = fault;
    return WEIR_RESP_BAD;
}

/* A length and CRLF, behind its type.  is_none: it was -1. */
static enum weir_resp_next read_length(struct reader *r, uint32_t *out, bool *is_none,
                                       const char *fault)
{
    const char *at = r->at;
    uint32_t number = 0;
    *is_none = at < r->end && *at == '-';
    at += *is_none;
    const char *digits = at;
    while (at < r->end && *at >= '0' && *at <= '9' && at - digits < DIGITS_MAX)
        number = number * 10 + (uint32_t)(*at++ - '0');
    if (at == r->end)
        return WEIR_RESP_MORE;
    bool is_plain = at > digits && (*digits != '0' || at == digits + 1);
    if (*at != '\r' || !is_plain || (*is_none && number != 1))
        return bad(r, fault);
    if (at + 1 == r->end)
        return WEIR_RESP_MORE;
    if (at[1] != '\n')
        return bad(r, fault);
    r->at = at + 2;
    *out = number;
    return WEIR_RESP_COMMAND;
}

static inline bool is_crlf(const char *at)
{
    return memcmp(at, "\r\n", 2) == 0; /* one comparison */
}

/* Nearly all lengths have one digit or two, and are all there with their CRLF and a byte behind it:
 * such a one, of type '*' or '$', is passed over here.  Of all others nothing is read. */
static inline bool read_short(struct reader *r, char type, uint32_t *out)
{
    const char *at = r->at;
    if (r->end - at < 5 || at[0] != type)
        return false;
    uint32_t first = (uint32_t)at[1] - '0', second = (uint32_t)at[2] - '0';
    if (first <= 9 && is_crlf(at + 2)) {
        r->at = at + 4;
        *out = first;
        return true;
    }
    if (first - 1 > 8 || second > 9 || !is_crlf(at + 3))
        return false;
    r->at = at + 5;
    *out = 10 * first + second;
    return true;
}

/* The bytes of a bulk string, behind its length.  room: what is left of the command's maximum. */
static inline enum weir_resp_next read_bytes(struct reader *r, uint32_t len, struct weir_str *out,
                                             size_t *room)
{
    if (len > *room)
        return bad(r, "too big a command");
    *room -= len;
    if ((size_t)(r->end - r->at) < (size_t)len + 2)
        return WEIR_RESP_MORE;
    *out = (struct weir_str){.ptr = r->at, .len = len};
    if (!is_crlf(r->at + len))
        return bad(r, "expected CRLF behind a bulk string");
    r->at += len + 2;
    return WEIR_RESP_COMMAND;
}

static enum weir_resp_next read_long_bulk(struct reader *r, struct weir_str *out, size_t *room)
{
    static const char invalid[] = "invalid bulk length";
    uint32_t len = 0;
    bool is_none;
    if (r->at == r->end)
        return WEIR_RESP_MORE;
    if (*r->at != '$')
        return bad(r, "expected '$'");
    r->at++;
    enum weir_resp_next next = read_length(r, &len, &is_none, invalid);
    if (next != WEIR_RESP_COMMAND)
        return next;
    if (is_none || len > WEIR_RESP_BULK_MAX)
        return bad(r, invalid);
    return read_bytes(r, len, out, room);
}

static inline enum weir_resp_next read_bulk(struct reader *r, struct weir_str *out, size_t *room)
{
    uint32_t len;
    if (!read_short(r, '$', &len))
        return read_long_bulk(r, out, room);
    return read_bytes(r, len, out, room);
}

static enum weir_resp_next read_array(struct reader *restrict r,
                                      struct weir_resp_command *restrict out)
{
    static const char invalid[] = "invalid multibulk length";
    size_t room = WEIR_RESP_COMMAND_MAX;
    uint32_t count = 0;
    bool is_none = false;
    enum weir_resp_next next = WEIR_RESP_COMMAND;
    if (!read_short(r, '*', &count)) {
        r->at++;
        next = read_length(r, &count, &is_none, invalid);
    }
    if (next != WEIR_RESP_COMMAND)
        return next;
    if (count > WEIR_RESP_ARGS_MAX)
        return bad(r, invalid);
    out->count = is_none ? 0 : count;
    for (uint32_t i = 0; i < out->count && next == WEIR_RESP_COMMAND; i++)
        next = read_bulk(r, &out->args[i], &room);
    return next;
}

/* Words between blanks.  Redis also knows quotes; who needs them is a program, and has arrays. */
static const char *split_words(const char *at, const char *end, struct weir_resp_command *out)
{
    bool is_in_word = false;
    out->count = 0;
    for (; at < end; at++) {
        bool is_blank = *at == ' ' || *at == '\t';
        if (!is_blank && ((unsigned char)*at < ' ' || *at == '"' || *at == '\''))
            return "quotes or control bytes in an inline request";
        if (!is_blank && !is_in_word) {
            if (out->count == WEIR_RESP_ARGS_MAX)
                return "too many words in an inline request";
            out->args[out->count++] = (struct weir_str){.ptr = at, .len = 0};
        }
        is_in_word = !is_blank;
        if (is_in_word)
            out->args[out->count - 1].len++;
    }
    return NULL;
}

static enum weir_resp_next read_inline(struct reader *r, struct weir_resp_command *out)
{
    size_t len = (size_t)(r->end - r->at);
    size_t seen = len < WEIR_RESP_INLINE_MAX ? len : WEIR_RESP_INLINE_MAX;
    const char *end = memchr(r->at, '\n', seen);
    if (end == NULL)
        return len < WEIR_RESP_INLINE_MAX ? WEIR_RESP_MORE : bad(r, "too big inline request");
    bool has_cr = end > r->at && end[-1] == '\r';
    const char *fault = split_words(r->at, end - has_cr, out);
    if (fault != NULL)
        return bad(r, fault);
    r->at = end + 1;
    return WEIR_RESP_COMMAND;
}

static enum weir_resp_next read_command(struct reader *r, struct weir_resp_command *out)
{
    if (r->at == r->end)
        return WEIR_RESP_MORE;
    return *r->at == '*' ? read_array(r, out) : read_inline(r, out);
}

/* ---- all that was fed ---- */

void weir_resp_feed(struct weir_resp *resp, const void *bytes, size_t len)
{
    WEIR_ASSERT(resp->at == resp->end && !resp->is_side_read);
    resp->at = bytes;
    resp->end = resp->at + len;
}

/* The command that began in an earlier feed.  What was gathered beyond its end is put back. */
static enum weir_resp_next next_in_side(struct weir_resp *resp, struct weir_resp_command *out)
{
    struct weir_buf *side = &resp->side;
    for (;;) {
        struct reader r = {.at = side->ptr, .end = side->ptr + side->len};
        enum weir_resp_next next = read_command(&r, out);
        resp->fault = r.fault;
        if (next == WEIR_RESP_COMMAND) {
            resp->at -= r.end - r.at;
            resp->is_side_read = true;
            return next;
        }
        size_t left = (size_t)(resp->end - resp->at);
        if (next == WEIR_RESP_BAD || left == 0)
            return next;
        size_t step = side->len > SIDE_STEP ? side->len : SIDE_STEP;
        step = left < step ? left : step;
        weir_buf_add(side, (struct weir_str){.ptr = resp->at, .len = step});
        if (side->has_failed) {
            resp->fault = "out of memory";
            return WEIR_RESP_BAD;
        }
        resp->at += step;
    }
}

enum weir_resp_next weir_resp_next(struct weir_resp *resp, struct weir_resp_command *out)
{
    enum weir_resp_next next;
    do {
        if (resp->fault != NULL)
            return WEIR_RESP_BAD;
        if (resp->side.len > 0 && !resp->is_side_read) {
            next = next_in_side(resp, out);
        } else {
            struct reader r = {.at = resp->at, .end = resp->end};
            next = read_command(&r, out);
            resp->fault = r.fault;
            if (next == WEIR_RESP_COMMAND)
                resp->at = r.at;
        }
    } while (next == WEIR_RESP_COMMAND && out->count == 0); /* empty ones say nothing */
    return next;
}

void weir_resp_end(struct weir_resp *resp)
{
    struct weir_buf *side = &resp->side;
    if (resp->is_side_read)
        weir_buf_cut(side, 0);
    resp->is_side_read = false;
    if (resp->at < resp->end && resp->fault == NULL) {
        weir_buf_add(side,
                     (struct weir_str){.ptr = resp->at, .len = (size_t)(resp->end - resp->at)});
        if (side->has_failed)
            resp->fault = "out of memory";
    } else if (side->len == 0 && side->cap > WEIR_BUF_UNPAID) {
        weir_buf_fini(side);
    }
    resp->at = resp->end = NULL;
}

/* ---- replies ---- */

static void put_head(struct weir_text *text, char type, uint64_t number)
{
    weir_text_put_char(text, type);
    weir_text_put_number(text, number);
    WEIR_TEXT_PUT(text, "\r\n");
}

void weir_resp_put_simple(struct weir_text *text, struct weir_str words)
{
    weir_text_put_char(text, '+');
    weir_text_put(text, words);
    WEIR_TEXT_PUT(text, "\r\n");
}

void weir_resp_put_bulk(struct weir_text *text, struct weir_str bytes)
{
    put_head(text, '$', bytes.len);
    weir_text_put(text, bytes);
    WEIR_TEXT_PUT(text, "\r\n");
}

void weir_resp_put_null(struct weir_text *text, int version)
{
    if (version == 3)
        WEIR_TEXT_PUT(text, "_\r\n");
    else
        WEIR_TEXT_PUT(text, "$-1\r\n");
}

void weir_resp_put_array(struct weir_text *text, uint64_t count)
{
    put_head(text, '*', count);
}

void weir_resp_put_map(struct weir_text *text, uint64_t pairs, int version)
{
    put_head(text, version == 3 ? '%' : '*', version == 3 ? pairs : 2 * pairs);
}

void weir_resp_put_error(struct weir_text *text, struct weir_str words)
{
    weir_text_put_char(text, '-');
    weir_text_put(text, words);
    WEIR_TEXT_PUT(text, "\r\n");
}

void weir_resp_put_error_about(struct weir_text *text, struct weir_str words, struct weir_str about,
                               struct weir_str more)
{
    if (about.len > ABOUT_MAX)
        about.len = ABOUT_MAX;
    weir_text_put_char(text, '-');
    weir_text_put(text, words);
    weir_text_put_printable(text, about);
    weir_text_put(text, more);
    WEIR_TEXT_PUT(text, "\r\n");
}
