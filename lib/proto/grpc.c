/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/grpc.h"

#include "base/err.h"
#include "base/str.h"

#include <stdio.h>

#define TEXT_MAX 512 /* bytes of a grpc-message, encoded */
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define FIELD(n, v)                                                                                \
    {                                                                                              \
        {n, sizeof(n) - 1},                                                                        \
        {                                                                                          \
            v, sizeof(v) - 1                                                                       \
        }                                                                                          \
    }

static const struct weir_h2_field head[] = {
    FIELD(":status", "200"),
    FIELD("content-type", "application/grpc"),
};
static const struct weir_h2_field trailers_ok[] = {FIELD("grpc-status", "0")};
static const struct weir_h2_field trailers_unavailable[] = {
    FIELD("grpc-status", "14"),
    FIELD("grpc-message", "the service goes down"),
};

/* ---- what came ---- */

void weir_grpc_begin(struct weir_grpc_call *call)
{
    *call = (struct weir_grpc_call){.deadline_ns = WEIR_GRPC_NO_DEADLINE,
                                    .method = WEIR_GRPC_NO_METHOD};
}

static uint64_t unit_ns(char unit)
{
    switch (unit) {
    case 'H':
        return UINT64_C(3600000000000);
    case 'M':
        return UINT64_C(60000000000);
    case 'S':
        return UINT64_C(1000000000);
    case 'm':
        return UINT64_C(1000000);
    case 'u':
        return UINT64_C(1000);
    case 'n':
        return 1;
    default:
        return 0;
    }
}

uint64_t weir_grpc_timeout(struct weir_str text)
{
    if (text.len < 2 || text.len > 9)
        return WEIR_GRPC_NO_DEADLINE;
    uint64_t number = 0;
    for (size_t i = 0; i < text.len - 1; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return WEIR_GRPC_NO_DEADLINE;
        number = number * 10 + (uint64_t)(text.ptr[i] - '0');
    }
    uint64_t unit = unit_ns(text.ptr[text.len - 1]), ns;
    if (unit == 0 || __builtin_mul_overflow(number, unit, &ns))
        return WEIR_GRPC_NO_DEADLINE;
    return ns;
}

static uint64_t deadline_of(struct weir_str timeout, uint64_t now_ns)
{
    uint64_t ns = weir_grpc_timeout(timeout), deadline_ns;
    return __builtin_add_overflow(now_ns, ns, &deadline_ns) ? WEIR_GRPC_NO_DEADLINE : deadline_ns;
}

static uint32_t method_of(const struct weir_grpc_methods *methods, struct weir_str path)
{
    for (uint32_t i = 0; i < methods->count; i++) {
        if (weir_str_eq(methods->paths[i], path))
            return i;
    }
    return WEIR_GRPC_NO_METHOD;
}

/* application/grpc, with +proto or parameters or without; other codecs are not for us. */
static bool is_grpc_type(struct weir_str type)
{
    const struct weir_str grpc = WEIR_STR("application/grpc"), proto = WEIR_STR("+proto");
    if (!weir_str_starts(type, grpc))
        return false;
    type.ptr += grpc.len;
    type.len -= grpc.len;
    if (weir_str_starts(type, proto)) {
        type.ptr += proto.len;
        type.len -= proto.len;
    }
    return type.len == 0 || type.ptr[0] == ';';
}

/* Names are told apart by their lengths first: most headers are none of ours. */
void weir_grpc_header(struct weir_grpc_call *call, const struct weir_grpc_methods *methods,
                      struct weir_str name, struct weir_str value, uint64_t now_ns)
{
    switch (name.len) {
    case 5:
        if (weir_str_eq(name, WEIR_STR(":path")))
            call->method = method_of(methods, value);
        break;
    case 7:
        if (weir_str_eq(name, WEIR_STR(":method")))
            call->is_post = weir_str_eq(value, WEIR_STR("POST"));
        break;
    case 12:
        if (weir_str_eq(name, WEIR_STR("content-type")))
            call->is_grpc = is_grpc_type(value);
        else if (weir_str_eq(name, WEIR_STR("grpc-timeout")))
            call->deadline_ns = deadline_of(value, now_ns);
        break;
    case 13:
        if (weir_str_eq(name, WEIR_STR("grpc-encoding")))
            call->is_encoded = !weir_str_eq(value, WEIR_STR("identity"));
        break;
    default:
        break;
    }
}

static uint32_t message_len(const struct weir_h2_stream *s)
{
    return (uint32_t)s->body[1] << 24 | (uint32_t)s->body[2] << 16 | (uint32_t)s->body[3] << 8 |
           s->body[4];
}

bool weir_grpc_is_too_large(const struct weir_h2_stream *s)
{
    return s->body_len >= WEIR_GRPC_PREFIX && message_len(s) > WEIR_GRPC_MESSAGE_MAX;
}

static struct weir_grpc_status refusal(enum weir_grpc_code code, const char *text)
{
    return (struct weir_grpc_status){.code = code, .text = text};
}

/* What is wrong with the headers, if anything. */
static struct weir_grpc_status check_head(const struct weir_grpc_call *call,
                                          const struct weir_h2_stream *s, uint32_t *http_status)
{
    *http_status = 200;
    if (s->fault == WEIR_H2_HEADERS_TOO_LARGE)
        return refusal(WEIR_GRPC_RESOURCE_EXHAUSTED, "the headers are too large");
    if (!call->is_post || !call->is_grpc) {
        *http_status = call->is_post ? 415 : 405;
        return refusal(WEIR_GRPC_UNKNOWN, "not a gRPC request");
    }
    if (call->method == WEIR_GRPC_NO_METHOD)
        return refusal(WEIR_GRPC_UNIMPLEMENTED, "unknown method");
    if (s->fault == WEIR_H2_BODY_TOO_LARGE || weir_grpc_is_too_large(s))
        return refusal(WEIR_GRPC_RESOURCE_EXHAUSTED, "the message is larger than 1 MiB");
    if (s->fault == WEIR_H2_BODIES_TOO_LARGE)
        return refusal(WEIR_GRPC_RESOURCE_EXHAUSTED, "too many large messages at once");
    return refusal(WEIR_GRPC_OK, NULL);
}

struct weir_grpc_status weir_grpc_message(const struct weir_grpc_call *call,
                                          const struct weir_h2_stream *s, uint64_t now_ns,
                                          struct weir_str *message, uint32_t *http_status)
{
    struct weir_grpc_status status = check_head(call, s, http_status);
    if (status.code != WEIR_GRPC_OK)
        return status;
    if (now_ns >= call->deadline_ns)
        return refusal(WEIR_GRPC_DEADLINE_EXCEEDED, "the deadline has passed");
    if (s->body_len < WEIR_GRPC_PREFIX || message_len(s) > s->body_len - WEIR_GRPC_PREFIX)
        return refusal(WEIR_GRPC_INTERNAL, "the message is cut short");
    if (message_len(s) < s->body_len - WEIR_GRPC_PREFIX)
        return refusal(WEIR_GRPC_INTERNAL, "more than one message");
    if (s->body[0] == 1 && call->is_encoded)
        return refusal(WEIR_GRPC_UNIMPLEMENTED, "compressed messages are not supported");
    if (s->body[0] != 0)
        return refusal(WEIR_GRPC_INTERNAL, "a flag that gRPC does not know");
    *message =
        (struct weir_str){.ptr = (const char *)s->body + WEIR_GRPC_PREFIX, .len = message_len(s)};
    return status;
}

/* ---- what goes ---- */

uint8_t *weir_grpc_out(struct weir_h2 *h2, struct weir_h2_stream *s, size_t len)
{
    uint8_t *out = weir_h2_out(h2, s, WEIR_GRPC_PREFIX + len);
    if (!out)
        return NULL;
    out[0] = 0;
    out[1] = (uint8_t)(len >> 24);
    out[2] = (uint8_t)(len >> 16);
    out[3] = (uint8_t)(len >> 8);
    out[4] = (uint8_t)len;
    return out + WEIR_GRPC_PREFIX;
}

void weir_grpc_reply(struct weir_h2 *h2, struct weir_h2_stream *s)
{
    weir_h2_end(s, trailers_ok, COUNT(trailers_ok));
    weir_h2_respond(h2, s, head, COUNT(head));
}

void weir_grpc_reply_open(struct weir_h2 *h2, struct weir_h2_stream *s)
{
    weir_h2_respond(h2, s, head, COUNT(head));
}

void weir_grpc_end_unavailable(struct weir_h2 *h2, struct weir_h2_stream *s)
{
    weir_h2_end(s, trailers_unavailable, COUNT(trailers_unavailable));
    weir_h2_resume(h2, s);
}

size_t weir_grpc_percent(const char *text, char *out, size_t room)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t len = 0;
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool is_plain = c >= ' ' && c <= '~' && c != '%';
        if (len + (is_plain ? 1 : 3) > room)
            break;
        if (is_plain) {
            out[len++] = (char)c;
        } else {
            out[len++] = '%';
            out[len++] = digits[c >> 4];
            out[len++] = digits[c & 15];
        }
    }
    return len;
}

void weir_grpc_refuse(struct weir_h2 *h2, struct weir_h2_stream *s, struct weir_grpc_status status)
{
    char number[12], text[TEXT_MAX];
    int number_len = snprintf(number, sizeof(number), "%d", (int)status.code);
    struct weir_h2_field fields[] = {
        head[0],
        head[1],
        {WEIR_STR("grpc-status"), {number, (size_t)number_len}},
        {WEIR_STR("grpc-message"),
         {text, weir_grpc_percent(status.text ? status.text : "", text, sizeof(text))}},
    };
    weir_h2_respond_only(h2, s, fields, COUNT(fields));
}

void weir_grpc_refuse_http(struct weir_h2 *h2, struct weir_h2_stream *s, uint32_t status)
{
    char number[12];
    int number_len = snprintf(number, sizeof(number), "%u", (unsigned)status);
    struct weir_h2_field fields[] = {
        {WEIR_STR(":status"), {number, (size_t)number_len}},
        {WEIR_STR("content-length"), WEIR_STR("0")},
    };
    weir_h2_respond_only(h2, s, fields, COUNT(fields));
}
