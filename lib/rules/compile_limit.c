/* The limits of one rule: defaults, units, prefix tiers, overrides.
 *
 *     counters of a rule = limits of its list x prefix tiers     all must allow, or none is charged
 *     and each override has as many of its own
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/sketch.h"
#include "base/err.h"
#include "base/str.h"
#include "rules/compile.h"
#include "rules/fields.h"

#include <strings.h>

#define LOG_LIMIT_LARGE 10000u /* from here on a log is surely not meant */

static const char *const unit_words[] = {"second", "minute", "hour", "day",
                                         "week",   "month",  "year", NULL};

/* A rule while it is being compiled. */
struct making {
    struct weir_compiler *c;
    const struct weir_draft_descriptor *draft;
    const struct weir_draft_descriptor *cut;
    struct weir_rule *rule;
    uint32_t tiers;
};

static enum weir_unit unit_of(struct weir_str text)
{
    for (int unit = WEIR_UNIT_SECOND; unit <= WEIR_UNIT_WEEK; unit++) {
        const char *name = weir_unit_name((enum weir_unit)unit);
        if (strlen(name) == text.len && strncasecmp(name, text.ptr, text.len) == 0)
            return (enum weir_unit)unit;
    }
    return WEIR_UNIT_UNKNOWN;
}

/* What a limit says of the store that all hosts share. */
static void fill_sharing(struct weir_draft_limit *limit, const struct weir_draft_limit *defaults,
                         uint32_t fill)
{
    if (fill & WEIR_HAS_SCOPE)
        limit->is_host_scope = defaults->is_host_scope;
    if (fill & WEIR_HAS_ON_STORE_ERROR)
        limit->on_store_error = defaults->on_store_error;
    if (fill & WEIR_HAS_CONSISTENCY)
        limit->consistency = defaults->consistency;
}

/* The limit with what it did not say filled in. */
static struct weir_draft_limit with_defaults(const struct weir_draft_limit *written,
                                             const struct weir_draft_limit *defaults)
{
    struct weir_draft_limit limit = *written;
    if (!defaults)
        return limit;
    uint32_t fill = defaults->has & ~written->has;
    if (fill & WEIR_HAS_UNIT) {
        limit.unit = defaults->unit;
        limit.unit_at = defaults->unit_at;
    }
    if (fill & WEIR_HAS_REQUESTS)
        limit.requests = defaults->requests;
    if (fill & WEIR_HAS_MULTIPLIER)
        limit.unit_multiplier = defaults->unit_multiplier;
    if (fill & WEIR_HAS_ALGORITHM)
        limit.algorithm = defaults->algorithm;
    if (fill & WEIR_HAS_BURST)
        limit.burst = defaults->burst;
    if (fill & WEIR_HAS_REFILL)
        limit.refill_interval = defaults->refill_interval;
    if (fill & WEIR_HAS_ROUNDING)
        limit.round_up = defaults->round_up;
    if (fill & WEIR_HAS_BUCKETS)
        limit.buckets = defaults->buckets;
    if (fill & WEIR_HAS_COUNT_REJECTED)
        limit.count_rejected = defaults->count_rejected;
    if (fill & WEIR_HAS_COUNTING) {
        limit.width = defaults->width;
        limit.depth = defaults->depth;
        limit.bloom_bits = defaults->bloom_bits;
    }
    if (fill & WEIR_HAS_COUNT_IF)
        limit.count_if = defaults->count_if;
    fill_sharing(&limit, defaults, fill);
    limit.has |= fill;
    return limit;
}

uint32_t weir_compile_tiers(const struct weir_draft_descriptor *cut)
{
    if (!cut)
        return 1;
    uint32_t ipv4 = cut->extra->ipv4.count, ipv6 = cut->extra->ipv6.count;
    uint32_t most = ipv4 > ipv6 ? ipv4 : ipv6;
    return most ? most : 1;
}

/* Prefixes of a tier.  A family with fewer tiers repeats its last, one without any is not cut. */
static void set_prefixes(const struct making *m, uint32_t tier, struct weir_rule_limit *out)
{
    out->ipv4_prefix = 32;
    out->ipv6_prefix = 128;
    if (!m->cut)
        return;
    const struct weir_draft_tiers *ipv4 = &m->cut->extra->ipv4, *ipv6 = &m->cut->extra->ipv6;
    if (ipv4->count)
        out->ipv4_prefix = ipv4->tier[tier < ipv4->count ? tier : ipv4->count - 1].prefix;
    if (ipv6->count)
        out->ipv6_prefix = ipv6->tier[tier < ipv6->count ? tier : ipv6->count - 1].prefix;
}

static uint32_t times_of(const struct making *m, uint32_t tier)
{
    if (!m->cut)
        return 1;
    const struct weir_draft_tiers *ipv4 = &m->cut->extra->ipv4, *ipv6 = &m->cut->extra->ipv6;
    return tier < ipv6->count   ? ipv6->tier[tier].times
           : tier < ipv4->count ? ipv4->tier[tier].times
                                : 1;
}

/* False where the unit is none; reported. */
static bool check_unit(struct weir_compiler *c, const struct weir_draft_limit *limit)
{
    if (unit_of(limit->unit) != WEIR_UNIT_UNKNOWN)
        return true;
    const char *meant = weir_suggest(limit->unit, unit_words);
    if (limit->unit.len == 0)
        weir_report_error(c->report, limit->at,
                          "rate_limit has no unit (invalid rate limit unit ''); write second, "
                          "minute, hour, day, week, month or year");
    else if (meant)
        weir_report_error(c->report, limit->unit_at, "unit '%.*s' is not known; did you mean '%s'?",
                          WEIR_STR_ARG(limit->unit), meant);
    else
        weir_report_error(c->report, limit->unit_at,
                          "invalid rate limit unit '%.*s'; it must be second, minute, hour, day, "
                          "week, month or year",
                          WEIR_STR_ARG(limit->unit));
    return false;
}

/* A number that the wider net of a tier makes larger; 0 and an error where it is too large. */
static bool multiply(struct weir_compiler *c, struct weir_mark at, uint32_t number, uint32_t times,
                     uint32_t *out)
{
    uint64_t product = (uint64_t)number * times;
    if (product > UINT32_MAX) {
        weir_report_error(c->report, at, "%u times %u is more than 4294967295", number, times);
        return false;
    }
    *out = (uint32_t)product;
    return true;
}

static struct weir_limit_spec spec_of(const struct making *m, const struct weir_draft_limit *limit)
{
    /* A refusal is an answer that no count_if counts. */
    bool is_one = m->rule->limit_count == 1 && !m->c->domain->is_atomic && !limit->width &&
                  !limit->count_if.count;
    bool counts = limit->has & WEIR_HAS_COUNT_REJECTED ? limit->count_rejected
                                                       : limit->algorithm == WEIR_FIXED_WINDOW;
    uint32_t multiplier = limit->has & WEIR_HAS_MULTIPLIER ? limit->unit_multiplier : 1;
    return (struct weir_limit_spec){
        .algorithm = (enum weir_algorithm)limit->algorithm,
        .requests_per_unit = limit->requests,
        .burst = limit->has & WEIR_HAS_BURST ? limit->burst : limit->requests,
        .window_s = weir_unit_seconds(unit_of(limit->unit)) * multiplier,
        .buckets = limit->has & WEIR_HAS_BUCKETS ? limit->buckets : 1,
        .count_rejected = is_one && counts,
        .round_up = limit->round_up,
        .refill_interval = limit->refill_interval,
    };
}

static void set_approx(struct weir_compiler *c, const struct weir_draft_limit *limit,
                       struct weir_limit *out)
{
    if (!limit->width)
        return;
    struct weir_approx *approx = WEIR_ARENA_NEW(&c->rules->arena, struct weir_approx);
    if (!approx)
        return;
    approx->width = limit->width;
    approx->depth = limit->depth;
    approx->bloom_words = (uint32_t)((limit->bloom_bits + 47) / 48); /* 48 bits a word */
    out->approx = approx;
}

/* What was asked for by defaults, and cannot be, is exact. */
static void set_consistency(const struct making *m, const struct weir_draft_limit *limit,
                            struct weir_limit *out)
{
    bool may_be_eventual = weir_limit_may_be_eventual(out) && !m->c->domain->is_atomic;
    out->consistency = limit->consistency & 3u;
    if (limit->consistency == WEIR_CONSISTENCY_EVENTUAL && !may_be_eventual)
        out->consistency = WEIR_CONSISTENCY_EXACT;
}

/* Equal sets are one: most files have one or two. */
static void set_count_if(struct weir_compiler *c, const struct weir_draft_limit *limit,
                         struct weir_limit *out)
{
    struct weir_rules *rules = c->rules;
    if (!limit->count_if.count)
        return;
    if (!rules->count_ifs)
        rules->count_ifs =
            WEIR_ARENA_ARRAY(&rules->arena, WEIR_COUNT_IFS_MAX + 1, struct weir_status_set);
    if (!rules->count_ifs)
        return;
    uint32_t i = 1;
    while (i <= rules->count_if_count &&
           memcmp(&rules->count_ifs[i], &limit->count_if, sizeof(limit->count_if)) != 0)
        i++;
    if (i > WEIR_COUNT_IFS_MAX) {
        weir_report_error(c->report, limit->at, "there are at most %d different 'count_if'",
                          WEIR_COUNT_IFS_MAX);
        return;
    }
    if (i > rules->count_if_count)
        rules->count_ifs[rules->count_if_count = i] = limit->count_if;
    out->count_if = (uint8_t)i;
}

/* One counter: a limit of the list, at one tier, with its own number or an override's. */
static void make_counter(const struct making *m, const struct weir_draft_limit *limit,
                         uint32_t ordinal, uint32_t tier, const struct weir_draft_pair *override)
{
    struct weir_compiler *c = m->c;
    bool is_inside = !override && m->rule->limit_count == 1;
    struct weir_rule_limit *out =
        is_inside ? &m->rule->only : &c->rules->limits[c->rules->limit_count];
    struct weir_limit_spec spec = spec_of(m, limit);
    struct weir_mark at = override ? override->at : limit->at;
    const struct weir_str none = {.ptr = "", .len = 0};
    uint32_t times = times_of(m, tier);
    char why[256] = "";
    if (override) {
        spec.requests_per_unit = override->number;
        spec.burst = limit->has & WEIR_HAS_BURST ? limit->burst : override->number;
    }
    if (!multiply(c, at, spec.requests_per_unit, times, &spec.requests_per_unit) ||
        !multiply(c, at, spec.burst, times, &spec.burst))
        return;
    if (weir_limit_init(&out->limit, &spec, why, sizeof(why))) {
        weir_report_error(c->report, at, "%s", why);
        return;
    }
    out->limit.tag = weir_tag_limit(c->domain->tag, &spec, limit->name, ordinal, tier);
    out->limit.variant = weir_tag_variant(m->rule->stats_id, override ? override->key : none);
    out->limit.record = WEIR_NO_RECORD;
    out->limit.is_host_scope = limit->is_host_scope;
    out->limit.on_store_error = limit->on_store_error & 3u;
    set_approx(c, limit, &out->limit);
    set_consistency(m, limit, &out->limit);
    set_count_if(c, limit, &out->limit);
    set_prefixes(m, tier, out);
    out->ordinal = (uint8_t)(ordinal * m->tiers + tier);
    c->rules->numbered[c->rules->numbered_count++] = out;
    c->rules->limit_count += !is_inside;
}

static void make_counters(const struct making *m, const struct weir_draft_pair *override)
{
    uint32_t ordinal = 0;
    for (const struct weir_draft_limit *l = m->draft->limits; l; l = l->next, ordinal++) {
        struct weir_draft_limit limit = with_defaults(l, m->c->defaults);
        if (unit_of(limit.unit) == WEIR_UNIT_UNKNOWN)
            continue; /* reported */
        for (uint32_t tier = 0; tier < m->tiers; tier++)
            make_counter(m, &limit, ordinal, tier, override);
    }
}

static void warn_no_effect(struct weir_compiler *c, const struct weir_draft_limit *limit,
                           const char *field)
{
    weir_report_warning(c->report, limit->at, "'%s' has no effect on %s", field,
                        weir_algorithm_name((enum weir_algorithm)limit->algorithm));
}

/* What was written here, not in defaults, and does nothing with this algorithm. */
static void check_fields(struct weir_compiler *c, const struct weir_draft_limit *limit,
                         uint32_t written)
{
    enum { COUNTER = 1 << WEIR_SLIDING_WINDOW_COUNTER, TOKEN = 1 << WEIR_TOKEN_BUCKET };
    enum { WINDOWS = COUNTER | 1 << WEIR_FIXED_WINDOW | 1 << WEIR_SLIDING_WINDOW_LOG };
    static const struct {
        uint32_t field;
        const char *name;
        int algorithms; /* those that heed the field */
    } heeded[] = {
        {WEIR_HAS_BURST, "burst", TOKEN | 1 << WEIR_LEAKY_BUCKET},
        {WEIR_HAS_REFILL, "refill", TOKEN},
        {WEIR_HAS_ROUNDING, "rounding", COUNTER},
        {WEIR_HAS_BUCKETS, "buckets", COUNTER},
        {WEIR_HAS_COUNT_REJECTED, "count_rejected", WINDOWS},
    };
    int algorithm = 1 << limit->algorithm;
    for (size_t i = 0; i < sizeof(heeded) / sizeof(heeded[0]); i++)
        if ((written & heeded[i].field) && !(algorithm & heeded[i].algorithms))
            warn_no_effect(c, limit, heeded[i].name);
    if (limit->bloom_bits && limit->width && limit->algorithm != WEIR_FIXED_WINDOW)
        warn_no_effect(c, limit, "bloom_bits");
    if (limit->algorithm == WEIR_SLIDING_WINDOW_LOG && limit->requests > LOG_LIMIT_LARGE)
        weir_report_warning(c->report, limit->at,
                            "a sliding_window_log remembers each of %u hits for each key; "
                            "sliding_window_counter needs 16 bytes",
                            limit->requests);
}

static void check_count_if(struct weir_compiler *c, const struct weir_draft_limit *limit)
{
    if (limit->count_if.count && (limit->width || limit->algorithm == WEIR_LEAKY_BUCKET ||
                                  limit->algorithm == WEIR_CONCURRENCY))
        weir_report_error(c->report, limit->at,
                          "'count_if' works with exact windows, logs and token_bucket: "
                          "here nothing can be given back");
}

static void check_counting(const struct making *m, const struct weir_draft_limit *limit,
                           uint32_t written)
{
    struct weir_compiler *c = m->c;
    bool is_counting = (written & WEIR_HAS_COUNT_REJECTED) && limit->count_rejected;
    const char *why = m->rule->limit_count > 1 ? "several limits are all or nothing"
                      : c->domain->is_atomic   ? "the domain is atomic"
                      : limit->width           ? "counting is approximate"
                      : limit->count_if.count  ? "'count_if' says what counts"
                                               : NULL;
    if (is_counting && why)
        weir_report_warning(c->report, limit->at, "'count_rejected' does not apply: %s", why);
    if (!limit->width)
        return;
    bool is_good = limit->algorithm == WEIR_FIXED_WINDOW ||
                   limit->algorithm == WEIR_SLIDING_WINDOW_LOG ||
                   (limit->algorithm == WEIR_SLIDING_WINDOW_COUNTER && limit->buckets <= 1) ||
                   (limit->algorithm == WEIR_TOKEN_BUCKET && !limit->refill_interval);
    if (!is_good)
        weir_report_error(c->report, limit->at,
                          "approximate counting works with fixed_window, sliding_window_counter "
                          "(buckets: 1), sliding_window_log and token_bucket (refill: continuous)");
}

static void check_consistency(const struct making *m, const struct weir_draft_limit *limit,
                              uint32_t written)
{
    const char *why = limit->algorithm == WEIR_CONCURRENCY ? "slots are held by one request each"
                      : limit->width                       ? "approximate counts stay on this host"
                      : limit->is_host_scope               ? "'scope: host' is not shared"
                      : m->c->domain->is_atomic            ? "the domain is atomic"
                                                           : NULL;
    if ((written & WEIR_HAS_CONSISTENCY) && limit->consistency == WEIR_CONSISTENCY_EVENTUAL && why)
        weir_report_error(m->c->report, limit->at, "'consistency: eventual' cannot be: %s", why);
}

/* One limit of the list against itself and the names before it. */
static void check_limit(const struct making *m, const struct weir_draft_limit *written)
{
    struct weir_compiler *c = m->c;
    struct weir_draft_limit limit = with_defaults(written, c->defaults);
    if (written->is_unlimited) {
        if (unit_of(written->unit) != WEIR_UNIT_UNKNOWN)
            weir_report_error(c->report, written->unit_at,
                              "should not specify rate limit unit when unlimited");
        else if (written->unit.len > 0)
            weir_report_warning(c->report, written->unit_at,
                                "'unit' has no effect on a limit that is unlimited");
        if (m->draft->limit_count > 1)
            weir_report_error(c->report, written->at,
                              "'unlimited' cannot be one of several limits");
        return;
    }
    if (!check_unit(c, &limit))
        return;
    check_fields(c, &limit, written->has);
    check_counting(m, &limit, written->has);
    check_count_if(c, &limit);
    check_consistency(m, &limit, written->has);
    for (const struct weir_draft_limit *l = m->draft->limits; l != written; l = l->next)
        if (l->name.len && weir_str_eq(l->name, written->name))
            weir_report_error(c->report, written->at, "two limits of one rule are named '%.*s'",
                              WEIR_STR_ARG(l->name));
}

static void check_replaces(const struct making *m, const struct weir_draft_limit *limit,
                           const struct weir_draft_name *name)
{
    if (name->name.len == 0)
        weir_report_error(m->c->report, name->at, "should not have an empty replaces entry");
    else if (weir_str_eq(name->name, limit->name))
        weir_report_error(m->c->report, name->at,
                          "replaces should not contain name of same descriptor");
}

static void make_replaces(const struct making *m)
{
    struct weir_arena *arena = &m->c->rules->arena;
    uint32_t count = 0;
    for (const struct weir_draft_limit *l = m->draft->limits; l; l = l->next)
        for (const struct weir_draft_name *n = l->replaces; n; n = n->next, count++)
            check_replaces(m, l, n);
    struct weir_str *names = count ? WEIR_ARENA_ARRAY(arena, count, struct weir_str) : NULL;
    if (!names)
        return;
    m->rule->replaces = names;
    m->rule->replaces_count = count;
    m->c->domain->is_together |= count > 0;
    for (const struct weir_draft_limit *l = m->draft->limits; l; l = l->next)
        for (const struct weir_draft_name *n = l->replaces; n; n = n->next)
            *names++ = weir_arena_str(arena, n->name);
}

static void make_overrides(const struct making *m, uint32_t node)
{
    struct weir_compiler *c = m->c;
    const struct weir_draft_extra *extra = m->draft->extra;
    if (!extra || !extra->overrides)
        return;
    if (m->draft->limit_count > 1 || m->rule->is_unlimited) {
        weir_report_error(
            c->report, extra->overrides_at,
            m->rule->is_unlimited
                ? "'overrides' need a limit, and this rule is unlimited"
                : "'overrides' need a rule with one limit: which of several is meant?");
        return;
    }
    c->rules->nodes[node].has_overrides = true;
    for (const struct weir_draft_pair *pair = extra->overrides; pair; pair = pair->next) {
        struct weir_override_row *row = &c->rules->overrides[c->rules->override_count];
        row->value = weir_arena_str(&c->rules->arena, pair->key);
        row->node = node;
        row->limit = c->rules->limit_count;
        uint32_t other =
            weir_dict_add(c->rules, WEIR_DICT_OVERRIDE, c->rules->override_count, node);
        if (other == WEIR_NONE) {
            c->rules->override_count++;
        } else {
            c->rules->overrides[other].limit = row->limit;
            weir_report_warning(c->report, pair->at,
                                "'%.*s' is overridden twice; the last one counts",
                                WEIR_STR_ARG(pair->key));
        }
        make_counters(m, pair);
    }
}

/* What callers see is the first limit. */
static void make_info(const struct making *m, struct weir_str id)
{
    struct weir_arena *arena = &m->c->rules->arena;
    struct weir_draft_limit first = with_defaults(m->draft->limits, m->c->defaults);
    struct weir_rule_info *info = &m->rule->info;
    info->id = id;
    info->name = weir_arena_str(arena, first.name);
    info->metadata = m->draft->extra ? weir_arena_str(arena, m->draft->extra->metadata)
                                     : (struct weir_str){.ptr = "", .len = 0};
    if (m->rule->is_unlimited)
        return;
    info->unit = unit_of(first.unit);
    m->rule->unit = (uint8_t)info->unit;
    info->unit_multiplier = first.has & WEIR_HAS_MULTIPLIER ? first.unit_multiplier : 1;
    info->requests_per_unit = first.requests;
    info->algorithm = (enum weir_algorithm)first.algorithm;
}

static bool has_value_to_metric(const struct weir_rules *rules, uint32_t node)
{
    while (node != WEIR_NONE && !rules->nodes[node].has_value_to_metric)
        node = rules->nodes[node].parent;
    return node != WEIR_NONE;
}

void weir_compile_rule(struct weir_compiler *c, const struct weir_draft_descriptor *draft,
                       const struct weir_draft_descriptor *cut, uint32_t node, struct weir_str id)
{
    uint32_t index = c->rules->rule_count++;
    struct weir_rule *rule = &c->rules->rules[index];
    struct making m = {c, draft, cut, rule, weir_compile_tiers(cut)};
    uint32_t counters = draft->limit_count * m.tiers;
    const struct weir_draft_limit *first = draft->limits;
    WEIR_ASSERT(first);
    c->rules->nodes[node].rule = index;
    rule->node = node;
    rule->is_unlimited = first->is_unlimited;
    rule->is_shadow = draft->is_shadow;
    rule->is_quota = draft->is_quota;
    rule->has_detailed_metric = draft->has_detailed_metric;
    rule->has_value_stats =
        !rule->is_unlimited && (draft->has_detailed_metric || has_value_to_metric(c->rules, node));
    rule->stats_id = weir_tag_stats(c->domain->name, id);
    rule->limit_count = rule->is_unlimited ? 0 : (uint8_t)counters;
    if (rule->limit_count != 1)
        rule->several = &c->rules->limits[c->rules->limit_count];
    make_info(&m, id);
    make_replaces(&m);
    for (const struct weir_draft_limit *l = draft->limits; l; l = l->next)
        check_limit(&m, l);
    if (counters > WEIR_LIMITS_MAX) {
        weir_report_error(c->report, first->at,
                          "%u limits times %u prefix tiers are more than %d counters",
                          draft->limit_count, m.tiers, WEIR_LIMITS_MAX);
        return;
    }
    if (!rule->is_unlimited)
        make_counters(&m, NULL);
    make_overrides(&m, node);
}
