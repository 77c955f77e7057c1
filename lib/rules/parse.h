/* parse.h - YAML nodes to a draft, field by field as fields.def lists them.
 *
 * A parser holds what is being filled: a root, in it a descriptor, in it a limit.  Fields may come
 * in any order and, through merge keys, more than once; so each is only stored here and judged
 * when all files are known (compile.c).  What is wrong with one field alone is reported here, at
 * its own place.
 *
 * Purity: reads the CSV files that a rules file names, nothing else.  Threads: one at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_RULES_PARSE_H
#define WEIR_RULES_PARSE_H

#include "rules/fields.h"

struct weir_parser {
    struct weir_report *report;
    struct weir_arena *arena; /* of the draft */
    uint32_t file;
    const char *path; /* of the rules file: others are named relative to it */
    enum weir_where place;
    struct weir_draft_root *root;
    struct weir_draft_descriptor *descriptor;
    struct weir_draft_limit *limit;
    struct weir_draft_name *name;
    uint32_t depth; /* of descriptors */
};

/* Adds one file to the draft.  False only when out of memory; all else is in the report. */
WEIR_MUST_CHECK bool weir_parse_file(struct weir_draft *draft, struct weir_report *report,
                                     uint32_t file, const char *path, struct weir_str text);

/* Every field of the mapping, at its place; merge keys followed. */
void weir_parse_map(struct weir_parser *p, enum weir_where place, const struct weir_yaml *map);

/* The readers that fields.def names. */
#define WEIR_FIELD(name, places, whose, parse)                                                     \
    void parse(struct weir_parser *p, const struct weir_field *field,                              \
               const struct weir_yaml *value);
#include "rules/fields.def"
#undef WEIR_FIELD

/* ---- helpers that all readers share (parse_scalar.c) ---- */

struct weir_mark weir_parse_mark(const struct weir_parser *p, const struct weir_yaml *node);
/* Values as they are quoted in messages: at most this many bytes of them. */
#define WEIR_SHOWN_MAX 64
#define WEIR_SHOWN(s) (int)((s).len < WEIR_SHOWN_MAX ? (s).len : WEIR_SHOWN_MAX), (s).ptr

/* Each reads one scalar into *out; on a wrong type it reports, and *out stays.  what names the
 * field. */
bool weir_parse_str(struct weir_parser *p, struct weir_str what, const struct weir_yaml *value,
                    struct weir_str *out);
bool weir_parse_bool(struct weir_parser *p, struct weir_str what, const struct weir_yaml *value,
                     bool *out);
bool weir_parse_number(struct weir_parser *p, struct weir_str what, const struct weir_yaml *value,
                       uint32_t least, uint32_t most, uint32_t *out);
/* A positive number with a point in it; at most 1. */
bool weir_parse_share(struct weir_parser *p, struct weir_str what, const struct weir_yaml *value,
                      double *out);
/* The position of the word in words (which ends with NULL), or -1 and an error with a suggestion.
 */
int weir_parse_word(struct weir_parser *p, struct weir_str what, const struct weir_yaml *value,
                    const char *const *words);
bool weir_parse_is_null(const struct weir_yaml *value);
/* True for a mapping; else reports that one is needed. */
bool weir_parse_is_map(struct weir_parser *p, struct weir_str what, const struct weir_yaml *value);
/* Reports an item of a list that must be one; advice says how it is written. */
void weir_parse_no_map(struct weir_parser *p, const struct weir_yaml *item, const char *advice);
struct weir_draft_extra *weir_parse_extra(struct weir_parser *p);

/* A pair of a small mapping whose fields are not in fields.def; unknown keys are the caller's to
 * report. */
void weir_parse_unknown(struct weir_parser *p, const struct weir_yaml *key,
                        const char *const *words);

/* ---- metadata.c ---- */
/* The node as JSON text in the arena; false: reported. */
bool weir_parse_json(struct weir_parser *p, const struct weir_yaml *node, struct weir_str *out);

/* ---- csv.c ---- */
/* Reads `key,value` lines of the file at path (relative to the rules file); calls each with every
 * one.  False: reported. */
bool weir_parse_csv(struct weir_parser *p, struct weir_mark at, struct weir_str path,
                    void (*each)(void *ctx, struct weir_mark at, struct weir_str key,
                                 struct weir_str value),
                    void *ctx);

#endif
