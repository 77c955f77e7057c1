/* process.h - tells the table, and so everybody on it, which rules this process decides by.
 *
 * A generation is a number of this process's own; whether two have the same rules is seen by the
 * sum over them, which is the same wherever the same rules are loaded.
 *
 * Threads: any.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_PROCESS_H
#define WEIR_ENGINE_PROCESS_H

#include "engine/engine.h"

/* A sum over all that decides: rules, their modes, their numbers.  0: no rules. */
uint64_t weir_process_sum(const struct weir_rules *rules);

/* Tells of the version that is current; also that we are still here. */
void weir_process_announce(struct weir *w);

#endif
