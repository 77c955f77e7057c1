/* h2_rig.h - a client of nghttp2's and a server of ours, in one process, with bytes handed across.
 *
 *     rig_post(r, "/path", body, len);      a request of the client's
 *     rig_pump(r);                          until neither has anything to say
 *     r->responses[0]                       what the client saw
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_H2_RIG_H
#define WEIR_TESTS_H2_RIG_H

#include "base/str.h"
#include "proto/grpc.h"

#include <nghttp2/nghttp2.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define RIG_NOW_NS UINT64_C(1700000000000000000)
#define RIG_RESPONSES_MAX 2048

struct response {
    int32_t id;
    int http_status, grpc_status; /* -1: none */
    char message[600];
    uint8_t body[512];
    size_t body_len;
    bool is_closed;
    uint32_t error;
};

struct rig {
    struct weir_h2 *server;
    struct weir_pool pool;
    nghttp2_session *client;
    const uint8_t *client_body; /* of the next request */
    size_t client_body_len;
    struct response *responses;
    size_t response_count;
    struct pipe {
        uint8_t bytes[1 << 22];
        size_t len;
    } * to_server, *to_client;
    uint64_t now_ns;
    int feed_err;
    bool is_finished;
    uint32_t goaway; /* the error of the last one; UINT32_MAX: none */
};

static inline struct response *rig_response(struct rig *r, int32_t id)
{
    for (size_t i = 0; i < r->response_count; i++) {
        if (r->responses[i].id == id)
            return &r->responses[i];
    }
    assert_true(r->response_count < RIG_RESPONSES_MAX);
    struct response *one = &r->responses[r->response_count++];
    *one = (struct response){.id = id, .http_status = -1, .grpc_status = -1};
    return one;
}

static inline int rig_on_header(nghttp2_session *session, const nghttp2_frame *frame,
                                const uint8_t *name, size_t name_len, const uint8_t *value,
                                size_t value_len, uint8_t flags, void *user)
{
    struct response *one = rig_response(user, frame->hd.stream_id);
    struct weir_str n = {(const char *)name, name_len};
    (void)session, (void)flags;
    if (weir_str_eq(n, WEIR_STR(":status")))
        one->http_status = (int)strtol((const char *)value, NULL, 10);
    if (weir_str_eq(n, WEIR_STR("grpc-status")))
        one->grpc_status = (int)strtol((const char *)value, NULL, 10);
    if (weir_str_eq(n, WEIR_STR("grpc-message")))
        snprintf(one->message, sizeof(one->message), "%.*s", (int)value_len, (const char *)value);
    return 0;
}

static inline int rig_on_data(nghttp2_session *session, uint8_t flags, int32_t id,
                              const uint8_t *bytes, size_t len, void *user)
{
    struct response *one = rig_response(user, id);
    (void)session, (void)flags;
    for (size_t i = 0; i < len && one->body_len < sizeof(one->body); i++)
        one->body[one->body_len++] = bytes[i];
    return 0;
}

static inline int rig_on_close(nghttp2_session *session, int32_t id, uint32_t error, void *user)
{
    struct response *one = rig_response(user, id);
    (void)session;
    one->is_closed = true;
    one->error = error;
    return 0;
}

static inline int rig_on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct rig *r = user;
    (void)session;
    if (frame->hd.type == NGHTTP2_GOAWAY)
        r->goaway = frame->goaway.error_code;
    return 0;
}

static inline struct rig *rig_new(const struct weir_h2_events *events, void *ctx)
{
    struct rig *r = calloc(1, sizeof(*r));
    nghttp2_session_callbacks *calls;
    assert_non_null(r);
    r->responses = calloc(RIG_RESPONSES_MAX, sizeof(*r->responses));
    r->to_server = calloc(1, sizeof(*r->to_server));
    r->to_client = calloc(1, sizeof(*r->to_client));
    r->now_ns = RIG_NOW_NS;
    r->goaway = UINT32_MAX;
    assert_int_equal(weir_h2_new(&r->server, events, ctx ? ctx : r, &r->pool), 0);
    nghttp2_session_callbacks_new(&calls);
    nghttp2_session_callbacks_set_on_header_callback(calls, rig_on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, rig_on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(calls, rig_on_close);
    nghttp2_session_callbacks_set_on_frame_recv_callback(calls, rig_on_frame);
    assert_int_equal(nghttp2_session_client_new(&r->client, calls, r), 0);
    nghttp2_session_callbacks_del(calls);
    assert_int_equal(nghttp2_submit_settings(r->client, 0, NULL, 0), 0);
    return r;
}

static inline void rig_free(struct rig *r)
{
    weir_h2_free(r->server);
    weir_pool_fini(&r->pool);
    nghttp2_session_del(r->client);
    free(r->responses);
    free(r->to_server);
    free(r->to_client);
    free(r);
}

static inline void rig_add(void *ctx, const void *bytes, size_t len)
{
    struct pipe *to = ctx;
    assert_true(len <= sizeof(to->bytes) - to->len);
    memcpy(to->bytes + to->len, bytes, len);
    to->len += len;
}

/* The client's bytes reach the server. */
static inline void rig_push(struct rig *r)
{
    const uint8_t *bytes;
    ssize_t len;
    while ((len = nghttp2_session_mem_send(r->client, &bytes)) > 0)
        rig_add(r->to_server, bytes, (size_t)len);
    if (r->to_server->len > 0 && r->feed_err == 0)
        r->feed_err = weir_h2_feed(r->server, r->to_server->bytes, r->to_server->len, r->now_ns);
    r->to_server->len = 0;
}

/* The server's bytes reach the client. */
static inline void rig_pull(struct rig *r)
{
    r->is_finished = weir_h2_flush(r->server, rig_add, r->to_client);
    if (r->to_client->len > 0)
        assert_int_equal(
            nghttp2_session_mem_recv(r->client, r->to_client->bytes, r->to_client->len),
            r->to_client->len);
    r->to_client->len = 0;
}

static inline void rig_pump(struct rig *r)
{
    for (int i = 0; i < 100; i++) {
        rig_push(r);
        rig_pull(r);
        if (!nghttp2_session_want_write(r->client))
            return;
    }
}

/* Bytes of no client. */
static inline int rig_raw(struct rig *r, const void *bytes, size_t len)
{
    if (r->feed_err == 0)
        r->feed_err = weir_h2_feed(r->server, bytes, len, r->now_ns);
    return r->feed_err;
}

static inline ssize_t rig_read_body(nghttp2_session *session, int32_t id, uint8_t *buf, size_t room,
                                    uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct rig *r = user;
    size_t len = r->client_body_len < room ? r->client_body_len : room;
    (void)session, (void)id, (void)source;
    memcpy(buf, r->client_body, len);
    r->client_body += len;
    r->client_body_len -= len;
    if (r->client_body_len == 0)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)len;
}

#define RIG_NV(n, v)                                                                               \
    {                                                                                              \
        (uint8_t *)(uintptr_t)(n), (uint8_t *)(uintptr_t)(v), strlen(n), strlen(v), 0              \
    }

/* A gRPC request; extra is one more header, or NULL.  Sent at the next push. */
static inline int32_t rig_send(struct rig *r, const char *path, const char *type, const char *extra,
                               const char *extra_value, const void *body, size_t len)
{
    nghttp2_nv nv[] = {
        RIG_NV(":method", "POST"),
        RIG_NV(":scheme", "http"),
        RIG_NV(":path", path),
        RIG_NV(":authority", "weir"),
        RIG_NV("content-type", type),
        RIG_NV(extra ? extra : "te", extra ? extra_value : "trailers"),
    };
    nghttp2_data_provider provider = {.read_callback = rig_read_body};
    r->client_body = body;
    r->client_body_len = len;
    int32_t id = nghttp2_submit_request(r->client, NULL, nv, 6, &provider, NULL);
    assert_true(id > 0);
    return id;
}

static inline int32_t rig_post(struct rig *r, const char *path, const void *body, size_t len)
{
    int32_t id = rig_send(r, path, "application/grpc", NULL, NULL, body, len);
    rig_push(r);
    return id;
}

#endif
