/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/leaky_bucket.h"

#include "algo/gcra.h"

void weir_leaky_bucket_take(const struct weir_limit *limit, struct weir_tat *state, uint64_t now_ns,
                            uint64_t hits, struct weir_verdict *out)
{
    if (weir_limit_is_closed(limit, hits, out))
        return;
    struct weir_gcra g = weir_gcra_of(limit);
    weir_gcra_take(&g, state, now_ns, hits, out);
    if (out->allowed && hits > 0) {
        /* The last of its hits leaves one step before the next request may. */
        struct weir_span ahead = {.ns = state->ns - now_ns, .num = state->num};
        out->delay_ns = weir_span_ceil(weir_span_sub(ahead, g.step, g.den));
    }
}

uint64_t weir_leaky_bucket_mark(const struct weir_tat *state)
{
    return state->ns << 16 ^ state->num;
}

bool weir_leaky_bucket_release(const struct weir_limit *limit, struct weir_tat *state,
                               uint64_t now_ns, uint64_t hits, uint64_t mark)
{
    if (limit->requests == 0 || weir_leaky_bucket_mark(state) != mark)
        return false;
    struct weir_gcra g = weir_gcra_of(limit);
    /* Less than a step ahead: the request has left.  Its place is spent, and to free it would
     * let the next one leave too soon after it. */
    if (weir_span_less(weir_gcra_ahead(&g, state, now_ns), g.step))
        return false;
    weir_gcra_give(&g, state, now_ns, hits);
    return true;
}
