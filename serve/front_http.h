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

#include "serve/http_conn.h"
#include "serve/http_request.h"

struct weir_front_http {
    struct weir_http_conn http;
    const struct weir_http_options *options;
    struct weir_http_peer peer;
    struct weir_hold *hold; /* the answer that waits, or NULL */
};

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
