/* ask_debts.c - hits that passed without the store, charged to it when it is back.
 *
 *     admitted by policy --> debt: a counter, hits that still matter --store back--> forced take
 *
 * So the store's count is, after healing, what all machines together have admitted.  A debt is kept
 * as its counter would be: of a window the hits of that window, where the one before counts still,
 * its hits, too; of a log no more than fill it; of a bucket what has not flowed back.  What no
 * longer matters is forgotten, never charged to a later window.  Forced is a take whose limit is as
 * large as can be, or where two windows count, an addition to one of them.
 *
 * Concurrency has no debts.  What would have to be charged is not what was taken while the store
 * was away, but what of it is in use still, which only those know who will give it back: charged
 * with all of it, a busy limit would refuse everybody for the life of a slot.  Slots end by
 * themselves; until then, at most as many more are in flight as the machines' shares let in.
 *
 * There are at most DEBTS_MAX counters; what is beyond is counted as lost.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/gcra.h"
#include "base/hash.h"
#include "serve/ask_internal.h"

#include <stdlib.h>
#include <string.h>

#define DEBTS_MAX 8192u
#define BUCKETS 4096u
#define NAME_MAX 320u    /* bytes: a prefix, a descriptor, a tag */
#define AT_ONCE_MAX 512u /* calls under way */
#define TRIES_MAX 32u

struct debt {
    struct weir_redis_ask call; /* first: done() gets this */
    struct weir_asks *asks;
    struct debt *next; /* of its bucket, or among the free */
    struct weir_limit limit;
    struct weir_limit told; /* to the store, in the call that is under way */
    struct weir_redis_counter counter;
    uint64_t hash;
    uint64_t since_ns; /* of the newest hits */
    uint64_t hits;     /* not yet under way */
    uint64_t earlier;  /* of the window before that of since_ns, likewise, where it counts */
    struct weir_tat tat;
    uint64_t sent;    /* hits under way; 0: none are */
    uint64_t sent_ns; /* since_ns of these */
    uint32_t tries;
    uint32_t name_len; /* 0: the debt is free */
    char name[NAME_MAX];
};

struct weir_ask_debts {
    struct debt *free;
    uint32_t used; /* of at[] */
    uint32_t under_way;
    uint32_t cursor; /* where the next round goes on */
    struct debt *buckets[BUCKETS];
    struct debt at[DEBTS_MAX]; /* handed out from the front */
};

int weir_ask_debts_new(struct weir_ask_debts **out)
{
    *out = calloc(1, sizeof(**out));
    return *out != NULL ? 0 : WEIR_ERR_NOMEM;
}

void weir_ask_debts_free(struct weir_ask_debts *debts)
{
    free(debts);
}

/* ---- how much is owed ---- */

static bool is_bucket(const struct weir_limit *limit)
{
    return weir_redis_kind_of(limit) == WEIR_REDIS_BUCKET;
}

/* Forgets what no longer matters. */
static void age(struct debt *debt, uint64_t now_ns)
{
    const struct weir_limit *limit = &debt->limit;
    uint64_t window_ns = limit->window_ns;
    uint64_t windows = now_ns / window_ns - weir_min(debt->since_ns, now_ns) / window_ns;
    switch (weir_redis_kind_of(limit)) {
    case WEIR_REDIS_TICK:
        debt->hits = weir_sat_sub(debt->hits, weir_sat_mul(windows, limit->requests));
        debt->since_ns = weir_max(debt->since_ns, now_ns);
        break;
    case WEIR_REDIS_WINDOW:
        if (windows > 0)
            debt->hits = 0;
        break;
    case WEIR_REDIS_SLIDE:
    case WEIR_REDIS_SUB:
    case WEIR_REDIS_LOG:
        if (limit->algorithm == WEIR_SLIDING_WINDOW_LOG) /* so many fill it, and each is an entry */
            debt->hits = weir_min(debt->hits, limit->requests);
        if (windows > 0) {
            debt->earlier = windows == 1 ? debt->hits : 0;
            debt->hits = 0;
            debt->since_ns = now_ns;
        }
        break;
    case WEIR_REDIS_BUCKET: {
        struct weir_gcra g = weir_gcra_of(limit);
        struct weir_span ahead = {0};
        if (debt->tat.ns >= now_ns)
            ahead = (struct weir_span){.ns = debt->tat.ns - now_ns, .num = debt->tat.num};
        debt->hits = weir_span_steps(ahead, g.step, g.den);
        break;
    }
    case WEIR_REDIS_CLOSED:
    case WEIR_REDIS_LEASES:
        debt->hits = 0;
        break;
    }
}

/* Hits of an earlier window than the newest; false: they are of the same. */
static bool owe_earlier(struct debt *debt, uint64_t hits, uint64_t at_ns)
{
    uint64_t window_ns = debt->limit.window_ns;
    uint64_t windows = debt->since_ns / window_ns - weir_min(debt->since_ns, at_ns) / window_ns;
    enum weir_redis_kind kind = weir_redis_kind_of(&debt->limit);
    bool is_rolling = kind == WEIR_REDIS_SLIDE || kind == WEIR_REDIS_SUB || kind == WEIR_REDIS_LOG;
    if (windows == 0 || (kind != WEIR_REDIS_WINDOW && !is_rolling))
        return false;
    if (is_rolling && windows == 1)
        debt->earlier = weir_sat_add(debt->earlier, hits);
    return true;
}

static void owe(struct debt *debt, uint64_t hits, uint64_t now_ns)
{
    age(debt, now_ns);
    if (owe_earlier(debt, hits, now_ns))
        return;
    debt->since_ns = weir_max(debt->since_ns, now_ns);
    debt->hits = weir_sat_add(debt->hits, hits);
    if (!is_bucket(&debt->limit))
        return;
    struct weir_gcra g = weir_gcra_of(&debt->limit);
    if (debt->tat.ns < now_ns)
        debt->tat = (struct weir_tat){.ns = now_ns};
    struct weir_span cost = weir_span_times(g.step, hits, g.den);
    struct weir_span sum =
        weir_span_add((struct weir_span){.ns = debt->tat.ns, .num = debt->tat.num}, cost, g.den);
    debt->tat = (struct weir_tat){.ns = sum.ns, .num = sum.num};
}

/* A limit that refuses nothing, with which the counter is otherwise the same. */
static struct weir_limit forced(const struct weir_limit *limit)
{
    struct weir_limit all = *limit;
    all.burst = UINT32_MAX;
    if (is_bucket(limit)) {
        all.cap_ns = WEIR_BUCKET_SPAN_NS_MAX;
        all.cap_num = 0;
    } else if (weir_redis_kind_of(limit) != WEIR_REDIS_TICK) {
        all.requests = UINT32_MAX;
    }
    return all;
}

/* ---- which there are ---- */

static struct debt *find(struct weir_ask_debts *debts, uint64_t hash, struct weir_str name)
{
    struct debt *debt = debts->buckets[hash % BUCKETS];
    while (debt != NULL && (debt->hash != hash || debt->name_len != name.len ||
                            memcmp(debt->name, name.ptr, name.len) != 0))
        debt = debt->next;
    return debt;
}

/* NULL: there is no room. */
static struct debt *make(struct weir_asks *asks, uint64_t hash, struct weir_str name)
{
    struct weir_ask_debts *debts = asks->debts;
    struct debt *debt = debts->free;
    if (name.len == 0 || name.len > NAME_MAX)
        return NULL;
    if (debt != NULL)
        debts->free = debt->next;
    else if (debts->used < DEBTS_MAX)
        debt = &debts->at[debts->used++];
    if (debt == NULL)
        return NULL;
    memset(debt, 0, offsetof(struct debt, name));
    memcpy(debt->name, name.ptr, name.len);
    debt->name_len = (uint32_t)name.len;
    debt->asks = asks;
    debt->hash = hash;
    debt->next = debts->buckets[hash % BUCKETS];
    debts->buckets[hash % BUCKETS] = debt;
    weir_ask_add(asks, WEIR_ASK_COUNT_DEBTS, 1);
    return debt;
}

static void forget(struct debt *debt)
{
    struct weir_ask_debts *debts = debt->asks->debts;
    struct debt **link = &debts->buckets[debt->hash % BUCKETS];
    while (*link != debt)
        link = &(*link)->next;
    *link = debt->next;
    debt->name_len = 0;
    debt->next = debts->free;
    debts->free = debt;
    weir_ask_add(debt->asks, WEIR_ASK_COUNT_DEBTS, UINT64_MAX); /* - 1 */
}

void weir_ask_owe(struct weir_asks *asks, struct weir_str name, const struct weir_limit *limit,
                  uint64_t hits, uint64_t now_ns)
{
    struct weir *engine = asks->worker->engine;
    enum weir_redis_kind kind = weir_redis_kind_of(limit);
    if (hits == 0 || kind == WEIR_REDIS_CLOSED || kind == WEIR_REDIS_LEASES)
        return;
    uint64_t hash = weir_siphash13(weir_table_hash_key(engine->table), name.ptr, name.len);
    struct debt *debt = find(asks->debts, hash, name);
    if (debt == NULL)
        debt = make(asks, hash, name);
    if (debt == NULL) {
        weir_ask_add(asks, WEIR_ASK_COUNT_LOST, hits);
        return;
    }
    debt->limit = *limit; /* the newest is the truest */
    owe(debt, hits, now_ns);
}

/* ---- they are paid ---- */

static void put(struct weir_redis_ask *call, struct weir_buf *out, enum weir_redis_how how)
{
    const struct debt *debt = (const struct debt *)call;
    weir_redis_put_call(out, how,
                        &(struct weir_redis_call){.counters = &debt->counter, .count = 1});
}

static bool is_nothing(const struct debt *debt)
{
    return debt->hits == 0 && debt->earlier == 0;
}

/* It was charged, or it never will be. */
static void end(struct debt *debt, enum weir_ask_count count)
{
    weir_ask_add(debt->asks, count, debt->sent);
    debt->asks->debts->under_way--;
    debt->sent = 0;
    if (is_nothing(debt))
        forget(debt);
}

/* It was not: the next round tries again. */
static void take_back(struct debt *debt)
{
    uint64_t sent = debt->sent;
    debt->sent = 0;
    debt->asks->debts->under_way--;
    owe(debt, sent, debt->sent_ns);
}

static void paid(struct debt *debt, const struct weir_redis_answer *answer)
{
    uint64_t decided_ns;
    int err = weir_redis_answer_read(answer->reader, answer->nodes, answer->node_count,
                                     &debt->counter, 1, &decided_ns);
    if (err == 0 && debt->counter.is_stale && ++debt->tries < TRIES_MAX)
        weir_redis_link_ask(debt->asks->link, &debt->call);
    else
        end(debt, err == 0 ? WEIR_ASK_COUNT_RECONCILED : WEIR_ASK_COUNT_LOST);
}

static void call_done(struct weir_redis_ask *call, int err, const struct weir_redis_answer *answer)
{
    struct debt *debt = (struct debt *)call;
    if (err == 0)
        paid(debt, answer);
    else if (err == WEIR_ERR_STORE_AWAY)
        take_back(debt);
    else if (err != WEIR_ERR_STORE_LATE) /* of which more is heard */
        end(debt, WEIR_ASK_COUNT_LOST);
}

void weir_ask_debt_late(void *ctx, int err)
{
    struct debt *debt = ctx;
    if (err == WEIR_ERR_STORE_AWAY)
        take_back(debt);
    else /* charged; or nobody knows, and twice would be wrong as well */
        end(debt, err == 0 ? WEIR_ASK_COUNT_RECONCILED : WEIR_ASK_COUNT_LOST);
}

/* Which hits are charged next: those of one window. */
static void take_out(struct debt *debt)
{
    bool is_earlier = debt->hits == 0;
    debt->sent = is_earlier ? debt->earlier : debt->hits;
    debt->sent_ns = is_earlier ? debt->since_ns - debt->limit.window_ns : debt->since_ns;
    *(is_earlier ? &debt->earlier : &debt->hits) = 0;
    debt->tat = (struct weir_tat){0};
}

static void pay(struct debt *debt, uint64_t now_ns)
{
    struct weir_asks *asks = debt->asks;
    struct weir_str name = {.ptr = debt->name, .len = debt->name_len};
    bool is_slide = weir_redis_kind_of(&debt->limit) == WEIR_REDIS_SLIDE;
    age(debt, now_ns);
    if (is_nothing(debt)) {
        forget(debt);
        return;
    }
    take_out(debt);
    debt->told = forced(&debt->limit);
    debt->counter = (struct weir_redis_counter){.key = name,
                                                .limit = &debt->told,
                                                .hits = debt->sent,
                                                .mark = debt->sent_ns / debt->limit.window_ns,
                                                .op = is_slide ? WEIR_OP_ADD : WEIR_OP_TAKE,
                                                .ends = true};
    debt->call = (struct weir_redis_ask){
        .key = name, .put = put, .done = call_done, .late_tag = weir_ask_tag(debt, WEIR_TAG_DEBT)};
    debt->tries = 0;
    asks->debts->under_way++;
    weir_redis_link_ask(asks->link, &debt->call);
}

void weir_ask_pay(struct weir_asks *asks)
{
    struct weir_ask_debts *debts = asks->debts;
    uint64_t now_ns = weir_loop_now(asks->worker->loop);
    if (weir_asks_count(asks, WEIR_ASK_COUNT_DEBTS) == 0 ||
        weir_redis_link_health(asks->link) == WEIR_REDIS_AWAY)
        return;
    for (uint32_t i = 0; i < debts->used && debts->under_way < AT_ONCE_MAX; i++) {
        struct debt *debt = &debts->at[debts->cursor++ % debts->used];
        if (debt->name_len > 0 && debt->sent == 0)
            pay(debt, now_ns);
    }
}
