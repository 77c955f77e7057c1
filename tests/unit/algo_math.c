/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/math.h"
#include "algo_rig.h"

static void sums_and_products_saturate(void **state)
{
    (void)state;
    assert_int_equal(weir_sat_add(UINT64_MAX - 1, 1), UINT64_MAX);
    assert_int_equal(weir_sat_add(UINT64_MAX, 1), UINT64_MAX);
    assert_int_equal(weir_sat_sub(1, 2), 0);
    assert_int_equal(weir_sat_mul(UINT64_C(1) << 32, UINT64_C(1) << 32), UINT64_MAX);
    assert_int_equal(weir_sat_mul(UINT32_MAX, UINT32_MAX), UINT64_C(0xfffffffe00000001));
}

static void quotients_of_long_products_are_exact(void **state)
{
    (void)state;
    assert_int_equal(weir_mul_div(7, 5, 0, 3), 11);
    assert_int_equal(weir_mul_div(UINT64_MAX, UINT64_MAX, 0, UINT64_MAX), UINT64_MAX);
    assert_int_equal(weir_mul_div(UINT64_MAX, UINT64_MAX, 1, UINT64_MAX), UINT64_MAX - 1);
    assert_int_equal(weir_mul_div(UINT64_MAX, UINT64_MAX, 0, 1), UINT64_MAX); /* cut */
    assert_int_equal(weir_ceil_div(UINT64_MAX, 2), UINT64_C(1) << 63);
    assert_int_equal(weir_ceil_div(0, 2), 0);
}

static void spans_carry_and_borrow(void **state)
{
    (void)state;
    struct weir_span a = {.ns = 1, .num = 2}, b = {.ns = 3, .num = 2};
    struct weir_span sum = weir_span_add(a, b, 3), rest = weir_span_sub(sum, b, 3);
    assert_int_equal(sum.ns, 5);
    assert_int_equal(sum.num, 1);
    assert_int_equal(rest.ns, 1);
    assert_int_equal(rest.num, 2);
    assert_true(weir_span_less(a, sum));
    assert_false(weir_span_less(a, a));
    assert_int_equal(weir_span_ceil(sum), 6);
    assert_int_equal(weir_span_ceil((struct weir_span){.ns = 6}), 6);
}

static void spans_multiply_up_to_2_to_the_63(void **state)
{
    (void)state;
    struct weir_span third = {.num = 1};
    struct weir_span many = weir_span_times(third, UINT64_C(1) << 33, 3);
    assert_int_equal(many.ns, (UINT64_C(1) << 33) / 3);
    assert_int_equal(many.num, (UINT64_C(1) << 33) % 3);
    assert_int_equal(weir_span_times(many, 0, 3).ns, 0);
    struct weir_span century = {.ns = WEIR_WINDOW_S_MAX * S, .num = 65535};
    assert_int_equal(weir_span_times(century, UINT32_MAX, 65536).ns, UINT64_C(1) << 63);
}

static void steps_are_counted_alike_in_64_and_128_bits(void **state)
{
    (void)state;
    struct weir_span step = {.ns = 2, .num = 1};
    for (uint64_t ns = (UINT64_C(1) << 47) - 9; ns < (UINT64_C(1) << 47) + 9; ns++) {
        struct weir_span a = {.ns = ns, .num = 2};
        uint64_t steps = weir_span_steps(a, step, 3);
        assert_int_equal(steps, (ns * 3 + 2 + 6) / 7);
    }
    assert_int_equal(weir_span_steps((struct weir_span){0}, step, 3), 0);
    assert_int_equal(weir_span_steps((struct weir_span){.ns = 7}, (struct weir_span){.ns = 7}, 1),
                     1);
}

static void a_rate_is_never_rounded_down(void **state)
{
    (void)state;
    static const uint32_t requests[] = {1, 3, 7, 65521, 65537, 1000003, 4294967291, UINT32_MAX};
    static const uint64_t windows_s[] = {1, 60, 86400, WEIR_WINDOW_S_MAX};
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
        for (size_t j = 0; j < sizeof(windows_s) / sizeof(windows_s[0]); j++) {
            uint64_t window_ns = windows_s[j] * S;
            struct weir_rate rate = weir_rate_of(window_ns, requests[i]);
            assert_in_range(rate.den, 1, 65536);
            assert_true(rate.step.num < rate.den);
            weir_u128 dens = (weir_u128)rate.step.ns * rate.den + rate.step.num;
            weir_u128 made = dens * requests[i], must = (weir_u128)window_ns * rate.den;
            assert_true(made >= must);
            assert_true(made - must < requests[i]); /* by less than a den for each */
            assert_true(dens < (weir_u128)1 << 62);
        }
}

static void a_moment_is_at_most_one_window_ahead(void **state)
{
    (void)state;
    struct weir_moment at = weir_moment_at(10, 3, 37);
    assert_int_equal(at.index, 3);
    assert_int_equal(at.elapsed_ns, 7);
    assert_int_equal(weir_moment_until(&at, 10, 1, 0), 3);
    at = weir_moment_at(10, 4, 37);
    assert_int_equal(at.index, 4);
    assert_int_equal(at.elapsed_ns, 0);
    assert_int_equal(weir_moment_until(&at, 10, 1, 5), 18);
    at = weir_moment_at(10, UINT64_MAX, 37);
    assert_int_equal(at.index, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_and_products_saturate),
        cmocka_unit_test(quotients_of_long_products_are_exact),
        cmocka_unit_test(spans_carry_and_borrow),
        cmocka_unit_test(spans_multiply_up_to_2_to_the_63),
        cmocka_unit_test(steps_are_counted_alike_in_64_and_128_bits),
        cmocka_unit_test(a_rate_is_never_rounded_down),
        cmocka_unit_test(a_moment_is_at_most_one_window_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
