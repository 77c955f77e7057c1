/* The fields of a descriptor.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/maxima.h"
#include "base/str.h"
#include "rules/parse.h"

static void add_descriptor(struct weir_parser *p, struct weir_draft_descriptor *parent,
                           struct weir_draft_descriptor *child)
{
    struct weir_draft_descriptor **first = parent ? &parent->children : &p->root->descriptors;
    struct weir_draft_descriptor **last = parent ? &parent->last_child : &p->root->last_descriptor;
    if (*last)
        (*last)->next = child;
    else
        *first = child;
    *last = child;
}

static void parse_one(struct weir_parser *p, struct weir_draft_descriptor *parent,
                      const struct weir_yaml *item)
{
    if (item->kind != WEIR_YAML_MAP) {
        weir_parse_no_map(p, item, "a descriptor starts with '- key:'");
        return;
    }
    struct weir_draft_descriptor *one = WEIR_ARENA_NEW(p->arena, struct weir_draft_descriptor);
    if (!one)
        return;
    one->at = one->value_at = weir_parse_mark(p, item);
    one->match = WEIR_MATCH_UNSAID;
    p->descriptor = one;
    uint32_t errors = p->report->error_count;
    weir_parse_map(p, WEIR_PLACE_DESC, item);
    if (one->key.len > 0)
        add_descriptor(p, parent, one);
    else if (p->report->error_count == errors)
        weir_report_error(p->report, one->at, "descriptor has empty key; write 'key: name'");
}

/* A second list, through a merge key or written twice, replaces the first. */
static void forget_descriptors(struct weir_parser *p, struct weir_draft_descriptor *parent)
{
    if (parent)
        parent->children = parent->last_child = NULL;
    else
        p->root->descriptors = p->root->last_descriptor = NULL;
}

void weir_parse_descriptors(struct weir_parser *p, const struct weir_field *field,
                            const struct weir_yaml *value)
{
    struct weir_draft_descriptor *parent = p->place == WEIR_PLACE_ROOT ? NULL : p->descriptor;
    forget_descriptors(p, parent);
    if (weir_parse_is_null(value))
        return;
    if (value->kind != WEIR_YAML_LIST) {
        weir_report_error(p->report, weir_parse_mark(p, value),
                          WEIR_NOT_LOADED "'%s' must be a list of descriptors", field->name.ptr);
        return;
    }
    if (p->depth == WEIR_ENTRIES_MAX) {
        weir_report_error(p->report, weir_parse_mark(p, value),
                          "descriptors are nested more than %d levels deep", WEIR_ENTRIES_MAX);
        return;
    }
    enum weir_where place = p->place;
    p->depth++;
    for (const struct weir_yaml *item = value->first; item; item = item->next)
        parse_one(p, parent, weir_yaml_follow(item));
    p->depth--;
    p->descriptor = parent;
    p->place = place;
}

static void check_len(struct weir_parser *p, const struct weir_field *field,
                      const struct weir_yaml *value, struct weir_str *text, size_t len_max)
{
    if (text->len <= len_max)
        return;
    weir_report_error(p->report, weir_parse_mark(p, value), "'%s' has at most %zu bytes, not %zu",
                      field->name.ptr, len_max, text->len);
    text->len = len_max;
}

void weir_parse_key(struct weir_parser *p, const struct weir_field *field,
                    const struct weir_yaml *value)
{
    if (weir_parse_str(p, field->name, value, &p->descriptor->key))
        check_len(p, field, value, &p->descriptor->key, WEIR_KEY_LEN_MAX);
}

void weir_parse_value(struct weir_parser *p, const struct weir_field *field,
                      const struct weir_yaml *value)
{
    p->descriptor->value_at = weir_parse_mark(p, value);
    if (weir_parse_str(p, field->name, value, &p->descriptor->value))
        check_len(p, field, value, &p->descriptor->value, WEIR_VALUE_LEN_MAX);
}

void weir_parse_match(struct weir_parser *p, const struct weir_field *field,
                      const struct weir_yaml *value)
{
    static const char *const words[] = {"exact", "wildcard", "regex", "path", "cidr", NULL};
    int word = weir_parse_word(p, field->name, value, words);
    if (word < 0)
        return;
    p->descriptor->match = (uint8_t)word;
    p->descriptor->is_match_said = true;
}

void weir_parse_shadow_mode(struct weir_parser *p, const struct weir_field *field,
                            const struct weir_yaml *value)
{
    bool truth;
    if (weir_parse_bool(p, field->name, value, &truth))
        p->descriptor->is_shadow = truth;
}

void weir_parse_quota_mode(struct weir_parser *p, const struct weir_field *field,
                           const struct weir_yaml *value)
{
    bool truth;
    if (weir_parse_bool(p, field->name, value, &truth))
        p->descriptor->is_quota = truth;
}

void weir_parse_detailed_metric(struct weir_parser *p, const struct weir_field *field,
                                const struct weir_yaml *value)
{
    bool truth;
    if (weir_parse_bool(p, field->name, value, &truth))
        p->descriptor->has_detailed_metric = truth;
}

void weir_parse_value_to_metric(struct weir_parser *p, const struct weir_field *field,
                                const struct weir_yaml *value)
{
    bool truth;
    if (weir_parse_bool(p, field->name, value, &truth))
        p->descriptor->has_value_to_metric = truth;
}

void weir_parse_share_threshold(struct weir_parser *p, const struct weir_field *field,
                                const struct weir_yaml *value)
{
    bool truth;
    if (!weir_parse_bool(p, field->name, value, &truth))
        return;
    p->descriptor->is_shared = truth;
    p->descriptor->has_share = !weir_parse_is_null(value);
    p->descriptor->share_at = weir_parse_mark(p, value);
}

void weir_parse_id(struct weir_parser *p, const struct weir_field *field,
                   const struct weir_yaml *value)
{
    struct weir_draft_extra *extra = weir_parse_extra(p);
    if (!extra || !weir_parse_str(p, field->name, value, &extra->id))
        return;
    extra->id_at = weir_parse_mark(p, value);
    check_len(p, field, value, &extra->id, WEIR_KEY_LEN_MAX);
}

void weir_parse_metadata(struct weir_parser *p, const struct weir_field *field,
                         const struct weir_yaml *value)
{
    struct weir_draft_extra *extra = weir_parse_extra(p);
    if (!extra)
        return;
    extra->metadata = (struct weir_str){.ptr = "", .len = 0};
    if (!weir_parse_is_null(value) && weir_parse_is_map(p, field->name, value))
        weir_parse_json(p, value, &extra->metadata);
}
