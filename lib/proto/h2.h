/* h2.h - the server's side of HTTP/2, without I/O.
 *
 *     feed(bytes) --> nghttp2 --> begin, header..., data..., request      what came
 *     flush(send) <-- nghttp2 <-- respond, out, end                       what goes
 *
 * nghttp2 knows frames, HPACK and flow control.  This module adds what a service of small requests
 * needs: streams from a free list, a whole request collected in one buffer, which the response then
 * uses again, and bounds.  It knows nothing of gRPC.
 *
 * A request is told once, when it is complete.  A response is a head, bytes, and trailers; or a
 * head alone, which may be given before the request is complete: the stream is then reset in peace
 * (RFC 9113, 8.1).  A response without trailers stays open, for streaming, until end().
 *
 * What a hostile peer can make us do is bounded: streams at once, bytes of headers and bodies held,
 * and two allowances, which time fills up again: of resets, the peer's (rapid reset,
 * CVE-2023-44487) and those that it provokes from us, and of noise, which is every frame that is
 * part of no request: settings, pings, priorities, window updates, CONTINUATION, empty data.
 * (nghttp2 skips frames of unknown types unseen.)  Who goes beyond is told ENHANCE_YOUR_CALM and
 * let go.
 *
 * Purity: no I/O, no clock.  Memory: taken when a connection opens, when it has more streams open
 *         than ever before, and for bodies above WEIR_H2_INLINE bytes.
 * Threads: one at a time for each connection.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PROTO_H2_H
#define WEIR_PROTO_H2_H

#include "base/budget.h"
#include "proto/pool.h"

#include <stdbool.h>
#include <weir/weir.h>

#define WEIR_H2_STREAMS_MAX 1000          /* open at once on one connection */
#define WEIR_H2_HEADERS_MAX (16u << 10)   /* bytes of a header list, counted as RFC 9113 does */
#define WEIR_H2_HEADERS_CALM (256u << 10) /* beyond that even reading on is too much */
#define WEIR_H2_BODY_MAX ((1u << 20) + 5) /* bytes of a body: a gRPC message and its prefix */
#define WEIR_H2_HELD_MAX (8u << 20)       /* bytes of bodies above INLINE on one connection */
#define WEIR_H2_INLINE 256                /* bytes of a body that need no memory of their own */
#define WEIR_H2_FREE_MAX 128              /* streams kept for the next request */
#define WEIR_H2_RESETS_BURST 1000         /* resets allowed at once, and */
#define WEIR_H2_RESETS_PER_S 100          /* a second */
#define WEIR_H2_NOISE_BURST 10000         /* the same for frames that are part of no request; */
#define WEIR_H2_NOISE_PER_S 1000          /* each request also brings 4, for clients that send */
#define WEIR_H2_NOISE_PER_REQUEST 4       /* window updates and pings beside every one */

struct weir_h2;

enum weir_h2_fault {
    WEIR_H2_FINE,
    WEIR_H2_HEADERS_TOO_LARGE, /* what came beyond was dropped */
    WEIR_H2_BODY_TOO_LARGE,
    WEIR_H2_BODIES_TOO_LARGE, /* together with others, of the connection or of the budget */
};

struct weir_h2_field {
    struct weir_str name, value; /* the name in lower case */
};

struct weir_h2_stream {
    int32_t id;
    enum weir_h2_fault fault; /* given before request() */
    bool is_complete;         /* all of the request is here */
    bool is_answered;         /* respond() was called */
    bool is_dropped;          /* answered early: what still comes is not looked at */

    uint8_t *body; /* the request's; from out() on the response's */
    uint32_t body_len, body_cap;
    uint32_t sent;        /* of the response */
    uint32_t headers_len; /* of the request, so far */

    const struct weir_h2_field *trailers; /* NULL: the response is open */
    uint32_t trailer_count;
    struct weir_h2_stream *next, *before, *after; /* in lists of h2's */
    uint8_t first[WEIR_H2_INLINE];
    _Alignas(16) uint8_t extra[]; /* the user's */
};

/* What the user is told.  name and value are borrowed for the call. */
struct weir_h2_events {
    size_t extra_bytes; /* of each stream, for the user */
    uint64_t name_lens; /* bit n: headers with names of n bytes are wanted; of others no word */
    void (*begin)(void *ctx, struct weir_h2_stream *stream);
    void (*header)(void *ctx, struct weir_h2_stream *stream, struct weir_str name,
                   struct weir_str value);
    /* More of the body is here; the request is not complete. */
    void (*data)(void *ctx, struct weir_h2_stream *stream);
    /* The request is complete, or is at fault, and wants an answer. */
    void (*request)(void *ctx, struct weir_h2_stream *stream);
    /* The stream is gone, answered or not. */
    void (*close)(void *ctx, struct weir_h2_stream *stream);
};

/* pool: where nghttp2's memory comes from; it outlives the connection. */
WEIR_MUST_CHECK int weir_h2_new(struct weir_h2 **out, const struct weir_h2_events *events,
                                void *ctx, struct weir_pool *pool);
/* Before the first byte: bodies above WEIR_H2_INLINE are paid from there. */
void weir_h2_set_budget(struct weir_h2 *h2, struct weir_budget *budget);
void weir_h2_free(struct weir_h2 *h2); /* tells close() of what is still open; also NULL */

/* Bytes from the peer, all consumed.  0, or negative: flush, then close the connection; why() says
 * what was wrong. */
WEIR_MUST_CHECK int weir_h2_feed(struct weir_h2 *h2, const uint8_t *bytes, size_t len,
                                 uint64_t now_ns);
/* Hands all that wants to leave to send().  True where the connection has nothing left to do. */
bool weir_h2_flush(struct weir_h2 *h2, void (*send)(void *ctx, const void *bytes, size_t len),
                   void *ctx);
/* Whether the peer has shown that it speaks HTTP/2. */
bool weir_h2_is_greeted(const struct weir_h2 *h2);
const char *weir_h2_why(const struct weir_h2 *h2);

/* Room for len more bytes of the response, or NULL.  The first call forgets the request's body. */
uint8_t *weir_h2_out(struct weir_h2 *h2, struct weir_h2_stream *stream, size_t len);
/* The head of a response with a body; its fields must live as long as the program. */
void weir_h2_respond(struct weir_h2 *h2, struct weir_h2_stream *stream,
                     const struct weir_h2_field *fields, uint32_t count);
/* A response that is nothing but a head.  Fields are copied. */
void weir_h2_respond_only(struct weir_h2 *h2, struct weir_h2_stream *stream,
                          const struct weir_h2_field *fields, uint32_t count);
/* There are new bytes in an open response. */
void weir_h2_resume(struct weir_h2 *h2, struct weir_h2_stream *stream);
/* The response ends after its bytes, with trailers that must live as long as the program.  Call it
 * before flush(), or resume() after it. */
void weir_h2_end(struct weir_h2_stream *stream, const struct weir_h2_field *trailers,
                 uint32_t count);

/* Asks the peer for a sign of life, which is bytes. */
void weir_h2_ping(struct weir_h2 *h2);

/* The service goes down: new streams are not wanted any more, open ones are finished.  A peer hears
 * it in two steps (GOAWAY for all streams, after a round trip for those that came), so that no
 * request is lost on the way. */
void weir_h2_drain(struct weir_h2 *h2);

#endif
