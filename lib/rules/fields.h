/* fields.h - the table of all fields (fields.def) and what is made from it: look-up, and "did you
 * mean".
 *
 * Purity: const tables.  Threads: any.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_RULES_FIELDS_H
#define WEIR_RULES_FIELDS_H

#include "rules/draft.h"
#include "rules/yaml_node.h"

enum weir_where {
    WEIR_PLACE_ROOT = 1 << 0,
    WEIR_PLACE_DESC = 1 << 1,
    WEIR_PLACE_LIMIT = 1 << 2,
    WEIR_PLACE_DEFAULT = 1 << 3,
    WEIR_PLACE_NAMES = 1 << 4,
};

enum weir_origin { WEIR_FIELD_GO, WEIR_FIELD_OURS, WEIR_FIELD_LATER };

struct weir_parser;
struct weir_field;
typedef void (*weir_parse_fn)(struct weir_parser *p, const struct weir_field *field,
                              const struct weir_yaml *value);

struct weir_field {
    struct weir_str name;
    uint8_t places; /* enum weir_where, or'ed */
    uint8_t origin; /* enum weir_origin */
    uint8_t number; /* position in the table, below 64: fits a bit of a mask */
    weir_parse_fn parse;
};

/* NULL: there is no field of this name, wherever. */
const struct weir_field *weir_field_find(struct weir_str name);
/* The field that was meant, of those that may stand at the place first; NULL: nothing is near. */
const struct weir_field *weir_field_suggest(struct weir_str name, enum weir_where place);
/* "rate_limit", "a descriptor" ...: the first place where the field may stand, in words. */
const char *weir_field_home(const struct weir_field *field);

/* The word that was meant, or NULL.  words ends with NULL. */
const char *weir_suggest(struct weir_str text, const char *const *words);

#endif
