/* admin_store.c - the store that many machines share, as an operator sees it: metrics, and
 * GET /api/v1/store.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "proto/prom.h"
#include "serve/admin.h"
#include "serve/ask.h"
#include "serve/eventual.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NAME_LEN 96

static const struct {
    const char *metric, *help;
} asked[WEIR_ASK_COUNTS] =
    {
#define X(name, metric, help) {metric, help},
#include "serve/ask.def"
#undef X
},
  linked[WEIR_REDIS_COUNTS] = {
#define X(name, metric, help) {metric, help},
#include "serve/redis_link.def"
#undef X
};

static uint64_t sum_asked(const struct weir_service *service, enum weir_ask_count count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < weir_service_worker_count(service); i++)
        sum += weir_asks_count(weir_service_worker(service, i)->asks, count);
    return sum;
}

/* Servers are the same for all workers: then the first speaks for all. */
static uint64_t sum_linked(const struct weir_service *service, enum weir_redis_count count)
{
    bool is_same = count == WEIR_REDIS_COUNT_SERVERS || count == WEIR_REDIS_COUNT_SERVERS_AWAY ||
                   count == WEIR_REDIS_COUNT_SLOTS_UNSERVED;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < (is_same ? 1 : weir_service_worker_count(service)); i++)
        sum += weir_redis_link_count(weir_asks_link(weir_service_worker(service, i)->asks), count);
    return sum;
}

/* As the worst of the workers' links is. */
static enum weir_redis_health health_of(const struct weir_service *service)
{
    enum weir_redis_health worst = WEIR_REDIS_HEALTHY;
    for (uint32_t i = 0; i < weir_service_worker_count(service); i++) {
        enum weir_redis_health health =
            weir_redis_link_health(weir_asks_link(weir_service_worker(service, i)->asks));
        worst = health > worst ? health : worst;
    }
    return worst;
}

static void put(struct weir_buf *to, const char *metric, const char *help, uint64_t value)
{
    char name[NAME_LEN];
    size_t len = strlen(metric);
    bool is_counter = len > 6 && strcmp(metric + len - 6, "_total") == 0;
    snprintf(name, sizeof(name), "weir_store_%s", metric);
    weir_prom_head(to, name, is_counter ? "counter" : "gauge", help);
    weir_prom_sample(to, name, NULL, 0, value);
}

void weir_admin_store_metrics(struct weir_buf *to, const struct weir_service *service)
{
    const struct weir_ask_shared *store = weir_service_store(service);
    if (store == NULL)
        return;
    put(to, "up", "1 while every server of the store answers.",
        health_of(service) == WEIR_REDIS_HEALTHY);
    put(to, "nodes", "Machines that ask the store, as far as is known.", weir_ask_nodes(store));
    for (size_t i = 0; i < WEIR_ASK_COUNTS; i++)
        put(to, asked[i].metric, asked[i].help, sum_asked(service, (enum weir_ask_count)i));
    for (size_t i = 0; i < WEIR_REDIS_COUNTS; i++)
        put(to, linked[i].metric, linked[i].help, sum_linked(service, (enum weir_redis_count)i));
}

static void add_url(struct weir_admin_call *call, const char *url)
{
    char room[512];
    weir_admin_add_json(&call->body, weir_str_of(weir_settings_shown(url, room, sizeof(room))));
}

static const char *word_of(enum weir_redis_health health)
{
    static const char *const words[] = {
        [WEIR_REDIS_HEALTHY] = "up", [WEIR_REDIS_PARTLY] = "partly", [WEIR_REDIS_AWAY] = "away"};
    return words[health];
}

static void add_global(struct weir_admin_call *call, const struct weir_settings *settings)
{
    enum weir_redis_health health;
    if (!weir_eventual_global(weir_service_eventual(call->worker->service), &health))
        return;
    weir_admin_add(&call->body, ",\"global_store\":");
    add_url(call, settings->store_global);
    weir_admin_add(&call->body, ",\"global_health\":\"%s\"", word_of(health));
}

void weir_admin_store(struct weir_admin_call *call)
{
    const struct weir_service *service = call->worker->service;
    const struct weir_settings *settings = weir_service_settings(service);
    const struct weir_ask_shared *store = weir_service_store(service);
    call->content_type = WEIR_ADMIN_JSON;
    if (store == NULL) {
        weir_admin_add(&call->body, "{\"store\":\"local\"}\n");
        return;
    }
    weir_admin_add(&call->body, "{\"store\":");
    add_url(call, settings->store);
    weir_admin_add(&call->body,
                   ",\"health\":\"%s\",\"nodes\":%" PRIu32 ",\"on_store_error\":\"%s\"",
                   word_of(health_of(service)), weir_ask_nodes(store), settings->on_store_error);
    add_global(call, settings);
    for (size_t i = 0; i < WEIR_ASK_COUNTS; i++)
        weir_admin_add(&call->body, ",\"%s\":%" PRIu64, asked[i].metric,
                       sum_asked(service, (enum weir_ask_count)i));
    for (size_t i = 0; i < WEIR_REDIS_COUNTS; i++)
        weir_admin_add(&call->body, ",\"%s\":%" PRIu64, linked[i].metric,
                       sum_linked(service, (enum weir_redis_count)i));
    weir_admin_add(&call->body, "}\n");
}
