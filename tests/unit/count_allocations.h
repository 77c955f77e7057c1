/* count_allocations.h - how often this program has asked for memory.
 *
 * Its own malloc counts, and asks libc.  A sanitizer brings its own malloc and its own memory: then
 * nothing is counted, and IS_COUNTED says so.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_COUNT_ALLOCATIONS_H
#define WEIR_TESTS_COUNT_ALLOCATIONS_H

#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_COUNTED 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_COUNTED 0
#endif
#endif
#ifndef IS_COUNTED
#define IS_COUNTED 1
#endif

static unsigned long allocations;

#if IS_COUNTED
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *at, size_t size);
void *malloc(size_t size)
{
    allocations++;
    return __libc_malloc(size);
}
void *calloc(size_t count, size_t size)
{
    allocations++;
    return __libc_calloc(count, size);
}
void *realloc(void *at, size_t size)
{
    allocations++;
    return __libc_realloc(at, size);
}
#endif

#endif
