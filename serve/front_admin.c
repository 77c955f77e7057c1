/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "proto/utf8.h"
#include "serve/admin.h"
#include "serve/http_conn.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

struct weir_front_admin {
    struct weir_http_conn http;
    struct weir_admin_late *late; /* an answer that is waited for, or NULL */
};

static const char endpoints[] =
    "GET /metrics              Prometheus; ?format=ratelimit for envoyproxy/ratelimit's names\n"
    "GET /rlconfig             rules, as envoyproxy/ratelimit lists them\n"
    "GET /api/v1/rules         rules, as loaded\n"
    "POST /api/v1/explain      {\"domain\", \"descriptors\"}: which rules, and what is left\n"
    "GET /api/v1/key           ?domain=D&KEY=VALUE...: what is left\n"
    "DELETE /api/v1/key        ?domain=D&KEY=VALUE...: forgets what was used\n"
    "GET /api/v1/overrides     keys that have another limit for a while\n"
    "PUT /api/v1/overrides     ?domain=D&KEY=VALUE...: {\"requests_per_unit\" or \"unlimited\": "
    "true,\n"
    "                          \"expires_in_s\"}; DELETE ends it\n"
    "GET /api/v1/rules/ID/enforcement   how much of what a rule refuses is refused\n"
    "PUT /api/v1/rules/ID/enforcement   {\"percent\"}: 0 is the kill switch; DELETE is 100\n"
    "GET /api/v1/rules_store   the rules database: all domains\n"
    "GET /api/v1/rules/DOMAIN  its rules there; ?version=N. PUT, DELETE: "
    "?if_version=N&message=WORDS\n"
    "GET /api/v1/rules/DOMAIN/history   who, when, why\n"
    "POST /api/v1/rules/DOMAIN/rollback ?version=N: as it was then\n"
    "GET /api/v1/top           the busiest keys of the last minute; ?limit=N\n"
    "GET /api/v1/audit         the last changes\n"
    "\n"
    "What changes something needs the header X-Weir-Request, of any value.\n";

/* ---- words ---- */

void weir_admin_add(struct weir_buf *to, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (len > 0)
        weir_buf_add(to, (struct weir_str){.ptr = text,
                                           .len = (size_t)len < sizeof(text) ? (size_t)len
                                                                             : sizeof(text) - 1});
}

void weir_admin_add_json(struct weir_buf *to, struct weir_str text)
{
    bool is_text = weir_utf8_is_valid(text); /* a request's words may be anything */
    weir_buf_add_char(to, '"');
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (c >= 0x80 && !is_text)
            weir_admin_add(to, "\\ufffd");
        else if (c < 0x20 || c == '"' || c == '\\' || c == 0x7f)
            weir_admin_add(to, "\\u%04x", c);
        else
            weir_buf_add_char(to, text.ptr[i]);
    }
    weir_buf_add_char(to, '"');
}

void weir_admin_say(struct weir_admin_call *call, int status, const char *text)
{
    call->status = status;
    call->content_type = "text/plain; charset=utf-8";
    weir_buf_cut(&call->body, 0);
    weir_buf_add(&call->body, weir_str_of(text));
}

void weir_admin_say_error(struct weir_admin_call *call, int err)
{
    char text[128];
    int status = err == WEIR_ERR_NOMEM || err == WEIR_ERR_IO ? 503
                 : err == WEIR_ERR_UNSUPPORTED               ? 409
                                                             : 400;
    if (err == WEIR_ERR_UNSUPPORTED)
        snprintf(text, sizeof(text), "409 the table is of an older version: weir table resize\n");
    else
        snprintf(text, sizeof(text), "%d %s\n", status, weir_strerror(err));
    weir_admin_say(call, status, text);
}

bool weir_admin_is_get(const struct weir_admin_call *call)
{
    return call->request->is_head || weir_str_eq(call->request->method, WEIR_STR("GET"));
}

bool weir_admin_is_method(const struct weir_admin_call *call, const char *method)
{
    if (strcmp(method, "GET") == 0)
        return weir_admin_is_get(call);
    return weir_str_eq(call->request->method, weir_str_of(method));
}

struct weir_str weir_admin_param(struct weir_str query, const char *name)
{
    size_t len = strlen(name);
    while (query.len > 0) {
        const char *end = memchr(query.ptr, '&', query.len);
        size_t item = end ? (size_t)(end - query.ptr) : query.len;
        if (item > len && memcmp(query.ptr, name, len) == 0 && query.ptr[len] == '=')
            return (struct weir_str){.ptr = query.ptr + len + 1, .len = item - len - 1};
        item += item < query.len;
        query = (struct weir_str){.ptr = query.ptr + item, .len = query.len - item};
    }
    return (struct weir_str){0};
}

uint32_t weir_admin_number(struct weir_str query, const char *name, uint32_t otherwise,
                           uint32_t most)
{
    struct weir_str text = weir_admin_param(query, name);
    uint64_t number = 0;
    for (size_t i = 0; i < text.len && number < most; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return otherwise;
        number = number * 10 + (uint64_t)(text.ptr[i] - '0');
    }
    return text.len == 0 ? otherwise : (uint32_t)(number < most ? number : most);
}

/* ---- who may ask ---- */

static struct weir_str header_of(const struct weir_http1_request *request, const char *name)
{
    for (uint32_t i = 0; i < request->header_count; i++) {
        const struct weir_http1_header *header = &request->headers[i];
        if (header->name.len == strlen(name) &&
            strncasecmp(header->name.ptr, name, header->name.len) == 0)
            return header->value;
    }
    return (struct weir_str){0};
}

/* In time that depends on what was sent alone. */
static bool bears(struct weir_str value, const char *token)
{
    static const char scheme[] = "Bearer ";
    size_t len = strlen(token), skip = sizeof(scheme) - 1;
    if (value.len < skip || strncasecmp(value.ptr, scheme, skip) != 0)
        return false;
    unsigned differs = value.len - skip != len;
    for (size_t i = skip; i < value.len; i++)
        differs |= (unsigned char)(value.ptr[i] ^ token[(i - skip) % len]);
    return differs == 0;
}

static bool is_local(const char *peer)
{
    return strcmp(peer, "unix") == 0 || strncmp(peer, "127.", 4) == 0 || strcmp(peer, "::1") == 0;
}

/* Of words, only "localhost": "dead.be" looks like an address and is a name, which whoever owns
 * it can point at this host (DNS rebinding). */
static bool is_own_name(struct weir_str host)
{
    if (host.len > 0 && host.ptr[0] == '[')
        return true; /* only addresses are written so */
    const char *colon = host.len > 0 ? memchr(host.ptr, ':', host.len) : NULL;
    size_t len = colon ? (size_t)(colon - host.ptr) : host.len;
    if (len == 9 && strncasecmp(host.ptr, "localhost", 9) == 0)
        return true;
    for (size_t i = 0; i < len; i++)
        if (!memchr("0123456789.", host.ptr[i], 11))
            return false;
    return true;
}

/* NULL: they may; else why not. */
static const char *refusal(struct weir_admin_call *call)
{
    const struct weir_http1_request *request = call->request;
    const char *token = weir_service_settings(call->worker->service)->admin_token;
    bool changes = !weir_admin_is_get(call);
    call->status = 403;
    if (token[0] != '\0' && !bears(header_of(request, "Authorization"), token)) {
        call->status = 401;
        return "401 the admin token, as Authorization: Bearer, is missing or wrong\n";
    }
    if (token[0] == '\0' && !is_local(call->peer))
        return "403 from other hosts only with admin_token set\n";
    if (token[0] == '\0' && !is_own_name(header_of(request, "Host")))
        return "403 Host must be an address or localhost, where there is no admin_token\n";
    if (changes && header_of(request, "X-Weir-Request").ptr == NULL)
        return "403 what changes something needs the header X-Weir-Request\n";
    call->status = 200;
    return NULL;
}

/* ---- routes ---- */

static void route(struct weir_admin_call *call)
{
    bool is_get = weir_admin_is_get(call);
    const char *why = refusal(call);
    if (why != NULL) {
        weir_admin_say(call, call->status, why);
        weir_worker_add(call->worker, WEIR_FRONT_ADMIN, WEIR_FRONT_COUNT_BAD, 1);
        WEIR_LOG(weir_service_log(call->worker->service), WEIR_LOG_WARN, "admin refused",
                 WEIR_LOG_TEXT("peer", call->peer),
                 WEIR_LOG_NUMBER("status", (uint64_t)call->status));
        return;
    }
    weir_worker_add(call->worker, WEIR_FRONT_ADMIN, WEIR_FRONT_COUNT_REQUESTS, 1);
    if (weir_str_eq(call->path, WEIR_STR("/")) && is_get)
        weir_admin_say(call, 200, endpoints);
    else if (weir_str_eq(call->path, WEIR_STR("/metrics")) && is_get)
        weir_admin_metrics(call);
    else if (!weir_admin_api(call))
        weir_admin_say(call, 404, "404 page not found\n");
}

static void answer(struct weir_http_conn *http, struct weir_admin_call *call)
{
    if (call->body.has_failed)
        weir_admin_say(call, 500, "500 too long\n");
    struct weir_http1_answer answer = {
        .status = call->status,
        .content_type = weir_str_of(call->content_type),
        .lines = WEIR_STR("X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n"),
        .body = weir_buf_str(&call->body),
    };
    weir_http_conn_answer(http, call->request, &answer);
}

/* ---- answers that come later ---- */

/* Nothing more is read meanwhile. */
static void wait_for(struct weir_front_admin *front, const struct weir_admin_call *call)
{
    struct weir_admin_late *late = call->late;
    late->front = front;
    late->request = (struct weir_http1_request){.is_http10 = call->request->is_http10,
                                                .is_head = call->request->is_head,
                                                .keeps_open = call->request->keeps_open};
    front->late = late;
    weir_conn_owe(front->http.conn, true);
    weir_http1_pause(front->http.parser);
}

void weir_admin_late_answer(struct weir_admin_late *late)
{
    struct weir_front_admin *front = late->front;
    if (front == NULL)
        return;
    front->late = NULL;
    late->told.request = &late->request;
    answer(&front->http, &late->told);
    weir_conn_owe(front->http.conn, false);
    if (weir_http1_resume(front->http.parser) != 0 ||
        (front->http.is_draining && front->late == NULL))
        weir_conn_finish(front->http.conn);
}

static void serve(struct weir_http_conn *http, const struct weir_http1_request *request)
{
    const char *mark =
        memchr(request->target.ptr ? request->target.ptr : "", '?', request->target.len);
    size_t path_len = mark ? (size_t)(mark - request->target.ptr) : request->target.len;
    struct weir_admin_call call = {
        .worker = http->worker,
        .request = request,
        .path = {.ptr = request->target.ptr, .len = path_len},
        .peer = weir_conn_peer(http->conn),
    };
    if (mark)
        call.query = (struct weir_str){mark + 1, request->target.len - path_len - 1};
    weir_buf_init(&call.body, WEIR_ADMIN_BODY_MAX);
    route(&call);
    if (call.late != NULL)
        wait_for((struct weir_front_admin *)http, &call);
    else
        answer(http, &call);
    weir_buf_fini(&call.body);
}

/* ---- the connection ---- */

static void abandon(struct weir_admin_late *late)
{
    late->front = NULL;
    if (late->leave != NULL)
        late->leave(late);
}

static void front_close(void *state)
{
    struct weir_front_admin *front = state;
    if (!front)
        return;
    if (front->late != NULL)
        abandon(front->late);
    weir_http_conn_fini(&front->http);
    free(front);
}

static int front_open(void **state, void *ctx, struct weir_conn *conn)
{
    struct weir_front_admin *front = calloc(1, sizeof(*front));
    (void)ctx;
    if (!front || weir_http_conn_init(&front->http, conn, WEIR_FRONT_ADMIN, serve) != 0) {
        front_close(front);
        return WEIR_ERR_NOMEM;
    }
    *state = front;
    return 0;
}

static void front_drain(void *state)
{
    struct weir_front_admin *front = state;
    front->http.is_draining = true;
    if (front->late == NULL)
        weir_http_conn_drain(&front->http);
}

const struct weir_protocol weir_front_admin = {
    .name = "admin",
    .open = front_open,
    .feed = weir_http_conn_feed,
    .drain = front_drain,
    .expire = weir_http_conn_expire,
    .close = front_close,
};
