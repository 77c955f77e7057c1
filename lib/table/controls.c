/* SPDX-License-Identifier: Apache-2.0 */
#include "table/controls.h"

#include "base/err.h"

/* Of `wanted`, between these bounds, in whole lines of keys. */
static uint32_t rows(uint64_t wanted, uint32_t fewest, uint32_t most)
{
    uint64_t count = wanted < fewest ? fewest : wanted > most ? most : wanted;
    return (uint32_t)((count + WEIR_LINE_KEYS - 1) / WEIR_LINE_KEYS * WEIR_LINE_KEYS);
}

/* Takes bytes off the part, in whole cache lines; NULL where only their number is asked for. */
static void *carve(unsigned char *at, uint64_t *used, uint64_t bytes)
{
    void *here = at != NULL ? at + *used : NULL;
    *used += (bytes + 63) / 64 * 64;
    return here;
}

uint64_t weir_controls_point(struct weir_controls *out, unsigned char *at, uint64_t stats_rules)
{
    uint64_t used = 0;
    *out = (struct weir_controls){
        .override_count = rows(stats_rules / 4, 2 * WEIR_LINE_KEYS, WEIR_KEY_OVERRIDES_MAX),
        .top_count = rows(stats_rules, 4 * WEIR_LINE_KEYS, WEIR_TOP_KEYS_MAX),
    };
    out->enforcement = carve(at, &used, stats_rules);
    out->override_keys = carve(at, &used, out->override_count * sizeof *out->override_keys);
    out->overrides = carve(at, &used, out->override_count * sizeof *out->overrides);
    out->top_keys = carve(at, &used, out->top_count * sizeof *out->top_keys);
    out->top = carve(at, &used, out->top_count * sizeof *out->top);
    out->processes = carve(at, &used, WEIR_PROCESSES_MAX * sizeof *out->processes);
    return used;
}

int weir_enforced_set(struct weir_table *table, uint32_t stat, uint32_t percent)
{
    WEIR_ASSERT(stat < table->header->stats_rules && percent <= WEIR_ENFORCED_ALL);
    if (table->controls.enforcement == NULL)
        return WEIR_ERR_UNSUPPORTED;
    __atomic_store_n(&table->controls.enforcement[stat], (uint8_t)(WEIR_ENFORCED_ALL - percent),
                     __ATOMIC_RELAXED); /* a number by itself */
    return 0;
}
