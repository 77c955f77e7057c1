/* http_request.h - the request behind a gateway's question, as attributes that rules can name.
 *
 *     client --GET /orders?id=7--> gateway --GET /check, X-Forwarded-Uri: /orders?id=7--> weir
 *
 * What is asked about is not the question itself.  It is read off, in whichever form there is,
 *
 *     X-Forwarded-Method, X-Forwarded-Uri            Traefik, Caddy, APISIX
 *     X-Original-Method, X-Original-URI or -URL      nginx and its ingress
 *     the request line below /check                  Envoy
 *
 * and X-Forwarded-Host, -Proto and -For, if the peer is a trusted proxy; from anybody else only the
 * request line and the socket's address count.  A gateway sets one form, and passes on what its
 * client sends in another: two that disagree are refused.  The client's address is the rightmost of
 * X-Forwarded-For that no trusted proxy has.
 *
 * Values are slices of the request, or of scratch where something had to be decoded; nothing is
 * allocated.  What does not fit into scratch makes the request fail (has_failed), so that no limit
 * is forgotten.
 *
 * Purity: no clock, no I/O, no allocation.  Threads: one at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_HTTP_REQUEST_H
#define WEIR_SERVE_HTTP_REQUEST_H

#include "proto/http1.h"
#include "serve/http_options.h"

/* Who asks; looked at once for each connection. */
struct weir_http_peer {
    struct weir_address address;
    bool is_unix, is_trusted;
    uint8_t text_len;
    char text[WEIR_ADDRESS_TEXT_MAX]; /* canonical; "unix" */
};

/* text: as weir_conn_peer() says it. */
void weir_http_peer_read(struct weir_http_peer *out, const char *text,
                         const struct weir_http_options *options);

#define WEIR_HTTP_DECODED_MAX 32

struct weir_http_request {
    const struct weir_http1_request *http;
    const struct weir_http_options *options;
    bool is_trusted; /* the peer is a trusted proxy */
    /* ptr is NULL where it is not known. */
    struct weir_str method, scheme, host, path, query, address;
    char address_text[WEIR_ADDRESS_TEXT_MAX];
    /* Values of the query that were decoded already. */
    struct {
        struct weir_str name, value;
    } decoded[WEIR_HTTP_DECODED_MAX];
    uint32_t decoded_count;
    bool has_failed;
    size_t scratch_used;
    char scratch[2 * WEIR_HTTP1_HEAD_MAX];
};

/* Reads the original request.  below: what follows "/check" in the target, if that begins with a
 * slash, else empty.  0, or WEIR_ERR_INVALID: *why, for the gateway's operator, says what. */
WEIR_MUST_CHECK int weir_http_request_read(struct weir_http_request *out,
                                           const struct weir_http1_request *http,
                                           struct weir_str below, const struct weir_http_peer *peer,
                                           const struct weir_http_options *options,
                                           const char **why);

/* A weir_attribute_fn. */
int weir_http_request_attribute(void *request, struct weir_str name, struct weir_str *value);

#endif
