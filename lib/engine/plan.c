/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/plan.h"

#include "base/hot.h"
#include "base/str.h"
#include "engine/identity.h"
#include "rules/compile.h"

/* Of limits that no rule stands for: after all that the files say. */
#define ORDER_LAST UINTPTR_MAX

void weir_plan_reset(struct weir_session *s)
{
    s->plan_count = s->item_count = s->charge_count = 0;
    s->is_recallable = false;
}

bool weir_plan_has_room(const struct weir_session *s, uint32_t descriptor_count)
{
    return s->plan_count < WEIR_DESCRIPTORS_MAX &&
           descriptor_count <= WEIR_DESCRIPTORS_MAX - s->item_count;
}

static int check_descriptor(const struct weir_descriptor *d)
{
    if (d->entry_count > WEIR_ENTRIES_MAX)
        return WEIR_ERR_TOO_LARGE;
    for (uint32_t i = 0; i < d->entry_count; i++) {
        if (d->entries[i].key.len > WEIR_KEY_LEN_MAX ||
            d->entries[i].value.len > WEIR_VALUE_LEN_MAX)
            return WEIR_ERR_TOO_LARGE;
    }
    if (d->override && weir_unit_seconds(d->override->unit) == 0)
        return WEIR_ERR_OVERRIDE_UNIT;
    return 0;
}

static int check_request(const struct weir_request *request)
{
    if (request->domain.len == 0)
        return WEIR_ERR_DOMAIN_EMPTY;
    if (request->descriptor_count == 0)
        return WEIR_ERR_DESCRIPTORS_EMPTY;
    if (request->domain.len > WEIR_DOMAIN_LEN_MAX ||
        request->descriptor_count > WEIR_DESCRIPTORS_MAX)
        return WEIR_ERR_TOO_LARGE;
    for (uint32_t i = 0; i < request->descriptor_count; i++) {
        int err = check_descriptor(&request->descriptors[i]);
        if (err)
            return err;
    }
    return 0;
}

static void add_charge(struct weir_session *s, struct weir_item *item,
                       const struct weir_limit *limit, uint64_t key)
{
    if (item->charge_count == 0)
        item->charges = &s->charges[s->charge_count];
    struct weir_charge *c = &item->charges[item->charge_count++];
    c->limit = limit;
    c->key = key;
    c->hits = item->hits;
    c->mark = 0;
    c->order = item->rule ? (uintptr_t)item->rule : ORDER_LAST; /* they lie in that order */
    c->met = NULL;
    c->is_taken = false;
    s->charge_count++;
}

/* Whether an earlier counter of the same limit counts the same requests and allows no more: so it
 * is where an IPv4 client meets a rule with tiers of IPv6 prefixes.  The tighter one decides. */
static bool is_idle(const struct weir_match *m, const uint64_t *hashes, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++) {
        if (hashes[k] == hashes[i] && m->limits[k].ordinal == m->limits[i].ordinal &&
            m->limits[k].limit.requests <= m->limits[i].limit.requests)
            return true;
    }
    return false;
}

/* The rule's counters, where values are shared or cut: each may have a name of its own. */
static void charge_matched(struct weir_session *s, struct weir_item *item)
{
    const struct weir_hash_key *secret = weir_table_hash_key(s->engine->table);
    const struct weir_descriptor *d = item->descriptor;
    const struct weir_match *m = &s->match;
    uint64_t hashes[WEIR_LIMITS_MAX];
    for (uint32_t i = 0; i < m->limit_count; i++) {
        const struct weir_limit *limit = &m->limits[i].limit;
        hashes[i] = weir_identity_matched(secret, d->entries, d->entry_count, m, &m->limits[i]);
        if (!is_idle(m, hashes, i))
            add_charge(s, item, limit, weir_identity_key(hashes[i], limit->tag));
    }
}

static void charge_plain(struct weir_session *s, struct weir_item *item)
{
    const struct weir_rule *rule = item->rule;
    const struct weir_rule_limit *limits =
        item->overridden ? item->overridden : weir_rule_limits(rule);
    for (uint32_t i = 0; i < rule->limit_count; i++) {
        const struct weir_limit *limit = &limits[i].limit;
        add_charge(s, item, limit, weir_identity_key(item->hash, limit->tag));
    }
}

/* The same where the rule has terms in common with others: with them, and its record, without going
 * to see the rule. */
static void charge_shared(struct weir_session *s, struct weir_item *item)
{
    struct weir_limit *limit = &s->charges[s->charge_count].own;
    *limit = item->terms->limit;
    limit->record_of = &item->rule->only.limit;
    add_charge(s, item, limit, weir_identity_key(item->hash, limit->tag));
}

/* A limit that the request brings: a fixed window, whatever the rules say.  It has the identity of
 * a rule that has only unit and number, so it counts on with that rule's counter, as upstream. */
static void charge_override(struct weir_session *s, struct weir_item *item,
                            const struct weir_domain *domain)
{
    const struct weir_override *override = item->descriptor->override;
    struct weir_limit *limit = &s->overrides[item - s->items];
    *limit = s->engine->overrides[override->unit];
    limit->requests = limit->burst = override->requests_per_unit;
    limit->count_rejected = !weir_domain_is_atomic(domain); /* as for limits of its rules */
    struct weir_limit_spec spec = {.algorithm = WEIR_FIXED_WINDOW,
                                   .window_s = weir_limit_window_s(limit)};
    limit->tag = weir_tag_limit(weir_domain_tag(domain), &spec, WEIR_STR(""), 0, 0);
    item->unit = override->unit;
    add_charge(s, item, limit, weir_identity_key(item->hash, limit->tag));
}

static uint64_t name_entries(const struct weir_session *s, const struct weir_descriptor *d)
{
    return weir_identity_plain(weir_table_hash_key(s->engine->table), d->entries, d->entry_count);
}

/* Requests are much alike, and so are the limits that their nth descriptors meet: before the rule
 * is found, its counter is fetched as if it were like the last one. */
static void fetch_likely(const struct weir_session *s, uint32_t i, uint64_t hash)
{
    if (s->last_tags[i])
        weir_local_prefetch(s->engine->table, weir_identity_key(hash, s->last_tags[i]));
}

static void fetch_found(struct weir_session *s, uint32_t i, uint64_t hash, uint64_t tag)
{
    if (s->last_tags[i] == tag)
        return;
    s->last_tags[i] = tag;
    fetch_likely(s, i, hash);
}

/* Field by field: cleared as a whole, it would be by a string instruction, slow to begin with. */
static inline void begin_item(struct weir_item *item, const struct weir_descriptor *d)
{
    item->descriptor = d;
    item->rule = NULL;
    item->terms = NULL;
    item->overridden = NULL;
    item->charges = NULL;
    item->charge_count = 0;
    item->stat = 0;
    item->value = NULL;
    item->hash = 0;
    item->closed_for_ns = 0;
    item->unit = WEIR_UNIT_UNKNOWN;
    item->is_charged = false;
    item->is_refund = d->is_negative_hits;
    item->is_unlimited = false;
    item->is_shadow = item->is_rule_shadow = false;
}

static void open_item(struct weir_session *s, const struct weir_domain *domain,
                      const struct weir_request *request, const struct weir_descriptor *d)
{
    uint32_t i = s->item_count;
    struct weir_guess *guess = &s->guesses[i];
    struct weir_item *item = &s->items[s->item_count++];
    begin_item(item, d);
    item->hits = d->has_hits ? d->hits : request->hits_addend > 1 ? request->hits_addend : 1;
    item->is_quota = s->engine->options.quota_mode;
    guess->count = 0;
    if (domain && !d->override)
        weir_rules_guess(domain, d->entries, d->entry_count, guess);
    /* While what was guessed is on its way: nearly always there is a rule that needs this. */
    if (domain && (d->override || guess->count > 0)) {
        item->hash = name_entries(s, d);
        fetch_likely(s, i, item->hash);
    }
}

static void find_item(struct weir_session *s, const struct weir_domain *domain,
                      struct weir_item *item)
{
    const struct weir_descriptor *d = item->descriptor;
    struct weir_match *m = &s->match;
    weir_rules_find(domain, d->entries, d->entry_count, &s->guesses[item - s->items], m);
    item->rule = m->rule;
    item->terms = m->terms;
    item->stat = m->stat;
    if (!m->rule)
        return;
    if (!m->terms) {
        __builtin_prefetch(m->rule);
        __builtin_prefetch((const char *)m->rule + 64);
    }
    if (m->has_shared_parts) { /* of which the session has room for one */
        weir_rules_settle(m);
        charge_matched(s, item);
        item->is_charged = true;
        return;
    }
    if (item->hash == 0)
        item->hash = name_entries(s, d);
    item->overridden = m->limits;
    if (m->terms)
        fetch_found(s, (uint32_t)(item - s->items), item->hash, m->terms->limit.tag);
}

static struct weir_value_stat *find_value(const struct weir_session *s,
                                          const struct weir_domain *domain,
                                          const struct weir_item *item)
{
    struct weir_value_stats *values =
        atomic_load_explicit(&s->engine->values, memory_order_relaxed);
    return weir_value_stats_find(values, weir_table_hash_key(s->engine->table), domain,
                                 item->descriptor);
}

static void fill_by_terms(struct weir_session *s, const struct weir_domain *domain,
                          struct weir_item *item)
{
    const struct weir_terms *terms = item->terms;
    if (terms->has_value_stats)
        item->value = find_value(s, domain, item);
    item->unit = (enum weir_unit)terms->unit;
    item->is_shadow = item->is_rule_shadow = terms->is_shadow;
    item->is_quota |= terms->is_quota;
    if (!item->is_charged)
        charge_shared(s, item);
}

static void fill_by_rule(struct weir_session *s, const struct weir_domain *domain,
                         struct weir_item *item)
{
    const struct weir_rule *rule = item->rule;
    item->stat = rule->stat;
    if (rule->has_value_stats)
        item->value = find_value(s, domain, item);
    item->unit = (enum weir_unit)rule->unit;
    item->is_unlimited = rule->is_unlimited;
    item->is_shadow = item->is_rule_shadow = rule->is_shadow;
    item->is_quota = (item->is_quota || rule->is_quota) && !rule->is_unlimited;
    if (!item->is_charged)
        charge_plain(s, item); /* none, of what is unlimited */
}

/* Says whether it replaces others. */
static bool fill_item(struct weir_session *s, const struct weir_domain *domain,
                      struct weir_item *item)
{
    if (!item->terms) {
        fill_by_rule(s, domain, item);
        return item->rule->replaces_count > 0;
    }
    fill_by_terms(s, domain, item);
    return item->terms->has_replaces;
}

static bool is_replaced(const struct weir_plan *plan, struct weir_str name)
{
    for (uint32_t i = 0; i < plan->item_count; i++) {
        const struct weir_rule *rule = plan->items[i].rule;
        for (uint32_t k = 0; rule && k < rule->replaces_count; k++) {
            if (weir_str_eq(rule->replaces[k], name))
                return true;
        }
    }
    return false;
}

/* Drops every rule whose name some rule of the same request replaces: it is neither charged nor
 * counted.  Two that replace each other both go, and what is unlimited stays, as upstream; hence
 * all are judged before any is dropped. */
static void drop_replaced(struct weir_session *s, struct weir_plan *plan)
{
    bool is_dropped[WEIR_DESCRIPTORS_MAX];
    for (uint32_t i = 0; i < plan->item_count; i++) {
        const struct weir_item *item = &plan->items[i];
        is_dropped[i] = item->rule && !item->is_unlimited && item->rule->info.name.len > 0 &&
                        is_replaced(plan, item->rule->info.name);
    }
    for (uint32_t i = 0; i < plan->item_count; i++) {
        if (!is_dropped[i])
            continue;
        plan->items[i] = (struct weir_item){.is_quota = s->engine->options.quota_mode};
    }
}

static void fetch(const struct weir_session *s, const struct weir_plan *plan)
{
    for (uint32_t i = 0; i < plan->item_count; i++) {
        const struct weir_item *item = &plan->items[i];
        for (uint32_t k = 0; k < item->charge_count; k++)
            weir_local_prefetch(s->engine->table, item->charges[k].key);
    }
}

/* NULL: there is none of this name. */
static const struct weir_domain *find_domain(struct weir_session *s,
                                             const struct weir_published *published,
                                             struct weir_str name)
{
    if (name.len == s->domain_len && memcmp(name.ptr, s->domain_name, name.len) == 0)
        return s->domain;
    s->domain = published->rules ? weir_rules_domain(published->rules, name) : NULL;
    s->domain_len = (uint32_t)name.len;
    memcpy(s->domain_name, name.ptr, name.len);
    return s->domain;
}

/* Nothing limits such a request, which is seldom what its sender means: somebody should see. */
static void note_stranger(const struct weir_session *s, struct weir_str domain)
{
    struct weir_value_stat *stat =
        weir_value_stats_named(s->engine->strangers, weir_table_hash_key(s->engine->table), domain);
    uint64_t amounts[WEIR_COUNTERS] = {[WEIR_COUNTER_TOTAL_HITS] = 1};
    if (stat)
        weir_value_stats_add(stat, amounts);
}

/* Inline, for those who plan one request step after step. */
static inline int open_plan(struct weir_session *s, const struct weir_published *published,
                            const struct weir_request *request)
{
    int err = check_request(request);
    if (err)
        return err;
    const struct weir_domain *domain = find_domain(s, published, request->domain);
    if (WEIR_SELDOM(!domain)) {
        if (!published->rules && s->engine->options.fail_without_rules)
            return WEIR_ERR_NO_RULES;
        note_stranger(s, request->domain);
    }
    struct weir_plan *plan = &s->plans[s->plan_count++];
    *plan = (struct weir_plan){
        .domain = domain,
        .items = &s->items[s->item_count],
        .item_count = request->descriptor_count,
        .is_atomic = domain && weir_domain_is_atomic(domain),
    };
    for (uint32_t i = 0; i < request->descriptor_count; i++)
        open_item(s, domain, request, &request->descriptors[i]);
    return 0;
}

static inline void find_plan(struct weir_session *s, struct weir_plan *plan)
{
    for (uint32_t i = 0; i < plan->item_count && plan->domain; i++) {
        struct weir_item *item = &plan->items[i];
        if (!item->descriptor->override)
            find_item(s, plan->domain, item);
    }
}

static inline void fill_plan(struct weir_session *s, struct weir_plan *plan)
{
    bool has_replaces = false;
    for (uint32_t i = 0; i < plan->item_count && plan->domain; i++) {
        struct weir_item *item = &plan->items[i];
        if (item->descriptor->override)
            charge_override(s, item, plan->domain);
        if (!item->rule)
            continue;
        has_replaces |= fill_item(s, plan->domain, item);
    }
    if (has_replaces)
        drop_replaced(s, plan);
}

int weir_plan_open(struct weir_session *s, const struct weir_published *published,
                   const struct weir_request *request)
{
    return open_plan(s, published, request);
}

void weir_plan_find(struct weir_session *s, struct weir_plan *plan)
{
    find_plan(s, plan);
}

void weir_plan_fill(struct weir_session *s, struct weir_plan *plan)
{
    fill_plan(s, plan);
    fetch(s, plan);
}

int weir_plan_one(struct weir_session *s, const struct weir_published *published,
                  const struct weir_request *request, bool is_refund)
{
    struct weir_plan *plan = &s->plans[0];
    weir_plan_reset(s);
    int err = open_plan(s, published, request);
    if (err)
        return err;
    for (uint32_t i = 0; i < plan->item_count && is_refund; i++)
        plan->items[i].is_refund = true;
    find_plan(s, plan);
    fill_plan(s, plan);
    if (plan->item_count > 1) /* a single counter is asked for at once */
        fetch(s, plan);
    return 0;
}

void weir_plan_rename(struct weir_session *s, uint64_t hash)
{
    struct weir_item *item = s->items;
    item->hash = hash;
    for (uint32_t i = 0; i < item->charge_count; i++) {
        struct weir_charge *c = &item->charges[i];
        c->key = weir_identity_key(item->hash, c->limit->tag);
        c->met = NULL;
        weir_local_prefetch_likely(s->engine->table, c->key);
    }
}
