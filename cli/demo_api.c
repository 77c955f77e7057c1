/* demo_api.c - a small API with three endpoints, for a gateway to stand before.
 *
 *     GET  /hello     says so
 *     GET  /search    finds nothing, politely
 *     POST /login     401, unless the body has password=weir
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "demo.h"

#include "base/str.h"
#include "net/net.h"
#include "proto/http1.h"

#include <stdlib.h>
#include <time.h>

#define ANSWER_LEN 1024
#define PORTS_TRIED 100

struct caller {
    struct weir_conn *conn;
    struct weir_http1 *http;
};

static uint64_t read_clock(void *ctx)
{
    struct timespec now = {0};
    (void)ctx;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void answer(const struct caller *caller, const struct weir_http1_request *request,
                   int status, const char *text)
{
    char buf[ANSWER_LEN];
    struct weir_http1_answer said = {
        .status = status,
        .content_type = WEIR_STR("application/json"),
        .body = weir_str_of(text),
        .is_head = request->is_head,
        .is_http10 = request->is_http10,
        .keeps_open = request->keeps_open,
    };
    weir_conn_send(caller->conn, buf, weir_http1_answer_write(buf, sizeof(buf), &said));
}

static bool has_password(struct weir_str body)
{
    static const char right[] = "password=weir";
    const char *at = body.len > 0 ? memmem(body.ptr, body.len, right, sizeof(right) - 1) : NULL;
    return at != NULL;
}

static bool on_request(void *ctx, const struct weir_http1_request *request)
{
    const struct caller *caller = ctx;
    struct weir_str path = request->target;
    const char *query = memchr(path.ptr, '?', path.len);
    if (query != NULL)
        path.len = (size_t)(query - path.ptr);
    weir_conn_alive(caller->conn);
    if (weir_str_eq(path, WEIR_STR("/hello")))
        answer(caller, request, 200, "{\"hello\": \"world\"}\n");
    else if (weir_str_eq(path, WEIR_STR("/search")))
        answer(caller, request, 200, "{\"found\": []}\n");
    else if (!weir_str_eq(path, WEIR_STR("/login")))
        answer(caller, request, 404, "{\"error\": \"try /hello, /search or /login\"}\n");
    else if (has_password(request->body))
        answer(caller, request, 200, "{\"welcome\": true}\n");
    else
        answer(caller, request, 401, "{\"error\": \"wrong password; it is 'weir'\"}\n");
    return true;
}

static void on_refuse(void *ctx, int status)
{
    const struct weir_http1_request nothing = {.keeps_open = false};
    answer(ctx, &nothing, status, "{\"error\": \"that is no request\"}\n");
}

static void on_go_on(void *ctx)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    weir_conn_send(((const struct caller *)ctx)->conn, text, sizeof(text) - 1);
}

static const struct weir_http1_calls calls = {on_request, on_refuse, on_go_on};

static void hang_up(void *state)
{
    struct caller *caller = state;
    weir_http1_free(caller->http);
    free(caller);
}

static int greet(void **state, void *ctx, struct weir_conn *conn)
{
    struct caller *caller = calloc(1, sizeof(*caller));
    (void)ctx;
    if (caller == NULL || weir_http1_new(&caller->http, &calls, caller) != 0) {
        free(caller);
        return WEIR_ERR_NOMEM;
    }
    caller->conn = conn;
    *state = caller;
    return 0;
}

static int listen_to(void *state, const uint8_t *bytes, size_t len)
{
    return weir_http1_feed(((struct caller *)state)->http, bytes, len);
}

static const struct weir_protocol protocol = {
    .name = "api",
    .open = greet,
    .feed = listen_to,
    .close = hang_up,
};

void demo_api(void *ctx)
{
    struct weir_loop *loop;
    struct weir_listener *listener;
    struct weir_listen_options options = {.address = ctx, .protocol = &protocol};
    char why[256] = "out of memory";
    if (weir_loop_new(&loop) != 0 ||
        weir_listener_new(&listener, &loop, 1, &options, why, sizeof(why)) != 0) {
        cli_complain("demo: the API: %s", why);
        _Exit(CLI_WORLD);
    }
    weir_loop_run(loop, read_clock, NULL);
}

uint32_t demo_free_port(uint32_t from)
{
    for (uint32_t port = from; port < from + PORTS_TRIED; port++) {
        char address[32], why[256];
        snprintf(address, sizeof(address), "127.0.0.1:%u", port);
        if (weir_listener_try(address, why, sizeof(why)) == 0)
            return port;
    }
    return 0;
}
