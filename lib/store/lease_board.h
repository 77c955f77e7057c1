/* lease_board.h - what the store said last of each key, for whoever is told something by a lease.
 *
 * A lease's tokens lie in the table, and any worker spends them.  What the store has left beside
 * them must be known to all workers, too: else each would tell what it heard itself, and a client
 * that meets several would see more left after a request than before.
 *
 * A table of fixed size where a key has one place: of two that share it, the last is known.
 *
 * Purity: no clock, no I/O; memory is taken when it is made.  Threads: any number at once.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_LEASE_BOARD_H
#define WEIR_STORE_LEASE_BOARD_H

#include "store/lease.h"

struct weir_lease_word {
    uint64_t left;     /* besides what was leased */
    uint64_t reset_ns; /* when it is as if unused, by the clock of leases */
    uint64_t mark;     /* what tokens that it granted last are given back by; 0: none is known */
};

struct weir_lease_board; /* opaque */

/* 0, or WEIR_ERR_NOMEM.  count: a power of 2. */
WEIR_MUST_CHECK int weir_lease_board_new(struct weir_lease_board **out, uint32_t count);
void weir_lease_board_free(struct weir_lease_board *board);

/* Without a mark, the last one stays. */
void weir_lease_board_write(struct weir_lease_board *board, uint64_t key,
                            struct weir_lease_word said);
/* False: nothing is known of it. */
bool weir_lease_board_read(const struct weir_lease_board *board, uint64_t key,
                           struct weir_lease_word *out);

/* What is said of a lease that has decided.  What is left was true when the store was last asked
 * from here; others may have asked since.  now_ns: by the clock of leases. */
struct weir_verdict weir_lease_board_verdict(const struct weir_lease_board *board, uint64_t key,
                                             const struct weir_limit *limit, uint64_t hits,
                                             const struct weir_lease_taken *taken, uint64_t now_ns);

#endif
