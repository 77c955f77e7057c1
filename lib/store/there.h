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

/* ---- the same hits again ----
 *
 * What a limit allows, in time: so there is no division before it is decided.  Only for whole
 * steps, and for hits that take something and can ever pass. */
struct weir_toll {
    uint64_t cost_ns; /* of the hits */
    uint64_t room_ns; /* they pass if no more than that is in use */
};

static inline bool weir_toll_note(struct weir_toll *toll, const struct weir_limit *limit,
                                  uint64_t hits)
{
    toll->cost_ns = weir_sat_mul(hits, limit->step_ns);
    toll->room_ns = weir_sat_sub(limit->cap_ns, toll->cost_ns);
    return weir_there_is_whole(limit) && hits > 0 && toll->cost_ns <= limit->cap_ns;
}

enum weir_pass { WEIR_PASS_GONE, WEIR_PASS_REFUSED, WEIR_PASS_TAKEN };

/* As weir_there_take(), and says what was in use before; only of what was taken it is right.  A
 * state that a clock has left behind which went back since is further ahead than there is room for,
 * and refused: who decides it anew cuts it (gcra.h). */
static inline enum weir_pass weir_there_pass(const struct weir_toll *toll, uint64_t mark,
                                             uint64_t now_ns, union weir_u16b *slot,
                                             uint64_t *ahead_ns)
{
    union weir_u16b value = weir_peek16(slot);
    if (WEIR_SELDOM(value.hi != mark))
        return WEIR_PASS_GONE;
    uint64_t from_ns = value.lo > now_ns ? value.lo : now_ns;
    *ahead_ns = from_ns - now_ns;
    if (WEIR_SELDOM(*ahead_ns > toll->room_ns))
        return WEIR_PASS_REFUSED;
    union weir_u16b next = {.lo = weir_sat_add(from_ns, toll->cost_ns), .hi = value.hi};
    return WEIR_MOSTLY(weir_cas16(slot, value, next)) ? WEIR_PASS_TAKEN : WEIR_PASS_GONE;
}

#endif
