/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

static const struct weir_str NOTHING = {.ptr = NULL, .len = 0};

static void bytes_are_equal_when_length_and_content_are(void **state)
{
    (void)state;
    assert_true(weir_str_eq(WEIR_STR("weir"), weir_str_of("weir")));
    assert_false(weir_str_eq(WEIR_STR("weir"), WEIR_STR("wei")));
    assert_false(weir_str_eq(WEIR_STR("weir"), WEIR_STR("weiR")));
}

static void nul_is_a_byte_like_any_other(void **state)
{
    (void)state;
    assert_int_equal(WEIR_STR("a\0b").len, 3);
    assert_false(weir_str_eq(WEIR_STR("a\0b"), WEIR_STR("a\0c")));
}

static void nothing_equals_the_empty_string(void **state)
{
    (void)state;
    assert_true(weir_str_eq(NOTHING, WEIR_STR("")));
    assert_true(weir_str_eq(NOTHING, NOTHING));
    assert_false(weir_str_eq(NOTHING, WEIR_STR("x")));
}

static void everything_starts_and_ends_with_nothing(void **state)
{
    (void)state;
    assert_true(weir_str_starts(WEIR_STR("weir"), NOTHING));
    assert_true(weir_str_ends(WEIR_STR("weir"), NOTHING));
    assert_true(weir_str_starts(NOTHING, NOTHING));
    assert_true(weir_str_ends(NOTHING, NOTHING));
}

static void starts_looks_at_the_beginning_only(void **state)
{
    (void)state;
    assert_true(weir_str_starts(WEIR_STR("weir"), WEIR_STR("we")));
    assert_true(weir_str_starts(WEIR_STR("weir"), WEIR_STR("weir")));
    assert_false(weir_str_starts(WEIR_STR("weir"), WEIR_STR("ir")));
    assert_false(weir_str_starts(WEIR_STR("we"), WEIR_STR("weir")));
}

static void ends_looks_at_the_end_only(void **state)
{
    (void)state;
    assert_true(weir_str_ends(WEIR_STR("weir"), WEIR_STR("ir")));
    assert_true(weir_str_ends(WEIR_STR("weir"), WEIR_STR("weir")));
    assert_false(weir_str_ends(WEIR_STR("weir"), WEIR_STR("we")));
    assert_false(weir_str_ends(WEIR_STR("ir"), WEIR_STR("weir")));
}

static void prints_no_more_than_its_length(void **state)
{
    (void)state;
    char line[16];
    struct weir_str cut = {.ptr = "weir", .len = 2};
    snprintf(line, sizeof line, "<%.*s>", WEIR_STR_ARG(cut));
    assert_string_equal(line, "<we>");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_equal_when_length_and_content_are),
        cmocka_unit_test(nul_is_a_byte_like_any_other),
        cmocka_unit_test(nothing_equals_the_empty_string),
        cmocka_unit_test(everything_starts_and_ends_with_nothing),
        cmocka_unit_test(starts_looks_at_the_beginning_only),
        cmocka_unit_test(ends_looks_at_the_end_only),
        cmocka_unit_test(prints_no_more_than_its_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
