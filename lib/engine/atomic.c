/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/atomic.h"

#include "engine/charge.h"
#include "engine/combine.h"
#include "engine/enforce.h"
#include "engine/stats.h"

static bool takes_part(const struct weir_item *item)
{
    return item->charge_count > 0 && !item->is_shadow && !item->is_refund;
}

void weir_atomic_spare(const struct weir_session *s, struct weir_plan *plan)
{
    for (uint32_t i = 0; i < plan->item_count; i++) {
        struct weir_item *item = &plan->items[i];
        item->is_shadow =
            item->is_rule_shadow || (item->charge_count > 0 && weir_enforce_spares(s, item));
    }
}

static void look_at_all(struct weir_session *s, struct weir_plan *plan, uint64_t now_ns,
                        struct weir_status *statuses)
{
    for (uint32_t i = 0; i < plan->item_count; i++) {
        struct weir_item *item = &plan->items[i];
        if (takes_part(item)) {
            weir_charge_look(s, item, now_ns);
            weir_charge_status(item, &statuses[i]);
        } else {
            weir_charge_alone(s, item, now_ns, &statuses[i]);
        }
    }
}

/* The charges of all descriptors that were allowed.  In quota mode some may be over though the
 * answer is OK. */
static uint32_t collect(struct weir_session *s, struct weir_plan *plan,
                        const struct weir_status *statuses)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->item_count; i++) {
        struct weir_item *item = &plan->items[i];
        if (!takes_part(item) || statuses[i].code != WEIR_CODE_OK)
            continue;
        for (uint32_t k = 0; k < item->charge_count; k++)
            s->order[count++] = &item->charges[k];
    }
    weir_charge_sort(s->order, count);
    return count;
}

static uint32_t item_of(const struct weir_plan *plan, const struct weir_charge *charge)
{
    uint32_t i = 0;
    while (charge < plan->items[i].charges ||
           charge >= plan->items[i].charges + plan->items[i].charge_count)
        i++;
    return i;
}

static void undo_all(struct weir_session *s, struct weir_plan *plan, uint64_t now_ns)
{
    for (uint32_t i = 0; i < plan->item_count; i++) {
        struct weir_item *item = &plan->items[i];
        if (takes_part(item))
            weir_charge_undo(s, item->charges, item->charge_count, now_ns);
    }
}

/* Takes what was looked at.  A descriptor that is refused after all drops out whole; that matters
 * to the others only if it changes the answer. */
static void take_all(struct weir_session *s, struct weir_plan *plan, uint64_t now_ns,
                     struct weir_status *statuses)
{
    uint32_t count = collect(s, plan, statuses);
    for (uint32_t i = 0; i < count; i++) {
        struct weir_charge *c = s->order[i];
        uint32_t at = item_of(plan, c);
        struct weir_item *item = &plan->items[at];
        if (statuses[at].code != WEIR_CODE_OK || weir_charge_take(s, c, now_ns))
            continue;
        weir_charge_undo(s, item->charges, item->charge_count, now_ns);
        weir_charge_status(item, &statuses[at]);
        if (weir_combine(statuses, plan->item_count) == WEIR_CODE_OK)
            continue;
        undo_all(s, plan, now_ns);
        return;
    }
}

void weir_atomic_untaken(struct weir_session *s, struct weir_item *item, uint64_t now_ns,
                         struct weir_status *status)
{
    for (uint32_t i = 0; i < item->charge_count; i++) {
        struct weir_charge *c = &item->charges[i];
        weir_local_look(s->engine->table, c->limit, c->key, now_ns, 0, &c->verdict);
    }
    weir_charge_status(item, status);
    weir_stats_asked(s, item);
}

void weir_atomic_decide(struct weir_session *s, struct weir_plan *plan, uint64_t now_ns,
                        struct weir_status *statuses)
{
    weir_atomic_spare(s, plan);
    look_at_all(s, plan, now_ns, statuses);
    if (weir_combine(statuses, plan->item_count) == WEIR_CODE_OK)
        take_all(s, plan, now_ns, statuses);
    bool is_ok = weir_combine(statuses, plan->item_count) == WEIR_CODE_OK;
    for (uint32_t i = 0; i < plan->item_count; i++) {
        struct weir_item *item = &plan->items[i];
        if (!takes_part(item))
            continue;
        if (!is_ok && statuses[i].code == WEIR_CODE_OK) {
            weir_atomic_untaken(s, item, now_ns, &statuses[i]);
            continue;
        }
        weir_charge_status(item, &statuses[i]);
        weir_charge_settle(s, item, &statuses[i]);
    }
}
