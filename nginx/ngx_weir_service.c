/* The service that knows what many machines share: one connection a worker, on which questions
 * follow each other without waiting for answers.
 *
 * What is said there is libweir's (struct weir_desk); here are a socket, timers and words for the
 * log.  All that one turn of the event loop asks for leaves in one write.  Nothing here waits:
 * where the service cannot be asked, libweir decides without it.
 *
 *     gone --connect--> greeting --> open --closed, or silent for too long--> gone
 *       ^---- at once, after 50 ms, and twice as long each time, up to a second |
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_weir.h"

#define PAUSE_FIRST_MS 1 /* a successor may listen already */
#define PAUSE_MIN_MS 50
#define PAUSE_MAX_MS 1000
#define READ_LEN 16384
#define NS_PER_MS 1000000

struct ngx_weir_service_s {
    ngx_weir_main_conf_t *main;
    struct weir_desk *desk;
    ngx_connection_t *connection; /* NULL: there is none */
    ngx_event_t flush;            /* posted: there is something to send */
    ngx_event_t deadline;         /* while somebody waits, so that no worker ends meanwhile */
    ngx_event_t again;            /* the next attempt to connect */
    ngx_msec_t pause;
    unsigned is_open : 1; /* it has greeted */
    unsigned is_told : 1; /* the log knows that it is gone */
};

static void connect_to(ngx_weir_service_t *service);

/* ---- words ---- */

static void say_gone(ngx_weir_service_t *service, const char *why)
{
    if (service->is_told)
        return;
    service->is_told = 1;
    ngx_log_error(NGX_LOG_WARN, service->again.log, 0,
                  "weir: the service at %V %s: until it is back, on_store_error decides",
                  &service->main->service_name, why);
}

static void note_open(ngx_weir_service_t *service)
{
    bool is_same_table;
    if (service->is_open || !weir_desk_is_open(service->desk, &is_same_table))
        return;
    ngx_uint_t level = service->is_told ? NGX_LOG_NOTICE : NGX_LOG_INFO;
    service->is_open = 1;
    service->pause = PAUSE_FIRST_MS;
    ngx_log_error(level, service->again.log, 0, "weir: the service at %V answers",
                  &service->main->service_name);
    service->is_told = 0;
    if (!is_same_table)
        ngx_log_error(NGX_LOG_ERR, service->again.log, 0,
                      "weir: the service at %V has another table than weir_table says: limits of "
                      "this host are counted in both, and each request is asked for",
                      &service->main->service_name);
}

/* ---- the connection ---- */

static void try_again(ngx_weir_service_t *service)
{
    if (ngx_exiting || ngx_quit || ngx_terminate)
        return;
    ngx_add_timer(&service->again, service->pause);
    service->pause = ngx_max(PAUSE_MIN_MS, ngx_min(2 * service->pause, PAUSE_MAX_MS));
}

static void hang_up(ngx_weir_service_t *service)
{
    ngx_connection_t *c = service->connection;
    service->connection = NULL;
    service->is_open = 0;
    if (c != NULL)
        ngx_close_connection(c);
}

/* Who waits is told, and decides without the service. */
static void lose(ngx_weir_service_t *service, const char *why)
{
    hang_up(service);
    say_gone(service, why);
    try_again(service);
    weir_desk_closed(service->desk);
}

static void flush(ngx_weir_service_t *service)
{
    ngx_connection_t *c = service->connection;
    struct weir_str out = weir_desk_output(service->desk);
    while (c != NULL && out.len > 0) {
        ssize_t n = c->send(c, (u_char *)out.ptr, out.len);
        if (n == NGX_AGAIN)
            break;
        if (n <= 0) {
            lose(service, "is gone");
            return;
        }
        weir_desk_sent(service->desk, (size_t)n);
        out = weir_desk_output(service->desk);
    }
    if (c != NULL && ngx_handle_write_event(c->write, 0) != NGX_OK)
        lose(service, "cannot be asked");
}

static void on_flush(ngx_event_t *ev)
{
    flush(ev->data);
}

static void on_write(ngx_event_t *ev)
{
    ngx_connection_t *c = ev->data;
    flush(c->data);
}

static void on_read(ngx_event_t *ev)
{
    ngx_connection_t *c = ev->data;
    ngx_weir_service_t *service = c->data;
    u_char bytes[READ_LEN];
    for (;;) {
        ssize_t n = c->recv(c, bytes, sizeof(bytes));
        if (n == NGX_AGAIN)
            break;
        if (n <= 0) {
            lose(service, "is gone");
            return;
        }
        if (weir_desk_feed(service->desk, bytes, (size_t)n, ngx_weir_now(service->main)) != 0) {
            lose(service, "speaks another version of weir's");
            return;
        }
        note_open(service);
    }
    if (service->deadline.timer_set && !weir_desk_is_waited_for(service->desk))
        ngx_del_timer(&service->deadline);
    ngx_weir_service_kick(service->main); /* what it brought may be answered */
    if (ngx_handle_read_event(ev, 0) != NGX_OK)
        lose(service, "cannot be heard");
}

/* A socket of nginx's that is connected: to a unix socket that is at once, or never.  -1: not. */
static ngx_socket_t dial(const ngx_weir_service_t *service)
{
    const ngx_addr_t *addr = service->main->service;
    ngx_socket_t fd = ngx_socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd == (ngx_socket_t)-1)
        return fd;
    if (ngx_nonblocking(fd) == 0 && connect(fd, addr->sockaddr, addr->socklen) == 0)
        return fd;
    (void)ngx_close_socket(fd);
    return (ngx_socket_t)-1;
}

static ngx_connection_t *new_connection(ngx_weir_service_t *service)
{
    ngx_socket_t fd = dial(service);
    ngx_connection_t *c =
        fd != (ngx_socket_t)-1 ? ngx_get_connection(fd, service->again.log) : NULL;
    if (c == NULL) {
        if (fd != (ngx_socket_t)-1)
            (void)ngx_close_socket(fd);
        return NULL;
    }
    c->data = service;
    c->recv = ngx_recv;
    c->send = ngx_send;
    c->log_error = NGX_ERROR_INFO;
    c->read->handler = on_read;
    c->write->handler = on_write;
    c->read->log = c->write->log = c->log;
    c->write->ready = 1;
    if (ngx_handle_read_event(c->read, 0) == NGX_OK)
        return c;
    ngx_close_connection(c);
    return NULL;
}

static void connect_to(ngx_weir_service_t *service)
{
    service->connection = new_connection(service);
    if (service->connection == NULL) {
        lose(service, "is not there");
        return;
    }
    weir_desk_connected(service->desk);
    flush(service);
}

static void on_again(ngx_event_t *ev)
{
    connect_to(ev->data);
}

/* ---- who waits ---- */

static void on_deadline(ngx_event_t *ev)
{
    ngx_weir_service_t *service = ev->data;
    uint64_t wait_ns;
    if (weir_desk_tick(service->desk, weir_now(service->main->engine), &wait_ns) != 0 &&
        service->connection != NULL)
        lose(service, "does not answer");
    else if (wait_ns != WEIR_NEVER && !ev->timer_set)
        ngx_add_timer(ev, (ngx_msec_t)(wait_ns / NS_PER_MS) + 1);
}

void ngx_weir_service_send(ngx_weir_service_t *service)
{
    if (service->connection == NULL || weir_desk_output(service->desk).len == 0)
        return;
    ngx_post_event(&service->flush, &ngx_posted_events); /* a macro with an if in it */
    if (weir_desk_is_waited_for(service->desk) && !service->deadline.timer_set)
        ngx_add_timer(&service->deadline, service->main->service_timeout + 1);
}

/* ---- life ---- */

static void init_event(ngx_event_t *ev, ngx_event_handler_pt handler, ngx_weir_service_t *service)
{
    ev->handler = handler;
    ev->data = service;
    ev->log = ngx_cycle->log;
}

ngx_int_t ngx_weir_service_open(ngx_weir_main_conf_t *main)
{
    const struct weir_desk_options options = {
        .timeout_ms = (uint32_t)main->service_timeout,
        .pending_max = (uint32_t)main->service_pending,
    };
    ngx_weir_worker_t *worker = &main->worker;
    if (main->service == NULL)
        return NGX_OK;
    ngx_weir_service_t *service = ngx_pcalloc(ngx_cycle->pool, sizeof(*service));
    if (service == NULL || weir_desk_new(&worker->desk, worker->session, &options) != 0)
        return NGX_ERROR;
    service->main = main;
    service->desk = worker->desk;
    init_event(&service->flush, on_flush, service);
    init_event(&service->deadline, on_deadline, service);
    init_event(&service->again, on_again, service);
    service->again.cancelable = 1;
    service->pause = PAUSE_FIRST_MS;
    worker->service = service;
    connect_to(service);
    return NGX_OK;
}

void ngx_weir_service_close(ngx_weir_main_conf_t *main)
{
    ngx_weir_service_t *service = main->worker.room != NULL ? main->worker.service : NULL;
    if (service == NULL)
        return;
    hang_up(service);
    if (service->flush.posted) {
        ngx_delete_posted_event(&service->flush); /* two statements */
    }
    if (service->again.timer_set)
        ngx_del_timer(&service->again);
    if (service->deadline.timer_set)
        ngx_del_timer(&service->deadline);
}
