/* front_http.h - HTTP/1.1: /check, /json and /healthcheck, on one connection.
 *
 *     http_conn.c          the connection: requests, answers, times
 *     front_http.c         routes
 *     front_http_check.c   /check: a gateway asks about a request; the rules say what matters
 *     front_http_json.c    /json: Envoy's rate limit service in JSON
 *     hold.c               answers of /check that wait
 *
 * What is kept of a connection is a few hundred bytes.
 *
 * Threads: the connection's.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_FRONT_HTTP_H
#define WEIR_SERVE_FRONT_HTTP_H

#include "base/buf.h"
#include "serve/ask.h"
#include "serve/http_conn.h"
#include "serve/http_request.h"

/* What is kept of a request while the store decides it. */
struct weir_front_asked {
    struct weir_http1_request request; /* how to answer, and no texts */
    int deny_status;                   /* of /check */
    bool holds;
    struct weir_buf body; /* of /json, where it is needed for the answer */
};

struct weir_front_http {
    struct weir_http_conn http;
    const struct weir_http_options *options;
    struct weir_http_peer peer;
    struct weir_hold *hold;    /* the answer that waits, or NULL */
    struct weir_waiter waiter; /* for a decision */
    struct weir_front_asked asked;
};

/* The request's decision comes later: nothing more is read until it is answered, and done. */
void weir_front_http_wait(struct weir_front_http *front, const struct weir_http1_request *request);
void weir_front_http_done(struct weir_front_http *front);
static inline struct weir_front_http *weir_front_http_of(struct weir_waiter *waiter)
{
    return (struct weir_front_http *)(void *)((char *)waiter -
                                              offsetof(struct weir_front_http, waiter));
}

/* Queues an answer so much later; false where it cannot be held.  Nothing more is read until
 * then. */
WEIR_MUST_CHECK bool weir_front_http_hold(struct weir_front_http *front,
                                          const struct weir_http1_request *request,
                                          struct weir_http1_answer *answer,
                                          const struct weir_decision *decision, uint64_t delay_ns);

/* rest: the target behind "/check". */
void weir_front_http_check(struct weir_front_http *front, const struct weir_http1_request *request,
                           struct weir_str rest);
void weir_front_http_json(struct weir_front_http *front, const struct weir_http1_request *request);

#endif
