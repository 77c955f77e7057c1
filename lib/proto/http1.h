/* http1.h - HTTP/1.1 as a server hears and says it: bytes in, requests out; answers to bytes.
 *
 *     feed(bytes) --> head (libhttp-parser, checked again) --> body (length, chunks) --> request()
 *                      |  not whole yet: copied aside             |
 *                      +-----------> refuse(status), and no more <+
 *
 * Strict, because two readers that disagree on where a request ends are how requests are smuggled:
 * one space where one is due, CRLF and nothing else, no folding, no space before a colon, one Host,
 * at most one Content-Length and never beside Transfer-Encoding, "chunked" or nothing, chunk sizes
 * in plain hex.  Debian's libhttp-parser is built without its strict checks, so it is trusted with
 * cutting the head into words, and what lies between the words is looked at here; bodies are read
 * here alone.
 *
 * A request that comes in one piece is not copied: all its texts are slices of the bytes fed.
 * Several requests may lie in one piece (pipelining); request() is called for each, in order, and
 * its answer must be sent, or kept, before the next.
 *
 * Purity: no clock, no I/O; allocates only where a request comes in pieces.
 * Threads: one at a time for each struct weir_http1.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PROTO_HTTP1_H
#define WEIR_PROTO_HTTP1_H

#include "base/budget.h"
#include "base/maxima.h"

#include <weir/types.h>
#include <weir/weir.h>

struct weir_http1;

struct weir_http1_header {
    struct weir_str name; /* as sent; compare without case */
    struct weir_str value;
};

/* Borrowed until request() returns. */
struct weir_http1_request {
    struct weir_str method;
    struct weir_str target; /* "/path?query", or "http://host/path?query", or "*" */
    struct weir_str body;
    const struct weir_http1_header *headers;
    uint32_t header_count;
    bool is_http10;
    bool is_head;    /* the answer has no body, whatever its Content-Length says */
    bool keeps_open; /* the client would go on after the answer */
};

struct weir_http1_calls {
    /* false: nothing more is read, the connection ends after what has been sent. */
    bool (*request)(void *ctx, const struct weir_http1_request *request);
    /* What came is no request that we take: answer with this status, and close. */
    void (*refuse)(void *ctx, int status);
    /* The client waits for "HTTP/1.1 100 Continue" before it sends the body. */
    void (*go_on)(void *ctx);
};

WEIR_MUST_CHECK int weir_http1_new(struct weir_http1 **out, const struct weir_http1_calls *calls,
                                   void *ctx);
void weir_http1_free(struct weir_http1 *http);
/* Before the first byte: what requests in pieces hold is paid from there, else they get 503. */
void weir_http1_set_budget(struct weir_http1 *http, struct weir_budget *budget);

/* From within request(): its answer comes later, and so nothing more is read before resume(); what
 * is fed meanwhile is kept.  resume() is as feed() with what was kept. */
void weir_http1_pause(struct weir_http1 *http);
WEIR_MUST_CHECK int weir_http1_resume(struct weir_http1 *http);

/* Takes all the bytes.  0, or negative where the connection must end: refuse() or request() has
 * been called. */
WEIR_MUST_CHECK int weir_http1_feed(struct weir_http1 *http, const uint8_t *bytes, size_t len);
/* Whether a request has begun and is not whole yet. */
bool weir_http1_is_amid(const struct weir_http1 *http);

/* ---- answers ---- */

#define WEIR_HTTP1_DATE_LEN 29 /* "Sun, 06 Nov 1994 08:49:37 GMT" */

void weir_http1_date(char out[WEIR_HTTP1_DATE_LEN], uint64_t unix_s);

struct weir_http1_answer {
    int status;
    struct weir_str date;         /* empty: none */
    struct weir_str content_type; /* empty: none */
    struct weir_str lines;        /* further headers, each ended by CRLF */
    struct weir_str body;
    bool is_head;    /* lengths as if, but no body */
    bool keeps_open; /* false: Connection: close */
    bool is_http10;
};

/* Writes the whole answer and returns its length; 0 where cap does not suffice. */
size_t weir_http1_answer_write(char *buf, size_t cap, const struct weir_http1_answer *answer);

/* "Not Found" of 404. */
struct weir_str weir_http1_reason(int status);

#endif
