/* algo_sketch.c - a sketch beside the exact algorithms.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/sketch.h"
#include "algo_subject.h"

#include <pthread.h>
#include <string.h>

#define DEPTH 4
#define WIDTH 4096  /* some of 8 keys meet others in a row; in all, in one of five million runs */
#define BLOOM 32768 /* words that two keys do not share */

_Alignas(16) static unsigned char cells[DEPTH * WIDTH * 16];
static uint64_t bloom[BLOOM];

/* A sketch of which no more than width cells a row are used. */
static struct weir_approx empty_sketch(uint32_t width, uint32_t depth, uint32_t bloom_words)
{
    memset(cells, 0, (size_t)width * depth * 16);
    memset(bloom, 0, bloom_words * sizeof(bloom[0]));
    return (struct weir_approx){
        .width = width, .depth = depth, .bloom_words = bloom_words, .cells = cells, .bloom = bloom};
}

/* A limit that a sketch can keep, as it keeps it: refused hits do not count. */
static struct subject sketchable(struct luck *luck, enum kind kind, uint32_t limit_max)
{
    struct subject s = random_subject(luck, kind, limit_max);
    s.limit.count_rejected = false;
    return s;
}

/* A clock that is never more than so many windows behind the latest that it showed. */
static uint64_t nearby_time(struct luck *luck, const struct weir_limit *limit, uint64_t now_ns,
                            uint64_t *latest_ns, uint64_t windows_back)
{
    uint64_t then_ns = random_time(luck, limit, now_ns, 0);
    if (then_ns < *latest_ns && (*latest_ns - then_ns) / limit->window_ns >= windows_back)
        then_ns = *latest_ns;
    *latest_ns = then_ns > *latest_ns ? then_ns : *latest_ns;
    return then_ns;
}

struct comparison {
    const char *name;
    uint32_t keys;
    uint32_t width;
    uint32_t bloom_words;
    uint64_t windows_back;
};

static void compare(const struct comparison *how, const enum kind *kinds, uint32_t kind_count)
{
    struct luck luck = luck_of(how->name);
    uint64_t rounds = scaled(3000);
    for (luck.round = 0; luck.round < rounds; luck.round++) {
        struct subject exact[8] = {sketchable(&luck, kinds[luck.round % kind_count],
                                              one_in(&luck, 2) ? 20 : WEIR_SKETCH_COUNT_MAX - 1)};
        for (uint32_t i = 1; i < how->keys; i++)
            exact[i] = exact[0];
        const struct weir_limit *l = &exact[0].limit;
        struct weir_approx approx = empty_sketch(how->width, DEPTH, how->bloom_words);
        uint64_t salt = roll(&luck), now_ns = random_start(&luck), latest_ns = now_ns;
        for (luck.step = 0; luck.step < 80; luck.step++) {
            now_ns = nearby_time(&luck, l, now_ns, &latest_ns, how->windows_back);
            uint64_t hits = random_hits(&luck, &exact[0]), key = roll_to(&luck, how->keys - 1);
            struct weir_verdict v = take(&exact[key], now_ns, hits), w, look;
            weir_sketch_look(l, &approx, salt + key, now_ns, hits, &look);
            weir_sketch_take(l, &approx, salt + key, now_ns, hits, &w);
            CHECK_ALL(&luck, is_same(&v, &look));
            CHECK_ALL(&luck, is_same(&v, &w));
        }
    }
}

static void one_key_decides_as_counting_does_on_any_clock(void **state)
{
    (void)state;
    static const enum kind kinds[] = {FIXED, COUNTER, TOKEN, LEAKY};
    compare(&(struct comparison){"one key", 1, 16, 0, 8}, kinds, 4);
}

static void few_keys_in_a_wide_sketch_decide_as_counting_does(void **state)
{
    (void)state;
    static const enum kind kinds[] = {FIXED, COUNTER, TOKEN, LEAKY};
    compare(&(struct comparison){"few keys", 8, WIDTH, 0, 0}, kinds, 4);
}

static void behind_a_bloom_filter_they_still_do(void **state)
{
    (void)state;
    static const enum kind kinds[] = {FIXED};
    compare(&(struct comparison){"one key, filtered", 1, 16, 64, 1}, kinds, 1);
    compare(&(struct comparison){"few keys, filtered", 2, WIDTH, BLOOM, 0}, kinds, 1);
}

/* Whatever a crowded sketch admits, counting those hits alone would admit too. */
static void a_crowded_sketch_never_admits_too_much(void **state)
{
    (void)state;
    static const enum kind kinds[] = {FIXED, COUNTER, LOG, TOKEN, LEAKY, FIXED, SUB};
    struct luck luck = luck_of("crowded");
    uint64_t rounds = scaled(700), admitted = 0;
    for (luck.round = 0; luck.round < rounds; luck.round++) {
        struct subject exact[64] = {sketchable(&luck, kinds[luck.round % 7], 40)};
        for (uint32_t i = 1; i < 64; i++)
            exact[i] = exact[0];
        const struct weir_limit *l = &exact[0].limit;
        struct weir_approx approx =
            empty_sketch(16, 1 + (uint32_t)roll_to(&luck, 2), luck.round % 2 ? 16 : 0);
        uint64_t now_ns = UINT64_C(1700000000) * WEIR_NS_PER_S;
        for (luck.step = 0; luck.step < 600; luck.step++) {
            uint64_t on_ns = one_in(&luck, 2) ? 0 : roll_any(&luck, l->window_ns / 4);
            now_ns = on_ns > NOW_MAX - now_ns ? NOW_MAX : now_ns + on_ns;
            uint64_t hits = roll_to(&luck, 3), key = roll_any(&luck, 63);
            struct weir_verdict v;
            weir_sketch_take(l, &approx, key, now_ns, hits, &v);
            if (v.allowed && hits > 0)
                CHECK_ALL(&luck, take(&exact[key], now_ns, hits).allowed);
            admitted += v.allowed ? hits : 0;
        }
    }
    assert_true(admitted > 0);
}

/* What a window gives back can be taken again, and others' hits stay. */
static void a_refund_takes_only_the_keys_own_hits(void **state)
{
    (void)state;
    static const enum kind kinds[] = {FIXED, COUNTER};
    struct luck luck = luck_of("refunds");
    uint64_t rounds = scaled(3000);
    for (luck.round = 0; luck.round < rounds; luck.round++) {
        struct subject exact = sketchable(&luck, kinds[luck.round % 2], 1000);
        const struct weir_limit *l = &exact.limit;
        struct weir_approx approx = empty_sketch(64, DEPTH, 0);
        uint64_t now_ns = random_start(&luck), key = roll(&luck);
        for (luck.step = 0; luck.step < 20 && l->requests > 0; luck.step++) {
            uint64_t hits = roll_to(&luck, l->requests), back = roll_to(&luck, hits);
            struct weir_verdict v, w = take(&exact, now_ns, hits);
            weir_sketch_take(l, &approx, key, now_ns, hits, &v);
            CHECK_ALL(&luck, is_same(&v, &w));
            w = give(&exact, now_ns, back);
            weir_sketch_give(l, &approx, key, now_ns, back, &v);
            CHECK_ALL(&luck, is_same(&v, &w));
        }
    }
}

/* ---- threads ---- */

#define THREADS 4
#define TAKES 20000

struct racer {
    const struct weir_limit *limit;
    const struct weir_approx *approx;
    uint64_t admitted;
};

static void *race(void *arg)
{
    struct racer *racer = arg;
    for (int i = 0; i < TAKES; i++) {
        struct weir_verdict v;
        weir_sketch_take(racer->limit, racer->approx, 42, UINT64_C(1700000000500000000), 1, &v);
        racer->admitted += v.allowed ? 1 : 0;
    }
    return NULL;
}

static void threads_that_race_admit_no_more_than_the_limit(void **state)
{
    (void)state;
    static const enum kind kinds[] = {FIXED, FIXED, COUNTER, LOG, TOKEN};
    for (uint32_t i = 0; i < 5; i++) {
        struct weir_limit_spec spec = {.algorithm = algorithm_of(kinds[i]),
                                       .requests_per_unit = THREADS * TAKES / 2,
                                       .burst = THREADS * TAKES / 2,
                                       .window_s = 3600,
                                       .buckets = 1};
        struct weir_limit limit;
        assert_int_equal(weir_limit_init(&limit, &spec, NULL, 0), 0);
        struct weir_approx approx = empty_sketch(16, DEPTH, i == 1 ? 16 : 0);
        struct racer racers[THREADS];
        pthread_t threads[THREADS];
        for (uint32_t t = 0; t < THREADS; t++) {
            racers[t] = (struct racer){.limit = &limit, .approx = &approx};
            assert_int_equal(pthread_create(&threads[t], NULL, race, &racers[t]), 0);
        }
        uint64_t admitted = 0;
        for (uint32_t t = 0; t < THREADS; t++) {
            pthread_join(threads[t], NULL);
            admitted += racers[t].admitted;
        }
        assert_true(admitted <= limit.requests);
        assert_true(admitted >= limit.requests - THREADS * DEPTH);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_key_decides_as_counting_does_on_any_clock),
        cmocka_unit_test(few_keys_in_a_wide_sketch_decide_as_counting_does),
        cmocka_unit_test(behind_a_bloom_filter_they_still_do),
        cmocka_unit_test(a_crowded_sketch_never_admits_too_much),
        cmocka_unit_test(a_refund_takes_only_the_keys_own_hits),
        cmocka_unit_test(threads_that_race_admit_no_more_than_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
