/* controls.h - what an operator sets and sees while everything runs, of all processes on a table.
 *
 *     enforcement    a byte for each number of statistics             here
 *     key overrides  another number for one counter, for a while      key_overrides.h
 *     top            the busiest counters of the last minute          top.h
 *     processes      who is attached, with which rules                processes.h
 *
 * They lie behind everything else in the file.  Their sizes follow from the number of rules with
 * statistics, which follows from the size of the file: a small table has room for few.  A file of
 * version 1 has none: nothing is set there, and nothing can be.
 *
 * Threads: any number, in any number of processes.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TABLE_CONTROLS_H
#define WEIR_TABLE_CONTROLS_H

#include "table/internal.h"

#define WEIR_ENFORCED_ALL 100u /* per cent */

/* Points into the part that begins at `at`, and says how many bytes it has. */
uint64_t weir_controls_point(struct weir_controls *out, unsigned char *at, uint64_t stats_rules);

/* The share of a rule's refusals that is enforced, in per cent.  One byte that is written when an
 * operator says so, and read only where something is about to be refused. */
static inline uint32_t weir_enforced_percent(const struct weir_table *table, uint32_t stat)
{
    if (table->controls.enforcement == NULL)
        return WEIR_ENFORCED_ALL;
    /* Relaxed: a number by itself. */
    uint8_t spared = __atomic_load_n(&table->controls.enforcement[stat], __ATOMIC_RELAXED);
    return spared < WEIR_ENFORCED_ALL ? WEIR_ENFORCED_ALL - spared : 0;
}

/* percent: at most WEIR_ENFORCED_ALL.  0, or WEIR_ERR_UNSUPPORTED. */
WEIR_MUST_CHECK int weir_enforced_set(struct weir_table *table, uint32_t stat, uint32_t percent);

#endif
