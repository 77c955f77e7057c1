/* plan.h - from a request to the counters that it meets, before any of them is touched.
 *
 * Planning checks the whole request against the maxima, finds each descriptor's rule, drops what
 * other rules replace, and names the counters.  It changes nothing but the session, so a request
 * that is refused here has counted nothing.
 *
 * Purity: no clock, no I/O, no allocation.  Threads: the session's own.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_PLAN_H
#define WEIR_ENGINE_PLAN_H

#include "engine/engine.h"

/* Forgets all plans of the session. */
void weir_plan_reset(struct weir_session *s);

/* Whether another request of so many descriptors fits beside those planned. */
bool weir_plan_has_room(const struct weir_session *s, uint32_t descriptor_count);

/* Plans one request, alone.  is_refund: give back whatever the descriptors say.
 * 0, or the errors of weir_check(). */
WEIR_MUST_CHECK int weir_plan_one(struct weir_session *s, const struct weir_published *published,
                                  const struct weir_request *request, bool is_refund);

/* The same plan where an entry of its only descriptor has another value, which the rules do not
 * look at, and so another hash: other counters of the same limits. */
void weir_plan_rename(struct weir_session *s, uint64_t hash);

/* Decides it by the table: the second half of weir_check(). */
void weir_check_planned(struct weir_session *s, struct weir_plan *plan, uint64_t now_ns,
                        struct weir_decision *out);

/* The same in three steps, each of which starts to fetch what the next one reads.  Who plans
 * several requests takes each step for all of them before the next.
 *
 *     open   checks the request; guesses where its rules will be looked for, names its entries
 *     find   its rules, and the counters of those that have one limit
 *     fill   what the rules say, and all counters
 */

/* Begins a plan.  0, or the errors of weir_check(); then the session is as before. */
WEIR_MUST_CHECK int weir_plan_open(struct weir_session *s, const struct weir_published *published,
                                   const struct weir_request *request);
void weir_plan_find(struct weir_session *s, struct weir_plan *plan);
void weir_plan_fill(struct weir_session *s, struct weir_plan *plan);

#endif
