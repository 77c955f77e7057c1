/* front_grpc.c - Envoy's rate limit service and gRPC's health checks, on an HTTP/2 connection.
 *
 *     feed   bytes -> streams -> calls that are complete: `ready`, in the order of their ends
 *     turn   ready -> batches -> weir_check_many() -> answers -> one write
 *
 * Calls wait for the end of a turn because many come together, and the engine decides many faster
 * than one: it fetches memory ahead.  A call that is reset before its turn was never decided and
 * has counted nothing.
 *
 * Where a store is asked, a call waits for its decision in `pending`; its message stays in the
 * stream, and is read again to be answered.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "engine/publish.h"
#include "proto/grpc.h"
#include "proto/health.h"
#include "proto/rls.h"
#include "serve/ask.h"
#include "serve/envoy.h"
#include "serve/service.h"
#include "serve/worker.h"

#include <stdlib.h>

#define BATCH_MAX 64 /* calls decided together */
#define NS_PER_MS UINT64_C(1000000)

enum method { SHOULD_RATE_LIMIT, HEALTH_CHECK, HEALTH_WATCH, METHODS };

#define TEXT(literal)                                                                              \
    {                                                                                              \
        literal, sizeof(literal) - 1                                                               \
    }

static const struct weir_str paths[METHODS] = {
    [SHOULD_RATE_LIMIT] = TEXT("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"),
    [HEALTH_CHECK] = TEXT("/grpc.health.v1.Health/Check"),
    [HEALTH_WATCH] = TEXT("/grpc.health.v1.Health/Watch"),
};
static const struct weir_grpc_methods methods = {.paths = paths, .count = METHODS};

struct calls {
    struct call *first, *last;
};

/* What we keep of a stream, in its extra bytes. */
struct call {
    struct weir_grpc_call grpc;
    struct weir_h2_stream *stream;
    struct call *before, *after;
    struct calls *list; /* where it waits: coming, ready, pending, watchers, or NULL */
    struct weir_front_grpc_conn *front;
    struct weir_waiter waiter; /* in pending */
    uint64_t begun_ns;         /* when its first bytes came; in pending: when it was whole */
    enum weir_health told;     /* to a watcher */
    bool is_of_service;        /* it watches "ratelimit" */
};

/* A connection. */
struct weir_front_grpc_conn {
    struct weir_front_grpc_conn *before, *after; /* of the same worker */
    struct weir_conn *conn;
    struct weir_worker *worker;
    struct weir_h2 *h2;
    bool is_alive; /* net knows that the peer is sensible */
    bool is_draining;
    bool has_said_why; /* the log knows what the peer did wrong */
    uint64_t now_ns;   /* of this turn */
    struct calls coming, ready, pending, watchers;
    struct weir_rls_options options;
};

/* On the stack, and so not set to zero: of most of it, most turns use little. */
struct batch {
    size_t count;
    struct call *calls[BATCH_MAX];
    struct weir_request requests[BATCH_MAX];
    struct weir_decision decisions[BATCH_MAX];
    int results[BATCH_MAX];
    struct weir_status statuses[WEIR_DESCRIPTORS_MAX];
    struct weir_rls_room room;
};

/* ---- lists of calls ---- */

static void call_leave(struct call *call)
{
    struct calls *list = call->list;
    if (!list)
        return;
    *(call->before ? &call->before->after : &list->first) = call->after;
    *(call->after ? &call->after->before : &list->last) = call->before;
    call->list = NULL;
}

static void call_enter(struct call *call, struct calls *list)
{
    call->list = list;
    call->after = NULL;
    call->before = list->last;
    *(list->last ? &list->last->after : &list->first) = call;
    list->last = call;
}

/* ---- what h2 tells ---- */

static struct call *call_of(struct weir_h2_stream *stream)
{
    return (struct call *)(void *)stream->extra;
}

static void on_begin(void *ctx, struct weir_h2_stream *stream)
{
    struct weir_front_grpc_conn *front = ctx;
    struct call *call = call_of(stream);
    weir_grpc_begin(&call->grpc);
    call->stream = stream;
    call->front = front;
    call->waiter.ask = NULL;
    call->begun_ns = front->now_ns;
    call_enter(call, &front->coming);
}

static void on_header(void *ctx, struct weir_h2_stream *stream, struct weir_str name,
                      struct weir_str value)
{
    const struct weir_front_grpc_conn *front = ctx;
    weir_grpc_header(&call_of(stream)->grpc, &methods, name, value, front->now_ns);
}

static void on_request(void *ctx, struct weir_h2_stream *stream)
{
    struct weir_front_grpc_conn *front = ctx;
    struct call *call = call_of(stream);
    if (call->list == &front->coming) {
        call_leave(call);
        call_enter(call, &front->ready);
    }
}

static void on_data(void *ctx, struct weir_h2_stream *stream)
{
    if (weir_grpc_is_too_large(stream)) { /* what is announced need not come before we refuse */
        stream->fault = WEIR_H2_BODY_TOO_LARGE;
        on_request(ctx, stream);
    }
}

static void on_close(void *ctx, struct weir_h2_stream *stream)
{
    struct call *call = call_of(stream);
    (void)ctx;
    weir_ask_cancel(&call->waiter);
    call_leave(call);
}

static const struct weir_h2_events events = {
    .extra_bytes = sizeof(struct call),
    .name_lens = WEIR_GRPC_NAME_LENS,
    .begin = on_begin,
    .header = on_header,
    .data = on_data,
    .request = on_request,
    .close = on_close,
};

/* ---- health ---- */

static enum weir_health health_of(const struct weir_front_grpc_conn *front, bool is_of_service)
{
    if (is_of_service && (front->is_draining || !weir_service_is_healthy(front->worker->service)))
        return WEIR_HEALTH_NOT_SERVING;
    return WEIR_HEALTH_SERVING; /* "" asks whether the server answers at all */
}

static void tell_health(struct weir_front_grpc_conn *front, struct call *call,
                        enum weir_health health)
{
    uint8_t *out = weir_grpc_out(front->h2, call->stream, WEIR_HEALTH_LEN);
    if (out)
        weir_health_pack(health, out);
    call->told = health;
}

static void health_check(struct weir_front_grpc_conn *front, struct call *call,
                         struct weir_str service)
{
    bool is_of_service = weir_str_eq(service, WEIR_STR("ratelimit"));
    if (!is_of_service && service.len > 0) {
        struct weir_grpc_status status = {WEIR_GRPC_NOT_FOUND, "unknown service"};
        weir_grpc_refuse(front->h2, call->stream, status);
        return;
    }
    tell_health(front, call, health_of(front, is_of_service));
    weir_grpc_reply(front->h2, call->stream);
}

static void health_watch(struct weir_front_grpc_conn *front, struct call *call,
                         struct weir_str service)
{
    call->is_of_service = weir_str_eq(service, WEIR_STR("ratelimit"));
    bool is_known = call->is_of_service || service.len == 0;
    tell_health(front, call,
                is_known ? health_of(front, call->is_of_service) : WEIR_HEALTH_SERVICE_UNKNOWN);
    weir_grpc_reply_open(front->h2, call->stream);
    call_enter(call, &front->watchers);
}

static void health_call(struct weir_front_grpc_conn *front, struct call *call,
                        struct weir_str message)
{
    _Alignas(16) uint8_t block[4096];
    struct weir_bump memory;
    struct weir_str service;
    weir_bump_init(&memory, block, sizeof(block));
    int err = weir_health_decode(&memory, message, &service);
    if (err) {
        struct weir_grpc_status status = {WEIR_GRPC_INTERNAL, "not a HealthCheckRequest"};
        if (err == WEIR_ERR_TOO_LARGE)
            status = (struct weir_grpc_status){WEIR_GRPC_NOT_FOUND, "unknown service"};
        weir_grpc_refuse(front->h2, call->stream, status);
    } else if (call->grpc.method == HEALTH_WATCH) {
        health_watch(front, call, service);
    } else {
        health_check(front, call, service);
    }
}

/* Tells watchers what has changed. */
static void update_watchers(struct weir_front_grpc_conn *front)
{
    for (struct call *call = front->watchers.first; call; call = call->after) {
        enum weir_health health = health_of(front, call->is_of_service);
        if (call->is_of_service && call->told != health) {
            tell_health(front, call, health);
            weir_h2_resume(front->h2, call->stream);
        }
    }
}

/* ---- decisions ---- */

static void refuse(struct weir_front_grpc_conn *front, struct call *call,
                   struct weir_grpc_status status)
{
    weir_worker_add(front->worker, WEIR_FRONT_GRPC, WEIR_FRONT_COUNT_BAD, 1);
    weir_grpc_refuse(front->h2, call->stream, status);
}

static struct weir_grpc_status refusal_of(int err)
{
    switch (err) {
    case WEIR_ERR_DOMAIN_EMPTY:
    case WEIR_ERR_DESCRIPTORS_EMPTY:
    case WEIR_ERR_OVERRIDE_UNIT:
        return (struct weir_grpc_status){WEIR_GRPC_INVALID_ARGUMENT, weir_strerror(err)};
    case WEIR_ERR_NO_RULES:
        return (struct weir_grpc_status){WEIR_GRPC_UNAVAILABLE, weir_strerror(err)};
    case WEIR_ERR_TOO_LARGE:
        return (struct weir_grpc_status){
            WEIR_GRPC_RESOURCE_EXHAUSTED,
            "over a maximum: 64 descriptors, 32 entries in each, 256 bytes of a domain or a key, "
            "4096 of a value"};
    case WEIR_ERR_INVALID:
        return (struct weir_grpc_status){WEIR_GRPC_INTERNAL,
                                         "not a RateLimitRequest, or not UTF-8"};
    default:
        return (struct weir_grpc_status){WEIR_GRPC_INTERNAL, weir_strerror(err)};
    }
}

static void batch_init(struct batch *batch)
{
    batch->count = 0;
    weir_rls_room_empty(&batch->room);
}

/* Adds a call, or refuses it; false where the batch must be decided first. */
static bool batch_add(struct batch *batch, struct weir_front_grpc_conn *front, struct call *call,
                      struct weir_str message)
{
    uint32_t status_count = batch->room.descriptor_count;
    int err = weir_rls_decode(&batch->room, message, &batch->requests[batch->count]);
    if (err == WEIR_ERR_FULL)
        return false;
    if (err) {
        refuse(front, call, refusal_of(err));
        return true;
    }
    batch->decisions[batch->count].statuses = &batch->statuses[status_count];
    batch->calls[batch->count++] = call;
    return true;
}

/* Takes ready calls: those that need no decision are answered, the others added. */
static void batch_fill(struct batch *batch, struct weir_front_grpc_conn *front, uint64_t now_ns)
{
    struct call *call;
    while ((call = front->ready.first) && batch->count < BATCH_MAX) {
        struct weir_str message;
        uint32_t http_status;
        struct weir_grpc_status status =
            weir_grpc_message(&call->grpc, call->stream, now_ns, &message, &http_status);
        if (status.code == WEIR_GRPC_OK && call->grpc.method == SHOULD_RATE_LIMIT) {
            if (!batch_add(batch, front, call, message))
                return;
            call_leave(call);
            continue;
        }
        call_leave(call);
        if (http_status != 200)
            weir_grpc_refuse_http(front->h2, call->stream, http_status);
        else if (status.code != WEIR_GRPC_OK)
            refuse(front, call, status);
        else
            health_call(front, call, message);
    }
}

static void answer(struct weir_front_grpc_conn *front, struct batch *batch, size_t i,
                   struct weir_bump *memory)
{
    struct weir_h2_stream *stream = batch->calls[i]->stream;
    struct weir_rls_response response;
    if (batch->results[i] == WEIR_ASK_PENDING)
        return;
    if (batch->results[i]) {
        refuse(front, batch->calls[i], refusal_of(batch->results[i]));
        return;
    }
    weir_rls_respond(&response, memory, &front->options, &batch->requests[i], &batch->decisions[i]);
    uint8_t *out = weir_grpc_out(front->h2, stream, response.len);
    if (!out) {
        refuse(front, batch->calls[i], refusal_of(WEIR_ERR_NOMEM));
        return;
    }
    weir_rls_pack(&response, out);
    weir_grpc_reply(front->h2, stream);
}

static void count(const struct weir_front_grpc_conn *front, struct batch *batch)
{
    bool has_shadow = weir_service_settings(front->worker->service)->shadow_mode;
    struct weir_envoy_sums sums = {0};
    for (size_t i = 0; i < batch->count; i++)
        if (batch->results[i] == 0)
            weir_envoy_decided(&sums, &batch->decisions[i], has_shadow, front->now_ns);
    weir_envoy_count(&sums, front->worker, WEIR_FRONT_GRPC);
}

/* alloc: for dynamic metadata, which is off unless an operator wants it. */
static void answer_all(struct weir_front_grpc_conn *front, struct batch *batch)
{
    uint8_t *block = front->options.has_metadata ? malloc(WEIR_RLS_METADATA_MEMORY) : NULL;
    for (size_t i = 0; i < batch->count; i++) {
        struct weir_bump memory;
        weir_bump_init(&memory, block, block ? WEIR_RLS_METADATA_MEMORY : 0);
        answer(front, batch, i, &memory);
    }
    free(block);
}

/* The store has answered: the call is a batch of its own. */
static void on_decided(struct weir_waiter *waiter, struct weir_decision *decision)
{
    struct call *call = (struct call *)(void *)((char *)waiter - offsetof(struct call, waiter));
    struct weir_front_grpc_conn *front = call->front;
    struct weir_str message;
    uint32_t http_status;
    struct batch batch;
    front->now_ns = weir_loop_now(front->worker->loop);
    struct weir_grpc_status status =
        weir_grpc_message(&call->grpc, call->stream, front->now_ns, &message, &http_status);
    call_leave(call);
    weir_conn_wake(front->conn);
    if (status.code != WEIR_GRPC_OK) { /* its time is up */
        refuse(front, call, status);
        return;
    }
    if (front->worker->is_timed)
        weir_response_times_add(&front->worker->grpc_times, call->begun_ns, front->now_ns, 1);
    batch_init(&batch);
    batch_add(&batch, front, call, message);
    batch.results[0] = 0;
    batch.decisions[0] = *decision;
    count(front, &batch);
    answer_all(front, &batch);
}

static void ask_store(struct weir_front_grpc_conn *front, struct batch *batch)
{
    struct weir_worker *worker = front->worker;
    weir_publish_hold(worker->session);
    for (size_t i = 0; i < batch->count; i++) {
        struct call *call = batch->calls[i];
        call->waiter.done = on_decided;
        batch->results[i] = weir_ask_start(worker->asks, &batch->requests[i], front->now_ns,
                                           &batch->decisions[i], &call->waiter);
        if (batch->results[i] != WEIR_ASK_PENDING)
            continue;
        call->begun_ns = front->now_ns;
        call_enter(call, &front->pending);
    }
}

/* How long those took that are answered: one look at the clock for all. */
static void time_batch(const struct weir_front_grpc_conn *front, const struct batch *batch)
{
    struct weir_worker *worker = front->worker;
    uint64_t calls = 0;
    if (!worker->is_timed)
        return;
    for (size_t i = 0; i < batch->count; i++)
        calls += batch->results[i] != WEIR_ASK_PENDING;
    if (calls > 0)
        weir_response_times_add(&worker->grpc_times, front->now_ns, weir_now(worker->engine),
                                calls);
}

static void decide_some(struct weir_front_grpc_conn *front)
{
    struct batch batch;
    batch_init(&batch);
    batch_fill(&batch, front, front->now_ns);
    if (front->worker->asks != NULL)
        ask_store(front, &batch);
    else
        weir_check_many(front->worker->session, batch.requests, batch.count, front->now_ns,
                        batch.decisions, batch.results);
    count(front, &batch);
    answer_all(front, &batch);
    time_batch(front, &batch);
}

/* ---- what net tells ---- */

/* Those that have been coming for too long: a peer that sends a byte now and then is never idle. */
static void refuse_slow(struct weir_front_grpc_conn *front)
{
    static const struct weir_grpc_status late = {WEIR_GRPC_DEADLINE_EXCEEDED,
                                                 "the request did not come in time"};
    const struct weir_settings *settings = weir_service_settings(front->worker->service);
    uint64_t limit_ns = settings->request_timeout * NS_PER_MS;
    struct call *call;
    while ((call = front->coming.first) && front->now_ns > call->begun_ns &&
           front->now_ns - call->begun_ns > limit_ns) {
        call_leave(call);
        refuse(front, call, late);
        WEIR_LOG(weir_service_log(front->worker->service), WEIR_LOG_INFO,
                 "request not whole in time", WEIR_LOG_TEXT("protocol", "grpc"),
                 WEIR_LOG_KEY("peer", weir_str_of(weir_conn_peer(front->conn))));
    }
}

/* Once, if the peer did something wrong. */
static void say_why(struct weir_front_grpc_conn *front)
{
    const char *why = weir_h2_why(front->h2);
    if (why[0] == '\0' || front->has_said_why)
        return;
    front->has_said_why = true;
    WEIR_LOG(weir_service_log(front->worker->service), WEIR_LOG_WARN, "connection closed",
             WEIR_LOG_TEXT("protocol", "grpc"),
             WEIR_LOG_KEY("peer", weir_str_of(weir_conn_peer(front->conn))),
             WEIR_LOG_TEXT("why", why));
}

static int front_open(void **state, void *ctx, struct weir_conn *conn)
{
    const struct weir_settings *settings = weir_service_settings(ctx);
    struct weir_front_grpc_conn *front = calloc(1, sizeof(*front));
    if (!front)
        return WEIR_ERR_NOMEM;
    front->conn = conn;
    front->worker = weir_worker_of(conn);
    front->options = (struct weir_rls_options){
        .has_headers = settings->response_headers,
        .limit_header = weir_str_of(settings->limit_header),
        .remaining_header = weir_str_of(settings->remaining_header),
        .reset_header = weir_str_of(settings->reset_header),
        .has_metadata = settings->dynamic_metadata,
    };
    int err = weir_h2_new(&front->h2, &events, front, &front->worker->pool);
    if (err) {
        free(front);
        return err;
    }
    weir_h2_set_budget(front->h2, &front->worker->budget);
    front->after = front->worker->grpc_conns;
    if (front->after)
        front->after->before = front;
    front->worker->grpc_conns = front;
    *state = front;
    weir_conn_wake(conn); /* our SETTINGS need not wait for the client's */
    return 0;
}

static int front_feed(void *state, const uint8_t *bytes, size_t len)
{
    struct weir_front_grpc_conn *front = state;
    front->now_ns = weir_loop_now(front->worker->loop);
    int err = weir_h2_feed(front->h2, bytes, len, front->now_ns);
    if (!front->is_alive && weir_h2_is_greeted(front->h2)) {
        front->is_alive = true;
        weir_conn_alive(front->conn);
    }
    if (front->coming.first)
        refuse_slow(front);
    return err;
}

static void send(void *ctx, const void *bytes, size_t len)
{
    weir_conn_send(ctx, bytes, len);
}

static int front_turn(void *state)
{
    struct weir_front_grpc_conn *front = state;
    front->now_ns = weir_loop_now(front->worker->loop);
    while (front->ready.first)
        decide_some(front);
    if (front->watchers.first)
        update_watchers(front);
    if (weir_h2_flush(front->h2, send, front->conn))
        weir_conn_finish(front->conn);
    say_why(front);
    return 0;
}

static void front_drain(void *state)
{
    struct weir_front_grpc_conn *front = state;
    front->is_draining = true;
    update_watchers(front);
    for (struct call *call = front->watchers.first; call; call = call->after)
        weir_grpc_end_unavailable(front->h2, call->stream);
    weir_h2_drain(front->h2);
    weir_conn_wake(front->conn);
}

/* Who watches our health hears nothing while it is good: it stays as long as it answers pings.  Any
 * other is told to go, so that a call that is on its way is not lost. */
static bool front_expire(void *state, bool is_amid)
{
    struct weir_front_grpc_conn *front = state;
    (void)is_amid;
    if (front->watchers.first)
        weir_h2_ping(front->h2);
    else
        weir_h2_drain(front->h2);
    weir_conn_wake(front->conn);
    return true;
}

static void front_close(void *state)
{
    struct weir_front_grpc_conn *front = state;
    if (front->after)
        front->after->before = front->before;
    *(front->before ? &front->before->after : &front->worker->grpc_conns) = front->after;
    for (struct call *call = front->pending.first; call; call = call->after)
        weir_ask_cancel(&call->waiter);
    weir_h2_free(front->h2);
    free(front);
}

void weir_front_grpc_tell_health(struct weir_post *post, struct weir_loop *loop)
{
    const struct weir_worker *worker = loop ? weir_loop_owner(loop) : NULL;
    (void)post;
    for (struct weir_front_grpc_conn *at = worker ? worker->grpc_conns : NULL; at; at = at->after) {
        if (at->watchers.first)
            weir_conn_wake(at->conn); /* turn() tells them */
    }
}

const struct weir_protocol weir_front_grpc = {
    .name = "grpc",
    .open = front_open,
    .feed = front_feed,
    .turn = front_turn,
    .drain = front_drain,
    .expire = front_expire,
    .close = front_close,
};
