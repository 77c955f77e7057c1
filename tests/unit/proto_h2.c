/* SPDX-License-Identifier: Apache-2.0 */
#include "h2_rig.h"

/* What the server was told, in the order that it was. */
static struct {
    int begun, requests, closed;
    struct weir_h2_stream *newest, *last; /* begun; complete */
    char path[64];
    size_t body_len;
    bool is_answering; /* echo the body at once */
    enum weir_h2_fault fault;
} seen;

static struct rig *r;

#define TEXT(literal)                                                                              \
    {                                                                                              \
        literal, sizeof(literal) - 1                                                               \
    }

static const struct weir_h2_field head[] = {{TEXT(":status"), TEXT("200")}};
static const struct weir_h2_field trailers[] = {{TEXT("grpc-status"), TEXT("0")}};

static void on_begin(void *ctx, struct weir_h2_stream *stream)
{
    (void)ctx;
    seen.begun++;
    seen.newest = stream;
    memset(stream->extra, 0xAA, 24);
}

static void on_header(void *ctx, struct weir_h2_stream *stream, struct weir_str name,
                      struct weir_str value)
{
    (void)ctx, (void)stream;
    if (weir_str_eq(name, WEIR_STR(":path")))
        snprintf(seen.path, sizeof(seen.path), "%.*s", WEIR_STR_ARG(value));
}

static void on_data(void *ctx, struct weir_h2_stream *stream)
{
    (void)ctx, (void)stream;
}

static void on_request(void *ctx, struct weir_h2_stream *stream)
{
    (void)ctx;
    seen.requests++;
    seen.last = stream;
    seen.body_len = stream->body_len;
    seen.fault = stream->fault;
    if (!seen.is_answering)
        return;
    uint8_t *out = weir_h2_out(r->server, stream, 3);
    assert_non_null(out);
    memcpy(out, "yes", 3);
    weir_h2_end(stream, trailers, 1);
    weir_h2_respond(r->server, stream, head, 1);
}

static void on_close(void *ctx, struct weir_h2_stream *stream)
{
    (void)ctx;
    seen.closed++;
    if (seen.last == stream)
        seen.last = NULL;
}

static const struct weir_h2_events events = {
    .extra_bytes = 24,
    .name_lens = UINT64_MAX,
    .begin = on_begin,
    .header = on_header,
    .data = on_data,
    .request = on_request,
    .close = on_close,
};

static int open_rig(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof(seen));
    seen.is_answering = true;
    r = rig_new(&events, NULL);
    rig_pump(r);
    return 0;
}

static int close_rig(void **state)
{
    (void)state;
    rig_free(r);
    assert_int_equal(seen.begun, seen.closed);
    return 0;
}

static void a_request_is_answered_with_body_and_trailers(void **state)
{
    (void)state;
    int32_t id = rig_post(r, "/a", "hello", 5);
    rig_pump(r);
    assert_string_equal(seen.path, "/a");
    assert_int_equal(seen.body_len, 5);
    struct response *one = rig_response(r, id);
    assert_int_equal(one->http_status, 200);
    assert_int_equal(one->grpc_status, 0);
    assert_int_equal(one->body_len, 3);
    assert_memory_equal(one->body, "yes", 3);
    assert_true(one->is_closed);
    assert_int_equal(one->error, NGHTTP2_NO_ERROR);
    assert_true(weir_h2_is_greeted(r->server));
}

static void streams_are_used_again(void **state)
{
    (void)state;
    for (int i = 0; i < 5000; i++) {
        rig_post(r, "/again", "x", 1);
        rig_pump(r);
        r->response_count = 0;
    }
    assert_int_equal(seen.requests, 5000);
    assert_int_equal(seen.closed, 5000);
}

static void a_body_of_the_maximum_is_taken_and_one_more_is_not(void **state)
{
    uint8_t *body = calloc(1, WEIR_H2_BODY_MAX + 1);
    (void)state;
    rig_post(r, "/max", body, WEIR_H2_BODY_MAX);
    rig_pump(r);
    assert_int_equal(seen.body_len, WEIR_H2_BODY_MAX);
    assert_int_equal(seen.fault, WEIR_H2_FINE);
    int32_t id = rig_post(r, "/more", body, WEIR_H2_BODY_MAX + 1);
    rig_pump(r);
    assert_int_equal(seen.requests, 2);
    assert_int_equal(seen.fault, WEIR_H2_BODY_TOO_LARGE);
    assert_int_equal(rig_response(r, id)->http_status, 200);
    free(body);
}

static void an_early_answer_ends_in_a_peaceful_reset(void **state)
{
    static const struct weir_h2_field refused[] = {{TEXT(":status"), TEXT("413")}};
    nghttp2_nv nv[] = {RIG_NV(":method", "POST"), RIG_NV(":scheme", "http"), RIG_NV(":path", "/"),
                       RIG_NV(":authority", "a")};
    (void)state;
    int32_t id = nghttp2_submit_headers(r->client, 0, -1, NULL, nv, 4, NULL);
    rig_push(r);
    assert_int_equal(seen.begun, 1);
    assert_int_equal(seen.requests, 0); /* its body may still come */
    weir_h2_respond_only(r->server, seen.newest, refused, 1);
    rig_pump(r);
    assert_int_equal(rig_response(r, id)->http_status, 413);
    assert_true(rig_response(r, id)->is_closed);
    assert_int_equal(rig_response(r, id)->error, NGHTTP2_NO_ERROR);
    assert_int_equal(seen.closed, 1);
}

static void bodies_held_on_one_connection_are_bounded(void **state)
{
    uint8_t *body = calloc(1, WEIR_H2_BODY_MAX);
    (void)state;
    seen.is_answering = false; /* so that every body stays */
    int refused = 0;
    for (int i = 0; i < 16; i++) {
        rig_post(r, "/held", body, WEIR_H2_BODY_MAX - 5);
        rig_pump(r);
        refused += seen.fault == WEIR_H2_BODIES_TOO_LARGE;
    }
    assert_int_equal(seen.requests, 16);
    assert_int_equal(refused, 8); /* of 8 MiB, each takes 1 */
    free(body);
}

/* A header list of len bytes as RFC 9113 counts them. */
static int32_t send_headers(size_t len)
{
    static char value[1 << 19];
    const size_t others =
        sizeof(":methodPOST:schemehttp:path/:authorityx") - 1 + 4 * 32 + sizeof("x-long") - 1 + 32;
    memset(value, 'v', len - others);
    value[len - others] = '\0';
    nghttp2_nv nv[] = {RIG_NV(":method", "POST"), RIG_NV(":scheme", "http"), RIG_NV(":path", "/"),
                       RIG_NV(":authority", "x"), RIG_NV("x-long", value)};
    int32_t id = nghttp2_submit_request(r->client, NULL, nv, 5, NULL, NULL);
    rig_pump(r);
    return id;
}

static void headers_of_the_maximum_are_taken_and_one_more_is_a_fault(void **state)
{
    (void)state;
    send_headers(WEIR_H2_HEADERS_MAX);
    assert_int_equal(seen.requests, 1);
    assert_int_equal(seen.fault, WEIR_H2_FINE);
    send_headers(WEIR_H2_HEADERS_MAX + 1);
    assert_int_equal(seen.requests, 2);
    assert_int_equal(seen.fault, WEIR_H2_HEADERS_TOO_LARGE);
    assert_int_equal(r->feed_err, 0);
}

static void only_so_many_streams_are_open_at_once(void **state)
{
    (void)state;
    seen.is_answering = false;
    for (int i = 0; i < WEIR_H2_STREAMS_MAX + 10; i++) {
        rig_send(r, "/", "application/grpc", NULL, NULL, "x", 1);
        rig_push(r); /* the client itself keeps what is beyond for later */
    }
    rig_pump(r);
    assert_int_equal(seen.begun, WEIR_H2_STREAMS_MAX);
    assert_int_equal(r->feed_err, 0);
}

static void an_http1_request_is_no_preface(void **state)
{
    static const char get[] = "GET / HTTP/1.1\r\nHost: weir\r\n\r\n";
    struct weir_h2 *h2;
    (void)state;
    assert_int_equal(weir_h2_new(&h2, &events, NULL, &r->pool), 0);
    assert_int_equal(weir_h2_feed(h2, (const uint8_t *)get, sizeof(get) - 1, RIG_NOW_NS),
                     WEIR_ERR_INVALID);
    assert_true(strlen(weir_h2_why(h2)) > 0);
    assert_false(weir_h2_is_greeted(h2));
    weir_h2_free(h2);
}

/* type, flags and stream id of a frame with a payload of zeros. */
static size_t frame(uint8_t *out, uint8_t type, uint8_t flags, uint32_t id, uint32_t len)
{
    memset(out, 0, 9 + len);
    out[0] = (uint8_t)(len >> 16);
    out[1] = (uint8_t)(len >> 8);
    out[2] = (uint8_t)len;
    out[3] = type;
    out[4] = flags;
    out[5] = (uint8_t)(id >> 24);
    out[6] = (uint8_t)(id >> 16);
    out[7] = (uint8_t)(id >> 8);
    out[8] = (uint8_t)id;
    return 9 + len;
}

/* How many frames of a kind it takes until the server has had enough; the peer reads nothing if
 * is_deaf, and else all answers. */
static int flood(uint8_t type, uint8_t flags, uint32_t len)
{
    uint8_t bytes[64];
    size_t bytes_len = frame(bytes, type, flags, 0, len);
    int sent = 0;
    while (rig_raw(r, bytes, bytes_len) == 0 && sent < 100000) {
        sent++;
        r->to_client->len = 0;
        (void)weir_h2_flush(r->server, rig_add, r->to_client);
        r->to_client->len = 0;
    }
    return sent;
}

static void a_flood_of_pings_is_cut_off(void **state)
{
    (void)state;
    int sent = flood(NGHTTP2_PING, 0, 8);
    assert_in_range(sent, WEIR_H2_NOISE_BURST - 20, WEIR_H2_NOISE_BURST);
    assert_true(weir_h2_flush(r->server, rig_add, r->to_client));
}

static void a_flood_of_settings_is_cut_off(void **state)
{
    (void)state;
    int sent = flood(NGHTTP2_SETTINGS, 0, 0);
    assert_in_range(sent, 100, WEIR_H2_NOISE_BURST);
    assert_string_equal(weir_h2_why(r->server), "too many frames that are part of no request");
}

static void pings_at_a_bearable_pace_are_answered_for_ever(void **state)
{
    uint8_t bytes[64];
    size_t len = frame(bytes, NGHTTP2_PING, 0, 0, 8);
    (void)state;
    for (int i = 0; i < 50000; i++) {
        r->now_ns += UINT64_C(1000000000) / (WEIR_H2_NOISE_PER_S / 2);
        assert_int_equal(rig_raw(r, bytes, len), 0);
        (void)weir_h2_flush(r->server, rig_add, r->to_client);
        r->to_client->len = 0;
    }
}

static void requests_pay_for_their_own_noise(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) { /* without time to refill anything */
        rig_post(r, "/", "x", 1);
        nghttp2_submit_ping(r->client, 0, NULL);
        rig_pump(r);
        assert_int_equal(r->feed_err, 0);
        r->response_count = 0;
    }
}

static void rapid_reset_is_cut_off(void **state)
{
    (void)state;
    seen.is_answering = false;
    int sent = 0;
    while (r->feed_err == 0 && sent < 20000) {
        int32_t id = rig_send(r, "/", "application/grpc", NULL, NULL, "x", 1);
        rig_push(r);
        nghttp2_submit_rst_stream(r->client, 0, id, NGHTTP2_CANCEL);
        rig_push(r);
        rig_pull(r);
        r->response_count = 0;
        sent++;
        if (r->goaway != UINT32_MAX)
            break;
    }
    assert_in_range(sent, 500, WEIR_H2_RESETS_BURST + 1);
}

static void continuation_without_end_is_cut_off(void **state)
{
    uint8_t bytes[64];
    (void)state;
    size_t len = frame(bytes, NGHTTP2_HEADERS, 0, 1, 1);
    bytes[9] = 0x82;
    assert_int_equal(rig_raw(r, bytes, len), 0);
    int sent = 0;
    len = frame(bytes, NGHTTP2_CONTINUATION, 0, 1, 0);
    while (rig_raw(r, bytes, len) == 0 && sent < 100000) {
        sent++;
        if (weir_h2_flush(r->server, rig_add, r->to_client))
            break;
    }
    assert_true(sent <= WEIR_H2_NOISE_BURST);
}

static void an_open_response_sends_more_later(void **state)
{
    (void)state;
    seen.is_answering = false;
    int32_t id = rig_post(r, "/watch", "x", 1);
    struct weir_h2_stream *stream = seen.last;
    memcpy(weir_h2_out(r->server, stream, 1), "1", 1);
    weir_h2_respond(r->server, stream, head, 1);
    rig_pump(r);
    assert_int_equal(rig_response(r, id)->body_len, 1);
    assert_false(rig_response(r, id)->is_closed);
    memcpy(weir_h2_out(r->server, stream, 2), "23", 2);
    weir_h2_resume(r->server, stream);
    rig_pump(r);
    assert_memory_equal(rig_response(r, id)->body, "123", 3);
    weir_h2_end(stream, trailers, 1);
    weir_h2_resume(r->server, stream);
    rig_pump(r);
    assert_true(rig_response(r, id)->is_closed);
    assert_int_equal(rig_response(r, id)->grpc_status, 0);
}

static void draining_finishes_what_is_open(void **state)
{
    (void)state;
    seen.is_answering = false;
    int32_t id = rig_post(r, "/", "x", 1);
    struct weir_h2_stream *stream = seen.last;
    weir_h2_drain(r->server);
    rig_pump(r);
    rig_pump(r);
    assert_int_equal(r->goaway, NGHTTP2_NO_ERROR);
    assert_false(r->is_finished);
    (void)weir_h2_out(r->server, stream, 1);
    weir_h2_end(stream, trailers, 1);
    weir_h2_respond(r->server, stream, head, 1);
    rig_pump(r);
    assert_int_equal(rig_response(r, id)->grpc_status, 0);
    assert_true(r->is_finished);
}

static void open_streams_are_closed_with_the_connection(void **state)
{
    (void)state;
    seen.is_answering = false;
    for (int i = 0; i < 300; i++)
        rig_post(r, "/", "x", 1);
    assert_int_equal(seen.begun, 300);
    assert_int_equal(seen.closed, 0); /* close_rig looks again */
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_rig, close_rig)
    const struct CMUnitTest tests[] = {
        CASE(a_request_is_answered_with_body_and_trailers),
        CASE(streams_are_used_again),
        CASE(a_body_of_the_maximum_is_taken_and_one_more_is_not),
        CASE(an_early_answer_ends_in_a_peaceful_reset),
        CASE(bodies_held_on_one_connection_are_bounded),
        CASE(headers_of_the_maximum_are_taken_and_one_more_is_a_fault),
        CASE(only_so_many_streams_are_open_at_once),
        CASE(an_http1_request_is_no_preface),
        CASE(a_flood_of_pings_is_cut_off),
        CASE(a_flood_of_settings_is_cut_off),
        CASE(pings_at_a_bearable_pace_are_answered_for_ever),
        CASE(requests_pay_for_their_own_noise),
        CASE(rapid_reset_is_cut_off),
        CASE(continuation_without_end_is_cut_off),
        CASE(an_open_response_sends_more_later),
        CASE(draining_finishes_what_is_open),
        CASE(open_streams_are_closed_with_the_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
