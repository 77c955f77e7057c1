/* rates.h - at which rate a bucket's state was made.
 *
 * A bucket's state is an instant, and an instant means so many tokens only at one rate.  So a
 * state names its rate, by a generation of five bits, and whoever finds that it is not the limit's
 * own of today converts the state once: the same tokens are in use, at the new rate.
 *
 *     generation          remembered in                                        how many
 *     1, 2, 3 | n << 3    three records that all limits of a tag share         12, for good
 *     0       | n << 3    a record of the limit's own, when those are full     the last 4
 *     4       | n << 3    the row of the key's own override                    4
 *
 * A tag is what counters have in common: domain, algorithm, window, name.  That rates are shared
 * by tag is why a value may get or lose a number of its own (`overrides`, or a rule for that value)
 * and still be understood: whoever made its state wrote the rate where everybody looks.  Twelve
 * different numbers are many for one domain, algorithm and window; beyond them a value that gets or
 * loses a number keeps the time until it is full, and a fifth change within that time is read at
 * the newest rate.
 *
 * Threads: any number, in any number of processes, also with different rules loaded.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_RATES_H
#define WEIR_STORE_RATES_H

#include "algo/limit.h"

struct weir_table;

/* Sets the limit's record and generation. */
void weir_rates_bind(struct weir_table *table, struct weir_limit *limit);

/* The rate of a generation that a state of this key has; 0: nobody knows. */
uint32_t weir_rates_find(const struct weir_table *table, const struct weir_limit *limit,
                         uint64_t key, uint32_t generation);

#endif
