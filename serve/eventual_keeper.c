/* eventual_keeper.c - the one thread that tells the store, and hears from it.
 *
 *     marked --tell()--> near store --hear()--> [store of all sites --hear()-->] acked
 *        ^                  | no answer                 | no answer
 *        +------------------+---------------------------+   again, at the next tick
 *
 * A tally has at most one message under way.  What is admitted meanwhile goes with the next.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/math.h"
#include "base/hash.h"
#include "serve/eventual_internal.h"
#include "serve/service.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define CALLS_MAX 8192u            /* under way */
#define DEADLINE_MS 2000u          /* of a message: nobody waits for it, and stores may be far */
#define TRIES_AWAY 64u             /* messages of a tick while the store is away */
#define SWEEP_NS WEIR_NS_PER_S     /* between two looks at what is over */
#define LAG_NS (3 * WEIR_NS_PER_S) /* no thread's clock is further behind */
#define UNTOLD_NS (60 * WEIR_NS_PER_S) /* for so long what is over is still worth telling */
/* Of counters in the table: never change. */
#define COUNTED_TAG UINT64_C(0x6472616568)
#define COUNTED_FAR_TAG UINT64_C(0x726166)
#define KEPT_NS (10 * WEIR_NS_PER_S) /* a window that may outlast a restart */
#define HITS_MAX ((UINT64_C(1) << 48) - 1)

static void tell(void *ctx, struct weir_tally *tally);

/* ---- what is said ---- */

/* What may pass in a tally's window, by an algorithm's promise (docs/algorithms.md). */
static uint64_t promise_of(const struct weir_limit *limit)
{
    uint64_t windows = weir_gossip_window_ns(limit) / limit->window_ns;
    uint64_t refilled = weir_sat_mul(windows, limit->requests);
    if (limit->algorithm == WEIR_LEAKY_BUCKET)
        return refilled + limit->burst + 1;
    if (limit->algorithm != WEIR_TOKEN_BUCKET)
        return limit->requests;
    return refilled + limit->burst - (limit->refill_interval ? limit->requests : 0);
}

static uint64_t keep_ms(const struct weir_eventual *e, const struct weir_tally *tally)
{
    uint64_t windows = tally->index + 1 + weir_gossip_looks_back(&tally->limit);
    uint64_t end_ns = weir_sat_mul(windows, weir_gossip_window_ns(&tally->limit));
    return (weir_sat_sub(end_ns, e->now_ns) + UNTOLD_NS) / 1000000;
}

static void put(struct weir_redis_ask *ask, struct weir_buf *out, enum weir_redis_how how)
{
    const struct weir_eventual_call *call = (const struct weir_eventual_call *)ask;
    const struct weir_eventual *e = call->eventual;
    const struct weir_tally *tally = call->tally;
    /* Only who hears of all nodes can say what is too much. */
    bool is_last = call->is_far || e->far.link == NULL;
    const struct weir_limit limit = weir_tally_limit(tally);
    weir_redis_put_gossip(out, how,
                          &(struct weir_redis_gossip){
                              .name = {.ptr = tally->name, .len = tally->name_len},
                              .index = tally->index,
                              .looks_back = weir_gossip_looks_back(&tally->limit),
                              .is_of_site = call->is_far,
                              .id = call->is_far ? e->far.id : e->near.id,
                              .hits = call->says,
                              .most = is_last ? promise_of(&limit) : HITS_MAX,
                              .keep_ms = keep_ms(e, tally),
                          });
}

/* ---- what is heard ---- */

/* The table outlives us: how many hits of others it counts is kept in it, as a counter of its own
 * for each key and window.  A process that is started anew so counts none of them again.  Not worth
 * a slot where the window is over by then; and where a limit's slots are not dated by its window,
 * one cannot be made of it. */
struct counted {
    bool is_kept;
    struct weir_limit limit;
    uint64_t key;
};

static struct counted counted_of(const struct weir_tally *tally, bool is_far)
{
    struct counted counted = {.limit = tally->limit};
    counted.is_kept = tally->limit.window_ns >= KEPT_NS && tally->limit.window_shift == 0 &&
                      tally->limit.window_ns == weir_gossip_window_ns(&tally->limit);
    counted.limit.algorithm = WEIR_FIXED_WINDOW;
    counted.limit.requests = UINT32_MAX;
    counted.key = weir_mix64(weir_gossip_tag(tally->key, tally->index) ^
                             (is_far ? COUNTED_FAR_TAG : COUNTED_TAG));
    return counted;
}

/* Of `more` hits, those that the table does not count yet. */
static uint64_t less_counted(struct weir_table *table, const struct counted *counted,
                             uint64_t at_ns, uint64_t more)
{
    struct weir_verdict verdict;
    weir_local_look(table, &counted->limit, counted->key, at_ns, 0, &verdict);
    return weir_sat_sub(more, verdict.before);
}

/* Counts what others have admitted beyond what was known of them. */
static void learn(struct weir_eventual *e, struct weir_tally *tally,
                  const struct weir_redis_heard *heard, bool is_far)
{
    struct weir_table *table = e->keeper->engine->table;
    struct weir_peers *peers = is_far ? &tally->sites : &tally->peers;
    const struct counted counted = counted_of(tally, is_far);
    bool is_first = peers->count == 0;
    uint64_t end_ns = weir_sat_mul(tally->index + 1, weir_gossip_window_ns(&tally->limit));
    uint64_t at_ns = weir_min(e->now_ns, end_ns - 1);
    uint64_t more =
        weir_peers_merge(peers, heard->list, heard->count, is_far ? e->far.id : e->near.id);
    if (more > 0 && is_first && counted.is_kept)
        more = less_counted(table, &counted, at_ns, more);
    if (more == 0)
        return;
    /* As it is now: a log keeps as many as its limit, and would forget those beyond an old one. */
    const struct weir_limit limit = weir_tally_limit(tally);
    weir_local_add(table, &limit, tally->key, at_ns, more);
    if (counted.is_kept)
        weir_local_add(table, &counted.limit, counted.key, at_ns, more);
    weir_eventual_add(e, WEIR_EVENTUAL_COUNT_HEARD, more);
}

/* The window before, which may be one that this process has admitted nothing in. */
static void learn_before(struct weir_eventual *e, const struct weir_tally *tally, bool is_far)
{
    const struct weir_tally_of of = {.key = tally->key,
                                     .index = tally->index - 1,
                                     .limit = &tally->limit,
                                     .stat = tally->stat,
                                     .name = {.ptr = tally->name, .len = tally->name_len}};
    if (e->heard.before.count == 0)
        return;
    struct weir_tally *before = weir_gossip_add(e->gossip, &of);
    if (before != NULL)
        learn(e, before, &e->heard.before, is_far);
}

static uint64_t sum_of(const struct weir_redis_heard *heard)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < heard->count; i++)
        sum = weir_sat_add(sum, heard->list[i].hits);
    return sum;
}

static bool send(struct weir_eventual *e, struct weir_tally *tally, uint64_t own, bool is_far);

/* The last store that had to be told has been. */
static void finish(struct weir_eventual *e, struct weir_tally *tally, uint64_t own)
{
    weir_tally_ack(tally, own);
    tally->is_asked = false;
    uint64_t untold = weir_tally_own(tally) - own;
    const struct weir_limit limit = weir_tally_limit(tally);
    tally->since_ns = untold > 0 ? e->now_ns : 0;
    if (untold >= weir_tally_unit(&limit))
        tell(e, tally);
    else if (untold > 0)
        (void)weir_gossip_mark(e->gossip, tally, false);
}

/* No answer, or none that makes sense. */
static void fail(struct weir_eventual *e, struct weir_tally *tally, uint64_t own, bool is_far)
{
    weir_eventual_add(e, WEIR_EVENTUAL_COUNT_FAILURES, 1);
    tally->is_asked = false;
    tally->is_far_due = is_far;
    if (is_far) /* this site goes on by itself */
        weir_tally_ack(tally, own);
    else
        atomic_store_explicit(&tally->is_cut, true, memory_order_relaxed);
    (void)weir_gossip_mark(e->gossip, tally, false);
}

static void hear(struct weir_eventual *e, struct weir_tally *tally, uint64_t own, bool is_far)
{
    learn(e, tally, &e->heard.now, is_far);
    learn_before(e, tally, is_far);
    /* relaxed: one writer */
    uint32_t stat = tally->stat <= WEIR_STATS_RULES_MAX ? tally->stat : 0;
    atomic_fetch_add_explicit(&e->over[stat], e->heard.over, memory_order_relaxed);
    if (is_far) {
        tally->is_far_due = false;
    } else {
        atomic_store_explicit(&tally->is_cut, false, memory_order_relaxed);
        tally->site_hits = weir_max(tally->site_hits, sum_of(&e->heard.now));
        if (e->far.link != NULL) {
            if (!send(e, tally, own, true))
                fail(e, tally, own, true);
            return;
        }
    }
    finish(e, tally, own);
}

static void done(struct weir_redis_ask *ask, int err, const struct weir_redis_answer *answer)
{
    struct weir_eventual_call *call = (struct weir_eventual_call *)ask;
    struct weir_eventual *e = call->eventual;
    const struct weir_eventual_call was = *call;
    call->next = e->free;
    e->free = call;
    e->now_ns = weir_loop_now(e->keeper->loop);
    if (err == 0) {
        err = weir_redis_gossip_read(answer->reader, answer->nodes, answer->node_count, &e->heard);
        if (err != 0)
            weir_redis_link_complain(ask);
    }
    if (err != 0) {
        fail(e, was.tally, was.own, was.is_far);
        return;
    }
    /* relaxed: a number to look at */
    atomic_store_explicit(&e->round_trip_ns, answer->answered_ns - answer->sent_ns,
                          memory_order_relaxed);
    hear(e, was.tally, was.own, was.is_far);
}

/* ---- telling ---- */

/* False: too many messages are under way. */
static bool send(struct weir_eventual *e, struct weir_tally *tally, uint64_t own, bool is_far)
{
    struct weir_eventual_call *call = e->free;
    if (call == NULL)
        return false;
    e->free = call->next;
    *call = (struct weir_eventual_call){
        .ask = {.key = {.ptr = tally->name, .len = tally->name_len}, .put = put, .done = done},
        .eventual = e,
        .tally = tally,
        .own = own,
        .says = is_far ? tally->site_hits : own,
        .is_far = is_far,
    };
    tally->is_asked = true;
    weir_eventual_add(e, WEIR_EVENTUAL_COUNT_MESSAGES, 1);
    weir_redis_link_ask(is_far ? e->far.link : e->near.link, &call->ask);
    return true;
}

/* Nobody can use any more what it has to tell, or its room is needed. */
static bool is_given_up(const struct weir_eventual *e, const struct weir_tally *tally)
{
    uint64_t over_ns = weir_tally_over_ns(tally, e->now_ns);
    return over_ns > UNTOLD_NS || (over_ns > LAG_NS && weir_gossip_is_short(e->gossip));
}

/* While the store is away, a few are enough to notice that it is back. */
static bool may_try(struct weir_eventual *e)
{
    if (weir_redis_link_health(e->near.link) != WEIR_REDIS_AWAY)
        return true;
    return e->tries_left > 0 && e->tries_left-- > 0;
}

/* False: another message is under way, or this one must wait. */
static bool begin_message(struct weir_eventual *e, struct weir_tally *tally, uint64_t own)
{
    if (tally->is_asked)
        return false;
    if (!may_try(e)) {
        atomic_store_explicit(&tally->is_cut, true, memory_order_relaxed);
        return false;
    }
    if (!send(e, tally, own, false))
        return false;
    atomic_store_explicit(&tally->sent, own, memory_order_relaxed);
    return true;
}

static void tell(void *ctx, struct weir_tally *tally)
{
    struct weir_eventual *e = ctx;
    uint64_t own = weir_tally_own(tally);
    uint64_t acked = atomic_load_explicit(&tally->acked, memory_order_relaxed);
    if (own == acked && !tally->is_far_due)
        return;
    if (is_given_up(e, tally) && weir_gossip_drop(e->gossip, tally)) {
        weir_eventual_add(e, WEIR_EVENTUAL_COUNT_DROPPED, own - acked);
        return;
    }
    if (tally->since_ns == 0)
        tally->since_ns = e->now_ns;
    e->oldest_ns = weir_min(e->oldest_ns, tally->since_ns);
    if (!begin_message(e, tally, own))
        (void)weir_gossip_mark(e->gossip, tally, false); /* at the next tick */
}

static void begin_turn(struct weir_eventual *e)
{
    e->now_ns = weir_loop_now(e->keeper->loop);
    e->oldest_ns = e->now_ns;
}

static void wake(struct weir_post *post, struct weir_loop *loop)
{
    struct weir_eventual *e =
        (struct weir_eventual *)(void *)((char *)post - offsetof(struct weir_eventual, wake));
    if (loop == NULL)
        return;
    begin_turn(e);
    weir_gossip_each_marked(e->gossip, true, tell, e);
}

static void count_and_tell(void *ctx, struct weir_tally *tally)
{
    struct weir_eventual *e = ctx;
    /* relaxed: one writer */
    atomic_fetch_add_explicit(&e->counts[WEIR_EVENTUAL_COUNT_DIRTY], 1, memory_order_relaxed);
    tell(e, tally);
}

static void tick(void *ctx)
{
    struct weir_eventual *e = ctx;
    begin_turn(e);
    e->tries_left = TRIES_AWAY;
    atomic_store_explicit(&e->counts[WEIR_EVENTUAL_COUNT_DIRTY], 0, memory_order_relaxed);
    weir_gossip_each_marked(e->gossip, false, count_and_tell, e);
    atomic_store_explicit(&e->lag_ns, e->now_ns - e->oldest_ns, memory_order_relaxed);
    if (e->now_ns - e->swept_ns >= SWEEP_NS) {
        e->swept_ns = e->now_ns;
        weir_gossip_sweep(e->gossip, e->now_ns, LAG_NS);
    }
}

static void flush(struct weir_post *post, struct weir_loop *loop)
{
    struct weir_eventual *e =
        (struct weir_eventual *)(void *)((char *)post - offsetof(struct weir_eventual, flush));
    if (loop != NULL)
        tick(e);
}

void weir_eventual_flush(struct weir_eventual *e)
{
    weir_loop_post(e->keeper->loop, &e->flush);
}

/* ---- life ---- */

static int open_side(struct weir_eventual *e, struct weir_eventual_side *side, const char *url,
                     char *why, size_t why_len)
{
    const struct weir_redis_link_options options = {
        .url = url,
        .tls = weir_ask_tls(e->shared),
        .deadline_ms = DEADLINE_MS,
        .queue_max = CALLS_MAX,
        .complaints = weir_ask_complaints(e->shared),
        .log = side == &e->far ? weir_service_log(e->keeper->service) : NULL, /* near: asks' do */
    };
    return weir_redis_link_new(&side->link, e->keeper->loop, &options, why, why_len);
}

/* A site is its name, and the same in all its processes.  A process is its table, by a hash with
 * the table's secret, and something random (store/tally.h). */
static int name_sides(struct weir_eventual *e, const char *site)
{
    static const struct weir_hash_key plain = {0};
    const struct weir_hash_key *secret = weir_table_hash_key(e->keeper->engine->table);
    uint32_t random;
    if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return WEIR_ERR_IO;
    e->near.id = weir_siphash13(secret, "node", 4) >> 32 << 32 | random;
    e->far.id = weir_siphash13(&plain, site, strlen(site));
    return 0;
}

int weir_eventual_keep(struct weir_eventual *e, char *why, size_t why_len)
{
    const struct weir_settings *settings = weir_service_settings(e->keeper->service);
    struct weir_loop_timer *timer;
    e->wake.run = wake;
    e->flush.run = flush;
    e->calls = calloc(CALLS_MAX, sizeof(*e->calls));
    if (e->calls == NULL)
        return WEIR_ERR_NOMEM;
    for (uint32_t i = 0; i < CALLS_MAX; i++) {
        e->calls[i].next = e->free;
        e->free = &e->calls[i];
    }
    int err = name_sides(e, settings->site);
    if (err == 0)
        err = open_side(e, &e->near, settings->store, why, why_len);
    if (err == 0 && settings->store_global[0] != '\0')
        err = open_side(e, &e->far, settings->store_global, why, why_len);
    if (err == 0)
        err = weir_loop_every(e->keeper->loop, &timer, (uint32_t)settings->sync_interval, tick, e);
    return err;
}

void weir_eventual_leave(struct weir_eventual *e)
{
    weir_redis_link_free(e->near.link);
    weir_redis_link_free(e->far.link);
    free(e->calls);
    e->near.link = e->far.link = NULL;
    e->calls = e->free = NULL;
}
