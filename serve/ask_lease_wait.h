/* ask_lease_wait.h - leases that replicas must have heard of before they are used (store_wait).
 *
 *     Redis: granted --> is kept here --on_replicated()--> yes: the lease's tokens are for all
 *                            |                             no:  they are nobody's
 *                            +--deadline, connection lost------^
 *
 * A master that dies takes along what its replicas have not heard of.  Of hits that it decided one
 * by one that is a few; of a lease it would be all its tokens, spent and not counted.  So only
 * leases wait.  Tokens that are not used stay charged, and are not given back either: by then the
 * question may be put to a replica that has taken over, which would then subtract what it never
 * added.
 *
 * Who waits for the call's tokens (ask_lease.h: flights) waits for this, too; who had asked is
 * answered at once.
 *
 * Threads: the worker's.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_ASK_LEASE_WAIT_H
#define WEIR_SERVE_ASK_LEASE_WAIT_H

#include "serve/ask_lease.h"

struct weir_ask_waits; /* opaque: of one worker */

/* 0, or WEIR_ERR_NOMEM. */
WEIR_MUST_CHECK int weir_ask_waits_new(struct weir_ask_waits **out, struct weir_asks *asks);
void weir_ask_waits_free(struct weir_ask_waits *waits);

/* True: nothing need be waited for. */
bool weir_ask_lease_is_sure(const struct weir_asks *asks);
/* Keeps a grant until its fate is known; grant->flight, if any, is landed then, and NULL now. */
void weir_ask_lease_wait(struct weir_ask_waits *waits, struct weir_ask_grant *grant);

/* The link's on_replicated(): ctx is the weir_asks. */
void weir_ask_replicated(void *ctx, uint64_t wait, bool is_replicated);

#endif
