/* reach.h - how far a descriptor's limits reach, where several hosts share a store: who may decide.
 *
 *     this host        `scope: host`, `counting: approximate`: the table, always
 *     all hosts        the store; or the table, by tokens that were leased (store/lease.h)
 *
 * and what becomes of those of all hosts while nobody can be asked (rules' on_store_error):
 *
 *     local    the table, on counters of their own, with L divided by the hosts last seen
 *     open     nobody: it passes, and no limit is told
 *     closed   nobody: it is refused, and may come again in a second
 *
 * Of a rule with several limits one that is closed refuses; those that are local must all allow.
 *
 * Threads: the session's own.  Allocation: none.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_REACH_H
#define WEIR_ENGINE_REACH_H

#include "engine/engine.h"

/* Whether the table is all that it needs: a rule's limits are all asked for in one place. */
bool weir_reach_is_host(const struct weir_item *item);
/* Whether all limits of an item, of which there are some, are such as hosts decide each by itself
 * and tell later. */
bool weir_reach_is_eventual(const struct weir_item *item);
/* Whether it may be decided by tokens: one limit, that suits, of a request that is not atomic.
 * What may be given back later is asked for each time. */
bool weir_reach_may_lease(const struct weir_plan *plan, const struct weir_item *item);

/* What the keys of counters that stand in for the store's are mixed with. */
#define WEIR_ALONE_TAG UINT64_C(0x6c6c6166)

/* How to go on alone. */
struct weir_alone {
    struct weir_table *table;
    enum weir_on_store_error on_error; /* of rules that do not say */
    uint32_t nodes;                    /* hosts last seen; at least 1 */
};

/* Gives an item the charges that decide it now; limits: memory for one limit a charge.  Returns
 * what came of it: CLOSED where one of them is, OPEN where none is left. */
enum weir_on_store_error weir_alone_substitute(const struct weir_alone *alone,
                                               struct weir_item *item, struct weir_limit *limits);
/* Its charges have the names again that they stood in for: whoever tells of them means those. */
void weir_alone_call_back(const struct weir_item *item);
/* A limit that is closed for a while is still the limit that it is: of so many requests. */
void weir_alone_tell(struct weir_status *status, uint32_t requests);

#endif
