/* redis_link_wait.c - whether replicas know what their master has acknowledged (WAIT).
 *
 *     one turn's write:   call   call   call   WAIT        for all that came before on the line
 *                          |      |      |      |
 *     replies:           done() done() done()   +--> on_replicated(number, yes or no)
 *
 * While Redis waits it answers nothing else on this connection.  So there is one WAIT at a time,
 * and it takes a part of the deadline at most.  A server whose replicas did not acknowledge in time
 * is doubted: no call gets a number then, and once a second a WAIT behind whatever is sent finds
 * out whether they are back.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "serve/redis_link_internal.h"

#include <stdio.h>

bool weir_redis_link_replicates(const struct weir_redis_link *link, struct weir_str key)
{
    const struct weir_redis_server *server = weir_redis_server_of(link, key);
    return server == NULL || !server->is_doubted;
}

/* ---- asking ---- */

static uint64_t wanted(struct weir_redis_line *line)
{
    if (line->wanted == 0)
        line->wanted = ++line->server->link->waits;
    return line->wanted;
}

uint64_t weir_redis_wait_for(struct weir_redis_line *line, const struct weir_redis_ask *ask)
{
    const struct weir_redis_server *server = line->server;
    bool is_wanted = server->link->replicas > 0 && ask->needs_replicas && !server->is_doubted;
    return is_wanted ? wanted(line) : 0;
}

static void tell(struct weir_redis_link *link, uint64_t number, bool is_replicated)
{
    if (number != 0)
        link->on_replicated(link->ctx, number, is_replicated);
}

void weir_redis_wait_put(struct weir_redis_line *line, uint64_t now_ns)
{
    const struct weir_redis_server *server = line->server;
    if (server->is_doubted && now_ns >= server->doubted_ns)
        (void)wanted(line);
    if (line->wanted == 0 || line->waiting != 0)
        return;
    uint64_t number = line->wanted;
    line->wanted = 0;
    if (weir_redis_line_put_wait(line, now_ns))
        line->waiting = number;
    else
        tell(server->link, number, false);
}

/* ---- hearing ---- */

/* why: NULL where there is nothing to doubt. */
static void doubt(struct weir_redis_server *server, const char *why, uint64_t now_ns)
{
    struct weir_log *log = server->link->log;
    bool is_news = server->is_doubted != (why != NULL);
    server->doubted_ns = now_ns + DOUBT_NS;
    server->is_doubted = why != NULL;
    if (log == NULL || !is_news)
        return;
    if (why != NULL)
        WEIR_LOG(log, WEIR_LOG_WARN, "store_unreplicated",
                 WEIR_LOG_TEXT("server", server->address.text), WEIR_LOG_TEXT("reason", why));
    else
        WEIR_LOG(log, WEIR_LOG_INFO, "store_replicated",
                 WEIR_LOG_TEXT("server", server->address.text));
}

/* NULL: enough replicas have acknowledged. */
static const char *complaint_of(const struct weir_redis_line *line,
                                const struct weir_redis_node *node, char room[static WHY_MAX])
{
    struct weir_str words = weir_redis_node_str(line->reader, node);
    if (node->type == WEIR_REDIS_INTEGER && node->number >= (int64_t)line->server->link->replicas)
        return NULL;
    if (node->type == WEIR_REDIS_ERROR)
        snprintf(room, WHY_MAX, "%.*s", WEIR_STR_ARG(words));
    else
        snprintf(room, WHY_MAX, "%lld of %u replicas acknowledge in time", (long long)node->number,
                 (unsigned)line->server->link->replicas);
    return room;
}

void weir_redis_wait_answered(struct weir_redis_line *line, const struct weir_redis_node *node,
                              uint64_t now_ns)
{
    struct weir_redis_link *link = line->server->link;
    uint64_t number = line->waiting;
    char room[WHY_MAX];
    const char *why = complaint_of(line, node, room);
    line->waiting = 0;
    if (why != NULL) /* what was put since is not answered yet, and will find that it has none */
        line->wanted = 0;
    doubt(line->server, why, now_ns);
    tell(link, number, why == NULL);
    if (line->wanted != 0)
        weir_chore_set(link->loop, &link->chore);
}

void weir_redis_wait_end(struct weir_redis_line *line)
{
    uint64_t numbers[] = {line->waiting, line->wanted};
    line->waiting = line->wanted = 0;
    for (int i = 0; i < 2; i++)
        tell(line->server->link, numbers[i], false);
}
