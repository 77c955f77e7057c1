/* SPDX-License-Identifier: Apache-2.0 */
#include "h2_rig.h"

static const struct weir_str paths[] = {{"/s.S/One", 8}, {"/s.S/Two", 8}};
static const struct weir_grpc_methods methods = {.paths = paths, .count = 2};

static struct rig *r;
static uint64_t waited_ns; /* between the headers and the answer */
static struct weir_str taken;

static struct weir_grpc_call *call_of(struct weir_h2_stream *stream)
{
    return (struct weir_grpc_call *)(void *)stream->extra;
}

static void on_begin(void *ctx, struct weir_h2_stream *stream)
{
    (void)ctx;
    weir_grpc_begin(call_of(stream));
}

static void on_header(void *ctx, struct weir_h2_stream *stream, struct weir_str name,
                      struct weir_str value)
{
    (void)ctx;
    weir_grpc_header(call_of(stream), &methods, name, value, RIG_NOW_NS);
}

/* Echoes the message, or says why not. */
static void on_request(void *ctx, struct weir_h2_stream *stream)
{
    static uint8_t copy[1 << 20];
    uint32_t http_status;
    struct weir_str message;
    (void)ctx;
    struct weir_grpc_status status =
        weir_grpc_message(call_of(stream), stream, RIG_NOW_NS + waited_ns, &message, &http_status);
    if (http_status != 200) {
        weir_grpc_refuse_http(r->server, stream, http_status);
    } else if (status.code != WEIR_GRPC_OK) {
        weir_grpc_refuse(r->server, stream, status);
    } else {
        memcpy(copy, message.ptr, message.len);
        taken = (struct weir_str){(const char *)copy, message.len};
        memcpy(weir_grpc_out(r->server, stream, message.len), copy, message.len);
        weir_grpc_reply(r->server, stream);
    }
}

static void on_data(void *ctx, struct weir_h2_stream *stream)
{
    if (weir_grpc_is_too_large(stream) && stream->fault == WEIR_H2_FINE) {
        stream->fault = WEIR_H2_BODY_TOO_LARGE;
        on_request(ctx, stream);
    }
}

static void on_close(void *ctx, struct weir_h2_stream *stream)
{
    (void)ctx, (void)stream;
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

static int open_rig(void **state)
{
    (void)state;
    waited_ns = 0;
    r = rig_new(&events, NULL);
    rig_pump(r);
    return 0;
}

static int close_rig(void **state)
{
    (void)state;
    rig_free(r);
    return 0;
}

static struct response *call(const char *path, const char *type, const char *name,
                             const char *value, const char *body, size_t len)
{
    int32_t id = rig_send(r, path, type, name, value, body, len);
    rig_pump(r);
    return rig_response(r, id);
}

static struct response *call_body(const char *body, size_t len)
{
    return call("/s.S/One", "application/grpc", NULL, NULL, body, len);
}

static void assert_refused(struct response *one, int code, const char *text)
{
    assert_int_equal(one->http_status, 200);
    assert_int_equal(one->grpc_status, code);
    assert_string_equal(one->message, text);
    assert_int_equal(one->body_len, 0);
    assert_true(one->is_closed);
}

static void a_message_goes_there_and_back(void **state)
{
    (void)state;
    struct response *one = call_body("\0\0\0\0\3abc", 8);
    assert_int_equal(one->grpc_status, 0);
    assert_int_equal(one->body_len, 8);
    assert_memory_equal(one->body, "\0\0\0\0\3abc", 8);
}

static void an_empty_message_is_a_message(void **state)
{
    (void)state;
    assert_int_equal(call_body("\0\0\0\0\0", 5)->grpc_status, 0);
    assert_int_equal(taken.len, 0);
}

static void what_is_cut_short_or_too_long_is_internal(void **state)
{
    (void)state;
    assert_refused(call_body("\0\0\0\0\4abc", 8), 13, "the message is cut short");
    assert_refused(call_body("\0\0\0\0", 4), 13, "the message is cut short");
    assert_refused(call_body("", 0), 13, "the message is cut short");
    assert_refused(call_body("\0\0\0\0\2abc", 8), 13, "more than one message");
    assert_refused(call_body("\2\0\0\0\3abc", 8), 13, "a flag that gRPC does not know");
    assert_refused(call_body("\1\0\0\0\3abc", 8), 13, "a flag that gRPC does not know");
}

static void compression_is_not_implemented_unless_it_is_none(void **state)
{
    (void)state;
    assert_refused(call("/s.S/One", "application/grpc", "grpc-encoding", "gzip", "\1\0\0\0\1x", 6),
                   12, "compressed messages are not supported");
    struct response *one =
        call("/s.S/One", "application/grpc", "grpc-encoding", "gzip", "\0\0\0\0\1x", 6);
    assert_int_equal(one->grpc_status, 0); /* this message is not compressed */
}

static void unknown_methods_are_not_implemented(void **state)
{
    (void)state;
    assert_refused(call("/s.S/Three", "application/grpc", NULL, NULL, "\0\0\0\0\0", 5), 12,
                   "unknown method");
    assert_refused(call("/", "application/grpc", NULL, NULL, "\0\0\0\0\0", 5), 12,
                   "unknown method");
}

static void what_is_no_grpc_is_refused_by_http(void **state)
{
    static const char *const good[] = {"application/grpc", "application/grpc+proto",
                                       "application/grpc;charset=utf-8"};
    static const char *const bad[] = {"application/json", "application/grpc+json",
                                      "application/grpc-web", "text/plain"};
    (void)state;
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(call("/s.S/Two", good[i], NULL, NULL, "\0\0\0\0\0", 5)->grpc_status, 0);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(call("/s.S/Two", bad[i], NULL, NULL, "\0\0\0\0\0", 5)->http_status, 415);
}

static void a_length_beyond_the_maximum_is_refused_before_it_comes(void **state)
{
    (void)state;
    nghttp2_nv nv[] = {RIG_NV(":method", "POST"), RIG_NV(":scheme", "http"),
                       RIG_NV(":path", "/s.S/One"), RIG_NV(":authority", "weir"),
                       RIG_NV("content-type", "application/grpc")};
    int32_t id = nghttp2_submit_headers(r->client, 0, -1, NULL, nv, 5, NULL);
    rig_push(r);
    uint8_t frame[] = {0, 0, 5, NGHTTP2_DATA, 0, 0, 0, 0, (uint8_t)id, 0, 0x40, 0, 0, 0};
    assert_int_equal(rig_raw(r, frame, sizeof(frame)), 0);
    rig_pull(r);
    assert_refused(rig_response(r, id), 8, "the message is larger than 1 MiB");
}

static void a_deadline_counts_from_the_headers(void **state)
{
    (void)state;
    waited_ns = 19999999;
    assert_int_equal(
        call("/s.S/One", "application/grpc", "grpc-timeout", "20m", "\0\0\0\0\0", 5)->grpc_status,
        0);
    waited_ns = 20000000;
    assert_refused(call("/s.S/One", "application/grpc", "grpc-timeout", "20m", "\0\0\0\0\0", 5), 4,
                   "the deadline has passed");
    waited_ns = 0;
    assert_refused(call("/s.S/One", "application/grpc", "grpc-timeout", "0n", "\0\0\0\0\0", 5), 4,
                   "the deadline has passed");
}

static void timeouts_are_read_as_grpc_writes_them(void **state)
{
    static const struct {
        const char *text;
        uint64_t ns;
    } cases[] = {
        {"1H", UINT64_C(3600000000000)},
        {"2M", UINT64_C(120000000000)},
        {"3S", UINT64_C(3000000000)},
        {"4m", 4000000},
        {"5u", 5000},
        {"6n", 6},
        {"99999999n", 99999999},
        {"99999999H", WEIR_GRPC_NO_DEADLINE}, /* 11,000 years */
        {"100000000n", WEIR_GRPC_NO_DEADLINE},
        {"", WEIR_GRPC_NO_DEADLINE},
        {"m", WEIR_GRPC_NO_DEADLINE},
        {"5", WEIR_GRPC_NO_DEADLINE},
        {"5s", WEIR_GRPC_NO_DEADLINE},
        {"-5S", WEIR_GRPC_NO_DEADLINE},
        {"5 S", WEIR_GRPC_NO_DEADLINE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_true(weir_grpc_timeout(weir_str_of(cases[i].text)) == cases[i].ns);
}

static void texts_are_percent_encoded_and_cut_between_letters(void **state)
{
    char out[16];
    (void)state;
    size_t len = weir_grpc_percent("a b%\xC3\xA9\n", out, sizeof(out));
    assert_int_equal(len, 15);
    assert_memory_equal(out, "a b%25%C3%A9%0A", len);
    assert_int_equal(weir_grpc_percent("abc\n", out, 5), 3);
    assert_int_equal(weir_grpc_percent("abc\n", out, 6), 6);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_rig, close_rig)
    const struct CMUnitTest tests[] = {
        CASE(a_message_goes_there_and_back),
        CASE(an_empty_message_is_a_message),
        CASE(what_is_cut_short_or_too_long_is_internal),
        CASE(compression_is_not_implemented_unless_it_is_none),
        CASE(unknown_methods_are_not_implemented),
        CASE(what_is_no_grpc_is_refused_by_http),
        CASE(a_length_beyond_the_maximum_is_refused_before_it_comes),
        CASE(a_deadline_counts_from_the_headers),
        cmocka_unit_test(timeouts_are_read_as_grpc_writes_them),
        cmocka_unit_test(texts_are_percent_encoded_and_cut_between_letters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
