/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/eventual_internal.h"

#include "algo/math.h"
#include "engine/charge.h"
#include "engine/enforce.h"
#include "serve/service.h"

#include <stdlib.h>

/* ---- life ---- */

int weir_eventual_new(struct weir_eventual **out, struct weir_worker *keeper,
                      struct weir_ask_shared *shared, char *why, size_t why_len)
{
    const struct weir_settings *settings = weir_service_settings(keeper->service);
    struct weir_eventual *e = calloc(1, sizeof(*e));
    if (e == NULL)
        return WEIR_ERR_NOMEM;
    e->keeper = keeper;
    e->shared = shared;
    e->on_error = weir_ask_on_error(shared);
    e->interval_ns = settings->sync_interval * UINT64_C(1000000);
    int err = weir_gossip_new(&e->gossip, (uint32_t)settings->eventual_keys);
    if (err == 0)
        err = weir_eventual_keep(e, why, why_len);
    if (err != 0)
        weir_eventual_free(e);
    else
        *out = e;
    return err;
}

void weir_eventual_free(struct weir_eventual *e)
{
    if (e == NULL)
        return;
    weir_eventual_leave(e);
    weir_gossip_free(e->gossip);
    free(e);
}

void weir_eventual_stop(struct weir_eventual *e)
{
    if (e != NULL)
        weir_eventual_leave(e);
}

/* ---- numbers ---- */

static uint64_t under_way(const struct weir_redis_link *link)
{
    return link != NULL ? weir_redis_link_count(link, WEIR_REDIS_COUNT_IN_FLIGHT) : 0;
}

uint64_t weir_eventual_count(const struct weir_eventual *e, enum weir_eventual_count count)
{
    uint64_t counted = atomic_load_explicit(&e->counts[count], memory_order_relaxed);
    if (count == WEIR_EVENTUAL_COUNT_TALLIES)
        return weir_gossip_used(e->gossip);
    if (count == WEIR_EVENTUAL_COUNT_DIRTY)
        return counted + under_way(e->near.link) + under_way(e->far.link);
    return counted;
}

uint64_t weir_eventual_over(const struct weir_eventual *e, uint32_t stat)
{
    uint32_t known = stat <= WEIR_STATS_RULES_MAX ? stat : 0;
    return atomic_load_explicit(&e->over[known], memory_order_relaxed);
}

uint64_t weir_eventual_lag_ns(const struct weir_eventual *e)
{
    return atomic_load_explicit(&e->lag_ns, memory_order_relaxed);
}

uint64_t weir_eventual_round_trip_ns(const struct weir_eventual *e)
{
    return atomic_load_explicit(&e->round_trip_ns, memory_order_relaxed);
}

bool weir_eventual_global(const struct weir_eventual *e, enum weir_redis_health *health)
{
    if (e->far.link == NULL)
        return false;
    *health = weir_redis_link_health(e->far.link);
    return true;
}

/* ---- deciding ---- */

/* The most that may be admitted and not acked.  Where the store does not answer, nothing will be,
 * and the rule says what may pass all the same. */
static uint64_t most_of(const struct weir_eventual *e, const struct weir_tally *tally,
                        const struct weir_limit *limit)
{
    uint64_t most = 2 * weir_tally_unit(limit);
    if (!atomic_load_explicit(&tally->is_cut, memory_order_relaxed)) /* a hint */
        return most;
    enum weir_on_store_error said = (enum weir_on_store_error)limit->on_store_error;
    switch (said == WEIR_STORE_ERROR_UNSAID ? e->on_error : said) {
    case WEIR_STORE_ERROR_OPEN:
        return UINT64_MAX;
    case WEIR_STORE_ERROR_CLOSED:
        return most;
    case WEIR_STORE_ERROR_UNSAID:
    case WEIR_STORE_ERROR_LOCAL:
        break;
    }
    /* Its own hits, acked or not, may be as many as its share. */
    uint64_t share = weir_max(limit->requests, limit->burst) / weir_ask_nodes(e->shared);
    uint64_t acked = atomic_load_explicit(&tally->acked, memory_order_relaxed);
    return weir_max(most, weir_sat_sub(share, acked));
}

static struct weir_tally *make_tally(struct weir_eventual *e,
                                     const struct weir_eventual_question *q, uint32_t i,
                                     uint64_t index)
{
    const struct weir_charge *charge = &q->item->charges[i];
    struct weir_tally_of of = {.key = charge->key,
                               .index = index,
                               .limit = charge->limit,
                               .stat = q->item->stat,
                               .name = q->name(q->ctx, i)};
    return of.name.len <= WEIR_TALLY_NAME_MAX ? weir_gossip_add(e->gossip, &of) : NULL;
}

/* *out is NULL where there is no room. */
static enum weir_reserved reserve(struct weir_eventual *e, const struct weir_eventual_question *q,
                                  uint32_t i, struct weir_tally **out)
{
    const struct weir_charge *charge = &q->item->charges[i];
    uint64_t index = q->now_ns / weir_gossip_window_ns(charge->limit);
    uint64_t tag = weir_gossip_tag(charge->key, index);
    enum weir_reserved reserved;
    do {
        struct weir_tally *tally = weir_gossip_find(e->gossip, tag);
        if (tally == NULL)
            tally = make_tally(e, q, i, index);
        *out = tally;
        if (tally == NULL)
            return WEIR_TALLY_GONE;
        weir_tally_note_limit(tally, charge->limit);
        reserved = weir_tally_reserve(tally, tag, charge->hits, most_of(e, tally, charge->limit));
    } while (reserved == WEIR_TALLY_GONE); /* its window is long over: the clock is late */
    return reserved;
}

/* The table has decided: what it admitted is to be told. */
static void settle(struct weir_eventual *e, const struct weir_charge *charge,
                   struct weir_tally *tally)
{
    uint64_t untold = weir_tally_settle(tally, charge->hits, charge->is_taken);
    if (!charge->is_taken)
        return;
    (void)weir_gossip_mark(e->gossip, tally, false);
    if (untold >= weir_tally_unit(charge->limit) && weir_gossip_mark(e->gossip, tally, true))
        weir_loop_post(e->keeper->loop, &e->wake);
}

/* Too much is unknown to the store.  The table is looked at, and nothing is counted. */
static void hold_back(struct weir_eventual *e, const struct weir_eventual_question *q, uint32_t i,
                      struct weir_status *out)
{
    struct weir_verdict *verdict = &q->item->charges[i].verdict;
    (void)weir_charge_look(q->session, q->item, q->now_ns);
    if (verdict->allowed) {
        verdict->allowed = false;
        verdict->remaining = 0;
        verdict->retry_after_ns = e->interval_ns;
    }
    if (weir_enforce_spares(q->session, q->item))
        q->item->is_shadow = true;
    weir_charge_status(q->item, out);
    weir_charge_settle(q->session, q->item, out);
    weir_eventual_add(e, WEIR_EVENTUAL_COUNT_HELD_BACK, 1);
}

/* Looks and refunds tell nobody: others have counted what they heard, and keep it. */
static bool is_told(const struct weir_item *item)
{
    return item->hits > 0 && !item->is_refund;
}

bool weir_eventual_decide(struct weir_eventual *e, const struct weir_eventual_question *q,
                          struct weir_status *out)
{
    struct weir_tally *tallies[WEIR_LIMITS_MAX];
    struct weir_item *item = q->item;
    uint32_t count = is_told(item) ? item->charge_count : 0;
    for (uint32_t i = 0; i < count; i++) {
        enum weir_reserved reserved = reserve(e, q, i, &tallies[i]);
        if (reserved == WEIR_RESERVED)
            continue;
        for (uint32_t k = 0; k < i; k++)
            (void)weir_tally_settle(tallies[k], item->charges[k].hits, false);
        if (reserved == WEIR_HELD_BACK)
            hold_back(e, q, i, out);
        else
            weir_eventual_add(e, WEIR_EVENTUAL_COUNT_NO_ROOM, 1);
        return reserved == WEIR_HELD_BACK;
    }
    weir_charge_alone(q->session, item, q->now_ns, out);
    for (uint32_t i = 0; i < count; i++)
        settle(e, &item->charges[i], tallies[i]);
    return true;
}
