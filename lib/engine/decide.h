/* decide.h - a request that is planned is charged, and its answer put together.
 *
 * Inline, for the two ways that lead here (check.c, check_http.c), and in parts for who has the
 * charging done elsewhere.
 *
 * Threads: the session's own.  Time: an argument.  Allocation: none.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_DECIDE_H
#define WEIR_ENGINE_DECIDE_H

#include "engine/atomic.h"
#include "engine/charge.h"
#include "engine/combine.h"
#include "engine/top.h"

/* All items have their statuses: the answer. */
static inline void weir_decide_end(struct weir_session *s, const struct weir_plan *plan,
                                   uint64_t now_ns, struct weir_decision *out)
{
    out->is_denied = false;
    out->status_count = plan->item_count;
    out->overall = weir_combine(out->statuses, plan->item_count);
    if (WEIR_SELDOM(s->engine->is_shadow))
        out->overall = WEIR_CODE_OK; /* the statuses still say what each limit decided */
    if (weir_top_is_due(s))
        weir_top_tell(s, plan, out->statuses, now_ns);
}

/* out->statuses: room for as many as there are items. */
static inline void weir_decide(struct weir_session *s, struct weir_plan *plan, uint64_t now_ns,
                               struct weir_decision *out)
{
    if (WEIR_SELDOM(plan->is_atomic)) {
        weir_atomic_decide(s, plan, now_ns, out->statuses);
    } else {
        for (uint32_t i = 0; i < plan->item_count; i++)
            weir_charge_alone(s, &plan->items[i], now_ns, &out->statuses[i]);
    }
    weir_decide_end(s, plan, now_ns, out);
}

#endif
