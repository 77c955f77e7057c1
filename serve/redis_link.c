/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/redis_link.h"

#include "serve/redis_link_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

uint64_t weir_redis_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * WEIR_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* ---- queues ---- */

void weir_redis_asks_add(struct weir_redis_asks *queue, struct weir_redis_ask *ask)
{
    ask->queue = queue;
    ask->next = NULL;
    ask->prev = queue->last;
    if (queue->last != NULL)
        queue->last->next = ask;
    else
        queue->first = ask;
    queue->last = ask;
}

void weir_redis_asks_remove(struct weir_redis_ask *ask)
{
    struct weir_redis_asks *queue = ask->queue;
    if (ask->prev != NULL)
        ask->prev->next = ask->next;
    else
        queue->first = ask->next;
    if (ask->next != NULL)
        ask->next->prev = ask->prev;
    else
        queue->last = ask->prev;
    ask->queue = NULL;
}

/* ---- the beginning and the end of a call ---- */

static void wait_for_oldest(struct weir_redis_link *link);

/* Behind those that began no later: few have come since one that waited elsewhere first. */
static void put_in_order(struct weir_redis_link *link, struct weir_redis_ask *ask)
{
    struct weir_redis_ask *older = link->newest;
    while (older != NULL && older->begun_ns > ask->begun_ns)
        older = older->older;
    ask->older = older;
    ask->newer = older != NULL ? older->newer : link->oldest;
    *(older != NULL ? &older->newer : &link->oldest) = ask;
    *(ask->newer != NULL ? &ask->newer->older : &link->newest) = ask;
}

void weir_redis_ask_enter(struct weir_redis_link *link, struct weir_redis_ask *ask)
{
    ask->begun_ns = ask->since_ns != 0 ? ask->since_ns : weir_redis_now();
    ask->is_waiting = true;
    ask->queue = NULL;
    ask->line = NULL;
    ask->tries = 0;
    ask->is_asking = false;
    if (ask->is_own) /* whose patience is its own, too */
        return;
    put_in_order(link, ask);
    weir_redis_count_add(link, WEIR_REDIS_COUNT_CALLS, 1);
    weir_redis_count_add(link, WEIR_REDIS_COUNT_IN_FLIGHT, 1);
    if (ask->since_ns != 0 && link->oldest == ask) /* the alarm may be set for a later one */
        weir_alarm_cancel(link->loop, &link->deadline);
    wait_for_oldest(link);
}

static void leave(struct weir_redis_link *link, struct weir_redis_ask *ask)
{
    if (ask->queue != NULL)
        weir_redis_asks_remove(ask);
    ask->is_waiting = false;
    if (ask->is_own)
        return;
    if (ask->older != NULL)
        ask->older->newer = ask->newer;
    else
        link->oldest = ask->newer;
    if (ask->newer != NULL)
        ask->newer->older = ask->older;
    else
        link->newest = ask->older;
    weir_redis_count_add(link, WEIR_REDIS_COUNT_IN_FLIGHT, -1);
}

static enum weir_redis_count count_of(int err)
{
    switch (err) {
    case 0:
        return WEIR_REDIS_COUNT_REPLIES;
    case WEIR_ERR_STORE_AWAY:
        return WEIR_REDIS_COUNT_AWAY;
    case WEIR_ERR_STORE_LATE:
        return WEIR_REDIS_COUNT_LATE;
    default:
        return WEIR_REDIS_COUNT_FAILED;
    }
}

void weir_redis_ask_finish(struct weir_redis_link *link, struct weir_redis_ask *ask, int err,
                           const struct weir_redis_answer *answer)
{
    leave(link, ask);
    if (!ask->is_own)
        weir_redis_count_add(link, count_of(err), 1);
    ask->done(ask, err, answer);
}

void weir_redis_ask_lose(struct weir_redis_link *link, struct weir_redis_ask *ask)
{
    if (ask->queue != NULL)
        weir_redis_asks_remove(ask);
    weir_redis_asks_add(&link->lost, ask);
    weir_chore_set(link->loop, &link->chore);
}

void weir_redis_tell_late(struct weir_redis_link *link, uint64_t tag, int err,
                          const struct weir_redis_answer *answer)
{
    if (tag != 0 && link->on_late != NULL)
        link->on_late(link->ctx, tag, err, answer);
}

/* ---- the deadline ---- */

static void wait_for_oldest(struct weir_redis_link *link)
{
    if (link->oldest == NULL || link->deadline.place != 0)
        return;
    uint64_t due_ns = link->oldest->begun_ns + link->deadline_ns, now_ns = weir_redis_now();
    if (!weir_alarm_set(link->loop, &link->deadline, due_ns > now_ns ? due_ns - now_ns : 0))
        weir_panic("the link has its alarm", __FILE__, __LINE__);
}

static void expire(struct weir_redis_link *link, struct weir_redis_ask *ask)
{
    bool is_sent = ask->queue == NULL;
    bool is_with_server = ask->queue != &link->lost && ask->queue != &link->paused;
    /* Who had waited elsewhere before says nothing of how long the server takes. */
    if (is_with_server && ask->since_ns == 0)
        weir_redis_server_fail(ask->server, "it does not answer in time");
    if (is_sent)
        weir_redis_line_abandon(ask->line, ask, true);
    weir_redis_ask_finish(link, ask, is_sent ? WEIR_ERR_STORE_LATE : WEIR_ERR_STORE_AWAY, NULL);
}

/* It was set for the oldest of then, which is mostly done by now: then it is set anew. */
static void on_deadline(void *ctx)
{
    struct weir_redis_link *link = ctx;
    uint64_t now_ns = weir_redis_now();
    while (link->oldest != NULL && now_ns - link->oldest->begun_ns >= link->deadline_ns)
        expire(link, link->oldest);
    wait_for_oldest(link);
}

/* ---- the end of a turn ---- */

static void on_turn(struct weir_chore *chore)
{
    struct weir_redis_link *link =
        (struct weir_redis_link *)((char *)chore - offsetof(struct weir_redis_link, chore));
    for (struct weir_redis_server *server = link->servers; server != NULL; server = server->next)
        weir_redis_server_flush(server);
    /* Who asks again when it is told is told in the next round. */
    const struct weir_redis_ask *last = link->lost.last;
    for (bool is_last = false; !is_last && link->lost.first != NULL;) {
        struct weir_redis_ask *ask = link->lost.first;
        is_last = ask == last;
        weir_redis_ask_finish(link, ask, WEIR_ERR_STORE_AWAY, NULL);
    }
}

/* ---- the outside ---- */

void weir_redis_link_ask(struct weir_redis_link *link, struct weir_redis_ask *ask)
{
    bool is_full = weir_redis_link_count(link, WEIR_REDIS_COUNT_IN_FLIGHT) >= link->queue_max;
    ask->is_own = false;
    weir_redis_ask_enter(link, ask);
    if (is_full)
        weir_redis_ask_lose(link, ask);
    else
        weir_redis_route(link, ask);
}

void weir_redis_link_cancel(struct weir_redis_link *link, struct weir_redis_ask *ask)
{
    if (!ask->is_waiting)
        return;
    if (ask->queue == NULL)
        weir_redis_line_abandon(ask->line, ask, false);
    leave(link, ask);
}

enum weir_redis_health weir_redis_link_health(const struct weir_redis_link *link)
{
    uint64_t servers = weir_redis_link_count(link, WEIR_REDIS_COUNT_SERVERS);
    uint64_t away = weir_redis_link_count(link, WEIR_REDIS_COUNT_SERVERS_AWAY);
    uint64_t unserved = weir_redis_link_count(link, WEIR_REDIS_COUNT_SLOTS_UNSERVED);
    uint64_t failing = weir_redis_link_count(link, WEIR_REDIS_COUNT_SERVERS_FAILING);
    if (away == 0 && unserved == 0 && failing == 0 && servers > 0)
        return WEIR_REDIS_HEALTHY;
    return away < servers ? WEIR_REDIS_PARTLY : WEIR_REDIS_AWAY;
}

uint64_t weir_redis_link_count(const struct weir_redis_link *link, enum weir_redis_count count)
{
    /* relaxed: a number that was true once */
    return atomic_load_explicit(&link->counts[count], memory_order_relaxed);
}

/* ---- life ---- */

static int build(struct weir_redis_link *link, const struct weir_redis_link_options *options,
                 char *why, size_t why_len)
{
    link->text = strdup(options->url);
    if (link->text == NULL || weir_loop_reserve_alarms(link->loop, 3) != 0)
        return WEIR_ERR_NOMEM;
    int err = weir_redis_url_parse(&link->url, weir_str_of(link->text), why, why_len);
    if (err != 0)
        return err;
    if (link->url.is_tls && options->tls == NULL) {
        snprintf(why, why_len, "TLS is not set up");
        return WEIR_ERR_INVALID;
    }
    link->tls = link->url.is_tls ? options->tls : NULL;
    if (getrandom(&link->chance, sizeof(link->chance), 0) != sizeof(link->chance)) {
        snprintf(why, why_len, "the system has no random numbers");
        return WEIR_ERR_IO;
    }
    err = weir_redis_route_init(link, why, why_len);
    return err == 0 ? weir_redis_find_init(link) : err;
}

/* How long replicas have to acknowledge, while calls behind wait.  0 would be for ever. */
static uint32_t wait_ms_of(uint64_t deadline_ns)
{
    uint64_t ms = deadline_ns / NS_PER_MS / WAIT_PART;
    return ms == 0 ? 1 : ms < WAIT_MAX_MS ? (uint32_t)ms : WAIT_MAX_MS;
}

int weir_redis_link_new(struct weir_redis_link **out, struct weir_loop *loop,
                        const struct weir_redis_link_options *options, char *why, size_t why_len)
{
    struct weir_redis_link *link = calloc(1, sizeof(*link));
    snprintf(why, why_len, "out of memory");
    if (link == NULL)
        return WEIR_ERR_NOMEM;
    link->loop = loop;
    link->log = options->log;
    link->complaints = options->complaints;
    link->deadline_ns =
        (options->deadline_ms > 0 ? options->deadline_ms : WEIR_REDIS_DEADLINE_MS) * NS_PER_MS;
    link->queue_max = options->queue_max > 0 ? options->queue_max : WEIR_REDIS_QUEUE_MAX;
    link->on_late = options->on_late;
    link->ctx = options->ctx;
    link->on_replicated = options->on_replicated;
    link->replicas = options->replicas;
    link->chore.run = on_turn;
    link->wait_ms = wait_ms_of(link->deadline_ns);
    link->deadline = (struct weir_alarm){.ring = on_deadline, .ctx = link};
    int err = build(link, options, why, why_len);
    if (err != 0) {
        weir_redis_link_free(link);
        return err;
    }
    *out = link;
    return 0;
}

void weir_redis_link_free(struct weir_redis_link *link)
{
    if (link == NULL)
        return;
    weir_alarm_cancel(link->loop, &link->deadline);
    weir_alarm_cancel(link->loop, &link->pause);
    weir_alarm_cancel(link->loop, &link->finder.alarm);
    weir_chore_cancel(link->loop, &link->chore);
    while (link->servers != NULL) {
        struct weir_redis_server *next = link->servers->next;
        weir_redis_server_free(link->servers);
        link->servers = next;
    }
    free(link->by_slot);
    free(link->finder.map);
    free(link->text);
    free(link);
}
