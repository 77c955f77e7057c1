/* http_options.h - what /check is told: whom to believe, and where attributes come from.
 *
 * The settings are text; here they are read once, at start, into a form that costs a request
 * nothing.
 *
 * Threads: made by one, then read by any.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_HTTP_OPTIONS_H
#define WEIR_SERVE_HTTP_OPTIONS_H

#include "proto/headers.h"
#include "rules/match_cidr.h"

#include <weir/weir.h>

#define WEIR_HTTP_PROXIES_MAX 256
#define WEIR_HTTP_ATTRIBUTES_MAX 64

/* Where the original request is read: several sources that disagree are refused, since a client can
 * send the header that its gateway does not set. */
enum weir_http_original {
    WEIR_HTTP_ORIGINAL_LINE = 1,      /* the request line below /check */
    WEIR_HTTP_ORIGINAL_FORWARDED = 2, /* X-Forwarded-Method, X-Forwarded-Uri */
    WEIR_HTTP_ORIGINAL_ORIGINAL = 4,  /* X-Original-Method, X-Original-URI, X-Original-URL */
    WEIR_HTTP_ORIGINAL_AUTO = 7,
};

enum weir_http_from { WEIR_HTTP_FROM_HEADER, WEIR_HTTP_FROM_COOKIE, WEIR_HTTP_FROM_QUERY };

/* An attribute that rules may name, and the part of the request that fills it. */
struct weir_http_attribute {
    struct weir_str name, part;
    enum weir_http_from from;
};

struct weir_http_options {
    struct weir_cidr proxies[WEIR_HTTP_PROXIES_MAX];
    uint32_t proxy_count;
    bool trusts_unix;
    struct weir_http_attribute attributes[WEIR_HTTP_ATTRIBUTES_MAX];
    uint32_t attribute_count;
    uint32_t original;      /* enum weir_http_original, or'ed */
    struct weir_str domain; /* where the gateway names none; empty: the only one */
    uint32_t dialects;      /* enum weir_dialect, or'ed */
    enum weir_refusal_body body;
};

/* The texts of the settings; they must outlive the options. */
struct weir_http_settings {
    const char *trusted_proxies;  /* "10.0.0.0/8, ::1, unix" */
    const char *user_header;      /* a header with a verified name, or "" */
    const char *attributes;       /* "tier=header:X-Tier, session=cookie:sid" */
    const char *original_request; /* auto, line, forwarded, original */
    const char *check_domain;
    const char *check_headers; /* dialects */
    const char *check_body;    /* plain, problem+json */
};

/* As the settings are where nobody says anything. */
extern const struct weir_http_settings weir_http_settings_default;

/* 0, or WEIR_ERR_INVALID, WEIR_ERR_TOO_LARGE; why[] says what is wrong. */
WEIR_MUST_CHECK int weir_http_options_read(struct weir_http_options *out,
                                           const struct weir_http_settings *settings, char *why,
                                           size_t why_len);

bool weir_http_options_trust(const struct weir_http_options *options, struct weir_address address);

#endif
