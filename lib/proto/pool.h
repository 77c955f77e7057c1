/* pool.h - small blocks that are taken and given back all the time, kept for the next taker.
 *
 *     [class, 16 bytes | what the caller sees: 48, 112, 176 ... 496 bytes]
 *
 * nghttp2 takes some ten blocks for a request and gives them back when its stream ends.  With a
 * hundred streams in a turn, malloc's own cache (7 blocks of a size) is of no use, and a twentieth
 * of the server's instructions went into it.  Here a block goes onto the list of its class and is
 * found there; no more than WEIR_POOL_KEPT_MAX bytes are kept, and larger blocks are malloc's.
 *
 * Under AddressSanitizer nothing is kept, so that it sees what is used after it was given back.
 *
 * Purity: no clock, no I/O.  Threads: one at a time; a worker has one, for all its connections.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PROTO_POOL_H
#define WEIR_PROTO_POOL_H

#include <stddef.h>

#define WEIR_POOL_CLASSES 8           /* of 64, 128 ... 512 bytes, of which 16 are the pool's */
#define WEIR_POOL_KEPT_MAX (2u << 20) /* bytes */

struct weir_pool_block;

/* All zero: empty. */
struct weir_pool {
    struct weir_pool_block *free[WEIR_POOL_CLASSES];
    size_t kept;
};

void weir_pool_fini(struct weir_pool *pool); /* what is still out must not come back then */

/* As malloc, calloc, realloc and free; aligned to 16 bytes. */
void *weir_pool_alloc(struct weir_pool *pool, size_t len);
void *weir_pool_zeroed(struct weir_pool *pool, size_t count, size_t len);
void *weir_pool_resize(struct weir_pool *pool, void *ptr, size_t len);
void weir_pool_free(struct weir_pool *pool, void *ptr);

#endif
