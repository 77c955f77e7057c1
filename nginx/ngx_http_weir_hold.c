/* A request in a leaky bucket's queue: it waits on its connection's write event, as limit_req's do.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_http_weir.h"

static void go_on(ngx_http_request_t *r)
{
    ngx_connection_t *c = r->connection;
    ngx_http_weir_record_t *record = ngx_http_weir_find(r);
    if (c->write->delayed) {
        if (ngx_handle_write_event(c->write, 0) != NGX_OK)
            ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }
    if (!ngx_weir_may_go(&record->base, c->write)) {
        c->write->delayed = 1;
        return;
    }
    if (ngx_handle_read_event(c->read, 0) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }
    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
}

ngx_int_t ngx_http_weir_stay(ngx_http_request_t *r, ngx_http_event_handler_pt on_write)
{
    ngx_connection_t *c = r->connection;
    if (c->read->ready) {
        ngx_post_event(c->read, &ngx_posted_events); /* a macro with an if in it */
    } else if (ngx_handle_read_event(c->read, 0) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    r->read_event_handler = ngx_http_test_reading; /* notices who leaves */
    r->write_event_handler = on_write;
    return NGX_AGAIN;
}

ngx_int_t ngx_http_weir_hold(ngx_http_request_t *r, ngx_http_weir_record_t *record,
                             uint64_t delay_ns, uint64_t now_ns)
{
    ngx_connection_t *c = r->connection;
    ngx_int_t rc = ngx_http_weir_stay(r, go_on);
    if (rc != NGX_AGAIN)
        return rc;
    c->write->delayed = 1;
    ngx_weir_hold(&record->base, c->write, delay_ns, now_ns);
    return rc;
}
