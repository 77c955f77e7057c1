/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#define LEN_MAX 1000

static void what_is_added_is_there_in_order(void **state)
{
    (void)state;
    struct weir_buf buf;
    weir_buf_init(&buf, LEN_MAX);
    assert_true(weir_str_eq(weir_buf_str(&buf), WEIR_STR("")));
    weir_buf_add(&buf, WEIR_STR("we"));
    weir_buf_add(&buf, WEIR_STR(""));
    weir_buf_add_char(&buf, 'i');
    weir_buf_add_char(&buf, 'r');
    assert_true(weir_str_eq(weir_buf_str(&buf), WEIR_STR("weir")));
    assert_false(buf.has_failed);
    weir_buf_fini(&buf);
}

static void the_maximum_fits_and_one_more_does_not(void **state)
{
    (void)state;
    struct weir_buf buf;
    weir_buf_init(&buf, LEN_MAX);
    for (int i = 0; i < LEN_MAX; i++)
        weir_buf_add_char(&buf, (char)('a' + i % 26));
    assert_int_equal(buf.len, LEN_MAX);
    assert_false(buf.has_failed);
    weir_buf_add_char(&buf, '!');
    assert_int_equal(buf.len, LEN_MAX);
    assert_true(buf.has_failed);
    for (int i = 0; i < LEN_MAX; i++)
        assert_int_equal(buf.ptr[i], 'a' + i % 26);
    weir_buf_fini(&buf);
}

static void what_does_not_fit_is_not_written_in_part(void **state)
{
    (void)state;
    struct weir_buf buf;
    weir_buf_init(&buf, 4);
    weir_buf_add(&buf, WEIR_STR("abc"));
    weir_buf_add(&buf, WEIR_STR("de"));
    assert_true(buf.has_failed);
    weir_buf_add(&buf, WEIR_STR("d")); /* would fit, but the text has a hole already */
    assert_true(weir_str_eq(weir_buf_str(&buf), WEIR_STR("abc")));
    weir_buf_fini(&buf);
}

static void a_cut_buffer_may_be_written_to_again(void **state)
{
    (void)state;
    struct weir_buf buf;
    weir_buf_init(&buf, 4);
    weir_buf_add(&buf, WEIR_STR("abcd"));
    weir_buf_add(&buf, WEIR_STR("e"));
    assert_true(buf.has_failed);
    weir_buf_cut(&buf, 2);
    weir_buf_add(&buf, WEIR_STR("yz"));
    assert_false(buf.has_failed);
    assert_true(weir_str_eq(weir_buf_str(&buf), WEIR_STR("abyz")));
    weir_buf_fini(&buf);
}

static void room_is_what_is_left_and_then_nothing(void **state)
{
    (void)state;
    struct weir_buf buf;
    weir_buf_init(&buf, LEN_MAX);
    size_t got = 0;
    char *room = weir_buf_room(&buf, 600, &got);
    assert_non_null(room);
    assert_int_equal(got, 600);
    memset(room, 'x', got);
    buf.len += got;
    room = weir_buf_room(&buf, 600, &got);
    assert_non_null(room);
    assert_in_range(got, 1, LEN_MAX - 600);
    memset(room, 'y', got);
    buf.len = LEN_MAX;
    assert_null(weir_buf_room(&buf, 1, &got));
    assert_true(buf.has_failed);
    weir_buf_fini(&buf);
}

static void what_is_large_is_paid_and_given_back(void **state)
{
    static const char bytes[WEIR_BUF_UNPAID];
    const struct weir_str full = {.ptr = bytes, .len = sizeof(bytes)};
    struct weir_budget budget = {.left = WEIR_BUF_UNPAID};
    struct weir_buf one, other;
    (void)state;
    weir_buf_init(&one, 1 << 20);
    weir_buf_init(&other, 1 << 20);
    one.budget = other.budget = &budget;
    weir_buf_add(&one, full);
    weir_buf_add(&other, full);
    assert_int_equal(budget.left, WEIR_BUF_UNPAID); /* small ones cost nothing */
    weir_buf_add(&one, full);
    assert_int_equal(budget.left, 0);
    weir_buf_add_char(&other, 'x');
    assert_true(other.has_failed && !one.has_failed);
    weir_buf_fini(&one);
    assert_int_equal(budget.left, WEIR_BUF_UNPAID);
    weir_buf_cut(&other, 0);
    for (int i = 0; i < 2; i++)
        weir_buf_add(&other, full);
    assert_false(other.has_failed);
    weir_buf_fini(&other);
    assert_int_equal(budget.left, WEIR_BUF_UNPAID);
}

static void a_buffer_of_nothing_holds_nothing(void **state)
{
    (void)state;
    struct weir_buf buf;
    weir_buf_init(&buf, 0);
    weir_buf_add(&buf, WEIR_STR(""));
    assert_false(buf.has_failed);
    weir_buf_add_char(&buf, 'x');
    assert_true(buf.has_failed);
    assert_int_equal(buf.len, 0);
    weir_buf_fini(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_added_is_there_in_order),
        cmocka_unit_test(what_is_large_is_paid_and_given_back),
        cmocka_unit_test(the_maximum_fits_and_one_more_does_not),
        cmocka_unit_test(what_does_not_fit_is_not_written_in_part),
        cmocka_unit_test(a_cut_buffer_may_be_written_to_again),
        cmocka_unit_test(room_is_what_is_left_and_then_nothing),
        cmocka_unit_test(a_buffer_of_nothing_holds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
