/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/concurrency.h"

#include "algo/math.h"

#define DEADLINES 3u

/* The distance between two deadlines. */
static uint64_t grid_ns(const struct weir_limit *limit)
{
    return limit->window_ns / 2;
}

/* Opens the deadline that a slot taken now would get, drops the leases that have ended, and brings
 * those nearer that the clock went back behind.  Says whether it did go back. */
static bool expire(const struct weir_limit *limit, struct weir_leases *state, uint64_t now_ns)
{
    uint64_t newest = now_ns / grid_ns(limit) + DEADLINES;
    bool went_back = state->deadline > newest;
    struct weir_leases next = {.deadline = newest + went_back};
    for (uint32_t age = 0; age < DEADLINES; age++) {
        uint64_t ends = weir_sat_sub(state->deadline, age);
        uint64_t new_age = weir_sat_sub(next.deadline, ends);
        if (new_age < DEADLINES)
            next.held[new_age] += state->held[age];
    }
    *state = next;
    return went_back;
}

static uint64_t held_in_all(const struct weir_leases *state)
{
    return (uint64_t)state->held[0] + state->held[1] + state->held[2];
}

/* From now until so many have ended that at most `room` are held. */
static uint64_t wait_until_held(const struct weir_limit *limit, const struct weir_leases *state,
                                uint64_t now_ns, uint64_t room)
{
    uint64_t held = held_in_all(state);
    uint64_t wait_ns = 0;
    for (uint32_t age = DEADLINES; age-- > 0 && held > room;) {
        held -= state->held[age];
        wait_ns = (state->deadline - age) * grid_ns(limit) - now_ns;
    }
    return wait_ns;
}

static void report(const struct weir_limit *limit, const struct weir_leases *state, uint64_t now_ns,
                   struct weir_verdict *out)
{
    out->limit = limit->requests;
    out->remaining = weir_sat_sub(limit->requests, held_in_all(state));
    out->reset_after_ns = wait_until_held(limit, state, now_ns, 0);
}

/* Drops up to `hits` leases of one deadline; returns how many of them are still to be dropped. */
static uint64_t drop(struct weir_leases *state, uint32_t age, uint64_t hits)
{
    uint32_t dropped = (uint32_t)weir_min(hits, state->held[age]);
    state->held[age] -= dropped;
    return hits - dropped;
}

/* Drops up to `hits` leases of mark's deadline; returns how many there were.  A mark that is ahead
 * of all deadlines was brought to the newest when the clock went back; once the clock has caught up
 * nobody knows where that is now, and such leases are left to expire. */
static uint64_t drop_marked(struct weir_leases *state, bool went_back, uint64_t hits, uint64_t mark)
{
    uint64_t age = weir_sat_sub(state->deadline, mark);
    if (age >= DEADLINES || (mark > state->deadline && !went_back))
        return 0;
    return hits - drop(state, (uint32_t)age, hits);
}

void weir_concurrency_take(const struct weir_limit *limit, struct weir_leases *state,
                           uint64_t now_ns, uint64_t hits, struct weir_verdict *out, uint64_t *mark)
{
    *mark = 0;
    if (weir_limit_is_closed(limit, hits, out))
        return;
    expire(limit, state, now_ns);
    uint64_t held = held_in_all(state);
    *out = (struct weir_verdict){
        .allowed = hits == 0 || weir_sat_add(held, hits) <= limit->requests,
        .before = held,
    };
    if (out->allowed && hits > 0) {
        state->held[0] += (uint32_t)hits;
        *mark = state->deadline;
    }
    if (!out->allowed)
        out->retry_after_ns = hits > limit->requests
                                  ? WEIR_NEVER
                                  : wait_until_held(limit, state, now_ns, limit->requests - hits);
    report(limit, state, now_ns, out);
}

bool weir_concurrency_release(const struct weir_limit *limit, struct weir_leases *state,
                              uint64_t now_ns, uint64_t hits, uint64_t mark)
{
    bool went_back = expire(limit, state, now_ns);
    return drop_marked(state, went_back, hits, mark) > 0;
}

bool weir_concurrency_renew(const struct weir_limit *limit, struct weir_leases *state,
                            uint64_t now_ns, uint64_t hits, uint64_t *mark)
{
    bool went_back = expire(limit, state, now_ns);
    struct weir_leases moved = *state;
    if (hits == 0 || drop_marked(&moved, went_back, hits, *mark) < hits)
        return false;
    moved.held[0] += (uint32_t)hits;
    *state = moved;
    *mark = moved.deadline;
    return true;
}

void weir_concurrency_give(const struct weir_limit *limit, struct weir_leases *state,
                           uint64_t now_ns, uint64_t hits, struct weir_verdict *out)
{
    expire(limit, state, now_ns);
    *out = (struct weir_verdict){.allowed = true, .before = held_in_all(state)};
    for (uint32_t age = DEADLINES; age-- > 0;)
        hits = drop(state, age, hits);
    report(limit, state, now_ns, out);
}
