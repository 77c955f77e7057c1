/* ask_life.c - what is made at start, for decisions that may have to wait, and read from outside.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/str.h"
#include "engine/publish.h"
#include "serve/ask_internal.h"
#include "serve/ask_lease_wait.h"
#include "serve/service.h"
#include "store/lease_board.h"

#include <stdlib.h>
#include <string.h>

#define PAY_MS 50    /* how soon after its return the store hears what passed without it */
#define NODES_MS 250 /* see ask_nodes.c */
#define BOARD_PLACES 16384u
#define PREFIX_MAX 100u /* bytes: with the longest descriptor and a tag behind it, 320 hold a key */

/* ---- of a service ---- */

static bool is_local(const struct weir_settings *settings)
{
    return strcmp(settings->store, "local") == 0;
}

static enum weir_on_store_error read_policy(const char *word)
{
    if (strcmp(word, "open") == 0)
        return WEIR_STORE_ERROR_OPEN;
    return strcmp(word, "closed") == 0 ? WEIR_STORE_ERROR_CLOSED : WEIR_STORE_ERROR_LOCAL;
}

/* NULL, or what is wrong where there is no store: nothing that needs one may be asked for. */
static const char *fault_without(const struct weir_settings *settings)
{
    if (settings->store_global[0] != '\0' || settings->site[0] != '\0')
        return "--store-global and --site need a store of this site's: --store redis://HOST";
    if (settings->compat_keys)
        return "--compat-keys needs a store that has such keys: --store redis://HOST";
    if (strcmp(settings->consistency, "eventual") == 0)
        return "--consistency eventual needs a store to tell others through: --store redis://HOST";
    if (settings->store_wait > 0)
        return "--store-wait needs a store that has replicas: --store redis://HOST";
    return NULL;
}

/* NULL, or what is wrong. */
static const char *fault_of(const struct weir_settings *settings)
{
    if (is_local(settings))
        return fault_without(settings);
    if (settings->store_global[0] != '\0' && settings->site[0] == '\0')
        return "--store-global needs the name of this site: --site NAME";
    if (strpbrk(settings->store_prefix, "{}") != NULL && !settings->compat_keys)
        return "--store-prefix must not contain a brace: it would change where keys lie";
    if (strlen(settings->store_prefix) > PREFIX_MAX)
        return "--store-prefix has at most 100 bytes";
    if (settings->store_wait > 0 && !settings->store_leases)
        return "--store-wait is for leases, of which --store-leases=off has none";
    if (settings->store_wait > 0 && strcmp(settings->consistency, "eventual") == 0)
        return "--store-wait is for exact limits: leave --consistency out, and say "
               "'consistency: eventual' in the rules that are";
    return NULL;
}

static const char *path_or_null(const char *path)
{
    return path[0] != '\0' ? path : NULL;
}

static int open_tls(struct weir_ask_shared *shared, char *why, size_t why_len)
{
    const struct weir_settings *settings = shared->settings;
    const struct weir_tls_client_options options = {
        .ca_path = path_or_null(settings->store_tls_ca),
        .cert_path = path_or_null(settings->store_tls_cert),
        .key_path = path_or_null(settings->store_tls_key),
    };
    return weir_tls_client_new(&shared->tls, &options, why, why_len);
}

int weir_ask_shared_new(struct weir_ask_shared **out, const struct weir_settings *settings,
                        struct weir_log *log, char *why, size_t why_len)
{
    struct weir_redis_url url;
    *out = NULL;
    const char *fault = fault_of(settings);
    if (fault != NULL) {
        snprintf(why, why_len, "%s", fault);
        return WEIR_ERR_INVALID;
    }
    if (is_local(settings))
        return 0;
    int err = weir_redis_url_parse(&url, weir_str_of(settings->store), why, why_len);
    if (err != 0)
        return err;
    struct weir_ask_shared *shared = calloc(1, sizeof(*shared));
    if (shared == NULL)
        return WEIR_ERR_NOMEM;
    shared->settings = settings;
    shared->topology = url.topology;
    shared->on_error = read_policy(settings->on_store_error);
    shared->complaints.log = log;
    atomic_init(&shared->nodes, 1);
    err = weir_lease_board_new(&shared->board, BOARD_PLACES);
    if (err == 0 && url.is_tls)
        err = open_tls(shared, why, why_len);
    if (err != 0)
        weir_ask_shared_free(shared);
    else
        *out = shared;
    return err;
}

void weir_ask_shared_free(struct weir_ask_shared *shared)
{
    if (shared == NULL)
        return;
    weir_tls_free(shared->tls);
    weir_lease_board_free(shared->board);
    free(shared);
}

enum weir_on_store_error weir_ask_on_error(const struct weir_ask_shared *shared)
{
    return shared->on_error;
}

struct weir_redis_complaints *weir_ask_complaints(struct weir_ask_shared *shared)
{
    return &shared->complaints;
}

struct weir_tls *weir_ask_tls(const struct weir_ask_shared *shared)
{
    return shared->tls;
}

uint32_t weir_ask_nodes(const struct weir_ask_shared *shared)
{
    return atomic_load_explicit(&shared->nodes, memory_order_relaxed); /* a number of its own */
}

/* ---- of a worker ---- */

/* Theirs have none, unless somebody says so. */
static struct weir_str prefix_of(const struct weir_settings *settings)
{
    bool is_said = !settings->sources[WEIR_SETTING_NUMBER_store_prefix].is_default;
    return weir_str_of(settings->compat_keys && !is_said ? "" : settings->store_prefix);
}

static int open_link(struct weir_asks *asks, char *why, size_t why_len)
{
    const struct weir_settings *settings = asks->shared->settings;
    const struct weir_redis_link_options options = {
        .url = settings->store,
        .tls = asks->shared->tls,
        .deadline_ms = (uint32_t)settings->store_deadline,
        .queue_max = asks->max * 4, /* a request may be several calls */
        /* All workers lose a server together, nearly always: one of them says so. */
        .log = asks->worker->number == 0 ? weir_service_log(asks->worker->service) : NULL,
        .complaints = &asks->shared->complaints,
        .on_late = weir_ask_late,
        .replicas = (uint32_t)settings->store_wait,
        .on_replicated = weir_ask_replicated,
        .ctx = asks,
    };
    return weir_redis_link_new(&asks->link, asks->worker->loop, &options, why, why_len);
}

static void pay(void *ctx)
{
    weir_ask_return_more(ctx);
    weir_ask_pay(ctx);
}

static void count_nodes(void *ctx)
{
    weir_ask_nodes_tick(ctx);
}

/* One worker of a process tells the store that it is there. */
static int set_timers(struct weir_asks *asks)
{
    struct weir_loop_timer *timer;
    struct weir_loop *loop = asks->worker->loop;
    int err = weir_loop_every(loop, &timer, PAY_MS, pay, asks);
    if (err == 0 && asks->worker->number == 0)
        err = weir_ask_nodes_init(&asks->nodes, asks);
    if (err == 0 && asks->worker->number == 0)
        err = weir_loop_every(loop, &timer, NODES_MS, count_nodes, &asks->nodes);
    return err;
}

int weir_asks_new(struct weir_asks **out, struct weir_worker *worker,
                  struct weir_ask_shared *shared, char *why, size_t why_len)
{
    struct weir_asks *asks = calloc(1, sizeof(*asks));
    if (asks == NULL)
        return WEIR_ERR_NOMEM;
    asks->worker = worker;
    asks->shared = shared;
    asks->prefix = prefix_of(shared->settings);
    asks->max = (uint32_t)shared->settings->store_pending;
    asks->blocks = calloc(asks->max, WEIR_ASK_BLOCK);
    weir_redis_planner_init(&asks->planner, worker->session);
    asks->planner.is_compat = shared->settings->compat_keys;
    int err = asks->blocks == NULL ? WEIR_ERR_NOMEM : weir_ask_debts_new(&asks->debts);
    if (err == 0)
        err = weir_ask_leases_new(&asks->leases, asks);
    if (err == 0)
        err = weir_ask_waits_new(&asks->waits, asks);
    if (err == 0)
        err = open_link(asks, why, why_len);
    if (err == 0)
        err = set_timers(asks);
    if (err != 0) {
        weir_asks_free(asks);
        return err;
    }
    if (shared->settings->store_leases)
        asks->planner.leaser = weir_ask_leases_leaser(asks->leases);
    *out = asks;
    return 0;
}

void weir_asks_end(struct weir_asks *asks)
{
    weir_ask_leases_end(asks->leases);
}

void weir_asks_free(struct weir_asks *asks)
{
    if (asks == NULL)
        return;
    weir_redis_link_free(asks->link);
    while (asks->large != NULL) { /* of those who still waited */
        struct weir_ask_large *large = asks->large;
        asks->large = large->after;
        free(large);
    }
    while (asks->versions != NULL) {
        struct weir_ask_version *version = asks->versions;
        asks->versions = version->next;
        weir_publish_return(asks->worker->engine, version->published);
        free(version);
    }
    weir_redis_planner_fini(&asks->planner);
    weir_ask_nodes_fini(&asks->nodes);
    weir_ask_debts_free(asks->debts);
    weir_ask_leases_free(asks->leases);
    weir_ask_waits_free(asks->waits);
    free(asks->blocks);
    free(asks);
}

void weir_asks_set_eventual(struct weir_asks *asks, struct weir_eventual *eventual)
{
    asks->planner.eventual = eventual;
}

uint64_t weir_asks_count(const struct weir_asks *asks, enum weir_ask_count count)
{
    return atomic_load_explicit(&asks->counts[count], memory_order_relaxed);
}

const struct weir_redis_link *weir_asks_link(const struct weir_asks *asks)
{
    return asks->link;
}
