/* algo_subject.h - what the property tests of lib/algo share: luck, and one limiter of any kind.
 *
 * Luck is a seed: WEIR_SEED, or the time.  It is printed, and a test that fails names the round and
 * the step, so that `WEIR_SEED=n` brings the same failure back.  WEIR_TEST_SCALE makes all of it
 * shorter or longer.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_ALGO_SUBJECT_H
#define WEIR_TESTS_ALGO_SUBJECT_H

#include "algo/fixed_window.h"
#include "algo/leaky_bucket.h"
#include "algo/sliding_counter.h"
#include "algo/sliding_log.h"
#include "algo/sub_windows.h"
#include "algo/token_bucket.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

#define NOW_MAX INT64_MAX
#define COUNT_MAX (UINT64_C(1) << 62) /* of a sliding counter */
#define CELLS 128                     /* most entries of a log here */

/* Sub-windows tell what is old by totals that are exact for 2^24 hits: a round has fewer. */
#define SUB_HITS_MAX (1u << 17)

/* ---- luck ---- */

struct luck {
    uint64_t seed, state;
    uint64_t round, step; /* where we are, for the report of a failure */
};

static inline uint64_t roll(struct luck *luck)
{
    uint64_t x = luck->state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* 0 .. most */
static inline uint64_t roll_to(struct luck *luck, uint64_t most)
{
    return most == UINT64_MAX ? roll(luck) : roll(luck) % (most + 1);
}

static inline bool one_in(struct luck *luck, uint64_t n)
{
    return roll(luck) % n == 0;
}

/* 0 .. most, of every order of magnitude, often at an end. */
static inline uint64_t roll_any(struct luck *luck, uint64_t most)
{
    switch (roll_to(luck, 5)) {
    case 0:
        return most - roll_to(luck, most < 2 ? most : 2);
    case 1:
    case 2:
        return roll_to(luck, most < 9 ? most : 9);
    default:
        return roll_to(luck, most >> roll_to(luck, 63));
    }
}

static inline struct luck luck_of(const char *test)
{
    const char *text = getenv("WEIR_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : (uint64_t)now.tv_nsec;
    print_message("# %s: WEIR_SEED=%" PRIu64 "\n", test, seed);
    return (struct luck){.seed = seed, .state = seed};
}

static inline uint64_t scaled(uint64_t rounds)
{
    const char *text = getenv("WEIR_TEST_SCALE");
    double scale = text != NULL ? strtod(text, NULL) : 1.0;
    return 1 + (uint64_t)((double)rounds * scale);
}

#define CHECK_ALL(luck, claim)                                                                     \
    do {                                                                                           \
        if (!(claim))                                                                              \
            fail_msg("%s does not hold: WEIR_SEED=%" PRIu64 ", round %" PRIu64 ", step %" PRIu64,  \
                     #claim, (luck)->seed, (luck)->round, (luck)->step);                           \
    } while (0)

static inline bool is_same(const struct weir_verdict *v, const struct weir_verdict *w)
{
    return v->allowed == w->allowed && v->limit == w->limit && v->remaining == w->remaining &&
           v->reset_after_ns == w->reset_after_ns && v->retry_after_ns == w->retry_after_ns &&
           v->delay_ns == w->delay_ns && v->before == w->before;
}

/* ---- one limiter of any kind ---- */

enum kind { FIXED, COUNTER, LOG, TOKEN, TICK, LEAKY, SUB, KINDS };

static const char *const kind_names[] = {"fixed window", "sliding counter", "sliding log",
                                         "token bucket", "interval refill", "leaky bucket",
                                         "sub-windows"};

struct subject {
    enum kind kind;
    struct weir_limit limit;
    union {
        struct weir_window window;
        struct weir_slide slide;
        struct weir_log log;
        struct weir_tat tat;
        struct weir_tick tick;
        struct weir_sub sub;
    } state;
    uint64_t cells[CELLS];
    uint32_t capacity;
};

/* Puts into the cells what the state says belongs there, as a store does before each call. */
static inline void flush(struct subject *s)
{
    if (s->kind == SUB)
        s->cells[s->state.sub.index % weir_sub_cells(&s->limit)] = weir_sub_cell(&s->state.sub);
    if (s->kind != LOG)
        return;
    struct weir_log_ring ring = {.cells = s->cells, .capacity = s->capacity};
    for (uint32_t rank = 1; rank <= s->state.log.run; rank++)
        s->cells[weir_log_cell(&s->state.log, &ring, rank)] = s->state.log.last_ns;
}

static inline struct weir_verdict take(struct subject *s, uint64_t now_ns, uint64_t hits)
{
    struct weir_verdict v;
    struct weir_log_ring ring = {.cells = s->cells, .capacity = s->capacity};
    flush(s);
    switch (s->kind) {
    case FIXED:
        weir_fixed_window_take(&s->limit, &s->state.window, now_ns, hits, &v);
        return v;
    case COUNTER:
        weir_sliding_counter_take(&s->limit, &s->state.slide, COUNT_MAX, now_ns, hits, &v);
        return v;
    case LOG:
        weir_sliding_log_take(&s->limit, &s->state.log, &ring, now_ns, hits, &v);
        return v;
    case TOKEN:
        weir_token_bucket_take(&s->limit, &s->state.tat, now_ns, hits, &v);
        return v;
    case TICK:
        weir_token_tick_take(&s->limit, &s->state.tick, now_ns, hits, &v);
        return v;
    case LEAKY:
        weir_leaky_bucket_take(&s->limit, &s->state.tat, now_ns, hits, &v);
        return v;
    case SUB:
        weir_sub_windows_take(&s->limit, &s->state.sub, s->cells, now_ns, hits, &v);
        return v;
    case KINDS:
        break;
    }
    abort();
}

/* Not for leaky buckets, whose places are given back by their marks. */
static inline struct weir_verdict give(struct subject *s, uint64_t now_ns, uint64_t hits)
{
    struct weir_verdict v;
    struct weir_log_ring ring = {.cells = s->cells, .capacity = s->capacity};
    flush(s);
    switch (s->kind) {
    case FIXED:
        weir_fixed_window_give(&s->limit, &s->state.window, now_ns, hits, &v);
        return v;
    case COUNTER:
        weir_sliding_counter_give(&s->limit, &s->state.slide, now_ns, hits, &v);
        return v;
    case LOG:
        weir_sliding_log_give(&s->limit, &s->state.log, &ring, now_ns, hits, &v);
        return v;
    case TOKEN:
        weir_token_bucket_give(&s->limit, &s->state.tat, now_ns, hits, &v);
        return v;
    case TICK:
        weir_token_tick_give(&s->limit, &s->state.tick, now_ns, hits, &v);
        return v;
    case SUB:
        weir_sub_windows_give(&s->limit, &s->state.sub, s->cells, now_ns, hits, &v);
        return v;
    case LEAKY:
    case KINDS:
        break;
    }
    abort();
}

static inline enum weir_algorithm algorithm_of(enum kind kind)
{
    static const enum weir_algorithm of[] = {
        [FIXED] = WEIR_FIXED_WINDOW,        [COUNTER] = WEIR_SLIDING_WINDOW_COUNTER,
        [LOG] = WEIR_SLIDING_WINDOW_LOG,    [TOKEN] = WEIR_TOKEN_BUCKET,
        [TICK] = WEIR_TOKEN_BUCKET,         [LEAKY] = WEIR_LEAKY_BUCKET,
        [SUB] = WEIR_SLIDING_WINDOW_COUNTER};
    return of[kind];
}

/* An unused limiter with random numbers, of those that weir_limit_init() accepts. */
static inline struct subject random_subject(struct luck *luck, enum kind kind, uint32_t limit_max)
{
    static const uint64_t windows_s[] = {1, 10, 60, 3600, 86400, 31536000, WEIR_WINDOW_S_MAX};
    static const uint32_t parts[] = {2, 4, 5, 8, 10, 64};
    if (kind == LOG && limit_max > CELLS - 3)
        limit_max = CELLS - 3;
    if (kind == SUB && limit_max > SUB_HITS_MAX)
        limit_max = SUB_HITS_MAX;
    struct subject s = {.kind = kind};
    for (;;) {
        uint32_t requests = (uint32_t)roll_any(luck, limit_max);
        struct weir_limit_spec spec = {
            .algorithm = algorithm_of(kind),
            .requests_per_unit = requests,
            .burst = one_in(luck, 2) ? requests : (uint32_t)roll_any(luck, limit_max),
            .window_s = one_in(luck, 2) ? windows_s[roll_to(luck, 6)]
                                        : 1 + roll_any(luck, WEIR_WINDOW_S_MAX - 1),
            .buckets = kind == SUB ? parts[roll_to(luck, 5)] : 1,
            .count_rejected = one_in(luck, 2),
            .round_up = one_in(luck, 2),
            .refill_interval = kind == TICK,
        };
        char why[200];
        if (weir_limit_init(&s.limit, &spec, why, sizeof(why)) == 0)
            break;
    }
    s.capacity = s.limit.requests + 1 + (uint32_t)roll_to(luck, 2);
    return s;
}

/* ---- random requests ---- */

/* Moves the clock: still, on, on to an edge, back a little, back a lot. */
static inline uint64_t random_time(struct luck *luck, const struct weir_limit *limit,
                                   uint64_t now_ns, uint64_t retry_ns)
{
    uint64_t window_ns = limit->window_ns;
    uint64_t on = 0, back = 0;
    switch (roll_to(luck, 9)) {
    case 0:
    case 1:
        break;
    case 2:
        on = roll_to(luck, window_ns);
        break;
    case 3:
        on = roll_any(luck, 2 * window_ns);
        break;
    case 4:
        on = limit->requests == 0 ? 1 : roll_to(luck, 3) * (window_ns / limit->requests + 1);
        break;
    case 5:
        on = window_ns - now_ns % window_ns;
        back = roll_to(luck, 1);
        break;
    case 6:
        on = retry_ns == WEIR_NEVER ? 0 : retry_ns;
        back = roll_to(luck, 1);
        break;
    case 7:
        back = roll_any(luck, window_ns);
        break;
    case 8:
        back = one_in(luck, 4) ? roll_any(luck, NOW_MAX) : roll_to(luck, window_ns / 8);
        break;
    default:
        on = roll_to(luck, window_ns / 16);
        break;
    }
    if (on > NOW_MAX - now_ns)
        return NOW_MAX;
    now_ns += on;
    return now_ns > back ? now_ns - back : 0;
}

static inline uint64_t random_start(struct luck *luck)
{
    return one_in(luck, 4) ? roll_any(luck, NOW_MAX) : UINT64_C(1700000000) * WEIR_NS_PER_S;
}

static inline uint64_t random_hits(struct luck *luck, const struct subject *s)
{
    switch (roll_to(luck, 7)) {
    case 0:
        return 0;
    case 1:
        return roll_any(luck, s->limit.requests);
    case 2:
        return roll_any(luck, s->kind == SUB ? SUB_HITS_MAX : s->limit.burst + UINT64_C(2));
    case 3:
        return one_in(luck, 4) ? roll_any(luck, s->kind == SUB ? SUB_HITS_MAX : UINT64_MAX)
                               : roll_to(luck, 4);
    default:
        return 1;
    }
}

#endif
