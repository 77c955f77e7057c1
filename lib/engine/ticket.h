/* ticket.h - what was taken and can be handed back: concurrency slots, places in a queue, hits.
 *
 * A ticket carries the limit's numbers and what the table knows it by, not the limit: rules may be
 * replaced between take and release, and another process may be the one that releases.
 *
 * Threads: the session's own.  Time: an argument.  Allocation: none.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_TICKET_H
#define WEIR_ENGINE_TICKET_H

#include "engine/engine.h"

/* Whether what was taken of this counter can be handed back. */
static inline bool weir_ticket_has_place(const struct weir_charge *c)
{
    /* An approximate limit has no places: its cells are many keys'. */
    bool can_give = (c->mark != 0 && !c->limit->approx) || (c->limit->count_if && c->hits > 0);
    return can_give && c->is_taken;
}

/* Adds to an empty ticket all charges of the item that can be handed back. */
void weir_ticket_write(const struct weir_session *s, const struct weir_item *item,
                       struct weir_ticket *out);

#endif
