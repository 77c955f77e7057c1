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

/* The ticket for all charges of the item that were taken and can be handed back; empty where there
 * are none. */
void weir_ticket_write(const struct weir_session *s, const struct weir_item *item,
                       struct weir_ticket *out);

#endif
