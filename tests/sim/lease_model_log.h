/* lease_model_log.h - a log with leases, said plainly: a list of entries, the oldest first.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_LEASE_MODEL_LOG_H
#define WEIR_TESTS_LEASE_MODEL_LOG_H

#include "algo/lease.h"

#include <string.h>

#define MODEL_LOG_MAX 1024u

struct model_entry {
    uint64_t ns;
    bool is_ahead; /* the end of a lease, that began lead_ns before */
};

struct model_log {
    uint64_t window_ns, lead_ns;
    uint32_t most, count;
    struct model_entry entries[MODEL_LOG_MAX];
};

static inline void model_log_init(struct model_log *log, const struct weir_limit *limit)
{
    log->window_ns = limit->window_ns;
    log->lead_ns = weir_lease_ttl_ns(limit);
    log->most = limit->requests;
    log->count = 0;
}

static inline const struct model_entry *model_log_newest(const struct model_log *log)
{
    return &log->entries[log->count - 1];
}

/* When it was made, at the latest. */
static inline uint64_t model_log_made(const struct model_log *log, const struct model_entry *entry)
{
    return entry->ns - (entry->is_ahead ? log->lead_ns : 0);
}

/* Returns the time that counts; drops what is older than a window then. */
static inline uint64_t model_log_catch_up(struct model_log *log, uint64_t now_ns)
{
    uint64_t at_ns = now_ns;
    if (log->count > 0 && model_log_made(log, model_log_newest(log)) > now_ns) {
        struct model_entry top = *model_log_newest(log);
        at_ns = weir_min(model_log_made(log, &top), now_ns + log->window_ns);
        top.ns = at_ns + (top.is_ahead ? log->lead_ns : 0);
        for (uint32_t i = 0; i < log->count; i++) {
            if (log->entries[i].ns > top.ns)
                log->entries[i] = top;
        }
    }
    uint32_t old = 0;
    while (old < log->count && log->entries[old].ns < at_ns - log->window_ns)
        old++;
    log->count -= old;
    memmove(log->entries, log->entries + old, log->count * sizeof(log->entries[0]));
    return at_ns;
}

static inline void model_log_add(struct model_log *log, struct model_entry entry, uint64_t count)
{
    for (; count > 0; count--)
        log->entries[log->count++] = entry;
}

static inline void model_log_tell(const struct model_log *log, uint64_t now_ns,
                                  struct weir_verdict *v)
{
    v->limit = log->most;
    v->remaining = log->most - log->count;
    v->reset_after_ns =
        log->count > 0 ? model_log_newest(log)->ns + log->window_ns + 1 - now_ns : 0;
}

static inline void model_log_take(struct model_log *log, uint64_t now_ns, uint64_t hits,
                                  struct weir_verdict *v)
{
    uint64_t at_ns = model_log_catch_up(log, now_ns);
    struct model_entry entry = {.ns = at_ns};
    *v = (struct weir_verdict){.before = log->count,
                               .allowed = weir_sat_add(log->count, hits) <= log->most};
    if (log->count > 0 && model_log_newest(log)->is_ahead && model_log_newest(log)->ns >= at_ns)
        entry = *model_log_newest(log);
    if (v->allowed)
        model_log_add(log, entry, hits);
    else if (hits > log->most)
        v->retry_after_ns = WEIR_NEVER;
    else
        v->retry_after_ns =
            log->entries[log->count - (log->most - hits) - 1].ns + log->window_ns + 1 - now_ns;
    model_log_tell(log, now_ns, v);
}

static inline void model_log_give(struct model_log *log, uint64_t now_ns, uint64_t hits,
                                  struct weir_verdict *v)
{
    model_log_catch_up(log, now_ns);
    *v = (struct weir_verdict){.before = log->count, .allowed = true};
    log->count -= (uint32_t)weir_min(hits, log->count);
    model_log_tell(log, now_ns, v);
}

/* Behind a take at the same time. */
static inline uint32_t model_log_lease(struct model_log *log, uint64_t now_ns, uint32_t tokens,
                                       bool is_careless, struct weir_verdict *v, uint64_t *lasts_ns)
{
    uint64_t at_ns = model_log_catch_up(log, now_ns);
    struct model_entry entry = {.ns = at_ns + log->lead_ns, .is_ahead = true};
    if (is_careless)
        entry = (struct model_entry){.ns = at_ns};
    *lasts_ns = log->lead_ns;
    model_log_add(log, entry, tokens);
    uint64_t remaining = v->remaining;
    model_log_tell(log, now_ns, v);
    v->remaining = remaining; /* as it was without */
    return tokens;
}

static inline bool model_log_release(struct model_log *log, uint64_t now_ns, uint64_t hits,
                                     uint64_t mark)
{
    uint64_t gone = 0;
    uint32_t kept = 0;
    model_log_catch_up(log, now_ns);
    for (uint32_t i = 0; i < log->count; i++) {
        bool goes = log->entries[i].ns == mark && gone < hits;
        gone += goes;
        if (!goes)
            log->entries[kept++] = log->entries[i];
    }
    log->count = kept;
    return gone > 0;
}

#endif
