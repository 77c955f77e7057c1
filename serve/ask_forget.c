/* ask_forget.c - counters that begin anew: an operator resets a key, or a client says DEL.
 *
 *     name the counters --> those of the table are forgotten
 *            |
 *            +--> DEL, for each place --> all gone: what this host remembers of them goes, too
 *
 * What this host remembers - tokens that are leased, refusals, its share while the store was away -
 * goes after the counter and not before: who asks meanwhile could lease of the old one again.
 *
 * Other hosts are not told.  What they remember ends within a second (store/lease.h); until then
 * they may spend tokens that the new counter does not know of, or give them back to it.  So once,
 * as many hits more pass as they had leased.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/str.h"
#include "engine/engine.h"
#include "engine/publish.h"
#include "serve/ask_lease.h"

/* ---- the end ---- */

static void forget_memories(struct weir_ask *ask)
{
    for (uint32_t i = 0; i < ask->request.charge_count; i++) {
        const struct weir_charge *charge = &ask->request.charges[i];
        weir_ask_lease_drop(ask->asks->leases, charge);
        weir_ask_forget_share(ask->asks, charge->key);
    }
}

static void finish(struct weir_ask *ask)
{
    struct weir_forget_waiter *waiter = ask->forgets;
    int err = 0;
    for (uint32_t i = 0; i < ask->part_count && err == 0; i++)
        err = ask->parts[i].err;
    if (err == 0)
        forget_memories(ask);
    if (waiter != NULL) {
        waiter->ask = NULL;
        waiter->done(waiter, err, ask->cleared);
    }
    weir_ask_free(ask);
}

/* ---- calls ---- */

static struct weir_ask_part *part_of(struct weir_redis_ask *call)
{
    return (struct weir_ask_part *)call; /* its first member */
}

static void put(struct weir_redis_ask *call, struct weir_buf *out, enum weir_redis_how how)
{
    const struct weir_ask_part *part = part_of(call);
    const struct weir_redis_counter *counters = part->ask->request.counters + part->from;
    (void)how;
    weir_redis_put_begin(out, 1 + (size_t)part->count);
    weir_redis_put_text(out, WEIR_STR("DEL"));
    for (uint32_t i = 0; i < part->count; i++)
        weir_redis_put_text(out, counters[i].key);
}

static void call_done(struct weir_redis_ask *call, int err, const struct weir_redis_answer *answer)
{
    struct weir_ask_part *part = part_of(call);
    struct weir_ask *ask = part->ask;
    if (err == 0 && answer->nodes[0].type != WEIR_REDIS_INTEGER)
        err = WEIR_ERR_STORE;
    part->err = err;
    if (err == 0)
        ask->cleared += (uint32_t)answer->nodes[0].number;
    if (--ask->parts_left == 0)
        finish(ask);
}

static int launch(struct weir_ask *ask, struct weir_forget_waiter *waiter)
{
    ask->forgets = waiter;
    waiter->ask = ask;
    weir_ask_make_parts(ask);
    ask->parts_left = ask->part_count; /* one call each, of envoyproxy/ratelimit's keys, too */
    for (uint32_t i = 0; i < ask->part_count; i++) {
        struct weir_redis_ask *call = &ask->parts[i].sent.call;
        call->put = put;
        call->done = call_done;
        call->late_tag = 0; /* nothing is set right when it comes */
        weir_redis_link_ask(ask->asks->link, call);
    }
    return WEIR_ASK_PENDING;
}

/* ---- what is forgotten ---- */

static uint32_t forget_here(struct weir_asks *asks, const struct weir_redis_request *r)
{
    uint32_t cleared = 0;
    for (uint32_t i = 0; i < r->item_count; i++) {
        const struct weir_item *item = &r->items[i];
        for (uint32_t k = 0; k < item->charge_count && r->deciders[i] == WEIR_BY_TABLE; k++)
            cleared += weir_local_reset(asks->worker->engine->table, item->charges[k].key);
    }
    return cleared;
}

static int name(struct weir_asks *asks, struct weir_redis_request *out,
                const struct weir_request *request, uint64_t now_ns)
{
    weir_publish_hold(asks->worker->session);
    return weir_redis_request_name(out, &asks->planner, request, asks->prefix, now_ns);
}

int weir_ask_forget(struct weir_asks *asks, const struct weir_request *request, uint64_t now_ns,
                    uint32_t *cleared, struct weir_forget_waiter *waiter)
{
    struct weir_redis_request named;
    int err = name(asks, &named, request, now_ns);
    if (err != 0)
        return err;
    *cleared = forget_here(asks, &named);
    if (named.count == 0)
        return 0;
    struct weir_ask *ask = weir_ask_take(asks, &named);
    if (ask == NULL)
        return WEIR_ERR_STORE_AWAY;
    ask->cleared = *cleared;
    ask->decided_ns = now_ns;
    return launch(ask, waiter);
}

/* One counter that no rule knows. */
int weir_ask_forget_throttle(struct weir_asks *asks, struct weir_str key,
                             struct weir_forget_waiter *waiter)
{
    static const struct weir_limit any = {.algorithm = WEIR_TOKEN_BUCKET};
    if (key.len > WEIR_VALUE_LEN_MAX)
        return WEIR_ERR_TOO_LARGE;
    struct weir_str counted = weir_ask_throttle_name(asks, key);
    struct weir_charge charge = {.limit = &any};
    struct weir_redis_counter counter = {.key = counted, .limit = &any, .ends = true};
    struct weir_redis_owner owner = {0};
    struct weir_redis_request named = {
        .charges = &charge,
        .counters = &counter,
        .owners = &owner,
        .names = counted,
        .charge_count = 1,
        .count = 1,
    };
    weir_publish_hold(asks->worker->session);
    (void)weir_throttle_reset(asks->worker->session, counted); /* the share that stood in for it */
    struct weir_ask *ask = weir_ask_take(asks, &named);
    return ask != NULL ? launch(ask, waiter) : WEIR_ERR_STORE_AWAY;
}

void weir_ask_forget_cancel(struct weir_forget_waiter *waiter)
{
    if (waiter->ask != NULL)
        waiter->ask->forgets = NULL;
    waiter->ask = NULL;
}

void weir_ask_unlease(struct weir_asks *asks, const struct weir_request *request, uint64_t now_ns)
{
    struct weir_redis_request named;
    if (name(asks, &named, request, now_ns) != 0)
        return;
    for (uint32_t i = 0; i < named.charge_count; i++)
        weir_ask_lease_drop(asks->leases, &named.charges[i]);
}
