/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static void every_error_is_negative_and_has_words_of_its_own(void **state)
{
    (void)state;
    static const int errors[] = {
#define WEIR_X(name, number, text) WEIR_ERR_##name,
        WEIR_ERRORS(WEIR_X)
#undef WEIR_X
    };
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        assert_true(errors[i] < 0);
        assert_string_not_equal(weir_strerror(errors[i]), "unknown error");
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(weir_strerror(errors[i]), weir_strerror(errors[j]));
    }
}

static void zero_is_success_and_the_rest_is_unknown(void **state)
{
    (void)state;
    assert_string_equal(weir_strerror(0), "success");
    assert_string_equal(weir_strerror(1), "unknown error");
    assert_string_equal(weir_strerror(INT32_MIN), "unknown error");
}

/* Runs in a child: what it says goes through a pipe, how it ends is its status. */
static void claim_what_is_false(int say_to)
{
    dup2(say_to, STDERR_FILENO);
    signal(SIGABRT, SIG_DFL);
    WEIR_ASSERT(1 + 1 == 3);
    _exit(0);
}

static void a_broken_claim_says_where_and_stops(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        claim_what_is_false(ends[1]);
    close(ends[1]);
    char said[256] = {0};
    assert_true(read(ends[0], said, sizeof said - 1) > 0);
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(said, "1 + 1 == 3"));
    assert_non_null(strstr(said, "base_err.c:"));
}

static void a_claim_that_holds_is_silent(void **state)
{
    (void)state;
    int evaluated = 0;
    WEIR_ASSERT(++evaluated);
    assert_int_equal(evaluated, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_error_is_negative_and_has_words_of_its_own),
        cmocka_unit_test(zero_is_success_and_the_rest_is_unknown),
        cmocka_unit_test(a_broken_claim_says_where_and_stops),
        cmocka_unit_test(a_claim_that_holds_is_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
