/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/sliding_log.h"

#include "algo/math.h"
#include "base/err.h"

/* The time of the entry of a rank, 1 .. len. */
static uint64_t entry_ns(const struct weir_log *log, const struct weir_log_ring *ring,
                         uint32_t rank)
{
    if (rank <= log->run)
        return log->last_ns;
    /* Relaxed: a cell that was overtaken belongs to a head that was too, and its swap fails. */
    return __atomic_load_n(&ring->cells[weir_log_cell(log, ring, rank)], __ATOMIC_RELAXED);
}

/* How many entries are not older than since_ns.  Mostly all: so the oldest is asked first. */
static uint32_t count_since(const struct weir_log *log, const struct weir_log_ring *ring,
                            uint64_t since_ns)
{
    if (log->len == 0 || entry_ns(log, ring, log->len) >= since_ns)
        return log->len;
    uint32_t young = 0, old = log->len; /* ranks; the one of `old` is too old */
    while (old - young > 1) {
        uint32_t rank = young + (old - young) / 2;
        if (entry_ns(log, ring, rank) >= since_ns)
            young = rank;
        else
            old = rank;
    }
    return young;
}

/* Drops the entries that have left the window.  Returns the time that counts: now, or the newest
 * entry's where the clock went back, by a window at most. */
static uint64_t catch_up(const struct weir_limit *limit, struct weir_log *log,
                         const struct weir_log_ring *ring, uint64_t now_ns)
{
    uint64_t at_ns = now_ns;
    log->run = 0; /* the caller has written it into its cells: there is nothing left to defer */
    if (log->len > 0 && log->last_ns > now_ns) {
        at_ns = weir_min(log->last_ns, now_ns + limit->window_ns);
        if (log->last_ns > at_ns) {
            log->run = count_since(log, ring, at_ns);
            log->last_ns = at_ns;
        }
    }
    log->len = count_since(log, ring, weir_sat_sub(at_ns, limit->window_ns));
    log->run = (uint32_t)weir_min(log->run, log->len);
    return at_ns;
}

/* `hits` new entries, of which and of the old ones the newest L are kept: no other can change a
 * decision any more. */
static void append(const struct weir_limit *limit, struct weir_log *log,
                   const struct weir_log_ring *ring, uint64_t at_ns, uint64_t hits)
{
    if (log->last_ns != at_ns) {
        log->last_ns = at_ns;
        log->run = 0;
    }
    uint32_t added = (uint32_t)weir_min(hits, limit->requests);
    log->head = (log->head + added) % ring->capacity;
    log->len = (uint32_t)weir_min(log->len + added, limit->requests);
    log->run = (uint32_t)weir_min(log->run + added, log->len);
}

/* From now until an entry of this time no longer counts. */
static uint64_t until_gone(const struct weir_limit *limit, uint64_t entry, uint64_t now_ns)
{
    return entry + limit->window_ns + 1 - now_ns;
}

static void report(const struct weir_limit *limit, const struct weir_log *log, uint64_t now_ns,
                   struct weir_verdict *out)
{
    out->limit = limit->requests;
    out->remaining = weir_sat_sub(limit->requests, log->len);
    if (log->len > 0)
        out->reset_after_ns = until_gone(limit, log->last_ns, now_ns);
}

void weir_sliding_log_take(const struct weir_limit *limit, struct weir_log *state,
                           const struct weir_log_ring *ring, uint64_t now_ns, uint64_t hits,
                           struct weir_verdict *out)
{
    if (weir_limit_is_closed(limit, hits, out))
        return;
    WEIR_ASSERT(limit->requests <= ring->capacity);
    uint64_t at_ns = catch_up(limit, state, ring, now_ns);
    *out = (struct weir_verdict){
        .allowed = weir_sat_add(state->len, hits) <= limit->requests,
        .before = state->len,
    };
    if (hits > 0 && (out->allowed || limit->count_rejected))
        append(limit, state, ring, at_ns, hits);
    if (!out->allowed && hits > limit->requests) {
        out->retry_after_ns = WEIR_NEVER;
    } else if (!out->allowed) {
        /* Room for hits is there once L - hits entries are left: the next older one must go. */
        uint32_t rank = limit->requests - (uint32_t)hits + 1;
        out->retry_after_ns = until_gone(limit, entry_ns(state, ring, rank), now_ns);
    }
    report(limit, state, now_ns, out);
}

void weir_sliding_log_give(const struct weir_limit *limit, struct weir_log *state,
                           const struct weir_log_ring *ring, uint64_t now_ns, uint64_t hits,
                           struct weir_verdict *out)
{
    if (weir_limit_is_closed(limit, 0, out))
        return;
    catch_up(limit, state, ring, now_ns);
    *out = (struct weir_verdict){.allowed = true, .before = state->len};
    uint32_t gone = (uint32_t)weir_min(hits, state->len);
    if (gone > 0) {
        state->head = weir_log_cell(state, ring, gone);
        state->len -= gone;
        state->run = (uint32_t)weir_sat_sub(state->run, gone);
        if (state->len > 0)
            state->last_ns = entry_ns(state, ring, 1);
    }
    report(limit, state, now_ns, out);
}

void weir_sliding_log_add(const struct weir_limit *limit, struct weir_log *state,
                          const struct weir_log_ring *ring, uint64_t at_ns, uint64_t hits)
{
    struct weir_limit counting = *limit;
    struct weir_verdict ignored;
    counting.count_rejected = true;
    weir_sliding_log_take(&counting, state, ring, at_ns, hits, &ignored);
}

uint32_t weir_sliding_log_live(const struct weir_limit *limit, const struct weir_log *state,
                               const struct weir_log_ring *ring, uint64_t now_ns)
{
    struct weir_log log = *state;
    catch_up(limit, &log, ring, now_ns);
    return log.len;
}
