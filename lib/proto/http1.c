/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/http1.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "proto/http1_chunks.h"

#include <http_parser.h>
#include <stdlib.h>
#include <strings.h>

/* Where in the head a word lies; the head may move while it grows. */
struct span {
    uint16_t from, len;
};
_Static_assert(WEIR_HTTP1_HEAD_MAX <= UINT16_MAX, "a span can name every byte of a head");

enum state {
    STATE_BETWEEN, /* requests */
    STATE_HEAD,
    STATE_BODY,
    STATE_CHUNKS,
    STATE_DEAD,
};

struct weir_http1 {
    const struct weir_http1_calls *calls;
    void *ctx;
    http_parser parser;
    enum state state;
    int refused;       /* the status that a callback of the parser has found */
    const char *fed;   /* what the parser is being fed, */
    size_t fed_at;     /* and which byte of the head its first one is */
    uint8_t line_ends; /* bytes of empty lines before a request */
    bool is_paused;
    bool ends_after;        /* the pause */
    struct weir_buf behind; /* what was fed meanwhile */

    /* The head */
    struct weir_buf head; /* empty where it came in one piece */
    size_t head_len;
    struct span target;
    struct span names[WEIR_HTTP1_HEADERS_MAX];
    uint32_t header_count;
    bool is_in_value; /* the next name is a new one */

    /* The body */
    uint64_t body_left;
    struct weir_http1_chunks chunks;
    struct weir_buf body; /* empty where it came in one piece with its head */
};

/* What the headers say of the message itself. */
struct framing {
    uint32_t host_count, length_count, coding_count;
    uint64_t length;
    bool is_bad, is_unknown_coding, expects_go_on;
};

/* ---- the parser's callbacks: where the words are ---- */

static size_t place_of(const struct weir_http1 *h, const char *at)
{
    return h->fed_at + (size_t)(at - h->fed);
}

static int on_target(http_parser *parser, const char *at, size_t len)
{
    struct weir_http1 *h = parser->data;
    size_t from = place_of(h, at);
    if (h->target.len == 0)
        h->target.from = (uint16_t)from;
    size_t total = from + len - h->target.from;
    if (total > WEIR_HTTP1_TARGET_MAX) {
        h->refused = 414;
        return 1;
    }
    h->target.len = (uint16_t)total;
    return 0;
}

static int on_name(http_parser *parser, const char *at, size_t len)
{
    struct weir_http1 *h = parser->data;
    size_t from = place_of(h, at);
    if (h->is_in_value || h->header_count == 0) {
        if (h->header_count == WEIR_HTTP1_HEADERS_MAX) {
            h->refused = 431;
            return 1;
        }
        h->names[h->header_count++] = (struct span){.from = (uint16_t)from};
        h->is_in_value = false;
    }
    struct span *name = &h->names[h->header_count - 1];
    name->len = (uint16_t)(from + len - name->from);
    return 0;
}

static int on_value(http_parser *parser, const char *at, size_t len)
{
    struct weir_http1 *h = parser->data;
    (void)at; /* values are what lies between the names: see read_values() */
    (void)len;
    h->is_in_value = true;
    return 0;
}

static int on_head_end(http_parser *parser)
{
    (void)parser;
    return 1; /* bodies are ours */
}

static int on_end(http_parser *parser)
{
    http_parser_pause(parser, 1); /* so that it returns behind the head */
    return 0;
}

static const http_parser_settings parser_settings = {
    .on_url = on_target,
    .on_header_field = on_name,
    .on_header_value = on_value,
    .on_headers_complete = on_head_end,
    .on_message_complete = on_end,
};

/* ---- what lies between the words ---- */

static bool is_visible(struct weir_str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] <= ' ' || s.ptr[i] > '~')
            return false;
    return s.len > 0;
}

/* "METHOD SP target SP HTTP/1.x CRLF", where the headers begin at `first`. */
static bool is_good_line(const struct weir_http1 *h, const char *head, size_t first)
{
    size_t method_len = h->target.from - (size_t)1;
    size_t after = (size_t)h->target.from + h->target.len;
    if (h->target.from < 2 || first != after + sizeof(" HTTP/1.1\r\n") - 1)
        return false;
    if (head[method_len] != ' ' || memchr(head, ' ', method_len))
        return false;
    return memcmp(head + after, " HTTP/1.", 8) == 0 && memcmp(head + first - 2, "\r\n", 2) == 0 &&
           is_visible((struct weir_str){.ptr = head + h->target.from, .len = h->target.len});
}

static struct weir_str trimmed(const char *from, const char *to)
{
    while (from < to && (*from == ' ' || *from == '\t'))
        from++;
    while (from < to && (to[-1] == ' ' || to[-1] == '\t'))
        to--;
    return (struct weir_str){.ptr = from, .len = (size_t)(to - from)};
}

/* Each header is "name:value CRLF" and the next begins right behind it.  The parser has looked at
 * the bytes of names and values, but takes a space in a name, folded values and bare LF. */
static bool read_values(const struct weir_http1 *h, const char *head,
                        struct weir_http1_header *headers)
{
    for (uint32_t i = 0; i < h->header_count; i++) {
        const char *name = head + h->names[i].from;
        const char *colon = name + h->names[i].len;
        size_t next = i + 1 < h->header_count ? h->names[i + 1].from : h->head_len - 2;
        const char *end = head + next - 2;
        if (end <= colon || *colon != ':' || memcmp(end, "\r\n", 2) != 0)
            return false;
        size_t value_len = (size_t)(end - colon);
        if (memchr(name, ' ', h->names[i].len) || memchr(colon, '\n', value_len) ||
            memchr(colon, '\r', value_len))
            return false;
        headers[i].name = (struct weir_str){.ptr = name, .len = h->names[i].len};
        headers[i].value = trimmed(colon + 1, end);
    }
    return true;
}

static bool is_word(struct weir_str s, const char *word)
{
    return strncasecmp(s.ptr, word, s.len) == 0 && word[s.len] == '\0';
}

static bool read_length(struct weir_str s, uint64_t *out)
{
    uint64_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] < '0' || s.ptr[i] > '9' || n > UINT64_MAX / 10 - 1)
            return false;
        n = n * 10 + (uint64_t)(s.ptr[i] - '0');
    }
    *out = n;
    return s.len > 0;
}

static void read_framing(const struct weir_http1_header *header, struct framing *f)
{
    switch (header->name.len) { /* most names are told apart by their length */
    case sizeof("Host") - 1:
        f->host_count += is_word(header->name, "Host");
        break;
    case sizeof("Expect") - 1:
        f->expects_go_on |=
            is_word(header->name, "Expect") && is_word(header->value, "100-continue");
        break;
    case sizeof("Content-Length") - 1:
        if (is_word(header->name, "Content-Length")) {
            f->length_count++;
            f->is_bad |= !read_length(header->value, &f->length);
        }
        break;
    case sizeof("Transfer-Encoding") - 1:
        if (is_word(header->name, "Transfer-Encoding")) {
            f->coding_count++;
            f->is_unknown_coding |= !is_word(header->value, "chunked");
        }
        break;
    default:
        break;
    }
}

/* 0, or the status of the refusal. */
static int check_framing(const struct framing *f, bool is_http10)
{
    if (f->is_bad || f->length_count > 1 || f->coding_count > 1 ||
        (f->length_count && f->coding_count) || (is_http10 && f->coding_count))
        return 400;
    if (f->host_count > 1 || (f->host_count == 0 && !is_http10))
        return 400;
    if (f->is_unknown_coding)
        return 501;
    return f->length > WEIR_HTTP1_BODY_MAX ? 413 : 0;
}

/* ---- the way of a request ---- */

static void begin_request(struct weir_http1 *h)
{
    http_parser_init(&h->parser, HTTP_REQUEST);
    h->parser.data = h;
    h->state = STATE_HEAD;
    h->head_len = 0;
    h->target = (struct span){0};
    h->header_count = 0;
    h->is_in_value = false;
    h->refused = 0;
}

static void forget(struct weir_buf *buf)
{
    if (buf->cap > WEIR_BUF_UNPAID)
        weir_buf_fini(buf);
    else
        weir_buf_cut(buf, 0);
}

static void die(struct weir_http1 *h)
{
    h->state = STATE_DEAD;
    weir_buf_fini(&h->head);
    weir_buf_fini(&h->body);
    weir_buf_fini(&h->behind);
}

static void refuse(struct weir_http1 *h, int status)
{
    h->calls->refuse(h->ctx, status);
    die(h);
}

static const char *head_of(const struct weir_http1 *h, const char *fed)
{
    return h->head.len > 0 ? h->head.ptr : fed;
}

static void finish_request(struct weir_http1 *h, const char *head,
                           const struct weir_http1_header *headers, struct weir_str body)
{
    struct weir_http1_request request = {
        .method = {.ptr = head, .len = h->target.from - (size_t)1},
        .target = {.ptr = head + h->target.from, .len = h->target.len},
        .body = body,
        .headers = headers,
        .header_count = h->header_count,
        .is_http10 = h->parser.http_minor == 0,
        .is_head = h->parser.method == HTTP_HEAD,
        .keeps_open = http_should_keep_alive(&h->parser),
    };
    bool goes_on = h->calls->request(h->ctx, &request) && request.keeps_open;
    h->ends_after = h->is_paused && !goes_on;
    if (!goes_on && !h->is_paused) {
        die(h);
        return;
    }
    forget(&h->head);
    forget(&h->body);
    h->state = STATE_BETWEEN;
    h->line_ends = 0;
}

/* The body came in pieces, and is whole now. */
static void finish_kept(struct weir_http1 *h)
{
    struct weir_http1_header headers[WEIR_HTTP1_HEADERS_MAX];
    bool is_good = read_values(h, h->head.ptr, headers);
    WEIR_ASSERT(is_good); /* it was when the head had come */
    finish_request(h, h->head.ptr, headers, weir_buf_str(&h->body));
}

static int refusal_of_parser(const struct weir_http1 *h)
{
    enum http_errno err = HTTP_PARSER_ERRNO(&h->parser);
    if (h->refused)
        return h->refused;
    return err == HPE_HEADER_OVERFLOW ? 431 : 400;
}

/* Looks at a whole head, between its words.  0, or the status of the refusal. */
static int read_head(const struct weir_http1 *h, const char *head,
                     struct weir_http1_header *headers, struct framing *f)
{
    size_t first = h->header_count > 0 ? h->names[0].from : h->head_len - 2;
    if (h->parser.http_major != 1 || h->parser.http_minor > 1)
        return 505;
    if (h->head_len < 4 || memcmp(head + h->head_len - 4, "\r\n\r\n", 4) != 0 ||
        !is_good_line(h, head, first) || !read_values(h, head, headers))
        return 400;
    for (uint32_t i = 0; i < h->header_count; i++)
        read_framing(&headers[i], f);
    return check_framing(f, h->parser.http_minor == 0);
}

/* The body is yet to come: keeps the head until then. */
static void await_body(struct weir_http1 *h, const char *head, const struct framing *f,
                       bool has_rest)
{
    if (h->head.len == 0)
        weir_buf_add(&h->head, (struct weir_str){.ptr = head, .len = h->head_len});
    if (h->head.has_failed) {
        refuse(h, 503);
        return;
    }
    h->body_left = f->length;
    weir_http1_chunks_init(&h->chunks);
    h->state = f->coding_count ? STATE_CHUNKS : STATE_BODY;
    if (f->expects_go_on && !has_rest && h->parser.http_minor == 1)
        h->calls->go_on(h->ctx);
}

/* A whole head lies at `head`; the `left` bytes at `rest` follow it.  Returns how many of those
 * belong to the request. */
static size_t take_head(struct weir_http1 *h, const char *head, const char *rest, size_t left)
{
    struct weir_http1_header headers[WEIR_HTTP1_HEADERS_MAX];
    struct framing f = {0};
    int status = read_head(h, head, headers, &f);
    if (status) {
        refuse(h, status);
        return left;
    }
    if (f.coding_count == 0 && f.length <= left) {
        finish_request(h, head, headers, (struct weir_str){.ptr = rest, .len = f.length});
        return f.length;
    }
    await_body(h, head, &f, left > 0);
    return 0;
}

/* ---- one function for each state: bytes in, how many were used ---- */

/* One empty line before a request is forgiven, as RFC 9112 asks (2.2). */
static size_t feed_between(struct weir_http1 *h, const char *bytes, size_t len)
{
    (void)len;
    if (bytes[0] == "\r\n"[h->line_ends & 1] && h->line_ends < 2) {
        h->line_ends++;
        return 1;
    }
    if ((h->line_ends & 1) || bytes[0] < 'A' || bytes[0] > 'Z')
        refuse(h, 400);
    else
        begin_request(h);
    return 0;
}

static size_t feed_head(struct weir_http1 *h, const char *bytes, size_t len)
{
    size_t room = WEIR_HTTP1_HEAD_MAX - h->head_len;
    size_t fed = len < room ? len : room;
    h->fed = bytes;
    h->fed_at = h->head_len;
    size_t used = http_parser_execute(&h->parser, &parser_settings, bytes, fed);
    bool is_whole = HTTP_PARSER_ERRNO(&h->parser) == HPE_PAUSED;
    if (!is_whole && HTTP_PARSER_ERRNO(&h->parser) != HPE_OK) {
        refuse(h, refusal_of_parser(h));
        return len;
    }
    h->head_len += used;
    if (!is_whole || h->head.len > 0)
        weir_buf_add(&h->head, (struct weir_str){.ptr = bytes, .len = used});
    if (h->head.has_failed) {
        refuse(h, 503);
        return len;
    }
    if (is_whole)
        return used + take_head(h, head_of(h, bytes), bytes + used, len - used);
    if (h->head_len == WEIR_HTTP1_HEAD_MAX) {
        refuse(h, 431);
        return len;
    }
    return used;
}

static size_t feed_body(struct weir_http1 *h, const char *bytes, size_t len)
{
    size_t used = len < h->body_left ? len : (size_t)h->body_left;
    weir_buf_add(&h->body, (struct weir_str){.ptr = bytes, .len = used});
    h->body_left -= used;
    if (h->body.has_failed)
        refuse(h, 503);
    else if (h->body_left == 0)
        finish_kept(h);
    return used;
}

static size_t feed_chunks(struct weir_http1 *h, const char *bytes, size_t len)
{
    struct weir_str data;
    size_t used = weir_http1_chunks_feed(&h->chunks, bytes, len, &data);
    if (h->chunks.state == WEIR_CHUNKS_BAD) {
        refuse(h, 400);
        return len;
    }
    bool is_too_large =
        data.len > WEIR_HTTP1_BODY_MAX - h->body.len || h->chunks.coded > WEIR_HTTP1_CODED_MAX;
    weir_buf_add(&h->body, data);
    if (is_too_large || h->body.has_failed) {
        refuse(h, is_too_large ? 413 : 503);
        return len;
    }
    if (h->chunks.state == WEIR_CHUNKS_DONE)
        finish_kept(h);
    return used;
}

/* ---- the outside ---- */

int weir_http1_new(struct weir_http1 **out, const struct weir_http1_calls *calls, void *ctx)
{
    struct weir_http1 *h = calloc(1, sizeof(*h));
    if (!h)
        return WEIR_ERR_NOMEM;
    h->calls = calls;
    h->ctx = ctx;
    h->state = STATE_BETWEEN;
    weir_buf_init(&h->head, WEIR_HTTP1_HEAD_MAX);
    weir_buf_init(&h->body, WEIR_HTTP1_BODY_MAX);
    weir_buf_init(&h->behind, WEIR_HTTP1_BEHIND_MAX);
    *out = h;
    return 0;
}

void weir_http1_set_budget(struct weir_http1 *http, struct weir_budget *budget)
{
    http->head.budget = http->body.budget = http->behind.budget = budget;
}

void weir_http1_free(struct weir_http1 *http)
{
    if (!http)
        return;
    weir_buf_fini(&http->head);
    weir_buf_fini(&http->body);
    weir_buf_fini(&http->behind);
    free(http);
}

int weir_http1_feed(struct weir_http1 *http, const uint8_t *bytes, size_t len)
{
    static size_t (*const feed[])(struct weir_http1 *, const char *, size_t) = {
        [STATE_BETWEEN] = feed_between,
        [STATE_HEAD] = feed_head,
        [STATE_BODY] = feed_body,
        [STATE_CHUNKS] = feed_chunks,
    };
    const char *at = (const char *)bytes;
    while (len > 0 && http->state != STATE_DEAD && !http->is_paused) {
        size_t used = feed[http->state](http, at, len);
        WEIR_ASSERT(used <= len);
        at += used;
        len -= used;
    }
    if (http->is_paused && !http->ends_after)
        weir_buf_add(&http->behind, (struct weir_str){.ptr = at, .len = len});
    if (http->behind.has_failed)
        die(http); /* whoever sends so much without waiting for an answer gets none */
    return http->state == STATE_DEAD ? WEIR_ERR_INVALID : 0;
}

void weir_http1_pause(struct weir_http1 *http)
{
    http->is_paused = true;
}

int weir_http1_resume(struct weir_http1 *http)
{
    struct weir_buf behind = http->behind;
    int err = 0;
    weir_buf_init(&http->behind, behind.len_max);
    http->behind.budget = behind.budget;
    http->is_paused = false;
    if (http->ends_after)
        die(http);
    else
        err = weir_http1_feed(http, (const uint8_t *)behind.ptr, behind.len);
    weir_buf_fini(&behind);
    return http->state == STATE_DEAD ? WEIR_ERR_INVALID : err;
}

bool weir_http1_is_amid(const struct weir_http1 *http)
{
    return http->state != STATE_BETWEEN && http->state != STATE_DEAD;
}
