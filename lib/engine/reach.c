/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/reach.h"

#include "algo/lease.h"

#define CLOSED_FOR_NS WEIR_NS_PER_S

bool weir_reach_is_host(const struct weir_item *item)
{
    for (uint32_t i = 0; i < item->charge_count; i++) {
        const struct weir_limit *limit = item->charges[i].limit;
        if (limit->approx != NULL || limit->is_host_scope)
            return true;
    }
    return item->charge_count == 0;
}

bool weir_reach_is_eventual(const struct weir_item *item)
{
    for (uint32_t i = 0; i < item->charge_count; i++) {
        if (item->charges[i].limit->consistency != WEIR_CONSISTENCY_EVENTUAL)
            return false;
    }
    return item->charge_count > 0;
}

bool weir_reach_may_lease(const struct weir_plan *plan, const struct weir_item *item)
{
    return !plan->is_atomic && item->charge_count == 1 && !item->is_refund &&
           item->charges->hits > 0 && item->charges->limit->count_if == 0 &&
           weir_lease_suits(item->charges->limit);
}

/* ---- alone ---- */

static enum weir_on_store_error policy_of(const struct weir_alone *alone,
                                          const struct weir_limit *limit)
{
    enum weir_on_store_error said = (enum weir_on_store_error)limit->on_store_error;
    return said == WEIR_STORE_ERROR_UNSAID ? alone->on_error : said;
}

/* This machine's share of a limit: none is left where there are more machines than hits. */
static void make_share(const struct weir_alone *alone, const struct weir_limit *whole,
                       struct weir_limit *out)
{
    char why[8];
    uint32_t requests = whole->requests / alone->nodes, burst = whole->burst / alone->nodes;
    if (weir_limit_with(out, whole, requests, burst > 0 ? burst : 1, why, sizeof(why)) == 0 &&
        weir_local_bind_own(alone->table, out, whole->generation) == 0)
        return;
    *out = *whole; /* it cannot be counted so: then each has it all, and not nothing */
}

enum weir_on_store_error weir_alone_substitute(const struct weir_alone *alone,
                                               struct weir_item *item, struct weir_limit *limits)
{
    uint32_t kept = 0;
    bool is_closed = false;
    for (uint32_t i = 0; i < item->charge_count; i++) {
        struct weir_charge *charge = &item->charges[i];
        enum weir_on_store_error policy = policy_of(alone, charge->limit);
        if (policy == WEIR_STORE_ERROR_OPEN)
            continue;
        if (policy == WEIR_STORE_ERROR_LOCAL) {
            make_share(alone, charge->limit, &limits[kept]);
        } else {
            limits[kept] = *charge->limit;
            limits[kept].requests = 0;
            is_closed = true;
        }
        item->charges[kept] = *charge;
        item->charges[kept].key ^= WEIR_ALONE_TAG;
        item->charges[kept].limit = &limits[kept];
        kept++;
    }
    item->charge_count = kept;
    item->closed_for_ns = CLOSED_FOR_NS; /* where the share is nothing, too */
    return is_closed  ? WEIR_STORE_ERROR_CLOSED
           : kept > 0 ? WEIR_STORE_ERROR_LOCAL
                      : WEIR_STORE_ERROR_OPEN;
}

void weir_alone_call_back(const struct weir_item *item)
{
    for (uint32_t i = 0; i < item->charge_count; i++)
        item->charges[i].key ^= WEIR_ALONE_TAG;
}

void weir_alone_tell(struct weir_status *status, uint32_t requests)
{
    if (!status->is_limited || status->limit != 0)
        return;
    status->limit = requests;
    status->reset_after_ns = CLOSED_FOR_NS;
}
