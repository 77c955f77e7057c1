/* proto_pairs.c - values in queries and cookies.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "proto/pairs.h"

#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define ROOM 8 /* bytes for what is decoded */

static struct weir_str of(const char *text)
{
    return (struct weir_str){.ptr = text, .len = strlen(text)};
}

/* What of: the value; "-": there is none; "!": it does not fit. */
static void assert_query(const char *query, const char *name, const char *expected)
{
    char room[ROOM];
    struct weir_str value = {.ptr = NULL};
    int found = weir_query_value(of(query), of(name), room, sizeof(room), &value);
    if (found == 0)
        value = of("-");
    else if (found != 1)
        value = of("!");
    if (!weir_str_eq(value, of(expected)))
        fail_msg("%s in \"%s\" is \"%.*s\", not \"%s\"", name, query, WEIR_STR_ARG(value),
                 expected);
}

static void assert_cookie(const char *header, const char *name, const char *expected)
{
    struct weir_str value = of("-");
    if (!weir_cookie_value(of(header), of(name), &value))
        value = of("-");
    if (!weir_str_eq(value, of(expected)))
        fail_msg("%s in \"%s\" is \"%.*s\", not \"%s\"", name, header, WEIR_STR_ARG(value),
                 expected);
}

static void a_query_has_names_and_values(void **state)
{
    (void)state;
    assert_query("key=7", "key", "7");
    assert_query("a=1&key=7&key=8", "key", "7");
    assert_query("a=1&key=7", "a", "1");
    assert_query("key", "key", "");
    assert_query("key&a=1", "key", "");
    assert_query("key=", "key", "");
    assert_query("key=a=b", "key", "a=b");
    assert_query("=x", "", "x");
    assert_query("&&key=7&", "key", "7");
    assert_query("", "key", "-");
    assert_query("keys=1&ke=2&Key=3", "key", "-");
    assert_query("a=key=1", "key", "-");
}

static void names_and_values_are_decoded(void **state)
{
    (void)state;
    assert_query("key=a%20b+c", "key", "a b c");
    assert_query("%6bey=7", "key", "7");
    assert_query("a+b=7", "a b", "7");
    assert_query("a+b=7", "a+b", "-");
    assert_query("key=%zz", "key", "%zz");
    assert_query("key=12345678901234567890", "key", "12345678901234567890");
    assert_query("key=12345678+", "key", "!");
    assert_query("12345678+=1&key=7", "key", "!");
    assert_query("other=12345678+&key=7", "key", "7");
}

static void a_cookie_has_names_and_values(void **state)
{
    (void)state;
    assert_cookie("a=1; b=2", "b", "2");
    assert_cookie("a=1;b=2;", "b", "2");
    assert_cookie("a=1;  b=x%20+y", "b", "x%20+y");
    assert_cookie("a=b=1", "b", "-");
    assert_cookie("b", "b", "");
    assert_cookie("", "b", "-");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_query_has_names_and_values),
        cmocka_unit_test(names_and_values_are_decoded),
        cmocka_unit_test(a_cookie_has_names_and_values),
    };
    return cmocka_run_group_tests_name("proto_pairs", tests, NULL, NULL);
}
