/* gcra.h - what token bucket, leaky bucket and sketch have in common: one instant.
 *
 *      now                    full_at            now + cap
 *       |<------ ahead ------->|                     |
 *       |== T ==|== T ==|== T =|   free places       |        cap = places * T
 *
 * A bucket has `places`, each worth a step T of time.  full_at is when all of them are free
 * again; ahead = full_at - now is what is in use.  A take of h hits moves full_at by h*T, and is
 * allowed iff ahead is then at most cap.  A token bucket has B places, a leaky bucket B + 1: B
 * waiting and one leaving.
 *
 * Nothing here divides more than once, and that by T.
 *
 * Purity: no clock, no malloc, no I/O.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ALGO_GCRA_H
#define WEIR_ALGO_GCRA_H

#include "algo/limit.h"
#include "algo/math.h"

/* An instant: ns + num/den nanoseconds, den the limit's step_den. */
struct weir_tat {
    uint64_t ns;
    uint32_t num;
};

struct weir_gcra {
    uint64_t places;
    struct weir_span step;
    struct weir_span cap;
    uint32_t den;
    uint64_t lag_ns; /* how far behind its state's makers a reader's clock may be */
};

static inline struct weir_gcra weir_gcra_of_tokens(const struct weir_limit *limit)
{
    return (struct weir_gcra){
        .places = limit->burst,
        .step = {.ns = limit->step_ns, .num = limit->step_num},
        .cap = {.ns = limit->cap_ns, .num = limit->cap_num},
        .den = limit->step_den,
        .lag_ns = (uint64_t)limit->lag_ms * 1000000,
    };
}

/* The same of either bucket. */
static inline struct weir_gcra weir_gcra_of(const struct weir_limit *limit)
{
    struct weir_gcra g = weir_gcra_of_tokens(limit);
    if (limit->algorithm == WEIR_LEAKY_BUCKET) {
        g.places++;
        g.cap = weir_span_add(g.cap, g.step, g.den);
    }
    return g;
}

/* What is in use.  A state further ahead than an empty bucket was made by a process whose clock
 * is later: by a little where threads read the clock once a turn, and then it stands (to cut it
 * would hand out again, at every visit of the slower thread, what the faster one has taken); by
 * more where the clock went back, and then it is cut to an empty bucket, so that nobody is locked
 * out for long. */
static inline struct weir_span weir_gcra_ahead(const struct weir_gcra *g,
                                               const struct weir_tat *state, uint64_t now_ns)
{
    struct weir_span ahead = {0};
    if (state->ns >= now_ns)
        ahead = (struct weir_span){.ns = state->ns - now_ns, .num = state->num};
    struct weir_span most = {.ns = g->cap.ns + g->lag_ns, .num = g->cap.num};
    return weir_span_less(most, ahead) ? g->cap : ahead;
}

/* The same in steps, at most all of them. */
static inline uint64_t weir_gcra_used(const struct weir_gcra *g, struct weir_span ahead)
{
    return weir_min(weir_span_steps(ahead, g->step, g->den), g->places);
}

/* Saturates: a sketch's cell, which keys share, may be ahead by more than a bucket ever is. */
static inline struct weir_tat weir_gcra_tat(struct weir_span ahead, uint64_t now_ns)
{
    return (struct weir_tat){.ns = weir_sat_add(now_ns, ahead.ns), .num = ahead.num};
}

/* Decides and moves *state; delay_ns is left 0. */
static inline void weir_gcra_take(const struct weir_gcra *g, struct weir_tat *state,
                                  uint64_t now_ns, uint64_t hits, struct weir_verdict *out)
{
    struct weir_span ahead = weir_gcra_ahead(g, state, now_ns);
    uint64_t used = weir_gcra_used(g, ahead);
    *out = (struct weir_verdict){.limit = g->places, .before = used};
    if (WEIR_SELDOM(hits > g->places)) {
        out->retry_after_ns = WEIR_NEVER;
    } else {
        struct weir_span next =
            weir_span_add(ahead, weir_span_times(g->step, hits, g->den), g->den);
        out->allowed = hits == 0 || !weir_span_less(g->cap, next);
        if (WEIR_MOSTLY(out->allowed)) {
            ahead = next;
            used += hits; /* the ceiling of a sum with a whole number */
        } else {
            out->retry_after_ns = weir_span_ceil(weir_span_sub(next, g->cap, g->den));
        }
    }
    *state = weir_gcra_tat(ahead, now_ns);
    out->remaining = g->places - used;
    out->reset_after_ns = weir_span_ceil(ahead);
}

/* The same where a step is whole nanoseconds, as most rates' are: with nothing about fractions. */
static inline void weir_gcra_take_whole(const struct weir_gcra *g, struct weir_tat *state,
                                        uint64_t now_ns, uint64_t hits, struct weir_verdict *out)
{
    const struct weir_gcra whole = {.places = g->places,
                                    .step.ns = g->step.ns,
                                    .cap.ns = g->cap.ns,
                                    .den = 1,
                                    .lag_ns = g->lag_ns};
    struct weir_tat at = {.ns = state->ns};
    weir_gcra_take(&whole, &at, now_ns, hits, out);
    *state = at;
}

/* Frees `hits` places, down to unused. */
static inline void weir_gcra_give(const struct weir_gcra *g, struct weir_tat *state,
                                  uint64_t now_ns, uint64_t hits)
{
    struct weir_span ahead = weir_gcra_ahead(g, state, now_ns);
    struct weir_span back = weir_span_times(g->step, weir_min(hits, g->places), g->den);
    ahead =
        weir_span_less(ahead, back) ? (struct weir_span){0} : weir_span_sub(ahead, back, g->den);
    *state = weir_gcra_tat(ahead, now_ns);
}

/* Takes places for hits that were admitted elsewhere at at_ns, whether there are any or not: the
 * bucket then owes them, and refuses until they are paid back.  It owes at most half of what a
 * reader would take for a clock that went back, and never forgives what it owes already. */
static inline void weir_gcra_add(const struct weir_gcra *g, struct weir_tat *state, uint64_t at_ns,
                                 uint64_t hits)
{
    struct weir_tat from = state->ns >= at_ns ? *state : (struct weir_tat){.ns = at_ns};
    struct weir_span cost = weir_span_times(g->step, weir_min(hits, UINT32_MAX), g->den);
    struct weir_span ahead =
        weir_span_add((struct weir_span){.ns = from.ns - at_ns, .num = from.num}, cost, g->den);
    struct weir_span most = {.ns = g->cap.ns + g->lag_ns / 2, .num = g->cap.num};
    if (weir_span_less(most, ahead))
        ahead = most;
    struct weir_tat next = weir_gcra_tat(ahead, at_ns);
    if (next.ns >= from.ns)
        *state = next;
}

#endif
