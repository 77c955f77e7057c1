/* value_stats.h - statistics under names with a request's values in them: what `detailed_metric`
 * and `value_to_metric` ask for.
 *
 *     rule  api.route.user      in the table, for all values         weir's own metrics tell it
 *     name  api.route_/a.user   here, for this process's decisions   envoyproxy/ratelimit's do
 *
 * Not in the table: names come from clients and never leave, and a file that outlives us would fill
 * with them.  Bounded: WEIR_VALUE_STATS_MAX names; what comes later, or has a longer name, counts
 * for its rule alone.
 *
 * Threads: any number find, add and read at once.  A place is claimed by its id, then named once;
 *          whoever finds it claimed may count there already, readers wait until it has its name.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_VALUE_STATS_H
#define WEIR_ENGINE_VALUE_STATS_H

#include "base/maxima.h"
#include "rules/rules.h"
#include "table/table.h"

#include <stdatomic.h>

#define WEIR_VALUE_PLACES (2 * WEIR_VALUE_STATS_MAX) /* half of them stay free: short walks */

struct weir_value_stat {
    _Atomic uint64_t id; /* hash of the name; 0: a free place */
    _Atomic uint64_t counts[WEIR_COUNTERS];
    _Atomic bool is_named; /* name and len are there */
    uint16_t len;
    char name[WEIR_VALUE_NAME_MAX];
};

struct weir_value_stats;

/* alloc: at publishing. */
WEIR_MUST_CHECK int weir_value_stats_new(struct weir_value_stats **out);
void weir_value_stats_free(struct weir_value_stats *stats);

/* Where these entries count; NULL: no room, or too long a name. */
struct weir_value_stat *weir_value_stats_find(struct weir_value_stats *stats,
                                              const struct weir_hash_key *secret,
                                              const struct weir_domain *domain,
                                              const struct weir_descriptor *descriptor);
void weir_value_stats_add(struct weir_value_stat *stat, const uint64_t amounts[WEIR_COUNTERS]);

/* Where this name counts; NULL: no room, or too long a name. */
struct weir_value_stat *weir_value_stats_named(struct weir_value_stats *stats,
                                               const struct weir_hash_key *secret,
                                               struct weir_str name);

/* What is at a place, 0 to WEIR_VALUE_PLACES - 1; NULL: nothing, or stats is NULL. */
const struct weir_value_stat *weir_value_stats_at(const struct weir_value_stats *stats,
                                                  uint32_t place);

#endif
