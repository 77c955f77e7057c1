/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/charge.h"

#include "base/hot.h"
#include "engine/combine.h"
#include "engine/enforce.h"
#include "engine/stats.h"
#include "engine/ticket.h"

bool weir_charge_look(struct weir_session *s, struct weir_item *item, uint64_t now_ns)
{
    bool allowed = true;
    for (uint32_t i = 0; i < item->charge_count; i++) {
        struct weir_charge *c = &item->charges[i];
        weir_local_look(s->engine->table, c->limit, c->key, now_ns, c->hits, &c->verdict);
        allowed &= c->verdict.allowed;
        c->is_taken = false; /* though the plan was charged before */
        c->mark = 0;
    }
    return allowed;
}

static bool goes_before(const struct weir_charge *a, const struct weir_charge *b)
{
    bool is_a_leaky = a->limit->algorithm == WEIR_LEAKY_BUCKET;
    bool is_b_leaky = b->limit->algorithm == WEIR_LEAKY_BUCKET;
    return is_a_leaky != is_b_leaky ? is_b_leaky : a->order < b->order;
}

/* By insertion: it keeps the order of equals, and there are nearly always two or three. */
void weir_charge_sort(struct weir_charge **order, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        struct weir_charge *c = order[i];
        uint32_t k = i;
        for (; k > 0 && goes_before(c, order[k - 1]); k--)
            order[k] = order[k - 1];
        order[k] = c;
    }
}

bool weir_charge_take(struct weir_session *s, struct weir_charge *c, uint64_t now_ns)
{
    struct weir_limit quiet;
    const struct weir_limit *limit = c->limit;
    if (limit->count_rejected) {
        quiet = *limit;
        quiet.count_rejected = false;
        limit = &quiet;
    }
    weir_local_take(s->engine->table, limit, c->key, now_ns, c->hits, &c->verdict, &c->mark);
    c->is_taken = c->verdict.allowed;
    return c->is_taken;
}

void weir_charge_undo(struct weir_session *s, struct weir_charge *charges, uint32_t count,
                      uint64_t now_ns)
{
    struct weir_table *table = s->engine->table;
    for (uint32_t i = 0; i < count; i++) {
        struct weir_charge *c = &charges[i];
        struct weir_verdict ignored;
        if (!c->is_taken)
            continue;
        if (c->mark)
            weir_local_release(table, c->limit, c->key, now_ns, c->hits, c->mark);
        else
            weir_local_give(table, c->limit, c->key, now_ns, c->hits, &ignored);
        c->is_taken = false;
        c->mark = 0;
    }
}

/* Says whether all were allowed. */
static bool take_all(struct weir_session *s, struct weir_item *item, uint64_t now_ns)
{
    for (uint32_t i = 0; i < item->charge_count; i++)
        s->order[i] = &item->charges[i];
    weir_charge_sort(s->order, item->charge_count);
    for (uint32_t i = 0; i < item->charge_count; i++) {
        if (weir_charge_take(s, s->order[i], now_ns))
            continue;
        weir_charge_undo(s, item->charges, item->charge_count, now_ns);
        return false;
    }
    return true;
}

static void give_all(struct weir_session *s, struct weir_item *item, uint64_t now_ns)
{
    for (uint32_t i = 0; i < item->charge_count; i++) {
        struct weir_charge *c = &item->charges[i];
        weir_local_give(s->engine->table, c->limit, c->key, now_ns, c->hits, &c->verdict);
    }
}

/* The unit of a limit that is not its rule's first: the longest that divides its window. */
static __attribute__((noinline)) enum weir_unit unit_of(const struct weir_limit *limit)
{
    static const enum weir_unit LONGEST_FIRST[] = {WEIR_UNIT_YEAR, WEIR_UNIT_MONTH,
                                                   WEIR_UNIT_WEEK, WEIR_UNIT_DAY,
                                                   WEIR_UNIT_HOUR, WEIR_UNIT_MINUTE};
    uint64_t window_s = weir_limit_window_s(limit);
    for (size_t i = 0; i < sizeof(LONGEST_FIRST) / sizeof(LONGEST_FIRST[0]); i++) {
        if (window_s % weir_unit_seconds(LONGEST_FIRST[i]) == 0)
            return LONGEST_FIRST[i];
    }
    return WEIR_UNIT_SECOND;
}

/* A status is large because of its ticket, so its fields are set one by one.  These are the same
 * whatever was decided. */
static inline void status_of_rule(const struct weir_item *item, struct weir_status *out)
{
    out->is_unlimited = item->is_unlimited;
    out->is_quota = item->is_quota;
    out->rule = item->rule ? &item->rule->info : NULL;
    out->ticket.count = 0;
}

/* Nothing was to be decided. */
static void status_bare(const struct weir_item *item, struct weir_status *out)
{
    status_of_rule(item, out);
    out->code = WEIR_CODE_OK;
    out->is_limited = false;
    out->is_shadow = false;
    out->unit = WEIR_UNIT_UNKNOWN;
    out->limit = 0;
    out->remaining = item->is_unlimited ? UINT32_MAX : 0;
    out->reset_after_ns = 0;
    out->retry_after_ns = 0;
    out->delay_ns = 0;
}

/* One limit lets it pass, as nearly all do. */
static inline void status_passed(const struct weir_item *item, struct weir_status *out)
{
    const struct weir_verdict *v = &item->charges->verdict;
    status_of_rule(item, out);
    out->code = WEIR_CODE_OK;
    out->is_limited = true;
    out->is_shadow = false;
    out->unit = item->unit;
    out->limit = v->limit;
    out->remaining = v->remaining;
    out->reset_after_ns = v->reset_after_ns;
    out->retry_after_ns = v->retry_after_ns;
    out->delay_ns = v->delay_ns;
}

/* shown: the tightest. */
static void status_decided(const struct weir_item *item, const struct weir_charge *shown,
                           struct weir_status *out)
{
    const struct weir_verdict *v = &shown->verdict;
    bool is_shadow = !v->allowed && item->is_shadow;
    status_of_rule(item, out);
    out->code = v->allowed || is_shadow ? WEIR_CODE_OK : WEIR_CODE_OVER_LIMIT;
    out->is_limited = true;
    out->is_shadow = is_shadow;
    out->unit = shown == item->charges ? item->unit : unit_of(shown->limit);
    out->limit = v->limit;
    out->remaining = is_shadow ? 0 : v->remaining;
    out->reset_after_ns = v->reset_after_ns;
    out->retry_after_ns = v->retry_after_ns;
    if (v->retry_after_ns == WEIR_NEVER && item->closed_for_ns > 0)
        out->retry_after_ns = item->closed_for_ns;
}

static void status_of_many(const struct weir_item *item, struct weir_status *out)
{
    status_decided(item, weir_tightest(item->charges, item->charge_count), out);
    out->delay_ns = weir_longest_delay(item->charges, item->charge_count);
}

void weir_charge_status(const struct weir_item *item, struct weir_status *out)
{
    if (item->charge_count == 0)
        status_bare(item, out);
    else
        status_of_many(item, out);
}

void weir_charge_told(struct weir_session *s, struct weir_item *item, struct weir_status *out)
{
    bool allowed = true;
    for (uint32_t i = 0; i < item->charge_count; i++)
        allowed &= item->charges[i].verdict.allowed;
    if (!allowed && weir_enforce_spares(s, item))
        item->is_shadow = true;
    weir_charge_status(item, out);
}

/* Of an item that has charges. */
static void settle(struct weir_session *s, const struct weir_item *item, struct weir_status *out)
{
    if (item->is_refund) {
        weir_stats_refunded(s, item);
        return;
    }
    if (item->charge_count > 1 || weir_ticket_has_place(item->charges))
        weir_ticket_write(s->mine, item, &out->ticket);
    weir_stats_decided(s, item, &weir_tightest(item->charges, item->charge_count)->verdict);
}

void weir_charge_settle(struct weir_session *s, const struct weir_item *item,
                        struct weir_status *out)
{
    if (item->charge_count > 0)
        settle(s, item, out);
}

static __attribute__((noinline)) void charge_many(struct weir_session *s, struct weir_item *item,
                                                  uint64_t now_ns, struct weir_status *out)
{
    bool allowed = true, was_shadow = item->is_shadow;
    if (item->is_refund)
        give_all(s, item, now_ns);
    else
        allowed = weir_charge_look(s, item, now_ns) && take_all(s, item, now_ns);
    if (!allowed && weir_enforce_spares(s, item))
        item->is_shadow = true;
    status_of_many(item, out);
    settle(s, item, out);
    item->is_shadow = was_shadow; /* a plan may be charged again */
}

static __attribute__((noinline)) void refuse_one(struct weir_session *s, struct weir_item *item,
                                                 struct weir_status *out)
{
    bool was_shadow = item->is_shadow;
    if (weir_enforce_spares(s, item))
        item->is_shadow = true;
    status_decided(item, item->charges, out);
    out->delay_ns = 0;
    weir_stats_decided(s, item, &item->charges->verdict);
    item->is_shadow = was_shadow;
}

/* Where the counter was met last, or where it is now. */
static inline void take_one(struct weir_session *s, struct weir_charge *c, uint64_t now_ns)
{
    c->mark = 0;
    bool is_taken = WEIR_MOSTLY(weir_limit_drips(c->limit) && c->met != NULL) &&
                    weir_local_take_there(c->limit, c->key, now_ns, c->hits, &c->verdict, c->met);
    if (WEIR_SELDOM(!is_taken))
        weir_local_take_again(s->engine->table, c->limit, c->key, now_ns, c->hits, &c->verdict,
                              &c->mark, &c->met);
}

/* One limit, as nearly all descriptors meet. */
static inline void charge_one(struct weir_session *s, struct weir_item *item, uint64_t now_ns,
                              struct weir_status *out)
{
    struct weir_charge *c = item->charges;
    take_one(s, c, now_ns);
    c->is_taken = c->verdict.allowed;
    if (WEIR_SELDOM(!c->is_taken)) {
        refuse_one(s, item, out);
        return;
    }
    status_passed(item, out);
    if (WEIR_SELDOM(weir_ticket_has_place(c)))
        weir_ticket_write(s->mine, item, &out->ticket);
    weir_stats_decided(s, item, &c->verdict);
}

WEIR_HOT void weir_charge_alone(struct weir_session *s, struct weir_item *item, uint64_t now_ns,
                                struct weir_status *out)
{
    if (WEIR_MOSTLY(item->charge_count == 1 && !item->is_refund))
        charge_one(s, item, now_ns, out);
    else if (item->charge_count == 0)
        status_bare(item, out);
    else
        charge_many(s, item, now_ns, out);
}
