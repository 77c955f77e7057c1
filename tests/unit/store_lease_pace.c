/* lease_pace.c - sizes of leases: found by asking, given up in silence.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/lease.h"
#include "store/lease_pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define TTL_NS WEIR_LEASE_TTL_MAX_NS
#define START_NS (UINT64_C(1000) * WEIR_NS_PER_S)

static uint32_t ask(struct weir_lease_pace *pace, uint64_t now_ns, uint32_t part)
{
    uint32_t wish = weir_lease_pace_ask(pace, now_ns, TTL_NS);
    weir_lease_pace_granted(pace, wish / part);
    return wish;
}

static void a_key_that_is_new_wishes_for_nothing(void **state)
{
    (void)state;
    struct weir_lease_pace pace = {0};
    assert_int_equal(ask(&pace, START_NS, 1), 0);
    assert_int_equal(ask(&pace, START_NS + TTL_NS, 1), 0);
}

static void a_key_that_keeps_asking_wishes_for_more(void **state)
{
    (void)state;
    struct weir_lease_pace pace = {0};
    uint64_t now_ns = START_NS;
    assert_int_equal(ask(&pace, now_ns, 1), 0);
    uint32_t expected = WEIR_LEASE_WISH_FIRST;
    for (int i = 0; i < 40; i++) {
        assert_int_equal(ask(&pace, now_ns += 1000000, 1), expected);
        expected = expected * 2 < WEIR_LEASE_TOKENS_MAX ? expected * 2 : WEIR_LEASE_TOKENS_MAX;
    }
    assert_int_equal(expected, WEIR_LEASE_TOKENS_MAX);
}

/* At any rate a lease ends up lasting between an eighth and a half of its time. */
static void the_size_follows_the_rate(void **state)
{
    (void)state;
    for (uint64_t rate = 50; rate <= 1000000; rate *= 3) {
        struct weir_lease_pace pace = {0};
        uint64_t now_ns = START_NS, lasted_ns = 0;
        for (int i = 0; i < 60; i++) {
            uint32_t wish = ask(&pace, now_ns, 1);
            lasted_ns = (1 + wish) * WEIR_NS_PER_S / rate;
            now_ns += lasted_ns;
        }
        assert_in_range(lasted_ns, TTL_NS / 8, TTL_NS / 2);
    }
}

/* Where the store has less to give, asking again soon is no sign of hunger. */
static void a_wish_that_was_not_granted_does_not_grow(void **state)
{
    (void)state;
    struct weir_lease_pace pace = {0};
    uint64_t now_ns = START_NS;
    for (int i = 0; i < 6; i++)
        ask(&pace, now_ns += 1000, 1);
    uint32_t wish = ask(&pace, now_ns += 1000, 3);
    for (int i = 0; i < 6; i++)
        assert_int_equal(ask(&pace, now_ns += 1000, 3), wish);
}

static void a_refusal_is_not_a_silence(void **state)
{
    (void)state;
    struct weir_lease_pace pace = {0};
    uint64_t now_ns = START_NS;
    for (int i = 0; i < 6; i++)
        ask(&pace, now_ns += 1000, 1);
    uint32_t wish = weir_lease_pace_ask(&pace, now_ns += 1000, TTL_NS);
    assert_int_equal(weir_lease_pace_refused(&pace, now_ns, 10 * TTL_NS, TTL_NS), 10 * TTL_NS);
    assert_int_equal(ask(&pace, now_ns + 10 * TTL_NS + 1000, 1), wish);
}

/* A bucket that gives a token each millisecond, and is asked as soon as it may. */
static void a_refusal_that_is_pressed_lasts_longer(void **state)
{
    (void)state;
    struct weir_lease_pace pace = {0};
    uint64_t now_ns = START_NS, waited_ns = 0;
    assert_int_equal(weir_lease_pace_refused(&pace, now_ns, 1000000, TTL_NS), 1000000);
    for (int i = 0; i < 8; i++) {
        now_ns = pace.refused_ns + 1000;
        uint64_t wait_ns = weir_lease_pace_refused(&pace, now_ns, 1000000, TTL_NS);
        assert_true(wait_ns >= waited_ns);
        waited_ns = wait_ns;
    }
    assert_int_equal(waited_ns, 10000000);
    assert_int_equal(weir_lease_pace_refused(&pace, pace.refused_ns, 1, 8000000), 4000000);
    now_ns = pace.refused_ns + TTL_NS;
    assert_int_equal(weir_lease_pace_refused(&pace, now_ns, 1000000, TTL_NS), 1000000);
}

static void what_is_left_over_halves_the_wish(void **state)
{
    (void)state;
    struct weir_lease_pace pace = {0};
    uint64_t now_ns = START_NS;
    for (int i = 0; i < 5; i++)
        ask(&pace, now_ns += 1000, 1);
    weir_lease_pace_unused(&pace);
    assert_int_equal(ask(&pace, now_ns + TTL_NS / 4, 1), 16);
    assert_int_equal(ask(&pace, now_ns + TTL_NS / 4 * 3 + 1, 1), 8);
}

static void a_clock_that_stands_still_or_goes_back_does_no_harm(void **state)
{
    (void)state;
    struct weir_lease_pace pace = {0};
    assert_int_equal(ask(&pace, START_NS, 1), 0);
    assert_int_equal(ask(&pace, START_NS, 1), 4);
    assert_int_equal(ask(&pace, START_NS - TTL_NS, 1), 8);
}

static void keys_that_share_a_place_forget_each_other(void **state)
{
    (void)state;
    struct weir_lease_paces *paces;
    assert_int_equal(weir_lease_paces_new(&paces, 1), 0);
    weir_lease_pace_of(paces, 7)->wish = 100;
    assert_int_equal(weir_lease_pace_of(paces, 7)->wish, 100);
    assert_int_equal(weir_lease_pace_of(paces, 8)->wish, 0);
    assert_int_equal(weir_lease_pace_of(paces, 7)->wish, 0);
    weir_lease_paces_free(paces);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_that_is_new_wishes_for_nothing),
        cmocka_unit_test(a_key_that_keeps_asking_wishes_for_more),
        cmocka_unit_test(the_size_follows_the_rate),
        cmocka_unit_test(a_wish_that_was_not_granted_does_not_grow),
        cmocka_unit_test(a_refusal_is_not_a_silence),
        cmocka_unit_test(a_refusal_that_is_pressed_lasts_longer),
        cmocka_unit_test(what_is_left_over_halves_the_wish),
        cmocka_unit_test(a_clock_that_stands_still_or_goes_back_does_no_harm),
        cmocka_unit_test(keys_that_share_a_place_forget_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
