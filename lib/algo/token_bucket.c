/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/token_bucket.h"

/* ---- continuous refill ---- */

void weir_token_bucket_give(const struct weir_limit *limit, struct weir_tat *state, uint64_t now_ns,
                            uint64_t hits, struct weir_verdict *out)
{
    if (weir_limit_is_closed(limit, 0, out))
        return;
    struct weir_gcra g = weir_gcra_of(limit);
    uint64_t used = weir_gcra_used(&g, weir_gcra_ahead(&g, state, now_ns));
    weir_gcra_give(&g, state, now_ns, hits);
    weir_gcra_take(&g, state, now_ns, 0, out);
    out->before = used;
}

void weir_token_bucket_add(const struct weir_limit *limit, struct weir_tat *state, uint64_t at_ns,
                           uint64_t hits)
{
    struct weir_gcra g = weir_gcra_of(limit);
    weir_gcra_add(&g, state, at_ns, hits);
}

/* With S the step counted in its own dens, used = A/S tokens, and the new A' = used * S'.  Split
 * into whole tokens and a rest below one, no product is longer than 124 bits. */
struct weir_tat weir_tat_rescale(struct weir_tat state, uint64_t now_ns,
                                 const struct weir_limit *to, uint32_t from_requests)
{
    if (state.ns < now_ns)
        return (struct weir_tat){0};
    /* No rate, no tokens: the state of a limit of 0 is that of the rate before it, untouched. */
    if (from_requests == 0 || to->requests == 0)
        return state;
    struct weir_rate from = weir_rate_of(to->window_ns, from_requests);
    struct weir_gcra g = weir_gcra_of(to);
    uint64_t from_dens = from.step.ns * from.den + from.step.num;
    uint64_t to_dens = g.step.ns * g.den + g.step.num;

    weir_u128 ahead = (weir_u128)(state.ns - now_ns) * from.den + state.num;
    weir_u128 whole = ahead / from_dens;
    weir_u128 rest = ((ahead % from_dens) * to_dens + from_dens - 1) / from_dens;
    if (whole >= g.places)
        return weir_gcra_tat(g.cap, now_ns);
    weir_u128 dens = whole * to_dens + rest;
    return (struct weir_tat){.ns = now_ns + (uint64_t)(dens / g.den),
                             .num = (uint32_t)(dens % g.den)};
}

/* ---- interval refill ---- */

/* Opens the tick that counts now: what was in use, less what came back since. */
static struct weir_moment refill(const struct weir_limit *limit, struct weir_tick *state,
                                 uint64_t now_ns)
{
    struct weir_moment at = weir_moment_at(limit->window_ns, state->tick, now_ns);
    uint64_t ticks = weir_sat_sub(at.index, state->tick);
    state->used = weir_sat_sub(state->used, weir_sat_mul(ticks, limit->requests));
    if (limit->consistency != WEIR_CONSISTENCY_EVENTUAL) /* which may owe some */
        state->used = weir_min(state->used, limit->burst);
    state->tick = at.index;
    return at;
}

/* From now until `tokens` more have come: 2^32 of them at one a century do not fit 64 bits. */
static uint64_t wait_for(const struct weir_limit *limit, const struct weir_moment *at,
                         uint64_t tokens)
{
    if (tokens == 0)
        return 0;
    weir_u128 wait_ns = (weir_u128)weir_ceil_div(tokens, limit->requests) * limit->window_ns;
    wait_ns = wait_ns - at->elapsed_ns + at->ahead_ns;
    return wait_ns > WEIR_WAIT_MAX ? WEIR_WAIT_MAX : (uint64_t)wait_ns;
}

void weir_token_tick_take(const struct weir_limit *limit, struct weir_tick *state, uint64_t now_ns,
                          uint64_t hits, struct weir_verdict *out)
{
    if (weir_limit_is_closed(limit, hits, out))
        return;
    struct weir_moment at = refill(limit, state, now_ns);
    uint64_t tokens = weir_sat_sub(limit->burst, state->used);
    *out = (struct weir_verdict){
        .allowed = hits <= tokens,
        .limit = limit->burst,
        .before = state->used,
    };
    if (out->allowed)
        state->used += hits;
    else
        out->retry_after_ns = hits > limit->burst
                                  ? WEIR_NEVER
                                  : wait_for(limit, &at, state->used + hits - limit->burst);
    out->remaining = weir_sat_sub(limit->burst, state->used);
    out->reset_after_ns = wait_for(limit, &at, state->used);
}

void weir_token_tick_give(const struct weir_limit *limit, struct weir_tick *state, uint64_t now_ns,
                          uint64_t hits, struct weir_verdict *out)
{
    if (weir_limit_is_closed(limit, 0, out))
        return;
    refill(limit, state, now_ns);
    uint64_t used = state->used;
    state->used = weir_sat_sub(used, hits);
    weir_token_tick_take(limit, state, now_ns, 0, out);
    out->before = used;
}

void weir_token_tick_add(const struct weir_limit *limit, struct weir_tick *state, uint64_t at_ns,
                         uint64_t hits)
{
    if (at_ns / limit->window_ns > state->tick)
        refill(limit, state, at_ns);
    state->used = weir_min(weir_sat_add(state->used, hits), UINT32_MAX);
}
