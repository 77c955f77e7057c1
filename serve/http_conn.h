/* http_conn.h - a connection that speaks HTTP/1.1, as the http and the admin listener have it.
 *
 *     bytes --> parser --> serve(request)       the listener's own: what is asked, what to answer
 *                  |            |
 *                  |            v
 *                  |       weir_http_conn_answer()      date, length, whether it stays open
 *                  +--> no request: said in one line, counted, logged, closed
 *
 * It is the first member of a listener's own state, so that feed and expire can be net's functions
 * as they are.  An answer is built on the stack and queued in one piece.
 *
 * Threads: the connection's.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_HTTP_CONN_H
#define WEIR_SERVE_HTTP_CONN_H

#include "proto/http1.h"
#include "serve/service.h"

struct weir_http_conn {
    struct weir_conn *conn;
    struct weir_worker *worker;
    struct weir_http1 *parser;
    enum weir_front front; /* in whose name it counts */
    void (*serve)(struct weir_http_conn *http, const struct weir_http1_request *request);
    bool is_alive; /* net knows that the peer is sensible */
    bool is_draining;
    uint64_t date_s; /* of date[] */
    char date[WEIR_HTTP1_DATE_LEN];
};

/* 0, or WEIR_ERR_NOMEM. */
WEIR_MUST_CHECK int weir_http_conn_init(struct weir_http_conn *http, struct weir_conn *conn,
                                        enum weir_front front,
                                        void (*serve)(struct weir_http_conn *http,
                                                      const struct weir_http1_request *request));
void weir_http_conn_fini(struct weir_http_conn *http); /* accepts a half-made one */

/* For struct weir_protocol; state is the weir_http_conn. */
int weir_http_conn_feed(void *state, const uint8_t *bytes, size_t len);
bool weir_http_conn_expire(void *state, bool is_amid);
void weir_http_conn_drain(void *state);

/* Writes an answer.  Status, content type, lines and body are given; the rest is filled in.  Its
 * length, or 0 where it does not fit. */
size_t weir_http_conn_write(struct weir_http_conn *http, const struct weir_http1_request *request,
                            struct weir_http1_answer *answer, char *buf, size_t cap);
/* The same, queued. */
void weir_http_conn_answer(struct weir_http_conn *http, const struct weir_http1_request *request,
                           struct weir_http1_answer *answer);
/* One line of text as an answer. */
void weir_http_conn_say(struct weir_http_conn *http, const struct weir_http1_request *request,
                        int status, struct weir_str text);

#endif
