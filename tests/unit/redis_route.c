/* Which server has a key: maps of a Cluster, shards, and what Sentinels say.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "store/redis/route.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct weir_redis_map map;
static const struct weir_redis_address asked = {.text = "10.0.0.9:7000"};

/* One reply of these bytes, to one of the two that read it. */
static int read_reply(const char *bytes, struct weir_redis_address *master)
{
    struct weir_redis_reader *reader;
    const struct weir_redis_node *nodes;
    uint32_t count;
    assert_int_equal(weir_redis_reader_new(&reader), 0);
    assert_int_equal(weir_redis_reader_feed(reader, bytes, strlen(bytes)), 0);
    assert_int_equal(weir_redis_reader_next(reader, &nodes, &count), 1);
    int err = master != NULL ? weir_redis_master_read(master, reader, nodes, count, &asked)
                             : weir_redis_map_read(&map, reader, nodes, count, &asked);
    weir_redis_reader_free(reader);
    return err;
}

static int read_map(const char *bytes)
{
    return read_reply(bytes, NULL);
}

/* As Redis 7 says it: host, port, id, and what else is known of the host. */
#define SERVER(host, port) "*4\r\n" host ":" port "\r\n$2\r\nid\r\n*2\r\n$1\r\nh\r\n$1\r\nn\r\n"
#define HOST(digits, text) "$" digits "\r\n" text "\r\n"

static void a_map_is_read(void **state)
{
    (void)state;
    assert_int_equal(
        read_map("*3\r\n"
                 "*4\r\n:0\r\n:5460\r\n" SERVER(HOST("8", "10.0.0.1"), "7000")
                     SERVER(HOST("8", "10.0.0.2"), "7001") "*3\r\n:5461\r\n:10921\r\n" SERVER(
                         HOST("3", "::1"), "7000") "*3\r\n:10923\r\n:16383\r\n" SERVER("$-1\r\n",
                                                                                       "7002")),
        0);
    assert_int_equal(map.server_count, 4);
    assert_string_equal(map.servers[map.owner[0]].text, "10.0.0.1:7000");
    assert_string_equal(map.servers[map.owner[5460]].text, "10.0.0.1:7000");
    assert_string_equal(map.servers[map.owner[5461]].text, "[::1]:7000");
    assert_int_equal(map.owner[10922], WEIR_REDIS_NOBODY);
    assert_int_equal(map.unserved, 1);
    assert_string_equal(map.servers[map.owner[16383]].text, "10.0.0.9:7002"); /* as who said so */
    assert_string_equal(map.servers[1].text, "10.0.0.2:7001");
    assert_true(map.has_slots[0] && !map.has_slots[1] && map.has_slots[2] && map.has_slots[3]);
    assert_int_equal(read_map("*0\r\n"), 0);
    assert_int_equal(map.unserved, WEIR_REDIS_SLOTS);
}

static void what_is_no_map_is_refused(void **state)
{
    static const char *const wrong[] = {
        "+OK\r\n",
        "*1\r\n:1\r\n",
        "*1\r\n*2\r\n:0\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:16384\r\n" SERVER(HOST("1", "a"), "1"),
        "*1\r\n*3\r\n:-1\r\n:3\r\n" SERVER(HOST("1", "a"), "1"),
        "*1\r\n*3\r\n:0\r\n:3\r\n" SERVER(HOST("1", "a"), "65536"),
        "*1\r\n*3\r\n:0\r\n:3\r\n" SERVER(HOST("1", "a"), "0"),
        "*1\r\n*3\r\n:0\r\n:3\r\n*1\r\n$1\r\na\r\n",
        "*1\r\n*3\r\n:0\r\n:3\r\n*2\r\n*0\r\n:1\r\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(read_map(wrong[i]), WEIR_ERR_STORE);
}

static void more_servers_than_the_maximum_are_refused(void **state)
{
    static char bytes[WEIR_REDIS_SERVERS_MAX * 80 + 100];
    (void)state;
    for (int count = WEIR_REDIS_SERVERS_MAX; count <= WEIR_REDIS_SERVERS_MAX + 1; count++) {
        int len = snprintf(bytes, sizeof(bytes), "*%d\r\n", count);
        for (int i = 0; i < count; i++)
            len += snprintf(bytes + len, sizeof(bytes) - (size_t)len,
                            "*3\r\n:%d\r\n:%d\r\n*2\r\n$1\r\na\r\n:%d\r\n", i, i, i + 1);
        assert_int_equal(read_map(bytes), count > WEIR_REDIS_SERVERS_MAX ? WEIR_ERR_STORE : 0);
    }
}

static void addresses_are_as_the_network_takes_them(void **state)
{
    struct weir_redis_address address;
    (void)state;
    assert_true(weir_redis_address_read(&address, WEIR_STR("10.0.0.1:6381"), &asked));
    assert_string_equal(address.text, "10.0.0.1:6381");
    assert_true(weir_redis_address_read(&address, WEIR_STR("2001:db8::1:6381"), &asked));
    assert_string_equal(address.text, "[2001:db8::1]:6381");
    assert_true(weir_redis_address_read(&address, WEIR_STR(":6381"), &asked));
    assert_string_equal(address.text, "10.0.0.9:6381");
    const struct weir_redis_address six = {.text = "[::1]:1"};
    assert_true(weir_redis_address_read(&address, WEIR_STR(":2"), &six));
    assert_string_equal(address.text, "[::1]:2");
    assert_true(weir_redis_address_make(&address, WEIR_STR("/a/socket"), 0));
    assert_string_equal(address.text, "unix:/a/socket");
    assert_false(weir_redis_address_read(&address, WEIR_STR("10.0.0.1"), &asked));
    assert_false(weir_redis_address_read(&address, WEIR_STR("10.0.0.1:"), &asked));
    assert_false(weir_redis_address_read(&address, WEIR_STR("10.0.0.1:65536"), &asked));
    assert_false(weir_redis_address_read(&address, WEIR_STR("10.0.0.1:63x"), &asked));
    assert_false(weir_redis_address_read(&address, WEIR_STR("a:99999999999999999999"), &asked));
    assert_false(weir_redis_address_read(&address, WEIR_STR(""), &asked));
    char longest[WEIR_REDIS_ADDRESS_LEN];
    memset(longest, 'h', sizeof(longest));
    struct weir_str host = {.ptr = longest, .len = WEIR_REDIS_ADDRESS_LEN - 16};
    assert_true(weir_redis_address_make(&address, host, 65535));
    host.len++;
    assert_false(weir_redis_address_make(&address, host, 65535));
}

static void sentinels_name_the_master(void **state)
{
    struct weir_redis_address address;
    (void)state;
    assert_int_equal(read_reply("*2\r\n$8\r\n10.0.0.1\r\n$4\r\n6379\r\n", &address), 0);
    assert_string_equal(address.text, "10.0.0.1:6379");
    assert_int_equal(read_reply("*-1\r\n", &address), WEIR_ERR_NOT_FOUND);
    assert_int_equal(read_reply("*2\r\n$8\r\n10.0.0.1\r\n:6379\r\n", &address), WEIR_ERR_STORE);
    assert_int_equal(read_reply("*2\r\n$1\r\na\r\n$5\r\n65536\r\n", &address), WEIR_ERR_STORE);
    assert_int_equal(read_reply("+OK\r\n", &address), WEIR_ERR_STORE);
}

#define MANY 20

static void name_servers(struct weir_redis_address servers[static MANY])
{
    for (uint32_t i = 0; i < MANY; i++)
        snprintf(servers[i].text, sizeof(servers[i].text), "redis-%u:6379", (unsigned)i);
}

/* From n to n + 1 servers: whoever moves, moves to the new one, and that gets its share. */
static void a_new_shard_takes_its_part_and_nothing_else_moves(void **state)
{
    static uint16_t before[WEIR_REDIS_SLOTS], after[WEIR_REDIS_SLOTS];
    struct weir_redis_address servers[MANY];
    (void)state;
    name_servers(servers);
    weir_redis_map_shards(before, servers, 1);
    for (uint32_t n = 1; n < MANY; n++) {
        uint32_t moved = 0;
        weir_redis_map_shards(after, servers, n + 1);
        for (uint32_t slot = 0; slot < WEIR_REDIS_SLOTS; slot++) {
            assert_true(after[slot] == before[slot] || after[slot] == n);
            moved += after[slot] == n;
        }
        assert_in_range(moved, WEIR_REDIS_SLOTS / (n + 1) * 8 / 10,
                        WEIR_REDIS_SLOTS / (n + 1) * 12 / 10);
        memcpy(before, after, sizeof(before));
    }
}

static void shards_do_not_depend_on_their_order(void **state)
{
    static uint16_t one[WEIR_REDIS_SLOTS], other[WEIR_REDIS_SLOTS];
    struct weir_redis_address servers[MANY], turned[MANY];
    (void)state;
    name_servers(servers);
    for (uint32_t i = 0; i < MANY; i++)
        turned[i] = servers[(i + 7) % MANY];
    weir_redis_map_shards(one, servers, MANY);
    weir_redis_map_shards(other, turned, MANY);
    for (uint32_t slot = 0; slot < WEIR_REDIS_SLOTS; slot++)
        assert_string_equal(servers[one[slot]].text, turned[other[slot]].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_map_is_read),
        cmocka_unit_test(what_is_no_map_is_refused),
        cmocka_unit_test(more_servers_than_the_maximum_are_refused),
        cmocka_unit_test(addresses_are_as_the_network_takes_them),
        cmocka_unit_test(sentinels_name_the_master),
        cmocka_unit_test(a_new_shard_takes_its_part_and_nothing_else_moves),
        cmocka_unit_test(shards_do_not_depend_on_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
