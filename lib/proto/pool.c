/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/pool.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define STEP 64
#define LARGE WEIR_POOL_CLASSES /* the class of what is malloc's */

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define IS_SANITIZED 1
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif

struct weir_pool_block {
    size_t class;
    size_t len;                                /* of a large one: what was asked for */
    _Alignas(16) struct weir_pool_block *next; /* while it is kept; else the caller's first bytes */
};

#define HEAD offsetof(struct weir_pool_block, next)

static struct weir_pool_block *block_of(void *ptr)
{
    return (struct weir_pool_block *)(void *)((char *)ptr - HEAD);
}

static void *bytes_of(struct weir_pool_block *block)
{
    return (char *)block + HEAD;
}

static size_t class_of(size_t len)
{
    if (IS_SANITIZED || len > STEP * WEIR_POOL_CLASSES - HEAD)
        return LARGE;
    return (len + HEAD - 1) / STEP;
}

void *weir_pool_alloc(struct weir_pool *pool, size_t len)
{
    size_t class = class_of(len);
    struct weir_pool_block *block;
    if (class < LARGE && pool->free[class]) {
        block = pool->free[class];
        pool->free[class] = block->next;
        pool->kept -= (class + 1) * STEP;
        return bytes_of(block);
    }
    if (len > SIZE_MAX - sizeof(*block))
        return NULL;
    block = malloc(class < LARGE ? (class + 1) * STEP : len + sizeof(*block));
    if (!block)
        return NULL;
    block->class = class;
    block->len = len;
    return bytes_of(block);
}

void *weir_pool_zeroed(struct weir_pool *pool, size_t count, size_t len)
{
    size_t all;
    if (__builtin_mul_overflow(count, len, &all))
        return NULL;
    void *ptr = weir_pool_alloc(pool, all);
    return ptr ? memset(ptr, 0, all) : NULL;
}

void weir_pool_free(struct weir_pool *pool, void *ptr)
{
    if (!ptr)
        return;
    struct weir_pool_block *block = block_of(ptr);
    size_t len = (block->class + 1) * STEP;
    if (block->class == LARGE || pool->kept + len > WEIR_POOL_KEPT_MAX) {
        free(block);
        return;
    }
    block->next = pool->free[block->class];
    pool->free[block->class] = block;
    pool->kept += len;
}

void *weir_pool_resize(struct weir_pool *pool, void *ptr, size_t len)
{
    if (!ptr)
        return weir_pool_alloc(pool, len);
    struct weir_pool_block *block = block_of(ptr);
    size_t room = block->class == LARGE ? block->len : (block->class + 1) * STEP - HEAD;
    if (len <= room)
        return ptr;
    void *larger = weir_pool_alloc(pool, len);
    if (!larger)
        return NULL;
    memcpy(larger, ptr, room);
    weir_pool_free(pool, ptr);
    return larger;
}

void weir_pool_fini(struct weir_pool *pool)
{
    for (size_t class = 0; class < WEIR_POOL_CLASSES; class ++) {
        while (pool->free[class]) {
            struct weir_pool_block *block = pool->free[class];
            pool->free[class] = block->next;
            free(block);
        }
    }
    pool->kept = 0;
}
