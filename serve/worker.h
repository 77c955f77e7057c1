/* worker.h - what a front end has at hand in its thread.
 *
 * One worker a thread: a loop, a session of the engine, counters.  Front ends translate between
 * their protocol's codec (lib/proto, no I/O) and weir_check(); they keep no state beyond a
 * connection's.
 *
 * Counters are the worker's own, so counting is an addition and no cache line travels; whoever
 * wants a sum reads them all (weir_service_count()).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_WORKER_H
#define WEIR_SERVE_WORKER_H

#include "base/budget.h"
#include "base/maxima.h"
#include "net/net.h"
#include "proto/pool.h"
#include "serve/response_times.h"

#include <pthread.h>
#include <stdatomic.h>
#include <weir/weir.h>

struct weir_service; /* serve/service.h: settings, listeners, life */
struct weir_asks;

/* The front ends by number, in the order of fronts.def's full list. */
enum weir_front {
    WEIR_FRONT_GRPC,
    WEIR_FRONT_HTTP,
    WEIR_FRONT_RESP,
    WEIR_FRONT_DESK,
    WEIR_FRONT_ADMIN,
    WEIR_FRONTS
};

/* What a worker counts, for each front end. */
enum weir_front_count {
    WEIR_FRONT_COUNT_REQUESTS,   /* that were decided */
    WEIR_FRONT_COUNT_OVER_LIMIT, /* of these, refused */
    WEIR_FRONT_COUNT_SHADOWED,   /* or not refused for the service's shadow mode alone */
    WEIR_FRONT_COUNT_BAD,        /* requests that made no sense, or were over a maximum */
    WEIR_FRONT_COUNTS
};

struct weir_worker {
    struct weir_service *service;
    struct weir *engine;
    struct weir_loop *loop;
    struct weir_session *session;
    uint32_t number;
    uint64_t ids;                            /* given to connections */
    struct weir_pool pool;                   /* for small blocks of memory */
    struct weir_budget budget;               /* for requests that are not whole yet */
    struct weir_holds *holds;                /* serve/hold.h */
    struct weir_asks *asks;                  /* serve/ask.h; NULL: the table decides all */
    struct weir_front_grpc_conn *grpc_conns; /* all that are open, for health's sake */
    bool is_timed;                           /* somebody wants to know grpc_times */
    struct weir_response_times grpc_times;   /* of ShouldRateLimit */
    /* The service's own. */
    bool is_started;
    pthread_t thread;
    struct weir_post health_post; /* weir_front_grpc_tell_health() */
    struct weir_post end_post;    /* what was leased goes back */
    _Atomic uint64_t beats;       /* grows while the loop turns */
    _Alignas(64) _Atomic uint64_t counts[WEIR_FRONTS][WEIR_FRONT_COUNTS];
};

/* The worker of the thread that runs this connection's loop. */
struct weir_worker *weir_worker_of(const struct weir_conn *conn);

/* In the worker's thread only: a number that no other connection has. */
static inline uint64_t weir_worker_next_id(struct weir_worker *worker)
{
    return ++worker->ids << 10 | worker->number;
}

/* In the worker's thread only. */
static inline void weir_worker_add(struct weir_worker *worker, enum weir_front front,
                                   enum weir_front_count counter, uint64_t n)
{
    /* relaxed, and no read-modify-write: one writer; readers want a number that was true once */
    _Atomic uint64_t *count = &worker->counts[front][counter];
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* Posted to a worker's loop: health has changed; whoever watches it over gRPC is told. */
void weir_front_grpc_tell_health(struct weir_post *post, struct weir_loop *loop);

/* Each front end: the table of functions that net drives.  protocol_ctx is the weir_service. */
extern const struct weir_protocol weir_front_grpc;  /* front_grpc.c */
extern const struct weir_protocol weir_front_http;  /* front_http.c: /check /json /healthcheck */
extern const struct weir_protocol weir_front_resp;  /* front_resp.c */
extern const struct weir_protocol weir_front_desk;  /* front_desk.c: nginx with our module */
extern const struct weir_protocol weir_front_admin; /* front_admin.c: /metrics /rlconfig /api/v1 */

/* For the service: workers made, run in threads, waited for.  done_fd is an eventfd that each
 * thread adds 1 to when it ends. */
WEIR_MUST_CHECK int weir_worker_init(struct weir_worker *worker, struct weir_service *service,
                                     struct weir *engine, uint32_t number);
WEIR_MUST_CHECK int weir_worker_start(struct weir_worker *worker, int done_fd, uint32_t beat_ms);
void weir_worker_join(struct weir_worker *worker);
void weir_worker_fini(struct weir_worker *worker); /* accepts a half-made one */

#endif
