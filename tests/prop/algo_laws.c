/* algo_laws.c - what every algorithm promises, whatever its formula: checked on random traffic.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo_subject.h"

#define STEPS 200

__extension__ typedef __int128 big;

/* What passed, and when (a leaky bucket's: when the last hit of it left). */
struct passed {
    uint64_t at_ns, hits;
};

/* The most that may pass in x nanoseconds, both ends included. */
static big bound(const struct subject *s, uint64_t x_ns)
{
    const struct weir_limit *l = &s->limit;
    big windows = x_ns / l->window_ns;
    switch (s->kind) {
    case FIXED: /* x touches so many windows, at most */
    case COUNTER:
        return l->requests * (windows + 2);
    case LOG:
    case SUB:
        return l->requests * (windows + 1);
    case TOKEN:
        return l->burst + (big)l->requests * x_ns / l->window_ns;
    case TICK:
        return l->burst + l->requests * (windows + 1);
    case LEAKY: /* one leaves at each end; +1: an instant is rounded up, the next may not be */
        return (big)l->requests * (x_ns + 1) / l->window_ns + 1;
    case KINDS:
        break;
    }
    abort();
}

/* Traffic that keeps close to the limit, on a clock that does not go back. */
static uint64_t next_time(struct luck *luck, const struct subject *s, uint64_t now_ns,
                          uint64_t retry_ns)
{
    if (retry_ns > 0 && retry_ns != WEIR_NEVER && one_in(luck, 2))
        return now_ns + retry_ns;
    uint64_t step_ns = s->limit.window_ns / (s->limit.requests + UINT64_C(1));
    return now_ns + (one_in(luck, 3) ? 0 : roll_any(luck, 4 * step_ns));
}

static void no_interval_admits_more_than_its_bound(void **state)
{
    (void)state;
    struct luck luck = luck_of("bounds");
    uint64_t rounds = scaled(12000);
    for (luck.round = 0; luck.round < rounds; luck.round++) {
        struct subject s = random_subject(&luck, (enum kind)(luck.round % KINDS), 40);
        struct passed passed[STEPS];
        uint32_t n = 0;
        uint64_t now_ns = UINT64_C(1700000000) * WEIR_NS_PER_S, retry_ns = 0;
        for (luck.step = 0; luck.step < STEPS && now_ns < NOW_MAX / 2; luck.step++) {
            now_ns = next_time(&luck, &s, now_ns, retry_ns);
            uint64_t hits = s.kind == LEAKY || one_in(&luck, 2) ? 1 : roll_to(&luck, 3);
            struct weir_verdict v = take(&s, now_ns, hits);
            retry_ns = v.retry_after_ns;
            if (v.allowed)
                passed[n++] = (struct passed){now_ns + v.delay_ns, hits};
            big in_all = 0;
            for (uint32_t i = n; v.allowed && i-- > 0;) {
                in_all += passed[i].hits;
                CHECK_ALL(&luck, in_all <= bound(&s, passed[n - 1].at_ns - passed[i].at_ns));
            }
        }
    }
}

static void no_aligned_window_admits_more_than_the_limit(void **state)
{
    (void)state;
    struct luck luck = luck_of("aligned windows");
    uint64_t rounds = scaled(12000);
    for (luck.round = 0; luck.round < rounds; luck.round++) {
        struct subject s = random_subject(&luck, FIXED, 1000);
        uint64_t now_ns = UINT64_C(1700000000) * WEIR_NS_PER_S, window = 0, in_all = 0;
        for (luck.step = 0; luck.step < STEPS && now_ns < NOW_MAX / 2; luck.step++) {
            now_ns = next_time(&luck, &s, now_ns, 0);
            if (now_ns / s.limit.window_ns != window)
                in_all = 0;
            window = now_ns / s.limit.window_ns;
            uint64_t hits = random_hits(&luck, &s);
            in_all += take(&s, now_ns, hits).allowed ? hits : 0;
            CHECK_ALL(&luck, in_all <= s.limit.requests);
        }
    }
}

static void a_queue_never_holds_more_than_its_places(void **state)
{
    (void)state;
    struct luck luck = luck_of("queues");
    uint64_t rounds = scaled(12000);
    for (luck.round = 0; luck.round < rounds; luck.round++) {
        struct subject s = random_subject(&luck, LEAKY, 40);
        uint64_t leaves_ns[STEPS], now_ns = UINT64_C(1700000000) * WEIR_NS_PER_S;
        uint32_t n = 0;
        for (luck.step = 0; luck.step < STEPS && now_ns < NOW_MAX / 2; luck.step++) {
            now_ns = next_time(&luck, &s, now_ns, 0);
            struct weir_verdict v = take(&s, now_ns, 1);
            if (v.allowed)
                leaves_ns[n++] = now_ns + v.delay_ns;
            uint32_t waiting = 0;
            while (waiting < n && leaves_ns[n - 1 - waiting] > now_ns)
                waiting++;
            CHECK_ALL(&luck, waiting <= s.limit.burst);
            /* Seen in whole nanoseconds, two that are T apart may be floor(T). */
            CHECK_ALL(&luck, n < 2 || leaves_ns[n - 1] - leaves_ns[n - 2] >= s.limit.step_ns);
        }
    }
}

static void retry_after_is_the_least_wait_that_helps(void **state)
{
    (void)state;
    struct luck luck = luck_of("retry_after");
    uint64_t rounds = scaled(100000);
    for (luck.round = 0; luck.round < rounds; luck.round++) {
        struct subject s = random_subject(&luck, (enum kind)(luck.round % KINDS),
                                          one_in(&luck, 2) ? 20 : UINT32_MAX);
        uint64_t now_ns = random_start(&luck), retry_ns = 0;
        for (luck.step = 0; luck.step < 50; luck.step++) {
            now_ns = random_time(&luck, &s.limit, now_ns, retry_ns);
            uint64_t hits = random_hits(&luck, &s);
            struct weir_verdict v = take(&s, now_ns, hits);
            retry_ns = v.retry_after_ns;
            CHECK_ALL(&luck, v.allowed == (retry_ns == 0));
            if (v.allowed || retry_ns == WEIR_NEVER || retry_ns > NOW_MAX - now_ns)
                continue;
            struct subject soon = s, then = s;
            CHECK_ALL(&luck, take(&then, now_ns + retry_ns, hits).allowed);
            CHECK_ALL(&luck, !take(&soon, now_ns + retry_ns - 1, hits).allowed);
        }
    }
}

static void waiting_for_the_reset_makes_all_of_it_free(void **state)
{
    (void)state;
    struct luck luck = luck_of("reset_after");
    uint64_t rounds = scaled(100000);
    for (luck.round = 0; luck.round < rounds; luck.round++) {
        struct subject s = random_subject(&luck, (enum kind)(luck.round % KINDS),
                                          one_in(&luck, 2) ? 20 : UINT32_MAX);
        uint64_t now_ns = random_start(&luck);
        for (luck.step = 0; luck.step < 20; luck.step++) {
            now_ns = random_time(&luck, &s.limit, now_ns, 0);
            struct weir_verdict v = take(&s, now_ns, random_hits(&luck, &s));
            if (v.reset_after_ns > NOW_MAX - now_ns)
                continue;
            struct subject then = s;
            v = take(&then, now_ns + v.reset_after_ns, 0);
            CHECK_ALL(&luck, v.remaining == v.limit && v.before == 0);
        }
    }
}

/* Taken and given back at one instant, hits leave no trace in any later decision. */
static void a_refund_undoes(void **state)
{
    (void)state;
    struct luck luck = luck_of("refunds");
    uint64_t rounds = scaled(100000);
    for (luck.round = 0; luck.round < rounds; luck.round++) {
        enum kind kind = (enum kind)(luck.round % KINDS);
        struct subject s = random_subject(&luck, kind == LEAKY ? TOKEN : kind, 100);
        uint64_t now_ns = random_start(&luck);
        struct subject twin = s;
        for (luck.step = 0; luck.step < 30; luck.step++) {
            uint64_t then_ns = random_time(&luck, &s.limit, now_ns, 0);
            /* A sub-window stays open, though all its hits went back: only a clock that goes back
             * can tell. */
            now_ns = kind == SUB && then_ns < now_ns ? now_ns : then_ns;
            uint64_t extra = roll_to(&luck, s.limit.requests);
            if (take(&s, now_ns, 0).allowed && take(&s, now_ns, extra).allowed) {
                struct weir_verdict v = give(&s, now_ns, extra);
                CHECK_ALL(&luck, v.allowed && v.retry_after_ns == 0);
            } else { /* refused hits may have counted: go on from the same */
                s = twin;
            }
            uint64_t hits = random_hits(&luck, &s);
            take(&twin, now_ns, 0);
            struct weir_verdict v = take(&s, now_ns, hits), w = take(&twin, now_ns, hits);
            CHECK_ALL(&luck, is_same(&v, &w));
        }
    }
}

static void a_refund_of_too_much_leaves_it_unused(void **state)
{
    (void)state;
    struct luck luck = luck_of("large refunds");
    uint64_t rounds = scaled(100000);
    for (luck.round = 0; luck.round < rounds; luck.round++) {
        enum kind kind = (enum kind)(luck.round % KINDS);
        struct subject s = random_subject(&luck, kind == LEAKY ? TOKEN : kind, UINT32_MAX);
        uint64_t now_ns = random_start(&luck);
        for (luck.step = 0; luck.step < 5; luck.step++) {
            now_ns = random_time(&luck, &s.limit, now_ns, 0);
            take(&s, now_ns, random_hits(&luck, &s));
        }
        struct weir_verdict v = give(&s, now_ns, UINT64_MAX);
        CHECK_ALL(&luck, v.allowed && v.remaining == v.limit);
        CHECK_ALL(&luck, take(&s, now_ns, v.limit).allowed);
    }
}

static void a_clock_that_stands_or_goes_back_grants_no_more(void **state)
{
    (void)state;
    struct luck luck = luck_of("clocks");
    uint64_t rounds = scaled(100000);
    for (luck.round = 0; luck.round < rounds; luck.round++) {
        struct subject s = random_subject(&luck, (enum kind)(luck.round % KINDS), 40);
        uint64_t now_ns = random_start(&luck), limit = 0;
        big in_all = 0;
        for (luck.step = 0; luck.step < 60; luck.step++) {
            uint64_t back = one_in(&luck, 2) ? 0 : roll_any(&luck, 2 * s.limit.window_ns);
            now_ns = now_ns > back ? now_ns - back : 0;
            uint64_t hits = roll_to(&luck, 4);
            struct weir_verdict v = take(&s, now_ns, hits);
            in_all += v.allowed ? hits : 0;
            limit = v.limit;
            CHECK_ALL(&luck, in_all <= limit);
        }
    }
}

static void what_was_in_use_and_what_remains_make_the_limit(void **state)
{
    (void)state;
    struct luck luck = luck_of("before");
    uint64_t rounds = scaled(100000);
    for (luck.round = 0; luck.round < rounds; luck.round++) {
        struct subject s = random_subject(&luck, (enum kind)(luck.round % KINDS), UINT32_MAX);
        uint64_t now_ns = random_start(&luck);
        for (luck.step = 0; luck.step < 20; luck.step++) {
            now_ns = random_time(&luck, &s.limit, now_ns, 0);
            uint64_t hits = random_hits(&luck, &s);
            struct weir_verdict v = take(&s, now_ns, hits);
            if (v.allowed)
                CHECK_ALL(&luck, v.before + hits + v.remaining == v.limit);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_interval_admits_more_than_its_bound),
        cmocka_unit_test(no_aligned_window_admits_more_than_the_limit),
        cmocka_unit_test(a_queue_never_holds_more_than_its_places),
        cmocka_unit_test(retry_after_is_the_least_wait_that_helps),
        cmocka_unit_test(waiting_for_the_reset_makes_all_of_it_free),
        cmocka_unit_test(a_refund_undoes),
        cmocka_unit_test(a_refund_of_too_much_leaves_it_unused),
        cmocka_unit_test(a_clock_that_stands_or_goes_back_grants_no_more),
        cmocka_unit_test(what_was_in_use_and_what_remains_make_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
