/* top.h - which decisions are told to the table's list of busy keys: some of them.
 *
 * A session counts down to the next decision that is told, and draws the next distance by chance,
 * around a mean that grows, up to 64, where it tells more than once in 64 microseconds, and shrinks
 * again, down to 1, where it tells less than once in 2 milliseconds.  So a quiet service tells
 * everything, and a busy one pays a few instructions for each decision.  What is told stands for as
 * many as the mean was.
 *
 * Threads: the session's own.  Time: an argument.  Allocation: none.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_TOP_H
#define WEIR_ENGINE_TOP_H

#include "base/hot.h"
#include "engine/engine.h"

/* Tells of a request that was decided.  Only for when the countdown has ended. */
void weir_top_tell(struct weir_session *s, const struct weir_plan *plan,
                   const struct weir_status *statuses, uint64_t now_ns);
/* The same for a key of weir_throttle().  Returns for how many hits it stood. */
uint64_t weir_top_tell_throttle(struct weir_session *s, uint64_t key,
                                const struct weir_throttle *throttle, bool is_over,
                                uint64_t now_ns);

/* Tells of a request that is planned, and will be decided elsewhere: that is when its words are
 * here.  Returns for how many decisions it stands. */
uint32_t weir_top_tell_asked(struct weir_session *s, const struct weir_plan *plan, uint64_t now_ns);
/* And once it is decided, of the items that turned out to be over the limit. */
void weir_top_tell_over(struct weir_session *s, const struct weir_item *items, uint32_t count,
                        const struct weir_status *statuses, uint32_t distance, uint64_t now_ns);

/* Whether this decision is one to be told. */
static inline bool weir_top_is_due(struct weir_session *s)
{
    return WEIR_SELDOM(--s->top_countdown == 0) && !s->engine->options.no_top_keys;
}

#endif
