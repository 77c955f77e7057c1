/* SPDX-License-Identifier: Apache-2.0 */
#include "net/alarm.h"

#include "net/internal.h"

#include <stdlib.h>

#define NS_PER_MS UINT64_C(1000000)

/* A binary heap in at[1 .. count]: the parent of i is i / 2, and never due after it. */

static void put(struct alarms *alarms, uint32_t place, struct weir_alarm *alarm)
{
    alarms->at[place] = alarm;
    alarm->place = place;
}

static void rise(struct alarms *alarms, uint32_t place, struct weir_alarm *alarm)
{
    while (place > 1 && alarms->at[place / 2]->due_ns > alarm->due_ns) {
        put(alarms, place, alarms->at[place / 2]);
        place /= 2;
    }
    put(alarms, place, alarm);
}

static void sink(struct alarms *alarms, uint32_t place, struct weir_alarm *alarm)
{
    for (uint32_t child; (child = 2 * place) <= alarms->count; place = child) {
        if (child < alarms->count && alarms->at[child + 1]->due_ns < alarms->at[child]->due_ns)
            child++;
        if (alarms->at[child]->due_ns >= alarm->due_ns)
            break;
        put(alarms, place, alarms->at[child]);
    }
    put(alarms, place, alarm);
}

static void take_out(struct alarms *alarms, struct weir_alarm *alarm)
{
    struct weir_alarm *last = alarms->at[alarms->count--];
    uint32_t place = alarm->place;
    alarm->place = 0;
    if (last == alarm)
        return;
    if (place > 1 && alarms->at[place / 2]->due_ns > last->due_ns)
        rise(alarms, place, last);
    else
        sink(alarms, place, last);
}

/* ---- when they ring ---- */

static void on_due(uv_timer_t *timer);

/* libuv counts in milliseconds of the same clock: rounded up, so that none is early. */
static void wait_for_first(struct weir_loop *loop)
{
    struct alarms *alarms = &loop->alarms;
    if (alarms->count == 0) {
        uv_timer_stop(&alarms->timer);
        return;
    }
    uint64_t due_ms = (alarms->at[1]->due_ns + NS_PER_MS - 1) / NS_PER_MS;
    uint64_t now_ms = uv_now(&loop->uv);
    uv_timer_start(&alarms->timer, on_due, due_ms > now_ms ? due_ms - now_ms : 0, 0);
}

static void on_due(uv_timer_t *timer)
{
    struct weir_loop *loop = timer->data;
    uint64_t now_ns = uv_hrtime();
    weir_loop_enter(loop);
    while (loop->alarms.count > 0 && loop->alarms.at[1]->due_ns <= now_ns) {
        struct weir_alarm *alarm = loop->alarms.at[1];
        take_out(&loop->alarms, alarm);
        alarm->ring(alarm->ctx);
    }
    wait_for_first(loop);
}

/* ---- the outside ---- */

int weir_loop_reserve_alarms(struct weir_loop *loop, uint32_t more)
{
    struct alarms *alarms = &loop->alarms;
    size_t places = (size_t)alarms->max + more + 1;
    struct weir_alarm **at = realloc(alarms->at, places * sizeof(struct weir_alarm *));
    if (at == NULL)
        return WEIR_ERR_NOMEM;
    if (alarms->at == NULL) {
        alarms->timer.data = loop;
        uv_timer_init(&loop->uv, &alarms->timer);
    }
    alarms->at = at;
    alarms->max += more;
    return 0;
}

bool weir_alarm_set(struct weir_loop *loop, struct weir_alarm *alarm, uint64_t delay_ns)
{
    struct alarms *alarms = &loop->alarms;
    WEIR_ASSERT(alarm->place == 0);
    if (alarms->count == alarms->max)
        return false;
    alarm->due_ns = uv_hrtime() + delay_ns;
    rise(alarms, ++alarms->count, alarm);
    if (alarm->place == 1)
        wait_for_first(loop);
    return true;
}

void weir_alarm_cancel(struct weir_loop *loop, struct weir_alarm *alarm)
{
    if (alarm->place == 0)
        return;
    bool was_first = alarm->place == 1;
    take_out(&loop->alarms, alarm);
    if (was_first && !loop->is_shut)
        wait_for_first(loop);
}

uint64_t weir_alarm_left(const struct weir_alarm *alarm)
{
    uint64_t now_ns = uv_hrtime();
    return alarm->place > 0 && alarm->due_ns > now_ns ? alarm->due_ns - now_ns : 0;
}
