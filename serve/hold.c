/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/hold.h"

#include "base/err.h"
#include "serve/ask.h"

#include <stdlib.h>

/* Blocks are handed out from the front of the array first, so that memory that is never needed is
 * never touched. */
struct weir_holds {
    struct weir_hold *free;
    uint32_t used, max; /* of at[] */
    _Atomic uint64_t counts[WEIR_HOLD_COUNTS];
    struct weir_hold at[];
};

int weir_holds_new(struct weir_holds **out, struct weir_loop *loop, uint32_t holds_max)
{
    struct weir_holds *holds =
        calloc(1, sizeof(*holds) + (size_t)holds_max * sizeof(struct weir_hold));
    if (holds == NULL)
        return WEIR_ERR_NOMEM;
    holds->max = holds_max;
    int err = weir_loop_reserve_alarms(loop, holds_max);
    if (err != 0) {
        free(holds);
        return err;
    }
    *out = holds;
    return 0;
}

void weir_holds_free(struct weir_holds *holds)
{
    free(holds);
}

/* relaxed, and no read-modify-write: one writer; readers want numbers, and nothing hangs on them */
static void add(struct weir_holds *holds, enum weir_hold_count counter, uint64_t n)
{
    uint64_t count = atomic_load_explicit(&holds->counts[counter], memory_order_relaxed);
    atomic_store_explicit(&holds->counts[counter], count + n, memory_order_relaxed);
}

uint64_t weir_holds_count(const struct weir_holds *holds, enum weir_hold_count counter)
{
    return atomic_load_explicit(&holds->counts[counter], memory_order_relaxed);
}

void weir_holds_note_too_long(struct weir_holds *holds)
{
    add(holds, WEIR_HOLD_COUNT_TOO_LONG, 1);
}

struct weir_hold *weir_hold_take(struct weir_holds *holds)
{
    struct weir_hold *hold = holds->free;
    if (hold != NULL)
        holds->free = hold->next;
    else if (holds->used < holds->max)
        hold = &holds->at[holds->used++];
    if (hold == NULL) {
        add(holds, WEIR_HOLD_COUNT_NO_ROOM, 1);
        return NULL;
    }
    add(holds, WEIR_HOLD_COUNT_NOW, 1);
    add(holds, WEIR_HOLD_COUNT_EVER, 1);
    hold->ticket_count = 0;
    hold->ask = NULL;
    return hold;
}

void weir_hold_remember(struct weir_hold *hold, const struct weir_decision *decision,
                        struct weir_asks *asks)
{
    if (asks != NULL)
        hold->ask = weir_ask_keep(asks);
    hold->ticket_count = 0;
    for (uint32_t i = 0; i < decision->status_count; i++)
        if (decision->statuses[i].ticket.count > 0 && hold->ticket_count < WEIR_HOLD_TICKETS_MAX)
            hold->tickets[hold->ticket_count++] = decision->statuses[i].ticket;
}

void weir_hold_give_back(struct weir_hold *hold, struct weir_worker *worker, bool is_forfeit)
{
    weir_alarm_cancel(worker->loop, &hold->alarm);
    for (uint32_t i = 0; is_forfeit && i < hold->ticket_count; i++)
        weir_release(worker->session, &hold->tickets[i], weir_loop_now(worker->loop));
    if (hold->ask != NULL)
        weir_ask_let_go(hold->ask, is_forfeit);
    hold->next = worker->holds->free;
    worker->holds->free = hold;
    add(worker->holds, WEIR_HOLD_COUNT_NOW, UINT64_MAX); /* - 1 */
}
