/* redis_link_route.c - which server a call goes to, and what moves it to another.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "serve/redis_link_internal.h"
#include "store/redis/key.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- servers by address ---- */

/* The server of this address; a new one where there is none yet, or NULL where there are as many as
 * may be. */
static struct weir_redis_server *server_at(struct weir_redis_link *link,
                                           const struct weir_redis_address *address)
{
    uint32_t count = 0;
    struct weir_redis_server **end = &link->servers;
    for (; *end != NULL; end = &(*end)->next, count++) {
        if (strcmp((*end)->address.text, address->text) == 0 && !(*end)->is_sentinel)
            return *end;
    }
    /* Twice as many as a map names: those of the one before may still owe us something. */
    if (count >= 2 * WEIR_REDIS_SERVERS_MAX || weir_redis_server_new(end, link, address) != 0)
        return NULL;
    return *end;
}

/* Those that nobody names any more, as far as they owe us nothing. */
static void forget_unlisted(struct weir_redis_link *link)
{
    struct weir_redis_server **at = &link->servers;
    while (*at != NULL) {
        struct weir_redis_server *server = *at;
        if (server->is_listed || server->is_sentinel || server == link->finder.asked ||
            !weir_redis_server_is_idle(server)) {
            at = &server->next;
            continue;
        }
        *at = server->next;
        weir_redis_server_free(server);
    }
}

/* What waits for one that has no keys any more goes where these are now. */
static void move_waiting(struct weir_redis_link *link)
{
    for (struct weir_redis_server *server = link->servers; server != NULL; server = server->next) {
        struct weir_redis_ask *ask = server->has_keys ? NULL : server->waiting.first;
        while (ask != NULL) {
            struct weir_redis_ask *next = ask->next;
            if (!ask->is_own) {
                weir_redis_asks_remove(ask);
                weir_redis_route_pause(link, ask);
            }
            ask = next;
        }
    }
}

/* ---- where a call goes ---- */

static void on_pause_over(void *ctx)
{
    struct weir_redis_link *link = ctx;
    struct weir_redis_asks again = link->paused;
    /* Who must pause once more is not tried in this round. */
    link->paused = (struct weir_redis_asks){0};
    while (again.first != NULL) {
        struct weir_redis_ask *ask = again.first;
        ask->queue = &again;
        weir_redis_asks_remove(ask);
        weir_redis_route(link, ask);
    }
}

void weir_redis_route_pause(struct weir_redis_link *link, struct weir_redis_ask *ask)
{
    if (ask->queue != NULL)
        weir_redis_asks_remove(ask);
    weir_redis_asks_add(&link->paused, ask);
    if (link->pause.place == 0 && !weir_alarm_set(link->loop, &link->pause, PAUSE_NS))
        weir_panic("the link has its alarms", __FILE__, __LINE__);
}

struct weir_redis_server *weir_redis_server_of(const struct weir_redis_link *link,
                                               struct weir_str key)
{
    return link->by_slot != NULL ? link->by_slot[weir_redis_slot_of(key)] : link->sole;
}

void weir_redis_route(struct weir_redis_link *link, struct weir_redis_ask *ask)
{
    struct weir_redis_server *server = weir_redis_server_of(link, ask->key);
    if (server != NULL)
        weir_redis_server_take(server, ask);
    else if (!link->finder.has_tried)
        weir_redis_route_pause(link, ask);
    else
        weir_redis_ask_lose(link, ask);
}

bool weir_redis_route_redirect(struct weir_redis_server *from, struct weir_redis_ask *ask,
                               struct weir_str words)
{
    struct weir_redis_link *link = from->link;
    struct weir_redis_redirect to;
    struct weir_redis_address address;
    if (link->url.topology != WEIR_REDIS_CLUSTER || weir_redis_redirect_read(words, &to) != 0 ||
        !weir_redis_address_read(&address, to.address, &from->address))
        return false;
    struct weir_redis_server *server = server_at(link, &address);
    if (server == NULL)
        return false;
    weir_redis_count_add(link, WEIR_REDIS_COUNT_REDIRECTS, 1);
    ask->is_asking = to.is_ask;
    weir_redis_server_set_keys(server, true);
    if (!to.is_ask)
        link->by_slot[to.slot] = server;
    weir_redis_server_take(server, ask);
    return true;
}

/* ---- what was found ---- */

/* A slot that nobody serves, as far as the one asked has heard, stays with who had it: that one
 * knows first who has it now, and says so. */
static uint32_t move_slots(struct weir_redis_link *link, const struct weir_redis_map *map,
                           struct weir_redis_server *const *servers)
{
    uint32_t moved = 0;
    for (uint32_t slot = 0; slot < WEIR_REDIS_SLOTS; slot++) {
        struct weir_redis_server *before = link->by_slot[slot];
        uint16_t owner = map->owner[slot];
        if (owner != WEIR_REDIS_NOBODY) {
            link->by_slot[slot] = servers[owner];
            moved += servers[owner] != before;
        } else if (before != NULL) {
            before->is_listed = true;
            weir_redis_server_set_keys(before, true);
        }
    }
    return moved;
}

void weir_redis_route_map(struct weir_redis_link *link, const struct weir_redis_map *map)
{
    struct weir_redis_server *servers[WEIR_REDIS_SERVERS_MAX];
    for (struct weir_redis_server *server = link->servers; server != NULL; server = server->next)
        server->is_listed = false;
    for (uint32_t i = 0; i < map->server_count; i++) {
        servers[i] = server_at(link, &map->servers[i]);
        if (servers[i] == NULL)
            continue;
        servers[i]->is_listed = true;
        weir_redis_server_set_keys(servers[i], map->has_slots[i]);
    }
    uint32_t moved = move_slots(link, map, servers);
    for (struct weir_redis_server *server = link->servers; server != NULL; server = server->next) {
        if (!server->is_listed)
            weir_redis_server_set_keys(server, false);
    }
    move_waiting(link);
    forget_unlisted(link);
    bool is_news =
        moved > 0 || weir_redis_link_count(link, WEIR_REDIS_COUNT_SLOTS_UNSERVED) != map->unserved;
    /* relaxed: one writer, and readers want a number that was true once */
    atomic_store_explicit(&link->counts[WEIR_REDIS_COUNT_SLOTS_UNSERVED], map->unserved,
                          memory_order_relaxed);
    if (is_news && link->log != NULL)
        WEIR_LOG(link->log, WEIR_LOG_INFO, "store_slots", WEIR_LOG_NUMBER("moved", moved),
                 WEIR_LOG_NUMBER("unserved", map->unserved));
}

void weir_redis_route_master(struct weir_redis_link *link, const struct weir_redis_address *address)
{
    struct weir_redis_server *server = server_at(link, address), *before = link->sole;
    if (server == NULL)
        return;
    for (struct weir_redis_server *other = link->servers; other != NULL; other = other->next)
        other->is_listed = other == server;
    if (server != before) {
        link->sole = server;
        weir_redis_server_set_keys(server, true);
        if (link->log != NULL)
            WEIR_LOG(link->log, WEIR_LOG_INFO, "store_master",
                     WEIR_LOG_TEXT("server", address->text));
    }
    if (server != before && before != NULL) {
        weir_redis_server_set_keys(before, false);
        weir_redis_count_add(link, WEIR_REDIS_COUNT_FAILOVERS, 1);
    }
    move_waiting(link);
    forget_unlisted(link);
}

/* ---- life ---- */

/* As the URL has them; for shards each has its slots from now on. */
static int add_hosts(struct weir_redis_link *link, struct weir_redis_address *addresses)
{
    struct weir_redis_server **end = &link->servers;
    for (uint32_t i = 0; i < link->url.host_count; i++, end = &(*end)->next) {
        const struct weir_redis_host *host = &link->url.hosts[i];
        if (!weir_redis_address_make(&addresses[i], host->name, host->port))
            return WEIR_ERR_INVALID;
        if (weir_redis_server_new(end, link, &addresses[i]) != 0)
            return WEIR_ERR_NOMEM;
        (*end)->is_sentinel = link->url.topology == WEIR_REDIS_SENTINEL;
    }
    return 0;
}

static void share_out(struct weir_redis_link *link, const struct weir_redis_address *addresses)
{
    struct weir_redis_server *servers[WEIR_REDIS_HOSTS_MAX];
    uint16_t owner[WEIR_REDIS_SLOTS];
    uint32_t count = 0;
    for (struct weir_redis_server *at = link->servers; at != NULL; at = at->next) {
        servers[count++] = at;
        weir_redis_server_set_keys(at, true);
    }
    weir_redis_map_shards(owner, addresses, count);
    for (uint32_t slot = 0; slot < WEIR_REDIS_SLOTS; slot++)
        link->by_slot[slot] = servers[owner[slot]];
}

int weir_redis_route_init(struct weir_redis_link *link, char *why, size_t why_len)
{
    struct weir_redis_address addresses[WEIR_REDIS_HOSTS_MAX];
    enum weir_redis_topology topology = link->url.topology;
    link->pause = (struct weir_alarm){.ring = on_pause_over, .ctx = link};
    if (topology == WEIR_REDIS_CLUSTER || topology == WEIR_REDIS_SHARDS) {
        link->by_slot = calloc(WEIR_REDIS_SLOTS, sizeof(struct weir_redis_server *));
        if (link->by_slot == NULL)
            return WEIR_ERR_NOMEM;
    }
    int err = add_hosts(link, addresses);
    if (err == WEIR_ERR_INVALID)
        snprintf(why, why_len, "a host's name is too long");
    if (err != 0)
        return err;
    if (topology == WEIR_REDIS_SHARDS)
        share_out(link, addresses);
    if (topology == WEIR_REDIS_SINGLE) {
        link->sole = link->servers;
        weir_redis_server_set_keys(link->sole, true);
    }
    return 0;
}
