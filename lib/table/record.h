/* record.h - what the table itself knows of limits: window lengths by number, rates by number.
 *
 * Window lengths: slots name theirs by a number of six bits, so that anyone can tell when a slot
 * expires.
 *
 * Rates: a record has room for four, and a bucket's state names the one that it was made at.
 * store/rates.h says which records a limit has.
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

/* The same, if it is there; else UINT32_MAX. */
uint32_t weir_record_find(const struct weir_table *table, uint64_t id);

/* The number of this rate, the newest; if the newest is another, it takes the place of the oldest.
 */
uint32_t weir_record_newest(struct weir_table *table, uint32_t record, uint32_t requests);

/* The number of this rate, which is added where there is room; else WEIR_GENERATIONS.  A rate that
 * was added so stays for good. */
uint32_t weir_record_add(struct weir_table *table, uint32_t record, uint32_t requests);

/* The rate of a number; 0: there is none. */
static inline uint32_t weir_record_requests(const struct weir_table *table, uint32_t record,
                                            uint32_t number)
{
    return (uint32_t)__atomic_load_n(&table->records[record].rate[number], __ATOMIC_ACQUIRE);
}

#endif
