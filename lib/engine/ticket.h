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

/* Adds to an empty ticket all charges of the item, of these rules, that can be handed back. */
void weir_ticket_write(const struct weir_published *published, const struct weir_item *item,
                       struct weir_ticket *out);

/* What becomes of a place when the answer to its request is known. */
enum weir_place_fate {
    WEIR_PLACE_STAYS, /* until it is released */
    WEIR_PLACE_IS_USED,
    WEIR_PLACE_COMES_BACK,
};
enum weir_place_fate weir_place_settle(const struct weir_place *place, int http_status);

/* The limit that the place was taken from, as far as giving back needs it.  A ticket comes from the
 * caller, so nothing in it is believed: false where no limit could have written it. */
bool weir_place_limit(const struct weir_place *place, const struct weir_table *table,
                      struct weir_limit *out);

#endif
