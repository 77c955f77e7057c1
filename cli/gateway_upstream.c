/* gateway_upstream.c - where requests go: URLs to what nginx calls an upstream.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "gateway.h"

#include "base/str.h"

const char *gateway_copy(struct gateway *gateway, struct weir_str text)
{
    char *to = weir_arena_array(&gateway->arena, text.len + 1, 1, 1);
    if (to == NULL)
        return "";
    memcpy(to, text.ptr, text.len);
    return to;
}

struct url {
    bool is_https;
    struct weir_str host, path; /* HOST, HOST:PORT or unix:PATH; "" or "/..." */
};

/* What stands behind the host's colon; ptr NULL: it has none. */
static struct weir_str port_of(struct weir_str host)
{
    const char *bracket = memchr(host.ptr, ']', host.len);
    size_t skipped = bracket != NULL ? (size_t)(bracket - host.ptr) : 0;
    const char *colon = memchr(host.ptr + skipped, ':', host.len - skipped);
    if (colon == NULL)
        return (struct weir_str){0};
    return (struct weir_str){colon + 1, host.len - (size_t)(colon + 1 - host.ptr)};
}

/* Or none at all. */
static bool is_port(struct weir_str text)
{
    uint32_t port = 0;
    for (size_t i = 0; i < text.len && port <= UINT16_MAX; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return false;
        port = 10 * port + (uint32_t)(text.ptr[i] - '0');
    }
    return text.ptr == NULL || (port >= 1 && port <= UINT16_MAX);
}

/* NULL, or what is wrong with it. */
static const char *read_url(struct url *out, struct weir_str text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  ".-_:[]";
    out->is_https = weir_str_starts(text, WEIR_STR("https://"));
    if (!out->is_https && !weir_str_starts(text, WEIR_STR("http://")))
        return "an upstream is a URL: http://HOST:PORT, https://HOST or http://unix:PATH";
    size_t skipped = out->is_https ? 8 : 7;
    struct weir_str rest = {text.ptr + skipped, text.len - skipped};
    bool is_unix = weir_str_starts(rest, WEIR_STR("unix:/"));
    const char *slash = is_unix ? NULL : memchr(rest.ptr, '/', rest.len);
    size_t host_len = slash != NULL ? (size_t)(slash - rest.ptr) : rest.len;
    out->host = (struct weir_str){rest.ptr, host_len};
    out->path = (struct weir_str){rest.ptr + host_len, rest.len - host_len};
    for (size_t i = 0; i < host_len && !is_unix; i++)
        if (strchr(allowed, rest.ptr[i]) == NULL)
            return "a host has letters, digits, dots and dashes, and perhaps :PORT behind it";
    if (host_len == 0)
        return "the URL has no host";
    if (!is_unix && !is_port(port_of(out->host)))
        return "a port is a number from 1 to 65535";
    /* nginx would put the request's path behind them. */
    bool has_more = memchr(out->path.ptr, '?', out->path.len) != NULL ||
                    memchr(out->path.ptr, '#', out->path.len) != NULL;
    return has_more ? "the URL of an upstream has neither ? nor #" : NULL;
}

static const char *add_server(struct gateway *gateway, struct gateway_upstream *to,
                              struct weir_str text)
{
    struct url url;
    char address[GATEWAY_PATH_LEN];
    const char *why = read_url(&url, text);
    if (why != NULL)
        return why;
    if (to->server_count == GATEWAY_SERVERS_MAX)
        return "an upstream has at most 64 servers";
    if (to->server_count == 0) {
        to->is_https = url.is_https;
        to->host = gateway_copy(gateway, url.host);
        to->path = gateway_copy(gateway, url.path);
    } else if (url.is_https != to->is_https || !weir_str_eq(url.path, weir_str_of(to->path))) {
        return "the servers of one upstream have the same scheme and path";
    }
    int len = snprintf(address, sizeof(address), "%.*s%s", WEIR_STR_ARG(url.host),
                       url.is_https && port_of(url.host).ptr == NULL ? ":443" : "");
    if (len < 0 || (size_t)len >= sizeof(address))
        return "the URL is too long";
    to->servers[to->server_count++].address = gateway_copy(gateway, weir_str_of(address));
    return NULL;
}

const struct gateway_upstream *gateway_add_upstream(struct gateway *gateway, struct weir_str name,
                                                    struct weir_str urls, const char **why)
{
    *why = "there are more than 256 upstreams";
    if (gateway->upstream_count == GATEWAY_UPSTREAMS_MAX)
        return NULL;
    struct gateway_upstream *to = &gateway->upstreams[gateway->upstream_count++];
    /* Whatever is wrong with its URLs, routes may name it. */
    *to = (struct gateway_upstream){.name = gateway_copy(gateway, name), .host = "", .path = ""};
    do {
        const char *comma = memchr(urls.ptr, ',', urls.len);
        struct weir_str url = {urls.ptr, comma != NULL ? (size_t)(comma - urls.ptr) : urls.len};
        size_t used = url.len + (comma != NULL);
        *why = add_server(gateway, to, url);
        urls = (struct weir_str){urls.ptr + used, urls.len - used};
    } while (*why == NULL && urls.len > 0);
    return *why == NULL ? to : NULL;
}

const struct gateway_upstream *gateway_find_upstream(struct gateway *gateway, struct weir_str name,
                                                     const char **why)
{
    *why = NULL;
    for (uint32_t i = 0; i < gateway->upstream_count; i++)
        if (weir_str_eq(name, weir_str_of(gateway->upstreams[i].name)))
            return &gateway->upstreams[i];
    return gateway_add_upstream(gateway, name, name, why);
}

bool gateway_add_route(struct gateway *gateway, const char *path, const char *upstream,
                       const char **why)
{
    const struct gateway_upstream *to = gateway_find_upstream(gateway, weir_str_of(upstream), why);
    if (to == NULL)
        return false;
    *why = "there are more than 256 routes";
    if (gateway->route_count == GATEWAY_ROUTES_MAX)
        return false;
    gateway->routes[gateway->route_count++] =
        (struct gateway_route){.path = gateway_copy(gateway, weir_str_of(path)), .upstream = to};
    return true;
}
