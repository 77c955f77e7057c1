/* enforce.h - how much of what a rule refuses is really refused: the kill switch, and a share.
 *
 * A rule enforces 100% of its refusals unless an operator says otherwise: 0% is the kill switch,
 * and a share in between lets a new limit in gently.  What is not enforced is decided and counted,
 * and told as in shadow mode.  Who is spared follows from the key alone: one client has one
 * experience, and whoever is refused at 10% is refused at 50%, too.  Nobody can choose to be
 * spared, because keys are hashed with the table's secret.
 *
 * The share is kept in the table, under the number of the rule's statistics: so it holds for every
 * process, outlives reloads and restarts, and rules beyond the maximum share one, "other".
 *
 * Threads: any.  Allocation: none.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_ENFORCE_H
#define WEIR_ENGINE_ENFORCE_H

#include "engine/engine.h"

/* Whether a refusal of this item, which has charges, would not be enforced. */
bool weir_enforce_spares(const struct weir_session *s, const struct weir_item *item);

#endif
