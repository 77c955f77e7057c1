/* store_rig.h - a table, limits on it, and a crew of threads or processes that works on both.
 *
 *     struct rig_crew crew = {.path = path, .work = hit_one_key, .shared = counters};
 *     rig_run(&crew, RIG_PROCESSES);
 *
 * Threads share one table handle; each process opens the file itself, as strangers would.  What
 * a crew counts it counts in memory from rig_shared(), which both kinds see.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_STORE_RIG_H
#define WEIR_TESTS_STORE_RIG_H

#include "base/hash.h"
#include "store/local.h"
#include "table/table.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#define RIG_START_NS (UINT64_C(1700006400) * 1000000000) /* a midnight */
#define RIG_CREW 8u

enum rig_kind { RIG_THREADS, RIG_PROCESSES };

/* `n` as the sanitizer builds want it: smaller, but at least `least`. */
static inline uint64_t rig_scaled(uint64_t n, uint64_t least)
{
    const char *text = getenv("WEIR_TEST_SCALE");
    double scale = text != NULL ? strtod(text, NULL) : 1.0;
    uint64_t scaled = (uint64_t)((double)n * (scale > 0 ? scale : 1.0));
    return scaled > least ? scaled : least;
}

/* Printed, so that what fails can be run again: WEIR_SEED=... */
static inline uint64_t rig_seed(void)
{
    const char *text = getenv("WEIR_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
    printf("# seed %" PRIu64 "\n", seed);
    fflush(stdout);
    return seed;
}

/* splitmix64: every state is a good one. */
static inline uint64_t rig_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* The n-th key of a series, as a hash would have made it. */
static inline uint64_t rig_key(uint64_t series, uint64_t n)
{
    uint64_t state = series * UINT64_C(0x2545f4914f6cdd1d) + n;
    return rig_random(&state);
}

static inline void *rig_shared(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    return at;
}

/* A path that nobody has, in shared memory. */
static inline void rig_path(char *out, size_t len)
{
    static unsigned count;
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    snprintf(out, len, "/dev/shm/weir-test-%d-%u-%lx", (int)getpid(), count++,
             (unsigned long)ts.tv_nsec);
}

static inline struct weir_table *rig_open(const char *path,
                                          const struct weir_table_geometry *geometry)
{
    char why[512] = "";
    struct weir_table *table = NULL;
    if (weir_table_open(&table, path, geometry, why, sizeof why) != 0) {
        printf("# %s\n", why);
        abort(); /* also in a child, where a failed assertion would run the parent's tests */
    }
    return table;
}

/* A bound limit.  burst 0: as requests.  The tag is the name that the records know it by. */
static inline struct weir_limit rig_limit(struct weir_table *table, struct weir_limit_spec spec,
                                          uint64_t tag)
{
    char why[256] = "";
    struct weir_limit limit = {0};
    if (spec.burst == 0)
        spec.burst = spec.requests_per_unit;
    if (spec.buckets == 0)
        spec.buckets = 1;
    if (weir_limit_init(&limit, &spec, why, sizeof why) != 0) {
        printf("# %s\n", why);
        abort();
    }
    limit.tag = tag;
    if (weir_local_bind(table, &limit) != 0)
        abort();
    return limit;
}

static inline bool rig_take(struct weir_table *table, const struct weir_limit *limit, uint64_t key,
                            uint64_t now_ns, uint64_t hits)
{
    struct weir_verdict verdict;
    uint64_t mark;
    weir_local_take(table, limit, key, now_ns, hits, &verdict, &mark);
    return verdict.allowed;
}

/* Waits until all of the crew are here.  Yields: there may be fewer processors than workers. */
struct rig_barrier {
    uint32_t arrived, round;
};

static inline void rig_meet(struct rig_barrier *at, uint32_t count)
{
    uint32_t round = __atomic_load_n(&at->round, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&at->arrived, 1, __ATOMIC_ACQ_REL) == count) {
        __atomic_store_n(&at->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&at->round, round + 1, __ATOMIC_RELEASE);
        return;
    }
    while (__atomic_load_n(&at->round, __ATOMIC_ACQUIRE) == round)
        sched_yield();
}

struct rig_crew {
    const char *path;
    const struct weir_table_geometry *geometry;
    void (*work)(const struct rig_crew *crew, struct weir_table *table, uint32_t worker);
    void *shared; /* the caller's, from rig_shared() */
    struct rig_barrier *barrier;
    const void *about; /* what the caller wants its workers to know */
};

struct rig_worker {
    const struct rig_crew *crew;
    struct weir_table *table;
    uint32_t number;
};

static inline void *rig_thread(void *ctx)
{
    struct rig_worker *me = ctx;
    me->crew->work(me->crew, me->table, me->number);
    return NULL;
}

static inline void rig_run_threads(const struct rig_crew *crew)
{
    struct rig_worker workers[RIG_CREW];
    pthread_t threads[RIG_CREW];
    struct weir_table *table = rig_open(crew->path, crew->geometry);
    for (uint32_t i = 0; i < RIG_CREW; i++) {
        workers[i] = (struct rig_worker){crew, table, i};
        assert_int_equal(pthread_create(&threads[i], NULL, rig_thread, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < RIG_CREW; i++)
        pthread_join(threads[i], NULL);
    weir_table_close(table);
}

static inline void rig_run_processes(const struct rig_crew *crew)
{
    fflush(stdout);
    for (uint32_t i = 0; i < RIG_CREW; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct weir_table *table = rig_open(crew->path, crew->geometry);
            crew->work(crew, table, i);
            weir_table_close(table);
            _exit(0);
        }
    }
    for (uint32_t i = 0; i < RIG_CREW; i++) {
        int status;
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
}

/* ThreadSanitizer replaces the 16-byte swap by a lock that each process has for itself, so there
 * processes are not what they are elsewhere: it gets threads instead. */
#ifdef __SANITIZE_THREAD__
#define RIG_HAS_PROCESSES false
#else
#define RIG_HAS_PROCESSES true
#endif

static inline void rig_run(struct rig_crew *crew, enum rig_kind kind)
{
    if (!RIG_HAS_PROCESSES)
        kind = RIG_THREADS;
    crew->barrier = rig_shared(sizeof *crew->barrier);
    if (kind == RIG_THREADS)
        rig_run_threads(crew);
    else
        rig_run_processes(crew);
    munmap(crew->barrier, sizeof *crew->barrier);
}

#endif
