/* spill.h - remembers what had to leave a full table, so that nothing is ever forgiven.
 *
 * A count-min sketch that is raised, never added to: when a key is evicted with count c, its cell
 * in every row becomes at least c; when it comes back, the least of its cells is at least c, and
 * it starts from there. Raising twice is raising once, so a key that leaves and comes back a
 * thousand times is not counted a thousand times; and a cell is the greatest of the keys that
 * share it, not their sum.  (This is conservative update, known to be the most frugal; it is
 * unsafe where threads count in the sketch itself, because they race between reading and
 * raising.  Here nobody does: a key lives either in its slot or in the sketch, its cells are
 * raised before its slot is given away, and read after its new slot is claimed.)
 *
 * Windows: cell = until (seconds, 34 bits) << 30 | mixed (1 bit) | count (29 bits), found by
 * hashing the key's fingerprint with the window's class and number, so that each window of a key
 * has cells of its own and old ones just expire.  Mixed: charges with different ends met
 * there.  A cell that is not, and ends at another time than a window, holds nothing of that
 * window: so a flood of this window's keys says nothing about the window before.
 *
 * Buckets: cell = the instant when the bucket is full again, found by fingerprint and the decade
 * (of 16) of how far that was off; a reader knows the bounds of the decade, so a neighbour's
 * longer debt does not become its own.
 *
 * Everything is a function of the fingerprint and the state, nothing of the rule: any process may
 * evict any key.
 *
 * Threads: any number.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TABLE_SPILL_H
#define WEIR_TABLE_SPILL_H

#include "table/internal.h"

/* One window of a key. */
struct weir_spill_name {
    uint64_t fp;
    uint64_t index; /* the window's number */
    uint32_t class; /* the number of its length */
    uint32_t lasts; /* it counts until the end of window index + lasts - 1 */
};

/* Raises the cells of a window to count. */
void weir_spill_window(struct weir_table *table, struct weir_spill_name name, uint64_t count,
                       uint64_t now_ns);
/* What the window may have used: 0 if it never left. */
uint64_t weir_spilled_window(const struct weir_table *table, struct weir_spill_name name,
                             uint64_t now_ns);

void weir_spill_tat(struct weir_table *table, uint64_t fp, uint64_t tat_ns, uint64_t now_ns);
/* The latest instant that a key's bucket may be full again, at most cap_ns from now; 0 if it
 * never left. */
uint64_t weir_spilled_tat(const struct weir_table *table, uint64_t fp, uint64_t now_ns,
                          uint64_t cap_ns);

/* Charges whatever a slot holds, by its kind.  WIDE slots are for the caller (store/wide.h). */
void weir_spill_slot(struct weir_table *table, union weir_u16b slot, uint64_t now_ns);

/* Whether the sketch holds anything for this class, or for buckets, at all. */
static inline bool weir_spill_has_window(const struct weir_table *table, uint32_t class,
                                         uint64_t now_ns)
{
    uint32_t region = class % table->header->window_regions;
    return __atomic_load_n(&table->header->sketch_until_ns[region], __ATOMIC_ACQUIRE) > now_ns;
}

static inline bool weir_spill_has_tat(const struct weir_table *table, uint64_t now_ns)
{
    return __atomic_load_n(&table->header->sketch_until_ns[WEIR_SKETCH_REGIONS_MAX],
                           __ATOMIC_ACQUIRE) > now_ns;
}

#endif
