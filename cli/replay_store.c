/* replay_store.c - `weir replay --store`: the same decisions, made by Redis.
 *
 * One request, one call, one answer, in the trace's time; on keys of this replay's own, which Redis
 * forgets ten minutes after the last.
 *
 * Threads: one.  SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"
#include "replay.h"

#include "base/str.h"
#include "net/wire.h"
#include "serve/redis_request.h"
#include "store/redis/reply.h"
#include "store/redis/url.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#define TIMEOUT_MS 10000
#define OUT_MAX (16u << 20)
#define TRIES 4 /* of one call: the script is loaded, a changed rate is worked out */

struct cli_store {
    int wire; /* -1: none */
    enum weir_redis_how how;
    struct weir_buf out;
    struct weir_redis_reader *reader;
    const struct weir_redis_node *nodes; /* of the last reply */
    uint32_t node_count;
    char prefix[48];
    struct weir_redis_url url;
    struct weir_redis_request request;
};

static struct weir_str words_of(const struct cli_store *store)
{
    return weir_redis_node_str(store->reader, &store->nodes[0]);
}

/* Waits for one reply. */
static int next_reply(struct cli_store *store)
{
    char bytes[16384];
    int got;
    while ((got = weir_redis_reader_next(store->reader, &store->nodes, &store->node_count)) == 0) {
        int len = weir_wire_recv(store->wire, bytes, sizeof(bytes));
        int err = len < 0 ? len : weir_redis_reader_feed(store->reader, bytes, (size_t)len);
        if (err != 0) {
            cli_complain("the store does not answer: %s", strerror(errno));
            return err;
        }
    }
    if (got < 0)
        cli_complain("the store speaks another protocol than Redis's");
    return got < 0 ? got : 0;
}

/* Sends what was put, and waits for as many replies as that gets; none may be an error. */
static int converse(struct cli_store *store, uint32_t replies)
{
    int err = store->out.has_failed ? WEIR_ERR_TOO_LARGE
                                    : weir_wire_send(store->wire, store->out.ptr, store->out.len);
    weir_buf_cut(&store->out, 0);
    if (err != 0)
        cli_complain("the store cannot be written to: %s", weir_strerror(err));
    for (; err == 0 && replies > 0; replies--) {
        err = next_reply(store);
        if (err == 0 && store->nodes[0].type == WEIR_REDIS_ERROR && replies > 1) {
            cli_complain("the store says: %.*s", WEIR_STR_ARG(words_of(store)));
            err = WEIR_ERR_STORE;
        }
    }
    return err;
}

/* As converse(), where the last reply may be no error either. */
static int command(struct cli_store *store, uint32_t replies)
{
    int err = converse(store, replies);
    if (err != 0 || replies == 0 || store->nodes[0].type != WEIR_REDIS_ERROR)
        return err;
    enum weir_redis_error error = weir_redis_error_of(words_of(store));
    if (weir_redis_cure_of(error) == WEIR_REDIS_CURE_NONE)
        return 0;
    cli_complain("the store says: %.*s", WEIR_STR_ARG(words_of(store)));
    return WEIR_ERR_STORE;
}

/* A function where the server takes one, otherwise a script. */
static int load(struct cli_store *store)
{
    weir_redis_put_load(&store->out, store->how);
    int err = converse(store, 1);
    if (err != 0 || store->nodes[0].type != WEIR_REDIS_ERROR)
        return err;
    enum weir_redis_error error = weir_redis_error_of(words_of(store));
    if (weir_redis_cure_of(error) == WEIR_REDIS_CURE_NONE)
        return 0;
    if (store->how == WEIR_REDIS_FCALL &&
        (error == WEIR_REDIS_ERROR_NO_COMMAND || error == WEIR_REDIS_ERROR_NO_PERM)) {
        store->how = WEIR_REDIS_EVALSHA;
        return load(store);
    }
    cli_complain("the store does not take the script: %.*s", WEIR_STR_ARG(words_of(store)));
    return WEIR_ERR_STORE;
}

static int connect_store(struct cli_store *store, const char *text)
{
    char why[256], address[512];
    if (weir_redis_url_parse(&store->url, weir_str_of(text), why, sizeof(why)) != 0) {
        cli_complain("--store: %s", why);
        return WEIR_ERR_INVALID;
    }
    const struct weir_redis_host *first = &store->url.hosts[0];
    if (store->url.topology != WEIR_REDIS_SINGLE || store->url.is_tls) {
        cli_complain("--store: a replay takes redis:// or unix:PATH");
        return WEIR_ERR_INVALID;
    }
    bool is_v6 = memchr(first->name.ptr, ':', first->name.len) != NULL;
    if (first->port == 0)
        snprintf(address, sizeof(address), "unix:%.*s", WEIR_STR_ARG(first->name));
    else
        snprintf(address, sizeof(address), is_v6 ? "[%.*s]:%u" : "%.*s:%u",
                 WEIR_STR_ARG(first->name), (unsigned)first->port);
    int err = weir_wire_open(&store->wire, address, TIMEOUT_MS, why, sizeof(why));
    if (err != 0) {
        cli_complain("--store: %s", why);
        return err;
    }
    return command(store, weir_redis_put_greeting(&store->out, &store->url));
}

int cli_store_new(struct cli_store **out, const char *url, struct weir_session *session)
{
    uint64_t number = 0;
    struct cli_store *store = calloc(1, sizeof(*store));
    if (store == NULL)
        return WEIR_ERR_NOMEM;
    store->wire = -1;
    weir_buf_init(&store->out, OUT_MAX);
    weir_redis_request_init(&store->request, session);
    int err = weir_redis_reader_new(&store->reader);
    if (err == 0 && getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
        err = WEIR_ERR_IO;
    snprintf(store->prefix, sizeof(store->prefix),
             "weir-replay:%016llx:", (unsigned long long)number);
    if (err == 0)
        err = connect_store(store, url);
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
    if (store->wire >= 0)
        weir_wire_close(store->wire);
    weir_redis_reader_free(store->reader);
    weir_redis_request_fini(&store->request);
    weir_buf_fini(&store->out);
    free(store);
}

/* One call and its answer.  1: all is decided; 0: again; or an error. */
static int ask(struct cli_store *store, uint64_t now_ns)
{
    struct weir_redis_request *r = &store->request;
    struct weir_redis_call call = weir_redis_request_call(r);
    uint64_t decided_ns;
    call.is_timed = true;
    call.now_ns = now_ns;
    weir_redis_put_call(&store->out, store->how, &call);
    int err = converse(store, 1);
    if (err != 0)
        return err;
    if (store->nodes[0].type == WEIR_REDIS_ERROR) {
        enum weir_redis_error error = weir_redis_error_of(words_of(store));
        if (weir_redis_cure_of(error) == WEIR_REDIS_CURE_LOAD)
            return load(store);
        cli_complain("the store says: %.*s", WEIR_STR_ARG(words_of(store)));
        return WEIR_ERR_STORE;
    }
    err = weir_redis_answer_read(store->reader, store->nodes, store->node_count, r->counters,
                                 r->count, &decided_ns);
    return err != 0 ? err : weir_redis_request_settle(r);
}

int cli_store_check(struct cli_store *store, const struct weir_request *request, uint64_t now_ns,
                    struct weir_decision *out, bool *is_store)
{
    struct weir_redis_request *r = &store->request;
    *is_store = false;
    int err =
        weir_redis_request_plan(r, request, weir_str_of(store->prefix), now_ns, out->statuses);
    if (err != 0)
        return err;
    int done = r->count == 0;
    for (int tries = 0; done == 0 && tries < TRIES; tries++)
        done = ask(store, now_ns);
    if (done != 1) {
        *is_store = true;
        return done < 0 ? done : WEIR_ERR_STORE;
    }
    weir_redis_request_decide(r, out);
    return 0;
}
