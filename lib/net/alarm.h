/* alarm.h - one-shot alarms of a loop, for answers that must wait.
 *
 * A heap by the time that they are due, in memory that is taken at start: setting, cancelling and
 * ringing allocate nothing, and cost the logarithm of how many are set.  An alarm lies in its
 * user's own structure.  It never rings early; late by at most a millisecond and what the loop was
 * busy with.  (libuv's own timers are a heap too, but each is a handle, which must be closed and
 * waited for before its memory is free.)
 *
 * Threads: the loop's.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_NET_ALARM_H
#define WEIR_NET_ALARM_H

#include "net/net.h"

/* All zero but ring and ctx: not set. */
struct weir_alarm {
    void (*ring)(void *ctx);
    void *ctx;
    uint64_t due_ns; /* of the monotonic clock */
    uint32_t place;  /* in the heap, from 1; 0: not set */
};

/* Before the loop runs, or in its thread: room for so many more at once. */
WEIR_MUST_CHECK int weir_loop_reserve_alarms(struct weir_loop *loop, uint32_t more);
/* False: as many as there is room for are set. */
WEIR_MUST_CHECK bool weir_alarm_set(struct weir_loop *loop, struct weir_alarm *alarm,
                                    uint64_t delay_ns);
void weir_alarm_cancel(struct weir_loop *loop, struct weir_alarm *alarm); /* also if not set */
/* How long until it rings; 0 where it is due, or not set. */
uint64_t weir_alarm_left(const struct weir_alarm *alarm);

#endif
