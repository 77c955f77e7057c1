/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/value_stats.h"

#include <stdlib.h>
#include <string.h>

struct weir_value_stats {
    _Atomic uint32_t count; /* names, or a few more: threads that came at once */
    struct weir_value_stat places[WEIR_VALUE_PLACES];
};

/* alloc: at publishing; the system gives the pages as names come. */
int weir_value_stats_new(struct weir_value_stats **out)
{
    struct weir_value_stats *stats = calloc(1, sizeof(*stats));
    if (!stats)
        return WEIR_ERR_NOMEM;
    *out = stats;
    return 0;
}

/* alloc: with the engine. */
void weir_value_stats_free(struct weir_value_stats *stats)
{
    free(stats);
}

static void set_name(struct weir_value_stat *stat, const char *name, size_t len)
{
    memcpy(stat->name, name, len);
    stat->len = (uint16_t)len;
    /* Pairs with weir_value_stats_at(): who sees it sees the name. */
    atomic_store_explicit(&stat->is_named, true, memory_order_release);
}

/* The place of this id, claimed where nobody has; NULL where there is no room. */
static struct weir_value_stat *claim(struct weir_value_stats *stats, uint64_t id, bool *is_new)
{
    for (uint64_t probe = 0; probe < WEIR_VALUE_PLACES; probe++) {
        struct weir_value_stat *stat = &stats->places[(id + probe) % WEIR_VALUE_PLACES];
        /* Relaxed: counters are all that is reached through an id. */
        uint64_t seen = atomic_load_explicit(&stat->id, memory_order_relaxed);
        if (seen == 0) {
            if (atomic_load_explicit(&stats->count, memory_order_relaxed) >= WEIR_VALUE_STATS_MAX)
                return NULL;
            *is_new = atomic_compare_exchange_strong_explicit(
                &stat->id, &seen, id, memory_order_relaxed, memory_order_relaxed);
            if (*is_new) {
                atomic_fetch_add_explicit(&stats->count, 1, memory_order_relaxed);
                return stat;
            }
        }
        if (seen == id)
            return stat;
    }
    return NULL;
}

struct weir_value_stat *weir_value_stats_named(struct weir_value_stats *stats,
                                               const struct weir_hash_key *secret,
                                               struct weir_str name)
{
    if (name.len == 0 || name.len > WEIR_VALUE_NAME_MAX)
        return NULL;
    bool is_new = false;
    uint64_t id = weir_siphash13(secret, name.ptr, name.len);
    struct weir_value_stat *stat = claim(stats, id ? id : 1, &is_new);
    if (is_new)
        set_name(stat, name.ptr, name.len);
    return stat;
}

struct weir_value_stat *weir_value_stats_find(struct weir_value_stats *stats,
                                              const struct weir_hash_key *secret,
                                              const struct weir_domain *domain,
                                              const struct weir_descriptor *descriptor)
{
    char name[WEIR_VALUE_NAME_MAX];
    size_t len = weir_rules_stats_key(domain, descriptor->entries, descriptor->entry_count, name,
                                      sizeof(name));
    return weir_value_stats_named(stats, secret, (struct weir_str){.ptr = name, .len = len});
}

void weir_value_stats_add(struct weir_value_stat *stat, const uint64_t amounts[WEIR_COUNTERS])
{
    for (enum weir_counter c = 0; c < WEIR_COUNTERS; c++) {
        if (amounts[c] > 0) /* relaxed: read for people, one by one */
            atomic_fetch_add_explicit(&stat->counts[c], amounts[c], memory_order_relaxed);
    }
}

const struct weir_value_stat *weir_value_stats_at(const struct weir_value_stats *stats,
                                                  uint32_t place)
{
    if (!stats)
        return NULL;
    const struct weir_value_stat *stat = &stats->places[place];
    return atomic_load_explicit(&stat->is_named, memory_order_acquire) ? stat : NULL;
}
