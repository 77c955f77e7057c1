/* front_http.h - HTTP/1.1: /check, /json and /healthcheck, on one connection.
 *
 *     front_http.c         the connection: routes, answers, times
 *     front_http_check.c   /check: a gateway asks about a request; the rules say what matters
 *     front_http_json.c    /json: Envoy's rate limit service in JSON
 *     hold.c               answers of /check that wait
 *
 * An answer is built on the stack and queued in one piece; what is kept of a connection is a few
 * hundred bytes.
 *
 * Threads: the connection's.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_FRONT_HTTP_H
#define WEIR_SERVE_FRONT_HTTP_H

#include "proto/http1.h"
#include "serve/http_request.h"
#include "serve/service.h"

struct weir_front_http {
    struct weir_conn *conn;
    struct weir_worker *worker;
    const struct weir_http_options *options;
    struct weir_http1 *http;
    struct weir_http_peer peer;
    bool is_alive; /* net knows that the peer is sensible */
    bool is_draining;
    struct weir_hold *hold; /* the answer that waits, or NULL */
    uint64_t date_s;        /* of date[] */
    char date[WEIR_HTTP1_DATE_LEN];
};

/* Queues an answer.  Status, content type, lines and body are given; the rest is filled in. */
void weir_front_http_answer(struct weir_front_http *front, const struct weir_http1_request *request,
                            struct weir_http1_answer *answer);
/* Queues it so much later; false where it cannot be held.  Nothing more is read until then. */
WEIR_MUST_CHECK bool weir_front_http_hold(struct weir_front_http *front,
                                          const struct weir_http1_request *request,
                                          struct weir_http1_answer *answer,
                                          const struct weir_decision *decision, uint64_t delay_ns);
/* One line of text as an answer. */
void weir_front_http_say(struct weir_front_http *front, const struct weir_http1_request *request,
                         int status, struct weir_str text);

/* rest: the target behind "/check". */
void weir_front_http_check(struct weir_front_http *front, const struct weir_http1_request *request,
                           struct weir_str rest);
void weir_front_http_json(struct weir_front_http *front, const struct weir_http1_request *request);

#endif
