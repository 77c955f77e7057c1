/* Scalars of the types that fields have, and the words that go with a wrong one.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "rules/parse.h"

#include <stdio.h>

struct weir_mark weir_parse_mark(const struct weir_parser *p, const struct weir_yaml *node)
{
    return (struct weir_mark){p->file, node->line, node->column};
}

bool weir_parse_is_null(const struct weir_yaml *value)
{
    return value->kind == WEIR_YAML_SCALAR && weir_scalar_kind(value) == WEIR_SCALAR_NULL;
}

static const char *kind_name(const struct weir_yaml *value)
{
    if (value->kind == WEIR_YAML_MAP)
        return "a mapping";
    return value->kind == WEIR_YAML_LIST ? "a list" : "a scalar";
}

/* True for a scalar; else reports that one is needed. */
static bool is_scalar(struct weir_parser *p, struct weir_str what, const char *needed,
                      const struct weir_yaml *value)
{
    if (value->kind == WEIR_YAML_SCALAR)
        return true;
    weir_report_error(p->report, weir_parse_mark(p, value),
                      WEIR_NOT_LOADED "'%.*s' must be %s, not %s", WEIR_STR_ARG(what), needed,
                      kind_name(value));
    return false;
}

bool weir_parse_is_map(struct weir_parser *p, struct weir_str what, const struct weir_yaml *value)
{
    if (value->kind == WEIR_YAML_MAP)
        return true;
    weir_report_error(p->report, weir_parse_mark(p, value),
                      WEIR_NOT_LOADED "'%.*s' must be a mapping, not %s", WEIR_STR_ARG(what),
                      kind_name(value));
    return false;
}

void weir_parse_no_map(struct weir_parser *p, const struct weir_yaml *item, const char *advice)
{
    bool has_text = item->kind == WEIR_YAML_SCALAR;
    struct weir_str shown = has_text ? item->text : weir_str_of(kind_name(item));
    weir_report_error(p->report, weir_parse_mark(p, item),
                      "config error, yaml file contains list of type other than map: %.*s; %s",
                      WEIR_SHOWN(shown), advice);
}

bool weir_parse_str(struct weir_parser *p, struct weir_str what, const struct weir_yaml *value,
                    struct weir_str *out)
{
    if (!is_scalar(p, what, "a text", value))
        return false;
    enum weir_scalar kind = weir_scalar_kind(value);
    if (kind == WEIR_SCALAR_FLOAT) {
        weir_report_error(p->report, weir_parse_mark(p, value),
                          "error checking config: '%.*s' must be a text, and %.*s is a number; "
                          "write \"%.*s\"",
                          WEIR_STR_ARG(what), WEIR_SHOWN(value->text), WEIR_SHOWN(value->text));
        return false;
    }
    *out = kind == WEIR_SCALAR_NULL ? (struct weir_str){.ptr = "", .len = 0}
                                    : weir_arena_str(p->arena, value->text);
    return true;
}

bool weir_parse_bool(struct weir_parser *p, struct weir_str what, const struct weir_yaml *value,
                     bool *out)
{
    if (!is_scalar(p, what, "true or false", value))
        return false;
    if (weir_parse_is_null(value)) {
        *out = false;
        return true;
    }
    bool truth;
    if (!value->is_plain || !weir_scalar_bool(value->text, &truth)) {
        weir_report_error(p->report, weir_parse_mark(p, value),
                          WEIR_NOT_LOADED "'%.*s' must be true or false%s, not '%.*s'",
                          WEIR_STR_ARG(what), value->is_plain ? "" : ", without quotes",
                          WEIR_SHOWN(value->text));
        return false;
    }
    *out = truth;
    return true;
}

/* Of a number, as it is written: 5.0 and "5" are none. */
static bool whole_number(const struct weir_yaml *value, uint64_t *out)
{
    bool is_negative = false;
    return value->is_plain && weir_scalar_int(value->text, &is_negative, out) && !is_negative;
}

bool weir_parse_number(struct weir_parser *p, struct weir_str what, const struct weir_yaml *value,
                       uint32_t least, uint32_t most, uint32_t *out)
{
    if (!is_scalar(p, what, "a number", value))
        return false;
    uint64_t number = 0;
    bool is_null = weir_parse_is_null(value);
    if ((!is_null && !whole_number(value, &number)) || number < least || number > most) {
        bool is_float = weir_scalar_kind(value) == WEIR_SCALAR_FLOAT;
        weir_report_error(p->report, weir_parse_mark(p, value),
                          "%s'%.*s' must be a number from %u to %u%s, not '%.*s'",
                          is_float ? "error checking config: " : WEIR_NOT_LOADED,
                          WEIR_STR_ARG(what), least, most,
                          value->is_plain ? "" : ", without quotes", WEIR_SHOWN(value->text));
        return false;
    }
    *out = (uint32_t)number;
    return true;
}

bool weir_parse_share(struct weir_parser *p, struct weir_str what, const struct weir_yaml *value,
                      double *out)
{
    if (!is_scalar(p, what, "a number", value))
        return false;
    double number;
    if (!weir_scalar_float(value->text, &number) || !(number > 0 && number < 1)) {
        weir_report_error(p->report, weir_parse_mark(p, value),
                          "'%.*s' must be between 0 and 1, as in 0.01, not '%.*s'",
                          WEIR_STR_ARG(what), WEIR_SHOWN(value->text));
        return false;
    }
    *out = number;
    return true;
}

/* "a, b or c" */
static void list_words(char *out, size_t out_len, const char *const *words)
{
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; words[i] && len < out_len; i++) {
        const char *glue = i == 0 ? "" : words[i + 1] ? ", " : " or ";
        int printed = snprintf(out + len, out_len - len, "%s%s", glue, words[i]);
        len += printed > 0 ? (size_t)printed : 0;
    }
}

int weir_parse_word(struct weir_parser *p, struct weir_str what, const struct weir_yaml *value,
                    const char *const *words)
{
    if (!is_scalar(p, what, "a word", value))
        return -1;
    for (int i = 0; words[i]; i++)
        if (weir_str_eq(value->text, weir_str_of(words[i])))
            return i;
    struct weir_mark at = weir_parse_mark(p, value);
    const char *meant = weir_suggest(value->text, words);
    char all[256];
    list_words(all, sizeof(all), words);
    if (meant)
        weir_report_error(p->report, at, "%.*s '%.*s' is not known; did you mean '%s'?",
                          WEIR_STR_ARG(what), WEIR_SHOWN(value->text), meant);
    else
        weir_report_error(p->report, at, "%.*s '%.*s' is not known; it must be %s",
                          WEIR_STR_ARG(what), WEIR_SHOWN(value->text), all);
    return -1;
}

void weir_parse_unknown(struct weir_parser *p, const struct weir_yaml *key,
                        const char *const *words)
{
    if (key->kind == WEIR_YAML_SCALAR)
        (void)weir_parse_word(p, WEIR_STR("key"), key, words);
    else
        weir_report_error(p->report, weir_parse_mark(p, key), "a key must be a word");
}

struct weir_draft_extra *weir_parse_extra(struct weir_parser *p)
{
    if (!p->descriptor->extra)
        p->descriptor->extra = WEIR_ARENA_NEW(p->arena, struct weir_draft_extra);
    return p->descriptor->extra;
}
