/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include "base/atomic16.h"
#include "base/err.h"
#include "base/str.h"
#include "store/local.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CHUNK 4096u /* operations between two looks at the clock */
#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)
#define KEY_LEN 24

/* A key as a caller would have it: 24 bytes, of which 8 tell one from another. */
union key {
    struct {
        uint64_t number;
        char rest[KEY_LEN - sizeof(uint64_t)];
    };
    char bytes[KEY_LEN];
};

/* One thread's way through the keys. */
struct walk {
    struct bench_ground *ground;
    struct weir_session *session; /* FULL only */
    uint64_t state;
    uint64_t result;
    uint64_t now_ns;
};

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * WEIR_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* The loops are compiled twice, since a processor waits even for a result that is masked away. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* The next number below `below`, by multiplication: a division would cost more than the hash. */
ALWAYS_INLINE uint64_t next_below(struct walk *w, uint64_t below, bool is_dependent)
{
    w->state = weir_mix64(w->state + GOLDEN + (is_dependent ? w->result : 0));
    return (uint64_t)(((weir_u128)w->state * below) >> 64);
}

static inline union key key_of(uint64_t number)
{
    return (union key){.number = number, .rest = "user:0123456789"};
}

static inline uint64_t hash_of(const struct bench_ground *ground, uint64_t number)
{
    union key key = key_of(number);
    return weir_siphash13(&ground->hash_key, key.bytes, KEY_LEN);
}

/* ---- the loops: n operations each, n a multiple of the batch ---- */

/* Relaxed, so plain instructions; atomic only so that two threads are not undefined. */
static inline uint64_t touch(uint64_t *word)
{
    uint64_t value = __atomic_load_n(word, __ATOMIC_RELAXED);
    __atomic_store_n(word, value + 1, __ATOMIC_RELAXED);
    return value;
}

ALWAYS_INLINE void loop_floor(struct walk *w, uint64_t n, bool is_dependent)
{
    struct bench_ground *g = w->ground;
    uint64_t batch = g->plan.batch;
    uint64_t *words[BENCH_BATCH_MAX];
    if (batch == 1) {
        for (uint64_t i = 0; i < n; i++)
            w->result = touch(&g->floor[2 * next_below(w, g->floor_len, is_dependent)]);
        return;
    }
    for (uint64_t i = 0; i < n; i += batch) {
        for (uint64_t j = 0; j < batch; j++) {
            words[j] = &g->floor[2 * next_below(w, g->floor_len, is_dependent)];
            __builtin_prefetch(words[j], 1);
            w->result = 0; /* within a batch nothing depends */
        }
        for (uint64_t j = 0; j < batch; j++)
            w->result += touch(words[j]);
    }
}

ALWAYS_INLINE void loop_hash(struct walk *w, uint64_t n, bool is_dependent)
{
    for (uint64_t i = 0; i < n; i++)
        w->result = hash_of(w->ground, next_below(w, w->ground->plan.keys, is_dependent));
}

static inline void take(struct walk *w, uint64_t hash)
{
    struct bench_ground *g = w->ground;
    struct weir_verdict verdict;
    uint64_t mark;
    w->now_ns += g->tick_ns;
    weir_local_take(g->table, &g->limit, hash, w->now_ns, 1, &verdict, &mark);
    /* A slot that is never returned would make every further request a refusal. */
    if (g->limit.algorithm == WEIR_CONCURRENCY)
        weir_local_release(g->table, &g->limit, hash, w->now_ns, 1, mark);
    w->result += verdict.remaining;
}

ALWAYS_INLINE void loop_table(struct walk *w, uint64_t n, bool is_dependent)
{
    struct bench_ground *g = w->ground;
    uint64_t batch = g->plan.batch;
    uint64_t hashes[BENCH_BATCH_MAX];
    for (uint64_t i = 0; i < n; i += batch) {
        for (uint64_t j = 0; j < batch; j++) {
            hashes[j] = hash_of(g, next_below(w, g->plan.keys, is_dependent));
            if (batch > 1)
                weir_local_prefetch(g->table, hashes[j]);
            w->result = 0;
        }
        for (uint64_t j = 0; j < batch; j++)
            take(w, hashes[j]);
    }
}

/* A request as a caller of libweir would make it, with the memory that it points to. */
struct full_request {
    char route[16];
    union key user;
    struct weir_entry entries[2];
    struct weir_descriptor descriptor;
    struct weir_status status;
};

static void make_request(const struct bench_ground *g, uint64_t number, struct full_request *full,
                         struct weir_request *request)
{
    uint64_t route = g->plan.is_uniform ? number % g->plan.rules : 0;
    size_t len = 0;
    do { /* snprintf would cost as much as all the rest */
        full->route[len++] = (char)('0' + route % 10);
        route /= 10;
    } while (route != 0);
    full->user = key_of(number);
    full->entries[0] = (struct weir_entry){WEIR_STR("route"), {full->route, len}};
    full->entries[1] = (struct weir_entry){WEIR_STR("user"), {full->user.bytes, KEY_LEN}};
    full->descriptor = (struct weir_descriptor){.entries = full->entries, .entry_count = 2};
    *request = (struct weir_request){
        .domain = WEIR_STR("bench"),
        .descriptors = &full->descriptor,
        .descriptor_count = 1,
    };
}

ALWAYS_INLINE void loop_full(struct walk *w, uint64_t n, bool is_dependent)
{
    struct bench_ground *g = w->ground;
    uint64_t batch = g->plan.batch;
    struct full_request full[BENCH_BATCH_MAX];
    struct weir_request requests[BENCH_BATCH_MAX];
    struct weir_decision decisions[BENCH_BATCH_MAX];
    int errors[BENCH_BATCH_MAX];
    for (uint64_t i = 0; i < n; i += batch) {
        for (uint64_t j = 0; j < batch; j++) {
            make_request(g, next_below(w, g->plan.keys, is_dependent), &full[j], &requests[j]);
            decisions[j].statuses = &full[j].status;
            w->result = 0;
        }
        w->now_ns += g->tick_ns * batch;
        if (batch == 1)
            errors[0] = weir_check(w->session, requests, w->now_ns, decisions);
        else
            weir_check_many(w->session, requests, batch, w->now_ns, decisions, errors);
        for (uint64_t j = 0; j < batch; j++) {
            WEIR_ASSERT(errors[j] == 0 && full[j].status.is_limited);
            w->result += full[j].status.remaining;
        }
    }
}

#define BOTH(loop)                                                                                 \
    static void loop##_dependent(struct walk *w, uint64_t n)                                       \
    {                                                                                              \
        loop(w, n, true);                                                                          \
    }                                                                                              \
    static void loop##_independent(struct walk *w, uint64_t n)                                     \
    {                                                                                              \
        loop(w, n, false);                                                                         \
    }
BOTH(loop_floor)
BOTH(loop_hash)
BOTH(loop_table)
BOTH(loop_full)

static void (*const loops[BENCH_LOOPS][2])(struct walk *, uint64_t) = {
    [BENCH_FLOOR] = {loop_floor_independent, loop_floor_dependent},
    [BENCH_HASH] = {loop_hash_independent, loop_hash_dependent},
    [BENCH_TABLE] = {loop_table_independent, loop_table_dependent},
    [BENCH_FULL] = {loop_full_independent, loop_full_dependent},
};

/* ---- filling ---- */

int bench_fill(struct bench_ground *g)
{
    struct walk w = {.ground = g, .now_ns = g->start_ns};
    struct full_request full;
    struct weir_request request;
    struct weir_decision decision = {.statuses = &full.status};
    for (uint64_t i = 0; i < g->plan.keys; i++)
        take(&w, hash_of(g, i));
    if (!g->plan.is_full)
        return 0;
    int err = weir_session_open(&w.session, g->engine);
    for (uint64_t i = 0; i < g->plan.keys && err == 0; i++) {
        make_request(g, i, &full, &request);
        err = weir_check(w.session, &request, g->start_ns, &decision);
    }
    weir_session_close(w.session);
    return err;
}

/* ---- always the same ---- */

/* Not static, not inlined: a profiler knows it by its name. */
void bench_fixed_loop(struct walk *w, enum bench_loop loop);
__attribute__((noinline)) void bench_fixed_loop(struct walk *w, enum bench_loop loop)
{
    const struct bench_plan *plan = &w->ground->plan;
    loops[loop][plan->is_dependent](w, (plan->fixed + plan->batch - 1) / plan->batch * plan->batch);
}

int bench_fixed(struct bench_ground *g)
{
    enum bench_loop loop = g->plan.is_full ? BENCH_FULL : BENCH_TABLE;
    struct walk w = {.ground = g, .state = GOLDEN, .now_ns = g->start_ns};
    if (g->plan.is_full) {
        int err = weir_session_open(&w.session, g->engine);
        if (err != 0)
            return err;
    }
    bench_fixed_loop(&w, loop);
    weir_session_close(w.session);
    return 0;
}

/* ---- threads ---- */

struct runner {
    pthread_t thread;
    struct walk walk;
    enum bench_loop loop;
    uint64_t cpu;
    uint64_t duration_ns;
    atomic_uint *waiting; /* how many have not arrived at the start */
    uint64_t ops, elapsed_ns;
};

/* Binds the calling thread to the number-th of the processors that we may use. */
static void pin(uint64_t number)
{
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
        return;
    uint64_t left = number % (uint64_t)CPU_COUNT(&allowed);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || left-- > 0)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
        return;
    }
}

static void *run(void *arg)
{
    struct runner *r = arg;
    const struct bench_plan *plan = &r->walk.ground->plan;
    void (*loop)(struct walk *, uint64_t) = loops[r->loop][plan->is_dependent];
    uint64_t chunk = CHUNK / plan->batch * plan->batch;
    pin(r->cpu);
    loop(&r->walk, chunk); /* warm; not timed */
    /* All start together: acquire and release, so that nobody's first chunk moves before. */
    atomic_fetch_sub_explicit(r->waiting, 1, memory_order_acq_rel);
    while (atomic_load_explicit(r->waiting, memory_order_acquire) != 0)
        sched_yield();
    uint64_t begin_ns = clock_ns();
    do {
        loop(&r->walk, chunk);
        r->ops += chunk;
        r->elapsed_ns = clock_ns() - begin_ns;
    } while (r->elapsed_ns < r->duration_ns);
    return NULL;
}

static int start(struct runner *r, struct bench_ground *g, uint64_t number)
{
    r->walk = (struct walk){
        .ground = g,
        .state = weir_mix64(clock_ns() + number),
        .now_ns = g->start_ns,
    };
    r->cpu = number;
    if (r->loop == BENCH_FULL) {
        int err = weir_session_open(&r->walk.session, g->engine);
        if (err != 0)
            return err;
    }
    return pthread_create(&r->thread, NULL, run, r) == 0 ? 0 : WEIR_ERR_IO;
}

int bench_measure(struct bench_ground *g, enum bench_loop loop, uint64_t duration_ns,
                  struct bench_time *out)
{
    struct runner *runners = calloc(g->plan.threads, sizeof(*runners));
    if (runners == NULL)
        return WEIR_ERR_NOMEM;
    atomic_uint waiting = (unsigned)g->plan.threads;
    uint64_t started = 0;
    int err = 0;
    for (; started < g->plan.threads && err == 0; started++) {
        struct runner *r = &runners[started];
        *r = (struct runner){.loop = loop, .duration_ns = duration_ns, .waiting = &waiting};
        err = start(r, g, started);
    }
    if (err != 0) { /* let those who wait for the missing ones go */
        weir_session_close(runners[--started].walk.session);
        atomic_store_explicit(&waiting, 0, memory_order_release);
    }
    struct bench_time time = {0};
    for (uint64_t i = 0; i < started; i++) {
        struct runner *r = &runners[i];
        pthread_join(r->thread, NULL);
        weir_session_close(r->walk.session);
        time.ns_per_op += (double)r->elapsed_ns / (double)r->ops / (double)g->plan.threads;
        time.ops_per_s += (double)r->ops / (double)r->elapsed_ns * 1e9;
    }
    free(runners);
    if (err == 0)
        *out = time;
    return err;
}
