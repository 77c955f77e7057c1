/* The breaker: when it opens, when it probes, and what closes it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "store/breaker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)

static void fail_times(struct weir_breaker *b, int times)
{
    for (int i = 0; i < times; i++)
        (void)weir_breaker_fail(b, 0);
}

static void only_failures_in_a_row_open_it(void **state)
{
    struct weir_breaker b;
    (void)state;
    weir_breaker_init(&b, 1);
    for (int i = 0; i < 100; i++) {
        fail_times(&b, WEIR_BREAKER_FAILURES - 1);
        weir_breaker_succeed(&b);
    }
    assert_true(weir_breaker_lets(&b));
    fail_times(&b, WEIR_BREAKER_FAILURES - 1);
    assert_true(weir_breaker_lets(&b));
    assert_true(weir_breaker_fail(&b, 0));
    assert_false(weir_breaker_lets(&b));
}

static void what_was_asked_before_changes_nothing(void **state)
{
    struct weir_breaker b;
    (void)state;
    weir_breaker_init(&b, 1);
    assert_true(weir_breaker_trip(&b, 0));
    uint64_t due_ns = b.due_ns;
    for (int i = 0; i < 100; i++)
        assert_false(weir_breaker_fail(&b, 1000 * MS));
    weir_breaker_succeed(&b);
    assert_false(weir_breaker_lets(&b));
    assert_int_equal(b.due_ns, due_ns);
}

/* However often it is tried in vain, a probe is due within half a second, and never at once. */
static void the_pause_doubles_up_to_a_maximum_and_is_cut_by_chance(void **state)
{
    uint64_t seen_ns[2][12];
    (void)state;
    for (uint64_t seed = 0; seed < 2; seed++) {
        struct weir_breaker b;
        uint64_t now_ns = 77, full_ns = WEIR_BREAKER_PAUSE_FIRST_NS;
        weir_breaker_init(&b, seed << 32);
        for (int i = 0; i < 12; i++) {
            assert_int_equal(weir_breaker_trip(&b, now_ns), i == 0);
            uint64_t pause_ns = seen_ns[seed][i] = b.due_ns - now_ns;
            assert_true(pause_ns > full_ns / 2 && pause_ns <= full_ns);
            full_ns =
                2 * full_ns < WEIR_BREAKER_PAUSE_MAX_NS ? 2 * full_ns : WEIR_BREAKER_PAUSE_MAX_NS;
            now_ns = b.due_ns;
        }
    }
    int same = 0;
    for (int i = 0; i < 12; i++)
        same += seen_ns[0][i] == seen_ns[1][i];
    assert_true(same < 12);
}

static void a_trial_ends_with_the_first_call(void **state)
{
    struct weir_breaker b;
    (void)state;
    weir_breaker_init(&b, 1);
    assert_false(weir_breaker_try(&b));
    for (int i = 0; i < 6; i++) {
        (void)weir_breaker_trip(&b, 0);
        assert_true(weir_breaker_try(&b));
        assert_true(weir_breaker_lets(&b));
        assert_true(weir_breaker_fail(&b, 0)); /* one is enough now */
        assert_false(weir_breaker_lets(&b));
    }
    assert_int_equal(b.pause_ns, WEIR_BREAKER_PAUSE_MAX_NS);
    assert_true(weir_breaker_try(&b));
    assert_int_equal(b.pause_ns, WEIR_BREAKER_PAUSE_MAX_NS); /* a probe alone proves little */
    weir_breaker_succeed(&b);
    assert_int_equal(b.state, WEIR_BREAKER_CLOSED);
    assert_int_equal(b.pause_ns, WEIR_BREAKER_PAUSE_FIRST_NS);
    fail_times(&b, WEIR_BREAKER_FAILURES - 1);
    assert_true(weir_breaker_lets(&b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_failures_in_a_row_open_it),
        cmocka_unit_test(what_was_asked_before_changes_nothing),
        cmocka_unit_test(the_pause_doubles_up_to_a_maximum_and_is_cut_by_chance),
        cmocka_unit_test(a_trial_ends_with_the_first_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
