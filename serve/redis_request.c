/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/redis_request.h"

#include "base/err.h"
#include "engine/atomic.h"
#include "engine/charge.h"
#include "engine/combine.h"
#include "engine/key_override.h"
#include "engine/plan.h"
#include "engine/reach.h"
#include "engine/stats.h"
#include "engine/ticket.h"
#include "serve/eventual.h"
#include "table/key_overrides.h"

#include <stdalign.h>
#include <string.h>

#define NAMES_MAX (4u << 20) /* bytes of all names of a request */

/* While it is planned. */
struct planning {
    struct weir_redis_request *r;
    struct weir_redis_planner *planner;
    struct weir_session *session;
    const struct weir_plan *plan;
    struct weir_str prefix;
    uint64_t now_ns;
    struct weir_status *statuses;
};

void weir_redis_planner_init(struct weir_redis_planner *planner, struct weir_session *session)
{
    planner->session = session;
    planner->eventual = NULL;
    planner->leaser = NULL;
    planner->is_compat = false;
    weir_buf_init(&planner->names, NAMES_MAX);
}

void weir_redis_planner_fini(struct weir_redis_planner *planner)
{
    weir_buf_fini(&planner->names);
}

/* ---- planning ---- */

/* Some values are shared or cut, and the plan did not keep which: found again.  The charge's limit
 * may be a copy, but has the tag of the rule's. */
static const struct weir_rule_limit *match_again(const struct planning *p,
                                                 const struct weir_descriptor *d, uint64_t tag)
{
    struct weir_match *match = &p->planner->match;
    uint32_t i = 0;
    weir_rules_match(p->plan->domain, d->entries, d->entry_count, match);
    while (match->limits[i].limit.tag != tag)
        i++;
    return &match->limits[i];
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

/* Whether envoyproxy/ratelimit could count it: it knows one limit, one algorithm, no atomicity. */
static bool is_compat(const struct planning *p, const struct weir_item *item)
{
    const struct weir_limit *limit = item->charges[0].limit;
    return p->planner->is_compat && !p->r->is_atomic && item->charge_count == 1 &&
           limit->algorithm == WEIR_FIXED_WINDOW && limit->count_rejected && limit->count_if == 0;
}

static bool may_lease(const struct planning *p, const struct weir_item *item)
{
    return p->planner->leaser != NULL && weir_reach_may_lease(p->plan, item) && !is_compat(p, item);
}

/* Returns the length of the name. */
static size_t add_name(const struct planning *p, const struct weir_item *item, uint32_t k)
{
    struct weir_redis_planner *planner = p->planner;
    const struct weir_charge *charge = &item->charges[k];
    const struct weir_descriptor *d = item->descriptor;
    const struct weir_rule_limit *matched = NULL;
    if (item->is_charged)
        matched = match_again(p, d, charge->limit->tag);
    weir_identity_name(&planner->name, d->entries, d->entry_count, matched ? &planner->match : NULL,
                       matched);
    size_t from = planner->names.len;
    struct weir_str domain = weir_domain_name(p->plan->domain);
    if (is_compat(p, item))
        weir_redis_compat_key_add(&planner->names, p->prefix, domain, planner->name.entries,
                                  planner->name.count, weir_limit_window_s(charge->limit),
                                  p->now_ns);
    else
        weir_redis_key_add(&planner->names, p->prefix, domain, planner->name.entries,
                           planner->name.count, charge->limit->tag);
    return planner->names.len - from;
}

static void add_counter(const struct planning *p, uint32_t i, uint32_t k)
{
    struct weir_redis_request *r = p->r;
    const struct weir_item *item = &r->items[i];
    const struct weir_charge *charge = &item->charges[k];
    size_t name_len = add_name(p, item, k);
    r->owners[r->count] = (struct weir_redis_owner){.charge = (uint16_t)(charge - r->charges),
                                                    .item = (uint16_t)i,
                                                    .is_compat = is_compat(p, item)};
    r->counters[r->count] = (struct weir_redis_counter){
        .key = {.len = name_len},
        .limit = charge->limit,
        .hits = charge->hits,
        .op = item->is_refund ? WEIR_OP_GIVE : WEIR_OP_TAKE,
        .part = part_of(item),
        .ends = k + 1 == item->charge_count,
    };
    if (may_lease(p, item))
        p->planner->leaser->wish(p->planner->leaser, charge, &r->counters[r->count]);
    r->count++;
}

/* More tokens of the item's counter should be there. */
static void ask_for_more(const struct planning *p, const struct weir_item *item)
{
    struct weir_redis_leaser *leaser = p->planner->leaser;
    struct weir_buf *names = &p->planner->names;
    size_t from = names->len, len = add_name(p, item, 0);
    if (!names->has_failed)
        leaser->refill(leaser, item->charges,
                       (struct weir_str){.ptr = names->ptr + from, .len = len});
    weir_buf_cut(names, from);
}

/* Whether the table holds tokens for it, or knows that it is refused. */
static bool is_decided_by_lease(const struct planning *p, uint32_t i)
{
    struct weir_item *item = &p->r->items[i];
    struct weir_redis_leaser *leaser = p->planner->leaser;
    bool is_low = false;
    if (!may_lease(p, item) || !leaser->decide(leaser, item->charges, &is_low))
        return false;
    if (is_low)
        ask_for_more(p, item);
    return true;
}

/* What the table thinks of a rule, said as a limit of 0 would: it refuses one hit, and allows none.
 */
static void add_stand_in(const struct planning *p, uint32_t i, enum weir_redis_part part,
                         bool allowed)
{
    static const struct weir_limit closed = {.algorithm = WEIR_FIXED_WINDOW};
    struct weir_redis_request *r = p->r;
    r->owners[r->count] =
        (struct weir_redis_owner){.charge = WEIR_REDIS_STAND_IN, .item = (uint16_t)i};
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
        if (r->owners[i].charge == WEIR_REDIS_STAND_IN)
            continue;
        r->counters[i].key.ptr = at;
        at += r->counters[i].key.len;
    }
    for (uint32_t i = 0, first = 0; i < r->count; i++) {
        while (r->owners[first].charge == WEIR_REDIS_STAND_IN)
            first++;
        if (r->owners[i].charge == WEIR_REDIS_STAND_IN)
            r->counters[i].key = r->counters[first].key;
    }
}

/* Decides by the table, or looks. */
static void ask_table(const struct planning *p, uint32_t i)
{
    struct weir_item *item = &p->r->items[i];
    p->r->deciders[i] = WEIR_BY_TABLE;
    if (!p->r->is_atomic || !takes_part(item)) {
        weir_charge_alone(p->session, item, p->now_ns, &p->statuses[i]);
        return;
    }
    p->r->deciders[i] = WEIR_BY_TABLE_LOOKED;
    add_stand_in(p, i, part_of(item), weir_charge_look(p->session, item, p->now_ns));
}

struct naming {
    const struct planning *p;
    const struct weir_item *item;
};

/* For the moment only: behind the names of what Redis is asked for. */
static struct weir_str name_charge(void *ctx, uint32_t k)
{
    const struct naming *naming = ctx;
    struct weir_buf *names = &naming->p->planner->names;
    size_t from = names->len, len = add_name(naming->p, naming->item, k);
    bool has_failed = names->has_failed;
    weir_buf_cut(names, from);
    return (struct weir_str){.ptr = names->ptr + from, .len = has_failed ? SIZE_MAX : len};
}

/* Decides by the table, and lets others know later. */
static void ask_eventual(const struct planning *p, uint32_t i)
{
    struct weir_item *item = &p->r->items[i];
    struct naming naming = {.p = p, .item = item};
    const struct weir_eventual_question question = {.session = p->session,
                                                    .item = item,
                                                    .now_ns = p->now_ns,
                                                    .name = name_charge,
                                                    .ctx = &naming};
    bool is_decided = weir_eventual_decide(p->planner->eventual, &question, &p->statuses[i]);
    p->r->deciders[i] = is_decided ? WEIR_BY_TABLE : WEIR_BY_NOBODY;
}

static bool is_eventual(const struct planning *p, const struct weir_item *item)
{
    return p->planner->eventual != NULL && !p->r->is_atomic && weir_reach_is_eventual(item);
}

static bool is_all_local(const struct weir_redis_request *r)
{
    for (uint32_t i = 0; i < r->item_count; i++) {
        if (!weir_reach_is_host(&r->items[i]))
            return false;
    }
    return true;
}

/* Each item's counters, unless the table decides it. */
static void ask_for_items(const struct planning *p)
{
    struct weir_redis_request *r = p->r;
    for (uint32_t i = 0; i < r->item_count; i++) {
        struct weir_item *item = &r->items[i];
        r->deciders[i] = WEIR_BY_STORE;
        if (weir_reach_is_host(item))
            ask_table(p, i);
        else if (is_eventual(p, item))
            ask_eventual(p, i);
        else if (is_decided_by_lease(p, i))
            continue;
        for (uint32_t k = 0; k < item->charge_count && r->deciders[i] == WEIR_BY_STORE; k++)
            add_counter(p, i, k);
        /* Takes no part, but is one of those in quota mode of which not all may be over. */
        if (r->is_atomic && item->is_quota && !takes_part(item))
            add_stand_in(p, i, WEIR_REDIS_PART_QUOTA, true);
    }
}

/* Finds the rules and counters of a request; nothing is decided yet. */
static int begin(struct planning *p, struct weir_redis_request *out,
                 struct weir_redis_planner *planner, const struct weir_request *request)
{
    struct weir_session *s = planner->session;
    int err = weir_plan_one(s, s->mine, request, false);
    if (err != 0)
        return err;
    const struct weir_plan *plan = &s->plans[0];
    *out = (struct weir_redis_request){
        .items = plan->items,
        .charges = s->charges,
        .counters = planner->counters,
        .owners = planner->owners,
        .deciders = planner->deciders,
        .item_count = plan->item_count,
        .charge_count = s->charge_count,
        .is_atomic = plan->is_atomic,
        .published = s->mine,
    };
    p->r = out;
    p->planner = planner;
    p->session = s;
    p->plan = plan;
    weir_buf_cut(&planner->names, 0);
    return 0;
}

static int end(const struct planning *p)
{
    if (p->planner->names.has_failed)
        return WEIR_ERR_TOO_LARGE;
    p->r->names = weir_buf_str(&p->planner->names);
    point_to_names(p->r);
    return 0;
}

int weir_redis_request_plan(struct weir_redis_request *out, struct weir_redis_planner *planner,
                            const struct weir_request *request, struct weir_str prefix,
                            uint64_t now_ns, struct weir_status *statuses)
{
    struct planning p = {.prefix = prefix, .now_ns = now_ns, .statuses = statuses};
    struct weir_session *s = planner->session;
    int err = begin(&p, out, planner, request);
    if (err != 0)
        return err;
    struct weir_plan *plan = &s->plans[0];
    if (weir_key_overrides_live(s->engine->table, now_ns))
        weir_key_override_apply(s, plan, now_ns);
    if (plan->is_atomic && is_all_local(out)) { /* then it is the table's as a whole */
        weir_atomic_decide(s, plan, now_ns, statuses);
        memset(out->deciders, WEIR_BY_TABLE, out->item_count);
        return 0;
    }
    if (plan->is_atomic)
        weir_atomic_spare(s, plan);
    ask_for_items(&p);
    return end(&p);
}

int weir_redis_request_name(struct weir_redis_request *out, struct weir_redis_planner *planner,
                            const struct weir_request *request, struct weir_str prefix,
                            uint64_t now_ns)
{
    struct planning p = {.prefix = prefix, .now_ns = now_ns};
    int err = begin(&p, out, planner, request);
    if (err != 0)
        return err;
    for (uint32_t i = 0; i < out->item_count; i++) {
        struct weir_item *item = &out->items[i];
        bool is_here = weir_reach_is_host(item) || is_eventual(&p, item);
        out->deciders[i] = is_here ? WEIR_BY_TABLE : WEIR_BY_STORE;
        for (uint32_t k = 0; k < item->charge_count && !is_here; k++)
            add_counter(&p, i, k);
    }
    return end(&p);
}

int weir_redis_request_refill(struct weir_redis_planner *planner,
                              const struct weir_request *request, struct weir_str prefix,
                              uint64_t now_ns)
{
    struct planning p = {.prefix = prefix, .now_ns = now_ns};
    struct weir_redis_request nothing;
    struct weir_session *s = planner->session;
    int err = begin(&p, &nothing, planner, request);
    if (err != 0)
        return err;
    if (weir_key_overrides_live(s->engine->table, now_ns))
        weir_key_override_apply(s, &s->plans[0], now_ns);
    for (uint32_t i = 0; i < nothing.item_count; i++) {
        struct weir_item *item = &nothing.items[i];
        if (!weir_reach_is_host(item) && !is_eventual(&p, item) && may_lease(&p, item))
            ask_for_more(&p, item);
    }
    return 0;
}

/* ---- on its own ---- */

/* Whether the limit is the session's: of this request alone, or of a key for a while. */
static bool is_of_session(const struct weir_session *s, const struct weir_limit *limit)
{
    return (uintptr_t)limit >= (uintptr_t)s && (uintptr_t)limit < (uintptr_t)(s + 1);
}

/* The bytes of count things of a size, as far as the next one may begin. */
static size_t room_of(size_t count, size_t size)
{
    const size_t grain = alignof(max_align_t);
    return (count * size + grain - 1) / grain * grain;
}

size_t weir_redis_request_bytes(const struct weir_redis_request *r)
{
    return room_of(r->item_count, sizeof(*r->items)) +
           room_of(r->charge_count, sizeof(*r->charges)) + room_of(r->count, sizeof(*r->counters)) +
           room_of(r->count, sizeof(*r->owners)) +
           room_of(r->charge_count, sizeof(struct weir_limit)) + room_of(r->item_count, 1) +
           room_of(r->names.len, 1);
}

static void *carry(uint8_t **at, const void *from, size_t count, size_t size)
{
    void *to = *at;
    *at += room_of(count, size);
    if (count > 0)
        memcpy(to, from, count * size);
    return to;
}

void weir_redis_request_move(struct weir_redis_request *r, const struct weir_session *session,
                             void *memory)
{
    uint8_t *at = memory;
    r->is_moved = true;
    const struct weir_charge *before = r->charges;
    r->items = carry(&at, r->items, r->item_count, sizeof(*r->items));
    r->charges = carry(&at, r->charges, r->charge_count, sizeof(*r->charges));
    r->counters = carry(&at, r->counters, r->count, sizeof(*r->counters));
    r->owners = carry(&at, r->owners, r->count, sizeof(*r->owners));
    struct weir_limit *limits = (struct weir_limit *)(void *)at;
    at += room_of(r->charge_count, sizeof(*limits));
    r->deciders = carry(&at, r->deciders, r->item_count, 1);
    r->names.ptr = carry(&at, r->names.ptr, r->names.len, 1);
    for (uint32_t i = 0; i < r->item_count; i++) {
        if (r->items[i].charge_count > 0)
            r->items[i].charges = r->charges + (r->items[i].charges - before);
        r->items[i].descriptor = NULL; /* the caller's, who may leave */
    }
    for (uint32_t i = 0; i < r->charge_count; i++) {
        if (!is_of_session(session, r->charges[i].limit))
            continue;
        limits[i] = *r->charges[i].limit;
        r->charges[i].limit = &limits[i];
    }
    for (uint32_t i = 0; i < r->count; i++) {
        if (r->owners[i].charge != WEIR_REDIS_STAND_IN)
            r->counters[i].limit = r->charges[r->owners[i].charge].limit;
    }
    point_to_names(r);
}

/* ---- answers ---- */

uint32_t weir_redis_request_settle(struct weir_redis_request *r, uint32_t from, uint32_t count)
{
    uint32_t kept = from;
    for (uint32_t first = from, last = from; first < from + count; first = ++last) {
        bool is_stale = r->counters[first].is_stale;
        while (!r->counters[last].ends)
            is_stale |= r->counters[++last].is_stale;
        for (uint32_t i = first; i <= last; i++) {
            const struct weir_redis_counter *counter = &r->counters[i];
            if (is_stale) {
                r->owners[kept] = r->owners[i];
                r->counters[kept++] = *counter;
            } else if (r->owners[i].charge != WEIR_REDIS_STAND_IN) {
                struct weir_charge *charge = &r->charges[r->owners[i].charge];
                charge->verdict = counter->verdict;
                charge->mark = counter->op == WEIR_OP_LEASE ? 0 : counter->new_mark;
                charge->is_taken = counter->is_charged;
            }
        }
    }
    return kept - from;
}

/* is_untaken: allowed, in an atomic request that was refused. */
static void count(struct weir_session *s, const struct weir_item *item, bool is_untaken)
{
    if (item->charge_count == 0)
        return;
    if (item->is_refund)
        weir_stats_refunded(s, item);
    else if (is_untaken)
        weir_stats_asked(s, item);
    else
        weir_stats_decided(s, item, &weir_tightest(item->charges, item->charge_count)->verdict);
}

/* Allowed, in an atomic request that was refused: what one server has taken, and what is given back
 * since another has refused, is told as if it were there again. */
static void tell_untaken(struct weir_item *item, struct weir_status *status)
{
    for (uint32_t k = 0; k < item->charge_count; k++) {
        struct weir_charge *charge = &item->charges[k];
        struct weir_verdict *v = &charge->verdict;
        if (charge->is_taken)
            v->remaining = v->before < v->limit ? v->limit - v->before : 0;
        v->delay_ns = 0;
    }
    weir_charge_status(item, status);
}

/* Where Redis has said yes to all that was asked, what was only looked at is taken.  Somebody may
 * have been faster on this host: then the request is refused, though Redis has counted it. */
static void take_looked(struct weir_redis_request *r, struct weir_session *s, uint64_t now_ns,
                        bool is_ok, struct weir_status *statuses)
{
    for (uint32_t i = 0; i < r->item_count; i++) {
        if (r->deciders[i] != WEIR_BY_TABLE_LOOKED)
            continue;
        if (statuses[i].code != WEIR_CODE_OK)
            count(s, &r->items[i], false);
        else if (is_ok)
            weir_charge_alone(s, &r->items[i], now_ns, &statuses[i]);
        else
            weir_atomic_untaken(s, &r->items[i], now_ns, &statuses[i]);
    }
}

/* What the table said when the request was planned: again, if that was in other memory. */
static void tell_again(const struct weir_redis_request *r, uint32_t i, struct weir_status *status)
{
    if (!r->is_moved)
        return;
    weir_charge_status(&r->items[i], status);
    weir_ticket_write(r->published, &r->items[i], &status->ticket);
}

void weir_redis_request_decide(struct weir_redis_request *r, struct weir_session *session,
                               uint64_t now_ns, struct weir_decision *out)
{
    struct weir_status *statuses = out->statuses;
    for (uint32_t i = 0; i < r->item_count; i++) {
        struct weir_item *item = &r->items[i];
        if (r->deciders[i] == WEIR_BY_TABLE)
            tell_again(r, i, &statuses[i]);
        else if (r->deciders[i] != WEIR_BY_NOBODY)
            weir_charge_told(session, item, &statuses[i]);
    }
    bool is_ok = weir_combine(statuses, r->item_count) == WEIR_CODE_OK;
    for (uint32_t i = 0; i < r->item_count; i++) {
        struct weir_item *item = &r->items[i];
        bool is_untaken =
            r->is_atomic && !is_ok && takes_part(item) && statuses[i].code == WEIR_CODE_OK;
        if (r->deciders[i] != WEIR_BY_STORE)
            continue;
        if (is_untaken)
            tell_untaken(item, &statuses[i]);
        count(session, item, is_untaken);
    }
    take_looked(r, session, now_ns, is_ok, statuses);
    out->is_denied = false;
    out->status_count = r->item_count;
    out->overall =
        session->engine->options.shadow_mode ? WEIR_CODE_OK : weir_combine(statuses, r->item_count);
}
