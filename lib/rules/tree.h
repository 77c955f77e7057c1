/* tree.h - the compiled rules, for those who build them and those who match.
 *
 * Three arrays hold nearly everything, each in one piece, so that an index of 4 bytes names any of
 * them and a further simple rule costs its row in each and the text of its id:
 *
 *     nodes    one for each domain and descriptor; a child names its parent, not vice versa
 *     rules    one for each node that has a limit, in the order of the files
 *     limits   every counter of every rule, then those of overrides
 *
 * All children of all nodes are in one dictionary, keyed by (parent, "key_value"): a level has no
 * table of its own.  "key_value" is one text because envoyproxy/ratelimit matches it as one: (a,
 * b_c) and (a_b, c) are the same there, and so they are here.  What a hash cannot find (patterns,
 * networks, paths) hangs off the parent's level, which few nodes have.
 *
 * Purity: plain data, immutable after load.  Threads: any.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_RULES_TREE_H
#define WEIR_RULES_TREE_H

#include "base/arena.h"
#include "base/hash.h"
#include "rules/draft.h"
#include "rules/rules.h"

#define WEIR_NONE UINT32_MAX

struct weir_cidrs;
struct weir_paths;
struct weir_regex;
struct weir_shape;

struct weir_node {
    const char *text;            /* "key_value" or "key"; a domain: its name */
    struct weir_children *level; /* of its children; NULL: it has none */
    uint32_t parent;
    uint32_t rule; /* WEIR_NONE: no limit here.  A domain: its number */
    uint16_t text_len;
    uint16_t key_len;
    uint8_t kind; /* enum weir_match_kind */
    bool is_shared : 1;
    bool is_cut : 1; /* addresses are cut to a prefix */
    bool has_overrides : 1;
    bool has_value_to_metric : 1;
};

/* A wildcard or a regex, tried in the order of the file. */
struct weir_pattern {
    uint32_t node;
    uint16_t literal_len;     /* of a wildcard: its bytes without the stars */
    uint16_t prefix_len;      /* up to the first star */
    uint16_t suffix_len;      /* after the last */
    struct weir_regex *regex; /* NULL: a wildcard */
};

/* How the children of one node can be found. */
struct weir_children {
    /* Bit (length mod 64) of every text below: most requests that match only a bare key are known
     * not to match an exact value before anything is hashed. */
    uint64_t lengths;
    struct weir_pattern *patterns;
    struct weir_cidrs *cidrs;
    struct weir_paths *paths;
    uint32_t pattern_count;
};

/* Another number for one value. */
struct weir_override_row {
    struct weir_str value;
    uint32_t node;
    uint32_t limit; /* the first of its rule's limit_count */
};

/* One line of an attribute's map. */
struct weir_map_row {
    struct weir_str key, value;
    uint32_t attribute;
};

struct weir_attribute {
    struct weir_str name, from, otherwise;
    bool has_otherwise;
    uint32_t number; /* in the set */
};

struct weir_id_row {
    uint32_t domain, rule;
};

struct weir_domain {
    const struct weir_rules *rules;
    struct weir_str name;
    uint64_t tag;
    uint32_t node; /* root of its tree */
    bool is_atomic;
    struct weir_attribute *attributes;
    uint32_t attribute_count;
    struct weir_shape *shapes; /* WEIR_SHAPES_MAX of them, shape_count used */
    uint32_t shape_count;
    bool has_too_many_shapes;
};

/* What a slot of the dictionary names; also how its key is told from others with the same bytes. */
enum weir_dict_kind {
    WEIR_DICT_NODE,     /* owner: the parent; exact values, wildcards, bare keys */
    WEIR_DICT_DOMAIN,   /* a node too */
    WEIR_DICT_REGEX,    /* a node too: found when it is written twice, never by a request */
    WEIR_DICT_OVERRIDE, /* owner: the node */
    WEIR_DICT_MAP,      /* owner: the attribute */
    WEIR_DICT_ID,       /* owner: the domain */
};

/* Linear probing, at most 3/4 full.  The print is half of the hash: a request that has no rule is
 * turned away without looking at any row. */
struct weir_dict_slot {
    uint32_t print;
    uint32_t row; /* kind << 29 | index, + 1; 0: free */
};

struct weir_dict {
    struct weir_dict_slot *slots;
    uint32_t mask;
    struct weir_hash_key key;
};

struct weir_rules {
    struct weir_arena arena;
    struct weir_dict dict;
    struct weir_node *nodes;
    struct weir_rule *rules;
    struct weir_rule_limit *limits;
    struct weir_domain *domains;
    struct weir_override_row *overrides;
    struct weir_map_row *map_rows;
    struct weir_id_row *ids;
    struct weir_regex *regexes; /* all of them, to be freed */
    uint32_t node_count, rule_count, limit_count, domain_count;
    uint32_t override_count, map_row_count, id_count, attribute_count;
};

/* A key of the dictionary: 8 bytes of kind and owner, then the text, so that one hash covers both.
 */
#define WEIR_DICT_HEAD 8u

void weir_dict_head(char head[WEIR_DICT_HEAD], enum weir_dict_kind kind, uint32_t owner);
/* The index, or WEIR_NONE.  key: head and text together, len of both. */
uint32_t weir_dict_find(const struct weir_rules *rules, const char *key, size_t len);
/* Adds the row `index` of the kind's array, which must be filled in already.  Returns the index of
 * the row that has this key already, or WEIR_NONE when it was added. */
uint32_t weir_dict_add(struct weir_rules *rules, enum weir_dict_kind kind, uint32_t index);
/* Room for count keys; false: out of memory. */
WEIR_MUST_CHECK bool weir_dict_init(struct weir_dict *dict, struct weir_arena *arena,
                                    uint64_t count, const struct weir_hash_key *key);

static inline struct weir_str weir_node_text(const struct weir_node *node)
{
    return (struct weir_str){.ptr = node->text, .len = node->text_len};
}

static inline struct weir_str weir_node_key(const struct weir_node *node)
{
    return (struct weir_str){.ptr = node->text, .len = node->key_len};
}

/* Empty for a bare key. */
static inline struct weir_str weir_node_value(const struct weir_node *node)
{
    if (node->text_len == node->key_len)
        return (struct weir_str){.ptr = "", .len = 0};
    return (struct weir_str){.ptr = node->text + node->key_len + 1,
                             .len = (size_t)node->text_len - node->key_len - 1u};
}

/* match.c: the child that an entry meets, or NULL.  work holds WEIR_MATCH_WORK bytes. */
#define WEIR_MATCH_WORK (WEIR_DICT_HEAD + WEIR_KEY_LEN_MAX + 1 + WEIR_VALUE_LEN_MAX)
const struct weir_node *weir_match_child(const struct weir_rules *rules,
                                         const struct weir_node *parent,
                                         const struct weir_entry *entry, char *work);

#endif
