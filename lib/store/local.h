/* local.h - applies a limit to a key's state in the shared-memory table, atomically.
 *
 * The store finds the slot, lets the algorithm compute, and swaps the result in; where another
 * process was faster it computes again.  It knows nothing of rules, requests or protocols: a key
 * is a 64-bit hash, a limit is a struct weir_limit.
 *
 * Threads: any number, in any number of processes, on one table.
 * Time: an argument.  Allocation: none.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_LOCAL_H
#define WEIR_STORE_LOCAL_H

#include "algo/limit.h"

struct weir_table;
union weir_u16b;

/* Before rules are published: registers the limit's window length and rate in the table, so that
 * generation, window_class, record and approx are set.  0, or WEIR_ERR_FULL where the table knows
 * WEIR_WINDOWS_MAX window lengths already or has no room for an approximate limit's sketch. */
WEIR_MUST_CHECK int weir_local_bind(struct weir_table *table, struct weir_limit *limit);

/* Binds a limit that a key has of its own for a while; generation: of that (layout.h).  The limit
 * is a copy of a bound one with another number.  The same errors. */
WEIR_MUST_CHECK int weir_local_bind_own(struct weir_table *table, struct weir_limit *limit,
                                        uint32_t generation);

/* Brings the key's memory near.  For batches: prefetch all, then decide each. */
void weir_local_prefetch(const struct weir_table *table, uint64_t key);

/* The same of the two lines where the key is likeliest to be: each is in a page of its own, and
 * finding that takes longest. */
void weir_local_prefetch_likely(const struct weir_table *table, uint64_t key);
/* Where the key is, for weir_local_take_there(); NULL: nowhere. */
union weir_u16b *weir_local_find(const struct weir_table *table, uint64_t key);

/* Decides and charges.  *mark receives what a ticket needs (concurrency, leaky bucket), else 0. */
void weir_local_take(struct weir_table *table, const struct weir_limit *limit, uint64_t key,
                     uint64_t now_ns, uint64_t hits, struct weir_verdict *out, uint64_t *mark);

/* The same for who comes to a key again and again.  *met: where it was met last, NULL at first;
 * there it is looked for before anywhere else. */
void weir_local_take_again(struct weir_table *table, const struct weir_limit *limit, uint64_t key,
                           uint64_t now_ns, uint64_t hits, struct weir_verdict *out, uint64_t *mark,
                           union weir_u16b **met);

/* The quickest way to that, for a bucket that drips (weir_limit_drips()) and was met in `slot`.
 * There is no mark.  False: it is not there any more, or another was faster; nothing was done. */
WEIR_MUST_CHECK bool weir_local_take_there(const struct weir_limit *limit, uint64_t key,
                                           uint64_t now_ns, uint64_t hits, struct weir_verdict *out,
                                           union weir_u16b *slot);

/* What take() would answer now; changes nothing.  With count_rejected off (all or nothing). */
void weir_local_look(struct weir_table *table, const struct weir_limit *limit, uint64_t key,
                     uint64_t now_ns, uint64_t hits, struct weir_verdict *out);

/* Counts hits that others have admitted, at at_ns, whatever the limit says: it may then be
 * exceeded, and buckets owe tokens.  What has passed its time makes no difference.  Not for
 * concurrency, whose slots have owners, nor for approximate limits. */
void weir_local_add(struct weir_table *table, const struct weir_limit *limit, uint64_t key,
                    uint64_t at_ns, uint64_t hits);

/* Gives hits back: floors at unused.  A leaky bucket's place cannot be told from later ones
 * without its mark, so here it keeps its count (see weir_local_release). */
void weir_local_give(struct weir_table *table, const struct weir_limit *limit, uint64_t key,
                     uint64_t now_ns, uint64_t hits, struct weir_verdict *out);

/* Gives back what take() marked: concurrency slots that have not expired, or the place in a
 * leaky bucket's queue if it is still the last.  Otherwise does nothing. */
void weir_local_release(struct weir_table *table, const struct weir_limit *limit, uint64_t key,
                        uint64_t now_ns, uint64_t hits, uint64_t mark);

/* Forgets what the key has used, with one swap; says whether there was anything.  Not what a full
 * table's sketch remembers of it, nor what approximate limits count: those cells are shared. */
bool weir_local_reset(struct weir_table *table, uint64_t key);

/* Moves a concurrency mark's deadline on.  0, or WEIR_ERR_NOT_FOUND. */
WEIR_MUST_CHECK int weir_local_renew(struct weir_table *table, const struct weir_limit *limit,
                                     uint64_t key, uint64_t now_ns, uint64_t hits, uint64_t *mark);

#endif
