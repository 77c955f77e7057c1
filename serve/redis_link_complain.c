/* redis_link_complain.c - a store that answers, but not with what was asked for.
 *
 * A key that holds somebody else's bytes, a user who may not run what the script runs: such a store
 * is not away, and other calls may go well.  So it is told by itself: at once, and as long as it
 * goes on every ten seconds, with how many calls it was.  One worker says it for all.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "serve/redis_link_internal.h"

#define AGAIN_NS (10000 * NS_PER_MS)
#define FAILING 5 /* complaints in a row: it is not about some keys */

static void say(const struct weir_redis_server *server, struct weir_str key, struct weir_str words)
{
    struct weir_redis_complaints *all = server->link->complaints;
    uint64_t now_ns = weir_redis_now();
    if (all == NULL)
        return;
    /* relaxed: numbers of their own, and one who wins */
    atomic_fetch_add_explicit(&all->calls, 1, memory_order_relaxed);
    uint64_t due_ns = atomic_load_explicit(&all->due_ns, memory_order_relaxed);
    if (now_ns < due_ns ||
        !atomic_compare_exchange_strong_explicit(&all->due_ns, &due_ns, now_ns + AGAIN_NS,
                                                 memory_order_relaxed, memory_order_relaxed))
        return;
    WEIR_LOG(
        all->log, WEIR_LOG_WARN, "store_complains", WEIR_LOG_TEXT("server", server->address.text),
        WEIR_LOG_KEY("key", key), WEIR_LOG_STR("reason", words),
        WEIR_LOG_NUMBER("calls", atomic_exchange_explicit(&all->calls, 0, memory_order_relaxed)));
}

void weir_redis_complain(struct weir_redis_server *server, struct weir_str key,
                         struct weir_str words)
{
    if (server->has_keys && ++server->complaints == FAILING)
        weir_redis_count_add(server->link, WEIR_REDIS_COUNT_SERVERS_FAILING, 1);
    say(server, key, words);
}

void weir_redis_content(struct weir_redis_server *server)
{
    if (server->complaints >= FAILING)
        weir_redis_count_add(server->link, WEIR_REDIS_COUNT_SERVERS_FAILING, -1);
    server->complaints = 0;
}

void weir_redis_link_complain(const struct weir_redis_ask *ask)
{
    weir_redis_complain(ask->server, ask->key, WEIR_STR("what lies there is not weir's"));
}
