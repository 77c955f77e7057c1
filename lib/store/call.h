/* call.h - one operation on one key, as the parts of the local store hand it to each other.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_CALL_H
#define WEIR_STORE_CALL_H

#include "algo/limit.h"
#include "base/hot.h"
#include "store/op.h"
#include "table/slots.h"

struct weir_call {
    struct weir_table *table;
    const struct weir_limit *limit;
    uint64_t key;
    uint64_t now_ns;
    uint64_t hits;
    enum weir_op op;
    struct weir_verdict *out;
    uint64_t mark;     /* in: what to release or renew */
    uint64_t new_mark; /* out: what was taken, or renewed */
    bool did;          /* release, renew: there was something; give: there may be; add: always */
};

/* Starts a call; the rest is zero. */
static inline struct weir_call weir_call_of(struct weir_table *table,
                                            const struct weir_limit *limit, uint64_t key,
                                            uint64_t now_ns, uint64_t hits, enum weir_op op,
                                            struct weir_verdict *out)
{
    return (struct weir_call){.table = table,
                              .limit = limit,
                              .key = key,
                              .now_ns = now_ns,
                              .hits = hits,
                              .op = op,
                              .out = out};
}

/* Whether the answer must leave a trace where the key has none yet.  In a replay every answer
 * does: should the clock go back, that it was asked counts. */
static inline bool weir_call_leaves_trace(const struct weir_call *call)
{
    if (call->op != WEIR_OP_TAKE)
        return call->did;
    if (WEIR_SELDOM(call->table->remembers_all))
        return true;
    return call->hits > 0 && (call->out->allowed || call->limit->count_rejected);
}

/* States too large for a slot (store/wide_state.c).  slot is NULL where the key has none.  True:
 * done; false: something has changed, find again. */
bool weir_wide_apply(struct weir_call *call, const struct weir_home *home, union weir_u16b *slot,
                     union weir_u16b value);

static inline bool weir_limit_is_wide(const struct weir_limit *limit)
{
    if (limit->algorithm == WEIR_SLIDING_WINDOW_LOG)
        return true;
    return limit->algorithm == WEIR_SLIDING_WINDOW_COUNTER &&
           (limit->buckets > 1 || limit->requests > WEIR_SLIDE_INLINE_MAX ||
            limit->count_rejected); /* refused hits are not bounded by L */
}

#endif
