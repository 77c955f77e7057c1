/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/plan.h"
#include "engine/publish.h"

int weir_reset(struct weir_session *s, const struct weir_request *request, uint32_t *cleared)
{
    int err = weir_plan_one(s, weir_publish_hold(s), request, false);
    if (err)
        return err;
    struct weir_plan *plan = &s->plans[0];
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->item_count; i++)
        for (uint32_t c = 0; c < plan->items[i].charge_count; c++)
            count += weir_local_reset(s->engine->table, plan->items[i].charges[c].key);
    *cleared = count;
    return 0;
}
