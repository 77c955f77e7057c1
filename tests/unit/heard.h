/* heard.h - what a parser told its caller, as text, for tests to compare.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_HEARD_H
#define WEIR_TESTS_HEARD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static char heard[1 << 17];
static size_t heard_len;

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    heard_len += (size_t)vsnprintf(heard + heard_len, sizeof(heard) - heard_len, format, args);
    va_end(args);
    assert_true(heard_len < sizeof(heard));
}

#endif
