/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/http_request.h"

#include "base/str.h"
#include "proto/uri.h"
#include "serve/http_origin.h"

#include <strings.h>

static bool is_name(struct weir_str a, struct weir_str b)
{
    return a.len == b.len && strncasecmp(a.ptr, b.ptr, a.len) == 0;
}

/* ---- the query ---- */

static bool find_in_query(struct weir_http_request *r, struct weir_str wanted,
                          struct weir_str *value)
{
    char *room = r->scratch + r->scratch_used;
    for (uint32_t i = 0; i < r->decoded_count; i++) {
        if (weir_str_eq(r->decoded[i].name, wanted)) {
            *value = r->decoded[i].value;
            return true;
        }
    }
    int found =
        weir_query_value(r->query, wanted, room, sizeof(r->scratch) - r->scratch_used, value);
    r->has_failed |= found < 0;
    if (found <= 0)
        return false;
    if (value->ptr == room && r->decoded_count < WEIR_HTTP_DECODED_MAX) {
        r->decoded[r->decoded_count].name = wanted;
        r->decoded[r->decoded_count++].value = *value;
    }
    r->scratch_used += value->ptr == room ? value->len : 0;
    return true;
}

/* ---- headers and cookies ---- */

static bool find_header(const struct weir_http_request *r, struct weir_str wanted,
                        struct weir_str *value)
{
    for (uint32_t i = 0; i < r->http->header_count; i++) {
        if (is_name(r->http->headers[i].name, wanted)) {
            *value = r->http->headers[i].value;
            return true;
        }
    }
    return false;
}

static bool find_cookie(const struct weir_http_request *r, struct weir_str wanted,
                        struct weir_str *value)
{
    for (uint32_t i = 0; i < r->http->header_count; i++) {
        if (is_name(r->http->headers[i].name, WEIR_STR("Cookie")) &&
            weir_cookie_value(r->http->headers[i].value, wanted, value))
            return true;
    }
    return false;
}

/* What settings call verified must come once, and from a trusted proxy: else it is not there. */
static bool find_verified(struct weir_http_request *r, struct weir_str wanted,
                          struct weir_str *value)
{
    uint32_t count = 0;
    if (!r->is_trusted)
        return false;
    for (uint32_t i = 0; i < r->http->header_count; i++) {
        if (is_name(r->http->headers[i].name, wanted)) {
            *value = r->http->headers[i].value;
            count++;
        }
    }
    if (count > 1)
        r->has_failed = true;
    return count == 1 && value->len > 0;
}

/* ---- attributes ---- */

static bool find_told(struct weir_http_request *r, struct weir_str name, struct weir_str *value)
{
    for (uint32_t i = 0; i < r->options->attribute_count; i++) {
        const struct weir_http_attribute *a = &r->options->attributes[i];
        if (!weir_str_eq(a->name, name))
            continue;
        switch (a->from) {
        case WEIR_HTTP_FROM_HEADER:
            return find_verified(r, a->part, value);
        case WEIR_HTTP_FROM_COOKIE:
            return find_cookie(r, a->part, value);
        case WEIR_HTTP_FROM_QUERY:
            return find_in_query(r, a->part, value);
        }
    }
    return false;
}

/* "header.NAME" and its like: what follows the dot, or nothing. */
static struct weir_str part_of(struct weir_str name, struct weir_str prefix)
{
    if (!weir_str_starts(name, prefix))
        return (struct weir_str){.len = 0};
    return (struct weir_str){.ptr = name.ptr + prefix.len, .len = name.len - prefix.len};
}

static const struct weir_str *plain_of(const struct weir_http_request *r, struct weir_str name)
{
    const struct {
        struct weir_str name;
        const struct weir_str *value;
    } plain[] = {
        {WEIR_STR("remote_address"), &r->address}, {WEIR_STR("path"), &r->path},
        {WEIR_STR("method"), &r->method},          {WEIR_STR("host"), &r->host},
        {WEIR_STR("scheme"), &r->scheme},
    };
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
        if (weir_str_eq(plain[i].name, name))
            return plain[i].value;
    return NULL;
}

static bool find(struct weir_http_request *r, struct weir_str name, struct weir_str *value)
{
    const struct weir_str *plain = plain_of(r, name);
    if (plain) {
        *value = *plain;
        return plain->ptr != NULL;
    }
    struct weir_str part = part_of(name, WEIR_STR("header."));
    if (part.len > 0)
        return find_header(r, part, value);
    part = part_of(name, WEIR_STR("cookie."));
    if (part.len > 0)
        return find_cookie(r, part, value);
    part = part_of(name, WEIR_STR("query."));
    if (part.len > 0)
        return find_in_query(r, part, value);
    return find_told(r, name, value);
}

int weir_http_request_attribute(void *request, struct weir_str name, struct weir_str *value)
{
    struct weir_http_request *r = request;
    bool is_there = find(r, name, value);
    return r->has_failed ? WEIR_ERR_INVALID : is_there;
}

/* ---- the whole ---- */

int weir_http_request_read(struct weir_http_request *out, const struct weir_http1_request *http,
                           struct weir_str below, const struct weir_http_peer *peer,
                           const struct weir_http_options *options, const char **why)
{
    struct weir_http_origin origin;
    out->http = http;
    out->options = options;
    out->is_trusted = peer->is_trusted;
    out->decoded_count = 0;
    out->has_failed = false;
    out->scratch_used = 0;
    int err = weir_http_origin_read(&origin, http, below, peer, options, why);
    if (err)
        return err;
    out->method = origin.method;
    out->scheme = origin.scheme;
    out->path = out->query = (struct weir_str){.ptr = NULL};
    if (weir_str_eq(origin.target, WEIR_STR("*"))) {
        out->path = origin.target;
    } else if (origin.target.ptr) {
        if (weir_uri_normalise(origin.target, out->scratch, &out->path, &out->query) != 0) {
            *why = "the original request's URI is not valid";
            return WEIR_ERR_INVALID;
        }
        out->scratch_used = out->path.ptr == out->scratch ? out->path.len : 0;
    }
    out->host = weir_http_origin_host(&origin, out->scratch + out->scratch_used);
    out->scratch_used += out->host.ptr ? out->host.len : 0;
    out->address = weir_http_origin_address(http, peer, options, out->address_text);
    return 0;
}
