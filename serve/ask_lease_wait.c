/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/ask_lease_wait.h"

#include "base/err.h"
#include "net/alarm.h"

#include <stdlib.h>
#include <string.h>

/* A grant that waits, in a block of its own; the counter's name lies behind it. */
struct unsure {
    struct unsure *next;
    uint64_t begun_ns; /* to wait */
    struct weir_ask_grant grant;
    struct weir_redis_counter counter;
    struct weir_limit limit;
};

struct weir_ask_waits {
    struct weir_asks *asks;
    struct unsure *first, *last; /* in the order in which they began */
    struct weir_alarm alarm;     /* for the first, or earlier */
};

bool weir_ask_lease_is_sure(const struct weir_asks *asks)
{
    return asks->shared->settings->store_wait == 0;
}

/* ---- keeping ---- */

static uint64_t deadline_ns(const struct weir_ask_waits *waits)
{
    return waits->asks->shared->settings->store_deadline * UINT64_C(1000000);
}

static void wait_for_first(struct weir_ask_waits *waits)
{
    if (waits->first == NULL || waits->alarm.place != 0)
        return;
    uint64_t due_ns = waits->first->begun_ns + deadline_ns(waits), now_ns = weir_redis_now();
    bool is_set = weir_alarm_set(waits->asks->worker->loop, &waits->alarm,
                                 due_ns > now_ns ? due_ns - now_ns : 0);
    WEIR_ASSERT(is_set); /* there is room for this one */
}

static void lose(struct weir_asks *asks, uint32_t tokens)
{
    weir_ask_add(asks, WEIR_ASK_COUNT_UNREPLICATED, 1);
    weir_ask_add(asks, WEIR_ASK_COUNT_GRANTED, tokens);
    weir_ask_add(asks, WEIR_ASK_COUNT_LEASE_EXPIRED, tokens);
}

void weir_ask_lease_wait(struct weir_ask_waits *waits, struct weir_ask_grant *grant)
{
    struct weir_str name = grant->counter->key;
    struct unsure *unsure = NULL;
    if (grant->wait != 0 && name.len <= WEIR_ASK_BLOCK - sizeof(*unsure))
        unsure = weir_ask_block_take(waits->asks);
    if (unsure == NULL) {
        lose(waits->asks, grant->counter->granted);
        return;
    }
    *unsure = (struct unsure){
        .begun_ns = weir_redis_now(),
        .grant = *grant,
        .counter = *grant->counter,
        .limit = *grant->counter->limit,
    };
    unsure->counter.key.ptr = memcpy(unsure + 1, name.ptr, name.len);
    unsure->counter.limit = &unsure->limit;
    unsure->grant.counter = &unsure->counter;
    grant->flight = NULL;
    *(waits->last != NULL ? &waits->last->next : &waits->first) = unsure;
    waits->last = unsure;
    wait_for_first(waits);
}

/* ---- the end ---- */

static void finish(struct weir_asks *asks, struct unsure *unsure, bool is_replicated, int err)
{
    if (is_replicated)
        weir_ask_lease_use(asks->leases, &unsure->grant);
    else
        lose(asks, unsure->counter.granted);
    if (unsure->grant.flight != NULL)
        weir_ask_lease_landed(asks->leases, unsure->grant.flight, err);
    weir_ask_block_give(asks, unsure);
}

void weir_ask_replicated(void *ctx, uint64_t wait, bool is_replicated)
{
    struct weir_asks *asks = ctx;
    struct weir_ask_waits *waits = asks->waits;
    struct unsure *unsure = waits->first;
    /* Who lands may begin to wait anew: for another number, in the list that is made here. */
    waits->first = waits->last = NULL;
    while (unsure != NULL) {
        struct unsure *next = unsure->next;
        if (unsure->grant.wait == wait) {
            finish(asks, unsure, is_replicated, 0);
        } else {
            unsure->next = NULL;
            *(waits->last != NULL ? &waits->last->next : &waits->first) = unsure;
            waits->last = unsure;
        }
        unsure = next;
    }
}

/* Redis has stopped answering: nobody waits for it longer than for a call. */
static void on_deadline(void *ctx)
{
    struct weir_ask_waits *waits = ctx;
    uint64_t now_ns = weir_redis_now();
    while (waits->first != NULL && now_ns - waits->first->begun_ns >= deadline_ns(waits)) {
        struct unsure *unsure = waits->first;
        waits->first = unsure->next;
        if (waits->first == NULL)
            waits->last = NULL;
        finish(waits->asks, unsure, false, WEIR_ERR_STORE_LATE);
    }
    wait_for_first(waits);
}

/* ---- life ---- */

int weir_ask_waits_new(struct weir_ask_waits **out, struct weir_asks *asks)
{
    struct weir_ask_waits *waits = calloc(1, sizeof(*waits));
    if (waits == NULL || weir_loop_reserve_alarms(asks->worker->loop, 1) != 0) {
        free(waits);
        return WEIR_ERR_NOMEM;
    }
    waits->asks = asks;
    waits->alarm = (struct weir_alarm){.ring = on_deadline, .ctx = waits};
    *out = waits;
    return 0;
}

void weir_ask_waits_free(struct weir_ask_waits *waits)
{
    if (waits == NULL)
        return;
    weir_alarm_cancel(waits->asks->worker->loop, &waits->alarm);
    free(waits);
}
