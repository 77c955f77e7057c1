/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/lease.h"

/* Of a bucket's span: what a lease holds back from being refilled, where the bucket was full. */
#define BUCKET_PART 8

/* And of that, where the bucket is full. */
#define FULL_PART 8

/* Of a log's window, and so of what may pass, if all is leased: see LEAD_US in sliding_log.lua. */
#define LOG_PART 250

/* The time that is counted as one: a window, a sub-window or a tick. */
static uint64_t part_ns(const struct weir_limit *limit)
{
    bool is_parted = limit->algorithm == WEIR_SLIDING_WINDOW_COUNTER && limit->buckets > 1;
    return is_parted ? limit->window_ns / limit->buckets : limit->window_ns;
}

bool weir_lease_is_dated(const struct weir_limit *limit)
{
    return weir_limit_drips(limit) || limit->algorithm == WEIR_SLIDING_WINDOW_LOG;
}

uint32_t weir_lease_ttl_ns(const struct weir_limit *limit)
{
    uint64_t most = weir_limit_drips(limit) ? limit->cap_ns / BUCKET_PART : part_ns(limit);
    if (limit->algorithm == WEIR_SLIDING_WINDOW_LOG)
        most = limit->window_ns / LOG_PART;
    return (uint32_t)weir_min(most, WEIR_LEASE_TTL_MAX_NS);
}

bool weir_lease_suits(const struct weir_limit *limit)
{
    if (limit->requests == 0 || limit->approx != NULL || limit->is_host_scope)
        return false;
    switch ((enum weir_algorithm)limit->algorithm) {
    case WEIR_FIXED_WINDOW: /* once it refuses it does so until its end, whatever is counted */
        break;
    case WEIR_SLIDING_WINDOW_COUNTER:
    case WEIR_SLIDING_WINDOW_LOG:
        if (limit->count_rejected)
            return false;
        break;
    case WEIR_TOKEN_BUCKET:
        break;
    case WEIR_LEAKY_BUCKET:
    case WEIR_CONCURRENCY:
        return false;
    }
    return weir_lease_ttl_ns(limit) >= WEIR_LEASE_TTL_MIN_NS;
}

uint64_t weir_lease_lasts_ns(const struct weir_limit *limit, uint32_t ttl_ns, uint64_t now_ns)
{
    uint64_t part = part_ns(limit);
    weir_is_positive(part);
    if (limit->algorithm == WEIR_SLIDING_WINDOW_LOG)
        return ttl_ns;
    return weir_min(ttl_ns, part - now_ns % part);
}

/* floor(span / step) */
static uint64_t steps_in(struct weir_span span, const struct weir_gcra *g)
{
    weir_u128 dens = (weir_u128)span.ns * g->den + span.num;
    weir_u128 each = (weir_u128)g->step.ns * g->den + g->step.num;
    return (uint64_t)(dens / each);
}

uint32_t weir_lease_from_bucket(const struct weir_limit *limit, const struct weir_lease_wish *wish,
                                struct weir_tat *state, uint64_t now_ns, uint64_t *lasts_ns)
{
    struct weir_gcra g = weir_gcra_of(limit);
    struct weir_span ahead = weir_gcra_ahead(&g, state, now_ns);
    uint64_t left = steps_in(weir_span_sub(g.cap, ahead, g.den), &g);
    uint32_t tokens = weir_lease_size(wish, left);
    if (tokens == 0)
        return 0;
    uint64_t least_ns = weir_max(wish->ttl_ns / FULL_PART, WEIR_LEASE_BUCKET_MIN_NS);
    *lasts_ns = weir_min(wish->ttl_ns, weir_max(ahead.ns, least_ns));
    if (ahead.ns < *lasts_ns)
        ahead = (struct weir_span){.ns = *lasts_ns};
    ahead = weir_span_add(ahead, weir_span_times(g.step, tokens, g.den), g.den);
    *state = weir_gcra_tat(ahead, now_ns);
    return tokens;
}
