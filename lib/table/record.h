/* record.h - what the table itself knows of limits: window lengths by number, rates by generation.
 *
 * Window lengths: slots name theirs by a number of six bits, so that anyone can tell when a slot
 * expires.
 *
 * Rates: a bucket's state is an instant, and an instant means so many tokens only at one
 * rate.  When a rule's rate is changed live, the record of its limit gets a new generation; a
 * state of an older one is rescaled once, at the rate that the record still has.  Four
 * generations are kept: the fifth change within the time that a bucket takes to refill reads the
 * oldest at the newest rate.
 *
 * Threads: any number, in any number of processes, also with different rules loaded: each reads the
 * other's states at the rate that they were made with.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TABLE_RECORD_H
#define WEIR_TABLE_RECORD_H

#include "table/internal.h"

/* The number of a window length, registered if it is new; WEIR_WINDOWS_MAX if there is no room. */
uint32_t weir_window_class(struct weir_table *table, uint64_t window_s);

/* The number of a limit's record, claimed if it is new; UINT32_MAX if there is no room. */
uint32_t weir_record_claim(struct weir_table *table, uint64_t id);

/* The generation of this rate, the newest; made if the newest is another rate. */
uint32_t weir_record_generation(struct weir_table *table, uint32_t record, uint32_t requests);

/* The rate of a generation. */
static inline uint32_t weir_record_requests(const struct weir_table *table, uint32_t record,
                                            uint32_t generation)
{
    return (uint32_t)__atomic_load_n(&table->records[record].rate[generation], __ATOMIC_ACQUIRE);
}

#endif
