/* types.h - the words that a caller and weir exchange: a request, a decision, an error.
 *
 * Everything here is plain data in the caller's memory.  weir copies nothing that it is
 * handed and keeps no pointer after a call returns, unless a comment says so.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TYPES_H
#define WEIR_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What can go wrong in the world.  A refusal is not here: it is a verdict, not an error. */
#define WEIR_ERRORS(X)                                                                             \
    X(NOMEM, 1, "out of memory")                                                                   \
    X(INVALID, 2, "invalid argument")                                                              \
    X(RULES, 3, "the rules are not valid")                                                         \
    X(IO, 4, "input or output failed")                                                             \
    X(TABLE, 5, "the table file cannot be used")                                                   \
    X(TOO_LARGE, 6, "over a maximum")                                                              \
    X(FULL, 7, "no room left")                                                                     \
    X(UNSUPPORTED, 8, "not supported here")                                                        \
    X(NOT_FOUND, 9, "not found")                                                                   \
    X(DOMAIN_EMPTY, 10, "rate limit domain must not be empty")                                     \
    X(DESCRIPTORS_EMPTY, 11, "rate limit descriptor list must not be empty")                       \
    X(OVERRIDE_UNIT, 12,                                                                           \
      "a limit override needs a unit: second, minute, hour, day, week, month "                     \
      "or year")                                                                                   \
    X(STORE, 13, "the store answered what it should not")                                          \
    X(STORE_AWAY, 14, "the store cannot be asked")                                                 \
    X(STORE_LATE, 15, "the store did not answer in time")                                          \
    X(NO_RULES, 16, "no rate limit configuration loaded")

enum weir_err {
#define WEIR_X(name, number, text) WEIR_ERR_##name = -(number),
    WEIR_ERRORS(WEIR_X)
#undef WEIR_X
};

/* Bytes with a length; never assumed to end in NUL. */
struct weir_str {
    const char *ptr;
    size_t len;
};

enum weir_code {
    WEIR_CODE_OK = 1,
    WEIR_CODE_OVER_LIMIT = 2,
};

/* envoy.type.v3.RateLimitUnit's numbers, and WEEK as envoyproxy/ratelimit numbers it. */
enum weir_unit {
    WEIR_UNIT_UNKNOWN = 0,
    WEIR_UNIT_SECOND = 1,
    WEIR_UNIT_MINUTE = 2,
    WEIR_UNIT_HOUR = 3,
    WEIR_UNIT_DAY = 4,
    WEIR_UNIT_MONTH = 5,
    WEIR_UNIT_YEAR = 6,
    WEIR_UNIT_WEEK = 7,
};

enum weir_algorithm {
    WEIR_FIXED_WINDOW,
    WEIR_SLIDING_WINDOW_COUNTER,
    WEIR_SLIDING_WINDOW_LOG,
    WEIR_TOKEN_BUCKET,
    WEIR_LEAKY_BUCKET,
    WEIR_CONCURRENCY,
};

/* retry_after_ns of a request that can never pass: more hits than the limit can hold. */
#define WEIR_NEVER UINT64_MAX

struct weir_entry {
    struct weir_str key;
    struct weir_str value;
};

/* A limit that the request itself brings; the rules of the domain are then not consulted. */
struct weir_override {
    uint32_t requests_per_unit;
    enum weir_unit unit;
};

struct weir_descriptor {
    const struct weir_entry *entries;
    uint32_t entry_count;
    bool has_hits;                        /* hits below counts; otherwise the request's */
    bool is_negative_hits;                /* give back instead of take */
    uint64_t hits;                        /* 0 = look, take nothing */
    const struct weir_override *override; /* NULL: as the rules say */
};

struct weir_request {
    struct weir_str domain;
    const struct weir_descriptor *descriptors;
    uint32_t descriptor_count;
    uint32_t hits_addend; /* for descriptors without hits of their own; 0 counts as 1 */
};

/* A rule as its callers may see it.  Borrowed: valid until the session's next call. */
struct weir_rule_info {
    struct weir_str id;       /* `id:` of the rule, or its path: "domain.key_value.key" */
    struct weir_str name;     /* `name:` of the limit, or empty */
    struct weir_str metadata; /* `metadata:` as JSON text, or empty */
    enum weir_unit unit;
    uint32_t unit_multiplier;
    uint32_t requests_per_unit;
    enum weir_algorithm algorithm;
};

#define WEIR_PLACES_MAX 8   /* as many as one rule can have limits */
#define WEIR_STATUSES_MAX 8 /* of a `count_if` */

/* Which answers count: statuses, and classes of them (4 is 400 to 499). */
struct weir_status_set {
    uint16_t count; /* 0: every answer */
    uint16_t statuses[WEIR_STATUSES_MAX];
};

/* One concurrency slot, one place in a leaky bucket's queue, or hits that may not count.  Not for
 * callers to read: it tells the table all it must know, so a ticket stays good when the rules
 * change, and in every process on the same table. */
struct weir_place {
    uint64_t key;
    uint64_t mark; /* the deadline, or the place */
    uint32_t requests;
    uint32_t burst;
    uint32_t window_s;
    uint32_t buckets;
    uint32_t record;
    uint32_t lag_ms;
    uint8_t algorithm;
    uint8_t window_class;
    uint8_t window_shift;
    uint8_t generation;
    uint8_t round_up; /* no bool: a ticket may come from anywhere */
    uint8_t refill_interval;
    struct weir_status_set count_if;
};

/* What must be handed back to return concurrency slots, a leaky bucket's last place, or hits of a
 * limit that counts some answers only.  Plain data, which may be moved, but is handed back once:
 * slots that end together cannot be told apart. */
struct weir_ticket {
    uint64_t renew_ns; /* 0, or how often weir_renew() keeps its slots */
    uint64_t hits;
    uint32_t count; /* of places; 0: nothing to release */
    struct weir_place places[WEIR_PLACES_MAX];
    /* What a store knows the places by (weir.h, struct weir_desk); empty: they are the table's.
     * Borrowed like the status: who keeps the ticket copies these bytes, too. */
    struct weir_str away;
};

struct weir_status {
    enum weir_code code;
    bool is_limited;                   /* a limit applied: the numbers below mean something */
    bool is_unlimited;                 /* the rule says `unlimited` */
    bool is_shadow;                    /* the rule refused, the caller is not told so */
    bool is_quota;                     /* the rule is in quota mode */
    const struct weir_rule_info *rule; /* NULL where no rule matched, and for overrides */
    enum weir_unit unit;
    uint64_t limit;
    uint64_t remaining;
    uint64_t reset_after_ns;
    uint64_t retry_after_ns; /* 0 if allowed; WEIR_NEVER if waiting does not help */
    uint64_t delay_ns;       /* hold an allowed request this long */
    struct weir_ticket ticket;
};

/* A limit that comes along with its key; no rule is asked.  The key alone names the counter: calls
 * that speak of one key should agree on the rest. */
struct weir_throttle {
    struct weir_str key;
    uint32_t burst;    /* the bucket's size */
    uint32_t count;    /* tokens that come back ... */
    uint32_t period_s; /* ... in so many seconds */
    int64_t quantity;  /* tokens to take; 0: look; negative: give back */
};

struct weir_throttled {
    bool allowed;
    uint64_t limit; /* the burst */
    uint64_t remaining;
    uint64_t reset_after_ns;
    uint64_t retry_after_ns; /* 0 if allowed; WEIR_NEVER if waiting does not help */
};

#define WEIR_KEY_WORDS_MAX 32 /* as many as a descriptor can have entries */

/* A key in words, for people.  Where the table keeps them, long ones are cut. */
struct weir_key_words {
    struct weir_str domain; /* empty: not known (any more, or yet) */
    struct weir_entry entries[WEIR_KEY_WORDS_MAX];
    uint32_t entry_count;
    bool is_cut; /* some are missing, or the last one ends early */
};

struct weir_decision {
    enum weir_code overall;
    bool is_denied; /* weir_check_http(): an attribute is missing without which nobody passes */
    uint32_t status_count;
    struct weir_status *statuses; /* the caller's array, one for each descriptor */
};

/* Looks up an attribute of an HTTP request by the key that the rules give it: 1, 0 where it has
 * none, or an error, which ends the check.  The value must last until the check returns. */
typedef int (*weir_attribute_fn)(void *ctx, struct weir_str key, struct weir_str *value);

/* Which of the rules a check of an HTTP request asks, by what is known yet: see is_late. */
enum weir_stage { WEIR_STAGE_ALL, WEIR_STAGE_EARLY, WEIR_STAGE_LATE };

/* An HTTP request, of which the rules say what matters. */
struct weir_http {
    struct weir_str domain; /* ptr is NULL: the only one there is */
    weir_attribute_fn attribute;
    void *ctx;
    /* For who must decide in two stages: whether a key is known in the late stage only (`user`,
     * before anybody has authenticated).  A rule with such a key is asked late. */
    bool (*is_late)(void *ctx, struct weir_str key);
    enum weir_stage stage;
    bool has_hits; /* hits counts; otherwise 1 */
    uint64_t hits;
};

/* How a decision is told in headers: see weir_headers(). */
enum weir_dialect {
    WEIR_DIALECT_LEGACY = 1,
    WEIR_DIALECT_IETF_11 = 2,
    WEIR_DIALECT_RESET_EPOCH = 4,
    WEIR_DIALECT_RESET_DELTA = 8,
};

enum weir_refusal_body { WEIR_REFUSAL_PLAIN, WEIR_REFUSAL_PROBLEM };

#ifdef __cplusplus
}
#endif
#endif
