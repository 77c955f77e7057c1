/* SPDX-License-Identifier: Apache-2.0 */
#include "net/internal.h"

#include <stdlib.h>

void weir_loop_enter(struct weir_loop *loop)
{
    /* libuv calls back from within its poll, so there is no hook between waiting and the first
     * event: the first who comes reads the clock for all. */
    if (loop->is_fresh)
        return;
    loop->is_fresh = true;
    if (loop->read_clock != NULL)
        loop->now_ns = loop->read_clock(loop->clock_ctx);
}

uint64_t weir_loop_now(const struct weir_loop *loop)
{
    return loop->now_ns;
}

void weir_loop_set_owner(struct weir_loop *loop, void *owner)
{
    loop->owner = owner;
}

void *weir_loop_owner(const struct weir_loop *loop)
{
    return loop->owner;
}

uint32_t weir_loop_load(const struct weir_loop *loop)
{
    /* relaxed: a number to compare, nothing hangs on it */
    return atomic_load_explicit(&loop->load, memory_order_relaxed);
}

/* ---- the inbox ---- */

void weir_loop_post(struct weir_loop *loop, struct weir_post *post)
{
    /* acq_rel: pairs with the other exchange in take_posts(), which then sees what the poster did
     * before, also where somebody else's posting is the one that is run. */
    if (atomic_exchange_explicit(&post->is_waiting, true, memory_order_acq_rel))
        return;
    /* release: pairs with the exchange in take_posts(), which then sees what the post holds. */
    post->next = atomic_load_explicit(&loop->inbox, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&loop->inbox, &post->next, post,
                                                  memory_order_release, memory_order_relaxed))
        continue;
    uv_async_send(&loop->async); /* fails for closed handles only; then loop_free() takes it */
}

/* Runs what was posted, in the order of posting. */
static void take_posts(struct weir_loop *loop, struct weir_loop *runner)
{
    struct weir_post *newest = atomic_exchange_explicit(&loop->inbox, NULL, memory_order_acquire);
    struct weir_post *first = NULL;
    while (newest != NULL) {
        struct weir_post *next = newest->next;
        newest->next = first;
        first = newest;
        newest = next;
    }
    while (first != NULL) {
        struct weir_post *next = first->next;
        atomic_exchange_explicit(&first->is_waiting, false, memory_order_acq_rel);
        first->run(first, runner); /* and may be freed or posted again by it */
        first = next;
    }
}

/* ---- chores ---- */

void weir_chore_set(struct weir_loop *loop, struct weir_chore *chore)
{
    if (chore->is_set)
        return;
    chore->is_set = true;
    chore->next = NULL;
    *loop->chores_end = chore;
    loop->chores_end = &chore->next;
    loop->chore_count++;
}

void weir_chore_cancel(struct weir_loop *loop, struct weir_chore *chore)
{
    struct weir_chore **at = &loop->chores;
    if (!chore->is_set)
        return;
    while (*at != chore)
        at = &(*at)->next;
    *at = chore->next;
    if (loop->chores_end == &chore->next)
        loop->chores_end = at;
    loop->chore_count--;
    chore->is_set = false;
}

/* As many as are set now: one that sets itself again is run in the next round. */
void weir_loop_run_chores(struct weir_loop *loop)
{
    for (uint32_t left = loop->chore_count; left > 0 && loop->chores != NULL; left--) {
        struct weir_chore *chore = loop->chores;
        weir_chore_cancel(loop, chore);
        chore->run(chore);
    }
}

/* ---- stopping ---- */

void weir_loop_stop(struct weir_loop *loop, uint32_t grace_ms)
{
    /* seq_cst: with load, see arrive() in listener.c */
    atomic_store_explicit(&loop->is_leaving, true, memory_order_seq_cst);
    /* release: whatever the caller changed before is seen by the loop while it drains. */
    atomic_store_explicit(&loop->stop, UINT64_C(1) + grace_ms, memory_order_release);
    uv_async_send(&loop->async);
}

void weir_loop_maybe_done(struct weir_loop *loop)
{
    /* seq_cst: none is on its way, and none will be sent; see arrive() in listener.c */
    if (loop->is_draining && loop->conn_count == 0 &&
        atomic_load_explicit(&loop->load, memory_order_seq_cst) == 0)
        uv_stop(&loop->uv);
}

static void each_conn(struct weir_loop *loop, void (*fn)(struct weir_conn *conn))
{
    for (struct weir_side *side = loop->sides; side != NULL; side = side->next) {
        for (int phase = 0; phase < PHASES; phase++) {
            struct weir_conn *next;
            for (struct weir_conn *conn = side->oldest[phase]; conn != NULL; conn = next) {
                next = conn->newer; /* fn() may move it to another phase */
                fn(conn);
            }
        }
    }
}

static void doom_conn(struct weir_conn *conn)
{
    conn->is_doomed = true;
    weir_conn_mark(conn);
}

static void on_grace_over(uv_timer_t *timer)
{
    struct weir_loop *loop = timer->data;
    weir_loop_enter(loop);
    each_conn(loop, doom_conn);
}

static void obey_stop(struct weir_loop *loop)
{
    uint64_t stop = atomic_exchange_explicit(&loop->stop, 0, memory_order_acquire);
    if (stop == 0)
        return;
    uv_timer_start(&loop->grace, on_grace_over, stop - 1, 0);
    if (!loop->is_draining) {
        loop->is_draining = true;
        for (struct weir_listener *l = loop->listeners; l != NULL; l = l->next)
            weir_listener_shut(l);
        each_conn(loop, weir_conn_drain);
    }
    if (stop == 1)
        each_conn(loop, doom_conn);
}

/* ---- a turn ---- */

static void on_async(uv_async_t *async)
{
    struct weir_loop *loop = async->data;
    weir_loop_enter(loop);
    take_posts(loop, loop);
    obey_stop(loop);
    weir_loop_maybe_done(loop);
}

/* Timers ran before this, events come after it. */
static void on_prepare(uv_prepare_t *prepare)
{
    struct weir_loop *loop = prepare->data;
    weir_loop_flush(loop);
    loop->is_fresh = false;
}

static void on_check(uv_check_t *check)
{
    struct weir_loop *loop = check->data;
    weir_loop_flush(loop);
}

static void on_ticker(uv_timer_t *timer)
{
    struct weir_loop *loop = timer->data;
    weir_loop_enter(loop);
    weir_ages_tick(loop);
}

/* ---- life ---- */

int weir_loop_new(struct weir_loop **out)
{
    struct weir_loop *loop = calloc(1, sizeof(*loop));
    if (loop == NULL)
        return WEIR_ERR_NOMEM;
    if (uv_loop_init(&loop->uv) != 0) {
        free(loop);
        return WEIR_ERR_IO;
    }
    loop->dirty_end = &loop->dirty;
    loop->chores_end = &loop->chores;
    loop->tick_ms = 1000;
    loop->prepare.data = loop->check.data = loop->async.data = loop;
    loop->ticker.data = loop->grace.data = loop;
    /* These three cannot fail; the async needs a descriptor, once for each loop. */
    uv_timer_init(&loop->uv, &loop->ticker);
    uv_timer_init(&loop->uv, &loop->grace);
    uv_prepare_init(&loop->uv, &loop->prepare);
    uv_check_init(&loop->uv, &loop->check);
    if (uv_async_init(&loop->uv, &loop->async, on_async) != 0) {
        loop->is_shut = true;
        weir_loop_free(loop);
        return WEIR_ERR_IO;
    }
    uv_prepare_start(&loop->prepare, on_prepare);
    uv_check_start(&loop->check, on_check);
    *out = loop;
    return 0;
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void shut(struct weir_loop *loop)
{
    if (loop->is_shut)
        return;
    loop->is_shut = true;
    uv_walk(&loop->uv, close_handle, NULL);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    take_posts(loop, NULL);
}

void weir_loop_run(struct weir_loop *loop, uint64_t (*read_clock)(void *ctx), void *clock_ctx)
{
    loop->read_clock = read_clock;
    loop->clock_ctx = clock_ctx;
    uv_timer_start(&loop->ticker, on_ticker, loop->tick_ms, loop->tick_ms);
    weir_loop_enter(loop);
    take_posts(loop, loop);
    uv_run(&loop->uv, UV_RUN_DEFAULT); /* until weir_loop_maybe_done() */
    shut(loop);
}

void weir_loop_free(struct weir_loop *loop)
{
    if (loop == NULL)
        return;
    shut(loop);
    take_posts(loop, NULL);
    uv_loop_close(&loop->uv);
    while (loop->timers != NULL) {
        struct weir_loop_timer *next = loop->timers->next;
        free(loop->timers);
        loop->timers = next;
    }
    free(loop->alarms.at);
    while (loop->spares != NULL) {
        struct outbuf *next = loop->spares->next;
        free(loop->spares);
        loop->spares = next;
    }
    free(loop);
}

static void on_timer(uv_timer_t *handle)
{
    struct weir_loop_timer *timer = handle->data;
    weir_loop_enter(timer->loop);
    timer->fn(timer->ctx);
}

int weir_loop_every(struct weir_loop *loop, struct weir_loop_timer **out, uint32_t period_ms,
                    void (*fn)(void *ctx), void *ctx)
{
    struct weir_loop_timer *timer = calloc(1, sizeof(*timer));
    if (timer == NULL)
        return WEIR_ERR_NOMEM;
    timer->loop = loop;
    timer->fn = fn;
    timer->ctx = ctx;
    timer->timer.data = timer;
    uv_timer_init(&loop->uv, &timer->timer);
    uv_timer_start(&timer->timer, on_timer, period_ms, period_ms);
    timer->next = loop->timers;
    loop->timers = timer;
    *out = timer;
    return 0;
}
