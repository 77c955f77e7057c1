/* ask_policy.c - on_store_error: who decides while the store does not answer.
 *
 *     local    the table, on counters of their own, with L divided by the machines last seen
 *     open     nobody: it passes, and no limit is told
 *     closed   nobody: it is refused, and may come again in a second
 *
 * Of a rule with several limits one that is closed refuses; those that are local must all allow.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/atomic.h"
#include "engine/charge.h"
#include "serve/ask_internal.h"

#define TAG UINT64_C(0x6c6c6166) /* of counters that stand in for the store's */
#define CLOSED_FOR_NS WEIR_NS_PER_S

static enum weir_on_store_error policy_of(const struct weir_asks *asks,
                                          const struct weir_limit *limit)
{
    enum weir_on_store_error said = (enum weir_on_store_error)limit->on_store_error;
    return said == WEIR_STORE_ERROR_UNSAID ? asks->shared->on_error : said;
}

/* This machine's share of a limit: none is left where there are more machines than hits. */
static void make_share(struct weir_asks *asks, const struct weir_limit *whole,
                       struct weir_limit *out)
{
    char why[8];
    uint32_t nodes = weir_ask_nodes(asks->shared);
    uint32_t requests = whole->requests / nodes, burst = whole->burst / nodes;
    if (weir_limit_with(out, whole, requests, burst > 0 ? burst : 1, why, sizeof(why)) == 0 &&
        weir_local_bind_own(asks->worker->engine->table, out, whole->generation) == 0)
        return;
    *out = *whole; /* it cannot be counted so: then each has it all, and not nothing */
}

/* Gives an item the charges that decide it now. */
static void substitute(struct weir_asks *asks, struct weir_item *item, struct weir_limit *limits)
{
    uint32_t kept = 0;
    bool is_closed = false;
    for (uint32_t i = 0; i < item->charge_count; i++) {
        struct weir_charge *charge = &item->charges[i];
        enum weir_on_store_error policy = policy_of(asks, charge->limit);
        if (policy == WEIR_STORE_ERROR_OPEN)
            continue;
        if (policy == WEIR_STORE_ERROR_LOCAL) {
            make_share(asks, charge->limit, &limits[kept]);
        } else {
            limits[kept] = *charge->limit;
            limits[kept].requests = 0;
            is_closed = true;
        }
        item->charges[kept] = *charge;
        item->charges[kept].key ^= TAG;
        item->charges[kept].limit = &limits[kept];
        kept++;
    }
    item->charge_count = kept;
    item->closed_for_ns = CLOSED_FOR_NS; /* where the share is nothing, too */
    weir_ask_add(asks,
                 is_closed  ? WEIR_ASK_COUNT_CLOSED
                 : kept > 0 ? WEIR_ASK_COUNT_LOCAL
                            : WEIR_ASK_COUNT_OPEN,
                 1);
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

/* A limit that is closed for a while is still the limit that it is. */
static void tell_limits(const struct weir_redis_request *r, struct weir_status *statuses)
{
    for (uint32_t i = 0; i < r->count; i++) {
        struct weir_status *status = &statuses[r->owners[i].item];
        if (r->deciders[r->owners[i].item] == WEIR_BY_NOBODY && status->is_limited &&
            status->limit == 0) {
            status->limit = r->counters[i].limit->requests;
            status->reset_after_ns = CLOSED_FOR_NS;
        }
    }
}

/* Whoever tells of the counters means those that were stood in for. */
static void call_back(const struct weir_redis_request *r)
{
    for (uint32_t i = 0; i < r->item_count; i++) {
        const struct weir_item *item = &r->items[i];
        for (uint32_t k = 0; k < item->charge_count && r->deciders[i] == WEIR_BY_NOBODY; k++)
            item->charges[k].key ^= TAG;
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
    (void)weir_local_reset(asks->worker->engine->table, key ^ TAG);
}
