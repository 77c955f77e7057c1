/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hot.h"
#include "engine/atomic.h"
#include "engine/charge.h"
#include "engine/combine.h"
#include "engine/key_override.h"
#include "engine/plan.h"
#include "engine/publish.h"
#include "engine/recall.h"
#include "engine/top.h"
#include "table/key_overrides.h"

static inline void decide_as_planned(struct weir_session *s, struct weir_plan *plan,
                                     uint64_t now_ns, struct weir_decision *out)
{
    if (plan->is_atomic) {
        weir_atomic_decide(s, plan, now_ns, out->statuses);
    } else {
        for (uint32_t i = 0; i < plan->item_count; i++)
            weir_charge_alone(s, &plan->items[i], now_ns, &out->statuses[i]);
    }
    out->is_denied = false;
    out->status_count = plan->item_count;
    out->overall = weir_combine(out->statuses, plan->item_count);
    if (s->engine->is_shadow)
        out->overall = WEIR_CODE_OK; /* the statuses still say what each limit decided */
    if (weir_top_is_due(s))
        weir_top_tell(s, plan, out->statuses, now_ns);
}

static inline void decide(struct weir_session *s, struct weir_plan *plan, uint64_t now_ns,
                          struct weir_decision *out)
{
    if (__builtin_expect(weir_key_overrides_live(s->engine->table, now_ns), 0))
        weir_key_override_apply(s, plan, now_ns);
    decide_as_planned(s, plan, now_ns, out);
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

/* An HTTP request that has no plan yet. */
static __attribute__((noinline)) int check_described(struct weir_session *s,
                                                     const struct weir_http *http, uint64_t now_ns,
                                                     struct weir_decision *out)
{
    struct weir_http heard = weir_recall_listen(s, http);
    struct weir_decision decision;
    struct weir_request request;
    int err = weir_http_describe(s, &heard, &request, &decision);
    if (!err && request.descriptor_count > 0) {
        err = check_one(s, s->mine, &request, now_ns, false, &decision);
        if (!err)
            weir_recall_note(s, now_ns);
    }
    if (!err)
        *out = decision;
    return err;
}

WEIR_HOT int weir_check_http(struct weir_session *s, const struct weir_http *http, uint64_t now_ns,
                             struct weir_decision *out)
{
    (void)weir_publish_hold(s);
    if (!weir_recall(s, http, now_ns))
        return check_described(s, http, now_ns, out);
    out->statuses = s->http->statuses;
    decide_as_planned(s, &s->plans[0], now_ns, out); /* and no key has a limit of its own */
    return 0;
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
