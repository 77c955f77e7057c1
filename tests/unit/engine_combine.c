/* Many answers into one: descriptors as envoyproxy/ratelimit combines them, limits by the tightest.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/combine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* One letter a descriptor: o is OK, x is over; capitals are in quota mode. */
static enum weir_code combined(const char *descriptors)
{
    struct weir_status statuses[8] = {0};
    uint32_t n = 0;
    for (; descriptors[n]; n++) {
        char c = descriptors[n];
        statuses[n].code = c == 'x' || c == 'X' ? WEIR_CODE_OVER_LIMIT : WEIR_CODE_OK;
        statuses[n].is_quota = c == 'X' || c == 'O';
    }
    return weir_combine(statuses, n);
}

static void one_over_outside_quota_mode_is_over_in_any_order(void **state)
{
    (void)state;
    assert_int_equal(combined("o"), WEIR_CODE_OK);
    assert_int_equal(combined("ooo"), WEIR_CODE_OK);
    assert_int_equal(combined("x"), WEIR_CODE_OVER_LIMIT);
    assert_int_equal(combined("xo"), WEIR_CODE_OVER_LIMIT);
    assert_int_equal(combined("ox"), WEIR_CODE_OVER_LIMIT);
    assert_int_equal(combined("Ox"), WEIR_CODE_OVER_LIMIT);
}

static void quota_mode_is_over_only_where_all_of_it_is(void **state)
{
    (void)state;
    assert_int_equal(combined("X"), WEIR_CODE_OVER_LIMIT);
    assert_int_equal(combined("XX"), WEIR_CODE_OVER_LIMIT);
    assert_int_equal(combined("XO"), WEIR_CODE_OK);
    assert_int_equal(combined("OX"), WEIR_CODE_OK);
    assert_int_equal(combined("oXO"), WEIR_CODE_OK);
    assert_int_equal(combined("oX"), WEIR_CODE_OVER_LIMIT);
    assert_int_equal(combined("O"), WEIR_CODE_OK);
}

static struct weir_charge charge(bool allowed, uint64_t remaining, uint64_t reset, uint64_t retry,
                                 uint64_t delay)
{
    return (struct weir_charge){.verdict = {.allowed = allowed,
                                            .remaining = remaining,
                                            .reset_after_ns = reset,
                                            .retry_after_ns = retry,
                                            .delay_ns = delay}};
}

static void of_those_that_refuse_the_longest_wait_is_shown(void **state)
{
    (void)state;
    struct weir_charge c[] = {
        charge(true, 0, 900, 0, 7),
        charge(false, 5, 10, 50, 0),
        charge(false, 0, 10, 40, 0),
        charge(false, 0, 10, 50, 0),
    };
    assert_ptr_equal(weir_tightest(c, 4), &c[1]); /* of equals the first */
    c[2].verdict.retry_after_ns = WEIR_NEVER;
    assert_ptr_equal(weir_tightest(c, 4), &c[2]);
    assert_int_equal(weir_longest_delay(c, 4), 0);
}

static void of_those_that_allow_the_least_left_is_shown_then_the_longest_reset(void **state)
{
    (void)state;
    struct weir_charge c[] = {
        charge(true, 4, 90, 0, 1),
        charge(true, 3, 10, 0, 9),
        charge(true, 3, 20, 0, 4),
        charge(true, 3, 20, 0, 4),
    };
    assert_ptr_equal(weir_tightest(c, 4), &c[2]);
    assert_ptr_equal(weir_tightest(c, 1), &c[0]);
    assert_int_equal(weir_longest_delay(c, 4), 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_over_outside_quota_mode_is_over_in_any_order),
        cmocka_unit_test(quota_mode_is_over_only_where_all_of_it_is),
        cmocka_unit_test(of_those_that_refuse_the_longest_wait_is_shown),
        cmocka_unit_test(of_those_that_allow_the_least_left_is_shown_then_the_longest_reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
