/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include "base/err.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA_CHUNK_MIN ((size_t)64 << 10)
#define ARENA_CHUNK_MAX ((size_t)4 << 20)
#define ARENA_ALIGN_MAX ((size_t)64) /* a cache line */

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_POISONS 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define ARENA_POISONS 1
#endif
#ifdef ARENA_POISONS
#include <sanitizer/asan_interface.h>
#define ARENA_GAP ((size_t)16)
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ARENA_GAP ((size_t)0)
#endif

struct weir_arena_chunk {
    struct weir_arena_chunk *older;
    size_t bytes; /* of the whole mapping */
};

void weir_arena_init(struct weir_arena *arena)
{
    *arena = (struct weir_arena){0};
}

void weir_arena_fini(struct weir_arena *arena)
{
    struct weir_arena_chunk *chunk = arena->chunks;
    while (chunk) {
        struct weir_arena_chunk *older = chunk->older;
        ASAN_UNPOISON_MEMORY_REGION(chunk, chunk->bytes);
        munmap(chunk, chunk->bytes);
        chunk = older;
    }
    weir_arena_init(arena);
}

/* Twice as much each time: few mappings for large sets, little waste for small ones. */
static bool add_chunk(struct weir_arena *arena, size_t need)
{
    size_t bytes = arena->chunks ? arena->chunks->bytes * 2 : ARENA_CHUNK_MIN;
    if (bytes > ARENA_CHUNK_MAX)
        bytes = ARENA_CHUNK_MAX;
    size_t page = (size_t)4096;
    size_t least = need + sizeof(struct weir_arena_chunk) + ARENA_ALIGN_MAX;
    if (least < need || least > SIZE_MAX - page)
        return false;
    if (bytes < least)
        bytes = (least + page - 1) & ~(page - 1);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return false;
    /* A large array that is read here and there: with huge pages the processor knows where all of
     * it lies.  Advice only; where it is not taken, nothing is lost but time. */
    if (bytes > ARENA_CHUNK_MAX)
        (void)madvise(at, bytes, MADV_HUGEPAGE);
    struct weir_arena_chunk *chunk = at;
    chunk->older = arena->chunks;
    chunk->bytes = bytes;
    arena->chunks = chunk;
    arena->bytes += bytes;
    arena->next = (char *)(chunk + 1);
    arena->end = (char *)chunk + bytes;
    ASAN_POISON_MEMORY_REGION(arena->next, (size_t)(arena->end - arena->next));
    return true;
}

static char *align_up(char *at, size_t align)
{
    return at + ((0 - (uintptr_t)at) & (align - 1));
}

void *weir_arena_alloc(struct weir_arena *arena, size_t bytes, size_t align)
{
    WEIR_ASSERT(align > 0 && align <= ARENA_ALIGN_MAX && (align & (align - 1)) == 0);
    size_t need = bytes + ARENA_GAP;
    if (need < bytes)
        goto fail;
    size_t left = (size_t)(arena->end - arena->next);
    if (left < align || left - align < need) {
        if (!add_chunk(arena, need))
            goto fail;
    }
    char *at = align_up(arena->next, align);
    ASAN_UNPOISON_MEMORY_REGION(at, bytes);
    arena->next = at + need;
    return at;
fail:
    arena->has_failed = true;
    return NULL;
}

void *weir_arena_array(struct weir_arena *arena, size_t count, size_t size, size_t align)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        arena->has_failed = true;
        return NULL;
    }
    return weir_arena_alloc(arena, bytes, align);
}

struct weir_str weir_arena_str(struct weir_arena *arena, struct weir_str str)
{
    if (str.len == 0)
        return (struct weir_str){.ptr = "", .len = 0};
    char *copy = weir_arena_alloc(arena, str.len, 1);
    if (!copy)
        return (struct weir_str){.ptr = "", .len = 0};
    memcpy(copy, str.ptr, str.len);
    return (struct weir_str){.ptr = copy, .len = str.len};
}
