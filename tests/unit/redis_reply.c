/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/limit.h"
#include "base/str.h"
#include "store/redis/reply.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct weir_redis_reader *reader;

static int open_reader(void **state)
{
    (void)state;
    return weir_redis_reader_new(&reader);
}

static int close_reader(void **state)
{
    (void)state;
    weir_redis_reader_free(reader);
    return 0;
}

/* The replies in these bytes, as text. */
static const char *heard(const char *bytes, size_t len, size_t piece)
{
    static char text[4096];
    size_t at = 0;
    text[0] = '\0';
    for (size_t from = 0; from < len; from += piece) {
        size_t step = len - from < piece ? len - from : piece;
        const struct weir_redis_node *nodes;
        uint32_t count;
        int got;
        assert_int_equal(weir_redis_reader_feed(reader, bytes + from, step), 0);
        while ((got = weir_redis_reader_next(reader, &nodes, &count)) == 1) {
            for (uint32_t i = 0; i < count; i++) {
                struct weir_str str = weir_redis_node_str(reader, &nodes[i]);
                at += (size_t)snprintf(text + at, sizeof(text) - at, "%c%lld%s%.*s ",
                                       "n$i!*"[nodes[i].type], (long long)nodes[i].number,
                                       str.ptr ? "=" : "", WEIR_STR_ARG(str));
            }
            at += (size_t)snprintf(text + at, sizeof(text) - at, "; ");
        }
        assert_int_equal(got, 0);
    }
    return text;
}

static void replies_are_heard_however_they_are_cut(void **state)
{
    (void)state;
    static const char bytes[] = "+OK\r\n:42\r\n$-1\r\n$3\r\na\r\n\r\n-ERR no\r\n"
                                "*3\r\n$2\r\nhi\r\n*2\r\n:1\r\n:-2\r\n$0\r\n\r\n*0\r\n*-1\r\n";
    for (size_t piece = 1; piece <= sizeof(bytes) - 1; piece++)
        assert_string_equal(heard(bytes, sizeof(bytes) - 1, piece),
                            "$2=OK ; i42 ; n0 ; $3=a\r\n ; !6=ERR no ; "
                            "*3 $2=hi *2 i1 i-2 $0= ; *0 ; n0 ; ");
}

static void what_is_no_reply_ends_it(void **state)
{
    (void)state;
    const struct weir_redis_node *nodes;
    uint32_t count;
    assert_int_equal(weir_redis_reader_feed(reader, "HTTP/1.1 400\r\n", 14), 0);
    assert_int_equal(weir_redis_reader_next(reader, &nodes, &count), WEIR_ERR_STORE);
}

static void replies_have_a_most_of_things(void **state)
{
    (void)state;
    for (uint32_t things = WEIR_REDIS_NODES_MAX - 1; things <= WEIR_REDIS_NODES_MAX; things++) {
        const struct weir_redis_node *nodes;
        uint32_t count;
        char head[32];
        int len = snprintf(head, sizeof(head), "*%u\r\n", things);
        assert_int_equal(weir_redis_reader_feed(reader, head, (size_t)len), 0);
        for (uint32_t i = 0; i < things; i++)
            assert_int_equal(weir_redis_reader_feed(reader, ":1\r\n", 4), 0);
        int got = weir_redis_reader_next(reader, &nodes, &count);
        if (things < WEIR_REDIS_NODES_MAX)
            assert_int_equal(got, 1);
        else
            assert_int_equal(got, WEIR_ERR_TOO_LARGE);
    }
}

static void replies_have_a_most_of_bytes(void **state)
{
    (void)state;
    const struct weir_redis_node *nodes;
    uint32_t count;
    static char bytes[1 << 16];
    char head[32];
    int len = snprintf(head, sizeof(head), "$%u\r\n", 2 * WEIR_REDIS_UNREAD_MAX);
    assert_int_equal(weir_redis_reader_feed(reader, head, (size_t)len), 0);
    size_t fed = 0;
    int err = 0;
    while (err == 0 && fed < 2 * WEIR_REDIS_UNREAD_MAX) {
        assert_int_equal(weir_redis_reader_next(reader, &nodes, &count), 0);
        err = weir_redis_reader_feed(reader, bytes, sizeof(bytes));
        fed += sizeof(bytes);
    }
    assert_int_equal(err, WEIR_ERR_TOO_LARGE);
    assert_true(fed <= WEIR_REDIS_UNREAD_MAX + sizeof(bytes));
}

static void redirections_name_slot_and_node(void **state)
{
    (void)state;
    struct weir_redis_redirect to;
    assert_int_equal(weir_redis_redirect_read(WEIR_STR("MOVED 3999 127.0.0.1:6381"), &to), 0);
    assert_true(to.slot == 3999 && !to.is_ask);
    assert_true(weir_str_eq(to.address, WEIR_STR("127.0.0.1:6381")));
    assert_int_equal(weir_redis_redirect_read(WEIR_STR("ASK 16383 [::1]:1"), &to), 0);
    assert_true(to.slot == 16383 && to.is_ask);
    static const char *const bad[] = {"MOVED 16384 h:1",
                                      "MOVED ",
                                      "MOVED 1",
                                      "MOVED 1 ",
                                      "MOVED x h:1",
                                      "ERR",
                                      "",
                                      "ASK -1 h:1",
                                      "MOVED 99999999999999999999 h:1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(weir_redis_redirect_read(weir_str_of(bad[i]), &to), WEIR_ERR_INVALID);
}

static void errors_are_known_by_their_first_words(void **state)
{
    (void)state;
    assert_int_equal(weir_redis_error_of(WEIR_STR("LOADING Redis is loading")),
                     WEIR_REDIS_ERROR_LOADING);
    assert_int_equal(weir_redis_error_of(WEIR_STR("MISCONF Redis is configured")),
                     WEIR_REDIS_ERROR_DISK);
    assert_int_equal(weir_redis_error_of(WEIR_STR("TRYAGAIN Multiple keys")),
                     WEIR_REDIS_ERROR_TRY_AGAIN);
    assert_int_equal(weir_redis_error_of(WEIR_STR("what?")), WEIR_REDIS_ERROR_OTHER);
    assert_int_equal(weir_redis_error_of(WEIR_STR("")), WEIR_REDIS_ERROR_OTHER);
    assert_int_equal(weir_redis_cure_of(WEIR_REDIS_ERROR_OTHER), WEIR_REDIS_CURE_GIVE_UP);
}

/* ---- the answer to a call ---- */

static struct weir_limit a_limit(void)
{
    char why[64];
    struct weir_limit limit;
    struct weir_limit_spec spec = {.algorithm = WEIR_FIXED_WINDOW,
                                   .requests_per_unit = 5,
                                   .burst = 5,
                                   .window_s = 60,
                                   .buckets = 1};
    assert_int_equal(weir_limit_init(&limit, &spec, why, sizeof(why)), 0);
    return limit;
}

/* A reply of one counter: the time 60.000000001 s, this byte, and what was stored. */
static int answer(uint8_t said, const char *stored, size_t stored_len, size_t head_len,
                  struct weir_redis_counter *counter, uint64_t *now_ns)
{
    char bytes[256];
    const uint8_t head[11] = {60, 0, 0, 0, 0, 1, 0, 0, 0, said, 0};
    const struct weir_redis_node *nodes;
    uint32_t count;
    int len = snprintf(bytes, sizeof(bytes), "*2\r\n$%zu\r\n", head_len);
    memcpy(bytes + len, head, head_len);
    len += (int)head_len;
    len += snprintf(bytes + len, sizeof(bytes) - (size_t)len, "\r\n$%zu\r\n", stored_len);
    memcpy(bytes + len, stored, stored_len);
    len += (int)stored_len;
    memcpy(bytes + len, "\r\n", 2);
    assert_int_equal(weir_redis_reader_feed(reader, bytes, (size_t)len + 2), 0);
    assert_int_equal(weir_redis_reader_next(reader, &nodes, &count), 1);
    return weir_redis_answer_read(reader, nodes, count, counter, 1, now_ns);
}

static void an_answer_must_be_one_to_the_question(void **state)
{
    (void)state;
    struct weir_limit limit = a_limit();
    struct weir_redis_counter c = {.limit = &limit, .hits = 1, .ends = true};
    uint64_t now_ns = 0;
    const char used[11] = {1, 0, 0, 0, 0, 4}; /* window 1, of which 4 are used */
    const char full[11] = {1, 0, 0, 0, 0, 5};
    assert_int_equal(answer(3, used, sizeof(used), 10, &c, &now_ns), 0);
    assert_true(c.is_charged && c.verdict.allowed && c.verdict.remaining == 0);
    assert_int_equal(now_ns, UINT64_C(60000000001));
    assert_int_equal(c.verdict.reset_after_ns, UINT64_C(59999999999));
    assert_int_equal(answer(0, full, sizeof(full), 10, &c, &now_ns), 0);
    assert_true(!c.is_charged && !c.verdict.allowed);
    /* The script thought otherwise than we do; a state too short; too few or too many counters. */
    assert_int_equal(answer(3, full, sizeof(full), 10, &c, &now_ns), WEIR_ERR_STORE);
    assert_int_equal(answer(0, used, sizeof(used), 10, &c, &now_ns), WEIR_ERR_STORE);
    assert_int_equal(answer(3, used, sizeof(used) - 1, 10, &c, &now_ns), WEIR_ERR_STORE);
    assert_int_equal(answer(3, used, sizeof(used), 9, &c, &now_ns), WEIR_ERR_STORE);
    assert_int_equal(answer(3, used, sizeof(used), 11, &c, &now_ns), WEIR_ERR_STORE);
}

static void a_call_is_written_as_it_should_be(void **state)
{
    (void)state;
    struct weir_limit limit = a_limit();
    struct weir_redis_counter c = {.key = WEIR_STR("k"), .limit = &limit, .hits = 2, .ends = true};
    struct weir_redis_call call = {.counters = &c, .count = 1};
    struct weir_buf buf;
    weir_buf_init(&buf, 4096);
    weir_redis_put_call(&buf, WEIR_REDIS_EVALSHA, &call);
    static const char start[] = "*6\r\n$7\r\nEVALSHA\r\n$40\r\n";
    static const char end[] = "\r\n$1\r\n1\r\n$1\r\nk\r\n$1\r\n\0\r\n$19\r\n"
                              "\1\0\0\1\0\2\0\0\0\0\0\5\0\0\0\74\0\0\0\r\n";
    assert_int_equal(buf.len, sizeof(start) - 1 + 40 + sizeof(end) - 1);
    assert_memory_equal(buf.ptr, start, sizeof(start) - 1);
    assert_memory_equal(buf.ptr + sizeof(start) - 1 + 40, end, sizeof(end) - 1);
    size_t whole = buf.len;
    weir_buf_fini(&buf);
    weir_buf_init(&buf, whole - 1);
    weir_redis_put_call(&buf, WEIR_REDIS_EVALSHA, &call);
    assert_true(buf.has_failed);
    weir_buf_fini(&buf);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_reader, close_reader)
    const struct CMUnitTest tests[] = {
        TEST(replies_are_heard_however_they_are_cut), TEST(what_is_no_reply_ends_it),
        TEST(replies_have_a_most_of_things),          TEST(replies_have_a_most_of_bytes),
        TEST(redirections_name_slot_and_node),        TEST(errors_are_known_by_their_first_words),
        TEST(an_answer_must_be_one_to_the_question),  TEST(a_call_is_written_as_it_should_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
