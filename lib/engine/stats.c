/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/stats.h"

#include "base/hot.h"
#include "base/str.h"
#include "engine/publish.h"
#include "table/controls.h"

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* a - b, or 0 where b is greater. */
static uint64_t above(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* Signed, as the processor converts it: no limit is near 2^63. */
uint64_t weir_stats_near(uint64_t limit, float near_ratio)
{
    return (uint64_t)(int64_t)((float)(int64_t)limit * near_ratio);
}

struct weir_stats_increment weir_stats_increment_of(const struct weir_verdict *verdict,
                                                    uint64_t hits, float near_ratio, bool is_shadow)
{
    uint64_t limit = verdict->limit, before = verdict->before;
    uint64_t after = before > UINT64_MAX - hits ? UINT64_MAX : before + hits;
    uint64_t near = weir_stats_near(limit, near_ratio);
    struct weir_stats_increment inc = {.total_hits = hits};

    if (hits == 0)
        return inc;
    if (verdict->allowed) {
        inc.within_limit = hits;
        inc.near_limit = before >= near ? hits : above(after, near);
    } else if (before >= limit) {
        inc.over_limit = hits;
    } else {
        inc.over_limit = above(after, limit);
        inc.near_limit = above(limit, max_u64(near, before));
    }
    if (is_shadow)
        inc.shadow_mode = inc.over_limit;
    if (verdict->by_sketch)
        inc.over_limit_by_sketch = inc.over_limit;
    return inc;
}

static void add(struct weir_session *s, const struct weir_item *item,
                const uint64_t amounts[WEIR_COUNTERS])
{
    weir_stats_add_all(s->engine->table, item->stat, s->number, amounts);
    if (item->value)
        weir_value_stats_add(item->value, amounts);
}

/* All that is not well within the limit.  Apart from that, which it would lengthen. */
static __attribute__((noinline)) void add_increment(struct weir_session *s,
                                                    const struct weir_item *item,
                                                    const struct weir_verdict *verdict)
{
    struct weir_stats_increment inc =
        weir_stats_increment_of(verdict, item->hits, s->engine->near_ratio, item->is_shadow);
    const uint64_t amounts[WEIR_COUNTERS] = {
        [WEIR_COUNTER_TOTAL_HITS] = inc.total_hits,
        [WEIR_COUNTER_OVER_LIMIT] = inc.over_limit,
        [WEIR_COUNTER_NEAR_LIMIT] = inc.near_limit,
        [WEIR_COUNTER_WITHIN_LIMIT] = inc.within_limit,
        [WEIR_COUNTER_SHADOW_MODE] = inc.shadow_mode,
        [WEIR_COUNTER_BY_SKETCH] = inc.over_limit_by_sketch,
    };
    add(s, item, amounts);
}

WEIR_HOT void weir_stats_decided(struct weir_session *s, const struct weir_item *item,
                                 const struct weir_verdict *verdict)
{
    uint64_t near = weir_stats_near(verdict->limit, s->engine->near_ratio);
    bool is_far = verdict->before < near && item->hits <= near - verdict->before;
    if (WEIR_MOSTLY(verdict->allowed && is_far && !item->value))
        weir_stats_add_within(weir_stats_within(s->engine->table, item->stat, s->number),
                              item->hits);
    else
        add_increment(s, item, verdict);
}

void weir_stats_asked(struct weir_session *s, const struct weir_item *item)
{
    const uint64_t amounts[WEIR_COUNTERS] = {[WEIR_COUNTER_TOTAL_HITS] = item->hits};
    add(s, item, amounts);
}

void weir_stats_refunded(struct weir_session *s, const struct weir_item *item)
{
    const uint64_t amounts[WEIR_COUNTERS] = {[WEIR_COUNTER_NEGATIVE_HITS] = item->hits};
    add(s, item, amounts);
}

static void read_counters(const struct weir_table *table, uint32_t stat,
                          struct weir_rule_stats *out)
{
    out->total_hits = weir_stats_read(table, stat, WEIR_COUNTER_TOTAL_HITS);
    out->over_limit = weir_stats_read(table, stat, WEIR_COUNTER_OVER_LIMIT);
    out->near_limit = weir_stats_read(table, stat, WEIR_COUNTER_NEAR_LIMIT);
    out->within_limit = weir_stats_read(table, stat, WEIR_COUNTER_WITHIN_LIMIT);
    out->shadow_mode = weir_stats_read(table, stat, WEIR_COUNTER_SHADOW_MODE);
    out->over_limit_by_sketch = weir_stats_read(table, stat, WEIR_COUNTER_BY_SKETCH);
    out->total_negative_hits = weir_stats_read(table, stat, WEIR_COUNTER_NEGATIVE_HITS);
    out->enforced_percent = weir_enforced_percent(table, stat);
}

/* Rules beyond the maximum and limits that requests brought share number 0: shown once, as "other",
 * and only where something was counted. */
void weir_stats_rules(struct weir *w, void (*each)(void *ctx, const struct weir_rule_stats *one),
                      void *ctx)
{
    struct weir_published *p = weir_publish_borrow(w);
    uint32_t count = p->rules ? weir_rules_count(p->rules) : 0;
    struct weir_rule_stats one;
    for (uint32_t i = 0; i < count; i++) {
        const struct weir_rule *rule = weir_rules_at(p->rules, i);
        if (rule->stat == 0)
            continue;
        one = (struct weir_rule_stats){.info = rule->info};
        read_counters(w->table, rule->stat, &one);
        each(ctx, &one);
    }
    one = (struct weir_rule_stats){.info.id = WEIR_STR("other")};
    read_counters(w->table, 0, &one);
    if (one.total_hits > 0)
        each(ctx, &one);
    weir_publish_return(w, p);
}

void weir_stats_table(struct weir *w, struct weir_table_stats *out)
{
    weir_table_stats(w->table, weir_table_now(w->table), out);
}
