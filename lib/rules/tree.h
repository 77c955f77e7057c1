/* tree.h - the compiled rules, for those who build them and those who match.
 *
 * Three arrays hold nearly everything, each in one piece, so that an index of 4 bytes names any of
 * them and a further simple rule costs its row in each and the text of its id:
 *
 *     nodes    one for each domain and descriptor; a child names its parent, not vice versa
 *     rules    one for each node that has a limit, in the order of the files; a single limit lies
 *              in its rule
 *     limits   the counters of rules that have several, and those of overrides
 *
 * All children of all nodes are in one dictionary, keyed by (parent, "key_value"): a level has no
 * table of its own.  "key_value" is one text because envoyproxy/ratelimit matches it as one: (a,
 * b_c) and (a_b, c) are the same there, and so they are here.  What a hash cannot find (patterns,
 * networks, paths) hangs off the parent's level, which few nodes have.
 *
 * With many rules none of this is in the processor's caches, so what counts is how many places a
 * request must see one after the other.  A child is hashed together with its parent's hash, not
 * its number: so the places of a whole chain are known, and fetched, before the first is seen.
 * And a slot of the dictionary says all that a request needs of a plain node and its rule, which
 * is known by its address and not read; its counter's place can be guessed (engine/plan.c):
 *
 *     entries -> slot, slot, ...  ->  terms, which many rules share
 *             -> counter
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
_Static_assert(sizeof(struct weir_node) == 32, "a node is half a cache line");

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
    bool has_underscore; /* in some text: else no "key_value" can match */
};

/* Another number for one value. */
struct weir_override_row {
    struct weir_str value;
    uint32_t node;
    uint32_t limit; /* in limits: the first of its rule's limit_count */
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

/* What a slot of the dictionary names; also how its key is told from others with the same bytes. */
enum weir_dict_kind {
    WEIR_DICT_NODE,     /* owner: the parent; exact values, wildcards, bare keys */
    WEIR_DICT_DOMAIN,   /* a node too */
    WEIR_DICT_REGEX,    /* a node too: found when it is written twice, never by a request */
    WEIR_DICT_CIDR,     /* not in the dictionary: only for the hashes of its children */
    WEIR_DICT_PATH,     /* nor this */
    WEIR_DICT_OVERRIDE, /* owner: the node */
    WEIR_DICT_MAP,      /* owner: the attribute */
    WEIR_DICT_ID,       /* owner: the domain */
};

#define WEIR_DICT_INDEX_MAX ((1u << 25) - 1)
#define WEIR_TERMS_MAX ((1u << 11) - 1)
#define WEIR_DICT_STAT_MAX ((1u << 13) - 1)
_Static_assert(WEIR_RULES_MAX <= WEIR_DICT_INDEX_MAX, "a slot can name every rule");
_Static_assert(WEIR_STATS_RULES_MAX <= WEIR_DICT_STAT_MAX, "and all that it counts under");

/* Linear probing, at most 3/4 full.  Of a node it says all that matching asks, as long as the node
 * is plain; weir_dict_seal() writes that when the whole tree is there, and weir_rules_share() what
 * a decision asks of its rule. */
struct weir_dict_slot {
    uint64_t hash;               /* of kind, owner and text; 0: free */
    uint64_t index : 25;         /* of its row; a node's with a limit: its rule's, sealed */
    uint64_t kind : 3;           /* enum weir_dict_kind */
    uint64_t has_rule : 1;       /* a limit is here */
    uint64_t terms : 11;         /* of its rule: in rules->terms; 0: it must be asked */
    uint64_t stat : 13;          /* with terms: the rule's */
    uint64_t lengths : 8;        /* of its children's texts: bit (length mod 8) */
    uint64_t has_underscore : 1; /* in a text of its children */
    uint64_t has_special : 1;    /* children that no hash finds */
    uint64_t is_plain : 1;       /* values are as they are, and none is overridden */
};
_Static_assert(sizeof(struct weir_dict_slot) == 16, "four slots in a cache line");
#define WEIR_COUNT_IFS_MAX 255 /* different ones in a set of rules */

struct weir_dict {
    struct weir_dict_slot *slots;
    uint64_t size;
    struct weir_hash_key key;
    bool has_collided; /* two different texts have one hash: 1 in 2^31 loads of 100,000 rules */
};

struct weir_domain {
    const struct weir_rules *rules;
    struct weir_str name;
    uint64_t tag;
    uint32_t node; /* root of its tree */
    bool is_atomic;
    bool is_together;           /* atomic, or some rule replaces another: decided as one */
    struct weir_dict_slot root; /* that node's */
    /* Of all levels at one depth together: from what the place of a word is guessed. */
    uint64_t lengths[WEIR_GUESSES_MAX];
    uint8_t underscore_depths, special_depths; /* bit i: some level at depth i has such texts */
    struct weir_attribute *attributes;
    uint32_t attribute_count;
    struct weir_shape *shapes; /* WEIR_SHAPES_MAX of them, shape_count used */
    uint32_t shape_count;
    bool has_too_many_shapes;
};

struct weir_rules {
    struct weir_arena arena;
    struct weir_dict dict;
    struct weir_node *nodes;
    struct weir_rule *rules;
    struct weir_rule_limit *limits;
    struct weir_rule_limit **numbered; /* every limit, wherever it lies */
    struct weir_domain *domains;
    struct weir_override_row *overrides;
    struct weir_map_row *map_rows;
    struct weir_id_row *ids;
    struct weir_regex *regexes; /* all of them, to be freed */
    uint32_t node_count, rule_count, limit_count, numbered_count, domain_count;
    uint32_t override_count, map_row_count, id_count, attribute_count;
    uint32_t count_if_count;
    struct weir_status_set *count_ifs; /* from 1, WEIR_COUNT_IFS_MAX of them; NULL: none */
    struct weir_terms *terms;          /* from 1, at most WEIR_TERMS_MAX; NULL: not shared (yet) */
};

/* Adds the row `index` of the kind's array, which must be filled in already.  Returns the index of
 * the row that has this key already, or WEIR_NONE when it was added. */
uint32_t weir_dict_add(struct weir_rules *rules, enum weir_dict_kind kind, uint32_t index,
                       uint64_t owner);
/* Room for count keys; false: out of memory. */
WEIR_MUST_CHECK bool weir_dict_init(struct weir_dict *dict, struct weir_arena *arena,
                                    uint64_t count, const struct weir_hash_key *key);
/* Once all is added: writes into the slots what matching asks of nodes. */
void weir_dict_seal(struct weir_rules *rules);

/* The hash under which the children of a node are found. */
uint64_t weir_node_hash(const struct weir_rules *rules, uint32_t node, uint64_t parent_hash);
/* A slot as the dictionary would have it, for a node that may not be in it. */
struct weir_dict_slot weir_node_slot(const struct weir_rules *rules, uint32_t node, uint64_t hash);

/* A key of the dictionary: 8 bytes of kind and owner, then the text, so that one hash covers both.
 * The owner of a node is its parent's hash; of an override, its node's number; of a line of a map,
 * the attribute's; of an id, the domain's.  So it is a hash, or a number that uses the lowest half:
 * the kind goes into the other. */
static inline struct weir_sip weir_dict_hash_begin(const struct weir_rules *rules,
                                                   enum weir_dict_kind kind, uint64_t owner)
{
    struct weir_sip sip = weir_sip_begin(&rules->dict.key);
    weir_sip_add_word(&sip, owner ^ (uint64_t)kind << 61);
    return sip;
}

static inline uint64_t weir_dict_hash_end(struct weir_sip *sip)
{
    uint64_t hash = weir_sip_end(sip);
    return hash ? hash : 1;
}

static inline uint64_t weir_dict_hash(const struct weir_rules *rules, enum weir_dict_kind kind,
                                      uint64_t owner, struct weir_str text)
{
    struct weir_sip sip = weir_dict_hash_begin(rules, kind, owner);
    weir_sip_add(&sip, text.ptr, text.len);
    return weir_dict_hash_end(&sip);
}

static inline uint64_t weir_dict_home(const struct weir_dict *dict, uint64_t hash)
{
    return (hash >> 32) * dict->size >> 32; /* size is below 2^32 */
}

static inline void weir_dict_fetch(const struct weir_rules *rules, uint64_t hash)
{
    __builtin_prefetch(&rules->dict.slots[weir_dict_home(&rules->dict, hash)]);
}

/* The slot, or NULL.  Compares hashes only: see rules.h. */
static inline const struct weir_dict_slot *weir_dict_find(const struct weir_rules *rules,
                                                          uint64_t hash)
{
    const struct weir_dict *dict = &rules->dict;
    uint64_t at = weir_dict_home(dict, hash);
    for (;;) {
        const struct weir_dict_slot *slot = &dict->slots[at];
        if (slot->hash == hash)
            return slot;
        if (slot->hash == 0)
            return NULL;
        at = at + 1 == dict->size ? 0 : at + 1;
    }
}

/* The node of a sealed slot. */
static inline uint32_t weir_slot_node(const struct weir_rules *rules,
                                      const struct weir_dict_slot *slot)
{
    return slot->has_rule ? rules->rules[slot->index].node : (uint32_t)slot->index;
}

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

/* match.c: the child of `at` that an entry meets, as a slot; its hash is 0 where there is none.
 * For who walks down from domain->root. */
struct weir_dict_slot weir_match_child(const struct weir_rules *rules, struct weir_dict_slot at,
                                       const struct weir_entry *entry);

#endif
