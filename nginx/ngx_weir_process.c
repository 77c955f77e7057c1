/* The engine's life: opened with the configuration, used by workers, fed new rules.
 *
 * The master maps the table while it reads the configuration, before it forks: workers run as
 * another user, who may not open it.  What is wrong with rules or table is then an error of the
 * configuration, and a reload with bad rules changes nothing.  Each worker opens a session of its
 * own, and watches the rules by itself.
 *
 * Rules are never compiled in the event loop.  That is the work of the thread pool that `threads=`
 * names, or else of a thread that lives no longer than that: a pool's threads sleep, but a process
 * that has any pays for it with every system call.  One that ever had any still pays a little, in
 * the C library; so whether there are new rules is seen from the event loop, and as long as they do
 * not change there is no thread.  Where files are so many or so far away that looking takes long,
 * the thread looks.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_weir.h"

#include <pthread.h> /* layer: one thread, for the time that rules are looked at; see above */
#include <stdatomic.h>

#if (NGX_THREADS)
#include <ngx_thread_pool.h>
#endif

#define WATCH_MS 2000   /* where the rules cannot say when to look again */
#define POLL_MS 10      /* how often a thread is asked whether it is done */
#define LONG_NS 5000000 /* what looking may take of the event loop's time */
#define LONG_LOOKS 3    /* one may have waited for the processor, and a thread costs for good */

/* Watching, in one worker. */
typedef struct {
    ngx_weir_main_conf_t *main;
    struct weir *engine;
    ngx_connection_t *connection; /* inotify's; NULL: there is none */
    ngx_event_t timer;
    int timeout_ms;
    bool is_stepping;
    bool has_more;       /* events came while it was stepping */
    bool is_new;         /* there are new rules: the event loop has seen it */
    uint32_t long_looks; /* how often in a row looking has taken long */
    bool is_loading;
    bool has_thread;
    pthread_t thread; /* while it is stepping, without a pool */
    _Atomic(bool) is_done;
#if (NGX_THREADS)
    ngx_thread_pool_t *pool; /* NULL: none is named */
    ngx_thread_task_t *task;
#endif
} watch_t;

static watch_t *watch; /* this worker's */

__attribute__((aligned(NGX_WEIR_LINE))) ngx_weir_near_t ngx_weir_near = {.msec = &ngx_current_msec};
_Static_assert(offsetof(ngx_weir_near_t, told_last) == NGX_WEIR_LINE, "one line");

/* ---- open and close ---- */

static void end_thread(watch_t *w);

static void say(void *ctx, enum weir_level level, const char *line)
{
    ngx_weir_main_conf_t *main = ctx;
    ngx_uint_t error = main->worker.room != NULL ? NGX_LOG_ERR : NGX_LOG_EMERG;
    ngx_uint_t to = level == WEIR_LEVEL_ERROR     ? error
                    : level == WEIR_LEVEL_WARNING ? NGX_LOG_WARN
                                                  : NGX_LOG_NOTICE;
    if (watch != NULL && watch->is_loading && ngx_worker != 0)
        to = NGX_LOG_INFO; /* the first worker says the same of the same rules */
    ngx_log_error(to, main->log, 0, "weir: %s", line);
}

static void stop_watching(void)
{
    ngx_connection_t *c = watch->connection;
    watch->connection = NULL;
    if (watch->has_thread)
        end_thread(watch);
    if (watch->timer.timer_set)
        ngx_del_timer(&watch->timer);
    if (c == NULL)
        return;
    if (c->read->active)
        ngx_del_event(c->read, NGX_READ_EVENT, 0);
    ngx_free_connection(c);
    c->fd = (ngx_socket_t)-1; /* the engine's, which closes it */
}

static void close_engine(void *data)
{
    ngx_weir_main_conf_t *main = data;
    if (watch != NULL && watch->engine == main->engine) {
        stop_watching();
        watch = NULL;
    }
    if (main->worker.room != NULL) {
        weir_desk_free(main->worker.desk);
        weir_session_close(main->worker.session);
    }
    main->worker.room = NULL;
    weir_close(main->engine);
    main->engine = NULL;
}

static ngx_int_t add_threads(ngx_conf_t *cf, ngx_weir_main_conf_t *main)
{
    if (main->threads.len == 0)
        return NGX_OK;
#if (NGX_THREADS)
    return ngx_thread_pool_add(cf, &main->threads) != NULL ? NGX_OK : NGX_ERROR;
#else
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"threads=\" needs an nginx with threads");
    return NGX_ERROR;
#endif
}

ngx_int_t ngx_weir_open(ngx_conf_t *cf, ngx_weir_main_conf_t *main)
{
    struct weir_options options = {
        .rules_path = (const char *)main->rules.data,
        .table_path = (const char *)main->table.data,
        .table_bytes = main->table_size,
        .log = say,
        .log_ctx = main,
    };
    if (ngx_process == NGX_PROCESS_SIGNALLER)
        return NGX_OK; /* nginx -s: decides nothing */
    if (main->rules.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"weir_limit\" needs \"weir_rules\"");
        return NGX_ERROR;
    }
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(cf->pool, 0);
    if (cleanup == NULL || add_threads(cf, main) != NGX_OK)
        return NGX_ERROR;
    main->log = cf->log;
    int err = weir_open(&main->engine, &options);
    if (err) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "weir cannot be opened: %s", weir_strerror(err));
        return NGX_ERROR;
    }
    cleanup->handler = close_engine;
    cleanup->data = main;
    return NGX_OK;
}

ngx_int_t ngx_weir_open_worker(ngx_weir_main_conf_t *main)
{
    ngx_core_conf_t *core = (ngx_core_conf_t *)ngx_get_conf(ngx_cycle->conf_ctx, ngx_core_module);
    ngx_uint_t workers = core->worker_processes > 0 ? (ngx_uint_t)core->worker_processes : 1;
    ngx_weir_room_t *room = ngx_pcalloc(ngx_cycle->pool, sizeof(*room));
    if (room == NULL || weir_session_open(&main->worker.session, main->engine) != 0)
        return NGX_ERROR;
    main->worker.held_max = (main->queue_max + workers - 1) / workers;
    main->worker.room = room;
    main->log = ngx_cycle->log;
    return NGX_OK;
}

/* ---- new rules ---- */

/* Whether there are new rules. */
static bool look(watch_t *w)
{
    uint64_t began_ns = weir_now(w->engine);
    bool is_new = weir_watch_look(w->engine, &w->timeout_ms);
    bool is_long = weir_now(w->engine) - began_ns > LONG_NS;
    w->long_looks = is_long ? w->long_looks + 1 : 0;
    return is_new;
}

static void load(watch_t *w)
{
    w->is_loading = true;
    if (weir_watch_load(w->engine) < 0 && w->timeout_ms <= 0)
        w->timeout_ms = WATCH_MS; /* the engine has said what is wrong, and the old rules stay */
    w->is_loading = false;
}

/* Away from the event loop. */
static void step(watch_t *w)
{
    if (w->is_new || look(w))
        load(w);
}

static void begin_step(watch_t *w);

static void end_step(watch_t *w)
{
    w->is_stepping = false;
    if (ngx_exiting || ngx_terminate || ngx_quit)
        return;
    if (w->has_more)
        begin_step(w);
    else
        ngx_add_timer(&w->timer, (ngx_msec_t)(w->timeout_ms > 0 ? w->timeout_ms : 1));
}

#if (NGX_THREADS)
static void step_in_pool(void *data, ngx_log_t *log)
{
    (void)log;
    step(*(watch_t **)data);
}

static void end_in_pool(ngx_event_t *ev)
{
    end_step(ev->data);
}
#endif

static void *step_in_thread(void *data)
{
    watch_t *w = data;
    step(w);
    /* Release: who sees it sees what the step has written. */
    atomic_store_explicit(&w->is_done, true, memory_order_release);
    return NULL;
}

/* Signals are nginx's own thread's to take, for they must interrupt its waiting. */
static bool start_thread(watch_t *w)
{
    sigset_t all, before;
    sigfillset(&all);
    atomic_store_explicit(&w->is_done, false, memory_order_relaxed); /* it has not begun */
    if (pthread_sigmask(SIG_BLOCK, &all, &before) != 0)
        return false;
    w->has_thread = pthread_create(&w->thread, NULL, step_in_thread, w) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return w->has_thread;
}

static void end_thread(watch_t *w)
{
    (void)pthread_join(w->thread, NULL);
    w->has_thread = false;
}

static bool has_pool(const watch_t *w)
{
#if (NGX_THREADS)
    return w->pool != NULL;
#else
    (void)w;
    return false;
#endif
}

/* Whether a step has anything to do that the event loop should not. */
static bool needs_thread(watch_t *w)
{
    bool is_far = w->long_looks >= LONG_LOOKS || has_pool(w);
    w->is_new = !is_far && look(w);
    return is_far || w->is_new;
}

static void begin_step(watch_t *w)
{
    w->has_more = w->is_stepping;
    if (w->is_stepping)
        return;
    if (w->timer.timer_set)
        ngx_del_timer(&w->timer);
    if (!needs_thread(w)) {
        end_step(w);
        return;
    }
    w->is_stepping = true;
#if (NGX_THREADS)
    if (w->pool != NULL && ngx_thread_task_post(w->pool, w->task) == NGX_OK)
        return;
#endif
    if (start_thread(w)) {
        ngx_add_timer(&w->timer, POLL_MS);
        return;
    }
    ngx_log_error(NGX_LOG_NOTICE, w->timer.log, 0,
                  "weir: no thread can be had; the rules are looked at between requests");
    step(w);
    end_step(w);
}

static void on_timer(ngx_event_t *ev)
{
    watch_t *w = ev->data;
    if (!w->is_stepping) {
        begin_step(w);
    } else if (!atomic_load_explicit(&w->is_done, memory_order_acquire)) {
        ngx_add_timer(ev, POLL_MS);
    } else {
        end_thread(w);
        end_step(w);
    }
}

static void on_change(ngx_event_t *ev)
{
    ngx_connection_t *c = ev->data;
    begin_step(c->data);
}

/* inotify's descriptor as a connection of nginx's; without it the timer does. */
static void listen_for_changes(watch_t *w, ngx_cycle_t *cycle)
{
    int fd = weir_watch_fd(w->engine);
    ngx_connection_t *c = fd >= 0 ? ngx_get_connection(fd, cycle->log) : NULL;
    if (c == NULL)
        return;
    c->data = w;
    c->read->handler = on_change;
    c->read->log = cycle->log;
    if (ngx_handle_read_event(c->read, 0) != NGX_OK) {
        ngx_free_connection(c);
        return;
    }
    w->connection = c;
}

static ngx_int_t watch_rules(ngx_weir_main_conf_t *main, ngx_cycle_t *cycle)
{
    watch = ngx_pcalloc(cycle->pool, sizeof(*watch));
    if (watch == NULL)
        return NGX_ERROR;
    watch->main = main;
    watch->engine = main->engine;
    watch->timer.handler = on_timer;
    watch->timer.data = watch;
    watch->timer.log = cycle->log;
    watch->timer.cancelable = 1;
#if (NGX_THREADS)
    watch->pool = main->threads.len > 0 ? ngx_thread_pool_get(cycle, &main->threads) : NULL;
    watch->task = ngx_thread_task_alloc(cycle->pool, sizeof(watch_t *));
    if (watch->task == NULL)
        return NGX_ERROR;
    *(watch_t **)watch->task->ctx = watch;
    watch->task->handler = step_in_pool;
    watch->task->event.handler = end_in_pool;
    watch->task->event.data = watch;
#endif
    listen_for_changes(watch, cycle);
    ngx_add_timer(&watch->timer, WATCH_MS);
    return NGX_OK;
}

/* ---- workers ---- */

ngx_int_t ngx_weir_init_process(ngx_cycle_t *cycle, ngx_weir_main_conf_t *main)
{
    bool is_worker = ngx_process == NGX_PROCESS_WORKER || ngx_process == NGX_PROCESS_SINGLE;
    if (main == NULL || main->engine == NULL || !is_worker)
        return NGX_OK;
    if (!ngx_weir_has_worker(main) || ngx_weir_service_open(main) != NGX_OK)
        return NGX_ERROR;
    return watch_rules(main, cycle);
}

/* nginx would wonder whose connections they are. */
void ngx_weir_exit_process(ngx_cycle_t *cycle)
{
    (void)cycle;
    if (watch != NULL) {
        ngx_weir_service_close(watch->main);
        stop_watching();
    }
    ngx_weir_free_records();
}
