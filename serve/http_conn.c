/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/http_conn.h"

#include "base/err.h"
#include "base/str.h"

#include <stdlib.h>

#define NS_PER_S UINT64_C(1000000000)
#define ANSWER_LEN 8192 /* of those that fit on the stack easily: all but a few */

/* ---- answers ---- */

static struct weir_str date_of(struct weir_http_conn *http)
{
    uint64_t now_s = weir_loop_now(http->worker->loop) / NS_PER_S;
    if (now_s != http->date_s) {
        http->date_s = now_s;
        weir_http1_date(http->date, now_s);
    }
    return (struct weir_str){.ptr = http->date, .len = sizeof(http->date)};
}

size_t weir_http_conn_write(struct weir_http_conn *http, const struct weir_http1_request *request,
                            struct weir_http1_answer *answer, char *buf, size_t cap)
{
    answer->date = date_of(http);
    answer->is_head = request->is_head;
    answer->is_http10 = request->is_http10;
    answer->keeps_open = request->keeps_open && !http->is_draining;
    return weir_http1_answer_write(buf, cap, answer);
}

/* alloc: for what is longer than ANSWER_LEN, such as /json's answer to dozens of descriptors, and
 * most of what an operator asks for. */
static void send_long(struct weir_http_conn *http, const struct weir_http1_answer *answer)
{
    size_t cap = 1024 + answer->lines.len + answer->body.len;
    char *buf = malloc(cap);
    size_t len = buf ? weir_http1_answer_write(buf, cap, answer) : 0;
    if (len > 0)
        weir_conn_send(http->conn, buf, len);
    else
        weir_conn_finish(http->conn);
    free(buf);
}

void weir_http_conn_answer(struct weir_http_conn *http, const struct weir_http1_request *request,
                           struct weir_http1_answer *answer)
{
    char buf[ANSWER_LEN];
    size_t len = weir_http_conn_write(http, request, answer, buf, sizeof(buf));
    if (len > 0)
        weir_conn_send(http->conn, buf, len);
    else
        send_long(http, answer);
}

void weir_http_conn_say(struct weir_http_conn *http, const struct weir_http1_request *request,
                        int status, struct weir_str text)
{
    struct weir_http1_answer answer = {
        .status = status,
        .content_type = WEIR_STR("text/plain; charset=utf-8"),
        .lines = WEIR_STR("X-Content-Type-Options: nosniff\r\n"),
        .body = text,
    };
    weir_http_conn_answer(http, request, &answer);
}

/* ---- what the parser says ---- */

static bool on_request(void *ctx, const struct weir_http1_request *request)
{
    struct weir_http_conn *http = ctx;
    weir_conn_amid(http->conn, false); /* the next has its own time */
    if (!http->is_alive) {
        http->is_alive = true;
        weir_conn_alive(http->conn);
    }
    http->serve(http, request);
    return !http->is_draining;
}

static void on_refuse(void *ctx, int status)
{
    struct weir_http_conn *http = ctx;
    const struct weir_http1_request nothing = {.keeps_open = false};
    char text[64];
    struct weir_str reason = weir_http1_reason(status);
    memcpy(text, reason.ptr, reason.len);
    text[reason.len] = '\n';
    weir_worker_add(http->worker, http->front, WEIR_FRONT_COUNT_BAD, 1);
    WEIR_LOG(weir_service_log(http->worker->service), WEIR_LOG_INFO, "connection closed",
             WEIR_LOG_TEXT("protocol", http->front == WEIR_FRONT_HTTP ? "http" : "admin"),
             WEIR_LOG_KEY("peer", weir_str_of(weir_conn_peer(http->conn))),
             WEIR_LOG_NUMBER("status", (uint64_t)status), WEIR_LOG_STR("why", reason));
    weir_http_conn_say(http, &nothing, status,
                       (struct weir_str){.ptr = text, .len = reason.len + 1});
}

static void on_go_on(void *ctx)
{
    struct weir_http_conn *http = ctx;
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    weir_conn_send(http->conn, text, sizeof(text) - 1);
}

static const struct weir_http1_calls calls = {on_request, on_refuse, on_go_on};

/* ---- the connection ---- */

int weir_http_conn_init(struct weir_http_conn *http, struct weir_conn *conn, enum weir_front front,
                        void (*serve)(struct weir_http_conn *http,
                                      const struct weir_http1_request *request))
{
    *http = (struct weir_http_conn){
        .conn = conn, .worker = weir_worker_of(conn), .front = front, .serve = serve};
    int err = weir_http1_new(&http->parser, &calls, http);
    if (err == 0)
        weir_http1_set_budget(http->parser, &http->worker->budget);
    return err;
}

void weir_http_conn_fini(struct weir_http_conn *http)
{
    weir_http1_free(http->parser);
}

int weir_http_conn_feed(void *state, const uint8_t *bytes, size_t len)
{
    struct weir_http_conn *http = state;
    int err = weir_http1_feed(http->parser, bytes, len);
    weir_conn_amid(http->conn, weir_http1_is_amid(http->parser));
    return err;
}

bool weir_http_conn_expire(void *state, bool is_amid)
{
    struct weir_http_conn *http = state;
    if (!is_amid)
        return false;
    on_refuse(http, 408);
    weir_conn_finish(http->conn);
    return true;
}

void weir_http_conn_drain(void *state)
{
    struct weir_http_conn *http = state;
    http->is_draining = true;
    /* A request may be on its way: only an answer can tell its client not to send another. */
    if (!weir_http1_is_amid(http->parser))
        weir_conn_last_call(http->conn);
}
