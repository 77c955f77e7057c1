/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/redis_request.h"

#include "engine/atomic.h"
#include "engine/charge.h"
#include "engine/combine.h"
#include "engine/enforce.h"
#include "engine/key_override.h"
#include "engine/plan.h"
#include "engine/publish.h"
#include "table/key_overrides.h"

#define NAMES_MAX (4u << 20) /* bytes of all names of a request */

void weir_redis_request_init(struct weir_redis_request *r, struct weir_session *session)
{
    r->session = session;
    r->count = 0;
    weir_buf_init(&r->names, NAMES_MAX);
}

void weir_redis_request_fini(struct weir_redis_request *r)
{
    weir_buf_fini(&r->names);
}

/* The rule's limits are all asked for in one place. */
static bool is_local(const struct weir_item *item)
{
    for (uint32_t i = 0; i < item->charge_count; i++) {
        const struct weir_limit *limit = item->charges[i].limit;
        if (limit->approx != NULL || limit->is_host_scope)
            return true;
    }
    return item->charge_count == 0;
}

/* Some values are shared or cut, and the plan did not keep which: found again.  The charge's limit
 * may be a copy, but has the tag of the rule's. */
static const struct weir_rule_limit *match_again(struct weir_redis_request *r,
                                                 const struct weir_descriptor *d, uint64_t tag)
{
    uint32_t i = 0;
    weir_rules_match(r->plan->domain, d->entries, d->entry_count, &r->match);
    while (r->match.limits[i].limit.tag != tag)
        i++;
    return &r->match.limits[i];
}

static enum weir_redis_part part_of(const struct weir_item *item)
{
    if (item->is_shadow || item->is_refund)
        return WEIR_REDIS_NO_PART;
    return item->is_quota ? WEIR_REDIS_PART_QUOTA : WEIR_REDIS_PART;
}

static bool takes_part(const struct weir_item *item)
{
    return item->charge_count > 0 && part_of(item) != WEIR_REDIS_NO_PART;
}

static void add_counter(struct weir_redis_request *r, const struct weir_item *item, uint32_t k,
                        struct weir_str prefix)
{
    struct weir_charge *charge = &item->charges[k];
    const struct weir_descriptor *d = item->descriptor;
    const struct weir_domain *domain = r->plan->domain;
    const struct weir_rule_limit *matched = NULL;
    if (item->is_charged)
        matched = match_again(r, d, charge->limit->tag);
    weir_identity_name(&r->name, d->entries, d->entry_count, matched ? &r->match : NULL, matched);
    size_t from = r->names.len;
    weir_redis_key_add(&r->names, prefix, weir_domain_name(domain), r->name.entries, r->name.count,
                       charge->limit->tag);
    r->charges[r->count] = charge;
    r->counters[r->count++] = (struct weir_redis_counter){
        .key = {.len = r->names.len - from},
        .limit = charge->limit,
        .hits = charge->hits,
        .op = item->is_refund ? WEIR_OP_GIVE : WEIR_OP_TAKE,
        .part = part_of(item),
        .ends = k + 1 == item->charge_count,
    };
}

/* What the table thinks of a rule, said as a limit of 0 would: it refuses one hit, and allows none.
 */
static void add_stand_in(struct weir_redis_request *r, enum weir_redis_part part, bool allowed)
{
    static const struct weir_limit closed = {.algorithm = WEIR_FIXED_WINDOW};
    r->charges[r->count] = NULL;
    r->counters[r->count++] = (struct weir_redis_counter){
        .limit = &closed,
        .hits = !allowed,
        .op = WEIR_OP_TAKE,
        .part = part,
        .ends = true,
    };
}

/* Only now that the names stay where they are.  Who stands in touches no key, but must name one
 * that lies in the same slot. */
static void point_to_names(struct weir_redis_request *r)
{
    const char *at = r->names.ptr;
    for (uint32_t i = 0; i < r->count; i++) {
        r->counters[i].key.ptr = at;
        at += r->counters[i].key.len;
    }
    for (uint32_t i = 0, first = 0; i < r->count; i++) {
        while (r->charges[first] == NULL)
            first++;
        if (r->charges[i] == NULL)
            r->counters[i].key = r->counters[first].key;
    }
}

/* Decides by the table, or looks. */
static void ask_table(struct weir_redis_request *r, uint32_t i)
{
    struct weir_item *item = &r->plan->items[i];
    if (!r->plan->is_atomic || !takes_part(item)) {
        weir_charge_alone(r->session, item, r->now_ns, &r->statuses[i]);
        return;
    }
    r->is_looked[i] = true;
    add_stand_in(r, part_of(item), weir_charge_look(r->session, item, r->now_ns));
}

static bool is_all_local(const struct weir_plan *plan)
{
    for (uint32_t i = 0; i < plan->item_count; i++) {
        if (!is_local(&plan->items[i]))
            return false;
    }
    return true;
}

/* Each item's counters, unless the table decides it.  An atomic request of which that is true of
 * all items is the table's as a whole. */
static void ask_for_items(struct weir_redis_request *r, struct weir_str prefix)
{
    bool is_atomic = r->plan->is_atomic, is_whole = is_atomic && is_all_local(r->plan);
    for (uint32_t i = 0; i < r->plan->item_count; i++) {
        struct weir_item *item = &r->plan->items[i];
        r->is_local[i] = is_local(item);
        r->is_looked[i] = false;
        if (is_whole)
            continue;
        if (r->is_local[i])
            ask_table(r, i);
        for (uint32_t k = 0; k < item->charge_count && !r->is_local[i]; k++)
            add_counter(r, item, k, prefix);
        /* Takes no part, but is one of those in quota mode of which not all may be over. */
        if (is_atomic && item->is_quota && !takes_part(item))
            add_stand_in(r, WEIR_REDIS_PART_QUOTA, true);
    }
    if (is_whole)
        weir_atomic_decide(r->session, r->plan, r->now_ns, r->statuses);
}

int weir_redis_request_plan(struct weir_redis_request *r, const struct weir_request *request,
                            struct weir_str prefix, uint64_t now_ns, struct weir_status *statuses)
{
    struct weir_session *s = r->session;
    weir_plan_reset(s);
    int err = weir_plan_open(s, weir_publish_hold(s), request, false);
    if (err != 0)
        return err;
    r->plan = &s->plans[0];
    r->statuses = statuses;
    r->now_ns = now_ns;
    r->count = 0;
    weir_buf_cut(&r->names, 0);
    weir_plan_find(s, r->plan);
    weir_plan_fill(s, r->plan, false);
    if (weir_key_overrides_live(s->engine->table, now_ns))
        weir_key_override_apply(s, r->plan, now_ns);
    if (r->plan->is_atomic)
        weir_atomic_spare(s, r->plan);
    ask_for_items(r, prefix);
    if (r->names.has_failed)
        return WEIR_ERR_TOO_LARGE;
    point_to_names(r);
    return 0;
}

struct weir_redis_call weir_redis_request_call(const struct weir_redis_request *r)
{
    return (struct weir_redis_call){
        .counters = r->counters, .count = r->count, .is_atomic = r->plan->is_atomic};
}

bool weir_redis_request_settle(struct weir_redis_request *r)
{
    uint32_t kept = 0;
    for (uint32_t first = 0, last = 0; first < r->count; first = ++last) {
        bool is_stale = r->counters[first].is_stale;
        while (!r->counters[last].ends)
            is_stale |= r->counters[++last].is_stale;
        for (uint32_t i = first; i <= last; i++) {
            struct weir_charge *charge = r->charges[i];
            if (is_stale) {
                r->charges[kept] = charge;
                r->counters[kept++] = r->counters[i];
            }
            if (is_stale || charge == NULL)
                continue;
            charge->verdict = r->counters[i].verdict;
            charge->mark = r->counters[i].new_mark;
            charge->is_taken = r->counters[i].is_charged;
        }
    }
    r->count = kept;
    return kept == 0;
}

/* Redis has said yes to all that was asked: now what was only looked at is taken.  Somebody may
 * have been faster on this host: then the request is refused, though Redis has counted it. */
static void take_looked(struct weir_redis_request *r)
{
    for (uint32_t i = 0; i < r->plan->item_count; i++) {
        struct weir_item *item = &r->plan->items[i];
        if (r->is_looked[i] && r->statuses[i].code == WEIR_CODE_OK)
            weir_charge_alone(r->session, item, r->now_ns, &r->statuses[i]);
    }
}

static bool is_allowed(const struct weir_item *item)
{
    bool allowed = true;
    for (uint32_t i = 0; i < item->charge_count; i++)
        allowed &= item->charges[i].verdict.allowed;
    return allowed;
}

void weir_redis_request_decide(struct weir_redis_request *r, struct weir_decision *out)
{
    for (uint32_t i = 0; i < r->plan->item_count; i++) {
        if (r->is_local[i] && !r->is_looked[i])
            continue;
        struct weir_item *item = &r->plan->items[i];
        if (!is_allowed(item) && weir_enforce_spares(r->session, item))
            item->is_shadow = true;
        weir_charge_status(item, &r->statuses[i]);
        weir_charge_settle(r->session, item, &r->statuses[i]);
        r->statuses[i].ticket.count = 0; /* it would be released in the table */
    }
    out->is_denied = false;
    out->statuses = r->statuses;
    out->status_count = r->plan->item_count;
    out->overall = weir_combine(r->statuses, r->plan->item_count);
    if (out->overall == WEIR_CODE_OK) {
        take_looked(r);
        out->overall = weir_combine(r->statuses, r->plan->item_count);
    }
    if (r->session->engine->options.shadow_mode)
        out->overall = WEIR_CODE_OK;
}
