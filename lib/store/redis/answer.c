/* answer.c - from what a counter held to what its caller is told (store/redis/counter.h).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/concurrency.h"
#include "algo/fixed_window.h"
#include "algo/gcra.h"
#include "algo/leaky_bucket.h"
#include "algo/lease.h"
#include "algo/sliding_counter.h"
#include "algo/sub_windows.h"
#include "base/maxima.h"
#include "store/redis/counter.h"

#include <string.h>

#define SLIDE_COUNT_MAX ((UINT64_C(1) << 40) - 1)

#define WINDOW_LEN 11u
#define SLIDE_LEN 17u
#define TICK_LEN 9u
#define LEASES_LEN 12u
#define LOG_LEN 22u
#define SUB_HEAD_LEN 6u
#define SUB_COUNT_LEN 4u

/* Who computes: the counter, with the limit as Redis's one clock wants it. */
struct asked {
    struct weir_redis_counter *counter;
    struct weir_limit limit;
    uint64_t now_ns;
    uint64_t hits;
    struct weir_str stored; /* ptr NULL: nothing */
    bool did;               /* release, renew */
    uint32_t granted;       /* lease */
};

/* Whether nothing is stored, or as much as there should be. */
static bool is_sound(const struct asked *a, size_t len)
{
    return a->stored.ptr == NULL || a->stored.len == len;
}

/* How many tokens are leased beside the hits, of a counter that says how many are left. */
static void lease(struct asked *a)
{
    struct weir_redis_counter *c = a->counter;
    if (c->op == WEIR_OP_LEASE && c->verdict.allowed)
        a->granted = weir_lease_size(&c->wish, c->verdict.remaining);
    if (a->granted > 0)
        c->lasts_ns = weir_lease_lasts_ns(&a->limit, c->wish.ttl_ns, a->now_ns);
}

/* What was leased in window `mark` is given back if that is what is stored, and still counts. */
static void release(struct asked *a, uint64_t stored_index, uint64_t index)
{
    uint64_t mark = a->counter->mark;
    a->did = a->counter->op == WEIR_OP_RELEASE && stored_index == mark && index == mark;
}

static uint64_t window_at(const struct asked *a, uint64_t stored_index)
{
    return weir_moment_at(a->limit.window_ns, stored_index, a->now_ns).index;
}

static bool answer_window(struct asked *a)
{
    struct weir_window state = {0};
    if (!is_sound(a, WINDOW_LEN))
        return false;
    if (a->stored.ptr != NULL)
        state = (struct weir_window){.index = weir_redis_get(a->stored.ptr, 5),
                                     .count = weir_redis_get(a->stored.ptr + 5, 6)};
    release(a, state.index, window_at(a, state.index));
    if (a->counter->op == WEIR_OP_GIVE)
        weir_fixed_window_give(&a->limit, &state, a->now_ns, a->hits, &a->counter->verdict);
    else
        weir_fixed_window_take(&a->limit, &state, a->now_ns, a->hits, &a->counter->verdict);
    lease(a);
    a->counter->new_mark = state.index;
    return true;
}

static bool answer_slide(struct asked *a)
{
    struct weir_slide state = {0};
    if (!is_sound(a, SLIDE_LEN))
        return false;
    if (a->stored.ptr != NULL)
        state = (struct weir_slide){.index = weir_redis_get(a->stored.ptr, 5),
                                    .previous = weir_redis_get(a->stored.ptr + 5, 6),
                                    .current = weir_redis_get(a->stored.ptr + 11, 6)};
    uint64_t index = window_at(a, state.index);
    release(a, state.index, index);
    if (a->counter->op == WEIR_OP_ADD)
        a->did = a->counter->mark == index || a->counter->mark + 1 == index;
    if (a->counter->op == WEIR_OP_GIVE)
        weir_sliding_counter_give(&a->limit, &state, a->now_ns, a->hits, &a->counter->verdict);
    else
        weir_sliding_counter_take(&a->limit, &state, SLIDE_COUNT_MAX, a->now_ns, a->hits,
                                  &a->counter->verdict);
    lease(a);
    a->counter->new_mark = state.index;
    return true;
}

static bool answer_tick(struct asked *a)
{
    struct weir_tick state = {0};
    if (!is_sound(a, TICK_LEN))
        return false;
    if (a->stored.ptr != NULL)
        state = (struct weir_tick){.tick = weir_redis_get(a->stored.ptr, 5),
                                   .used = weir_redis_get(a->stored.ptr + 5, 4)};
    release(a, state.tick, window_at(a, state.tick));
    if (a->counter->op == WEIR_OP_GIVE)
        weir_token_tick_give(&a->limit, &state, a->now_ns, a->hits, &a->counter->verdict);
    else
        weir_token_tick_take(&a->limit, &state, a->now_ns, a->hits, &a->counter->verdict);
    lease(a);
    a->counter->new_mark = state.tick;
    return true;
}

/* ---- buckets ---- */

static struct weir_tat read_tat(const char *at)
{
    return (struct weir_tat){
        .ns = weir_redis_get(at, 5) * WEIR_NS_PER_S + weir_redis_get(at + 5, 4),
        .num = (uint32_t)weir_redis_get(at + 9, 2),
    };
}

static uint32_t rate_of(const char *at)
{
    return (uint32_t)weir_redis_get(at + 11, 4);
}

static bool answer_bucket(struct asked *a)
{
    struct weir_redis_counter *c = a->counter;
    struct weir_tat state = {0};
    if (!is_sound(a, WEIR_REDIS_TAT_LEN))
        return false;
    /* At another rate only where all of it has come back: then it is unused. */
    if (a->stored.ptr != NULL && rate_of(a->stored.ptr) == a->limit.requests)
        state = read_tat(a->stored.ptr);
    if (c->op == WEIR_OP_RELEASE) {
        a->did = weir_leaky_bucket_release(&a->limit, &state, a->now_ns, a->hits, c->mark);
    } else if (a->limit.algorithm == WEIR_LEAKY_BUCKET) {
        weir_leaky_bucket_take(&a->limit, &state, a->now_ns, a->hits, &c->verdict);
        c->new_mark = weir_leaky_bucket_mark(&state);
    } else if (c->op == WEIR_OP_GIVE) {
        weir_token_bucket_give(&a->limit, &state, a->now_ns, a->hits, &c->verdict);
    } else {
        weir_token_bucket_take(&a->limit, &state, a->now_ns, a->hits, &c->verdict);
        if (c->op == WEIR_OP_LEASE && c->verdict.allowed)
            a->granted =
                weir_lease_from_bucket(&a->limit, &c->wish, &state, a->now_ns, &c->lasts_ns);
        c->new_mark = weir_leaky_bucket_mark(&state);
    }
    return true;
}

/* Nothing was decided, because the rate of a bucket has changed: if it was this one's, what is it
 * at the new rate? */
static bool rescale(struct asked *a)
{
    struct weir_redis_rescale *r = &a->counter->rescale;
    if (a->stored.ptr == NULL || weir_redis_kind_of(&a->limit) != WEIR_REDIS_BUCKET)
        return true;
    if (a->stored.len != WEIR_REDIS_TAT_LEN)
        return false;
    if (rate_of(a->stored.ptr) == a->limit.requests)
        return true;
    struct weir_tat state =
        weir_tat_rescale(read_tat(a->stored.ptr), a->now_ns, &a->limit, rate_of(a->stored.ptr));
    memcpy(r->from, a->stored.ptr, sizeof(r->from));
    uint8_t *at = weir_redis_put(r->to, state.ns / WEIR_NS_PER_S, 5);
    at = weir_redis_put(at, state.ns % WEIR_NS_PER_S, 4);
    at = weir_redis_put(at, state.num, 2);
    weir_redis_put(at, a->limit.requests, 4);
    a->counter->is_rescaled = true;
    return true;
}

/* ---- sub-windows ---- */

/* The running totals that lib/algo counts with, from the counts: what was opened when so many hits
 * had come. */
static bool read_sub(const struct asked *a, struct weir_sub *state,
                     uint64_t cells[static WEIR_BUCKETS_MAX + 1])
{
    for (uint32_t i = 0; i < weir_sub_cells(&a->limit); i++)
        cells[i] = UINT64_MAX; /* no sub-window has this number */
    if (a->stored.ptr == NULL)
        return true;
    if (a->stored.len < SUB_HEAD_LEN || (a->stored.len - SUB_HEAD_LEN) % SUB_COUNT_LEN != 0)
        return false;
    size_t count = (a->stored.len - SUB_HEAD_LEN) / SUB_COUNT_LEN;
    if (count > weir_sub_cells(&a->limit))
        return false;
    *state = (struct weir_sub){.index = weir_redis_get(a->stored.ptr, SUB_HEAD_LEN)};
    for (size_t age = count; age-- > 0 && age <= state->index;) {
        struct weir_sub opened = {.index = state->index - age, .base = state->total};
        cells[opened.index % weir_sub_cells(&a->limit)] = weir_sub_cell(&opened);
        state->base = state->total;
        state->total += (uint32_t)weir_redis_get(a->stored.ptr + SUB_HEAD_LEN + age * SUB_COUNT_LEN,
                                                 SUB_COUNT_LEN);
    }
    if (count == 0)
        state->base = state->total;
    return true;
}

static bool answer_sub(struct asked *a)
{
    struct weir_sub state = {0};
    uint64_t cells[WEIR_BUCKETS_MAX + 1];
    if (!read_sub(a, &state, cells))
        return false;
    uint64_t now = a->now_ns / (a->limit.window_ns / a->limit.buckets);
    release(a, state.index, weir_max(state.index, now));
    if (a->counter->op == WEIR_OP_GIVE)
        weir_sub_windows_give(&a->limit, &state, cells, a->now_ns, a->hits, &a->counter->verdict);
    else
        weir_sub_windows_take(&a->limit, &state, cells, a->now_ns, a->hits, &a->counter->verdict);
    lease(a);
    a->counter->new_mark = weir_max(state.index, now);
    return true;
}

/* ---- concurrency ---- */

static bool answer_leases(struct asked *a)
{
    struct weir_redis_counter *c = a->counter;
    struct weir_leases state = {0};
    if (!is_sound(a, LEASES_LEN))
        return false;
    if (a->stored.ptr != NULL)
        state = (struct weir_leases){.deadline = weir_redis_get(a->stored.ptr, 6),
                                     .held = {(uint32_t)weir_redis_get(a->stored.ptr + 6, 2),
                                              (uint32_t)weir_redis_get(a->stored.ptr + 8, 2),
                                              (uint32_t)weir_redis_get(a->stored.ptr + 10, 2)}};
    switch (c->op) {
    case WEIR_OP_TAKE:
    case WEIR_OP_LEASE: /* never asked of it */
    case WEIR_OP_LOOK:
        weir_concurrency_take(&a->limit, &state, a->now_ns, a->hits, &c->verdict, &c->new_mark);
        break;
    case WEIR_OP_GIVE:
        weir_concurrency_give(&a->limit, &state, a->now_ns, a->hits, &c->verdict);
        break;
    case WEIR_OP_RELEASE:
        a->did = weir_concurrency_release(&a->limit, &state, a->now_ns, a->hits, c->mark);
        break;
    case WEIR_OP_RENEW:
        c->new_mark = c->mark;
        a->did = weir_concurrency_renew(&a->limit, &state, a->now_ns, a->hits, &c->new_mark);
        break;
    case WEIR_OP_ADD: /* nor this */
        break;
    }
    return true;
}

/* ---- the log ---- */

/* The script does not send the log: how many live entries it held, the time of the newest after
 * the call, and that of the one for which a refusal must wait. */
static bool answer_log(struct asked *a)
{
    const struct weir_limit *limit = &a->limit;
    if (a->stored.ptr == NULL || a->stored.len != LOG_LEN)
        return false;
    const char *at = a->stored.ptr;
    uint64_t held = weir_redis_get(at, 4);
    uint64_t last_ns = weir_redis_get(at + 4, 7) * 1000 + weir_redis_get(at + 11, 2);
    uint64_t gone_ns = weir_redis_get(at + 13, 7) * 1000 + weir_redis_get(at + 20, 2);
    struct weir_verdict v = {.limit = limit->requests, .before = held, .allowed = true};
    uint64_t after = held;
    if (a->counter->op == WEIR_OP_RELEASE) { /* how many were there */
        a->did = held > 0;
        return true;
    }
    if (a->counter->op == WEIR_OP_GIVE) {
        after = weir_sat_sub(held, a->hits);
    } else {
        v.allowed = weir_sat_add(held, a->hits) <= limit->requests;
        if (a->hits > 0 && (v.allowed || limit->count_rejected)) {
            after = weir_min(held + weir_min(a->hits, limit->requests), limit->requests);
            last_ns = weir_max(last_ns, a->now_ns); /* also if it was only looked at */
        }
    }
    v.remaining = weir_sat_sub(limit->requests, after);
    if (!v.allowed)
        v.retry_after_ns =
            a->hits > limit->requests ? WEIR_NEVER : gone_ns + limit->window_ns + 1 - a->now_ns;
    a->counter->verdict = v;
    lease(a);
    if (after + a->granted > 0)
        a->counter->verdict.reset_after_ns = last_ns + limit->window_ns + 1 - a->now_ns;
    a->counter->new_mark = last_ns; /* of what was leased */
    return true;
}

static bool answer(struct asked *a)
{
    switch (weir_redis_kind_of(&a->limit)) {
    case WEIR_REDIS_CLOSED:
        return weir_limit_is_closed(&a->limit, a->counter->op == WEIR_OP_GIVE ? 0 : a->hits,
                                    &a->counter->verdict);
    case WEIR_REDIS_WINDOW:
        return answer_window(a);
    case WEIR_REDIS_SLIDE:
        return answer_slide(a);
    case WEIR_REDIS_SUB:
        return answer_sub(a);
    case WEIR_REDIS_BUCKET:
        return answer_bucket(a);
    case WEIR_REDIS_TICK:
        return answer_tick(a);
    case WEIR_REDIS_LEASES:
        return answer_leases(a);
    case WEIR_REDIS_LOG:
        return answer_log(a);
    }
    return false;
}

/* Allowed, but others have refused the request: told as it is, with nothing taken. */
static bool answer_untaken(struct asked *a)
{
    struct weir_redis_counter *c = a->counter;
    if (c->op != WEIR_OP_TAKE || c->is_charged || !c->verdict.allowed)
        return true;
    a->hits = 0;
    bool is_sound = answer(a);
    c->new_mark = 0; /* of nothing */
    return is_sound;
}

/* Whether there is anything that could be released. */
static bool has_mark(const struct weir_redis_counter *c)
{
    const struct weir_limit *limit = c->limit;
    bool is_held = limit->algorithm == WEIR_CONCURRENCY || limit->algorithm == WEIR_LEAKY_BUCKET;
    if (c->op == WEIR_OP_LEASE)
        return c->granted > 0;
    return c->op == WEIR_OP_RENEW ||
           (c->op == WEIR_OP_TAKE && is_held && c->is_charged && c->hits > 0);
}

/* What a lease has done to a bucket, or to the end of a log, stands before its hits. */
static bool are_hits_covered(const struct weir_redis_counter *c)
{
    return c->granted > 0 && weir_lease_is_dated(c->limit);
}

static bool is_uncut(const struct weir_limit *limit)
{
    return limit->count_rejected && weir_redis_kind_of(limit) == WEIR_REDIS_BUCKET;
}

int weir_redis_counter_answer(struct weir_redis_counter *counter, uint64_t now_ns,
                              struct weir_str stored, unsigned said, uint32_t granted)
{
    struct asked a = {.counter = counter,
                      .limit = *counter->limit,
                      .now_ns = now_ns,
                      .hits = weir_redis_hits_of(counter),
                      .stored = stored};
    /* There is one clock only, Redis's; but a bucket that is not cut to its size stands. */
    a.limit.lag_ms = is_uncut(&a.limit) ? UINT32_MAX : 0;
    a.limit.count_rejected &= counter->op != WEIR_OP_LOOK;
    bool is_allowed = said & WEIR_REDIS_ALLOWED;
    bool is_marked = counter->op == WEIR_OP_RELEASE || counter->op == WEIR_OP_RENEW ||
                     counter->op == WEIR_OP_ADD;
    counter->is_charged = said & WEIR_REDIS_CHARGED;
    counter->is_stale = said & WEIR_REDIS_STALE;
    counter->is_rescaled = false;
    counter->new_mark = counter->hits_mark = 0;
    counter->verdict = (struct weir_verdict){0};
    counter->granted = 0;
    counter->lasts_ns = 0;
    if (counter->is_stale && is_marked) {
        counter->is_stale = false; /* the place was lost with the rate that it was taken at */
        return 0;
    }
    if (counter->is_stale)
        return rescale(&a) ? 0 : WEIR_ERR_STORE;
    if (!answer(&a) || is_allowed != (is_marked ? a.did : counter->verdict.allowed) ||
        granted != a.granted)
        return WEIR_ERR_STORE;
    counter->granted = granted;
    counter->hits_mark = are_hits_covered(counter) ? 0 : counter->new_mark;
    if (!has_mark(counter))
        counter->new_mark = 0;
    return answer_untaken(&a) ? 0 : WEIR_ERR_STORE;
}
