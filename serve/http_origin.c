/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/http_origin.h"

#include "base/str.h"

#include <strings.h>

#define HOPS_MAX 64 /* trusted proxies in a row; behind them, the last is taken for the client */

/* Headers that a gateway sets, in the order of names[]. */
enum given {
    FORWARDED_URI,
    FORWARDED_METHOD,
    FORWARDED_HOST,
    FORWARDED_PROTO,
    ORIGINAL_URI,
    ORIGINAL_METHOD,
    ORIGINAL_URL,
    GIVEN_COUNT
};

static const struct weir_str names[GIVEN_COUNT] = {
    [FORWARDED_URI] = {"X-Forwarded-Uri", 15},   [FORWARDED_METHOD] = {"X-Forwarded-Method", 18},
    [FORWARDED_HOST] = {"X-Forwarded-Host", 16}, [FORWARDED_PROTO] = {"X-Forwarded-Proto", 17},
    [ORIGINAL_URI] = {"X-Original-URI", 14},     [ORIGINAL_METHOD] = {"X-Original-Method", 17},
    [ORIGINAL_URL] = {"X-Original-URL", 14},
};
#define NAME_LEN_MIN 14
#define NAME_LEN_MAX 18

/* The last bytes differ more than the first: most names begin with "X-". */
static bool is_name(struct weir_str a, struct weir_str b)
{
    return a.len == b.len && a.len > 0 && ((a.ptr[a.len - 1] ^ b.ptr[b.len - 1]) & ~0x20) == 0 &&
           strncasecmp(a.ptr, b.ptr, a.len) == 0;
}

/* Notes the header if it is one of names[].  False: it came before, with another value. */
static bool note(struct weir_str given[GIVEN_COUNT], const struct weir_http1_header *header)
{
    struct weir_str name = header->name;
    if (name.len < NAME_LEN_MIN || name.len > NAME_LEN_MAX || (name.ptr[0] | 0x20) != 'x')
        return true;
    for (int i = 0; i < GIVEN_COUNT; i++) {
        if (!is_name(name, names[i]))
            continue;
        bool is_new = given[i].ptr == NULL;
        if (is_new)
            given[i] = header->value;
        return is_new || weir_str_eq(given[i], header->value);
    }
    return true;
}

/* ---- URIs ---- */

/* Cuts "scheme://authority/path?query"; false: it is none. */
static bool cut_url(struct weir_str url, struct weir_http_origin *out)
{
    const char *colon = url.len > 3 ? memmem(url.ptr, url.len, "://", 3) : NULL;
    if (!colon || colon == url.ptr)
        return false;
    const char *from = colon + 3, *end = url.ptr + url.len, *at = from;
    while (at < end && *at != '/' && *at != '?' && *at != '#')
        at++;
    if (at == from)
        return false;
    out->scheme = (struct weir_str){.ptr = url.ptr, .len = (size_t)(colon - url.ptr)};
    out->authority = (struct weir_str){.ptr = from, .len = (size_t)(at - from)};
    out->target = at < end && *at == '/' ? (struct weir_str){.ptr = at, .len = (size_t)(end - at)}
                                         : WEIR_STR("/");
    return true;
}

/* Takes one more source for the target; false: it says something else than those before. */
static bool agree(struct weir_http_origin *out, struct weir_str target)
{
    if (!out->target.ptr)
        out->target = target;
    return weir_str_eq(out->target, target);
}

static bool read_targets(struct weir_http_origin *out, const struct weir_str *given,
                         struct weir_str below, uint32_t sources, const char **why)
{
    struct weir_http_origin url = {.target = {.ptr = NULL}};
    bool is_same = true;
    *why = "two headers name different original requests: have the gateway set or clear "
           "X-Forwarded-Uri, X-Original-URI and X-Original-URL, or set original_request";
    if ((sources & WEIR_HTTP_ORIGINAL_ORIGINAL) && given[ORIGINAL_URL].ptr) {
        if (!cut_url(given[ORIGINAL_URL], &url)) {
            *why = "X-Original-URL is not valid";
            return false;
        }
        *out = url;
    }
    if ((sources & WEIR_HTTP_ORIGINAL_ORIGINAL) && given[ORIGINAL_URI].ptr)
        is_same &= agree(out, given[ORIGINAL_URI]);
    if ((sources & WEIR_HTTP_ORIGINAL_FORWARDED) && given[FORWARDED_URI].ptr)
        is_same &= agree(out, given[FORWARDED_URI]);
    /* "/check/" alone may be how a gateway spells the address of weir. */
    bool is_bare = weir_str_eq(below, WEIR_STR("/"));
    if ((sources & WEIR_HTTP_ORIGINAL_LINE) && below.len > 0 && !(is_bare && out->target.ptr))
        is_same &= agree(out, below);
    return is_same;
}

/* The method of the original request: of the same family of headers as its URI. */
static bool read_method(struct weir_http_origin *out, const struct weir_str *given,
                        const struct weir_http1_request *http, uint32_t sources, const char **why)
{
    bool is_original = given[ORIGINAL_URI].ptr || given[ORIGINAL_URL].ptr;
    bool is_forwarded = given[FORWARDED_URI].ptr != NULL;
    bool is_free = !is_original && !is_forwarded; /* no header says which family it is */
    struct weir_str original = (is_original || is_free) && (sources & WEIR_HTTP_ORIGINAL_ORIGINAL)
                                   ? given[ORIGINAL_METHOD]
                                   : (struct weir_str){.ptr = NULL};
    struct weir_str forwarded =
        (is_forwarded || is_free) && (sources & WEIR_HTTP_ORIGINAL_FORWARDED)
            ? given[FORWARDED_METHOD]
            : (struct weir_str){.ptr = NULL};
    if (original.ptr && forwarded.ptr && !weir_str_eq(original, forwarded)) {
        *why = "X-Original-Method and X-Forwarded-Method differ";
        return false;
    }
    out->method = original.ptr ? original : forwarded;
    if (!out->method.ptr && is_free)
        out->method = http->method;
    return true;
}

/* The last of a list: what the nearest proxy has written. */
static struct weir_str last_of(struct weir_str list)
{
    const char *comma = list.len > 0 ? memrchr(list.ptr, ',', list.len) : NULL;
    if (comma) {
        list.len -= (size_t)(comma + 1 - list.ptr);
        list.ptr = comma + 1;
    }
    while (list.len > 0 && (list.ptr[0] == ' ' || list.ptr[0] == '\t'))
        list.ptr++, list.len--;
    return list;
}

static struct weir_str host_header(const struct weir_http1_request *http)
{
    for (uint32_t i = 0; i < http->header_count; i++)
        if (is_name(http->headers[i].name, WEIR_STR("Host")))
            return http->headers[i].value;
    return (struct weir_str){.ptr = NULL};
}

static struct weir_str scheme_of(struct weir_str text)
{
    if (is_name(text, WEIR_STR("https")) || is_name(text, WEIR_STR("wss")))
        return WEIR_STR("https");
    return WEIR_STR("http");
}

int weir_http_origin_read(struct weir_http_origin *out, const struct weir_http1_request *http,
                          struct weir_str below, const struct weir_http_peer *peer,
                          const struct weir_http_options *options, const char **why)
{
    struct weir_str given[GIVEN_COUNT] = {{0}};
    uint32_t sources = peer->is_trusted ? options->original : WEIR_HTTP_ORIGINAL_LINE;
    *out = (struct weir_http_origin){.target = {.ptr = NULL}};
    for (uint32_t i = 0; peer->is_trusted && i < http->header_count; i++) {
        if (!note(given, &http->headers[i])) {
            *why = "a header of the gateway's comes twice, with different values";
            return WEIR_ERR_INVALID;
        }
    }
    if (!read_targets(out, given, below, sources, why) ||
        !read_method(out, given, http, sources, why))
        return WEIR_ERR_INVALID;
    if (given[FORWARDED_HOST].ptr && !out->authority.ptr)
        out->authority = last_of(given[FORWARDED_HOST]);
    if (!out->authority.ptr)
        out->authority = host_header(http);
    if (given[FORWARDED_PROTO].ptr && !out->scheme.ptr)
        out->scheme = last_of(given[FORWARDED_PROTO]);
    out->scheme = scheme_of(out->scheme);
    return 0;
}

struct weir_str weir_http_origin_host(const struct weir_http_origin *origin, char *to)
{
    struct weir_str from = origin->authority;
    bool is_bracketed = from.len > 0 && from.ptr[0] == '[';
    size_t len = 0;
    if (!from.ptr)
        return from;
    for (; len < from.len; len++) {
        char c = from.ptr[len];
        if (c == ':' && !is_bracketed)
            break;
        to[len] = (char)(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
        if (c == ']')
            is_bracketed = false;
    }
    if (len > 0 && to[len - 1] == '.')
        len--;
    return (struct weir_str){.ptr = to, .len = len};
}

/* ---- the client's address ---- */

/* An element of X-Forwarded-For: an address, perhaps with a port or in brackets. */
static bool read_hop(struct weir_str text, struct weir_address *out)
{
    while (text.len > 0 && (text.ptr[0] == ' ' || text.ptr[0] == '\t'))
        text.ptr++, text.len--;
    while (text.len > 0 && (text.ptr[text.len - 1] == ' ' || text.ptr[text.len - 1] == '\t'))
        text.len--;
    if (text.len > 0 && text.ptr[0] == '[') {
        const char *end = memchr(text.ptr, ']', text.len);
        if (!end)
            return false;
        text = (struct weir_str){.ptr = text.ptr + 1, .len = (size_t)(end - text.ptr - 1)};
    } else {
        const char *colon = text.len > 0 ? memchr(text.ptr, ':', text.len) : NULL;
        size_t before = colon ? (size_t)(colon - text.ptr) : 0;
        if (colon && !memchr(colon + 1, ':', text.len - before - 1))
            text.len = before; /* one colon: a port behind an IPv4 address */
    }
    return weir_address_parse(out, text);
}

/* Walks one header from its right.  False: the walk is over. */
static bool walk(struct weir_str list, const struct weir_http_options *options, uint32_t *hops,
                 struct weir_address *client)
{
    for (;;) {
        struct weir_str hop = list;
        const char *comma = list.len > 0 ? memrchr(list.ptr, ',', list.len) : NULL;
        if (comma) {
            hop.ptr = comma + 1;
            hop.len = list.len - (size_t)(hop.ptr - list.ptr);
        }
        struct weir_address address;
        if (++*hops > HOPS_MAX || !read_hop(hop, &address))
            return false; /* nobody that we trust has written this: the last good one counts */
        *client = address;
        if (!weir_http_options_trust(options, address))
            return false;
        if (!comma)
            return true;
        list.len = (size_t)(comma - list.ptr);
    }
}

struct weir_str weir_http_origin_address(const struct weir_http1_request *http,
                                         const struct weir_http_peer *peer,
                                         const struct weir_http_options *options,
                                         char text[WEIR_ADDRESS_TEXT_MAX])
{
    struct weir_address client = peer->address;
    uint32_t hops = 0;
    bool goes_on = peer->is_trusted;
    for (uint32_t i = http->header_count; goes_on && i-- > 0;)
        if (is_name(http->headers[i].name, WEIR_STR("X-Forwarded-For")))
            goes_on = walk(http->headers[i].value, options, &hops, &client);
    if (client.hi == peer->address.hi && client.lo == peer->address.lo)
        return (struct weir_str){.ptr = peer->text, .len = peer->text_len};
    return (struct weir_str){.ptr = text, .len = weir_address_print(text, client, -1)};
}

void weir_http_peer_read(struct weir_http_peer *out, const char *text,
                         const struct weir_http_options *options)
{
    struct weir_str address = weir_str_of(text);
    *out = (struct weir_http_peer){.text_len = 0};
    const char *zone = memchr(address.ptr, '%', address.len); /* fe80::1%eth0 */
    if (zone)
        address.len = (size_t)(zone - address.ptr);
    if (weir_address_parse(&out->address, address)) {
        out->text_len = (uint8_t)weir_address_print(out->text, out->address, -1);
        out->is_trusted = weir_http_options_trust(options, out->address);
        return;
    }
    /* Without an address all who come this way are counted as one: limited, and so noticed. */
    out->is_unix = true;
    out->is_trusted = options->trusts_unix;
    memcpy(out->text, "unix", 5);
    out->text_len = 4;
}
