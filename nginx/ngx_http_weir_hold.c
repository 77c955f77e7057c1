/* A leaky bucket's queue: requests wait for their turn, each on a timer.
 *
 * The turn is libweir's to say; each request has an instant of its own, later for who came later,
 * so timers keep the order.  An instant is rounded up to nginx's millisecond, and looked at again
 * on libweir's clock: nobody goes early.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_http_weir.h"

#define NS_PER_MS 1000000

static ngx_msec_t ms_of(uint64_t ns)
{
    return (ngx_msec_t)(ns / NS_PER_MS + (ns % NS_PER_MS != 0));
}

ngx_uint_t ngx_http_weir_may_hold(ngx_http_weir_main_conf_t *main, uint64_t delay_ns)
{
    return main->worker->held < main->worker->held_max && ms_of(delay_ns) <= main->queue_timeout;
}

static void arm(ngx_event_t *wev, uint64_t wait_ns)
{
    ngx_time_update(); /* timers count from when this turn of the loop began */
    wev->delayed = 1;
    ngx_add_timer(wev, ms_of(wait_ns));
}

static void go_on(ngx_http_request_t *r)
{
    ngx_connection_t *c = r->connection;
    ngx_http_weir_record_t *record = ngx_http_weir_find(r);
    uint64_t now_ns = weir_now(record->main->engine);
    if (c->write->delayed) {
        if (ngx_handle_write_event(c->write, 0) != NGX_OK)
            ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }
    if (now_ns < record->due_ns) {
        arm(c->write, record->due_ns - now_ns);
        return;
    }
    record->is_held = 0;
    record->main->worker->held--;
    if (ngx_handle_read_event(c->read, 0) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }
    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
}

ngx_int_t ngx_http_weir_hold(ngx_http_weir_record_t *record, uint64_t delay_ns, uint64_t now_ns)
{
    ngx_http_request_t *r = record->request;
    ngx_connection_t *c = r->connection;
    if (c->read->ready) {
        ngx_post_event(c->read, &ngx_posted_events); /* a macro with an if in it */
    } else if (ngx_handle_read_event(c->read, 0) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    record->is_held = 1;
    record->main->worker->held++;
    record->due_ns = now_ns + delay_ns;
    record->delay_ms += ms_of(delay_ns);
    r->read_event_handler = ngx_http_test_reading; /* notices who leaves */
    r->write_event_handler = go_on;
    arm(c->write, delay_ns);
    return NGX_AGAIN;
}
