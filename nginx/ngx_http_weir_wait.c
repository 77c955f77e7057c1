/* A request that waits for the service: nothing of nginx waits with it.
 *
 * It is left as a request in a leaky bucket's queue is, and goes on where it stopped when the
 * answer comes, or when it is clear that none will.  A client that leaves meanwhile ends it, and
 * its question is cancelled with the request's memory.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_http_weir.h"

/* In the request's memory. */
struct ngx_http_weir_wait_s {
    struct weir_desk_waiter waiter; /* first: done() gets this */
    ngx_http_request_t *request;
    ngx_uint_t stages;
};

static void cancel(void *data)
{
    ngx_http_weir_wait_t *wait = data;
    weir_desk_cancel(&wait->waiter);
}

/* As if the phase's handler had returned rc.  NGX_DONE: the request may be gone already. */
static void go_on(ngx_connection_t *c, ngx_http_request_t *r, ngx_int_t rc)
{
    if (rc == NGX_DECLINED && ngx_handle_read_event(c->read, 0) != NGX_OK)
        rc = NGX_HTTP_INTERNAL_SERVER_ERROR;
    if (rc == NGX_DECLINED) {
        r->read_event_handler = ngx_http_block_reading;
        r->write_event_handler = ngx_http_core_run_phases;
        r->phase_handler++;
        ngx_http_core_run_phases(r);
    } else if (rc != NGX_AGAIN && rc != NGX_DONE) {
        ngx_http_finalize_request(r, rc);
    }
    ngx_http_run_posted_requests(c);
}

static void done(struct weir_desk_waiter *waiter, struct weir_decision *decision)
{
    ngx_http_weir_wait_t *wait = (ngx_http_weir_wait_t *)waiter;
    ngx_http_request_t *r = wait->request;
    ngx_connection_t *c = r->connection;
    go_on(c, r, ngx_http_weir_answered(r, wait->stages, decision));
}

struct weir_desk_waiter *ngx_http_weir_waiter(ngx_http_request_t *r, ngx_uint_t stages)
{
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_weir_wait_t));
    if (cleanup == NULL)
        return NULL;
    ngx_http_weir_wait_t *wait = cleanup->data;
    *wait = (ngx_http_weir_wait_t){.waiter = {.done = done}, .request = r, .stages = stages};
    cleanup->handler = cancel;
    return &wait->waiter;
}

ngx_int_t ngx_http_weir_wait(ngx_http_request_t *r)
{
    return ngx_http_weir_stay(r, ngx_http_request_empty_handler);
}
