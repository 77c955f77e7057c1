/* A request as the rules' attributes: what nginx routes by is what limits count by.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_http_weir.h"

static bool is_key(struct weir_str key, const char *known)
{
    return key.len == ngx_strlen(known) && ngx_memcmp(key.ptr, known, key.len) == 0;
}

static int found(struct weir_str *value, ngx_str_t text)
{
    *value = ngx_weir_str(text);
    return text.data != NULL;
}

static ngx_http_request_t *request_of(ngx_http_weir_asking_t *a)
{
    return a->base.from;
}

/* ---- the address ---- */

static void walk_proxies(ngx_http_request_t *r, ngx_array_t *proxies, ngx_addr_t *addr)
{
#if (nginx_version >= 1023000)
    ngx_table_elt_t *forwarded = r->headers_in.x_forwarded_for;
    if (forwarded == NULL)
        return;
#else
    ngx_array_t *forwarded = &r->headers_in.x_forwarded_for;
    if (forwarded->nelts == 0)
        return;
#endif
    (void)ngx_http_get_forwarded_addr(r, addr, forwarded, NULL, proxies, 1);
}

/* The address that trusted proxies say they had it from.  Apart from where there are none. */
static __attribute__((noinline)) ngx_str_t forwarded_address(ngx_http_weir_asking_t *a,
                                                             ngx_array_t *proxies)
{
    ngx_connection_t *c = a->base.connection;
    u_char *room = a->base.main->worker.room->address;
    ngx_addr_t addr = {.sockaddr = c->sockaddr, .socklen = c->socklen};
    ngx_str_t text = c->addr_text;
    walk_proxies(request_of(a), proxies, &addr);
    if (addr.sockaddr != c->sockaddr) {
        text.data = room;
        text.len = ngx_sock_ntop(addr.sockaddr, addr.socklen, room, NGX_SOCKADDR_STRLEN, 0);
    }
    return ngx_weir_address(text);
}

static int find_address(ngx_http_weir_asking_t *a, struct weir_str *value)
{
    ngx_array_t *proxies = a->base.main->proxies;
    return found(value, NGX_WEIR_SELDOM(proxies != NULL)
                            ? forwarded_address(a, proxies)
                            : ngx_weir_address(a->base.connection->addr_text));
}

/* ---- headers, cookies, the query ---- */

/* The next header of this name; *part and *i say where to go on. */
static ngx_table_elt_t *next_header(ngx_list_part_t **part, ngx_uint_t *i, struct weir_str name)
{
    for (; *part != NULL; *part = (*part)->next, *i = 0) {
        ngx_table_elt_t *headers = (*part)->elts;
        while (*i < (*part)->nelts) {
            ngx_table_elt_t *h = &headers[(*i)++];
            if (h->key.len == name.len &&
                ngx_strncasecmp(h->key.data, (u_char *)name.ptr, name.len) == 0)
                return h;
        }
    }
    return NULL;
}

static int find_header(ngx_http_request_t *r, struct weir_str name, struct weir_str *value)
{
    ngx_list_part_t *part = &r->headers_in.headers.part;
    ngx_uint_t i = 0;
    ngx_table_elt_t *h = next_header(&part, &i, name);
    return h != NULL ? found(value, h->value) : 0;
}

static int find_cookie(ngx_http_request_t *r, struct weir_str name, struct weir_str *value)
{
    static const struct weir_str cookie = {.ptr = "Cookie", .len = 6};
    ngx_list_part_t *part = &r->headers_in.headers.part;
    ngx_uint_t i = 0;
    ngx_table_elt_t *h;
    while ((h = next_header(&part, &i, cookie)) != NULL)
        if (weir_cookie_value(ngx_weir_str(h->value), name, value))
            return 1;
    return 0;
}

static int find_in_query(ngx_http_weir_asking_t *a, struct weir_str name, struct weir_str *value)
{
    char *room = a->base.main->worker.room->scratch + a->scratch_used;
    int is_there = weir_query_value(ngx_weir_str(request_of(a)->args), name, room,
                                    NGX_WEIR_SCRATCH_LEN - a->scratch_used, value);
    if (is_there > 0 && value->ptr == room)
        a->scratch_used += value->len;
    return is_there;
}

/* ---- who it is ---- */

static ngx_http_complex_value_t *user_of(const ngx_http_weir_asking_t *a)
{
    return ((ngx_http_weir_loc_conf_t *)a->base.place)->user;
}

/* Looked up once a request, though several rules may ask; empty is absent. */
static int find_user(ngx_http_weir_asking_t *a, struct weir_str *value)
{
    if (user_of(a) == NULL)
        return 0;
    if (!a->has_user && ngx_http_complex_value(request_of(a), user_of(a), &a->user) != NGX_OK)
        return WEIR_ERR_NOMEM;
    a->has_user = true;
    *value = ngx_weir_str(a->user);
    return a->user.len > 0;
}

bool ngx_http_weir_is_late(void *asking, struct weir_str key)
{
    ngx_http_weir_asking_t *a = asking;
    return is_key(key, "user") || ngx_weir_has_attribute(a->base.place, key);
}

/* ---- all of them ---- */

static ngx_str_t host_of(ngx_http_request_t *r)
{
    ngx_http_core_srv_conf_t *server = ngx_http_get_module_srv_conf(r, ngx_http_core_module);
    return r->headers_in.server.len > 0 ? r->headers_in.server : server->server_name;
}

static ngx_str_t scheme_of(ngx_http_request_t *r)
{
    ngx_str_t http = ngx_string("http");
#if (NGX_HTTP_SSL)
    ngx_str_t https = ngx_string("https");
    if (r->connection->ssl)
        return https;
#else
    (void)r;
#endif
    return http;
}

/* "header.NAME" and its like: cuts the key down to NAME. */
static bool cut_prefix(struct weir_str *key, const char *prefix)
{
    size_t len = ngx_strlen(prefix);
    if (key->len <= len || ngx_memcmp(key->ptr, prefix, len) != 0)
        return false;
    key->ptr += len;
    key->len -= len;
    return true;
}

/* All but the address, which is asked for most. */
NGX_WEIR_HOT static __attribute__((noinline)) int find_other(ngx_http_weir_asking_t *a,
                                                             struct weir_str key,
                                                             struct weir_str *value)
{
    ngx_http_request_t *r = request_of(a);
    if (is_key(key, "path"))
        return found(value, r->uri);
    if (is_key(key, "method"))
        return found(value, r->method_name);
    if (is_key(key, "host"))
        return found(value, host_of(r));
    if (is_key(key, "scheme"))
        return found(value, scheme_of(r));
    if (is_key(key, "user"))
        return find_user(a, value);
    if (ngx_weir_has_attribute(a->base.place, key))
        return ngx_weir_attribute(&a->base, key, value);
    if (cut_prefix(&key, "header."))
        return find_header(r, key, value);
    if (cut_prefix(&key, "cookie."))
        return find_cookie(r, key, value);
    if (cut_prefix(&key, "query."))
        return find_in_query(a, key, value);
    return 0;
}

NGX_WEIR_HOT int ngx_http_weir_attribute(void *asking, struct weir_str key, struct weir_str *value)
{
    ngx_http_weir_asking_t *a = asking;
    return NGX_WEIR_MOSTLY(is_key(key, "remote_address")) ? find_address(a, value)
                                                          : find_other(a, key, value);
}
