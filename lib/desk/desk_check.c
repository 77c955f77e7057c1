/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/decide.h"
#include "engine/http.h"
#include "engine/key_override.h"
#include "engine/plan.h"
#include "engine/publish.h"
#include "engine/spend.h"
#include "engine/stats.h"

#include "desk/desk.h"
#include "table/key_overrides.h"

/* While a request is decided. */
struct deciding {
    struct weir_desk *desk;
    struct weir_session *session;
    const struct weir_request *request;
    struct weir_plan *plan;
    uint64_t now_ns;
    struct weir_decision *out;
};

/* ---- by tokens ---- */

static struct weir_lease_at lease_of(const struct deciding *d, const struct weir_item *item)
{
    /* Now, and not when the turn began: see store/lease.h. */
    return weir_lease_at(d->session->engine->table, d->desk->welcome.store, item->charges->key,
                         item->charges->limit, weir_table_boot_ns());
}

/* Whether all that is not this host's may be decided by tokens, which seem to be there. */
static bool has_leases(const struct deciding *d)
{
    const struct weir_desk *desk = d->desk;
    if (desk->state != WEIR_DESK_OPEN || !desk->welcome.has_leases)
        return false;
    for (uint32_t i = 0; i < d->plan->item_count; i++) {
        const struct weir_item *item = &d->plan->items[i];
        if (weir_reach_is_host(item))
            continue;
        if (!weir_reach_may_lease(d->plan, item) || weir_reach_is_eventual(item))
            return false;
        struct weir_lease_at at = lease_of(d, item);
        if (!weir_lease_has(&at, item->charges->hits))
            return false;
    }
    return true;
}

/* Now and then the service is told what is spent without it, for its metrics. */
static void tell_spent(struct weir_desk *desk, uint64_t now_ns)
{
    bool is_any = desk->spent.leased + desk->spent.refused > 0;
    if (!is_any || now_ns - desk->spent_ns < WEIR_NS_PER_S ||
        !weir_desk_put_spent(&desk->out, &desk->spent))
        return;
    desk->spent = (struct weir_desk_spent){0};
    desk->spent_ns = now_ns;
}

/* More should be leased: the service is told, and nobody waits. */
static void ask_for_more(const struct deciding *d, uint32_t i)
{
    struct weir_request one = *d->request;
    tell_spent(d->desk, d->now_ns);
    one.descriptors += i;
    one.descriptor_count = 1;
    (void)weir_desk_put_check(&d->desk->out, WEIR_DESK_REFILL, 0, &one); /* or it will be asked */
}

static bool take_lease(const struct deciding *d, uint32_t i)
{
    struct weir_item *item = &d->plan->items[i];
    struct weir_charge *charge = item->charges;
    struct weir_lease_at at = lease_of(d, item);
    struct weir_lease_taken taken = weir_charge_spend(charge, &at, d->desk->board);
    if (taken.said == WEIR_LEASE_NONE)
        return false;
    d->desk->spent.leased += charge->is_taken;
    d->desk->spent.tokens += charge->is_taken ? charge->hits : 0;
    d->desk->spent.refused += !charge->is_taken;
    if (taken.is_low)
        ask_for_more(d, i);
    return true;
}

/* Somebody may be faster between looking and taking: what was taken is lost then, which makes the
 * limit tighter by so much, and the service is asked for all. */
static bool decide_by_leases(const struct deciding *d)
{
    if (!has_leases(d))
        return false;
    for (uint32_t i = 0; i < d->plan->item_count; i++) {
        if (!weir_reach_is_host(&d->plan->items[i]) && !take_lease(d, i))
            return false;
    }
    for (uint32_t i = 0; i < d->plan->item_count; i++) {
        struct weir_item *item = &d->plan->items[i];
        struct weir_status *status = &d->out->statuses[i];
        if (weir_reach_is_host(item)) {
            weir_charge_alone(d->session, item, d->now_ns, status);
            continue;
        }
        weir_charge_told(d->session, item, status);
        weir_stats_decided(d->session, item, &item->charges->verdict);
    }
    weir_decide_end(d->session, d->plan, d->now_ns, d->out);
    ++*(d->out->overall == WEIR_CODE_OK ? &d->desk->counts.leased : &d->desk->counts.refused);
    return true;
}

/* ---- by the service ---- */

/* The only counter that is not this host's, if there is one: what is left of it is remembered. */
static void name_counter(const struct deciding *d, struct weir_desk_entry *entry)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < d->plan->item_count; i++) {
        const struct weir_item *item = &d->plan->items[i];
        if (weir_reach_is_host(item))
            continue;
        entry->key = item->charges->key;
        entry->is_dated = lease_of(d, item).is_dated;
        entry->descriptor = i;
        count += item->charge_count;
    }
    if (count != 1)
        entry->key = 0;
}

/* 0: nobody can be asked. */
static int ask(const struct deciding *d, struct weir_desk_waiter *waiter)
{
    struct weir_desk *desk = d->desk;
    struct weir_desk_entry *entry =
        weir_desk_is_there(desk) ? weir_desk_enter(desk, WEIR_DESK_WAITS, d->now_ns) : NULL;
    if (entry == NULL)
        return 0;
    if (desk->state == WEIR_DESK_OPEN)
        tell_spent(desk, d->now_ns);
    if (!weir_desk_put_check(&desk->out, WEIR_DESK_CHECK, weir_desk_id(entry), d->request)) {
        weir_desk_leave(entry);
        return 0;
    }
    name_counter(d, entry);
    entry->waiter = waiter;
    waiter->entry = entry;
    desk->counts.asked++;
    return WEIR_PENDING;
}

/* ---- alone ---- */

/* What has passed is owed to the store; requests: of the limits that are its to count, or 0. */
static void note_passed(const struct deciding *d, const uint32_t *requests)
{
    struct weir_request passed = *d->request;
    passed.descriptors = d->desk->passed;
    passed.descriptor_count = 0;
    for (uint32_t i = 0; i < d->plan->item_count; i++) {
        const struct weir_status *status = &d->out->statuses[i];
        bool is_refused = status->code != WEIR_CODE_OK || status->is_shadow ||
                          (d->plan->is_atomic && d->out->overall != WEIR_CODE_OK);
        if (requests[i] > 0 && !is_refused && !d->plan->items[i].is_refund)
            d->desk->passed[passed.descriptor_count++] = d->request->descriptors[i];
    }
    weir_desk_owe(d->desk, &passed, d->now_ns);
}

static void decide_alone(const struct deciding *d)
{
    const struct weir_alone alone = {
        .table = d->session->engine->table,
        .on_error = (enum weir_on_store_error)d->desk->welcome.on_error,
        .nodes = d->desk->welcome.nodes,
    };
    uint32_t requests[WEIR_DESCRIPTORS_MAX] = {0};
    for (uint32_t i = 0; i < d->plan->item_count; i++) {
        struct weir_item *item = &d->plan->items[i];
        if (!weir_reach_is_host(item)) {
            requests[i] = item->charges->limit->requests;
            (void)weir_alone_substitute(&alone, item,
                                        &d->desk->limits[item->charges - d->session->charges]);
        }
        if (!d->plan->is_atomic)
            weir_charge_alone(d->session, item, d->now_ns, &d->out->statuses[i]);
    }
    if (d->plan->is_atomic)
        weir_atomic_decide(d->session, d->plan, d->now_ns, d->out->statuses);
    for (uint32_t i = 0; i < d->plan->item_count; i++) {
        weir_alone_tell(&d->out->statuses[i], requests[i]);
        if (requests[i] > 0)
            weir_alone_call_back(&d->plan->items[i]);
    }
    weir_decide_end(d->session, d->plan, d->now_ns, d->out);
    note_passed(d, requests);
    d->desk->counts.alone++;
}

/* ---- for callers ---- */

static bool is_all_host(const struct weir_plan *plan)
{
    for (uint32_t i = 0; i < plan->item_count; i++) {
        if (!weir_reach_is_host(&plan->items[i]))
            return false;
    }
    return true;
}

/* By the rules that the session holds. */
static int check_held(struct weir_desk *desk, const struct weir_request *request, uint64_t now_ns,
                      struct weir_decision *out, struct weir_desk_waiter *waiter)
{
    struct weir_session *s = desk->session;
    int err = weir_plan_one(s, s->mine, request, false);
    if (err != 0)
        return err;
    struct deciding d = {.desk = desk,
                         .session = s,
                         .request = request,
                         .plan = &s->plans[0],
                         .now_ns = now_ns,
                         .out = out};
    bool has_store = desk->state != WEIR_DESK_OPEN || desk->welcome.has_store;
    if (!has_store || is_all_host(d.plan)) {
        weir_check_planned(s, d.plan, now_ns, out);
        return 0;
    }
    if (weir_key_overrides_live(s->engine->table, now_ns))
        weir_key_override_apply(s, d.plan, now_ns);
    if (waiter != NULL && decide_by_leases(&d))
        return 0;
    if (waiter != NULL && ask(&d, waiter) == WEIR_PENDING)
        return WEIR_PENDING;
    decide_alone(&d);
    return 0;
}

int weir_desk_check(struct weir_desk *desk, const struct weir_request *request, uint64_t now_ns,
                    struct weir_decision *out, struct weir_desk_waiter *waiter)
{
    weir_publish_hold(desk->session);
    return check_held(desk, request, now_ns, out, waiter);
}

int weir_desk_check_http(struct weir_desk *desk, const struct weir_http *http, uint64_t now_ns,
                         struct weir_decision *out, struct weir_desk_waiter *waiter)
{
    struct weir_decision decision;
    struct weir_request request;
    int err = weir_http_describe(desk->session, http, &request, &decision);
    if (err == 0 && request.descriptor_count > 0)
        err = check_held(desk, &request, now_ns, &decision, waiter);
    if (err == 0)
        *out = decision;
    return err;
}
