/* yaml_node.h - a YAML text as a tree of nodes that know their line and column.
 *
 * Read from libyaml's events rather than its documents: a document keeps three times the memory
 * and no marks.  Only the first document of a text is read, as envoyproxy/ratelimit does.
 *
 * An alias is a node of its own that points at its target, so the tree is a graph.  It has no
 * cycles (an alias inside its own anchor is refused), and every node knows how large it is with
 * all aliases followed (`weight`, `height`), so that a billion laughs are refused before anyone
 * walks them.
 *
 * Purity: no I/O.  Threads: none of its own.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_RULES_YAML_NODE_H
#define WEIR_RULES_YAML_NODE_H

#include "base/arena.h"
#include "rules/report.h"

/* How envoyproxy/ratelimit begins where a value is not of its field's type, or YAML is none. */
#define WEIR_NOT_LOADED "error loading config file: "

enum weir_yaml_kind { WEIR_YAML_SCALAR, WEIR_YAML_LIST, WEIR_YAML_MAP, WEIR_YAML_ALIAS };

struct weir_yaml {
    uint8_t kind;   /* enum weir_yaml_kind */
    uint8_t height; /* levels below and including this one */
    bool is_plain;  /* a scalar that is neither quoted nor tagged as a string */
    bool is_open;   /* a collection that has not ended yet */
    uint32_t line, column;
    uint32_t weight; /* nodes, this one included, with aliases followed */
    union {
        struct weir_str text;           /* SCALAR */
        const struct weir_yaml *first;  /* LIST: items; MAP: key, value, key, value ... */
        const struct weir_yaml *target; /* ALIAS */
    };
    const struct weir_yaml *next; /* in the collection that holds it */
};

/* What an unquoted scalar is taken for (YAML 1.1, as yaml.v2 reads it). */
enum weir_scalar {
    WEIR_SCALAR_NULL,
    WEIR_SCALAR_BOOL,
    WEIR_SCALAR_INT,
    WEIR_SCALAR_FLOAT,
    WEIR_SCALAR_STR
};

/* The tree of the first document in *out, or NULL there for an empty text.  False: it is no YAML;
 * the report says why. */
WEIR_MUST_CHECK bool weir_yaml_parse(const struct weir_yaml **out, struct weir_arena *arena,
                                     struct weir_str text, struct weir_report *report,
                                     uint32_t file);

/* The node itself, or what an alias stands for. */
static inline const struct weir_yaml *weir_yaml_follow(const struct weir_yaml *node)
{
    return node->kind == WEIR_YAML_ALIAS ? node->target : node;
}

enum weir_scalar weir_scalar_kind(const struct weir_yaml *scalar);
/* The value of text that reads as a boolean or a whole number; false: it does not. */
bool weir_scalar_bool(struct weir_str text, bool *out);
bool weir_scalar_int(struct weir_str text, bool *is_negative, uint64_t *magnitude);
bool weir_scalar_float(struct weir_str text, double *out);

#endif
