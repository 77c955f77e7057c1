/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/front_http.h"

#include "base/err.h"
#include "base/str.h"
#include "serve/hold.h"

#include <stdlib.h>

#define NS_PER_S UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)
#define ANSWER_LEN 8192 /* of those that fit on the stack easily: all but a few of /json's */

/* ---- answers ---- */

static struct weir_str date_of(struct weir_front_http *front)
{
    uint64_t now_s = weir_loop_now(front->worker->loop) / NS_PER_S;
    if (now_s != front->date_s) {
        front->date_s = now_s;
        weir_http1_date(front->date, now_s);
    }
    return (struct weir_str){.ptr = front->date, .len = sizeof(front->date)};
}

/* alloc: for answers that are longer than ANSWER_LEN, as /json has for dozens of descriptors. */
static void send_long(struct weir_front_http *front, const struct weir_http1_answer *answer)
{
    size_t cap = 1024 + answer->lines.len + answer->body.len;
    char *buf = malloc(cap);
    size_t len = buf ? weir_http1_answer_write(buf, cap, answer) : 0;
    if (len > 0)
        weir_conn_send(front->conn, buf, len);
    else
        weir_conn_finish(front->conn);
    free(buf);
}

static size_t write_answer(struct weir_front_http *front, const struct weir_http1_request *request,
                           struct weir_http1_answer *answer, char *buf, size_t cap)
{
    answer->date = date_of(front);
    answer->is_head = request->is_head;
    answer->is_http10 = request->is_http10;
    answer->keeps_open = request->keeps_open && !front->is_draining;
    return weir_http1_answer_write(buf, cap, answer);
}

void weir_front_http_answer(struct weir_front_http *front, const struct weir_http1_request *request,
                            struct weir_http1_answer *answer)
{
    char buf[ANSWER_LEN];
    size_t len = write_answer(front, request, answer, buf, sizeof(buf));
    if (len > 0)
        weir_conn_send(front->conn, buf, len);
    else
        send_long(front, answer);
}

void weir_front_http_say(struct weir_front_http *front, const struct weir_http1_request *request,
                         int status, struct weir_str text)
{
    struct weir_http1_answer answer = {
        .status = status,
        .content_type = WEIR_STR("text/plain; charset=utf-8"),
        .lines = WEIR_STR("X-Content-Type-Options: nosniff\r\n"),
        .body = text,
    };
    weir_front_http_answer(front, request, &answer);
}

/* ---- answers that wait ---- */

/* Says it, and goes on with what came behind the request. */
static void end_hold(struct weir_front_http *front, bool is_forfeit)
{
    struct weir_hold *hold = front->hold;
    front->hold = NULL;
    weir_hold_give_back(hold, front->worker, is_forfeit);
    weir_conn_owe(front->conn, false);
    if (weir_http1_resume(front->http) != 0 || (front->is_draining && front->hold == NULL))
        weir_conn_finish(front->conn);
}

static void ring(void *ctx)
{
    struct weir_front_http *front = ctx;
    weir_conn_send(front->conn, front->hold->answer, front->hold->answer_len);
    end_hold(front, false);
}

bool weir_front_http_hold(struct weir_front_http *front, const struct weir_http1_request *request,
                          struct weir_http1_answer *answer, const struct weir_decision *decision,
                          uint64_t delay_ns)
{
    struct weir_hold *hold = weir_hold_take(front->worker->holds);
    if (!hold)
        return false;
    hold->answer_len =
        (uint32_t)write_answer(front, request, answer, hold->answer, sizeof(hold->answer));
    WEIR_ASSERT(hold->answer_len > 0); /* headers have a maximum, and there is no body */
    weir_hold_remember(hold, decision);
    hold->alarm = (struct weir_alarm){.ring = ring, .ctx = front};
    bool is_set = weir_alarm_set(front->worker->loop, &hold->alarm, delay_ns);
    WEIR_ASSERT(is_set); /* there are as many alarms as there are holds */
    front->hold = hold;
    weir_conn_owe(front->conn, true);
    weir_http1_pause(front->http);
    return true;
}

/* The service goes down before it may be let through. */
static void refuse_held(struct weir_front_http *front)
{
    const struct weir_http1_request nothing = {.keeps_open = false};
    weir_front_http_say(front, &nothing, 503, WEIR_STR("The service is going down\n"));
    end_hold(front, true);
}

/* ---- routes ---- */

/* The path and query of a target that may be a whole URL. */
static struct weir_str path_of(struct weir_str target)
{
    const char *colon =
        target.len > 0 && target.ptr[0] != '/' ? memmem(target.ptr, target.len, "://", 3) : NULL;
    if (!colon)
        return target;
    const char *end = target.ptr + target.len;
    const char *slash = memchr(colon + 3, '/', (size_t)(end - colon - 3));
    return slash ? (struct weir_str){.ptr = slash, .len = (size_t)(end - slash)} : WEIR_STR("/");
}

/* Whether target is path, or goes on behind it with one of `ends`; *rest is what follows. */
static bool is_route(struct weir_str target, struct weir_str path, const char *ends,
                     struct weir_str *rest)
{
    if (!weir_str_starts(target, path) ||
        (target.len > path.len && !strchr(ends, target.ptr[path.len])))
        return false;
    *rest = (struct weir_str){.ptr = target.ptr + path.len, .len = target.len - path.len};
    return true;
}

static void answer_health(struct weir_front_http *front, const struct weir_http1_request *request)
{
    bool is_healthy = !front->is_draining && weir_service_is_healthy(front->worker->service);
    struct weir_http1_answer answer = {
        .status = is_healthy ? 200 : 500,
        .content_type = WEIR_STR("text/plain; charset=utf-8"),
        .body = is_healthy ? WEIR_STR("OK") : WEIR_STR(""),
    };
    weir_front_http_answer(front, request, &answer);
}

static bool on_request(void *ctx, const struct weir_http1_request *request)
{
    struct weir_front_http *front = ctx;
    struct weir_str target = path_of(request->target), rest;
    weir_conn_amid(front->conn, false); /* the next has its own time */
    if (!front->is_alive) {
        front->is_alive = true;
        weir_conn_alive(front->conn);
    }
    if (is_route(target, WEIR_STR("/check"), "/?", &rest))
        weir_front_http_check(front, request, rest);
    else if (is_route(target, WEIR_STR("/json"), "?", &rest))
        weir_front_http_json(front, request);
    else if (is_route(target, WEIR_STR("/healthcheck"), "?", &rest))
        answer_health(front, request);
    else
        weir_front_http_say(front, request, 404, WEIR_STR("404 page not found\n"));
    return !front->is_draining;
}

/* ---- what is no request ---- */

static void on_refuse(void *ctx, int status)
{
    struct weir_front_http *front = ctx;
    const struct weir_http1_request nothing = {.keeps_open = false};
    char text[64];
    struct weir_str reason = weir_http1_reason(status);
    memcpy(text, reason.ptr, reason.len);
    text[reason.len] = '\n';
    weir_worker_add(front->worker, WEIR_FRONT_HTTP, WEIR_FRONT_COUNT_BAD, 1);
    WEIR_LOG(weir_service_log(front->worker->service), WEIR_LOG_INFO, "connection closed",
             WEIR_LOG_TEXT("protocol", "http"),
             WEIR_LOG_KEY("peer", weir_str_of(weir_conn_peer(front->conn))),
             WEIR_LOG_NUMBER("status", (uint64_t)status), WEIR_LOG_STR("why", reason));
    weir_front_http_say(front, &nothing, status,
                        (struct weir_str){.ptr = text, .len = reason.len + 1});
}

static void on_go_on(void *ctx)
{
    struct weir_front_http *front = ctx;
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    weir_conn_send(front->conn, text, sizeof(text) - 1);
}

static const struct weir_http1_calls calls = {on_request, on_refuse, on_go_on};

/* ---- the connection ---- */

static void front_close(void *state)
{
    struct weir_front_http *front = state;
    if (!front)
        return;
    if (front->hold)
        weir_hold_give_back(front->hold, front->worker, true);
    weir_http1_free(front->http);
    free(front);
}

static int front_open(void **state, void *ctx, struct weir_conn *conn)
{
    struct weir_service *service = ctx;
    struct weir_front_http *front = calloc(1, sizeof(*front));
    if (!front || weir_http1_new(&front->http, &calls, front) != 0) {
        front_close(front);
        return WEIR_ERR_NOMEM;
    }
    front->conn = conn;
    front->worker = weir_worker_of(conn);
    weir_http1_set_budget(front->http, &front->worker->budget);
    front->options = weir_service_http_options(service);
    weir_http_peer_read(&front->peer, weir_conn_peer(conn), front->options);
    *state = front;
    return 0;
}

static int front_feed(void *state, const uint8_t *bytes, size_t len)
{
    struct weir_front_http *front = state;
    int err = weir_http1_feed(front->http, bytes, len);
    weir_conn_amid(front->conn, weir_http1_is_amid(front->http));
    return err;
}

static bool front_expire(void *state, bool is_amid)
{
    struct weir_front_http *front = state;
    if (!is_amid)
        return false;
    on_refuse(front, 408);
    weir_conn_finish(front->conn);
    return true;
}

static void front_drain(void *state)
{
    struct weir_front_http *front = state;
    front->is_draining = true;
    if (front->hold) {
        const struct weir_settings *settings = weir_service_settings(front->worker->service);
        if (weir_alarm_left(&front->hold->alarm) >= settings->grace * NS_PER_MS)
            refuse_held(front);
        return;
    }
    /* A request may be on its way: only an answer can tell its client not to send another. */
    if (!weir_http1_is_amid(front->http))
        weir_conn_last_call(front->conn);
}

const struct weir_protocol weir_front_http = {
    .name = "http",
    .open = front_open,
    .feed = front_feed,
    .drain = front_drain,
    .expire = front_expire,
    .close = front_close,
};
