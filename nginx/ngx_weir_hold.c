/* A leaky bucket's queue: requests wait for their turn, each on a timer.
 *
 * The turn is libweir's to say; each request has an instant of its own, later for who came later,
 * so timers keep the order.  An instant is rounded up to nginx's millisecond, and looked at again
 * on libweir's clock: nobody goes early.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_weir.h"

#define NS_PER_MS 1000000

static ngx_msec_t ms_of(uint64_t ns)
{
    return (ngx_msec_t)(ns / NS_PER_MS + (ns % NS_PER_MS != 0));
}

static bool may_hold(const ngx_weir_main_conf_t *main, uint64_t delay_ns)
{
    return main->worker->held < main->worker->held_max && ms_of(delay_ns) <= main->queue_timeout;
}

/* The queue has no place: as if its limit had refused. */
static void turn_away(struct weir_decision *decision)
{
    decision->overall = WEIR_CODE_OVER_LIMIT;
    for (uint32_t i = 0; i < decision->status_count; i++) {
        struct weir_status *s = &decision->statuses[i];
        if (s->delay_ns == 0)
            continue;
        s->code = WEIR_CODE_OVER_LIMIT;
        s->retry_after_ns = s->delay_ns;
    }
}

uint64_t ngx_weir_may_delay(ngx_weir_asking_t *a, struct weir_decision *decision, uint64_t delay_ns)
{
    if (delay_ns == 0 || a->place->dry_run || may_hold(a->main, delay_ns))
        return delay_ns;
    turn_away(decision);
    return 0;
}

static void arm(ngx_event_t *ev, uint64_t wait_ns)
{
    ngx_time_update(); /* timers count from when this turn of the loop began */
    ngx_add_timer(ev, ms_of(wait_ns));
}

void ngx_weir_hold(ngx_weir_record_t *record, ngx_event_t *ev, uint64_t delay_ns, uint64_t now_ns)
{
    record->is_held = 1;
    record->main->worker->held++;
    record->due_ns = now_ns + delay_ns;
    record->delay_ms += ms_of(delay_ns);
    arm(ev, delay_ns);
}

bool ngx_weir_may_go(ngx_weir_record_t *record, ngx_event_t *ev)
{
    uint64_t now_ns = weir_now(record->main->engine);
    if (now_ns < record->due_ns) {
        arm(ev, record->due_ns - now_ns);
        return false;
    }
    record->is_held = 0;
    record->main->worker->held--;
    return true;
}
