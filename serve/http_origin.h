/* http_origin.h - where a gateway has written what it asks about.  Part of http_request.
 *
 * Purity: no clock, no I/O, no allocation.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_HTTP_ORIGIN_H
#define WEIR_SERVE_HTTP_ORIGIN_H

#include "serve/http_request.h"

/* All are slices of the request; ptr is NULL where it is not known. */
struct weir_http_origin {
    struct weir_str method, scheme, target, authority;
};

WEIR_MUST_CHECK int weir_http_origin_read(struct weir_http_origin *out,
                                          const struct weir_http1_request *http,
                                          struct weir_str below, const struct weir_http_peer *peer,
                                          const struct weir_http_options *options,
                                          const char **why);

/* The authority as nginx has it in $host: lower case, without port and final dot.  Written at to,
 * which has room for it. */
struct weir_str weir_http_origin_host(const struct weir_http_origin *origin, char *to);

/* The client's address in canonical form: the peer's, written nowhere, or written to text[]. */
struct weir_str weir_http_origin_address(const struct weir_http1_request *http,
                                         const struct weir_http_peer *peer,
                                         const struct weir_http_options *options,
                                         char text[WEIR_ADDRESS_TEXT_MAX]);

#endif
