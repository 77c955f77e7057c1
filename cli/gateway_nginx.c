/* gateway_nginx.c - a struct gateway as an nginx configuration.
 *
 * Paths of nginx's own (pid, temporary files) are relative, so that the text is the same wherever
 * it is run: `nginx -p FOLDER -c FOLDER/nginx.conf`.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "gateway.h"

#include "base/str.h"

#include <grp.h>
#include <stdarg.h>
#include <unistd.h>

#define HTTP2_DIRECTIVE                                                                            \
    1025001 /* the version that has `http2 on`, and warns of `listen ... http2` */

struct writer {
    struct weir_buf *out;
    const struct gateway *gateway;
    const char *why;    /* the first thing that went wrong */
    bool listens_http2; /* as a word of listen: nginx before 1.25.1 has no directive for it */
};

static void put(struct writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct writer *w, const char *format, ...)
{
    char line[2 * GATEWAY_PATH_LEN];
    va_list arguments;
    va_start(arguments, format);
    int len = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (len < 0 || (size_t)len >= sizeof(line))
        w->why = "a value is too long";
    else
        weir_buf_add(w->out, (struct weir_str){line, (size_t)len});
}

/* ` "text"`, so that whatever stands there is one word of nginx's.  A dollar would begin one of
 * nginx's variables, and there is no way to write it otherwise: where they are not wanted, it is
 * refused. */
static void put_word(struct writer *w, const char *text, bool may_have_variables)
{
    weir_buf_add(w->out, WEIR_STR(" \""));
    for (const char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            w->why = "a value has a control character, which no nginx configuration can hold";
        if (*c == '$' && !may_have_variables)
            w->why = "a value has a $, which nginx would take for a variable";
        if (*c == '"' || *c == '\\')
            weir_buf_add_char(w->out, '\\');
        weir_buf_add_char(w->out, *c);
    }
    weir_buf_add_char(w->out, '"');
}

static void put_directive(struct writer *w, int depth, const char *name, const char *value)
{
    if (value == NULL)
        return;
    put(w, "%*s%s", 4 * depth, "", name);
    put_word(w, value, false);
    put(w, ";\n");
}

/* Calls each with the parts of a list with commas. */
static void each_word(struct writer *w, const char *list,
                      void (*each)(struct writer *w, const char *word))
{
    char word[GATEWAY_PATH_LEN];
    for (; list != NULL && *list != '\0'; list += strspn(list, ", ")) {
        size_t len = strcspn(list, ", ");
        if (len >= sizeof(word)) {
            w->why = "a value is too long";
            return;
        }
        memcpy(word, list, len);
        word[len] = '\0';
        each(w, word);
        list += len;
    }
}

static void put_one(struct writer *w, const char *word)
{
    put_word(w, word, false);
}

static void put_list(struct writer *w, const char *name, const char *list)
{
    if (list == NULL || *list == '\0')
        return;
    put(w, "    %s", name);
    each_word(w, list, put_one);
    put(w, ";\n");
}

/* ---- the parts ---- */

const struct passwd *gateway_user(void)
{
    static const char *const users[] = {"www-data", "nginx", "nobody"};
    const struct passwd *user = NULL;
    for (size_t i = 0; geteuid() == 0 && user == NULL && i < CLI_COUNT_OF(users); i++)
        user = getpwnam(users[i]);
    return user;
}

static void put_user(struct writer *w)
{
    const struct passwd *user = gateway_user();
    const struct group *group = user != NULL ? getgrgid(user->pw_gid) : NULL;
    if (group != NULL)
        put(w, "user %s %s;\n", user->pw_name, group->gr_name);
}

static void put_top(struct writer *w)
{
    const struct gateway_texts *set = &w->gateway->set;
    put(w, "# Written by weir gateway; `weir gateway --print` shows it.\n");
    put_directive(w, 0, "load_module", set->module);
    put(w, "daemon off;\n");
    put_user(w);
    put_directive(w, 0, "worker_processes", set->workers);
    put(w, "pid nginx.pid;\n"
           "error_log stderr warn;\n"
           "events {\n    worker_connections 8192;\n}\n");
}

static void put_log(struct writer *w)
{
    const struct gateway_texts *set = &w->gateway->set;
    if (strcmp(set->access_log, "off") == 0) {
        put(w, "    access_log off;\n");
        return;
    }
    put(w, "    log_format weir '$remote_addr - $remote_user [$time_local] \"$request\" $status '\n"
           "                    '$body_bytes_sent $request_time weir=$weir_status "
           "rule=\"$weir_rule\" '\n"
           "                    'limit=$weir_limit remaining=$weir_remaining '\n"
           "                    'retry_after=$weir_retry_after delay=$weir_delay';\n");
    put(w, "    access_log");
    put_word(w, set->access_log, false);
    put(w, " weir;\n");
}

static void put_weir(struct writer *w)
{
    const struct gateway_texts *set = &w->gateway->set;
    put(w, "    weir_table");
    put_word(w, set->table, false);
    put(w, " \"size=%s\";\n", set->table_size);
    put_directive(w, 1, "weir_rules", set->rules);
    put_directive(w, 1, "weir_service", w->gateway->desk);
    put_list(w, "weir_trusted_proxies", set->trusted_proxies);
    put_list(w, "weir_headers", set->headers);
    put_directive(w, 1, "weir_body", set->body);
    put(w, "    weir_log_level info;\n"); /* the access log has every refusal already */
}

static void put_upstreams(struct writer *w)
{
    for (uint32_t i = 0; i < w->gateway->upstream_count; i++) {
        const struct gateway_upstream *upstream = &w->gateway->upstreams[i];
        put(w, "    upstream weir_%u {\n", i);
        for (uint32_t j = 0; j < upstream->server_count; j++)
            put_directive(w, 2, "server", upstream->servers[j].address);
        put(w, "        keepalive 64;\n    }\n");
    }
}

static void put_listen(struct writer *w, const char *address)
{
    const char *tls = w->gateway->set.tls_cert == NULL ? ""
                      : w->listens_http2               ? " ssl http2"
                                                       : " ssl";
    bool is_everywhere = address[0] == ':';
    put(w, "        listen");
    put_word(w, is_everywhere ? address + 1 : address, false);
    put(w, "%s;\n", tls);
    if (is_everywhere && access("/proc/net/if_inet6", F_OK) == 0)
        put(w, "        listen \"[::]%s\"%s;\n", address, tls);
}

/* Tunnels are for WebSockets alone: one that speaks HTTP (h2c) would be one request, whatever is
 * asked in it.  And the upstream hears the host that the rules see, which is not the Host header's
 * where a request names another one in its first line. */
static void put_maps(struct writer *w)
{
    put(w, "    map $http_upgrade $weir_upgrade {\n"
           "        default '';\n        ~*^websocket$ websocket;\n    }\n"
           "    map $weir_upgrade $weir_connection {\n"
           "        default '';\n        websocket upgrade;\n    }\n"
           "    map $http_host $weir_port {\n"
           "        default '';\n        ~(?<weir_port_sent>:[0-9]+)$ $weir_port_sent;\n    }\n");
}

static void put_proxy(struct writer *w, const struct gateway_upstream *upstream)
{
    char url[GATEWAY_PATH_LEN];
    uint32_t number = (uint32_t)(upstream - w->gateway->upstreams);
    int len = snprintf(url, sizeof(url), "%s://weir_%u%s", upstream->is_https ? "https" : "http",
                       number, upstream->path);
    if (len < 0 || (size_t)len >= sizeof(url))
        w->why = "a value is too long";
    put_directive(w, 3, "proxy_pass", url);
    put(w, "            proxy_set_header Upgrade $weir_upgrade;\n"
           "            proxy_set_header Connection $weir_connection;\n"
           "            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n"
           "            proxy_set_header X-Forwarded-Proto $scheme;\n"
           "            proxy_set_header X-Forwarded-Host $host$weir_port;\n"
           "            proxy_set_header X-Real-IP $remote_addr;\n");
    if (!upstream->is_https) {
        put(w, "            proxy_set_header Host $host$weir_port;\n");
        return;
    }
    put_directive(w, 3, "proxy_set_header Host", upstream->host);
    put(w, "            proxy_ssl_server_name on;\n            proxy_ssl_verify on;\n");
    const char *name = upstream->host + (upstream->host[0] == '[');
    put(w, "            proxy_ssl_name \"%.*s\";\n",
        (int)strcspn(name, name == upstream->host ? ":" : "]"), name);
    put_directive(w, 3, "proxy_ssl_trusted_certificate", w->gateway->set.upstream_ca);
}

static void put_route(struct writer *w, const struct gateway_route *route)
{
    const char *domain = route->domain != NULL ? route->domain : w->gateway->set.domain;
    char text[GATEWAY_PATH_LEN];
    put(w, "        location");
    put_word(w, route->path, false);
    put(w, " {\n            weir_limit %s", route->is_unlimited ? "off" : "on");
    if (!route->is_unlimited && domain != NULL) {
        snprintf(text, sizeof(text), "domain=%s", domain);
        put_word(w, text, false);
    }
    put(w, ";\n");
    if (route->user != NULL) {
        put(w, "            weir_user");
        put_word(w, route->user, true);
        put(w, ";\n");
    }
    put_directive(w, 3, "include", route->include);
    if (route->upstream != NULL)
        put_proxy(w, route->upstream);
    put(w, "        }\n");
}

static void put_server(struct writer *w)
{
    const struct gateway_texts *set = &w->gateway->set;
    put(w, "    server {\n");
    put(w, "        server_name localhost;\n"); /* for who names none, as HTTP/1.0 may */
    each_word(w, set->listen, put_listen);
    put_directive(w, 2, "ssl_certificate", set->tls_cert);
    put_directive(w, 2, "ssl_certificate_key", set->tls_key);
    if (set->tls_cert != NULL && !w->listens_http2)
        put(w, "        http2 on;\n");
    if (set->tls_cert != NULL)
        put(w, "        ssl_protocols TLSv1.2 TLSv1.3;\n"
               "        ssl_session_cache shared:weir:1m;\n");
    put_directive(w, 2, "include", set->include);
    for (uint32_t i = 0; i < w->gateway->route_count; i++)
        put_route(w, &w->gateway->routes[i]);
    put(w, "    }\n");
}

bool gateway_write_nginx(struct weir_buf *out, const struct gateway *gateway, const char **why)
{
    static const char *const temporary[] = {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"};
    struct writer w = {.out = out, .gateway = gateway};
    if (gateway->set.tls_cert != NULL)
        w.listens_http2 = gateway_nginx_version(gateway) < HTTP2_DIRECTIVE;
    put_top(&w);
    put(&w, "http {\n    server_tokens off;\n");
    for (size_t i = 0; i < CLI_COUNT_OF(temporary); i++)
        put(&w, "    %s_temp_path %s_temp;\n", temporary[i], temporary[i]);
    put(&w, "    proxy_http_version 1.1;\n");
    put_maps(&w);
    put_log(&w);
    put_weir(&w);
    put_upstreams(&w);
    put_server(&w);
    put(&w, "}\n");
    if (out->has_failed)
        w.why = weir_strerror(WEIR_ERR_NOMEM);
    *why = w.why;
    return w.why == NULL;
}
