/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/key_override.h"

#include "engine/identity.h"
#include "engine/plan.h"
#include "engine/publish.h"
#include "table/key_overrides.h"

/* ---- deciding ---- */

/* The same limit with another number; its burst, too, where that was the number. */
static int make_own(struct weir_limit *out, const struct weir_limit *base, uint32_t requests)
{
    char why[8];
    uint32_t burst = base->burst == base->requests ? requests : base->burst;
    return weir_limit_with(out, base, requests, burst, why, sizeof(why));
}

static void apply_to_item(struct weir_session *s, struct weir_item *item, uint64_t now_ns)
{
    for (uint32_t i = 0; i < item->charge_count; i++) {
        struct weir_charge *c = &item->charges[i];
        struct weir_limit *own = &c->own;
        struct weir_key_override o;
        if (!weir_key_override_find(s->engine->table, c->key, now_ns, &o))
            continue;
        if (o.is_unlimited) {
            item->charge_count = 0;
            item->is_unlimited = true;
            item->is_quota = false;
            return;
        }
        /* A rule that was changed since may not be able to have this number: then it has its own.
         */
        if (make_own(own, c->limit, o.requests) == 0 &&
            weir_local_bind_own(s->engine->table, own, o.generation) == 0)
            c->limit = own;
        if (o.requests == 0)
            item->closed_for_ns = o.until_ns - now_ns;
    }
}

void weir_key_override_apply(struct weir_session *s, struct weir_plan *plan, uint64_t now_ns)
{
    for (uint32_t i = 0; i < plan->item_count; i++) {
        if (plan->items[i].rule)
            apply_to_item(s, &plan->items[i], now_ns);
    }
}

/* ---- giving and taking ---- */

/* What a descriptor is called, whatever the rules say of it. */
static uint64_t name_of(struct weir_session *s, const struct weir_request *request)
{
    const struct weir_hash_key *secret = weir_table_hash_key(s->engine->table);
    const struct weir_descriptor *d = &request->descriptors[0];
    uint64_t domain = weir_siphash13(secret, request->domain.ptr, request->domain.len);
    return weir_mix64(domain) ^ weir_identity_plain(secret, d->entries, d->entry_count);
}

/* Finds the counters of a request that must have one descriptor. */
static int plan_one(struct weir_session *s, const struct weir_request *request)
{
    if (request->descriptor_count > 1)
        return WEIR_ERR_INVALID;
    return weir_plan_one(s, weir_publish_hold(s), request, false);
}

/* The number of counter i: rounded up, at most what fits. */
static uint32_t share_of(const struct weir_item *item, uint32_t i, uint32_t requests)
{
    uint64_t first = item->charges[0].limit->requests, mine = item->charges[i].limit->requests;
    if (i == 0 || first == 0)
        return i == 0 ? requests : (uint32_t)mine;
    weir_u128 share = ((weir_u128)mine * requests + first - 1) / first;
    return share > UINT32_MAX ? UINT32_MAX : (uint32_t)share;
}

/* All numbers must be such that the algorithms can count them, before any is given. */
static int check_numbers(struct weir_session *s, const struct weir_item *item,
                         const struct weir_key_limit *limit)
{
    int err = 0;
    for (uint32_t i = 0; i < item->charge_count && !err && !limit->is_unlimited; i++) {
        struct weir_limit *own = &s->charges[i].own;
        err = make_own(own, item->charges[i].limit, share_of(item, i, limit->requests_per_unit));
        if (!err)
            err = weir_local_bind_own(s->engine->table, own, weir_generation(0, WEIR_PLACE_KEY));
    }
    return err;
}

static int put_all(struct weir_session *s, const struct weir_request *request,
                   const struct weir_key_limit *limit, uint64_t name, uint64_t now_ns)
{
    const struct weir_item *item = &s->plans[0].items[0];
    const struct weir_descriptor *d = &request->descriptors[0];
    struct weir_key_words words = {.domain = request->domain, .entry_count = d->entry_count};
    int err = 0;
    for (uint32_t i = 0; i < d->entry_count; i++)
        words.entries[i] = d->entries[i];
    for (uint32_t i = 0; i < item->charge_count && !err; i++) {
        const struct weir_key_override o = {
            .key = item->charges[i].key,
            .name = name,
            .since_ns = now_ns,
            .until_ns = limit->until_ns,
            .requests = limit->is_unlimited ? 0 : share_of(item, i, limit->requests_per_unit),
            .stat = item->stat,
            .ordinal = i,
            .is_unlimited = limit->is_unlimited,
        };
        err = weir_key_override_put(s->engine->table, &o, &words, now_ns);
    }
    return err;
}

int weir_key_limit_set(struct weir_session *s, const struct weir_request *request,
                       const struct weir_key_limit *limit, uint64_t now_ns)
{
    if (limit->until_ns <= now_ns || limit->until_ns > INT64_MAX)
        return WEIR_ERR_INVALID;
    int err = plan_one(s, request);
    if (err)
        return err;
    const struct weir_item *item = &s->plans[0].items[0];
    if (!item->rule || item->charge_count == 0)
        return WEIR_ERR_NOT_FOUND;
    err = check_numbers(s, item, limit);
    if (err)
        return err;
    uint64_t name = name_of(s, request);
    err = put_all(s, request, limit, name, now_ns);
    weir_publish_news(s->engine);
    /* Those of counters that the rules no longer give to this descriptor, or, where there was no
     * room for all, the ones that had some. */
    (void)weir_key_override_drop(s->engine->table, name, err ? 0 : now_ns, now_ns);
    return err;
}

int weir_key_limit_drop(struct weir_session *s, const struct weir_request *request, uint64_t now_ns)
{
    int err = plan_one(s, request); /* for its checks alone: the rules may have changed */
    if (err)
        return err;
    return weir_key_override_drop(s->engine->table, name_of(s, request), 0, now_ns) > 0
               ? 0
               : WEIR_ERR_NOT_FOUND;
}

/* ---- showing ---- */

void weir_key_limit_each(struct weir *w, uint64_t now_ns,
                         void (*each)(void *ctx, const struct weir_key_limit_view *one), void *ctx)
{
    struct weir_published *p = weir_publish_borrow(w);
    for (uint32_t i = 0; i < WEIR_KEY_OVERRIDES_MAX; i++) {
        struct weir_key_override o;
        struct weir_caption_text text;
        if (!weir_key_override_at(w->table, i, now_ns, &o, &text))
            continue;
        const struct weir_key_limit_view view = {
            .key = &text.words,
            .rule_id = weir_publish_rule_id(p, o.stat),
            .limit = {.requests_per_unit = o.requests,
                      .is_unlimited = o.is_unlimited,
                      .until_ns = o.until_ns},
            .since_ns = o.since_ns,
            .ordinal = o.ordinal,
        };
        each(ctx, &view);
    }
    weir_publish_return(w, p);
}
