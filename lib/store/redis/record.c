/* record.c - from a counter to the bytes that the script reads (store/redis/counter.h).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/gcra.h"
#include "base/err.h"
#include "store/redis/counter.h"

#include <string.h>

/* More than any counter holds, and few enough for Lua to add up: hits are cut to this. */
#define HITS_MAX (UINT64_C(1) << 43)

enum weir_redis_kind weir_redis_kind_of(const struct weir_limit *limit)
{
    if (limit->requests == 0)
        return WEIR_REDIS_CLOSED;
    switch ((enum weir_algorithm)limit->algorithm) {
    case WEIR_FIXED_WINDOW:
        return WEIR_REDIS_WINDOW;
    case WEIR_SLIDING_WINDOW_COUNTER:
        return limit->buckets > 1 ? WEIR_REDIS_SUB : WEIR_REDIS_SLIDE;
    case WEIR_SLIDING_WINDOW_LOG:
        return WEIR_REDIS_LOG;
    case WEIR_TOKEN_BUCKET:
        return limit->refill_interval ? WEIR_REDIS_TICK : WEIR_REDIS_BUCKET;
    case WEIR_LEAKY_BUCKET:
        return WEIR_REDIS_BUCKET;
    case WEIR_CONCURRENCY:
        return WEIR_REDIS_LEASES;
    }
    weir_panic("the limit has an algorithm", __FILE__, __LINE__);
}

static uint8_t *put_span(uint8_t *at, struct weir_span span)
{
    at = weir_redis_put(at, span.ns / WEIR_NS_PER_S, 5);
    at = weir_redis_put(at, span.ns % WEIR_NS_PER_S, 4);
    return weir_redis_put(at, span.num, 4);
}

/* What the hits are worth in time.  More than there are places is one more than that: enough to be
 * refused, and no more than fits. */
static struct weir_span cost_of(const struct weir_redis_counter *c, const struct weir_gcra *g)
{
    bool is_taken = c->op == WEIR_OP_TAKE || c->op == WEIR_OP_LOOK || c->op == WEIR_OP_LEASE;
    uint64_t most = is_taken ? g->places + 1 : g->places;
    return weir_span_times(g->step, weir_min(weir_redis_hits_of(c), most), g->den);
}

static uint8_t *put_bucket(uint8_t *at, const struct weir_redis_counter *c)
{
    struct weir_gcra g = weir_gcra_of(c->limit);
    at = weir_redis_put(at, g.den, 4);
    at = weir_redis_put(at, c->limit->requests, 4);
    at = put_span(at, g.cap);
    at = put_span(at, cost_of(c, &g));
    if (c->op == WEIR_OP_RELEASE) {
        at = weir_redis_put(at, c->mark >> 16, 6);
        at = weir_redis_put(at, c->mark, 2);
        return put_span(at, g.step);
    }
    if (c->is_rescaled) {
        memcpy(at, &c->rescale, sizeof(c->rescale));
        at += sizeof(c->rescale);
    }
    return at;
}

static uint8_t *put_wish(uint8_t *at, const struct weir_redis_counter *c)
{
    WEIR_ASSERT(c->wish.shares > 0 && c->wish.tokens <= WEIR_LEASE_TOKENS_MAX);
    at = weir_redis_put(at, c->wish.tokens, 4);
    at = weir_redis_put(at, c->wish.sure, 4);
    at = weir_redis_put(at, c->wish.shares, 4);
    at = weir_redis_put(at, c->wish.ttl_ns, 4);
    return put_span(at, weir_gcra_of(c->limit).step);
}

/* What was leased is given back to the window that the mark names; buckets have theirs already.
 * Hits are added to a window only where the one before counts, too. */
static bool names_window(const struct weir_redis_counter *c, enum weir_redis_kind kind)
{
    WEIR_ASSERT(c->op != WEIR_OP_ADD || kind == WEIR_REDIS_SLIDE);
    return c->op == WEIR_OP_ADD ||
           (c->op == WEIR_OP_RELEASE && (kind == WEIR_REDIS_WINDOW || kind == WEIR_REDIS_SLIDE ||
                                         kind == WEIR_REDIS_SUB || kind == WEIR_REDIS_TICK));
}

size_t weir_redis_record_write(const struct weir_redis_counter *c,
                               uint8_t out[static WEIR_REDIS_RECORD_MAX])
{
    const struct weir_limit *limit = c->limit;
    enum weir_redis_kind kind = weir_redis_kind_of(limit);
    uint8_t *at = out;
    at = weir_redis_put(at, kind, 1);
    at = weir_redis_put(at, c->op, 1);
    at = weir_redis_put(at, limit->count_rejected, 1);
    at = weir_redis_put(at, c->ends, 1);
    at = weir_redis_put(at, c->part, 1);
    at = weir_redis_put(at, weir_min(weir_redis_hits_of(c), HITS_MAX), 6);
    if (c->op == WEIR_OP_LEASE)
        at = put_wish(at, c);
    if (kind == WEIR_REDIS_BUCKET) {
        at = put_bucket(at, c);
    } else if (kind != WEIR_REDIS_CLOSED) {
        at = weir_redis_put(at, limit->requests, 4);
        at = weir_redis_put(at, limit->window_ns / WEIR_NS_PER_S, 4);
    }
    if (kind == WEIR_REDIS_SLIDE)
        at = weir_redis_put(at, limit->round_up, 1);
    if (kind == WEIR_REDIS_SUB)
        at = weir_redis_put(at, limit->buckets, 1);
    if (kind == WEIR_REDIS_TICK)
        at = weir_redis_put(at, limit->burst, 4);
    if (kind == WEIR_REDIS_LOG && c->op == WEIR_OP_RELEASE) {
        at = weir_redis_put(at, c->mark / 1000, 7);
        at = weir_redis_put(at, c->mark % 1000, 2);
    }
    if (kind == WEIR_REDIS_LEASES || names_window(c, kind))
        at = weir_redis_put(at, c->mark, 6);
    return (size_t)(at - out);
}
