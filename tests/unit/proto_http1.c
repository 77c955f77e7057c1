/* HTTP/1 as it is read; heard is a line for each request, refusal or 100.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "heard.h"
#include "proto/http1.h"

#include <stdlib.h>
#include <string.h>

static size_t body_bytes;
static struct weir_http1 *pausing; /* the one that pauses after each request, or NULL */

static bool hear_request(void *ctx, const struct weir_http1_request *request)
{
    (void)ctx;
    note("%.*s %.*s", WEIR_STR_ARG(request->method), WEIR_STR_ARG(request->target));
    for (uint32_t i = 0; i < request->header_count; i++)
        note(" %.*s=%.*s", WEIR_STR_ARG(request->headers[i].name),
             WEIR_STR_ARG(request->headers[i].value));
    if (request->body.len > 0 && request->body.len < 100)
        note(" [%.*s]", WEIR_STR_ARG(request->body));
    body_bytes = request->body.len;
    note("%s%s%s\n", request->is_http10 ? " 1.0" : "", request->is_head ? " head" : "",
         request->keeps_open ? "" : " close");
    if (pausing)
        weir_http1_pause(pausing);
    return true;
}

static void hear_refusal(void *ctx, int status)
{
    (void)ctx;
    note("refused %d\n", status);
}

static void hear_go_on(void *ctx)
{
    (void)ctx;
    note("100\n");
}

static const struct weir_http1_calls calls = {hear_request, hear_refusal, hear_go_on};

static struct weir_http1 *fresh(void)
{
    struct weir_http1 *http = NULL;
    assert_int_equal(weir_http1_new(&http, &calls, NULL), 0);
    heard_len = 0;
    heard[0] = '\0';
    return http;
}

/* In memory of its very length, so that a sanitizer sees a read beyond it. */
static void feed(struct weir_http1 *http, const char *bytes, size_t len)
{
    uint8_t *copy = malloc(len + (len == 0));
    assert_non_null(copy);
    if (len > 0)
        memcpy(copy, bytes, len);
    int err = weir_http1_feed(http, copy, len);
    assert_true(err == 0 || err == WEIR_ERR_INVALID);
    free(copy);
}

static void hears_of(const char *bytes, size_t len, const char *expected)
{
    struct weir_http1 *http = fresh();
    feed(http, bytes, len);
    assert_string_equal(heard, expected);
    weir_http1_free(http);
    for (size_t cut = 0; cut <= len; cut++) { /* in two pieces */
        http = fresh();
        feed(http, bytes, cut);
        feed(http, bytes + cut, len - cut);
        assert_string_equal(heard, expected);
        weir_http1_free(http);
    }
    http = fresh(); /* byte by byte */
    for (size_t i = 0; i < len; i++)
        feed(http, bytes + i, 1);
    assert_string_equal(heard, expected);
    weir_http1_free(http);
}

static void hears(const char *bytes, const char *expected)
{
    hears_of(bytes, strlen(bytes), expected);
}

#define HOST "Host: h\r\n"

static void a_request_is_cut_into_its_words(void **state)
{
    (void)state;
    hears("GET /check?a=b HTTP/1.1\r\nHost: h\r\nX-Empty:\r\nX-Wide: \t a b \t\r\n\r\n",
          "GET /check?a=b Host=h X-Empty= X-Wide=a b\n");
    hears("GET / HTTP/1.1\r\nHost:h\r\nX-High: \xc3\xa4\r\n\r\n", "GET / Host=h X-High=\xc3\xa4\n");
    hears("OPTIONS * HTTP/1.1\r\n" HOST "\r\n", "OPTIONS * Host=h\n");
    hears("GET http://h/x HTTP/1.1\r\n" HOST "\r\n", "GET http://h/x Host=h\n");
}

static void pipelined_requests_come_in_order(void **state)
{
    (void)state;
    hears("GET /1 HTTP/1.1\r\n" HOST "\r\nHEAD /2 HTTP/1.1\r\n" HOST "\r\n"
          "POST /3 HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nab\r\n"
          "GET /4 HTTP/1.1\r\n" HOST "Connection: close\r\n\r\nGET /5 HTTP/1.1\r\n\r\n",
          "GET /1 Host=h\nHEAD /2 Host=h head\nPOST /3 Host=h Content-Length=2 [ab]\n"
          "GET /4 Host=h Connection=close close\n");
}

static void http_1_0_closes_unless_it_says_otherwise(void **state)
{
    (void)state;
    hears("GET / HTTP/1.0\r\n\r\n", "GET / 1.0 close\n");
    hears("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /2 HTTP/1.0\r\n\r\n",
          "GET / Connection=keep-alive 1.0\nGET /2 1.0 close\n");
}

static void bodies_come_by_length_or_in_chunks(void **state)
{
    (void)state;
    hears("POST / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n",
          "POST / Host=h Content-Length=0\n");
    hears("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: Chunked\r\n\r\n"
          "5\r\nhello\r\n06;n=\"v\"\r\n world\r\n0\r\nTrailer: t\r\nOther: o\r\n\r\n"
          "GET /2 HTTP/1.1\r\n" HOST "\r\n",
          "POST / Host=h Transfer-Encoding=Chunked [hello world]\nGET /2 Host=h\n");
    hears("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
          "POST / Host=h Transfer-Encoding=chunked\n");
}

static void who_waits_for_100_is_told_to_go_on(void **state)
{
    (void)state;
    struct weir_http1 *http = fresh();
    const char *head =
        "POST / HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    feed(http, head, strlen(head));
    assert_string_equal(heard, "100\n");
    assert_true(weir_http1_is_amid(http));
    feed(http, "ab", 2);
    assert_non_null(strstr(heard, "[ab]"));
    assert_false(weir_http1_is_amid(http));
    weir_http1_free(http);
}

/* Each is a way in which another server was once made to see another request than its proxy. */
static const char *const smuggled[] = {
    "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "POST / HTTP/1.1\r\n" HOST "Content-Length: 5, 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\n" HOST "Content-Length: +5\r\n\r\nhello",
    "POST / HTTP/1.1\r\n" HOST "Content-Length: -5\r\n\r\nhello",
    "POST / HTTP/1.1\r\n" HOST "Content-Length: 0x5\r\n\r\nhello",
    "POST / HTTP/1.1\r\n" HOST "Content-Length: 5 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\nhello",
    "POST / HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551621\r\n\r\nhello",
    "POST / HTTP/1.1\r\n" HOST "Content-Length : 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\n" HOST "Content-Length\t: 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\n" HOST " Content-Length: 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\n" HOST "X: a\r\n b\r\n\r\n",
    "POST / HTTP/1.1\r\n" HOST "X: a\r\n\tb\r\n\r\n",
    "POST / HTTP/1.1\r\n" HOST "X:\r\n a\r\n\r\n",
    "POST / HTTP/1.1\r\n" HOST "X: a\r\n \r\n\r\n",
    "POST / HTTP/1.1\r\n X: a\r\n" HOST "\r\n",
    "POST / HTTP/1.1\nHost: h\n\n",
    "POST / HTTP/1.1\r\nHost: h\n\r\n",
    "POST / HTTP/1.1\r\nHost: h\r\n\n",
    "POST / HTTP/1.1\r\nHost: h\nX: y\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: h\rX: y\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: h\r\nX: a\rb\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n",
    "POST / HTTP/1.1\r\nX: no host\r\n\r\n",
    "POST / HTTP/1.1\r\n" HOST ": empty name\r\n\r\n",
    "POST / HTTP/1.1\r\n" HOST "no colon\r\n\r\n",
    "POST / HTTP/1.1\r\n" HOST "A B: space\r\n\r\n",
    "POST / HTTP/1.1\r\n" HOST "X: a\x01\r\n\r\n",
    "POST / HTTP/1.1\r\n" HOST "X: a\x7f\r\n\r\n",
    "POST  / HTTP/1.1\r\n" HOST "\r\n",
    "POST /  HTTP/1.1\r\n" HOST "\r\n",
    "POST\t/ HTTP/1.1\r\n" HOST "\r\n",
    "POST / HTTP/1.1 \r\n" HOST "\r\n",
    "POST / HTTP/1.10\r\n" HOST "\r\n",
    "POST / HTTP/01.1\r\n" HOST "\r\n",
    "POST / http/1.1\r\n" HOST "\r\n",
    "POST / a HTTP/1.1\r\n" HOST "\r\n",
    "POST /\x80 HTTP/1.1\r\n" HOST "\r\n",
    "POST /\x7f HTTP/1.1\r\n" HOST "\r\n",
    "post / HTTP/1.1\r\n" HOST "\r\n",
    "PO ST / HTTP/1.1\r\n" HOST "\r\n",
    "HACK / HTTP/1.1\r\n" HOST "\r\n",
    "POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\n" HOST
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "\n\nGET / HTTP/1.1\r\n" HOST "\r\n",
    "\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n",
    "\rGET / HTTP/1.1\r\n" HOST "\r\n",
    " GET / HTTP/1.1\r\n" HOST "\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "\x16\x03\x01\x02",
};

static void smuggling_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(smuggled) / sizeof(smuggled[0]); i++)
        hears(smuggled[i], "refused 400\n");
    hears_of("GET / HTTP/1.1\r\nHost: h\0\r\n\r\n", 29, "refused 400\n");
}

static void other_codings_are_not_known(void **state)
{
    (void)state;
    static const char *const codings[] = {"gzip",        "gzip, chunked", "chunked, chunked",
                                          "chunked;q=1", "identity",      "xchunked",
                                          "\"chunked\"", "chunked,",      "chunke"};
    for (size_t i = 0; i < sizeof(codings) / sizeof(codings[0]); i++) {
        char text[200];
        snprintf(text, sizeof(text), "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: %s\r\n\r\n",
                 codings[i]);
        struct weir_http1 *http = fresh();
        feed(http, text, strlen(text));
        assert_true(strcmp(heard, "refused 501\n") == 0 || strcmp(heard, "refused 400\n") == 0);
        weir_http1_free(http);
    }
    hears("GET /\r\n\r\n", "refused 505\n"); /* HTTP/0.9 */
    hears("GET / HTTP/1.2\r\n" HOST "\r\n", "refused 505\n");
    hears("GET / HTTP/2.0\r\n" HOST "\r\n", "refused 505\n");
}

static void bad_chunks_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "x\r\n",
        "\r\n",
        " 5\r\nhello\r\n",
        "5 \r\nhello\r\n",
        "0x5\r\nhello",
        "-5\r\nhello",
        "+5\r\nhello",
        "5\nhello\r\n",
        "5\rhello",
        "5\r\nhelloX\r",
        "5\r\nhello\n0\r\n",
        "5\r\nhello\rX",
        "000000005\r\n",
        "ffffffffffffffff5\r\n",
        "5;\x01\r\nhello",
        "5;a\nhello",
        "0\r\nX: a\nb\r\n",
        "0\r\n\n",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[200];
        snprintf(text, sizeof(text),
                 "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n%s", bad[i]);
        hears(text, "refused 400\n");
    }
}

/* "GET " target " HTTP/1.1", Host, and a header that makes the head `len` bytes long. */
static char *head_of(size_t target_len, uint32_t headers, size_t len)
{
    char *text = malloc(len + 1);
    assert_non_null(text);
    size_t at = (size_t)snprintf(text, len + 1, "GET /");
    memset(text + at, 'a', target_len - 1);
    at += target_len - 1;
    at += (size_t)snprintf(text + at, len + 1 - at, " HTTP/1.1\r\n" HOST);
    for (uint32_t i = 2; i < headers; i++)
        at += (size_t)snprintf(text + at, len + 1 - at, "X: y\r\n");
    at += (size_t)snprintf(text + at, len + 1 - at, "Z: ");
    assert_true(at + 4 <= len);
    memset(text + at, 'z', len - 4 - at);
    memcpy(text + len - 4, "\r\n\r\n", 5);
    return text;
}

static void hears_head(size_t target_len, uint32_t headers, size_t len, const char *expected)
{
    char *text = head_of(target_len, headers, len);
    for (size_t piece = 1; piece <= len; piece = piece == len      ? len + 1
                                                 : piece * 7 > len ? len
                                                                   : piece * 7) {
        struct weir_http1 *http = fresh();
        for (size_t at = 0; at < len; at += piece)
            feed(http, text + at, len - at < piece ? len - at : piece);
        heard[strlen(expected)] = '\0';
        assert_string_equal(heard, expected);
        weir_http1_free(http);
    }
    free(text);
}

static void heads_have_maxima(void **state)
{
    (void)state;
    hears_head(1, 2, WEIR_HTTP1_HEAD_MAX, "GET / ");
    hears_head(1, 2, WEIR_HTTP1_HEAD_MAX + 1, "refused 431\n");
    hears_head(1, WEIR_HTTP1_HEADERS_MAX, 2000, "GET / ");
    hears_head(1, WEIR_HTTP1_HEADERS_MAX + 1, 2000, "refused 431\n");
    hears_head(WEIR_HTTP1_TARGET_MAX, 2, 9000, "GET /a");
    hears_head(WEIR_HTTP1_TARGET_MAX + 1, 2, 9000, "refused 414\n");
}

static void lengths_have_a_maximum(void **state)
{
    (void)state;
    char head[100];
    static char body[WEIR_HTTP1_BODY_MAX];
    snprintf(head, sizeof(head), "POST / HTTP/1.1\r\n" HOST "Content-Length: %u\r\n\r\n",
             WEIR_HTTP1_BODY_MAX);
    struct weir_http1 *http = fresh();
    feed(http, head, strlen(head));
    feed(http, body, sizeof(body) - 1);
    assert_int_equal(heard_len, 0);
    feed(http, body, 1);
    assert_int_equal(body_bytes, sizeof(body));
    weir_http1_free(http);
    snprintf(head, sizeof(head), "POST / HTTP/1.1\r\n" HOST "Content-Length: %u\r\n\r\n",
             WEIR_HTTP1_BODY_MAX + 1);
    hears(head, "refused 413\n");
    hears("POST / HTTP/1.1\r\n" HOST "Content-Length: 1073741824\r\n\r\n", "refused 413\n");
}

/* Feeds a chunked body of count times `chunk`; says how many it took to be refused. */
static size_t chunks_until_refused(const char *chunk, size_t len, size_t count)
{
    struct weir_http1 *http = fresh();
    const char *head = "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n";
    feed(http, head, strlen(head));
    size_t i = 0;
    while (i < count && heard_len == 0) {
        feed(http, chunk, len);
        i++;
    }
    if (heard_len > 0)
        assert_string_equal(heard, "refused 413\n");
    weir_http1_free(http);
    return i;
}

static void endless_chunks_come_to_an_end(void **state)
{
    (void)state;
    static char whole[7 + 65536 + 2];
    memcpy(whole, "10000\r\n", 7);
    memset(whole + 7, 'a', 65536);
    memcpy(whole + 7 + 65536, "\r\n", 2);
    assert_int_equal(chunks_until_refused(whole, 7 + 65536 + 2, 100), 17); /* 16 are 1 MiB */
    assert_int_equal(chunks_until_refused("1\r\na\r\n", 6, 1000000), WEIR_HTTP1_CODED_MAX / 6 + 1);
    char extension[1000];
    memset(extension, 'x', sizeof(extension));
    struct weir_http1 *http = fresh();
    const char *head = "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1;";
    feed(http, head, strlen(head));
    for (int i = 0; i < 3000 && heard_len == 0; i++)
        feed(http, extension, sizeof(extension));
    assert_string_equal(heard, "refused 413\n");
    weir_http1_free(http);
}

static void nothing_is_heard_after_a_refusal(void **state)
{
    (void)state;
    hears("GARBAGE\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n", "refused 400\n");
}

static void answers_are_whole(void **state)
{
    (void)state;
    char buf[300];
    struct weir_http1_answer answer = {.status = 429,
                                       .content_type = WEIR_STR("text/plain"),
                                       .lines = WEIR_STR("Retry-After: 1\r\n"),
                                       .body = WEIR_STR("no\n"),
                                       .keeps_open = true};
    size_t len = weir_http1_answer_write(buf, sizeof(buf), &answer);
    const char *expected = "HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\n"
                           "Content-Length: 3\r\nRetry-After: 1\r\n\r\nno\n";
    assert_int_equal(len, strlen(expected));
    assert_memory_equal(buf, expected, len);
    assert_int_equal(weir_http1_answer_write(buf, len, &answer), len);
    assert_int_equal(weir_http1_answer_write(buf, len - 1, &answer), 0);
    answer.is_head = true;
    assert_int_equal(weir_http1_answer_write(buf, sizeof(buf), &answer), len - 3);
    answer = (struct weir_http1_answer){.status = 299, .is_http10 = true};
    len = weir_http1_answer_write(buf, sizeof(buf), &answer);
    expected = "HTTP/1.1 299 \r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert_int_equal(len, strlen(expected));
    assert_memory_equal(buf, expected, len);
}

static void dates_are_those_of_the_calendar(void **state)
{
    (void)state;
    static const struct {
        uint64_t unix_s;
        const char *text;
    } dates[] = {
        {0, "Thu, 01 Jan 1970 00:00:00 GMT"},
        {784111777, "Sun, 06 Nov 1994 08:49:37 GMT"},
        {951782399, "Mon, 28 Feb 2000 23:59:59 GMT"},
        {951782400, "Tue, 29 Feb 2000 00:00:00 GMT"},
        {1709251200, "Fri, 01 Mar 2024 00:00:00 GMT"},
        {4107542399, "Sun, 28 Feb 2100 23:59:59 GMT"},
        {4107542400, "Mon, 01 Mar 2100 00:00:00 GMT"},
        {253402300799, "Fri, 31 Dec 9999 23:59:59 GMT"},
    };
    for (size_t i = 0; i < sizeof(dates) / sizeof(dates[0]); i++) {
        char out[WEIR_HTTP1_DATE_LEN];
        weir_http1_date(out, dates[i].unix_s);
        assert_memory_equal(out, dates[i].text, sizeof(out));
    }
}

#define ONE "GET /1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"

static void nothing_is_read_in_a_pause_and_nothing_is_lost(void **state)
{
    (void)state;
    struct weir_http1 *http = pausing = fresh();
    feed(http, ONE ONE ONE "GET /end HTTP/1.0\r\n\r\nbehind", sizeof(ONE ONE ONE) + 26);
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(heard_len, (size_t)i * strlen("GET /1 Connection=keep-alive 1.0\n"));
        assert_int_equal(weir_http1_resume(http), 0);
    }
    assert_non_null(strstr(heard, "GET /end 1.0 close\n"));
    assert_int_equal(weir_http1_resume(http), WEIR_ERR_INVALID); /* it wanted no more */
    weir_http1_free(http);
    pausing = NULL;
}

static void what_comes_in_a_pause_has_a_maximum(void **state)
{
    static uint8_t bytes[WEIR_HTTP1_BEHIND_MAX + 1];
    (void)state;
    for (size_t more = 0; more < 2; more++) {
        struct weir_http1 *http = pausing = fresh();
        feed(http, ONE, sizeof(ONE) - 1);
        assert_int_equal(weir_http1_feed(http, bytes, WEIR_HTTP1_BEHIND_MAX), 0);
        if (more > 0)
            assert_int_equal(weir_http1_feed(http, bytes, 1), WEIR_ERR_INVALID);
        weir_http1_free(http);
    }
    pausing = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_cut_into_its_words),
        cmocka_unit_test(pipelined_requests_come_in_order),
        cmocka_unit_test(http_1_0_closes_unless_it_says_otherwise),
        cmocka_unit_test(bodies_come_by_length_or_in_chunks),
        cmocka_unit_test(who_waits_for_100_is_told_to_go_on),
        cmocka_unit_test(smuggling_is_refused),
        cmocka_unit_test(other_codings_are_not_known),
        cmocka_unit_test(bad_chunks_are_refused),
        cmocka_unit_test(heads_have_maxima),
        cmocka_unit_test(lengths_have_a_maximum),
        cmocka_unit_test(endless_chunks_come_to_an_end),
        cmocka_unit_test(nothing_is_heard_after_a_refusal),
        cmocka_unit_test(nothing_is_read_in_a_pause_and_nothing_is_lost),
        cmocka_unit_test(what_comes_in_a_pause_has_a_maximum),
        cmocka_unit_test(answers_are_whole),
        cmocka_unit_test(dates_are_those_of_the_calendar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
