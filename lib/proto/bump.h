/* bump.h - memory for one turn: a pointer that moves through the caller's block.
 *
 * Nothing is freed alone; moving the pointer back frees all that came later.  What does not fit is
 * NULL and remembered, and the caller tries again with a larger block, or refuses.
 *
 * Purity: no I/O, no allocation.  Threads: one at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PROTO_BUMP_H
#define WEIR_PROTO_BUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weir_bump {
    uint8_t *next, *end;
    bool has_failed;
};

/* block: aligned to 16 bytes; or NULL, of no length. */
static inline void weir_bump_init(struct weir_bump *bump, uint8_t *block, size_t len)
{
    *bump = (struct weir_bump){.next = block, .end = block ? block + len : NULL};
}

static inline void *weir_bump_alloc(struct weir_bump *bump, size_t len)
{
    uint8_t *got = bump->next;
    if (len > (size_t)(bump->end - got)) {
        bump->has_failed = true;
        return NULL;
    }
    len = (len + 15) & ~(size_t)15;
    bump->next = len > (size_t)(bump->end - got) ? bump->end : got + len;
    return got;
}

#define WEIR_BUMP_ARRAY(bump, count, type)                                                         \
    ((type *)weir_bump_alloc((bump), (size_t)(count) * sizeof(type)))

#endif
