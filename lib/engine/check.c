/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/decide.h"
#include "engine/key_override.h"
#include "engine/plan.h"
#include "engine/publish.h"
#include "table/key_overrides.h"

static inline void decide(struct weir_session *s, struct weir_plan *plan, uint64_t now_ns,
                          struct weir_decision *out)
{
    if (WEIR_SELDOM(weir_key_overrides_live(s->engine->table, now_ns)))
        weir_key_override_apply(s, plan, now_ns);
    weir_decide(s, plan, now_ns, out);
}

void weir_check_planned(struct weir_session *s, struct weir_plan *plan, uint64_t now_ns,
                        struct weir_decision *out)
{
    decide(s, plan, now_ns, out);
}

static int check_one(struct weir_session *s, const struct weir_published *published,
                     const struct weir_request *request, uint64_t now_ns, bool is_refund,
                     struct weir_decision *out)
{
    int err = weir_plan_one(s, published, request, is_refund);
    if (err == 0)
        decide(s, &s->plans[0], now_ns, out);
    return err;
}

int weir_check(struct weir_session *s, const struct weir_request *request, uint64_t now_ns,
               struct weir_decision *out)
{
    return check_one(s, weir_publish_hold(s), request, now_ns, false, out);
}

int weir_check_held(struct weir_session *s, const struct weir_request *request, uint64_t now_ns,
                    struct weir_decision *out)
{
    return check_one(s, s->mine, request, now_ns, false, out);
}

int weir_refund(struct weir_session *s, const struct weir_request *request, uint64_t now_ns,
                struct weir_decision *out)
{
    return check_one(s, weir_publish_hold(s), request, now_ns, true, out);
}

/* Plans as many of n requests as the session has room for, at least one; says how many. */
static size_t plan_some(struct weir_session *s, const struct weir_published *published,
                        const struct weir_request *requests, size_t n, int *results)
{
    size_t planned = 0;
    weir_plan_reset(s);
    do {
        results[planned] = weir_plan_open(s, published, &requests[planned]);
        planned++;
    } while (planned < n && weir_plan_has_room(s, requests[planned].descriptor_count));
    for (uint32_t i = 0; i < s->plan_count; i++)
        weir_plan_find(s, &s->plans[i]);
    for (uint32_t i = 0; i < s->plan_count; i++)
        weir_plan_fill(s, &s->plans[i]);
    return planned;
}

void weir_check_many(struct weir_session *s, const struct weir_request *requests, size_t n,
                     uint64_t now_ns, struct weir_decision *outs, int *results)
{
    const struct weir_published *published = weir_publish_hold(s);
    while (n > 0) {
        size_t planned = plan_some(s, published, requests, n, results);
        struct weir_plan *plan = s->plans;
        for (size_t i = 0; i < planned; i++) {
            if (results[i] == 0)
                decide(s, plan++, now_ns, &outs[i]);
        }
        requests += planned;
        outs += planned;
        results += planned;
        n -= planned;
    }
}
