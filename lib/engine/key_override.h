/* key_override.h - one key has another limit, for a while.
 *
 * Given to a descriptor, kept by counter: each counter that the descriptor meets gets a number of
 * its own in the table (table/key_overrides.h), the first one the number that was asked for, the
 * others (more limits of the rule, tiers of prefixes) theirs in proportion.  Who shares a counter
 * shares its number.  What was used so far stays used, when it begins, changes and ends.
 *
 * A limit that a request brings along is not changed: it is the caller's.
 *
 * Threads: the session's own.  Time: an argument.  Allocation: none.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_KEY_OVERRIDE_H
#define WEIR_ENGINE_KEY_OVERRIDE_H

#include "engine/engine.h"

/* Gives the counters of a plan the numbers that they have of their own now.  For when there are
 * any: see weir_key_overrides_live(). */
void weir_key_override_apply(struct weir_session *s, struct weir_plan *plan, uint64_t now_ns);

#endif
