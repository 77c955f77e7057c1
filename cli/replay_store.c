/* replay_store.c - `weir replay --store`: the same decisions, made by Redis.
 *
 * One request, one call, one answer, in the trace's time; on keys of this replay's own, which Redis
 * forgets ten minutes after the last.
 *
 * Threads: one.  SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"
#include "replay.h"

#include "base/str.h"
#include "engine/publish.h"
#include "serve/redis_request.h"
#include "serve/redis_wire.h"

#include <stdlib.h>
#include <sys/random.h>

#define TIMEOUT_MS 10000
#define TRIES 4 /* of one call: the script is loaded, a changed rate is worked out */

struct cli_store {
    struct weir_redis_wire *wire;
    enum weir_redis_how how;
    char prefix[48];
    struct weir_redis_request request;
    struct weir_redis_planner planner;
};

static int complain(const struct cli_store *store, int err)
{
    cli_complain("--store: %s", weir_redis_wire_why(store->wire));
    return err;
}

/* What kind of error the last reply is; for who got WEIR_ERR_STORE. */
static enum weir_redis_error error_of(const struct cli_store *store)
{
    struct weir_redis_said said = weir_redis_wire_said(store->wire);
    if (said.count == 0)
        return WEIR_REDIS_ERROR_OTHER;
    return weir_redis_error_of(weir_redis_node_str(said.reader, &said.nodes[0]));
}

/* A function where the server takes one, otherwise a script. */
static int load(struct cli_store *store)
{
    weir_redis_put_load(weir_redis_wire_begin(store->wire), store->how);
    int err = weir_redis_wire_ask(store->wire);
    if (err != WEIR_ERR_STORE)
        return err == 0 ? 0 : complain(store, err);
    enum weir_redis_error error = error_of(store);
    if (weir_redis_cure_of(error) == WEIR_REDIS_CURE_NONE)
        return 0;
    if (store->how == WEIR_REDIS_FCALL &&
        (error == WEIR_REDIS_ERROR_NO_COMMAND || error == WEIR_REDIS_ERROR_NO_PERM)) {
        store->how = WEIR_REDIS_EVALSHA;
        return load(store);
    }
    return complain(store, err);
}

static int open_wire(struct cli_store *store, const char *text)
{
    struct weir_redis_url url;
    char why[256];
    if (weir_redis_url_parse(&url, weir_str_of(text), why, sizeof(why)) != 0) {
        cli_complain("--store: %s", why);
        return WEIR_ERR_INVALID;
    }
    if (url.topology != WEIR_REDIS_SINGLE || url.is_tls) {
        cli_complain("--store: a replay takes redis:// or unix:PATH");
        return WEIR_ERR_INVALID;
    }
    const struct weir_redis_wire_options options = {.url = text, .timeout_ms = TIMEOUT_MS};
    int err = weir_redis_wire_new(&store->wire, &options, why, sizeof(why));
    if (err != 0)
        cli_complain("--store: %s", why);
    return err;
}

int cli_store_new(struct cli_store **out, const char *url, struct weir_session *session)
{
    uint64_t number = 0;
    struct cli_store *store = calloc(1, sizeof(*store));
    if (store == NULL)
        return WEIR_ERR_NOMEM;
    weir_redis_planner_init(&store->planner, session);
    int err = getrandom(&number, sizeof(number), 0) == (ssize_t)sizeof(number) ? 0 : WEIR_ERR_IO;
    snprintf(store->prefix, sizeof(store->prefix),
             "weir-replay:%016llx:", (unsigned long long)number);
    if (err == 0)
        err = open_wire(store, url);
    if (err == 0)
        err = load(store);
    if (err != 0)
        cli_store_free(store);
    else
        *out = store;
    return err;
}

void cli_store_free(struct cli_store *store)
{
    if (store == NULL)
        return;
    weir_redis_wire_free(store->wire);
    weir_redis_planner_fini(&store->planner);
    free(store);
}

/* One call and its answer.  1: all is decided; 0: again; or an error. */
static int ask(struct cli_store *store, uint64_t now_ns)
{
    struct weir_redis_request *r = &store->request;
    const struct weir_redis_call call = {.counters = r->counters,
                                         .count = r->count,
                                         .is_atomic = r->is_atomic,
                                         .is_timed = true,
                                         .now_ns = now_ns};
    uint64_t decided_ns;
    weir_redis_put_call(weir_redis_wire_begin(store->wire), store->how, &call);
    int err = weir_redis_wire_ask(store->wire);
    if (err == WEIR_ERR_STORE && weir_redis_cure_of(error_of(store)) == WEIR_REDIS_CURE_LOAD)
        return load(store);
    if (err != 0)
        return complain(store, err);
    struct weir_redis_said said = weir_redis_wire_said(store->wire);
    err = weir_redis_answer_read(said.reader, said.nodes, said.count, r->counters, r->count,
                                 &decided_ns);
    if (err != 0)
        return err;
    r->count = weir_redis_request_settle(r, 0, r->count);
    return r->count == 0;
}

int cli_store_check(struct cli_store *store, const struct weir_request *request, uint64_t now_ns,
                    struct weir_decision *out, bool *is_store)
{
    struct weir_redis_request *r = &store->request;
    *is_store = false;
    weir_publish_hold(store->planner.session);
    int err = weir_redis_request_plan(r, &store->planner, request, weir_str_of(store->prefix),
                                      now_ns, out->statuses);
    if (err != 0)
        return err;
    int done = r->count == 0;
    for (int tries = 0; done == 0 && tries < TRIES; tries++)
        done = ask(store, now_ns);
    if (done != 1) {
        *is_store = true;
        return done < 0 ? done : WEIR_ERR_STORE;
    }
    weir_redis_request_decide(r, store->planner.session, now_ns, out);
    return 0;
}
