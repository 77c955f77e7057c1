/* draft.h - rules as written: every file parsed, nothing yet judged as a whole.
 *
 * A draft lives in an arena of its own and is gone when the rules are compiled.  Texts point into
 * that arena.  Everything keeps its mark, because most errors are found only later, against other
 * files.
 *
 *     root (one a file) -> descriptor -> descriptor ...
 *                              |-> limit -> limit     a list is all or nothing
 *                              '-> extra              what few rules have
 *
 * Purity: plain data.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_RULES_DRAFT_H
#define WEIR_RULES_DRAFT_H

#include "algo/limit.h"
#include "rules/report.h"
#include "rules/shapes.h"

enum weir_match_kind {
    WEIR_MATCH_EXACT,
    WEIR_MATCH_WILDCARD,
    WEIR_MATCH_REGEX,
    WEIR_MATCH_PATH,
    WEIR_MATCH_CIDR,
    WEIR_MATCH_UNSAID, /* exact, or a wildcard where there is a * */
};

/* Which fields of a limit were written; what was not is filled from `defaults:`, then ours. */
enum weir_limit_field {
    WEIR_HAS_UNIT = 1 << 0,
    WEIR_HAS_REQUESTS = 1 << 1,
    WEIR_HAS_MULTIPLIER = 1 << 2,
    WEIR_HAS_ALGORITHM = 1 << 3,
    WEIR_HAS_BURST = 1 << 4,
    WEIR_HAS_REFILL = 1 << 5,
    WEIR_HAS_ROUNDING = 1 << 6,
    WEIR_HAS_BUCKETS = 1 << 7,
    WEIR_HAS_COUNT_REJECTED = 1 << 8,
    WEIR_HAS_COUNTING = 1 << 9,
    WEIR_HAS_SCOPE = 1 << 10,
    WEIR_HAS_COUNT_IF = 1 << 11,
    WEIR_HAS_ON_STORE_ERROR = 1 << 12,
    WEIR_HAS_CONSISTENCY = 1 << 13,
};

struct weir_draft_name {
    struct weir_str name;
    struct weir_mark at;
    struct weir_draft_name *next;
};

struct weir_draft_limit {
    struct weir_mark at;
    uint32_t has; /* enum weir_limit_field */
    struct weir_str name;
    struct weir_str unit;
    struct weir_mark unit_at;
    uint32_t requests, unit_multiplier, burst, buckets;
    uint32_t width, depth; /* counting: approximate; width 0: exact */
    uint64_t bloom_bits;
    struct weir_status_set count_if;
    uint8_t algorithm;      /* enum weir_algorithm */
    uint8_t on_store_error; /* enum weir_on_store_error */
    uint8_t consistency;    /* enum weir_consistency */
    bool is_unlimited;
    bool count_rejected;
    bool round_up;
    bool refill_interval;
    bool is_host_scope;
    struct weir_draft_name *replaces; /* in the order of the file */
    struct weir_draft_limit *next;
};

/* One length to which addresses are cut, and how much more the wider net may hold. */
struct weir_draft_tier {
    uint8_t prefix;
    uint32_t times;
};

#define WEIR_TIERS_MAX WEIR_LIMITS_MAX

struct weir_draft_tiers {
    struct weir_mark at;
    uint32_t count; /* 0: not written */
    struct weir_draft_tier tier[WEIR_TIERS_MAX];
};

/* A value and another: an override's number, or a line of an attribute's map. */
struct weir_draft_pair {
    struct weir_mark at;
    struct weir_str key;
    struct weir_str text; /* of a map */
    uint32_t number;      /* of an override */
    struct weir_draft_pair *next;
};

struct weir_draft_extra {
    struct weir_str id;
    struct weir_mark id_at;
    struct weir_str metadata; /* JSON */
    struct weir_draft_tiers ipv4, ipv6;
    struct weir_draft_pair *overrides;
    struct weir_mark overrides_at;
    uint32_t override_count;
    enum weir_absent if_absent;
    struct weir_str if_absent_value;
    struct weir_mark if_absent_at;
};

struct weir_draft_descriptor {
    struct weir_mark at, value_at, share_at;
    struct weir_str key, value;
    struct weir_draft_limit *limits;
    struct weir_draft_extra *extra; /* NULL: none of its fields written */
    struct weir_draft_descriptor *children, *last_child;
    struct weir_draft_descriptor *next;
    uint16_t limit_count;
    uint8_t match; /* enum weir_match_kind */
    bool is_match_said : 1;
    bool is_list : 1; /* rate_limit was a list */
    bool has_share : 1;
    bool is_shared : 1;
    bool is_shadow : 1;
    bool is_quota : 1;
    bool has_detailed_metric : 1;
    bool has_value_to_metric : 1;
};

struct weir_draft_attribute {
    struct weir_mark at;
    struct weir_str name, from;
    struct weir_str otherwise; /* `default:` */
    bool has_otherwise;
    struct weir_draft_pair *map;
    uint32_t map_count;
    struct weir_draft_attribute *next;
};

/* One file. */
struct weir_draft_root {
    struct weir_mark at, domain_at, defaults_at;
    struct weir_str domain;
    struct weir_draft_descriptor *descriptors, *last_descriptor;
    struct weir_draft_limit *defaults; /* NULL: none */
    struct weir_draft_attribute *attributes;
    bool is_atomic;
    struct weir_draft_root *next;
    struct weir_draft_root *next_same; /* of the same domain, when merging */
};

struct weir_draft {
    struct weir_arena arena;
    struct weir_draft_root *roots, *last_root;
};

#endif
