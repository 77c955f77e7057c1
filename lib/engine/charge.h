/* charge.h - one descriptor's counters are taken: all of them, or none.
 *
 * One limit is one atomic step of the store.  Several are looked at first; where all would allow,
 * each is taken, and where one of them refuses after all - somebody else was faster - those taken
 * before are given back.  So never more passes than any limit allows; for an instant somebody
 * else may be refused what is then given back.  Leaky buckets are taken last, because a place in a
 * queue can be given back only while it is the last.
 *
 * Refused hits do not count where there are several: all or nothing includes the counting.
 *
 * Threads: the session's own.  Time: an argument.  Allocation: none.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_CHARGE_H
#define WEIR_ENGINE_CHARGE_H

#include "engine/engine.h"

/* Decides one descriptor by itself, counts it, and says what came of it. */
void weir_charge_alone(struct weir_session *s, struct weir_item *item, uint64_t now_ns,
                       struct weir_status *out);

/* The steps, for who must decide several descriptors together: */

/* Looks at all counters of an item; says whether all would allow. */
bool weir_charge_look(struct weir_session *s, struct weir_item *item, uint64_t now_ns);
/* The order in which charges are taken: leaky buckets last, then as in the files. */
void weir_charge_sort(struct weir_charge **order, uint32_t count);
/* Takes one of several; says whether it was allowed.  Refused hits are not counted. */
bool weir_charge_take(struct weir_session *s, struct weir_charge *charge, uint64_t now_ns);
/* Gives back what take() took, of all these charges. */
void weir_charge_undo(struct weir_session *s, struct weir_charge *charges, uint32_t count,
                      uint64_t now_ns);
/* The status that an item's verdicts come to. */
void weir_charge_status(const struct weir_item *item, struct weir_status *out);
/* The same where somebody else has decided, and an operator may still spare it. */
void weir_charge_told(struct weir_session *s, struct weir_item *item, struct weir_status *out);
/* Hands out what take() marked, and adds to the statistics. */
void weir_charge_settle(struct weir_session *s, const struct weir_item *item,
                        struct weir_status *out);

#endif
