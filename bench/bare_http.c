/* bare_http.c - what an HTTP/1.1 answer costs before anything is decided: http-parser and libuv.
 *
 *     bare_http PORT
 *
 * The floor that /check is measured against: every request is parsed, and answered with the headers
 * that weir sends; one read and one write for each turn of a connection.  It believes everything
 * and bounds nothing.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <http_parser.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

static const char answer[] = "HTTP/1.1 200 OK\r\n"
                             "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
                             "Content-Length: 0\r\n"
                             "X-Ratelimit-Limit: 1000000000\r\n"
                             "X-Ratelimit-Remaining: 999999999\r\n"
                             "\r\n";
#define ANSWER_LEN (sizeof(answer) - 1)
#define OUT_MAX (1u << 20)

struct conn {
    uv_tcp_t tcp;
    http_parser parser;
    char *out;
    size_t len;
};

static char input[65536];

static int on_word(http_parser *parser, const char *at, size_t len)
{
    (void)parser, (void)at, (void)len; /* where the words are is known, and that is what it costs */
    return 0;
}

static int on_end(http_parser *parser)
{
    struct conn *conn = parser->data;
    if (conn->len + ANSWER_LEN <= OUT_MAX) {
        memcpy(conn->out + conn->len, answer, ANSWER_LEN);
        conn->len += ANSWER_LEN;
    }
    return 0;
}

static const http_parser_settings settings = {
    .on_url = on_word,
    .on_header_field = on_word,
    .on_header_value = on_word,
    .on_message_complete = on_end,
};

static void on_closed(uv_handle_t *handle)
{
    struct conn *conn = (struct conn *)handle;
    free(conn->out);
    free(conn);
}

static void on_alloc(uv_handle_t *handle, size_t want, uv_buf_t *buf)
{
    (void)handle, (void)want;
    *buf = uv_buf_init(input, sizeof(input));
}

static void on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *buf)
{
    struct conn *conn = (struct conn *)stream;
    conn->len = 0;
    if (got < 0 ||
        http_parser_execute(&conn->parser, &settings, buf->base, (size_t)got) != (size_t)got) {
        uv_close((uv_handle_t *)stream, on_closed);
        return;
    }
    uv_buf_t out = uv_buf_init(conn->out, (unsigned)conn->len);
    if (conn->len > 0 && uv_try_write(stream, &out, 1) != (int)conn->len)
        uv_close((uv_handle_t *)stream, on_closed);
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct conn *conn = calloc(1, sizeof(*conn));
    if (status != 0 || !conn)
        abort();
    conn->out = malloc(OUT_MAX);
    http_parser_init(&conn->parser, HTTP_REQUEST);
    conn->parser.data = conn;
    uv_tcp_init(listener->loop, &conn->tcp);
    if (uv_accept(listener, (uv_stream_t *)&conn->tcp) != 0)
        abort();
    uv_tcp_nodelay(&conn->tcp, 1);
    uv_read_start((uv_stream_t *)&conn->tcp, on_alloc, on_read);
}

int main(int argc, char **argv)
{
    uv_tcp_t listener;
    struct sockaddr_in address;
    if (argc != 2) {
        fprintf(stderr, "usage: %s PORT\n", argv[0]);
        return 2;
    }
    uv_ip4_addr("127.0.0.1", (int)strtol(argv[1], NULL, 10), &address);
    uv_tcp_init(uv_default_loop(), &listener);
    if (uv_tcp_bind(&listener, (const struct sockaddr *)&address, 0) != 0 ||
        uv_listen((uv_stream_t *)&listener, 511, on_connection) != 0) {
        fprintf(stderr, "%s: cannot listen on port %s\n", argv[0], argv[1]);
        return 1;
    }
    return uv_run(uv_default_loop(), UV_RUN_DEFAULT);
}
