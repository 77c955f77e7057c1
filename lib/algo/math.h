/* math.h - the arithmetic that the algorithms share: whole numbers that never wrap.
 *
 * Quantities are at most 64 bits and their products at most 128.  A 128-bit division is a call
 * of a hundred instructions, so each formula first asks whether 64 bits are enough: with windows
 * up to an hour and counts up to a million they always are.
 *
 * Purity: no clock, no malloc, no I/O.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ALGO_MATH_H
#define WEIR_ALGO_MATH_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/types.h>

#include "base/hot.h"

__extension__ typedef unsigned __int128 weir_u128;

/* The longest wait that is not `never`: what waits beyond 64 bits are cut to. */
#define WEIR_WAIT_MAX (WEIR_NEVER - 1)

/* What limit.c has seen to, told to compiler and analyzer: steps and windows are never nothing. */
static inline void weir_is_positive(uint64_t divisor)
{
    if (divisor == 0)
        __builtin_unreachable();
}

static inline uint64_t weir_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t weir_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t weir_sat_add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static inline uint64_t weir_sat_sub(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static inline uint64_t weir_sat_mul(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static inline uint64_t weir_ceil_div(uint64_t a, uint64_t b)
{
    weir_is_positive(b);
    return a / b + (a % b != 0);
}

/* floor((a*b - less) / c), at most UINT64_MAX; a*b >= less. */
static inline uint64_t weir_mul_div(uint64_t a, uint64_t b, uint64_t less, uint64_t c)
{
    uint64_t product;
    if (!__builtin_mul_overflow(a, b, &product))
        return (product - less) / c;
    weir_u128 quotient = ((weir_u128)a * b - less) / c;
    return quotient > UINT64_MAX ? UINT64_MAX : (uint64_t)quotient;
}

/* ---- lengths of time that are not whole ---- */

/* ns + num/den nanoseconds, 0 <= num < den <= 65536; den is its limit's step_den. */
struct weir_span {
    uint64_t ns;
    uint32_t num;
};

static inline bool weir_span_less(struct weir_span a, struct weir_span b)
{
    return a.ns < b.ns || (a.ns == b.ns && a.num < b.num);
}

static inline struct weir_span weir_span_add(struct weir_span a, struct weir_span b, uint32_t den)
{
    uint32_t num = a.num + b.num;
    uint32_t carry = num >= den;
    return (struct weir_span){.ns = a.ns + b.ns + carry, .num = num - carry * den};
}

/* a - b, for a >= b. */
static inline struct weir_span weir_span_sub(struct weir_span a, struct weir_span b, uint32_t den)
{
    uint32_t borrow = a.num < b.num;
    return (struct weir_span){.ns = a.ns - b.ns - borrow, .num = a.num + borrow * den - b.num};
}

/* n times a, for n up to 2^33.  A span beyond 2^63 ns is cut to that: longer than any that is
 * compared with it, and still safe to add to one. */
static inline struct weir_span weir_span_times(struct weir_span a, uint64_t n, uint32_t den)
{
    if (WEIR_MOSTLY(n == 1))
        return a;
    uint64_t nums = n * a.num;
    uint64_t ns = weir_sat_add(weir_sat_mul(n, a.ns), nums / den);
    if (ns >> 63)
        return (struct weir_span){.ns = UINT64_C(1) << 63};
    return (struct weir_span){.ns = ns, .num = (uint32_t)(nums % den)};
}

static inline uint64_t weir_span_ceil(struct weir_span a)
{
    return a.ns + (a.num > 0);
}

/* ceil(a/step): how many steps cover a.  step, counted in dens, fits 63 bits (limit.c). */
static inline uint64_t weir_span_steps(struct weir_span a, struct weir_span step, uint32_t den)
{
    if (!weir_span_less(step, a)) /* none or one: the answer of most keys, without a division */
        return a.ns > 0 || a.num > 0;
    if (den == 1)
        return weir_ceil_div(a.ns, step.ns);
    uint64_t dens_of_step = step.ns * den + step.num;
    weir_is_positive(dens_of_step);
    if (a.ns < UINT64_C(1) << 47)
        return weir_ceil_div(a.ns * den + a.num, dens_of_step);
    weir_u128 dens = (weir_u128)a.ns * den + a.num;
    return (uint64_t)((dens + dens_of_step - 1) / dens_of_step);
}

/* The step T = W/L as a span, and the den that it is counted in (see limit.h). */
struct weir_rate {
    struct weir_span step;
    uint32_t den;
};

/* For L > 0.  T counted in dens is W/gcd where T is exact, and below 65536 W/65536 where it is
 * not: with W up to a hundred years it fits 62 bits. */
static inline struct weir_rate weir_rate_of(uint64_t window_ns, uint32_t requests)
{
    uint64_t gcd = window_ns, other = requests;
    while (other != 0) {
        uint64_t rest = gcd % other;
        gcd = other;
        other = rest;
    }
    uint64_t den = requests / gcd;
    uint64_t dens = window_ns / gcd;
    if (den > 65536) {
        den = 65536;
        dens = (uint64_t)(((weir_u128)window_ns * den + requests - 1) / requests);
    }
    return (struct weir_rate){.step = {.ns = dens / den, .num = (uint32_t)(dens % den)},
                              .den = (uint32_t)den};
}

/* ---- windows of the clock ---- */

/* The window that counts now.  Where the clock went back behind a used window, that one counts
 * (a used window is not opened again), but never one further off than the next. */
struct weir_moment {
    uint64_t index;
    uint64_t elapsed_ns; /* since it began */
    uint64_t ahead_ns;   /* until it begins, where the clock went back */
};

static inline struct weir_moment weir_moment_at(uint64_t window_ns, uint64_t used_index,
                                                uint64_t now_ns)
{
    uint64_t index = now_ns / window_ns;
    uint64_t elapsed_ns = now_ns - index * window_ns;
    if (used_index > index)
        return (struct weir_moment){.index = index + 1, .ahead_ns = window_ns - elapsed_ns};
    return (struct weir_moment){.index = index, .elapsed_ns = elapsed_ns};
}

/* From now until `into_ns` after the beginning of the window that is `windows` on. */
static inline uint64_t weir_moment_until(const struct weir_moment *at, uint64_t window_ns,
                                         uint64_t windows, uint64_t into_ns)
{
    return windows * window_ns + into_ns - at->elapsed_ns + at->ahead_ns;
}

#endif
