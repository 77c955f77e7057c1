/* arena.h - memory that belongs to one lifetime and is given back in one piece.
 *
 * A set of rules lives and dies whole, so nothing in it is freed alone: allocation is adding to a
 * pointer, and there is no header beside each of a hundred thousand small objects.  Chunks come
 * from mmap and go back with munmap: a heap would keep the draft's memory after the draft is gone.
 *
 *     chunk -> chunk -> chunk        each twice the last, up to ARENA_CHUNK_MAX
 *     [header | used | next .. end]
 *
 * A failed allocation is remembered (has_failed), so that a long parse checks once, at its end.
 * Under AddressSanitizer a poisoned gap follows every allocation.
 *
 * Purity: no clock, no I/O.  Threads: one at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_ARENA_H
#define WEIR_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <weir/types.h>

struct weir_arena_chunk;

struct weir_arena {
    struct weir_arena_chunk *chunks; /* newest first */
    char *next, *end;                /* what is free in the newest */
    size_t bytes;                    /* mapped, all chunks together */
    bool has_failed;
};

void weir_arena_init(struct weir_arena *arena);
void weir_arena_fini(struct weir_arena *arena); /* also after init only, and twice */

/* Zeroed memory, or NULL.  align is a power of two, at most 64. */
void *weir_arena_alloc(struct weir_arena *arena, size_t bytes, size_t align);
/* count objects of size bytes each; a product that overflows fails. */
void *weir_arena_array(struct weir_arena *arena, size_t count, size_t size, size_t align);
/* A copy; on failure an empty string. */
struct weir_str weir_arena_str(struct weir_arena *arena, struct weir_str str);

#define WEIR_ARENA_NEW(arena, type)                                                                \
    ((type *)weir_arena_alloc((arena), sizeof(type), _Alignof(type)))
#define WEIR_ARENA_ARRAY(arena, count, type)                                                       \
    ((type *)weir_arena_array((arena), (count), sizeof(type), _Alignof(type)))

#endif
