/* ask_nodes.c - who else asks the store: a sorted set in it, of names and when they were last seen.
 *
 * Each process has a name drawn by chance, and says every second that it is there.  Who was not
 * seen for three seconds, or only before the clock went back, is gone.  How many there are counts
 * when the store is away: then each has its share of a limit, by the number that was last known.
 *
 * Who comes first to a store that was away, or has come back empty, finds nobody else there yet.
 * So a number that has fallen is believed once the store has said so for three seconds, in which
 * all that live have spoken.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "serve/ask_internal.h"

#include <stdio.h>
#include <sys/random.h>

#define TICKS 4 /* of a quarter of a second, from one time to the next, once it has worked */
#define FALLS 4 /* times, one after the other, until it is believed that there are fewer */

/* In Redis's own time.  Small enough to be sent each time. */
static const char script[] = "local time = redis.call('TIME') "
                             "local now = time[1] * 1000 + math.floor(time[2] / 1000) "
                             "redis.call('ZADD', KEYS[1], now, ARGV[1]) "
                             "redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 3000) "
                             "redis.call('ZREMRANGEBYSCORE', KEYS[1], now + 3000, '+inf') "
                             "redis.call('PEXPIRE', KEYS[1], 10000) "
                             "return redis.call('ZCARD', KEYS[1])";

static struct weir_ask_nodes *nodes_of(struct weir_redis_ask *call)
{
    return (struct weir_ask_nodes *)call; /* its first member */
}

static void put(struct weir_redis_ask *call, struct weir_buf *out, enum weir_redis_how how)
{
    const struct weir_ask_nodes *nodes = nodes_of(call);
    const struct weir_str args[] = {WEIR_STR("EVAL"), weir_str_of(script), WEIR_STR("1"), call->key,
                                    weir_str_of(nodes->name)};
    (void)how;
    weir_redis_put_command(out, args, sizeof(args) / sizeof(args[0]));
}

static void call_done(struct weir_redis_ask *call, int err, const struct weir_redis_answer *answer)
{
    struct weir_ask_nodes *nodes = nodes_of(call);
    uint32_t falls = nodes->falls;
    nodes->is_asked = false;
    nodes->falls = 0;
    if (err != 0 || answer->node_count != 1 || answer->nodes[0].type != WEIR_REDIS_INTEGER ||
        answer->nodes[0].number < 1 || answer->nodes[0].number > UINT32_MAX)
        return;
    uint32_t number = (uint32_t)answer->nodes[0].number;
    nodes->wait = TICKS - 1;
    if (number < weir_ask_nodes(nodes->asks->shared) && falls + 1 < FALLS)
        nodes->falls = falls + 1;
    else /* relaxed: a number of its own */
        atomic_store_explicit(&nodes->asks->shared->nodes, number, memory_order_relaxed);
}

void weir_ask_nodes_tick(struct weir_ask_nodes *nodes)
{
    if (nodes->is_asked || nodes->wait-- > 0)
        return;
    nodes->wait = 0; /* again, unless it works */
    nodes->is_asked = true;
    weir_redis_link_ask(nodes->asks->link, &nodes->call);
}

int weir_ask_nodes_init(struct weir_ask_nodes *nodes, struct weir_asks *asks)
{
    uint64_t number;
    if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
        return WEIR_ERR_IO;
    nodes->asks = asks;
    snprintf(nodes->name, sizeof(nodes->name), "%016llx", (unsigned long long)number);
    weir_buf_init(&nodes->key, WEIR_DOMAIN_LEN_MAX);
    weir_buf_add(&nodes->key, asks->prefix);
    weir_buf_add(&nodes->key, WEIR_STR("nodes"));
    nodes->call =
        (struct weir_redis_ask){.key = weir_buf_str(&nodes->key), .put = put, .done = call_done};
    return nodes->key.has_failed ? WEIR_ERR_TOO_LARGE : 0;
}

void weir_ask_nodes_fini(struct weir_ask_nodes *nodes)
{
    weir_buf_fini(&nodes->key);
}
