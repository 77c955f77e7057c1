/* op.h - what can be done to a counter, wherever it is kept.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_OP_H
#define WEIR_STORE_OP_H

/* The numbers are also those of the scripts in Redis (store/redis/lua/clock.lua). */
enum weir_op {
    WEIR_OP_TAKE = 0,
    WEIR_OP_LOOK = 1,
    WEIR_OP_GIVE = 2,
    WEIR_OP_RELEASE = 3, /* of a mark */
    WEIR_OP_RENEW = 4,   /* of a mark */
    WEIR_OP_LEASE = 5,   /* a take, and tokens beyond it (algo/lease.h); in Redis only */
    WEIR_OP_ADD = 6,     /* whatever the limit says: hits that were admitted elsewhere; in Redis
                          * only to a sliding_window_counter, in the window of a mark */
};

#endif
