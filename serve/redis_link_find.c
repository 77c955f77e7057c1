/* redis_link_find.c - asks who has which keys: a Cluster's servers, or Sentinels for the master.
 *
 *     at the start, now and then, and when something is not where it was
 *        |
 *        v
 *     one that answers, or else the next --CLUSTER SLOTS, SENTINEL GET-MASTER-ADDR--> routes
 *
 * One question at a time.  Who has answered is asked again, unless there is trouble all the same:
 * servers may differ for a while about who is in charge.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "serve/redis_link_internal.h"

#include <stdlib.h>

static bool is_needed(const struct weir_redis_link *link)
{
    return link->url.topology == WEIR_REDIS_CLUSTER || link->url.topology == WEIR_REDIS_SENTINEL;
}

static void look_after(struct weir_redis_link *link, uint64_t pause_ns)
{
    weir_alarm_cancel(link->loop, &link->finder.alarm);
    if (!weir_alarm_set(link->loop, &link->finder.alarm, pause_ns))
        weir_panic("the link has its alarms", __FILE__, __LINE__);
}

void weir_redis_find_soon(struct weir_redis_link *link)
{
    struct weir_redis_finder *finder = &link->finder;
    if (!is_needed(link) || finder->ask.is_waiting)
        return;
    uint64_t since_ns = weir_redis_now() - finder->begun_ns;
    uint64_t pause_ns = since_ns < FIND_LEAST_NS ? FIND_LEAST_NS - since_ns : 0;
    if (weir_alarm_left(&finder->alarm) > pause_ns)
        look_after(link, pause_ns);
}

/* ---- whom to ask ---- */

static bool may_be_asked(const struct weir_redis_link *link, const struct weir_redis_server *server)
{
    return server->is_sentinel == (link->url.topology == WEIR_REDIS_SENTINEL);
}

static bool is_good(const struct weir_redis_server *server)
{
    return server->line != NULL && server->line->is_ready && weir_breaker_lets(&server->breaker);
}

/* The one after the last; around. */
static struct weir_redis_server *next_of(const struct weir_redis_link *link,
                                         const struct weir_redis_server *server)
{
    do {
        server = server != NULL && server->next != NULL ? server->next : link->servers;
    } while (!may_be_asked(link, server));
    return (struct weir_redis_server *)(uintptr_t)server;
}

/* The last, if it is well and helped; another that is; or whoever comes next.  There is always one:
 * whoever was asked last is not forgotten. */
static struct weir_redis_server *choose(const struct weir_redis_link *link)
{
    struct weir_redis_server *last = link->finder.asked, *first = next_of(link, last);
    if (last != NULL && is_good(last) && !link->finder.is_doubted)
        return last;
    struct weir_redis_server *server = first;
    do {
        if (is_good(server))
            return server;
        server = next_of(link, server);
    } while (server != first);
    return first;
}

/* ---- the question ---- */

static void put_question(struct weir_redis_ask *ask, struct weir_buf *out, enum weir_redis_how how)
{
    const struct weir_redis_link *link = ask->server->link;
    const struct weir_str slots[] = {WEIR_STR("CLUSTER"), WEIR_STR("SLOTS")};
    const struct weir_str master[] = {WEIR_STR("SENTINEL"), WEIR_STR("GET-MASTER-ADDR-BY-NAME"),
                                      link->url.master};
    (void)how;
    if (link->url.topology == WEIR_REDIS_CLUSTER)
        weir_redis_put_command(out, slots, 2);
    else
        weir_redis_put_command(out, master, 3);
}

static bool has_trouble(const struct weir_redis_link *link)
{
    return weir_redis_link_health(link) != WEIR_REDIS_HEALTHY;
}

static int read_answer(struct weir_redis_link *link, const struct weir_redis_server *asked,
                       const struct weir_redis_answer *answer)
{
    struct weir_redis_address master;
    int err;
    if (link->url.topology == WEIR_REDIS_CLUSTER) {
        err = weir_redis_map_read(link->finder.map, answer->reader, answer->nodes,
                                  answer->node_count, &asked->address);
        if (err == 0)
            weir_redis_route_map(link, link->finder.map);
        return err;
    }
    err = weir_redis_master_read(&master, answer->reader, answer->nodes, answer->node_count,
                                 &asked->address);
    if (err == 0)
        weir_redis_route_master(link, &master);
    return err;
}

/* Once, until it is found again. */
static void tell_lost(struct weir_redis_link *link, const struct weir_redis_server *asked, int err,
                      const struct weir_redis_answer *answer)
{
    struct weir_str reason = weir_str_of(
        err == WEIR_ERR_NOT_FOUND ? "it knows no master of that name" : weir_strerror(err));
    if (err == WEIR_ERR_STORE_AWAY && asked->why_away[0] != '\0')
        reason = weir_str_of(asked->why_away); /* which it said when it was greeted, perhaps */
    if (answer != NULL && answer->nodes[0].type == WEIR_REDIS_ERROR)
        reason = weir_redis_node_str(answer->reader, &answer->nodes[0]);
    if (!link->finder.is_told && link->log != NULL)
        WEIR_LOG(link->log, WEIR_LOG_WARN, "store_unknown",
                 WEIR_LOG_TEXT("server", asked->address.text), WEIR_LOG_STR("reason", reason));
    link->finder.is_told = true;
}

static void on_answer(struct weir_redis_ask *ask, int err, const struct weir_redis_answer *answer)
{
    struct weir_redis_server *asked = ask->server;
    struct weir_redis_link *link = asked->link;
    struct weir_redis_finder *finder = &link->finder;
    bool is_sentinel = link->url.topology == WEIR_REDIS_SENTINEL;
    if (err == 0)
        err = read_answer(link, asked, answer);
    if (err != 0)
        tell_lost(link, asked, err, answer);
    else
        finder->is_told = false;
    finder->has_tried = true;
    finder->is_doubted = err != 0 || has_trouble(link);
    if (err != 0)
        look_after(link, FIND_LEAST_NS);
    else if (has_trouble(link))
        look_after(link, FIND_AWAY_NS);
    else
        look_after(link, is_sentinel ? FIND_MASTER_NS : FIND_NS);
}

/* Nobody waits for it any more, and the next one is asked. */
static void give_up(struct weir_redis_link *link)
{
    struct weir_redis_finder *finder = &link->finder;
    weir_redis_link_cancel(link, &finder->ask);
    weir_redis_server_fail(finder->asked, "it does not say what lies where");
    tell_lost(link, finder->asked, WEIR_ERR_STORE_LATE, NULL);
    finder->has_tried = finder->is_doubted = true;
}

static void look(void *ctx)
{
    struct weir_redis_link *link = ctx;
    struct weir_redis_finder *finder = &link->finder;
    if (finder->ask.is_waiting)
        give_up(link);
    finder->begun_ns = weir_redis_now();
    finder->asked = choose(link);
    finder->ask = (struct weir_redis_ask){.put = put_question, .done = on_answer, .is_own = true};
    look_after(link, FIND_PATIENCE_NS);
    weir_redis_server_begin(finder->asked);
    weir_redis_ask_enter(link, &finder->ask);
    weir_redis_server_take(finder->asked, &finder->ask);
}

int weir_redis_find_init(struct weir_redis_link *link)
{
    link->finder.alarm = (struct weir_alarm){.ring = look, .ctx = link};
    if (!is_needed(link))
        return 0;
    if (link->url.topology == WEIR_REDIS_CLUSTER) {
        link->finder.map = malloc(sizeof(*link->finder.map));
        if (link->finder.map == NULL)
            return WEIR_ERR_NOMEM;
    }
    look_after(link, 0);
    return 0;
}
