/* ask_lease_held.h - leases that this worker asked for and nobody uses: given back.
 *
 * Looked at every 50 ms while there are any.  One whose tokens have not changed for 100 ms is
 * collected, and Redis gets it back.  More than there is room for are left to expire.
 *
 * Threads: the worker's.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_ASK_LEASE_HELD_H
#define WEIR_SERVE_ASK_LEASE_HELD_H

#include "serve/ask_lease.h"

struct weir_ask_held; /* opaque: of one worker */

/* 0, or WEIR_ERR_NOMEM. */
WEIR_MUST_CHECK int weir_ask_held_new(struct weir_ask_held **out, struct weir_asks *asks);
void weir_ask_held_free(struct weir_ask_held *held);
/* Gives all of them back, used or not. */
void weir_ask_held_end(struct weir_ask_held *held);

/* Tokens of this counter lie in the table now; it says which, and what they are given back by. */
void weir_ask_hold(struct weir_ask_held *held, uint64_t key,
                   const struct weir_redis_counter *counter, uint64_t boot_ns);

#endif
