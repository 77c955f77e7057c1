/* bare_h2.c - what gRPC costs before anything is decided: nghttp2 and libuv, and nothing else.
 *
 *     bare_h2 PORT constant     answers every request with the same bytes
 *     bare_h2 PORT packing      reads the path, and packs a RateLimitResponse with protobuf-c
 *
 * The floor that `weir serve` is measured against, and so written as fast as we know how: one read,
 * one write for each turn of a connection, no state for a stream beyond one bit.  It believes
 * everything and bounds nothing.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "rls.pb-c.h"

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define PATH "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
#define NV(name, value)                                                                            \
    {                                                                                              \
        (uint8_t *)(uintptr_t)(name), (uint8_t *)(uintptr_t)(value), sizeof(name) - 1,             \
            sizeof(value) - 1, NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE        \
    }

struct conn {
    uv_tcp_t tcp;
    nghttp2_session *session;
    uint8_t *out;
    size_t len, cap;
};

static bool is_packing;
static uint32_t served;
static char input[65536];

/* {OK, [{OK, limit {1000000, HOUR}, remaining, reset in 1234 s}]}, as weir says it. */
static size_t pack(uint8_t *out)
{
    Envoy__Service__Ratelimit__V3__RateLimitResponse__RateLimit limit =
        ENVOY__SERVICE__RATELIMIT__V3__RATE_LIMIT_RESPONSE__RATE_LIMIT__INIT;
    Google__Protobuf__Duration reset = GOOGLE__PROTOBUF__DURATION__INIT;
    Envoy__Service__Ratelimit__V3__RateLimitResponse__DescriptorStatus
        status = ENVOY__SERVICE__RATELIMIT__V3__RATE_LIMIT_RESPONSE__DESCRIPTOR_STATUS__INIT,
        *statuses[1] = {&status};
    Envoy__Service__Ratelimit__V3__RateLimitResponse response =
        ENVOY__SERVICE__RATELIMIT__V3__RATE_LIMIT_RESPONSE__INIT;
    limit.requests_per_unit = 1000000000;
    limit.unit = 3;
    reset.seconds = 1234;
    status.code = 1;
    status.current_limit = &limit;
    status.limit_remaining = 1000000000 - served++;
    status.duration_until_reset = &reset;
    response.overall_code = 1;
    response.n_statuses = 1;
    response.statuses = statuses;
    size_t len = envoy__service__ratelimit__v3__rate_limit_response__get_packed_size(&response);
    memset(out, 0, 4);
    out[4] = (uint8_t)len;
    envoy__service__ratelimit__v3__rate_limit_response__pack(&response, out + 5);
    return 5 + len;
}

static ssize_t read_answer(nghttp2_session *session, int32_t id, uint8_t *buf, size_t room,
                           uint32_t *flags, nghttp2_data_source *source, void *user)
{
    static uint8_t constant[64];
    static size_t constant_len;
    nghttp2_nv trailers[] = {NV("grpc-status", "0")};
    (void)room, (void)source, (void)user;
    *flags = NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    nghttp2_submit_trailer(session, id, trailers, 1);
    if (is_packing)
        return (ssize_t)pack(buf);
    if (constant_len == 0)
        constant_len = pack(constant);
    memcpy(buf, constant, constant_len);
    return (ssize_t)constant_len;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user)
{
    (void)flags, (void)user;
    if (is_packing && name_len == 5 && memcmp(name, ":path", 5) == 0 &&
        (value_len != sizeof(PATH) - 1 || memcmp(value, PATH, value_len) != 0))
        nghttp2_submit_rst_stream(session, 0, frame->hd.stream_id, NGHTTP2_REFUSED_STREAM);
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    nghttp2_nv head[] = {NV(":status", "200"), NV("content-type", "application/grpc")};
    nghttp2_data_provider provider = {.read_callback = read_answer};
    (void)user;
    if ((frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) &&
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        nghttp2_submit_response(session, frame->hd.stream_id, head, 2, &provider);
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    struct conn *conn = (struct conn *)handle;
    nghttp2_session_del(conn->session);
    free(conn->out);
    free(conn);
}

static void on_alloc(uv_handle_t *handle, size_t want, uv_buf_t *buf)
{
    (void)handle, (void)want;
    *buf = uv_buf_init(input, sizeof(input));
}

static void answer(struct conn *conn)
{
    const uint8_t *bytes;
    ssize_t len;
    conn->len = 0;
    while ((len = nghttp2_session_mem_send(conn->session, &bytes)) > 0) {
        if (conn->cap - conn->len < (size_t)len) {
            conn->cap = 2 * (conn->len + (size_t)len);
            conn->out = realloc(conn->out, conn->cap);
        }
        memcpy(conn->out + conn->len, bytes, (size_t)len);
        conn->len += (size_t)len;
    }
    uv_buf_t buf = uv_buf_init((char *)conn->out, (unsigned)conn->len);
    if (conn->len > 0 && uv_try_write((uv_stream_t *)&conn->tcp, &buf, 1) != (int)conn->len) {
        fprintf(stderr, "bare_h2: the client reads too slowly\n");
        exit(1);
    }
}

static void on_read(uv_stream_t *stream, ssize_t len, const uv_buf_t *buf)
{
    struct conn *conn = (struct conn *)stream;
    if (len < 0 ||
        nghttp2_session_mem_recv(conn->session, (const uint8_t *)buf->base, (size_t)len) != len)
        uv_close((uv_handle_t *)stream, on_closed);
    else
        answer(conn);
}

static void on_connection(uv_stream_t *server, int status)
{
    struct conn *conn = calloc(1, sizeof(*conn));
    nghttp2_session_callbacks *calls;
    nghttp2_settings_entry settings = {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 1000};
    (void)status;
    uv_tcp_init(server->loop, &conn->tcp);
    uv_accept(server, (uv_stream_t *)&conn->tcp);
    uv_tcp_nodelay(&conn->tcp, 1);
    nghttp2_session_callbacks_new(&calls);
    nghttp2_session_callbacks_set_on_header_callback(calls, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(calls, on_frame);
    nghttp2_session_server_new(&conn->session, calls, conn);
    nghttp2_session_callbacks_del(calls);
    nghttp2_submit_settings(conn->session, 0, &settings, 1);
    uv_read_start((uv_stream_t *)&conn->tcp, on_alloc, on_read);
}

int main(int argc, char **argv)
{
    static uv_tcp_t server;
    struct sockaddr_in address;
    if (argc != 3 || (strcmp(argv[2], "constant") != 0 && strcmp(argv[2], "packing") != 0)) {
        fprintf(stderr, "usage: bare_h2 PORT constant|packing\n");
        return 2;
    }
    is_packing = strcmp(argv[2], "packing") == 0;
    uv_ip4_addr("127.0.0.1", (int)strtol(argv[1], NULL, 10), &address);
    uv_tcp_init(uv_default_loop(), &server);
    if (uv_tcp_bind(&server, (const struct sockaddr *)&address, 0) != 0 ||
        uv_listen((uv_stream_t *)&server, 128, on_connection) != 0) {
        fprintf(stderr, "bare_h2: cannot listen on port %s\n", argv[1]);
        return 1;
    }
    return uv_run(uv_default_loop(), UV_RUN_DEFAULT);
}
