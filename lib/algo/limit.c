/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/limit.h"

#include "algo/math.h"
#include "base/maxima.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static const struct {
    const char *name;
    uint64_t seconds;
} units[] = {
    [WEIR_UNIT_SECOND] = {"second", 1},     [WEIR_UNIT_MINUTE] = {"minute", 60},
    [WEIR_UNIT_HOUR] = {"hour", 3600},      [WEIR_UNIT_DAY] = {"day", 86400},
    [WEIR_UNIT_MONTH] = {"month", 2592000}, [WEIR_UNIT_YEAR] = {"year", 31536000},
    [WEIR_UNIT_WEEK] = {"week", 604800},
};

static const char *const algorithms[] = {
    [WEIR_FIXED_WINDOW] = "fixed_window",
    [WEIR_SLIDING_WINDOW_COUNTER] = "sliding_window_counter",
    [WEIR_SLIDING_WINDOW_LOG] = "sliding_window_log",
    [WEIR_TOKEN_BUCKET] = "token_bucket",
    [WEIR_LEAKY_BUCKET] = "leaky_bucket",
    [WEIR_CONCURRENCY] = "concurrency",
    [WEIR_CONCURRENCY + 1] = NULL,
};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

uint64_t weir_unit_seconds(enum weir_unit unit)
{
    return (size_t)unit < COUNT_OF(units) ? units[unit].seconds : 0;
}

const char *weir_unit_name(enum weir_unit unit)
{
    return (size_t)unit < COUNT_OF(units) ? units[unit].name : NULL;
}

const char *weir_algorithm_name(enum weir_algorithm algorithm)
{
    return (size_t)algorithm < COUNT_OF(algorithms) ? algorithms[algorithm] : NULL;
}

const char *const *weir_algorithm_names(void)
{
    return algorithms;
}

/* ---- what does not fit ---- */

/* Where to say what is wrong. */
struct complaint {
    char *why;
    size_t len;
};

__attribute__((format(printf, 2, 3))) static int refuse(const struct complaint *to,
                                                        const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(to->why, to->len, format, args);
    va_end(args);
    return WEIR_ERR_TOO_LARGE;
}

/* "hour", "3 weeks": the longest unit that measures the window without a rest. */
static const char *window_words(uint64_t window_s, char *words, size_t len)
{
    size_t best = WEIR_UNIT_SECOND;
    for (size_t unit = 1; unit < COUNT_OF(units); unit++)
        if (window_s % units[unit].seconds == 0 && units[unit].seconds > units[best].seconds)
            best = unit;
    uint64_t times = window_s / units[best].seconds;
    if (times == 1)
        snprintf(words, len, "%s", units[best].name);
    else
        snprintf(words, len, "%" PRIu64 " %ss", times, units[best].name);
    return words;
}

static int check_window(const struct weir_limit_spec *spec, const struct complaint *to)
{
    if (spec->window_s == 0)
        return refuse(to, "a window of no length");
    if (spec->window_s > WEIR_WINDOW_S_MAX)
        return refuse(to, "a window of %" PRIu64 " seconds is longer than 100 years",
                      spec->window_s);
    return 0;
}

static int check_sub_windows(const struct weir_limit_spec *spec, const struct complaint *to)
{
    char words[40];
    if (spec->buckets <= 1)
        return 0;
    if (spec->buckets > WEIR_BUCKETS_MAX)
        return refuse(to, "%" PRIu32 " buckets are more than %d", spec->buckets, WEIR_BUCKETS_MAX);
    if (spec->window_s * WEIR_NS_PER_S % spec->buckets != 0)
        return refuse(to, "%" PRIu32 " buckets per %s are not whole nanoseconds long",
                      spec->buckets, window_words(spec->window_s, words, sizeof(words)));
    if (spec->requests_per_unit > INT32_MAX)
        return refuse(to, "%" PRIu32 " requests are more than %d, the most that buckets can count",
                      spec->requests_per_unit, INT32_MAX);
    return 0;
}

static int check_counts(const struct weir_limit_spec *spec, const struct complaint *to)
{
    switch (spec->algorithm) {
    case WEIR_SLIDING_WINDOW_COUNTER:
        return check_sub_windows(spec, to);
    case WEIR_SLIDING_WINDOW_LOG:
        if (spec->requests_per_unit > WEIR_LOG_LIMIT_MAX)
            return refuse(to, "%" PRIu32 " requests are more than a log's %d",
                          spec->requests_per_unit, WEIR_LOG_LIMIT_MAX);
        return 0;
    case WEIR_CONCURRENCY:
        if (spec->requests_per_unit > WEIR_CONCURRENCY_LIMIT_MAX)
            return refuse(to, "%" PRIu32 " requests at once are more than %d",
                          spec->requests_per_unit, WEIR_CONCURRENCY_LIMIT_MAX);
        return 0;
    case WEIR_FIXED_WINDOW:
    case WEIR_TOKEN_BUCKET:
    case WEIR_LEAKY_BUCKET:
        return 0;
    }
    return 0;
}

/* ---- what follows from the numbers ---- */

/* The step, and B of them.  With interval refill nothing moves by steps but the sketch's cells,
 * where a bucket that takes too long to fill is as good as a smaller one. */
static int set_rate(struct weir_limit *limit, const struct complaint *to)
{
    limit->step_den = 1;
    bool is_bucket = limit->algorithm == WEIR_TOKEN_BUCKET || limit->algorithm == WEIR_LEAKY_BUCKET;
    if (!is_bucket || limit->requests == 0)
        return 0;
    struct weir_rate rate = weir_rate_of(limit->window_ns, limit->requests);
    weir_u128 cap = ((weir_u128)rate.step.ns * rate.den + rate.step.num) * limit->burst;
    weir_u128 cap_max = (weir_u128)WEIR_BUCKET_SPAN_NS_MAX * rate.den;
    if (cap > cap_max && !limit->refill_interval) {
        char words[40];
        return refuse(to,
                      "burst %" PRIu32 " at %" PRIu32 " per %s takes longer than 146 years to %s",
                      limit->burst, limit->requests,
                      window_words(weir_limit_window_s(limit), words, sizeof(words)),
                      limit->algorithm == WEIR_TOKEN_BUCKET ? "refill" : "drain");
    }
    cap = cap > cap_max ? cap_max : cap;
    limit->step_ns = rate.step.ns;
    limit->step_num = rate.step.num;
    limit->step_den = rate.den;
    limit->cap_ns = (uint64_t)(cap / rate.den);
    limit->cap_num = (uint32_t)(cap % rate.den);
    return 0;
}

int weir_limit_init(struct weir_limit *out, const struct weir_limit_spec *spec, char *why,
                    size_t why_len)
{
    const struct complaint to = {.why = why, .len = why_len};
    int err = check_window(spec, &to);
    if (err == 0)
        err = check_counts(spec, &to);
    if (err != 0)
        return err;
    bool is_counter = spec->algorithm == WEIR_SLIDING_WINDOW_COUNTER;
    struct weir_limit limit = {
        .window_ns = spec->window_s * WEIR_NS_PER_S,
        .requests = spec->requests_per_unit,
        .burst = spec->burst,
        .buckets = is_counter && spec->buckets > 1 ? (uint8_t)spec->buckets : 1,
        .algorithm = (uint8_t)spec->algorithm,
        .count_rejected = spec->count_rejected,
        .round_up = spec->round_up,
        .refill_interval = spec->refill_interval,
    };
    err = set_rate(&limit, &to);
    if (err == 0)
        *out = limit;
    return err;
}

int weir_limit_with(struct weir_limit *out, const struct weir_limit *base, uint32_t requests,
                    uint32_t burst, char *why, size_t why_len)
{
    const struct weir_limit_spec spec = {
        .algorithm = (enum weir_algorithm)base->algorithm,
        .requests_per_unit = requests,
        .burst = burst,
        .window_s = weir_limit_window_s(base),
        .buckets = base->buckets,
        .count_rejected = base->count_rejected,
        .round_up = base->round_up,
        .refill_interval = base->refill_interval,
    };
    struct weir_limit numbers;
    int err = weir_limit_init(&numbers, &spec, why, why_len);
    if (err != 0)
        return err;
    struct weir_limit limit = *base; /* whose place in the table it shares */
    limit.requests = numbers.requests;
    limit.burst = numbers.burst;
    limit.step_ns = numbers.step_ns;
    limit.step_num = numbers.step_num;
    limit.step_den = numbers.step_den;
    limit.cap_ns = numbers.cap_ns;
    limit.cap_num = numbers.cap_num;
    *out = limit;
    return 0;
}
