/* spend.h - a counter that many machines share, decided by tokens that were leased (store/lease.h).
 *
 * For both who have a store behind their table: the service, and who asks at its desk.
 *
 * Threads: the charge is the session's own, leases and board are everybody's.  Time: the lease's.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_SPEND_H
#define WEIR_ENGINE_SPEND_H

#include "engine/engine.h"
#include "store/lease_board.h"

/* What is said of it is the charge's then; WEIR_LEASE_NONE: nothing is, somebody must be asked. */
static inline struct weir_lease_taken weir_charge_spend(struct weir_charge *charge,
                                                        const struct weir_lease_at *at,
                                                        const struct weir_lease_board *board)
{
    struct weir_lease_taken taken = weir_lease_take(at, charge->hits);
    if (taken.said == WEIR_LEASE_NONE)
        return taken;
    charge->verdict = weir_lease_board_verdict(board, charge->key, charge->limit, charge->hits,
                                               &taken, at->boot_ns);
    charge->is_taken = charge->verdict.allowed;
    charge->mark = 0;
    return taken;
}

#endif
