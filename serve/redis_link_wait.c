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

static void doubt(struct weir_redis_server *server, bool is_doubted, uint64_t now_ns)
{
    struct weir_log *log = server->link->log;
    server->doubted_ns = now_ns + DOUBT_NS;
    if (server->is_doubted == is_doubted)
        return;
    server->is_doubted = is_doubted;
    if (log != NULL && is_doubted)
        WEIR_LOG(log, WEIR_LOG_WARN, "store_unreplicated",
                 WEIR_LOG_TEXT("server", server->address.text));
    else if (log != NULL)
        WEIR_LOG(log, WEIR_LOG_INFO, "store_replicated",
                 WEIR_LOG_TEXT("server", server->address.text));
}

void weir_redis_wait_answered(struct weir_redis_line *line, const struct weir_redis_node *node,
                              uint64_t now_ns)
{
    struct weir_redis_link *link = line->server->link;
    uint64_t number = line->waiting;
    bool is_good = node->type == WEIR_REDIS_INTEGER && node->number >= (int64_t)link->replicas;
    line->waiting = 0;
    if (!is_good) /* nor by those that were put since: these are not answered yet, and find none */
        line->wanted = 0;
    doubt(line->server, !is_good, now_ns);
    tell(link, number, is_good);
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
