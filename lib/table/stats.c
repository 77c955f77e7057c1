/* stats.c - counters per rule, spread over shards: one shared counter would halve throughput.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/hot.h"
#include "table/internal.h"

uint32_t weir_stats_claim(struct weir_table *table, uint64_t stats_id)
{
    uint64_t count = table->stats_rules;
    if (stats_id == 0 || count < 2)
        return 0;
    uint64_t start = weir_mix64(stats_id);
    for (uint64_t probe = 0; probe < count - 1; probe++) {
        uint64_t number = 1 + (start + probe) % (count - 1);
        /* Read first: with more rules than numbers, most of this walk is over other rules'. */
        uint64_t seen = __atomic_load_n(&table->stats_ids[number], __ATOMIC_ACQUIRE);
        if (seen == 0 && __atomic_compare_exchange_n(&table->stats_ids[number], &seen, stats_id,
                                                     false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return (uint32_t)number;
        if (seen == stats_id)
            return (uint32_t)number;
    }
    return 0;
}

static struct weir_stats_line *line_of(const struct weir_table *table, uint32_t stat,
                                       uint32_t shard)
{
    uint64_t line = (uint64_t)(shard % WEIR_STATS_SHARDS) * table->stats_rules + stat;
    return &table->stats_lines[line];
}

void weir_stats_add(struct weir_table *table, uint32_t stat, uint32_t shard,
                    enum weir_counter counter, uint64_t amount)
{
    uint64_t *at = &line_of(table, stat, shard)->counter[counter];
    /* Relaxed: counters are read for people, one by one. */
    (void)__atomic_fetch_add(at, amount, __ATOMIC_RELAXED);
}

void weir_stats_add_all(struct weir_table *table, uint32_t stat, uint32_t shard,
                        const uint64_t amounts[WEIR_COUNTERS])
{
    struct weir_stats_line *line = line_of(table, stat, shard);
    for (enum weir_counter c = 0; c < WEIR_COUNTERS; c++) {
        if (amounts[c] > 0) /* most are not, and an atomic addition is dear */
            (void)__atomic_fetch_add(&line->counter[c], amounts[c], __ATOMIC_RELAXED);
    }
}

WEIR_HOT uint64_t *weir_stats_within(const struct weir_table *table, uint32_t stat, uint32_t shard)
{
    return &line_of(table, stat, shard)->counter[WEIR_STATS_BOTH];
}

static uint64_t sum_of(const struct weir_table *table, uint32_t stat, uint32_t word)
{
    uint64_t sum = 0;
    for (uint32_t shard = 0; shard < WEIR_STATS_SHARDS; shard++)
        sum += __atomic_load_n(&line_of(table, stat, shard)->counter[word], __ATOMIC_RELAXED);
    return sum;
}

uint64_t weir_stats_read(const struct weir_table *table, uint32_t stat, enum weir_counter counter)
{
    bool is_of_both = counter == WEIR_COUNTER_TOTAL_HITS || counter == WEIR_COUNTER_WITHIN_LIMIT;
    return sum_of(table, stat, counter) + (is_of_both ? sum_of(table, stat, WEIR_STATS_BOTH) : 0);
}
