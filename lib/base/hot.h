/* hot.h - marks the functions that every decision runs, and its way through them.
 *
 * Those are laid side by side in a program, whichever files they come from.  A decision is a small
 * part of what a request costs its process: by its turn, the caches have seen a kernel and an nginx
 * since.  So it counts how much memory there is to fetch, and of the code it is then 3 to 5
 * pages and not 17.  Each begins a cache line: one that began within it would end in another.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_HOT_H
#define WEIR_BASE_HOT_H

#include <stdlib.h>
#include <string.h>

#define WEIR_LINE 64 /* bytes of a cache line */
#define WEIR_HOT __attribute__((hot, aligned(WEIR_LINE)))

/* Which way most decisions go.  What they pass is then one straight line of code: a jump that was
 * not met for a while is found out about late, and there are dozens. */
#define WEIR_MOSTLY(condition) __builtin_expect(!!(condition), 1)
#define WEIR_SELDOM(condition) __builtin_expect(!!(condition), 0)

/* Zeroed memory that begins a line; for free().  NULL: there is none. */
static inline void *weir_line_alloc(size_t len)
{
    len += WEIR_LINE - 1 - (len - 1) % WEIR_LINE; /* whole lines */
    void *at = aligned_alloc(WEIR_LINE, len);
    return at ? memset(at, 0, len) : NULL;
}

#endif
