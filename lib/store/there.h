/* there.h - takes from a token bucket where it was met last, if it is still there: the inside of
 * weir_local_take_there(), for who comes to one bucket again and again.
 *
 * Threads, time, allocation: as in local.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_THERE_H
#define WEIR_STORE_THERE_H

#include "algo/token_bucket.h"
#include "base/hot.h"
#include "table/slots.h"

/* The slot's next value instead of this one.  False: somebody else has changed it. */
static inline bool weir_slot_put(union weir_u16b *slot, union weir_u16b value, union weir_u16b next)
{
    /* Nothing to write, so nothing has compared the two halves that were read: do it now. */
    if (WEIR_SELDOM(weir_eq16(next, value)))
        return weir_eq16(weir_peek16(slot), value);
    return weir_cas16(slot, value, next);
}

/* Whether a limit's buckets can be taken from in the way below: a step is whole nanoseconds. */
static inline bool weir_there_is_whole(const struct weir_limit *limit)
{
    return limit->step_den == 1 && limit->requests > 0;
}

/* What the upper half of such a bucket's slot is: the key's, and at the rate of a limit of this
 * generation. */
static inline uint64_t weir_there_mark(uint8_t generation, uint64_t key)
{
    return weir_slot_pack_tat(weir_key_fp(key), generation, 0, 0).hi;
}

/* Few registers, and half of the slot stays as it is.  The limit's first line is all that is read
 * of it.  False: it is not there any more, or somebody else was faster, and nothing was done. */
static inline bool weir_there_take(const struct weir_limit *limit, uint64_t mark, uint64_t now_ns,
                                   uint64_t hits, struct weir_verdict *out, union weir_u16b *slot)
{
    union weir_u16b value = weir_peek16(slot);
    if (WEIR_SELDOM(value.hi != mark))
        return false;
    struct weir_gcra g = weir_gcra_of_tokens(limit);
    struct weir_tat state = {.ns = value.lo};
    weir_gcra_take_whole(&g, &state, now_ns, hits, out);
    return weir_slot_put(slot, value, (union weir_u16b){.lo = state.ns, .hi = value.hi});
}

#endif
