/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/worker.h"

#include "base/err.h"
#include "serve/ask.h"
#include "serve/hold.h"
#include "serve/service.h"
#include "serve/statsd.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>

struct weir_worker *weir_worker_of(const struct weir_conn *conn)
{
    return weir_loop_owner(weir_conn_loop(conn));
}

static uint64_t read_clock(void *ctx)
{
    const struct weir_worker *worker = ctx;
    return weir_now(worker->engine);
}

static void beat(void *ctx)
{
    struct weir_worker *worker = ctx;
    /* relaxed: a sign of life, nothing hangs on it */
    atomic_fetch_add_explicit(&worker->beats, 1, memory_order_relaxed);
}

static void end_asks(struct weir_post *post, struct weir_loop *loop)
{
    const struct weir_worker *worker = weir_loop_owner(loop);
    (void)post;
    if (worker->asks != NULL)
        weir_asks_end(worker->asks);
}

int weir_worker_init(struct weir_worker *worker, struct weir_service *service, struct weir *engine,
                     uint32_t number)
{
    worker->service = service;
    worker->engine = engine;
    worker->number = number;
    worker->health_post.run = weir_front_grpc_tell_health;
    worker->end_post.run = end_asks;
    worker->is_timed = weir_statsd_is_on(weir_service_settings(service));
    worker->budget.left = (size_t)weir_service_settings(service)->request_memory;
    int err = weir_loop_new(&worker->loop);
    if (err == 0)
        err = weir_session_open(&worker->session, engine);
    if (err == 0)
        err = weir_holds_new(&worker->holds, worker->loop,
                             (uint32_t)weir_service_settings(service)->hold_requests);
    if (err == 0)
        weir_loop_set_owner(worker->loop, worker);
    return err;
}

struct start {
    struct weir_worker *worker;
    int done_fd;
};

static void *run(void *ctx)
{
    struct start start = *(struct start *)ctx;
    char name[16];
    free(ctx);
    snprintf(name, sizeof(name), "weir-%u", start.worker->number % 100000);
    pthread_setname_np(pthread_self(), name); /* for top -H; without it all is as well */
    weir_loop_run(start.worker->loop, read_clock, start.worker);
    if (eventfd_write(start.done_fd, 1) != 0)
        weir_panic("an eventfd takes a 1", __FILE__, __LINE__);
    return NULL;
}

int weir_worker_start(struct weir_worker *worker, int done_fd, uint32_t beat_ms)
{
    struct weir_loop_timer *timer;
    if (beat_ms > 0 && weir_loop_every(worker->loop, &timer, beat_ms, beat, worker) != 0)
        return WEIR_ERR_NOMEM;
    struct start *start = malloc(sizeof(*start));
    if (start == NULL)
        return WEIR_ERR_NOMEM;
    *start = (struct start){.worker = worker, .done_fd = done_fd};
    if (pthread_create(&worker->thread, NULL, run, start) != 0) {
        free(start);
        return WEIR_ERR_IO;
    }
    worker->is_started = true;
    return 0;
}

void weir_worker_join(struct weir_worker *worker)
{
    if (worker->is_started)
        pthread_join(worker->thread, NULL);
    worker->is_started = false;
}

void weir_worker_fini(struct weir_worker *worker)
{
    WEIR_ASSERT(!worker->is_started);
    weir_asks_free(worker->asks); /* its connections are the loop's */
    weir_loop_free(worker->loop);
    weir_holds_free(worker->holds);
    weir_session_close(worker->session);
    weir_pool_fini(&worker->pool); /* the loop's connections are gone */
    worker->loop = NULL;
    worker->asks = NULL;
    worker->holds = NULL;
    worker->session = NULL;
}
