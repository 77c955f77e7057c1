/* rules.h - what the rules files say, compiled into one immutable tree.
 *
 *     file -> draft (yaml.c)  ->  validated as a whole, compiled (compile.c)  ->  matched (match.c)
 *
 * A set of rules is built whole in one arena, from all files at once, or not at all.  All errors
 * of all files are reported, each `file:line:column: text`.  Matching follows
 * envoyproxy/ratelimit: at each level one child is chosen - exact value, path pattern (most
 * literal segments), CIDR (longest prefix), wildcards and regexes in the order of the file, bare
 * key - and what is chosen stays chosen.
 *
 * A request's words are found by a keyed 64-bit hash of them, and not compared: with a key that
 * nobody knows, chosen anew at every load, the odds that a word passes for another are 2^-64 for
 * each one looked up.  (Words of the rules themselves are compared when they are loaded.)
 *
 * Purity: match() does no I/O, reads no clock and allocates nothing.
 * Threads: a set is immutable after load, but for what store binding fills in before it is
 * published.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_RULES_RULES_H
#define WEIR_RULES_RULES_H

#include "algo/limit.h"
#include "base/maxima.h"

#include <stddef.h>
#include <weir/types.h>
#include <weir/weir.h>

struct weir_rules; /* opaque: the arena, the domains and their trees */

/* How the value of one level enters a counter's identity. */
enum weir_part {
    WEIR_PART_VALUE,  /* the request's own value */
    WEIR_PART_SHARED, /* the rule's pattern: all that match share one counter */
    WEIR_PART_PREFIX, /* an address, cut to a prefix */
};

/* One counter of a rule: a limit, and to which prefix addresses are cut for it.  A rule has
 * (number of limits) x (number of prefix tiers) of them; all must allow, or none is charged. */
struct weir_rule_limit {
    struct weir_limit limit;
    uint8_t ipv4_prefix; /* for levels that are WEIR_PART_PREFIX; 0..32 */
    uint8_t ipv6_prefix; /* 0..128 */
    uint8_t ordinal;     /* position in the rule's list */
};

/* A descriptor node that has a limit.  Of most rules a decision reads nothing (struct weir_terms);
 * the others are laid out for a processor that has to wait for them:
 *
 *     line 0   what a decision asks first, and its only limit up to the tag: the counter's name
 *     line 1   the rest of that limit
 *     line 2   what is told to callers, which no decision reads
 */
struct weir_rule {
    _Alignas(64) uint64_t stats_id;  /* hash of domain and id: names its statistics in the table */
    const struct weir_str *replaces; /* names of other limits that this one replaces */
    uint32_t replaces_count;
    uint32_t node;         /* in the tree */
    uint32_t stat;         /* bound with the limits: the number under which it counts */
    uint8_t limit_count;   /* at most WEIR_LIMITS_MAX */
    bool is_unlimited : 1; /* then limit_count is 0 */
    bool is_shadow : 1;
    bool is_quota : 1;
    bool has_detailed_metric : 1;
    bool has_value_stats : 1; /* that, or value_to_metric at some level of its path; and a limit */
    uint8_t unit;             /* info.unit */
    union {                   /* weir_rule_limits() knows which */
        struct weir_rule_limit only;
        struct weir_rule_limit *several;
    };
    struct weir_rule_info info; /* of its first limit; what callers see */
};
_Static_assert(sizeof(struct weir_rule) == 192 && offsetof(struct weir_rule, info) == 128,
               "a rule is three cache lines, of which a decision reads two");

/* limit_count of them. */
static inline const struct weir_rule_limit *weir_rule_limits(const struct weir_rule *rule)
{
    return rule->limit_count == 1 ? &rule->only : rule->several;
}

/* What a decision asks of a rule with one limit, as far as others say the same.  In a large set
 * most rules do, word for word: so their terms stay in the processor's caches, where the rules
 * themselves do not. */
struct weir_terms {
    struct weir_limit limit; /* without its record */
    uint8_t unit;
    bool is_shadow, is_quota, has_value_stats, has_replaces;
};

struct weir_domain; /* opaque: one domain's tree */

/* What one descriptor met. */
struct weir_match {
    const struct weir_rule *rule;         /* NULL: no limit applies */
    const struct weir_rule_limit *limits; /* the rule's, or those of a per-value override */
    const struct weir_terms *terms;       /* the rule's; NULL: it must be asked itself */
    uint32_t stat;                        /* with terms: the rule's */
    uint8_t limit_count;
    bool has_shared_parts;                    /* some part[] is not WEIR_PART_VALUE */
    uint8_t part[WEIR_ENTRIES_MAX];           /* enum weir_part for each entry */
    struct weir_str shared[WEIR_ENTRIES_MAX]; /* where part[i] is WEIR_PART_SHARED: the pattern */
};

struct weir_rules_options {
    const char *path;   /* file or directory */
    bool merge_domains; /* as MERGE_DOMAIN_CONFIG */
    weir_log_fn log;    /* every error and warning, one line each; may be NULL */
    void *log_ctx;
};

/* Loads, validates and compiles.  0, or WEIR_ERR_RULES, WEIR_ERR_IO, WEIR_ERR_NOMEM; all that is
 * wrong has been logged then and *out is untouched. */
WEIR_MUST_CHECK int weir_rules_load(struct weir_rules **out,
                                    const struct weir_rules_options *options);
/* The same from memory (one file, named `name` in messages): for tests and fuzzing. */
WEIR_MUST_CHECK int weir_rules_load_text(struct weir_rules **out, struct weir_str text,
                                         const char *name,
                                         const struct weir_rules_options *options);
/* The same from several, as if they were the files of one directory. */
struct weir_rules_text {
    const char *name; /* in messages */
    struct weir_str text;
};
WEIR_MUST_CHECK int weir_rules_load_texts(struct weir_rules **out,
                                          const struct weir_rules_text *texts, uint32_t count,
                                          const struct weir_rules_options *options);
void weir_rules_free(struct weir_rules *rules);

/* Domains by number, from 0; NULL past the last. */
const struct weir_domain *weir_rules_domain_at(const struct weir_rules *rules, uint32_t number);
const struct weir_domain *weir_rules_domain(const struct weir_rules *rules, struct weir_str name);
/* `atomic:` of the domain: a refused request consumes nothing anywhere. */
bool weir_domain_is_atomic(const struct weir_domain *domain);
struct weir_str weir_domain_name(const struct weir_domain *domain);
/* Identity of the domain, part of every counter's: a hash of its name, the same in every process.
 */
uint64_t weir_domain_tag(const struct weir_domain *domain);

/* Finds what rules share.  Once all limits are bound and all statistics numbered, before the set is
 * published.  Where there is no memory for it, decisions ask the rules. */
void weir_rules_share(struct weir_rules *rules);

/* Finds the rule of one descriptor.  entries must be within the maxima. */
void weir_rules_match(const struct weir_domain *domain, const struct weir_entry *entries,
                      uint32_t entry_count, struct weir_match *out);

/* Whether another value of the last entry would have met the same rule, and be counted as it is:
 * that entry is a bare key's, and no rule beside it looks for values by a pattern.  *known: bit
 * (length mod 64) for lengths of values that the rules may know all the same. */
bool weir_rule_takes_any(const struct weir_domain *domain, const struct weir_rule *rule,
                         uint64_t *known);

/* The same in three steps, for who has something else to do while memory is on its way:
 *
 *     guess   where the rule will be looked for; starts to fetch that     reads the domain only
 *     find    as match, but limits (unless overridden) and limit_count    reads no rule
 *     settle  limits and limit_count                                      reads the rule
 */
#define WEIR_GUESSES_MAX 4 /* levels; what is deeper is found one by one */

struct weir_guess {
    uint64_t hash[WEIR_GUESSES_MAX];
    uint8_t count;
    uint8_t with_value; /* bit i: hash[i] is of "key_value", not of "key" */
    bool is_nothing;    /* entry `count` is known to match nothing */
};
void weir_rules_guess(const struct weir_domain *domain, const struct weir_entry *entries,
                      uint32_t entry_count, struct weir_guess *out);
void weir_rules_find(const struct weir_domain *domain, const struct weir_entry *entries,
                     uint32_t entry_count, const struct weir_guess *guess, struct weir_match *out);

static inline void weir_rules_settle(struct weir_match *m)
{
    if (!m->rule)
        return;
    m->limit_count = m->rule->limit_count;
    if (!m->limits)
        m->limits = weir_rule_limits(m->rule);
}

/* The name of a descriptor's statistics, as envoyproxy/ratelimit makes it: the path of its rule,
 * with the request's values where detailed_metric or value_to_metric say so.  Returns its length,
 * of which at most out_len bytes are written; 0: no rule matches. */
size_t weir_rules_stats_key(const struct weir_domain *domain, const struct weir_entry *entries,
                            uint32_t entry_count, char *out, size_t out_len);
/* What would end a name, or be taken for a level of it, becomes '_': ':', '|', control characters,
 * and the dots of IPv4 addresses. */
void weir_rules_stats_clean(char *name, size_t len);

/* The answers that a limit counts; NULL: every one. */
const struct weir_status_set *weir_rules_count_if(const struct weir_rules *rules,
                                                  const struct weir_limit *limit);

/* All rules of the set, in the order of their index. */
uint32_t weir_rules_count(const struct weir_rules *rules);
struct weir_rule *weir_rules_at(const struct weir_rules *rules, uint32_t index);

/* Every limit of the set, those of per-value overrides included, so that each can be bound to a
 * table.  Numbered 0.. in a fixed order. */
uint32_t weir_rules_limit_count(const struct weir_rules *rules);
struct weir_limit *weir_rules_limit_at(const struct weir_rules *rules, uint32_t number);

#endif
