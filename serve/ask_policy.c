/* ask_policy.c - on_store_error: who decides while the store does not answer (engine/reach.h).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/atomic.h"
#include "engine/charge.h"
#include "engine/reach.h"
#include "serve/ask_internal.h"

/* Gives an item the charges that decide it now. */
static void substitute(struct weir_asks *asks, struct weir_item *item, struct weir_limit *limits)
{
    static const enum weir_ask_count counts[] = {
        [WEIR_STORE_ERROR_LOCAL] = WEIR_ASK_COUNT_LOCAL,
        [WEIR_STORE_ERROR_OPEN] = WEIR_ASK_COUNT_OPEN,
        [WEIR_STORE_ERROR_CLOSED] = WEIR_ASK_COUNT_CLOSED,
    };
    const struct weir_alone alone = {
        .table = asks->worker->engine->table,
        .on_error = asks->shared->on_error,
        .nodes = weir_ask_nodes(asks->shared),
    };
    weir_ask_add(asks, counts[weir_alone_substitute(&alone, item, limits)], 1);
}

/* An atomic request is decided anew, as a whole.  Who takes no part in it and was decided by the
 * table has been charged, and must not be again. */
static void decide_atomic(struct weir_asks *asks, struct weir_redis_request *r, uint64_t now_ns,
                          struct weir_status *statuses)
{
    uint32_t charge_counts[WEIR_DESCRIPTORS_MAX];
    struct weir_plan plan = {.items = r->items, .item_count = r->item_count, .is_atomic = true};
    for (uint32_t i = 0; i < r->item_count; i++) {
        charge_counts[i] = r->items[i].charge_count;
        if (r->deciders[i] == WEIR_BY_TABLE)
            r->items[i].charge_count = 0;
        else if (r->deciders[i] == WEIR_BY_TABLE_LOOKED)
            r->deciders[i] = WEIR_BY_NOBODY;
    }
    weir_atomic_decide(asks->worker->session, &plan, now_ns, statuses);
    for (uint32_t i = 0; i < r->item_count; i++) {
        if (r->deciders[i] != WEIR_BY_TABLE)
            continue;
        r->items[i].charge_count = charge_counts[i];
        weir_charge_status(&r->items[i], &statuses[i]);
    }
}

static void tell_limits(const struct weir_redis_request *r, struct weir_status *statuses)
{
    for (uint32_t i = 0; i < r->count; i++) {
        if (r->deciders[r->owners[i].item] == WEIR_BY_NOBODY)
            weir_alone_tell(&statuses[r->owners[i].item], r->counters[i].limit->requests);
    }
}

static void call_back(const struct weir_redis_request *r)
{
    for (uint32_t i = 0; i < r->item_count; i++) {
        if (r->deciders[i] == WEIR_BY_NOBODY)
            weir_alone_call_back(&r->items[i]);
    }
}

void weir_ask_fall_back(struct weir_asks *asks, struct weir_redis_request *r, uint64_t now_ns,
                        struct weir_status *statuses)
{
    bool has_failed = false;
    for (uint32_t i = 0; i < r->item_count; i++) {
        struct weir_item *item = &r->items[i];
        if (r->deciders[i] != WEIR_BY_NOBODY)
            continue;
        has_failed = true;
        if (item->charge_count > 0)
            substitute(asks, item, &asks->limits[item->charges - r->charges]);
        if (!r->is_atomic)
            weir_charge_alone(asks->worker->session, item, now_ns, &statuses[i]);
    }
    if (!has_failed)
        return;
    if (r->is_atomic)
        decide_atomic(asks, r, now_ns, statuses);
    tell_limits(r, statuses);
    call_back(r);
}

void weir_ask_forget_share(struct weir_asks *asks, uint64_t key)
{
    (void)weir_local_reset(asks->worker->engine->table, key ^ WEIR_ALONE_TAG);
}
