/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/ask_lease.h"

#include "base/err.h"
#include "base/hash.h"
#include "base/str.h"
#include "engine/spend.h"
#include "serve/ask_lease_held.h"
#include "serve/ask_lease_wait.h"
#include "store/lease.h"
#include "store/lease_board.h"
#include "store/lease_pace.h"
#include "table/table.h"

#include <stdlib.h>
#include <string.h>

/* Powers of 2. */
#define PACES 4096u
#define FLIGHTS 1024u

/* One call about a counter, and who waits for it. */
struct weir_ask_flight {
    uint64_t key; /* 0: none is under way */
    struct weir_ask *first, *last;
    uint64_t demand; /* hits of those that wait */
};

struct weir_ask_leases {
    struct weir_redis_leaser leaser; /* first: who plans has this */
    struct weir_asks *asks;
    struct weir_lease_paces *paces;
    struct weir_ask_held *held;
    uint64_t store;   /* its name: who asks another one may use the same table */
    uint64_t trip_ns; /* how long the last call took */
    bool is_ending;   /* nothing is leased any more */
    struct weir_ask_flight flights[FLIGHTS];
};

static void answered(struct weir_ask_leases *leases, struct weir_ask_grant *grant);

/* A call for which nobody waits.  Its counter's name lies behind it. */
struct errand {
    struct weir_redis_ask call; /* first: done() gets this */
    struct weir_ask_leases *leases;
    struct weir_ask_flight *flight; /* NULL: it has none */
    uint64_t key;
    uint64_t sent_ns; /* of the boot */
    struct weir_limit limit;
    struct weir_redis_counter counter;
};

static struct weir_ask_leases *leases_of(struct weir_redis_leaser *leaser)
{
    return (struct weir_ask_leases *)leaser;
}

struct weir_lease_at weir_ask_lease_at(const struct weir_ask_leases *leases, uint64_t key,
                                       const struct weir_limit *limit, uint64_t boot_ns)
{
    return weir_lease_at(leases->asks->worker->engine->table, leases->store, key, limit, boot_ns);
}

/* ---- deciding ---- */

static bool decide(struct weir_redis_leaser *leaser, struct weir_charge *charge, bool *is_low)
{
    struct weir_ask_leases *leases = leases_of(leaser);
    /* Now, and not when the turn began: see store/lease.h. */
    struct weir_lease_at at =
        weir_ask_lease_at(leases, charge->key, charge->limit, weir_table_boot_ns());
    struct weir_lease_taken taken = weir_charge_spend(charge, &at, leases->asks->shared->board);
    if (taken.said == WEIR_LEASE_NONE)
        return false;
    *is_low = taken.is_low;
    if (charge->is_taken) {
        weir_ask_add(leases->asks, WEIR_ASK_COUNT_LEASED, 1);
        weir_ask_add(leases->asks, WEIR_ASK_COUNT_SPENT, charge->hits);
    } else {
        weir_ask_add(leases->asks, WEIR_ASK_COUNT_REFUSED, 1);
    }
    return true;
}

/* waiting: hits of those that wait for this call. */
static void wish_for(struct weir_ask_leases *leases, uint64_t key, uint64_t waiting,
                     struct weir_redis_counter *counter)
{
    struct weir_lease_pace *pace = weir_lease_pace_of(leases->paces, key);
    uint32_t ttl_ns = weir_lease_ttl_ns(counter->limit);
    uint32_t tokens = weir_lease_pace_ask(pace, weir_table_boot_ns(), ttl_ns);
    uint64_t sure = weir_min(weir_lease_pace_sure(pace) + waiting, WEIR_LEASE_TOKENS_MAX);
    counter->op = WEIR_OP_LEASE;
    counter->wish = (struct weir_lease_wish){
        .tokens = (uint32_t)weir_max(tokens, sure),
        .sure = (uint32_t)sure,
        .shares = 2 * weir_ask_nodes(leases->asks->shared),
        .ttl_ns = ttl_ns,
    };
}

static void wish(struct weir_redis_leaser *leaser, const struct weir_charge *charge,
                 struct weir_redis_counter *counter)
{
    wish_for(leases_of(leaser), charge->key, 0, counter);
}

/* Whether leases of a counter are of any use now.  Not if they would come too late, nor while
 * replicas are away that must know of them, nor to who goes: then each asks for itself. */
static bool is_useful(const struct weir_ask_leases *leases, const struct weir_limit *limit,
                      struct weir_str name)
{
    return !leases->is_ending && leases->trip_ns <= weir_lease_ttl_ns(limit) / 2 &&
           (weir_ask_lease_is_sure(leases->asks) ||
            weir_redis_link_replicates(leases->asks->link, name));
}

bool weir_ask_lease_wishes(const struct weir_ask_part *part)
{
    struct weir_redis_request *r = &part->ask->request;
    uint64_t tokens = 0;
    for (uint32_t i = part->from; i < part->from + part->count; i++) {
        struct weir_redis_counter *counter = &r->counters[i];
        if (counter->op != WEIR_OP_LEASE)
            continue;
        if (!is_useful(part->ask->asks->leases, counter->limit, counter->key))
            counter->wish.tokens = counter->wish.sure = 0;
        tokens += counter->wish.tokens;
    }
    return tokens > 0;
}

/* ---- calls about one counter ---- */

static struct weir_ask_flight *flight_of(struct weir_ask_leases *leases, uint64_t key)
{
    return &leases->flights[weir_mix64(key) & (FLIGHTS - 1)];
}

/* NULL: there is one already, or one of another counter is in its place. */
static struct weir_ask_flight *take_off(struct weir_ask_leases *leases, uint64_t key)
{
    struct weir_ask_flight *flight = flight_of(leases, key);
    if (flight->key != 0)
        return NULL;
    flight->key = key;
    return flight;
}

static struct weir_charge *charge_of(struct weir_ask *ask)
{
    return &ask->request.charges[ask->request.owners[0].charge];
}

static bool is_one_lease(const struct weir_ask *ask)
{
    return ask->request.count == 1 && ask->request.counters[0].op == WEIR_OP_LEASE;
}

bool weir_ask_lease_parks(struct weir_ask_leases *leases, struct weir_ask *ask)
{
    if (!is_one_lease(ask))
        return false;
    struct weir_charge *charge = charge_of(ask);
    if (!is_useful(leases, charge->limit, ask->request.counters[0].key))
        return false;
    ask->flight = take_off(leases, charge->key);
    struct weir_ask_flight *flight = flight_of(leases, charge->key);
    /* Who waits for another's call may have to wait for one more.  Where calls are slow, the
     * deadline would pass meanwhile: then each asks for itself. */
    uint64_t patience_ns = leases->asks->shared->settings->store_deadline * UINT64_C(1000000) / 4;
    if (ask->flight != NULL || flight->key != charge->key || leases->trip_ns > patience_ns)
        return false;
    if (flight->last != NULL)
        flight->last->behind = ask;
    else
        flight->first = ask;
    flight->last = ask;
    flight->demand += charge->hits;
    ask->since_ns = weir_redis_now();
    weir_ask_add(leases->asks, WEIR_ASK_COUNT_PARKED, 1);
    return true;
}

static struct weir_ask *next_of(struct weir_ask_flight *flight)
{
    struct weir_ask *ask = flight->first;
    if (ask == NULL)
        return NULL;
    flight->first = ask->behind;
    if (flight->first == NULL)
        flight->last = NULL;
    flight->demand -= charge_of(ask)->hits;
    return ask;
}

/* The first of those that wait asks, and for all of them. */
static void fly_on(struct weir_ask_leases *leases, struct weir_ask_flight *flight,
                   struct weir_ask *ask)
{
    struct weir_redis_counter *counter = &ask->request.counters[0];
    wish_for(leases, flight->key, flight->demand, counter);
    ask->flight = flight;
    weir_ask_launch(ask);
}

void weir_ask_lease_landed(struct weir_ask_leases *leases, struct weir_ask_flight *flight, int err)
{
    struct weir_ask *ask;
    while ((ask = next_of(flight)) != NULL) {
        bool is_low;
        if (err != 0) {
            weir_ask_fail(ask);
        } else if (decide(&leases->leaser, charge_of(ask), &is_low)) {
            weir_ask_finish(ask);
        } else if (!is_useful(leases, charge_of(ask)->limit, ask->request.counters[0].key)) {
            weir_ask_launch(ask);
        } else {
            fly_on(leases, flight, ask);
            return;
        }
    }
    flight->key = 0;
}

/* ---- errands ---- */

static struct errand *errand_of(struct weir_redis_ask *call)
{
    return (struct errand *)call;
}

static void put(struct weir_redis_ask *call, struct weir_buf *out, enum weir_redis_how how)
{
    struct errand *errand = errand_of(call);
    errand->sent_ns = weir_table_boot_ns();
    weir_redis_put_call(out, how,
                        &(struct weir_redis_call){.counters = &errand->counter, .count = 1});
}

/* It was answered, in time or not. */
static void end(struct errand *errand, int err, const struct weir_redis_answer *answer)
{
    struct weir_ask_leases *leases = errand->leases;
    struct weir_redis_counter *counter = &errand->counter;
    uint64_t decided_ns;
    if (err == 0)
        err = weir_redis_answer_read(answer->reader, answer->nodes, answer->node_count, counter, 1,
                                     &decided_ns);
    if (err == 0 && counter->op == WEIR_OP_LEASE) {
        struct weir_ask_grant grant = {.key = errand->key,
                                       .counter = counter,
                                       .sent_ns = errand->sent_ns,
                                       .wait = answer->wait,
                                       .flight = errand->flight};
        answered(leases, &grant);
        errand->flight = grant.flight;
    } else if (err == 0) {
        weir_ask_add(leases->asks,
                     counter->is_charged ? WEIR_ASK_COUNT_LEASE_RETURNED
                                         : WEIR_ASK_COUNT_LEASE_EXPIRED,
                     counter->hits);
    }
}

static void errand_done(struct weir_redis_ask *call, int err,
                        const struct weir_redis_answer *answer)
{
    struct errand *errand = errand_of(call);
    struct weir_ask_leases *leases = errand->leases;
    end(errand, err, answer);
    if (errand->flight != NULL)
        weir_ask_lease_landed(leases, errand->flight, err);
    errand->flight = NULL;
    if (err != WEIR_ERR_STORE_LATE) /* of what is late, more will be heard */
        weir_ask_block_give(leases->asks, errand);
}

void weir_ask_errand_late(void *ctx, int err, const struct weir_redis_answer *answer)
{
    struct errand *errand = ctx;
    end(errand, err, answer);
    weir_ask_block_give(errand->leases->asks, errand);
}

/* NULL: there is no room. */
static struct errand *new_errand(struct weir_ask_leases *leases, uint64_t key,
                                 const struct weir_limit *limit, struct weir_str name)
{
    if (name.len > WEIR_ASK_BLOCK - sizeof(struct errand))
        return NULL;
    struct errand *errand = weir_ask_block_take(leases->asks);
    if (errand == NULL)
        return NULL;
    name.ptr = memcpy(errand + 1, name.ptr, name.len);
    *errand = (struct errand){
        .call = {.key = name, .put = put, .done = errand_done},
        .leases = leases,
        .key = key,
        .limit = *limit,
        .counter = {.key = name, .limit = &errand->limit, .ends = true},
    };
    errand->call.late_tag = weir_ask_tag(errand, WEIR_TAG_ERRAND);
    return errand;
}

static void refill(struct weir_redis_leaser *leaser, const struct weir_charge *charge,
                   struct weir_str name)
{
    struct weir_ask_leases *leases = leases_of(leaser);
    if (!is_useful(leases, charge->limit, name))
        return;
    struct weir_ask_flight *flight = take_off(leases, charge->key);
    if (flight == NULL)
        return; /* it is asked for already */
    struct errand *errand = new_errand(leases, charge->key, charge->limit, name);
    if (errand == NULL) {
        flight->key = 0;
        return;
    }
    errand->flight = flight;
    errand->call.needs_replicas = true;
    wish_for(leases, charge->key, 0, &errand->counter);
    weir_redis_link_ask(leases->asks->link, &errand->call);
}

void weir_ask_lease_give_back(struct weir_ask_leases *leases, uint64_t key,
                              const struct weir_limit *limit, struct weir_str name, uint64_t mark,
                              uint32_t tokens)
{
    struct errand *errand = new_errand(leases, key, limit, name);
    if (errand == NULL)
        return;
    errand->counter.op = WEIR_OP_RELEASE;
    errand->counter.hits = tokens;
    errand->counter.mark = mark;
    weir_redis_link_ask(leases->asks->link, &errand->call);
}

void weir_ask_lease_unused(struct weir_ask_leases *leases, uint64_t key)
{
    weir_lease_pace_unused(weir_lease_pace_of(leases->paces, key));
}

/* Before Redis is asked for more hits than are in hand, it gets these back: both together may be
 * enough.  The mark is read first: what can still be spent after that is of its window, or of a
 * later one, where Redis takes nothing back by it.  A bucket's tokens have no window to go to. */
static void recall(struct weir_ask_leases *leases, const struct weir_charge *charge,
                   struct weir_str name)
{
    struct weir_lease_word said;
    if (charge->hits < 2 ||
        !weir_lease_board_read(leases->asks->shared->board, charge->key, &said) || said.mark == 0)
        return;
    struct weir_lease_at at =
        weir_ask_lease_at(leases, charge->key, charge->limit, weir_table_boot_ns());
    uint32_t tokens = at.is_dated ? 0 : weir_lease_recall(&at);
    if (tokens > 0)
        weir_ask_lease_give_back(leases, charge->key, charge->limit, name, said.mark, tokens);
}

void weir_ask_lease_recall(struct weir_ask *ask)
{
    const struct weir_redis_request *r = &ask->request;
    for (uint32_t i = 0; i < r->count; i++) {
        if (r->counters[i].op == WEIR_OP_LEASE)
            recall(ask->asks->leases, &r->charges[r->owners[i].charge], r->counters[i].key);
    }
}

/* ---- answers ---- */

void weir_ask_lease_use(struct weir_ask_leases *leases, const struct weir_ask_grant *grant)
{
    const struct weir_redis_counter *counter = grant->counter;
    uint64_t key = grant->key, boot_ns = weir_table_boot_ns();
    struct weir_lease_at at = weir_ask_lease_at(leases, key, counter->limit, boot_ns);
    uint64_t now_ns = weir_loop_now(leases->asks->worker->loop);
    uint64_t until_ns = grant->sent_ns + counter->lasts_ns;
    weir_ask_add(leases->asks, WEIR_ASK_COUNT_GRANTS, 1);
    weir_ask_add(leases->asks, WEIR_ASK_COUNT_GRANTED, counter->granted);
    bool is_used = !leases->is_ending && weir_lease_add(&at, counter->granted, until_ns, now_ns);
    if (!is_used) /* it came too late */
        weir_ask_lease_give_back(leases, key, counter->limit, counter->key, counter->new_mark,
                                 counter->granted);
    else if (!at.is_dated) /* else who knows by which mark of several: it is left to end */
        weir_ask_hold(leases->held, key, counter, boot_ns);
}

static void answered(struct weir_ask_leases *leases, struct weir_ask_grant *grant)
{
    const struct weir_redis_counter *counter = grant->counter;
    const struct weir_verdict *v = &counter->verdict;
    uint64_t key = grant->key, sent_ns = grant->sent_ns, boot_ns = weir_table_boot_ns();
    leases->trip_ns = boot_ns - sent_ns;
    if (counter->is_stale)
        return;
    struct weir_lease_pace *pace = weir_lease_pace_of(leases->paces, key);
    weir_lease_board_write(
        leases->asks->shared->board, key,
        (struct weir_lease_word){.left = weir_sat_sub(v->remaining, counter->granted),
                                 .reset_ns = weir_sat_add(boot_ns, v->reset_after_ns),
                                 .mark = counter->granted > 0 ? counter->new_mark : 0});
    weir_lease_pace_granted(pace, counter->granted);
    if (counter->granted > 0 && weir_ask_lease_is_sure(leases->asks)) {
        weir_ask_lease_use(leases, grant);
    } else if (counter->granted > 0) {
        weir_ask_lease_wait(leases->asks->waits, grant);
    } else if (!v->allowed && v->retry_after_ns != WEIR_NEVER) {
        struct weir_lease_at at = weir_ask_lease_at(leases, key, counter->limit, sent_ns);
        uint64_t wait_ns = weir_lease_pace_refused(pace, sent_ns, v->retry_after_ns,
                                                   weir_lease_ttl_ns(counter->limit));
        weir_lease_refuse(&at, counter->hits, wait_ns, weir_loop_now(leases->asks->worker->loop));
    }
}

/* What others of this host have fetched while this one asked is left, too: Redis does not know. */
static void count_in(struct weir_verdict *v, uint64_t held)
{
    held = v->allowed ? weir_min(held, v->before) : 0;
    v->remaining += held;
    v->before -= held;
}

void weir_ask_part_leases(const struct weir_ask_part *part, const struct weir_redis_answer *answer)
{
    struct weir_ask *ask = part->ask;
    struct weir_redis_request *r = &ask->request;
    struct weir_ask_leases *leases = ask->asks->leases;
    for (uint32_t i = part->from; i < part->from + part->count; i++) {
        struct weir_redis_counter *counter = &r->counters[i];
        if (counter->op != WEIR_OP_LEASE)
            continue;
        struct weir_ask_grant grant = {.key = r->charges[r->owners[i].charge].key,
                                       .counter = counter,
                                       .sent_ns = part->sent_ns,
                                       .wait = answer->wait,
                                       .flight = ask->flight};
        struct weir_lease_at at =
            weir_ask_lease_at(leases, grant.key, counter->limit, weir_table_boot_ns());
        uint64_t held = weir_lease_left(&at);
        answered(leases, &grant);
        ask->flight = grant.flight;
        count_in(&counter->verdict, held);
    }
}

void weir_ask_lease_drop(const struct weir_ask_leases *leases, const struct weir_charge *charge)
{
    struct weir_lease_at at =
        weir_ask_lease_at(leases, charge->key, charge->limit, weir_table_boot_ns());
    weir_lease_drop(&at);
}

/* ---- life ---- */

/* Where the tokens come from: an address, and what keys there begin with. */
uint64_t weir_ask_store_name(const struct weir_asks *asks)
{
    const struct weir_hash_key *key = weir_table_hash_key(asks->worker->engine->table);
    struct weir_str url = weir_str_of(asks->shared->settings->store);
    return weir_mix64(weir_siphash13(key, url.ptr, url.len)) ^
           weir_siphash13(key, asks->prefix.ptr, asks->prefix.len);
}

void weir_ask_leases_end(struct weir_ask_leases *leases)
{
    leases->is_ending = true;
    weir_ask_held_end(leases->held);
}

int weir_ask_leases_new(struct weir_ask_leases **out, struct weir_asks *asks)
{
    struct weir_ask_leases *leases = calloc(1, sizeof(*leases));
    if (leases == NULL)
        return WEIR_ERR_NOMEM;
    leases->leaser = (struct weir_redis_leaser){.decide = decide, .refill = refill, .wish = wish};
    leases->asks = asks;
    leases->store = weir_ask_store_name(asks);
    *out = leases;
    if (weir_lease_paces_new(&leases->paces, PACES) != 0 ||
        weir_ask_held_new(&leases->held, asks) != 0) {
        *out = NULL;
        weir_ask_leases_free(leases);
        return WEIR_ERR_NOMEM;
    }
    return 0;
}

void weir_ask_leases_free(struct weir_ask_leases *leases)
{
    if (leases == NULL)
        return;
    weir_ask_held_free(leases->held);
    weir_lease_paces_free(leases->paces);
    free(leases);
}

struct weir_redis_leaser *weir_ask_leases_leaser(struct weir_ask_leases *leases)
{
    return &leases->leaser;
}
