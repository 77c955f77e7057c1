/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/front_http.h"

#include "base/err.h"
#include "base/str.h"
#include "serve/hold.h"

#include <stdlib.h>

#define NS_PER_MS UINT64_C(1000000)

/* ---- answers that wait ---- */

static bool is_waiting(const struct weir_front_http *front)
{
    return front->hold != NULL || front->waiter.ask != NULL;
}

/* Goes on with what came behind the request. */
static void go_on(struct weir_front_http *front)
{
    weir_conn_owe(front->http.conn, false);
    if (weir_http1_resume(front->http.parser) != 0 ||
        (front->http.is_draining && !is_waiting(front)))
        weir_conn_finish(front->http.conn);
}

static void end_hold(struct weir_front_http *front, bool is_forfeit)
{
    struct weir_hold *hold = front->hold;
    front->hold = NULL;
    weir_hold_give_back(hold, front->http.worker, is_forfeit);
    go_on(front);
}

void weir_front_http_wait(struct weir_front_http *front, const struct weir_http1_request *request)
{
    front->asked.request = (struct weir_http1_request){.is_http10 = request->is_http10,
                                                       .is_head = request->is_head,
                                                       .keeps_open = request->keeps_open};
    weir_conn_owe(front->http.conn, true);
    weir_http1_pause(front->http.parser);
}

void weir_front_http_done(struct weir_front_http *front)
{
    if (front->hold == NULL) /* it waits on, for its time */
        go_on(front);
}

static void ring(void *ctx)
{
    struct weir_front_http *front = ctx;
    weir_conn_send(front->http.conn, front->hold->answer, front->hold->answer_len);
    end_hold(front, false);
}

bool weir_front_http_hold(struct weir_front_http *front, const struct weir_http1_request *request,
                          struct weir_http1_answer *answer, const struct weir_decision *decision,
                          uint64_t delay_ns)
{
    struct weir_hold *hold = weir_hold_take(front->http.worker->holds);
    if (!hold)
        return false;
    hold->answer_len = (uint32_t)weir_http_conn_write(&front->http, request, answer, hold->answer,
                                                      sizeof(hold->answer));
    WEIR_ASSERT(hold->answer_len > 0); /* headers have a maximum, and there is no body */
    weir_hold_remember(hold, decision, front->http.worker->asks);
    hold->alarm = (struct weir_alarm){.ring = ring, .ctx = front};
    bool is_set = weir_alarm_set(front->http.worker->loop, &hold->alarm, delay_ns);
    WEIR_ASSERT(is_set); /* there are as many alarms as there are holds */
    front->hold = hold;
    weir_conn_owe(front->http.conn, true);
    weir_http1_pause(front->http.parser);
    return true;
}

/* The service goes down before it may be let through. */
static void refuse_held(struct weir_front_http *front)
{
    const struct weir_http1_request nothing = {.keeps_open = false};
    weir_http_conn_say(&front->http, &nothing, 503, WEIR_STR("The service is going down\n"));
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
    bool is_healthy =
        !front->http.is_draining && weir_service_is_healthy(front->http.worker->service);
    struct weir_http1_answer answer = {
        .status = is_healthy ? 200 : 500,
        .content_type = WEIR_STR("text/plain; charset=utf-8"),
        .body = is_healthy ? WEIR_STR("OK") : WEIR_STR(""),
    };
    weir_http_conn_answer(&front->http, request, &answer);
}

static void serve(struct weir_http_conn *http, const struct weir_http1_request *request)
{
    struct weir_front_http *front = (struct weir_front_http *)http;
    struct weir_str target = path_of(request->target), rest;
    if (is_route(target, WEIR_STR("/check"), "/?", &rest))
        weir_front_http_check(front, request, rest);
    else if (is_route(target, WEIR_STR("/json"), "?", &rest))
        weir_front_http_json(front, request);
    else if (is_route(target, WEIR_STR("/healthcheck"), "?", &rest))
        answer_health(front, request);
    else
        weir_http_conn_say(&front->http, request, 404, WEIR_STR("404 page not found\n"));
}

/* ---- the connection ---- */

static void front_close(void *state)
{
    struct weir_front_http *front = state;
    if (!front)
        return;
    if (front->hold)
        weir_hold_give_back(front->hold, front->http.worker, true);
    weir_ask_cancel(&front->waiter);
    weir_buf_fini(&front->asked.body);
    weir_http_conn_fini(&front->http);
    free(front);
}

static int front_open(void **state, void *ctx, struct weir_conn *conn)
{
    struct weir_front_http *front = calloc(1, sizeof(*front));
    if (!front || weir_http_conn_init(&front->http, conn, WEIR_FRONT_HTTP, serve) != 0) {
        front_close(front);
        return WEIR_ERR_NOMEM;
    }
    front->options = weir_service_http_options(ctx);
    weir_buf_init(&front->asked.body, WEIR_HTTP1_BODY_MAX);
    front->asked.body.budget = &front->http.worker->budget;
    weir_http_peer_read(&front->peer, weir_conn_peer(conn), front->options);
    *state = front;
    return 0;
}

static void front_drain(void *state)
{
    struct weir_front_http *front = state;
    const struct weir_settings *settings = weir_service_settings(front->http.worker->service);
    if (!is_waiting(front)) {
        weir_http_conn_drain(&front->http);
        return;
    }
    front->http.is_draining = true;
    if (front->hold && weir_alarm_left(&front->hold->alarm) >= settings->grace * NS_PER_MS)
        refuse_held(front);
}

const struct weir_protocol weir_front_http = {
    .name = "http",
    .open = front_open,
    .feed = weir_http_conn_feed,
    .drain = front_drain,
    .expire = weir_http_conn_expire,
    .close = front_close,
};
