/* seed.h - where a key starts that has no slot: from nothing, or from what the sketch remembers
 * of it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_SEED_H
#define WEIR_STORE_SEED_H

#include "store/call.h"

/* A slot value as the key might have left it; empty if it never had to leave. */
union weir_u16b weir_seed_slot(const struct weir_call *call, uint64_t fp);

/* How many hits a wide state must start with, and (for the weighted counter) in the window before.
 */
struct weir_seed_counts {
    uint64_t previous, current;
};
struct weir_seed_counts weir_seed_wide(const struct weir_call *call, uint64_t fp);

#endif
