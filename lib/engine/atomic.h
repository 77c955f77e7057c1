/* atomic.h - domains with `atomic: true`: a refused request consumes nothing anywhere.
 *
 * All limits of all descriptors are looked at and combined, quota mode included.  Only if the
 * answer is OK are they charged, in the order of the files, so that of two requests that compete
 * for several limits one wins them all; leaky buckets last.  A charge that fails after all gives
 * back everything that came before it.  Never over-admits; may for an instant over-deny.
 *
 * Descriptors under a rule in shadow mode, or whose refusals are not enforced, and refunds take no
 * part: they are decided by themselves.
 *
 * Threads: the session's own.  Time: an argument.  Allocation: none.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_ATOMIC_H
#define WEIR_ENGINE_ATOMIC_H

#include "engine/engine.h"

/* Whose refusal would not be enforced takes no part in the others' fate: it is in shadow mode. */
void weir_atomic_spare(const struct weir_session *s, struct weir_plan *plan);

/* Decides all items of the plan together; statuses: one for each. */
void weir_atomic_decide(struct weir_session *s, struct weir_plan *plan, uint64_t now_ns,
                        struct weir_status *statuses);

/* Tells of an item that was allowed, in a request that was refused: nothing was taken. */
void weir_atomic_untaken(struct weir_session *s, struct weir_item *item, uint64_t now_ns,
                         struct weir_status *status);

#endif
