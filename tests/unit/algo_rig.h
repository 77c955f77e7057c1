/* algo_rig.h - limits for the unit tests of lib/algo.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_ALGO_RIG_H
#define WEIR_TESTS_ALGO_RIG_H

#include "algo/limit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#define S WEIR_NS_PER_S
#define T0 (UINT64_C(1700000040) * S) /* the beginning of a minute */
#define NOW_MAX ((uint64_t)INT64_MAX)

static inline struct weir_limit limit_of(struct weir_limit_spec spec)
{
    struct weir_limit limit;
    char why[200] = "";
    if (weir_limit_init(&limit, &spec, why, sizeof(why)) != 0)
        fail_msg("%s", why);
    return limit;
}

/* Every number of a verdict but `before`, which has its own test. */
static inline void check_verdict(struct weir_verdict v, struct weir_verdict must)
{
    assert_int_equal(v.allowed, must.allowed);
    assert_int_equal(v.limit, must.limit);
    assert_int_equal(v.remaining, must.remaining);
    assert_int_equal(v.reset_after_ns, must.reset_after_ns);
    assert_int_equal(v.retry_after_ns, must.retry_after_ns);
    assert_int_equal(v.delay_ns, must.delay_ns);
}

#define CHECK(v, ...) check_verdict((v), (struct weir_verdict){__VA_ARGS__})

#endif
