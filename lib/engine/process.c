/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/process.h"

#include "engine/publish.h"
#include "table/processes.h"

static uint64_t sum_of_limit(const struct weir_limit *limit)
{
    uint64_t numbers = weir_mix64((uint64_t)limit->requests << 32 | limit->burst);
    uint64_t flags = (uint64_t)limit->count_rejected | (uint64_t)limit->round_up << 1;
    return weir_mix64(limit->tag ^ limit->variant ^ weir_mix64(numbers + flags));
}

/* Sums do not depend on the order: of files, for one. */
uint64_t weir_process_sum(const struct weir_rules *rules)
{
    uint64_t sum = 0;
    uint32_t rule_count = rules ? weir_rules_count(rules) : 0;
    uint32_t limit_count = rules ? weir_rules_limit_count(rules) : 0;
    for (uint32_t i = 0; i < rule_count; i++) {
        const struct weir_rule *rule = weir_rules_at(rules, i);
        uint64_t modes = (uint64_t)rule->is_unlimited | (uint64_t)rule->is_shadow << 1 |
                         (uint64_t)rule->is_quota << 2;
        sum += weir_mix64(rule->stats_id + modes);
    }
    for (uint32_t i = 0; i < limit_count; i++)
        sum += sum_of_limit(weir_rules_limit_at(rules, i));
    return sum;
}

void weir_process_announce(struct weir *w)
{
    struct weir_published *p = weir_publish_borrow(w);
    const struct weir_process process = {
        .generation = p->generation, .rules = p->sum, .published_ns = p->since_ns};
    weir_publish_return(w, p);
    weir_process_tell(w->table, &process, weir_table_now(w->table));
}

void weir_process_each(struct weir *w, void (*each)(void *ctx, const struct weir_process *one),
                       void *ctx)
{
    uint64_t now_ns = weir_table_now(w->table);
    struct weir_process process;
    for (uint32_t i = 0; i < WEIR_PROCESSES_MAX; i++) {
        if (weir_process_at(w->table, i, now_ns, &process))
            each(ctx, &process);
    }
}
