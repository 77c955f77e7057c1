/* ask_throttle.c - CL.THROTTLE where a store is: one counter, whose limit the caller brings.
 *
 * Its name has no domain, which no rule's can lack.  The rate that a bucket was counted at is not
 * told to Redis: here another rate reads the same instant (engine/throttle.h), and nothing is
 * worked out anew.
 *
 * While the store is away the table decides, by that name, with a bucket and a rate divided by the
 * machines.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "engine/engine.h"
#include "engine/top.h"
#include "serve/ask_internal.h"
#include "table/top.h"

#include <string.h>

#define TAG UINT64_C(0x746c6c2e72696577)

/* What the list of busy keys has heard of a call. */
struct heard {
    uint64_t key, weight; /* weight 0: it is not told */
};

struct weir_throttle_ask {
    struct weir_ask_return sent;         /* first: it asks, and may give back afterwards */
    struct weir_throttle_waiter *waiter; /* NULL: nobody waits any more */
    struct weir_throttle throttle;       /* its key is the counter's name */
    struct weir_limit limit;             /* as the caller gave it */
    struct weir_limit told;              /* as Redis is told it */
    struct weir_redis_counter counter;
    uint64_t decided_ns; /* without the store */
    bool has_passed;
    struct heard top;
};

/* ---- without the store ---- */

static void decide_closed(const struct weir_throttle *throttle, struct weir_throttled *out)
{
    *out = (struct weir_throttled){
        .allowed = throttle->quantity <= 0,
        .limit = throttle->burst,
        .retry_after_ns = throttle->quantity <= 0 ? 0 : WEIR_NS_PER_S,
    };
}

static int fall_back(struct weir_asks *asks, const struct weir_throttle *throttle, uint64_t now_ns,
                     struct weir_throttled *out)
{
    struct weir_throttle share = *throttle;
    uint32_t nodes = weir_ask_nodes(asks->shared);
    switch (asks->shared->on_error) {
    case WEIR_STORE_ERROR_CLOSED:
        weir_ask_add(asks, WEIR_ASK_COUNT_CLOSED, 1);
        decide_closed(throttle, out);
        return 0;
    case WEIR_STORE_ERROR_OPEN:
        weir_ask_add(asks, WEIR_ASK_COUNT_OPEN, 1);
        *out = (struct weir_throttled){
            .allowed = true, .limit = throttle->burst, .remaining = throttle->burst};
        return 0;
    case WEIR_STORE_ERROR_UNSAID:
    case WEIR_STORE_ERROR_LOCAL:
        break;
    }
    weir_ask_add(asks, WEIR_ASK_COUNT_LOCAL, 1);
    share.burst = share.burst > nodes ? share.burst / nodes : 1;
    if (__builtin_mul_overflow(share.period_s, nodes, &share.period_s))
        share.period_s = UINT32_MAX;
    return weir_throttle_quietly(asks->worker->session, &share, now_ns, out);
}

/* ---- among the busy keys ---- */

static struct heard tell_asked(struct weir_session *s, const struct weir_throttle *throttle,
                               uint64_t now_ns)
{
    struct heard top = {0};
    if (throttle->quantity <= 0 || !weir_top_is_due(s))
        return top;
    top.key = weir_throttle_key(s, throttle->key);
    top.weight = weir_top_tell_throttle(s, top.key, throttle, false, now_ns);
    return top;
}

static void tell_over(struct weir_asks *asks, const struct heard *top,
                      const struct weir_throttled *out)
{
    if (top->weight > 0 && !out->allowed)
        weir_top_add_over(asks->worker->engine->table, top->key, top->weight,
                          weir_loop_now(asks->worker->loop));
}

/* ---- with it ---- */

static struct weir_throttle_ask *ask_of(struct weir_redis_ask *call)
{
    return (struct weir_throttle_ask *)call;
}

static void put(struct weir_redis_ask *call, struct weir_buf *out, enum weir_redis_how how)
{
    const struct weir_throttle_ask *ask = ask_of(call);
    weir_redis_put_call(out, how, &(struct weir_redis_call){.counters = &ask->counter, .count = 1});
}

static void owe(const struct weir_throttle_ask *ask)
{
    if (ask->has_passed && ask->counter.op == WEIR_OP_TAKE)
        weir_ask_owe(ask->sent.asks, ask->counter.key, &ask->told, ask->counter.hits,
                     ask->decided_ns);
}

static int read_answer(struct weir_throttle_ask *ask, const struct weir_redis_answer *answer,
                       uint64_t *decided_ns)
{
    return weir_redis_answer_read(answer->reader, answer->nodes, answer->node_count, &ask->counter,
                                  1, decided_ns);
}

static void decide_alone(struct weir_throttle_ask *ask, struct weir_throttled *out)
{
    ask->decided_ns = weir_loop_now(ask->sent.asks->worker->loop);
    if (fall_back(ask->sent.asks, &ask->throttle, ask->decided_ns, out) != 0)
        decide_closed(&ask->throttle, out); /* a bucket that fills in more than 146 years */
    ask->has_passed = out->allowed;
}

static void call_done(struct weir_redis_ask *call, int err, const struct weir_redis_answer *answer)
{
    struct weir_throttle_ask *ask = ask_of(call);
    struct weir_asks *asks = ask->sent.asks;
    struct weir_throttle_waiter *waiter = ask->waiter;
    struct weir_throttled out;
    uint64_t decided_ns;
    if (err == 0)
        err = read_answer(ask, answer, &decided_ns);
    if (err == 0)
        weir_throttle_tell(asks->worker->session, &ask->limit, &ask->throttle,
                           &ask->counter.verdict, &out);
    else
        decide_alone(ask, &out);
    tell_over(asks, &ask->top, &out);
    if (waiter != NULL) {
        waiter->ask = NULL;
        waiter->done(waiter, &out);
    }
    if (err != 0 && err != WEIR_ERR_STORE_LATE)
        owe(ask);
    if (err != WEIR_ERR_STORE_LATE) /* of which more is heard */
        weir_ask_block_give(asks, ask);
}

static void returned(struct weir_ask_return *sent)
{
    weir_ask_block_give(sent->asks, sent);
}

void weir_ask_throttle_late(void *ctx, int err, const struct weir_redis_answer *answer)
{
    struct weir_throttle_ask *ask = ctx;
    uint64_t decided_ns;
    bool is_known = err == 0 && read_answer(ask, answer, &decided_ns) == 0;
    bool is_taken = is_known && ask->counter.op == WEIR_OP_TAKE && ask->counter.is_charged;
    if (!is_taken)
        owe(ask);
    if (!is_taken || ask->has_passed) {
        weir_ask_block_give(ask->sent.asks, ask);
        return;
    }
    weir_ask_make_return(&ask->counter);
    weir_ask_return(&ask->sent, returned);
}

struct weir_str weir_ask_throttle_name(struct weir_asks *asks, struct weir_str key)
{
    const struct weir_redis_entry entry = {
        .key = WEIR_STR(""), .value = key, .meaning = WEIR_REDIS_VALUE};
    struct weir_buf *names = &asks->planner.names;
    weir_buf_cut(names, 0);
    weir_redis_key_add(names, asks->prefix, WEIR_STR(""), &entry, 1, TAG);
    return weir_buf_str(names);
}

static enum weir_op op_of(const struct weir_throttle *throttle)
{
    if (throttle->quantity == 0)
        return WEIR_OP_LOOK;
    return throttle->quantity > 0 ? WEIR_OP_TAKE : WEIR_OP_GIVE;
}

/* The name goes behind the block's head.  NULL: there is no room. */
static struct weir_throttle_ask *take(struct weir_asks *asks, const struct weir_throttle *throttle,
                                      const struct weir_limit *limit)
{
    struct weir_str name = throttle->key;
    struct weir_throttle_ask *ask =
        name.len <= WEIR_ASK_BLOCK - sizeof(*ask) ? weir_ask_block_take(asks) : NULL;
    if (ask == NULL)
        return NULL;
    uint64_t quantity = (uint64_t)throttle->quantity;
    name.ptr = memcpy(ask + 1, name.ptr, name.len);
    *ask = (struct weir_throttle_ask){
        .sent = {.call = {.key = name, .put = put, .done = call_done}, .asks = asks},
        .throttle = *throttle,
        .limit = *limit,
        .told = *limit,
        .counter = {.key = name,
                    .limit = &ask->told,
                    .hits = throttle->quantity < 0 ? 0 - quantity : quantity,
                    .op = op_of(throttle),
                    .ends = true},
    };
    ask->throttle.key = name;
    ask->told.requests = 1; /* the rate: the same for all */
    ask->told.count_rejected = true;
    ask->sent.call.late_tag = weir_ask_tag(ask, WEIR_TAG_THROTTLE);
    return ask;
}

int weir_ask_throttle(struct weir_asks *asks, const struct weir_throttle *throttle, uint64_t now_ns,
                      struct weir_throttled *out, struct weir_throttle_waiter *waiter)
{
    const struct weir_limit *limit;
    struct weir_throttle named = *throttle;
    if (throttle->key.len > WEIR_VALUE_LEN_MAX)
        return WEIR_ERR_TOO_LARGE;
    struct weir_session *session = asks->worker->session;
    int err = weir_throttle_limit(&session->throttles, throttle, &limit);
    if (err != 0)
        return err;
    struct heard top = tell_asked(session, throttle, now_ns);
    named.key = weir_ask_throttle_name(asks, throttle->key);
    struct weir_throttle_ask *ask = take(asks, &named, limit);
    if (ask == NULL) {
        err = fall_back(asks, &named, now_ns, out);
        if (err == 0)
            tell_over(asks, &top, out);
        return err;
    }
    ask->top = top;
    weir_ask_add(asks, WEIR_ASK_COUNT_ASKED, 1);
    ask->waiter = waiter;
    waiter->ask = ask;
    weir_redis_link_ask(asks->link, &ask->sent.call);
    return WEIR_ASK_PENDING;
}

void weir_ask_throttle_cancel(struct weir_throttle_waiter *waiter)
{
    if (waiter->ask != NULL)
        waiter->ask->waiter = NULL;
    waiter->ask = NULL;
}
