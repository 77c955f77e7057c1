/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/text.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#define DIGITS_MAX 20

static void check_number(uint64_t number)
{
    char ours[DIGITS_MAX + 1] = "", theirs[DIGITS_MAX + 1];
    struct weir_text text = weir_text_in(ours, DIGITS_MAX);
    int len = snprintf(theirs, sizeof(theirs), "%" PRIu64, number);
    weir_text_put_number(&text, number);
    assert_string_equal(ours, theirs);
    assert_int_equal(weir_text_len(&text), len);
    assert_false(text.has_overflowed);
}

static void numbers_are_written_as_printf_writes_them(void **state)
{
    (void)state;
    uint64_t power = 1;
    for (uint32_t bit = 0; bit < 64; bit++) {
        check_number(UINT64_C(1) << bit);
        check_number((UINT64_C(1) << bit) - 1);
    }
    for (uint32_t zeros = 0; zeros < DIGITS_MAX; zeros++, power *= 10) {
        check_number(power);
        check_number(power - 1);
        check_number(power + power / 7);
    }
    check_number(UINT64_MAX);
}

static void a_number_that_does_not_fit_is_not_written(void **state)
{
    (void)state;
    char room[4] = "abc";
    struct weir_text text = weir_text_in(room, 3);
    weir_text_put_number(&text, 1000);
    assert_true(text.has_overflowed);
    assert_string_equal(room, "abc");
    text = weir_text_in(room, 3);
    weir_text_put_number(&text, 999);
    assert_false(text.has_overflowed);
    assert_string_equal(room, "999");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_written_as_printf_writes_them),
        cmocka_unit_test(a_number_that_does_not_fit_is_not_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
