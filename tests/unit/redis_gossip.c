/* redis_gossip.c - answers of Redis that are none, or not to this.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "store/redis/gossip.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#define ID "0123456789abcdef"

static int read_reply(const char *bytes, struct weir_redis_gossip_answer *out)
{
    struct weir_redis_reader *reader;
    const struct weir_redis_node *nodes;
    uint32_t count;
    assert_int_equal(weir_redis_reader_new(&reader), 0);
    assert_int_equal(weir_redis_reader_feed(reader, bytes, strlen(bytes)), 0);
    assert_int_equal(weir_redis_reader_next(reader, &nodes, &count), 1);
    int err = weir_redis_gossip_read(reader, nodes, count, out);
    weir_redis_reader_free(reader);
    return err;
}

static void an_answer_is_read(void **state)
{
    (void)state;
    struct weir_redis_gossip_answer answer;
    assert_int_equal(read_reply("*3\r\n:9\r\n*4\r\n$16\r\n" ID
                                "\r\n$2\r\n42\r\n$4\r\nover\r\n$1\r\n"
                                "9\r\n*0\r\n",
                                &answer),
                     0);
    assert_int_equal(answer.over, 9);
    assert_int_equal(answer.now.count, 1);
    assert_int_equal(answer.now.list[0].id, UINT64_C(0x0123456789abcdef));
    assert_int_equal(answer.now.list[0].hits, 42);
    assert_int_equal(answer.before.count, 0);
}

static void what_is_no_answer_is_refused(void **state)
{
    (void)state;
    static const char *const replies[] = {
        "+OK\r\n",
        "*0\r\n",
        "*3\r\n:-1\r\n*0\r\n*0\r\n",
        "*3\r\n+0\r\n*0\r\n*0\r\n",
        "*2\r\n:0\r\n*0\r\n",
        "*3\r\n:0\r\n*1\r\n$4\r\nover\r\n*0\r\n",
        "*3\r\n:0\r\n$1\r\na\r\n*0\r\n",
        "*3\r\n:0\r\n*0\r\n$-1\r\n",
        "*3\r\n:0\r\n*2\r\n$2\r\nid\r\n$1\r\n1\r\n*0\r\n",
        "*3\r\n:0\r\n*2\r\n$16\r\n0123456789abcdeg\r\n$1\r\n1\r\n*0\r\n",
        "*3\r\n:0\r\n*2\r\n$16\r\n" ID "\r\n$0\r\n\r\n*0\r\n",
        "*3\r\n:0\r\n*2\r\n$16\r\n" ID "\r\n$2\r\n-1\r\n*0\r\n",
        "*3\r\n:0\r\n*2\r\n$16\r\n" ID "\r\n$1\r\na\r\n*0\r\n",
        "*3\r\n:0\r\n*2\r\n$16\r\n" ID "\r\n$20\r\n99999999999999999999\r\n*0\r\n",
        "*3\r\n:0\r\n*2\r\n$16\r\n" ID "\r\n$15\r\n281474976710656\r\n*0\r\n", /* 2^48 */
    };
    for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
        struct weir_redis_gossip_answer answer;
        if (read_reply(replies[i], &answer) != WEIR_ERR_STORE)
            fail_msg("taken for an answer: %s", replies[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_is_read),
        cmocka_unit_test(what_is_no_answer_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
