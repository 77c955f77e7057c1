/* SPDX-License-Identifier: Apache-2.0 */
#include "wire.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static size_t put(uint8_t *to, const char *text)
{
    size_t len = strlen(text);
    memcpy(to, text, len);
    return len;
}

static size_t no_hello(uint8_t *to)
{
    (void)to;
    return 0;
}

/* ---- HTTP and RESP: lines ---- */

/* What a line of an answer means: true where nothing follows that is a line. */
typedef bool read_line_fn(struct wire *wire);

static void end_answer(struct wire *wire)
{
    wire->lines = 0;
    wire->body_len = 0;
    wire->answer(wire, wire->answered, wire->verdict);
}

static void read_lines(struct wire *wire, const uint8_t *bytes, size_t len, read_line_fn *read_line)
{
    for (size_t i = 0; i < len; i++) {
        if (wire->skip > 0) {
            size_t step = wire->skip < len - i ? wire->skip : len - i;
            wire->skip -= (uint32_t)step;
            i += step - 1;
            if (wire->skip == 0)
                end_answer(wire);
            continue;
        }
        if (bytes[i] != '\n') {
            if (wire->line_len < WIRE_LINE_MAX - 1)
                wire->line[wire->line_len++] = (char)bytes[i];
            continue;
        }
        wire->line[wire->line_len] = '\0';
        bool is_last = read_line(wire);
        wire->line_len = 0;
        wire->lines++;
        if (is_last && wire->body_len == 0)
            end_answer(wire);
        else if (is_last)
            wire->skip = wire->body_len;
    }
}

static bool read_http_line(struct wire *wire)
{
    static const char length[] = "content-length:";
    if (wire->lines == 0) {
        long status = wire->line_len > 9 ? strtol(wire->line + 9, NULL, 10) : 0;
        wire->verdict = status == 200 ? WIRE_OK : status == 429 ? WIRE_OVER : WIRE_ERROR;
    } else if (strncasecmp(wire->line, length, sizeof(length) - 1) == 0) {
        wire->body_len = (uint32_t)strtoul(wire->line + sizeof(length) - 1, NULL, 10);
    }
    return wire->line[0] == '\r';
}

static void http_read(struct wire *wire, const uint8_t *bytes, size_t len)
{
    read_lines(wire, bytes, len, read_http_line);
}

static size_t check_ask(uint8_t *to, uint32_t number, const struct wire_question *question)
{
    (void)number;
    size_t len = put(to, "GET /check HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: ");
    len += put(to + len, question->entries[0].value);
    return len + put(to + len, "\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Proto: https\r\n"
                               "X-Forwarded-Host: api.example.com\r\n"
                               "X-Forwarded-Uri: /api/v1/items/4711?page=2\r\n\r\n");
}

static size_t json_ask(uint8_t *to, uint32_t number, const struct wire_question *question)
{
    char body[WIRE_QUESTION_MAX / 2], head[128];
    size_t len = 0;
    (void)number;
    len += put((uint8_t *)body + len, "{\"domain\":\"");
    len += put((uint8_t *)body + len, question->domain);
    len += put((uint8_t *)body + len, "\",\"descriptors\":[{\"entries\":[");
    for (uint32_t i = 0; i < question->entry_count; i++)
        len +=
            (size_t)snprintf(body + len, sizeof(body) - len, "%s{\"key\":\"%s\",\"value\":\"%s\"}",
                             i ? "," : "", question->entries[i].key, question->entries[i].value);
    len +=
        (size_t)snprintf(body + len, sizeof(body) - len, "]}],\"hitsAddend\":%u}", question->hits);
    snprintf(head, sizeof(head), "POST /json HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n",
             len);
    size_t at = put(to, head);
    memcpy(to + at, body, len);
    return at + len;
}

static size_t put_bulk(uint8_t *to, const char *text)
{
    char head[32];
    snprintf(head, sizeof(head), "$%zu\r\n", strlen(text));
    size_t len = put(to, head);
    len += put(to + len, text);
    return len + put(to + len, "\r\n");
}

static size_t resp_ask(uint8_t *to, uint32_t number, const struct wire_question *question)
{
    char hits[16];
    bool is_one = question->hits == 1;
    (void)number;
    size_t len = put(to, is_one ? "*5\r\n" : "*6\r\n");
    len += put_bulk(to + len, "CL.THROTTLE");
    len += put_bulk(to + len, question->entries[0].value);
    for (size_t i = 0; i < 3; i++)
        len += put_bulk(to + len, question->throttle[i]);
    snprintf(hits, sizeof(hits), "%u", question->hits);
    return is_one ? len : len + put_bulk(to + len, hits);
}

/* Six lines: how many numbers follow, and five of them, of which the first is 1 for a refusal. */
static bool read_resp_line(struct wire *wire)
{
    if (wire->lines == 0)
        wire->verdict = WIRE_ERROR;
    else if (wire->lines == 1)
        wire->verdict = wire->line[1] == '0' ? WIRE_OK : WIRE_OVER;
    return wire->lines == 0 ? wire->line[0] == '-' : wire->lines == 5;
}

static void resp_read(struct wire *wire, const uint8_t *bytes, size_t len)
{
    read_lines(wire, bytes, len, read_resp_line);
}

/* ---- gRPC: frames, as RFC 9113 and RFC 7541 have them ---- */

enum { FRAME_DATA, FRAME_HEADERS, FRAME_RST = 3, FRAME_SETTINGS, FRAME_WINDOW = 8 };
enum { FLAG_END_STREAM = 1, FLAG_ACK = 1, FLAG_END_HEADERS = 4 };

static size_t put_frame(uint8_t *to, size_t len, int type, int flags, uint32_t stream)
{
    uint8_t head[9] = {0, (uint8_t)(len >> 8), (uint8_t)len, (uint8_t)type, (uint8_t)flags};
    uint32_t id = htonl(stream);
    memcpy(head + 5, &id, 4);
    memcpy(to, head, sizeof(head));
    return sizeof(head);
}

static size_t grpc_hello(uint8_t *to)
{
    static const uint8_t window[] = {0x7f, 0, 0, 0};
    size_t len = put(to, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    len += put_frame(to + len, 0, FRAME_SETTINGS, 0, 0);
    len += put_frame(to + len, sizeof(window), FRAME_WINDOW, 0, 0);
    memcpy(to + len, window, sizeof(window)); /* enough for all answers: none is asked for again */
    return len + sizeof(window);
}

static size_t put_word(uint8_t *to, const char *word)
{
    to[0] = (uint8_t)strlen(word); /* below 127, not Huffman-coded */
    return 1 + put(to + 1, word);
}

/* A field of a message whose length is below 128: tag, length, bytes. */
static size_t put_field(uint8_t *to, unsigned tag, const void *bytes, size_t len)
{
    to[0] = (uint8_t)(tag << 3 | 2);
    to[1] = (uint8_t)len;
    memcpy(to + 2, bytes, len);
    return len + 2;
}

static size_t put_message(uint8_t *to, const struct wire_question *question)
{
    uint8_t descriptor[WIRE_QUESTION_MAX / 4];
    size_t descriptor_len = 0, len = 5;
    for (uint32_t i = 0; i < question->entry_count; i++) {
        const char *key = question->entries[i].key, *value = question->entries[i].value;
        uint8_t entry[128];
        size_t entry_len = put_field(entry, 1, key, strlen(key));
        entry_len += put_field(entry + entry_len, 2, value, strlen(value));
        descriptor_len += put_field(descriptor + descriptor_len, 1, entry, entry_len);
    }
    len += put_field(to + len, 1, question->domain, strlen(question->domain));
    len += put_field(to + len, 2, descriptor, descriptor_len);
    if (question->hits != 1) {
        uint32_t rest = question->hits;
        to[len++] = 3 << 3;
        for (; rest > 0x7f; rest >>= 7)
            to[len++] = (uint8_t)(rest | 0x80);
        to[len++] = (uint8_t)rest;
    }
    memcpy(to, "\0\0\0\0", 4); /* not compressed, and a length below 256 */
    to[4] = (uint8_t)(len - 5);
    return len;
}

static size_t grpc_ask(uint8_t *to, uint32_t number, const struct wire_question *question)
{
    uint32_t stream = 2 * number + 1;
    uint8_t fields[WIRE_QUESTION_MAX / 4], message[WIRE_QUESTION_MAX / 4];
    size_t len = 0;
    fields[len++] = 0x83; /* :method: POST */
    fields[len++] = 0x86; /* :scheme: http */
    fields[len++] = 0x04; /* :path, as these below: its value follows, and is not to be indexed */
    len += put_word(fields + len, "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
    fields[len++] = 0x01; /* :authority */
    len += put_word(fields + len, "localhost");
    fields[len++] = 0x0f; /* number 15 + 16: content-type */
    fields[len++] = 0x10;
    len += put_word(fields + len, "application/grpc");
    fields[len++] = 0x00; /* a name of its own */
    len += put_word(fields + len, "te");
    len += put_word(fields + len, "trailers");
    size_t message_len = put_message(message, question);
    size_t at = put_frame(to, len, FRAME_HEADERS, FLAG_END_HEADERS, stream);
    memcpy(to + at, fields, len);
    at += len;
    at += put_frame(to + at, message_len, FRAME_DATA, FLAG_END_STREAM, stream);
    memcpy(to + at, message, message_len);
    return at + message_len;
}

/* A frame is whole.  The overall code is the first field of the message; an answer without one is
 * an error, which its trailers name. */
static void read_frame(struct wire *wire)
{
    const uint8_t *head = wire->frame;
    uint32_t id;
    memcpy(&id, head + 5, 4);
    uint32_t number = (ntohl(id) - 1) / 2;
    uint8_t *verdict = &wire->verdicts[number % WIRE_OPEN_MAX];
    if (head[3] == FRAME_DATA && wire->message_len == 7 && wire->message[5] == 0x08)
        *verdict = wire->message[6] == 1 ? WIRE_OK : WIRE_OVER;
    if (head[3] == FRAME_RST ||
        ((head[3] == FRAME_HEADERS || head[3] == FRAME_DATA) && (head[4] & FLAG_END_STREAM)))
        wire->answer(wire, number, (enum wire_verdict) * verdict);
    if (head[3] == FRAME_SETTINGS && !(head[4] & FLAG_ACK)) {
        uint8_t ack[9];
        wire->send(wire, ack, put_frame(ack, 0, FRAME_SETTINGS, FLAG_ACK, 0));
    }
}

static void grpc_read(struct wire *wire, const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        bool is_head = wire->skip == 0;
        size_t step = is_head ? sizeof(wire->frame) - wire->frame_len : wire->skip;
        if (step > len)
            step = len;
        if (is_head) {
            memcpy(wire->frame + wire->frame_len, bytes, step);
            wire->frame_len += (uint32_t)step;
        } else {
            for (size_t i = 0; i < step && wire->message_len < sizeof(wire->message); i++)
                wire->message[wire->message_len++] = bytes[i];
            wire->skip -= (uint32_t)step;
        }
        bytes += step;
        len -= step;
        if (is_head && wire->frame_len == sizeof(wire->frame)) {
            const uint8_t *head = wire->frame;
            wire->skip = (uint32_t)head[0] << 16 | (uint32_t)head[1] << 8 | head[2];
            wire->message_len = 0;
        }
        if (wire->frame_len == sizeof(wire->frame) && wire->skip == 0) {
            wire->frame_len = 0;
            read_frame(wire);
        }
    }
}

/* ---- all of them ---- */

static const struct wire_protocol protocols[] = {
    {"grpc", WIRE_OPEN_MAX, grpc_hello, grpc_ask, grpc_read},
    {"json", 1, no_hello, json_ask, http_read},
    {"check", 1, no_hello, check_ask, http_read},
    {"resp", 1, no_hello, resp_ask, resp_read},
};

const struct wire_protocol *wire_protocol_find(const char *name)
{
    for (size_t i = 0; i < sizeof(protocols) / sizeof(protocols[0]); i++)
        if (strcmp(name, protocols[i].name) == 0)
            return &protocols[i];
    return NULL;
}

size_t wire_ask(struct wire *wire, const struct wire_protocol *protocol, uint8_t *to,
                const struct wire_question *question)
{
    uint32_t number = wire->asked++;
    wire->verdicts[number % WIRE_OPEN_MAX] = WIRE_ERROR;
    return protocol->ask(to, number, question);
}
