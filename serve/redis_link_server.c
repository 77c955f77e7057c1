/* redis_link_server.c - one server: connected, probed, left alone, and tried again.
 *
 *     no line ----due----> connecting --greeted--> ready --breaks--> no line
 *        ^                     |                     |
 *        +-- not within a call's deadline            | breaker opens
 *        |                                           v
 *        +--- PROBE_NS, the line fades ------- probes, each after a pause
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "serve/redis_link_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void wake_at(struct weir_redis_server *server, uint64_t due_ns)
{
    uint64_t now_ns = weir_redis_now();
    weir_alarm_cancel(server->link->loop, &server->alarm);
    if (!weir_alarm_set(server->link->loop, &server->alarm, due_ns > now_ns ? due_ns - now_ns : 0))
        weir_panic("every server has its alarms", __FILE__, __LINE__);
}

/* ---- what is told ---- */

/* Once; and again where the reason is another: who has mended the first wants to see the second. */
static void log_away(struct weir_redis_server *server, const char *why)
{
    uint64_t now_ns = weir_redis_now();
    bool is_news =
        !server->is_away || (strncmp(why, server->why_away, sizeof(server->why_away) - 1) != 0 &&
                             now_ns - server->told_ns > RETELL_NS);
    if (server->link->log == NULL || !is_news)
        return;
    server->told_ns = now_ns;
    snprintf(server->why_away, sizeof(server->why_away), "%s", why);
    WEIR_LOG(server->link->log, WEIR_LOG_WARN, "store_away",
             WEIR_LOG_TEXT("server", server->address.text), WEIR_LOG_TEXT("reason", why));
}

static void tell_away(struct weir_redis_server *server, const char *why)
{
    struct weir_redis_link *link = server->link;
    log_away(server, why);
    if (server->is_away)
        return;
    server->is_away = true;
    weir_redis_count_add(link, WEIR_REDIS_COUNT_OPENINGS, 1);
    weir_redis_count_add(link, WEIR_REDIS_COUNT_SERVERS_AWAY, 1);
    weir_redis_find_soon(link);
}

static void tell_back(struct weir_redis_server *server)
{
    struct weir_redis_link *link = server->link;
    server->is_away = false;
    weir_redis_count_add(link, WEIR_REDIS_COUNT_SERVERS_AWAY, -1);
    if (link->log != NULL)
        WEIR_LOG(link->log, WEIR_LOG_INFO, "store_back",
                 WEIR_LOG_TEXT("server", server->address.text));
}

/* ---- calls ---- */

static void lose_waiting(struct weir_redis_server *server)
{
    while (server->waiting.first != NULL)
        weir_redis_ask_lose(server->link, server->waiting.first);
}

/* It is asked no more until a probe has been answered. */
static void leave_alone(struct weir_redis_server *server, const char *why)
{
    lose_waiting(server);
    tell_away(server, why);
    if (server->line == NULL || server->line->is_ready) /* else CONNECT_NS runs */
        wake_at(server, server->breaker.due_ns);
}

void weir_redis_server_take(struct weir_redis_server *server, struct weir_redis_ask *ask)
{
    ask->server = server;
    if (!weir_breaker_lets(&server->breaker)) {
        weir_redis_ask_lose(server->link, ask);
        return;
    }
    weir_redis_asks_add(&server->waiting, ask);
    weir_chore_set(server->link->loop, &server->link->chore);
}

void weir_redis_server_flush(struct weir_redis_server *server)
{
    struct weir_redis_line *line = server->line;
    if (line == NULL || !line->is_ready || (server->waiting.first == NULL && line->wanted == 0))
        return;
    uint64_t now_ns = weir_redis_now();
    struct weir_redis_ask *ask;
    bool is_last = false;
    while (!is_last && (ask = server->waiting.first) != NULL) {
        weir_redis_asks_remove(ask);
        if (!weir_redis_line_put(line, ask, now_ns))
            weir_redis_ask_lose(server->link, ask);
        is_last = server->down_ns != 0 && !ask->is_own; /* one finds out for all */
    }
    weir_redis_wait_put(line, now_ns);
    weir_redis_line_send(line);
}

void weir_redis_server_succeed(struct weir_redis_server *server)
{
    weir_redis_content(server);
    weir_breaker_succeed(&server->breaker);
    if (!server->is_away || server->breaker.state != WEIR_BREAKER_CLOSED)
        return;
    weir_alarm_cancel(server->link->loop, &server->alarm); /* TRIAL_NS */
    tell_back(server);
}

void weir_redis_server_fail(struct weir_redis_server *server, const char *why)
{
    bool is_ready = server->line != NULL && server->line->is_ready;
    if (!server->has_keys && is_ready)
        wake_at(server, 0); /* not from here, where it may be its line that tells */
    else if (server->has_keys && weir_breaker_fail(&server->breaker, weir_redis_now()))
        leave_alone(server, why);
}

/* One that has not heard yet who took over from a master holds the whole Cluster for down, and
 * hears of it in a moment.  A call that may wait longer than that does. */
bool weir_redis_server_down(struct weir_redis_server *server)
{
    uint64_t now_ns = weir_redis_now();
    if (server->down_ns == 0)
        server->down_ns = now_ns;
    return now_ns - server->down_ns < server->link->deadline_ns;
}

void weir_redis_server_up(struct weir_redis_server *server)
{
    if (server->down_ns == 0)
        return;
    server->down_ns = 0;
    weir_chore_set(server->link->loop, &server->link->chore);
}

/* ---- lines ---- */

/* Without a line, or with one that does not answer. */
static void trip(struct weir_redis_server *server, const char *why)
{
    server->trying_ns = 0;
    if (!server->has_keys) {
        snprintf(server->why_away, sizeof(server->why_away), "%s",
                 why); /* for who wanted to know */
        lose_waiting(server);
        return;
    }
    (void)weir_breaker_trip(&server->breaker, weir_redis_now());
    leave_alone(server, why);
}

/* How long a connection is waited for: as long as a call, within reason. */
static uint64_t connect_patience(const struct weir_redis_link *link)
{
    uint64_t most_ns = link->deadline_ns < CONNECT_MAX_NS ? link->deadline_ns : CONNECT_MAX_NS;
    return most_ns > CONNECT_NS ? most_ns : CONNECT_NS;
}

static void connect_anew(struct weir_redis_server *server)
{
    char why[WHY_MAX];
    server->attempts++;
    if (server->trying_ns == 0)
        server->trying_ns = weir_redis_now();
    if (weir_redis_line_open(&server->line, server, why, sizeof(why)) != 0) {
        weir_redis_count_add(server->link, WEIR_REDIS_COUNT_BREAKS, 1);
        trip(server, why);
        return;
    }
    wake_at(server, weir_redis_now() + connect_patience(server->link));
}

/* Calls pass again, if they did not.  That it is back is told when one is answered, or when a while
 * has passed without any: what answers probes may still refuse calls. */
static void try_it(struct weir_redis_server *server)
{
    weir_alarm_cancel(server->link->loop, &server->alarm);
    if (weir_breaker_try(&server->breaker))
        wake_at(server, weir_redis_now() + TRIAL_NS);
}

void weir_redis_server_ready(struct weir_redis_server *server)
{
    weir_redis_count_add(server->link, WEIR_REDIS_COUNT_CONNECTS, 1);
    server->is_probing = false;
    server->trying_ns = 0;
    try_it(server);
    weir_chore_set(server->link->loop, &server->link->chore);
}

static void drop_fading(struct weir_redis_server *server)
{
    struct weir_redis_line *line = server->fading;
    server->fading = NULL;
    weir_alarm_cancel(server->link->loop, &server->fade_alarm);
    if (line != NULL)
        weir_redis_line_close(line);
}

static void on_faded(void *ctx)
{
    drop_fading(ctx);
}

/* Takes the line away: at once where it owes nothing, else when it has had its time. */
static void fade(struct weir_redis_server *server)
{
    struct weir_redis_line *line = server->line;
    server->line = NULL;
    server->is_probing = false;
    weir_redis_count_add(server->link, WEIR_REDIS_COUNT_BREAKS, 1);
    if (line->calls == 0) {
        weir_redis_line_close(line);
        return;
    }
    drop_fading(server);
    server->fading = line;
    if (!weir_alarm_set(server->link->loop, &server->fade_alarm, FADE_NS))
        weir_panic("every server has its alarms", __FILE__, __LINE__);
}

void weir_redis_server_lost(struct weir_redis_server *server, struct weir_redis_line *line,
                            const char *why)
{
    if (line == server->fading) {
        drop_fading(server);
        return;
    }
    WEIR_ASSERT(line == server->line);
    bool has_worked =
        line->has_served || (line->is_ready && weir_redis_now() - line->ready_ns > SETTLED_NS);
    char words[WHY_MAX];
    snprintf(words, sizeof(words), "%s", why); /* it may lie in the line */
    server->line = NULL;
    server->is_probing = false;
    weir_redis_count_add(server->link, WEIR_REDIS_COUNT_BREAKS, 1);
    weir_redis_line_close(line);
    /* One that worked may have been closed for reasons of its own: once, another is tried before
     * anybody is refused. */
    if (has_worked && weir_breaker_lets(&server->breaker))
        connect_anew(server);
    else
        trip(server, words);
}

void weir_redis_server_probed(struct weir_redis_server *server, bool is_good, const char *why)
{
    server->is_probing = false;
    if (!is_good) {
        trip(server, why);
        return;
    }
    try_it(server);
}

static void probe(struct weir_redis_server *server)
{
    uint64_t now_ns = weir_redis_now(), deadline_ns = server->link->deadline_ns;
    server->is_probing = true;
    weir_redis_line_probe(server->line, now_ns);
    weir_redis_line_send(server->line);
    wake_at(server, now_ns + (deadline_ns > PROBE_NS ? deadline_ns : PROBE_NS));
}

/* The line's time is over, be it to be let in or to answer a probe. */
static void give_up(struct weir_redis_server *server)
{
    bool was_ready = server->line->is_ready;
    fade(server);
    /* Calls that can wait longer do: it may be busy, as one that has just become a master is. */
    if (!was_ready && server->has_keys && weir_breaker_lets(&server->breaker) &&
        weir_redis_now() - server->trying_ns < server->link->deadline_ns)
        connect_anew(server);
    else
        trip(server, was_ready                   ? "it does not answer"
                     : server->link->tls != NULL ? "it does not let us in: does it speak TLS?"
                                                 : "it does not let us in");
}

/* The time of whatever was waited for has come. */
static void on_alarm(void *ctx)
{
    struct weir_redis_server *server = ctx;
    struct weir_redis_line *line = server->line;
    if (line == NULL) {
        connect_anew(server);
    } else if (server->breaker.state == WEIR_BREAKER_TRIAL && line->is_ready) {
        weir_redis_server_succeed(server);
    } else if (line->is_ready && !server->is_probing && server->has_keys) {
        probe(server);
    } else {
        give_up(server);
    }
}

/* ---- life ---- */

int weir_redis_server_new(struct weir_redis_server **out, struct weir_redis_link *link,
                          const struct weir_redis_address *address)
{
    struct weir_redis_server *server = calloc(1, sizeof(*server));
    if (server == NULL || weir_loop_reserve_alarms(link->loop, 2) != 0) {
        free(server);
        return WEIR_ERR_NOMEM;
    }
    server->link = link;
    server->alarm = (struct weir_alarm){.ring = on_alarm, .ctx = server};
    server->fade_alarm = (struct weir_alarm){.ring = on_faded, .ctx = server};
    server->address = *address;
    weir_breaker_init(&server->breaker, link->chance += UINT64_C(1) << 32);
    *out = server;
    return 0;
}

void weir_redis_server_free(struct weir_redis_server *server)
{
    weir_alarm_cancel(server->link->loop, &server->alarm);
    weir_alarm_cancel(server->link->loop, &server->fade_alarm);
    weir_redis_line_forget(server->line);
    weir_redis_line_forget(server->fading);
    free(server);
}

void weir_redis_server_begin(struct weir_redis_server *server)
{
    if (server->line == NULL && server->alarm.place == 0)
        wake_at(server, 0);
}

void weir_redis_server_set_keys(struct weir_redis_server *server, bool has_keys)
{
    struct weir_redis_link *link = server->link;
    if (server->has_keys == has_keys)
        return;
    weir_redis_count_add(link, WEIR_REDIS_COUNT_SERVERS, has_keys ? 1 : -1);
    server->has_keys = has_keys;
    if (has_keys) {
        weir_redis_server_begin(server);
        return;
    }
    weir_redis_content(server);
    /* It is nobody's loss any more. */
    if (server->is_away)
        weir_redis_count_add(link, WEIR_REDIS_COUNT_SERVERS_AWAY, -1);
    server->is_away = false;
    server->down_ns = 0;
    weir_breaker_init(&server->breaker, link->chance += UINT64_C(1) << 32);
    if (server->line == NULL)
        weir_alarm_cancel(link->loop, &server->alarm);
}

bool weir_redis_server_is_idle(const struct weir_redis_server *server)
{
    return !server->has_keys && server->waiting.first == NULL && server->fading == NULL &&
           (server->line == NULL || server->line->calls == 0);
}
