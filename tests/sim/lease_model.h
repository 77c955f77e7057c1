/* lease_model.h - a counter as Redis keeps it, with leases: states and lib/algo, nothing else.
 *
 * What the scripts do, said in C: a lease is a take of its hits, and then of the tokens that are to
 * spare.  tests/stress/redis_leases.c holds the scripts to it; tests/sim runs many nodes on it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_LEASE_MODEL_H
#define WEIR_TESTS_LEASE_MODEL_H

#include "algo/fixed_window.h"
#include "algo/leaky_bucket.h"
#include "algo/lease.h"
#include "algo/sliding_counter.h"
#include "algo/sub_windows.h"
#include "base/maxima.h"
#include "lease_model_log.h"

#define MODEL_SLIDE_MAX ((UINT64_C(1) << 40) - 1)

struct lease_model {
    struct weir_limit limit;
    struct weir_window window;
    struct weir_slide slide;
    struct weir_sub sub;
    struct weir_tick tick;
    struct weir_tat tat;
    uint64_t cells[WEIR_BUCKETS_MAX + 1];
    bool is_stored;   /* a counter is made by hits that count, and not by being asked */
    bool is_careless; /* planted: a lease does not hold back a bucket's refill, and has entries of
                         the instant of its grant in a log */
    struct model_log log;
};

static inline bool model_is_log(const struct lease_model *m)
{
    return m->limit.algorithm == WEIR_SLIDING_WINDOW_LOG;
}

static inline bool model_is_bucket(const struct lease_model *m)
{
    return m->limit.algorithm == WEIR_TOKEN_BUCKET && !m->limit.refill_interval;
}

static inline bool model_is_sub(const struct lease_model *m)
{
    return m->limit.algorithm == WEIR_SLIDING_WINDOW_COUNTER && m->limit.buckets > 1;
}

static inline void model_init(struct lease_model *m, const struct weir_limit *limit)
{
    *m = (struct lease_model){.limit = *limit};
    model_log_init(&m->log, &m->limit);
    m->limit.lag_ms = 0;
    for (uint32_t i = 0; i <= WEIR_BUCKETS_MAX; i++)
        m->cells[i] = UINT64_MAX;
}

static inline void model_settle_cells(struct lease_model *m)
{
    if (model_is_sub(m))
        m->cells[m->sub.index % weir_sub_cells(&m->limit)] = weir_sub_cell(&m->sub);
}

static inline void model_store(struct lease_model *m, struct lease_model before, bool is_counted)
{
    if (!m->is_stored && !is_counted)
        *m = before;
    else
        m->is_stored = true;
}

static inline void model_take(struct lease_model *m, uint64_t now_ns, uint64_t hits,
                              struct weir_verdict *v)
{
    if (model_is_log(m)) {
        model_log_take(&m->log, now_ns, hits, v);
        return;
    }
    const struct lease_model before = *m;
    if (model_is_bucket(m))
        weir_token_bucket_take(&m->limit, &m->tat, now_ns, hits, v);
    else if (m->limit.algorithm == WEIR_TOKEN_BUCKET)
        weir_token_tick_take(&m->limit, &m->tick, now_ns, hits, v);
    else if (m->limit.algorithm == WEIR_FIXED_WINDOW)
        weir_fixed_window_take(&m->limit, &m->window, now_ns, hits, v);
    else if (model_is_sub(m))
        weir_sub_windows_take(&m->limit, &m->sub, m->cells, now_ns, hits, v);
    else
        weir_sliding_counter_take(&m->limit, &m->slide, MODEL_SLIDE_MAX, now_ns, hits, v);
    model_settle_cells(m);
    model_store(m, before, hits > 0 && (v->allowed || m->limit.count_rejected));
}

static inline void model_give(struct lease_model *m, uint64_t now_ns, uint64_t hits,
                              struct weir_verdict *v)
{
    if (model_is_log(m)) {
        model_log_give(&m->log, now_ns, hits, v);
        return;
    }
    const struct lease_model before = *m;
    if (model_is_bucket(m))
        weir_token_bucket_give(&m->limit, &m->tat, now_ns, hits, v);
    else if (m->limit.algorithm == WEIR_TOKEN_BUCKET)
        weir_token_tick_give(&m->limit, &m->tick, now_ns, hits, v);
    else if (m->limit.algorithm == WEIR_FIXED_WINDOW)
        weir_fixed_window_give(&m->limit, &m->window, now_ns, hits, v);
    else if (model_is_sub(m))
        weir_sub_windows_give(&m->limit, &m->sub, m->cells, now_ns, hits, v);
    else
        weir_sliding_counter_give(&m->limit, &m->slide, now_ns, hits, v);
    model_settle_cells(m);
    model_store(m, before, false);
}

/* The window that counts, the name of the bucket's state, or the time of the log's newest entry. */
static inline uint64_t model_mark(const struct lease_model *m)
{
    if (model_is_log(m))
        return model_log_newest(&m->log)->ns;
    if (model_is_bucket(m))
        return weir_leaky_bucket_mark(&m->tat);
    if (m->limit.algorithm == WEIR_TOKEN_BUCKET)
        return m->tick.tick;
    if (m->limit.algorithm == WEIR_FIXED_WINDOW)
        return m->window.index;
    return model_is_sub(m) ? m->sub.index : m->slide.index;
}

/* Returns how many tokens were leased beside the hits. */
static inline uint32_t model_lease(struct lease_model *m, uint64_t now_ns, uint64_t hits,
                                   const struct weir_lease_wish *wish, struct weir_verdict *v,
                                   uint64_t *lasts_ns)
{
    struct weir_verdict extra;
    model_take(m, now_ns, hits, v);
    if (!v->allowed)
        return 0;
    if (model_is_bucket(m) && !m->is_careless) {
        uint32_t leased = weir_lease_from_bucket(&m->limit, wish, &m->tat, now_ns, lasts_ns);
        m->is_stored |= leased > 0;
        return leased;
    }
    uint32_t granted = weir_lease_size(wish, v->remaining);
    if (model_is_log(m))
        return model_log_lease(&m->log, now_ns, granted, m->is_careless, v, lasts_ns);
    *lasts_ns =
        m->is_careless ? wish->ttl_ns : weir_lease_lasts_ns(&m->limit, wish->ttl_ns, now_ns);
    if (granted > 0)
        model_take(m, now_ns, granted, &extra);
    return granted;
}

/* Gives leased tokens back, by their mark. */
static inline bool model_release(struct lease_model *m, uint64_t now_ns, uint64_t hits,
                                 uint64_t mark)
{
    struct weir_verdict v;
    uint64_t part = m->limit.window_ns / (model_is_sub(m) ? m->limit.buckets : 1);
    if (model_is_log(m))
        return model_log_release(&m->log, now_ns, hits, mark);
    if (model_is_bucket(m))
        return weir_leaky_bucket_release(&m->limit, &m->tat, now_ns, hits, mark);
    if (model_mark(m) != mark || now_ns / part > mark)
        return false;
    if (!model_is_sub(m) && now_ns / part + 1 < mark)
        return false; /* the clock went far back: the window before it counts */
    model_give(m, now_ns, hits, &v);
    return true;
}

#endif
