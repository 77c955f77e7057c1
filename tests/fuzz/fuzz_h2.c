/* fuzz_h2.c - any bytes as a client of HTTP/2 and gRPC: answers or an end, never a crash.
 *
 * The first byte says how the rest is cut into reads, and whether the preface is put before it (or
 * nothing would get further).  Every request is answered in one of four ways.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/str.h"
#include "proto/grpc.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"

static const struct weir_str paths[] = {{"/a", 2}, {"/", 1}};
static const struct weir_grpc_methods methods = {.paths = paths, .count = 2};

struct server {
    struct weir_h2 *h2;
    uint64_t now_ns;
    int open, requests;
    struct weir_h2_stream *watcher;
};

static struct weir_grpc_call *call_of(struct weir_h2_stream *stream)
{
    return (struct weir_grpc_call *)(void *)stream->extra;
}

static void on_begin(void *ctx, struct weir_h2_stream *stream)
{
    struct server *server = ctx;
    server->open++;
    WEIR_ASSERT(server->open <= WEIR_H2_STREAMS_MAX);
    weir_grpc_begin(call_of(stream));
}

static void on_header(void *ctx, struct weir_h2_stream *stream, struct weir_str name,
                      struct weir_str value)
{
    const struct server *server = ctx;
    weir_grpc_header(call_of(stream), &methods, name, value, server->now_ns);
}

static void on_data(void *ctx, struct weir_h2_stream *stream)
{
    (void)ctx;
    WEIR_ASSERT(stream->body_len <= WEIR_H2_BODY_MAX);
    if (weir_grpc_is_too_large(stream))
        stream->fault = WEIR_H2_BODY_TOO_LARGE;
}

static void echo(struct server *server, struct weir_h2_stream *stream, struct weir_str message)
{
    uint8_t copy[256];
    size_t len = message.len < sizeof(copy) ? message.len : sizeof(copy);
    memcpy(copy, message.ptr, len);
    uint8_t *out = weir_grpc_out(server->h2, stream, len);
    WEIR_ASSERT(out);
    memcpy(out, copy, len);
    if (server->requests % 3 == 0 && !server->watcher) {
        weir_grpc_reply_open(server->h2, stream);
        server->watcher = stream;
    } else {
        weir_grpc_reply(server->h2, stream);
    }
}

static void on_request(void *ctx, struct weir_h2_stream *stream)
{
    struct server *server = ctx;
    struct weir_str message;
    uint32_t http_status;
    server->requests++;
    struct weir_grpc_status status =
        weir_grpc_message(call_of(stream), stream, server->now_ns, &message, &http_status);
    if (http_status != 200)
        weir_grpc_refuse_http(server->h2, stream, http_status);
    else if (status.code != WEIR_GRPC_OK)
        weir_grpc_refuse(server->h2, stream, status);
    else
        echo(server, stream, message);
}

static void on_close(void *ctx, struct weir_h2_stream *stream)
{
    struct server *server = ctx;
    server->open--;
    if (server->watcher == stream)
        server->watcher = NULL;
}

static const struct weir_h2_events events = {
    .extra_bytes = sizeof(struct weir_grpc_call),
    .name_lens = WEIR_GRPC_NAME_LENS,
    .begin = on_begin,
    .header = on_header,
    .data = on_data,
    .request = on_request,
    .close = on_close,
};

static void swallow(void *ctx, const void *bytes, size_t len)
{
    volatile uint8_t sink;
    (void)ctx;
    for (size_t i = 0; i < len; i++)
        sink = ((const uint8_t *)bytes)[i];
    (void)sink;
}

static bool feed(struct server *server, const void *bytes, size_t len)
{
    int err = weir_h2_feed(server->h2, bytes, len, server->now_ns);
    bool is_over = weir_h2_flush(server->h2, swallow, NULL);
    server->now_ns += 1000000;
    return err == 0 && !is_over;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static struct weir_pool pool;
    struct server server = {.now_ns = UINT64_C(1700000000000000000)};
    if (len == 0)
        return 0;
    size_t step = 1 + (size_t)(bytes[0] & 0x3F) * 4;
    WEIR_ASSERT(weir_h2_new(&server.h2, &events, &server, &pool) == 0);
    bool is_open = true;
    if (bytes[0] & 0x40)
        is_open = feed(&server, PREFACE, sizeof(PREFACE) - 1);
    for (size_t at = 1; at < len && is_open; at += step) {
        is_open = feed(&server, bytes + at, len - at < step ? len - at : step);
        if (server.watcher && at % 7 == 0) {
            uint8_t *out = weir_grpc_out(server.h2, server.watcher, 1);
            if (out)
                *out = 0;
            weir_h2_resume(server.h2, server.watcher);
        }
    }
    if (bytes[0] & 0x80) {
        weir_h2_drain(server.h2);
        if (server.watcher)
            weir_grpc_end_unavailable(server.h2, server.watcher);
        (void)weir_h2_flush(server.h2, swallow, NULL);
    }
    weir_h2_free(server.h2);
    WEIR_ASSERT(server.open == 0);
    return 0;
}
