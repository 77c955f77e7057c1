/* limit.h - one limit, ready to be applied: the rule's numbers and what follows from them.
 *
 * Every algorithm is a function (limit, state, now, hits) -> (state', verdict).  The limit
 * carries all that does not change between two decisions, so that no algorithm divides
 * where it could have been divided once.
 *
 * A step T = W/L, the time that one hit is worth, is held as a fraction
 *
 *     T = step_ns + step_num / step_den           0 <= step_num < step_den <= 65536
 *
 * and is exact wherever L / gcd(W, L) <= 65536: there token and leaky buckets agree with exact
 * arithmetic to the last digit.  Beyond that T is rounded up to a 65536th of a nanosecond: less
 * passes than might, by under one part in a million up to 65 million a second, and never more.
 *
 * Purity: no clock, no malloc, no I/O.  Threads: immutable once bound to a table.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ALGO_LIMIT_H
#define WEIR_ALGO_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/types.h>
#include <weir/weir.h>

#define WEIR_NS_PER_S UINT64_C(1000000000)

/* Bounds of what a table's slot can hold.  weir_limit_init() refuses what is beyond. */
#define WEIR_WINDOW_S_MAX (UINT64_C(100) * 365 * 86400) /* a hundred years */
#define WEIR_BUCKET_SPAN_NS_MAX (UINT64_C(1) << 62)     /* empty to full: 146 years */
#define WEIR_STEP_DEN_MAX 65536u
#define WEIR_SLIDE_INLINE_MAX 2097151u /* 2^21 - 1: counts that fit a slot's two halves */

/* As written in a rules file, with defaults filled in. */
struct weir_limit_spec {
    enum weir_algorithm algorithm;
    uint32_t requests_per_unit; /* L */
    uint32_t burst;             /* B: bucket size, or queue size; ignored by the windows */
    uint64_t window_s;          /* W in seconds: unit x unit_multiplier */
    uint32_t buckets;           /* sub-windows of a sliding counter; 1: the weighted form */
    bool count_rejected;
    bool round_up;
    bool refill_interval;
};

/* What decides while the store that all hosts share does not answer. */
enum weir_on_store_error {
    WEIR_STORE_ERROR_UNSAID, /* as the service's settings say */
    WEIR_STORE_ERROR_LOCAL,  /* the table, with this host's share of the limit */
    WEIR_STORE_ERROR_OPEN,   /* everything passes */
    WEIR_STORE_ERROR_CLOSED, /* nothing does */
};

/* How counts that all hosts share are kept. */
enum weir_consistency {
    WEIR_CONSISTENCY_UNSAID, /* as the service's settings say */
    WEIR_CONSISTENCY_EXACT,
    WEIR_CONSISTENCY_EVENTUAL,
};

struct weir_approx; /* counting: approximate (algo/sketch.h) */

/* What a decision reads comes first: 64 bytes, a line where a limit begins with one. */
struct weir_limit {
    uint64_t window_ns; /* W; for concurrency: how long a slot is leased, at least */
    uint64_t step_ns;   /* T, whole part */
    uint64_t cap_ns;    /* B*T; interval refill: at most WEIR_BUCKET_SPAN_NS_MAX of it */
    uint64_t tag;       /* identity beside the request's bytes: domain, name, algorithm, window */
    uint32_t step_num;
    uint32_t step_den;
    uint32_t cap_num;
    uint32_t requests; /* L */
    uint32_t burst;    /* B */
    uint8_t buckets;   /* at most WEIR_BUCKETS_MAX */
    uint8_t algorithm; /* enum weir_algorithm */
    bool count_rejected : 1;
    bool round_up : 1;
    bool refill_interval : 1;
    bool is_host_scope : 1;     /* scope: host (Redis is never asked) */
    uint8_t on_store_error : 2; /* enum weir_on_store_error */
    uint8_t consistency : 2;    /* enum weir_consistency */
    /* Bound to a table, before the rules are published (store/local.h): */
    uint8_t window_class; /* the number that the table gave to this window length */
    uint8_t window_shift; /* interval refill: the class is W << this, at least empty to full */
    uint8_t generation;   /* of the rate, so that a changed rate rescales what is used */
    uint8_t count_if;     /* which answers count: a number of the set's (rules.h); 0: every one */
    uint8_t spare;        /* zero: limits are compared as bytes */
    uint32_t lag_ms;      /* buckets: how old a reading of the clock may be when it is used */

    uint32_t variant; /* tells apart limits of one tag: overrides by value, prefix tiers; 0: none */
    uint32_t record;  /* the table's record of this limit, or WEIR_NO_RECORD */
    struct weir_approx *approx;         /* NULL: counted exactly */
    const struct weir_limit *record_of; /* whose record it has; NULL: its own */
};
_Static_assert(offsetof(struct weir_limit, variant) == 64, "what a decision reads: one line");
_Static_assert(sizeof(struct weir_limit) == 88, "with what a rule says of it, a rule's two lines");

#define WEIR_NO_RECORD UINT32_MAX

/* The number of its record.  A copy that stands for many limits (rules.h, struct weir_terms) has
 * everything but this, which is needed seldom: when it is, the limit itself is asked. */
static inline uint32_t weir_limit_record(const struct weir_limit *limit)
{
    return limit->record_of ? limit->record_of->record : limit->record;
}

/* W in seconds. */
static inline uint64_t weir_limit_window_s(const struct weir_limit *limit)
{
    return limit->window_ns / WEIR_NS_PER_S;
}

/* One limit's answer.  `before` is what was in use before this request, for statistics. */
struct weir_verdict {
    bool allowed;
    bool by_sketch; /* refused by what the sketch remembers of a key that had to leave */
    uint64_t limit;
    uint64_t remaining;
    uint64_t reset_after_ns;
    uint64_t retry_after_ns; /* WEIR_NEVER: waiting does not help */
    uint64_t delay_ns;
    uint64_t before;
};

/* Whether it is a bucket that tokens drip into. */
static inline bool weir_limit_drips(const struct weir_limit *limit)
{
    return limit->algorithm == WEIR_TOKEN_BUCKET && !limit->refill_interval;
}

/* Whether hosts can decide for themselves and tell each other later.  Slots of concurrency have
 * owners; a sketch's cells are shared by keys. */
static inline bool weir_limit_may_be_eventual(const struct weir_limit *limit)
{
    return limit->algorithm != WEIR_CONCURRENCY && limit->approx == NULL && !limit->is_host_scope;
}

/* L = 0 refuses every hit for good, and touches no state: no rate, nothing to divide by. */
static inline bool weir_limit_is_closed(const struct weir_limit *limit, uint64_t hits,
                                        struct weir_verdict *out)
{
    if (limit->requests > 0)
        return false;
    *out =
        (struct weir_verdict){.allowed = hits == 0, .retry_after_ns = hits == 0 ? 0 : WEIR_NEVER};
    return true;
}

/* 0, or WEIR_ERR_TOO_LARGE; *why then names the first bound that is not kept, in words fit for
 * an error message ("burst 5000000 at 1 per year takes longer than 146 years to refill"), in a
 * buffer of the caller's.  window_class, generation, record, tag and approx are left zero. */
WEIR_MUST_CHECK int weir_limit_init(struct weir_limit *out, const struct weir_limit_spec *spec,
                                    char *why, size_t why_len);

/* The same limit with another L (and B, where B followed L): for per-value overrides. */
WEIR_MUST_CHECK int weir_limit_with(struct weir_limit *out, const struct weir_limit *base,
                                    uint32_t requests, uint32_t burst, char *why, size_t why_len);

/* Seconds in a unit; 0 for WEIR_UNIT_UNKNOWN or a number that is none. */
uint64_t weir_unit_seconds(enum weir_unit unit);
/* "second", "minute" ...; NULL for what is none. */
const char *weir_unit_name(enum weir_unit unit);
const char *weir_algorithm_name(enum weir_algorithm algorithm);
const char *const *weir_algorithm_names(void); /* by number, NULL behind the last */

#endif
