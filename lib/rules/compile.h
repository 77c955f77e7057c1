/* compile.h - drafts of all files to one immutable tree.
 *
 * Everything that needs to know more than one field is judged here, and reported at the draft's
 * marks.  All of the draft is compiled even after an error, so that the report is complete; the
 * result is then thrown away by the caller.
 *
 * Purity: no I/O; randomness (the dictionary's key) is an argument.  Threads: one at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_RULES_COMPILE_H
#define WEIR_RULES_COMPILE_H

#include "base/buf.h"
#include "rules/tree.h"

/* Fills rules, whose arena is initialised and empty.  False: out of memory.  The report says
 * whether the result is any good. */
WEIR_MUST_CHECK bool weir_compile(struct weir_rules *rules, struct weir_draft *draft,
                                  struct weir_report *report, bool merge_domains,
                                  const struct weir_hash_key *key);

/* ---- what the parts of the compiler share ---- */

struct weir_compiler {
    struct weir_rules *rules;
    struct weir_draft *draft;
    struct weir_report *report;
    struct weir_mark *marks; /* of each node, in the draft's arena */
    struct weir_buf path;    /* "domain.key_value" down to where we are */
    struct weir_domain *domain;
    const struct weir_draft_limit *defaults; /* of this domain, or NULL */
    struct weir_mark *id_marks;
};

/* How many nodes, rules, limits ... the draft will need. */
struct weir_totals {
    uint64_t nodes, rules, domains, overrides, map_rows, ids, attributes;
    uint64_t limits, apart; /* all, and those of them that do not lie in their rule */
};

/* compile_limit.c: the rule of a descriptor that has limits.  cut: the descriptor of the chain, at
 * or above this one, whose prefixes addresses are cut to; or NULL.  id is in the arena. */
void weir_compile_rule(struct weir_compiler *c, const struct weir_draft_descriptor *draft,
                       const struct weir_draft_descriptor *cut, uint32_t node, struct weir_str id);
/* Prefix tiers of a chain: at least 1. */
uint32_t weir_compile_tiers(const struct weir_draft_descriptor *cut);

/* compile_tag.c: identities that are the same in every process. */
uint64_t weir_tag_domain(struct weir_str domain);
uint64_t weir_tag_stats(struct weir_str domain, struct weir_str id);
/* Tells the limits of different rules, and of a rule's overrides, apart where the tag does not:
 * each may have a rate of its own. */
uint32_t weir_tag_variant(uint64_t stats_id, struct weir_str overridden);
uint64_t weir_tag_limit(uint64_t domain_tag, const struct weir_limit_spec *spec,
                        struct weir_str name, uint32_t ordinal, uint32_t tier);

/* compile_domain.c: the draft's roots, grouped by domain. */
void weir_compile_domains(struct weir_compiler *c, bool merge_domains);
/* shapes_compile.c: the chains of keys that end in a limit. */
void weir_compile_shapes(struct weir_compiler *c, const struct weir_draft_root *root);
/* compile.c: all descriptors of a list, below the node.  depth: of the list, from 0. */
struct weir_compile_place {
    uint32_t node, depth;
    uint64_t hash; /* of the node */
};
void weir_compile_level(struct weir_compiler *c, struct weir_compile_place parent,
                        const struct weir_draft_descriptor *first,
                        const struct weir_draft_descriptor *cut);

/* exact, or wildcard where a * says so. */
enum weir_match_kind weir_compile_kind(const struct weir_draft_descriptor *draft);

#endif
