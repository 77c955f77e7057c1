/* RESP as it is read; heard is a line for each command, its arguments in brackets.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "heard.h"
#include "proto/resp.h"

#include <stdlib.h>
#include <string.h>

/* Fed in a block of its own, which is gone afterwards: a slice that is used too late is seen. */
static enum weir_resp_next feed(struct weir_resp *resp, const char *bytes, size_t len)
{
    struct weir_resp_command command;
    enum weir_resp_next next;
    char *copy = malloc(len + 1);
    assert_non_null(copy);
    memcpy(copy, bytes, len);
    weir_resp_feed(resp, copy, len);
    while ((next = weir_resp_next(resp, &command)) == WEIR_RESP_COMMAND) {
        assert_in_range(command.count, 1, WEIR_RESP_ARGS_MAX);
        for (uint32_t i = 0; i < command.count; i++)
            note("[%.*s]", WEIR_STR_ARG(command.args[i]));
        note("\n");
    }
    if (next == WEIR_RESP_BAD)
        note("! %s\n", resp->fault);
    weir_resp_end(resp);
    free(copy);
    return next;
}

/* Whole, byte by byte, and cut at every place into two and three. */
static void assert_heard(const char *bytes, size_t len, const char *expected)
{
    for (size_t first = 0; first <= len; first++) {
        size_t second = len - (len - first) / 2;
        const size_t ends[] = {first, second, len};
        struct weir_resp resp;
        enum weir_resp_next next = WEIR_RESP_MORE;
        size_t at = 0;
        weir_resp_init(&resp);
        heard_len = 0;
        heard[0] = '\0';
        for (size_t i = 0; i < 3 && next == WEIR_RESP_MORE; i++) {
            next = feed(&resp, bytes + at, ends[i] - at);
            at = ends[i];
        }
        weir_resp_fini(&resp);
        assert_string_equal(heard, expected);
    }
    struct weir_resp resp;
    enum weir_resp_next next = WEIR_RESP_MORE;
    weir_resp_init(&resp);
    heard_len = 0;
    for (size_t i = 0; i < len && next == WEIR_RESP_MORE; i++)
        next = feed(&resp, bytes + i, 1);
    weir_resp_fini(&resp);
    assert_string_equal(heard, expected);
}

#define HEARD(bytes, expected) assert_heard((bytes), sizeof(bytes) - 1, (expected))

static void commands_are_read_however_they_come(void **state)
{
    (void)state;
    HEARD("*1\r\n$4\r\nPING\r\n", "[PING]\n");
    HEARD("*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", "[ECHO][]\n");
    HEARD("*2\r\n$4\r\nECHO\r\n$4\r\n\r\n\r\n\r\nPING\r\n", "[ECHO][\r\n\r\n]\n[PING]\n");
    HEARD("*5\r\n$11\r\nCL.THROTTLE\r\n$4\r\nuser\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n"
          "*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nQUIT\r\n",
          "[CL.THROTTLE][user][15][30][60]\n[PING]\n[QUIT]\n");
}

static void people_type_words(void **state)
{
    (void)state;
    HEARD("PING\r\n", "[PING]\n");
    HEARD("PING\n", "[PING]\n");
    HEARD("  echo \t hi  \r\n\r\n\r\nPING\r\n", "[echo][hi]\n[PING]\n");
    HEARD("echo \"hi\"\r\n", "! quotes or control bytes in an inline request\n");
    HEARD("ec\1ho\r\n", "! quotes or control bytes in an inline request\n");
    HEARD("ping\r\r\n", "! quotes or control bytes in an inline request\n");
}

static void empty_commands_say_nothing(void **state)
{
    (void)state;
    HEARD("*0\r\n*-1\r\n\r\n*1\r\n$4\r\nPING\r\n*0\r\n", "[PING]\n");
}

static void what_is_not_quite_right_is_refused(void **state)
{
    static const char count[] = "! invalid multibulk length\n";
    static const char bulk[] = "! invalid bulk length\n";
    (void)state;
    HEARD("*x\r\n", count);
    HEARD("*\r\n", count);
    HEARD("*-2\r\n", count);
    HEARD("*-\r\n", count);
    HEARD("*+1\r\n", count);
    HEARD("*01\r\n", count);
    HEARD("* 1\r\n", count);
    HEARD("*1 \r\n", count);
    HEARD("*1\rx", count);
    HEARD("*1\n$4\r\nPING\r\n", count);
    HEARD("*1234567890\r\n", count);
    HEARD("*1\r\n$x\r\n", bulk);
    HEARD("*1\r\n$-1\r\n", bulk);
    HEARD("*1\r\n$04\r\nPING\r\n", bulk);
    HEARD("*1\r\n:4\r\n", "! expected '$'\n");
    HEARD("*1\r\n*1\r\n$4\r\nPING\r\n", "! expected '$'\n");
    HEARD("*1\r\n$4\r\nPINGx\r\n", "! expected CRLF behind a bulk string\n");
    HEARD("PING\r\n*x\r\nPING\r\n", "[PING]\n! invalid multibulk length\n");
}

/* "*n" and then n bulk strings of len bytes. */
static char *command_of(uint32_t n, size_t len, size_t *out_len)
{
    char *bytes = malloc(32 + n * (len + 32));
    assert_non_null(bytes);
    size_t at = (size_t)snprintf(bytes, 32, "*%u\r\n", n);
    for (uint32_t i = 0; i < n; i++) {
        at += (size_t)snprintf(bytes + at, 32, "$%zu\r\n", len);
        memset(bytes + at, 'a', len);
        at += len;
        memcpy(bytes + at, "\r\n", 2);
        at += 2;
    }
    *out_len = at;
    return bytes;
}

static enum weir_resp_next next_of(uint32_t n, size_t bulk_len, size_t step)
{
    size_t len;
    char *bytes = command_of(n, bulk_len, &len);
    struct weir_resp resp;
    struct weir_resp_command command;
    enum weir_resp_next next = WEIR_RESP_MORE;
    weir_resp_init(&resp);
    for (size_t at = 0; at < len && next == WEIR_RESP_MORE; at += step) {
        weir_resp_feed(&resp, bytes + at, len - at < step ? len - at : step);
        next = weir_resp_next(&resp, &command);
        if (next == WEIR_RESP_COMMAND)
            assert_int_equal(command.count, n);
        weir_resp_end(&resp);
    }
    weir_resp_fini(&resp);
    free(bytes);
    return next;
}

static void maxima_are_kept_whole_and_in_pieces(void **state)
{
    static const size_t steps[] = {1 << 20, 1000, 7};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        size_t step = steps[i];
        assert_int_equal(next_of(WEIR_RESP_ARGS_MAX, 1, step), WEIR_RESP_COMMAND);
        assert_int_equal(next_of(WEIR_RESP_ARGS_MAX + 1, 1, step), WEIR_RESP_BAD);
        assert_int_equal(next_of(1, WEIR_RESP_BULK_MAX, step), WEIR_RESP_COMMAND);
        assert_int_equal(next_of(1, WEIR_RESP_BULK_MAX + 1, step), WEIR_RESP_BAD);
        assert_int_equal(next_of(4, WEIR_RESP_COMMAND_MAX / 4, step), WEIR_RESP_COMMAND);
        assert_int_equal(next_of(32, WEIR_RESP_COMMAND_MAX / 32, step), WEIR_RESP_COMMAND);
        assert_int_equal(next_of(32, WEIR_RESP_COMMAND_MAX / 32 + 1, step), WEIR_RESP_BAD);
    }
}

static void an_inline_command_has_a_maximum(void **state)
{
    char line[WEIR_RESP_INLINE_MAX + 1];
    (void)state;
    memset(line, 'a', sizeof(line));
    struct weir_resp resp;
    weir_resp_init(&resp);
    heard_len = 0;
    line[WEIR_RESP_INLINE_MAX - 1] = '\n';
    assert_int_equal(feed(&resp, line, WEIR_RESP_INLINE_MAX), WEIR_RESP_MORE);
    assert_int_equal(heard_len, WEIR_RESP_INLINE_MAX - 1 + 3);
    line[WEIR_RESP_INLINE_MAX - 1] = 'a';
    line[WEIR_RESP_INLINE_MAX] = '\n';
    assert_int_equal(feed(&resp, line, sizeof(line)), WEIR_RESP_BAD);
    assert_string_equal(resp.fault, "too big inline request");
    weir_resp_fini(&resp);
}

static void what_is_announced_is_not_waited_for(void **state)
{
    struct weir_resp resp;
    (void)state;
    weir_resp_init(&resp);
    assert_int_equal(feed(&resp, "*2\r\n$8193\r\n", 11), WEIR_RESP_BAD);
    assert_int_equal(resp.side.cap, 0);
    weir_resp_fini(&resp);
}

static void an_idle_connection_keeps_little_memory(void **state)
{
    size_t len;
    char *bytes = command_of(4, WEIR_RESP_BULK_MAX, &len);
    struct weir_resp resp;
    (void)state;
    weir_resp_init(&resp);
    for (int i = 0; i < 3; i++) {
        heard_len = 0;
        assert_int_equal(feed(&resp, bytes, len / 2), WEIR_RESP_MORE);
        assert_true(resp.side.cap > 4096);
        assert_int_equal(feed(&resp, bytes + len / 2, len - len / 2), WEIR_RESP_MORE);
        assert_true(resp.side.cap <= 4096);
    }
    weir_resp_fini(&resp);
    free(bytes);
}

static void replies_are_as_each_version_has_them(void **state)
{
    char buf[512];
    struct weir_text text = weir_text_in(buf, sizeof(buf));
    (void)state;
    weir_resp_put_simple(&text, WEIR_STR("OK"));
    weir_resp_put_int(&text, 0);
    weir_resp_put_int(&text, -1);
    weir_resp_put_int(&text, INT64_MAX);
    weir_resp_put_int(&text, INT64_MIN);
    weir_resp_put_bulk(&text, WEIR_STR("a\r\nb"));
    weir_resp_put_array(&text, 2);
    for (int version = 2; version <= 3; version++) {
        weir_resp_put_null(&text, version);
        weir_resp_put_map(&text, 1, version);
    }
    weir_resp_put_error(&text, WEIR_STR("ERR no"));
    weir_resp_put_error_about(&text, WEIR_STR("ERR unknown '"), WEIR_STR("a\r\n\xff"),
                              WEIR_STR("'"));
    assert_false(text.has_overflowed);
    weir_text_put_char(&text, '\0');
    assert_string_equal(buf, "+OK\r\n:0\r\n:-1\r\n:9223372036854775807\r\n"
                             ":-9223372036854775808\r\n$4\r\na\r\nb\r\n*2\r\n$-1\r\n*2\r\n_\r\n"
                             "%1\r\n-ERR no\r\n-ERR unknown 'a??\?'\r\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_are_read_however_they_come),
        cmocka_unit_test(people_type_words),
        cmocka_unit_test(empty_commands_say_nothing),
        cmocka_unit_test(what_is_not_quite_right_is_refused),
        cmocka_unit_test(maxima_are_kept_whole_and_in_pieces),
        cmocka_unit_test(an_inline_command_has_a_maximum),
        cmocka_unit_test(what_is_announced_is_not_waited_for),
        cmocka_unit_test(an_idle_connection_keeps_little_memory),
        cmocka_unit_test(replies_are_as_each_version_has_them),
    };
    return cmocka_run_group_tests_name("resp", tests, NULL, NULL);
}
