/* A leaky bucket's queue: requests wait for their turn, each on a timer.
 *
 * The turn is libweir's to say; each request has an instant of its own, later for who came later,
 * so timers keep the order.  An instant is rounded up to nginx's millisecond, and looked at again
 * on libweir's clock: nobody goes early.
 *
 * Where a worker stood still, several are late, and due at once.  They still go one after the
 * other, as far apart as their instants are, less a millisecond by which they catch up: who is
 * behind the queue was promised a pace.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_weir.h"

#define NS_PER_MS 1000000
#define NS_PER_S 1000000000u

static ngx_msec_t ms_of(uint64_t ns)
{
    return (ngx_msec_t)(ns / NS_PER_MS + (ns % NS_PER_MS != 0));
}

static bool may_hold(const ngx_weir_main_conf_t *main, uint64_t delay_ns)
{
    return main->worker.held < main->worker.held_max && ms_of(delay_ns) <= main->queue_timeout;
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
    record->is_held = true;
    record->main->worker.held++;
    record->due_ns = now_ns + delay_ns;
    record->delay_ms = (uint32_t)ngx_min(record->delay_ms + ms_of(delay_ns), UINT32_MAX);
    arm(ev, delay_ns);
}

/* Which queue it stands in; of several, the first. */
static const struct weir_place *find_place(const ngx_weir_record_t *record)
{
    for (ngx_uint_t i = 0; i < record->ticket_count; i++) {
        const struct weir_ticket *ticket = &record->tickets[i];
        for (uint32_t k = 0; k < ticket->count; k++)
            if (ticket->places[k].algorithm == WEIR_LEAKY_BUCKET && ticket->places[k].requests > 0)
                return &ticket->places[k];
    }
    return NULL;
}

static ngx_weir_gone_t *find_gone(ngx_weir_worker_t *worker, const struct weir_place *place)
{
    ngx_weir_gone_t *gone = &worker->room->gone[place->key % NGX_WEIR_QUEUES];
    if (gone->key != place->key)
        *gone = (ngx_weir_gone_t){.key = place->key};
    return gone;
}

/* Its instant, or later by as much as the one before it was, less what is caught up since.  So it
 * is later for who came later, whoever went before them. */
static uint64_t turn_of(const ngx_weir_record_t *record, const struct weir_place *place,
                        const ngx_weir_gone_t *gone)
{
    uint64_t step_ns = (uint64_t)place->window_s * NS_PER_S / place->requests;
    uint64_t late_ns = gone->gone_ns - gone->due_ns;
    uint64_t apart_ns = record->due_ns > gone->due_ns ? record->due_ns - gone->due_ns : 0;
    uint64_t caught_up_ns = step_ns > NS_PER_MS ? apart_ns / step_ns * NS_PER_MS : apart_ns;
    return record->due_ns + (late_ns > caught_up_ns ? late_ns - caught_up_ns : 0);
}

/* When it may go, now that it is due.  If that is now, it has gone. */
static uint64_t take_turn(const ngx_weir_record_t *record, uint64_t now_ns)
{
    const struct weir_place *place = find_place(record);
    if (place == NULL)
        return now_ns;
    ngx_weir_gone_t *gone = find_gone(&record->main->worker, place);
    uint64_t turn_ns = turn_of(record, place, gone);
    if (turn_ns > now_ns)
        return turn_ns;
    gone->due_ns = record->due_ns;
    gone->gone_ns = now_ns;
    return now_ns;
}

bool ngx_weir_may_go(ngx_weir_record_t *record, ngx_event_t *ev)
{
    uint64_t now_ns = weir_now(record->main->engine);
    uint64_t turn_ns = now_ns < record->due_ns ? record->due_ns : take_turn(record, now_ns);
    if (now_ns < turn_ns) {
        arm(ev, turn_ns - now_ns);
        return false;
    }
    record->is_held = false;
    record->main->worker.held--;
    return true;
}
