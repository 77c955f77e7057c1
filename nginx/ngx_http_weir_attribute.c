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
    *value = ngx_http_weir_str(text);
    return text.data != NULL;
}

/* ---- the address ---- */

static void walk_proxies(ngx_http_weir_asking_t *a, ngx_addr_t *addr)
{
    ngx_http_request_t *r = a->request;
#if (nginx_version >= 1023000)
    ngx_table_elt_t *forwarded = r->headers_in.x_forwarded_for;
    if (forwarded == NULL)
        return;
#else
    ngx_array_t *forwarded = &r->headers_in.x_forwarded_for;
    if (forwarded->nelts == 0)
        return;
#endif
    (void)ngx_http_get_forwarded_addr(r, addr, forwarded, NULL, a->main->proxies, 1);
}

/* ::ffff:192.0.2.1 is 192.0.2.1, however it was connected. */
static ngx_str_t canonical(ngx_str_t text)
{
    static const u_char mapped[] = "::ffff:";
    const size_t len = sizeof(mapped) - 1;
    if (text.len > len && ngx_memcmp(text.data, mapped, len) == 0 &&
        ngx_strlchr(text.data, text.data + text.len, '.') != NULL) {
        text.data += len;
        text.len -= len;
    }
    return text;
}

static ngx_str_t address_of(ngx_http_weir_asking_t *a)
{
    ngx_connection_t *c = a->request->connection;
    ngx_addr_t addr = {.sockaddr = c->sockaddr, .socklen = c->socklen};
    ngx_str_t text = c->addr_text;
    if (a->main->proxies != NULL)
        walk_proxies(a, &addr);
    if (addr.sockaddr != c->sockaddr) {
        text.data = a->address;
        text.len = ngx_sock_ntop(addr.sockaddr, addr.socklen, a->address, sizeof(a->address), 0);
    }
#if (NGX_HAVE_UNIX_DOMAIN)
    /* Without an address all who come this way are counted as one: limited, and so noticed. */
    if (addr.sockaddr->sa_family == AF_UNIX) {
        ngx_str_set(&text, "unix"); /* two statements */
    }
#endif
    return canonical(text);
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
        if (weir_cookie_value(ngx_http_weir_str(h->value), name, value))
            return 1;
    return 0;
}

static int find_in_query(ngx_http_weir_asking_t *a, struct weir_str name, struct weir_str *value)
{
    char *room = a->main->worker->scratch + a->scratch_used;
    int is_there = weir_query_value(ngx_http_weir_str(a->request->args), name, room,
                                    NGX_HTTP_WEIR_SCRATCH_LEN - a->scratch_used, value);
    if (is_there > 0 && value->ptr == room)
        a->scratch_used += value->len;
    return is_there;
}

/* ---- what the configuration fills in ---- */

/* Looked up once a request, though several rules may ask; empty is absent. */
static int filled(ngx_http_weir_asking_t *a, ngx_uint_t i, ngx_http_complex_value_t *from,
                  struct weir_str *value)
{
    if (!(a->known >> i & 1)) {
        if (ngx_http_complex_value(a->request, from, &a->values[i]) != NGX_OK)
            return WEIR_ERR_NOMEM;
        a->known |= (ngx_uint_t)1 << i;
    }
    *value = ngx_http_weir_str(a->values[i]);
    return a->values[i].len > 0;
}

static ngx_http_weir_entry_t *entry_of(const ngx_http_weir_loc_conf_t *conf, struct weir_str key,
                                       ngx_uint_t *i)
{
    ngx_http_weir_entry_t *entries = conf->attributes != NULL ? conf->attributes->elts : NULL;
    for (*i = 0; entries != NULL && *i < conf->attributes->nelts; ++*i) {
        ngx_http_weir_entry_t *e = &entries[*i];
        if (e->key.len == key.len && ngx_memcmp(e->key.data, key.ptr, key.len) == 0)
            return e;
    }
    return NULL;
}

bool ngx_http_weir_is_late(void *asking, struct weir_str key)
{
    ngx_http_weir_asking_t *a = asking;
    ngx_uint_t i;
    return is_key(key, "user") || entry_of(a->conf, key, &i) != NULL;
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

int ngx_http_weir_attribute(void *asking, struct weir_str key, struct weir_str *value)
{
    ngx_http_weir_asking_t *a = asking;
    ngx_http_request_t *r = a->request;
    ngx_uint_t i;
    if (is_key(key, "remote_address"))
        return found(value, address_of(a));
    if (is_key(key, "path"))
        return found(value, r->uri);
    if (is_key(key, "method"))
        return found(value, r->method_name);
    if (is_key(key, "host"))
        return found(value, host_of(r));
    if (is_key(key, "scheme"))
        return found(value, scheme_of(r));
    if (is_key(key, "user"))
        return a->conf->user ? filled(a, NGX_HTTP_WEIR_ATTRIBUTES_MAX, a->conf->user, value) : 0;
    ngx_http_weir_entry_t *entry = entry_of(a->conf, key, &i);
    if (entry != NULL)
        return filled(a, i, &entry->value, value);
    if (cut_prefix(&key, "header."))
        return find_header(r, key, value);
    if (cut_prefix(&key, "cookie."))
        return find_cookie(r, key, value);
    if (cut_prefix(&key, "query."))
        return find_in_query(a, key, value);
    return 0;
}
