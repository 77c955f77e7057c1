/* link_rig.h - a link to Redis in a thread of its own, and calls through it, many at a time.
 *
 *     link_rig_start(&rig, &(struct weir_redis_link_options){.url = "unix:/..."});
 *     struct link_tally got = link_rig_call(&rig, put_hit, 100);      in one turn; all are over
 *
 * Every wait has a deadline; nothing sleeps for a fixed time and hopes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_LINK_RIG_H
#define WEIR_TESTS_LINK_RIG_H

#include "redis_rig.h"
#include "serve/redis_link.h"

#include <pthread.h>

#define LINK_RIG_CALLS_MAX 8192
#define LINK_RIG_KEYS 16
#define LINK_RIG_PATIENCE_S 60
#define LINK_RIG_DEADLINE_MS 250
#define LINK_RIG_PATIENT_MS 30000 /* where all is well: a busy machine is no failure */

struct link_rig;
typedef void (*link_put)(struct weir_redis_ask *ask, struct weir_buf *out, enum weir_redis_how how);

struct link_call {
    struct weir_redis_ask ask;
    struct link_rig *rig;
    uint32_t number;
    char key[32];
    int err;
    int64_t value;     /* of an integer, or of the digits of a string */
    uint64_t taken_ns; /* from ask() to done() */
    uint64_t order;    /* how many were done before */
};

struct link_tally {
    uint64_t good, away, late, failed;
};

struct link_rig {
    struct weir_loop *loop;
    struct weir_redis_link *link;
    pthread_t thread;
    struct weir_post post;
    struct weir_post free_post;
    uint32_t count;
    uint32_t keys;         /* of put_count() and put_hit(), in turn */
    uint32_t cancel_every; /* 0: none */
    uint64_t waited_ns;    /* every other call has waited so long before */
    _Atomic uint64_t over; /* calls of this round */
    _Atomic uint64_t late_good, late_away, late_unknown;
    _Atomic uint64_t rung, is_freed;
    uint64_t wrong;        /* done() twice, or an answer to another */
    struct link_tally all; /* since the start */
    uint64_t slowest_ns;
    struct weir_limit limit;
    struct link_call calls[LINK_RIG_CALLS_MAX];
};

static inline uint64_t link_rig_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline void link_rig_await(const _Atomic uint64_t *counter, uint64_t least)
{
    uint64_t until_ns = link_rig_now() + LINK_RIG_PATIENCE_S * UINT64_C(1000000000);
    while (atomic_load(counter) < least) {
        if (link_rig_now() > until_ns)
            fail_msg("%llu instead of %llu", (unsigned long long)atomic_load(counter),
                     (unsigned long long)least);
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
}

/* ---- in the loop's thread ---- */

static inline void link_rig_done(struct weir_redis_ask *ask, int err,
                                 const struct weir_redis_answer *answer)
{
    struct link_call *call = (struct link_call *)ask;
    struct link_rig *rig = call->rig;
    rig->wrong += call->err != 1 || (answer != NULL) != (err == 0 || err == WEIR_ERR_STORE);
    call->err = err;
    call->taken_ns = link_rig_now() - call->taken_ns;
    call->order = atomic_load(&rig->over);
    if (err == 0) {
        struct weir_str text = weir_redis_node_str(answer->reader, &answer->nodes[0]);
        char digits[32];
        snprintf(digits, sizeof(digits), "%.*s", (int)(text.len < 31 ? text.len : 31),
                 text.ptr != NULL ? text.ptr : "");
        call->value = answer->nodes[0].type == WEIR_REDIS_INTEGER ? answer->nodes[0].number
                                                                  : strtoll(digits, NULL, 10);
        rig->wrong += answer->sent_ns > answer->answered_ns;
    }
    atomic_fetch_add(&rig->over, 1);
}

static inline void link_rig_on_late(void *ctx, uint64_t tag, int err,
                                    const struct weir_redis_answer *answer)
{
    struct link_rig *rig = ctx;
    rig->wrong += tag == 0 || (answer != NULL) != (err == 0);
    if (err == 0)
        atomic_fetch_add(&rig->late_good, 1);
    else if (err == WEIR_ERR_STORE_AWAY)
        atomic_fetch_add(&rig->late_away, 1);
    else
        atomic_fetch_add(&rig->late_unknown, 1);
}

static inline void link_rig_ask_all(struct weir_post *post, struct weir_loop *loop)
{
    struct link_rig *rig = (struct link_rig *)((char *)post - offsetof(struct link_rig, post));
    (void)loop;
    for (uint32_t i = 0; i < rig->count; i++) {
        rig->calls[i].taken_ns = link_rig_now();
        if (rig->waited_ns > 0 && i % 2 == 1)
            rig->calls[i].ask.since_ns = rig->calls[i].taken_ns - rig->waited_ns;
        weir_redis_link_ask(rig->link, &rig->calls[i].ask);
    }
    for (uint32_t i = 0; rig->cancel_every > 0 && i < rig->count; i += rig->cancel_every) {
        weir_redis_link_cancel(rig->link, &rig->calls[i].ask);
        weir_redis_link_cancel(rig->link, &rig->calls[i].ask); /* twice is as good as once */
        atomic_fetch_add(&rig->over, 1);
    }
}

static inline void link_rig_free_link(struct weir_post *post, struct weir_loop *loop)
{
    struct link_rig *rig = (struct link_rig *)((char *)post - offsetof(struct link_rig, free_post));
    (void)loop;
    weir_redis_link_free(rig->link);
    rig->link = NULL;
    atomic_store(&rig->is_freed, 1);
}

static inline uint64_t link_rig_clock(void *ctx)
{
    (void)ctx;
    return link_rig_now();
}

static inline void *link_rig_thread(void *ctx)
{
    weir_loop_run(ctx, link_rig_clock, NULL);
    return NULL;
}

/* ---- in the test's ---- */

static inline void link_rig_start(struct link_rig *rig,
                                  const struct weir_redis_link_options *options)
{
    struct weir_redis_link_options o = *options;
    char why[256] = "";
    const struct weir_limit_spec spec = {
        .algorithm = WEIR_FIXED_WINDOW, .requests_per_unit = 1000000000, .window_s = 3600};
    signal(SIGPIPE, SIG_IGN);
    memset(rig, 0, sizeof(*rig));
    rig->keys = LINK_RIG_KEYS;
    rig->post.run = link_rig_ask_all;
    rig->free_post.run = link_rig_free_link;
    assert_int_equal(weir_limit_init(&rig->limit, &spec, why, sizeof(why)), 0);
    o.on_late = link_rig_on_late;
    o.ctx = rig;
    if (o.deadline_ms == 0)
        o.deadline_ms = LINK_RIG_DEADLINE_MS;
    assert_int_equal(weir_loop_new(&rig->loop), 0);
    if (weir_redis_link_new(&rig->link, rig->loop, &o, why, sizeof(why)) != 0)
        fail_msg("%s", why);
    assert_int_equal(pthread_create(&rig->thread, NULL, link_rig_thread, rig->loop), 0);
}

static inline void link_rig_stop(struct link_rig *rig)
{
    weir_loop_stop(rig->loop, 0);
    assert_int_equal(pthread_join(rig->thread, NULL), 0);
    weir_redis_link_free(rig->link);
    weir_loop_free(rig->loop);
    assert_int_equal(rig->wrong, 0);
}

/* Begins so many calls, in one turn. */
static inline void link_rig_begin(struct link_rig *rig, link_put put, uint32_t count)
{
    assert_true(count <= LINK_RIG_CALLS_MAX);
    rig->count = count;
    atomic_store(&rig->over, 0);
    for (uint32_t i = 0; i < count; i++) {
        struct link_call *call = &rig->calls[i];
        *call = (struct link_call){.rig = rig, .number = i, .err = 1};
        snprintf(call->key, sizeof(call->key), "key:%u", (unsigned)i % rig->keys);
        call->ask.key = weir_str_of(call->key);
        call->ask.put = put;
        call->ask.done = link_rig_done;
        call->ask.late_tag = i + 1;
    }
    weir_loop_post(rig->loop, &rig->post);
}

/* Waits for them. */
static inline struct link_tally link_rig_end(struct link_rig *rig)
{
    struct link_tally got = {0};
    link_rig_await(&rig->over, rig->count);
    for (uint32_t i = 0; i < rig->count; i++) {
        const struct link_call *call = &rig->calls[i];
        got.good += call->err == 0;
        got.away += call->err == WEIR_ERR_STORE_AWAY;
        got.late += call->err == WEIR_ERR_STORE_LATE;
        got.failed += call->err == WEIR_ERR_STORE;
        if (call->err <= 0 && call->taken_ns > rig->slowest_ns)
            rig->slowest_ns = call->taken_ns;
    }
    rig->all.good += got.good;
    rig->all.away += got.away;
    rig->all.late += got.late;
    rig->all.failed += got.failed;
    return got;
}

static inline struct link_tally link_rig_call(struct link_rig *rig, link_put put, uint32_t count)
{
    link_rig_begin(rig, put, count);
    return link_rig_end(rig);
}

/* Calls until so many of a round are answered, and the others away; how long that took, in ms. */
static inline uint64_t link_rig_until(struct link_rig *rig, link_put put, uint32_t count,
                                      uint64_t good)
{
    uint64_t begun_ns = link_rig_now();
    for (;;) {
        struct link_tally got = link_rig_call(rig, put, count);
        if (got.good == good && got.away == count - good)
            return (link_rig_now() - begun_ns) / 1000000;
        assert_true(link_rig_now() - begun_ns < LINK_RIG_PATIENCE_S * UINT64_C(1000000000));
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}

/* Calls until a round of them is answered. */
static inline uint64_t link_rig_recover(struct link_rig *rig, link_put put)
{
    return link_rig_until(rig, put, 10, 10);
}

/* Calls until none of a round is answered. */
static inline void link_rig_lose(struct link_rig *rig, link_put put)
{
    (void)link_rig_until(rig, put, 10, 0);
}

/* ---- commands ---- */

static inline void put_words(struct weir_buf *out, const char *const *words, uint32_t count)
{
    struct weir_str args[8];
    for (uint32_t i = 0; i < count; i++)
        args[i] = weir_str_of(words[i]);
    weir_redis_put_command(out, args, count);
}

/* Comes back with the call's own number. */
static inline void put_echo(struct weir_redis_ask *ask, struct weir_buf *out,
                            enum weir_redis_how how)
{
    char number[16];
    (void)how;
    snprintf(number, sizeof(number), "%u", (unsigned)((struct link_call *)ask)->number);
    put_words(out, (const char *const[]){"ECHO", number}, 2);
}

/* Counts, in a key of the call's. */
static inline void put_count(struct weir_redis_ask *ask, struct weir_buf *out,
                             enum weir_redis_how how)
{
    (void)how;
    put_words(out, (const char *const[]){"INCR", ((struct link_call *)ask)->key}, 2);
}

/* A decision by the script, of a window that nothing exhausts. */
static inline void put_hit(struct weir_redis_ask *ask, struct weir_buf *out,
                           enum weir_redis_how how)
{
    const struct link_call *call = (struct link_call *)ask;
    char key[48];
    snprintf(key, sizeof(key), "hit:{%s}", call->key);
    struct weir_redis_counter counter = {
        .key = weir_str_of(key), .limit = &call->rig->limit, .hits = 1, .ends = true};
    weir_redis_put_call(out, how, &(struct weir_redis_call){.counters = &counter, .count = 1});
}

#endif
