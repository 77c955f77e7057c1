/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/parse.h"

#include "base/maxima.h"
#include "base/str.h"

#include <string.h>

static bool is_merge_key(const struct weir_yaml *key)
{
    return key->kind == WEIR_YAML_SCALAR && key->is_plain && weir_str_eq(key->text, WEIR_STR("<<"));
}

static void report_unknown(struct weir_parser *p, enum weir_where place,
                           const struct weir_yaml *key)
{
    struct weir_mark at = weir_parse_mark(p, key);
    if (weir_scalar_kind(key) != WEIR_SCALAR_STR) {
        weir_report_error(p->report, at, "config error, key is not of type string: %.*s",
                          WEIR_SHOWN(key->text));
        return;
    }
    const struct weir_field *meant = weir_field_suggest(key->text, place);
    if (meant)
        weir_report_error(p->report, at, "config error, unknown key '%.*s'; did you mean '%s'?",
                          WEIR_SHOWN(key->text), meant->name.ptr);
    else
        weir_report_error(p->report, at, "config error, unknown key '%.*s'", WEIR_SHOWN(key->text));
}

/* envoyproxy/ratelimit ignores its own fields in a wrong place; nobody can have meant that for
 * ours. */
static void report_misplaced(struct weir_parser *p, const struct weir_field *field,
                             const struct weir_yaml *key)
{
    struct weir_mark at = weir_parse_mark(p, key);
    if (field->origin == WEIR_FIELD_GO)
        weir_report_warning(p->report, at, "'%s' has no effect here; it belongs to %s",
                            field->name.ptr, weir_field_home(field));
    else
        weir_report_error(p->report, at, "'%s' cannot stand here; it belongs to %s",
                          field->name.ptr, weir_field_home(field));
}

/* One pair of a mapping.  seen has a bit for each field that this mapping had already. */
static void parse_pair(struct weir_parser *p, enum weir_where place, const struct weir_yaml *key,
                       const struct weir_yaml *value, uint64_t *seen)
{
    if (key->kind != WEIR_YAML_SCALAR) {
        weir_report_error(p->report, weir_parse_mark(p, key),
                          "config error, key is not of type string: a key must be a word");
        return;
    }
    const struct weir_field *field = weir_field_find(key->text);
    if (!field) {
        report_unknown(p, place, key);
        return;
    }
    if (!(field->places & place)) {
        report_misplaced(p, field, key);
        return;
    }
    uint64_t bit = UINT64_C(1) << field->number;
    if (*seen & bit)
        weir_report_warning(p->report, weir_parse_mark(p, key),
                            "'%s' appears twice in one mapping; the last one counts",
                            field->name.ptr);
    *seen |= bit;
    p->place = place;
    field->parse(p, field, value);
}

static void merge(struct weir_parser *p, enum weir_where place, const struct weir_yaml *value);

static void parse_pairs(struct weir_parser *p, enum weir_where place, const struct weir_yaml *map)
{
    uint64_t seen = 0;
    for (const struct weir_yaml *k = map->first; k && k->next; k = k->next->next) {
        const struct weir_yaml *key = weir_yaml_follow(k);
        const struct weir_yaml *value = weir_yaml_follow(k->next);
        if (is_merge_key(key))
            merge(p, place, value);
        else
            parse_pair(p, place, key, value, &seen);
    }
}

/* The earlier of several maps wins, so they are applied from the last one on. */
static void merge_list(struct weir_parser *p, enum weir_where place, const struct weir_yaml *list)
{
    size_t count = 0;
    for (const struct weir_yaml *item = list->first; item; item = item->next)
        count++;
    const struct weir_yaml **items = WEIR_ARENA_ARRAY(p->arena, count, const struct weir_yaml *);
    if (!items)
        return;
    for (const struct weir_yaml *item = list->first; item; item = item->next)
        *items++ = weir_yaml_follow(item);
    while (count-- > 0) {
        const struct weir_yaml *map = *--items;
        if (map->kind == WEIR_YAML_MAP)
            parse_pairs(p, place, map);
        else
            weir_report_error(p->report, weir_parse_mark(p, map),
                              "a merge key '<<' needs a mapping, or a list of mappings");
    }
}

/* As yaml.v2 does, a merge takes effect where it stands: what comes after it wins, what comes
 * before it loses. */
static void merge(struct weir_parser *p, enum weir_where place, const struct weir_yaml *value)
{
    if (value->kind == WEIR_YAML_LIST)
        merge_list(p, place, value);
    else if (value->kind == WEIR_YAML_MAP)
        parse_pairs(p, place, value);
    else
        weir_report_error(p->report, weir_parse_mark(p, value),
                          "a merge key '<<' needs a mapping, or a list of mappings");
}

void weir_parse_map(struct weir_parser *p, enum weir_where place, const struct weir_yaml *map)
{
    enum weir_where outer = p->place;
    parse_pairs(p, place, map);
    p->place = outer;
}

void weir_parse_domain(struct weir_parser *p, const struct weir_field *field,
                       const struct weir_yaml *value)
{
    p->root->domain_at = weir_parse_mark(p, value);
    if (!weir_parse_str(p, field->name, value, &p->root->domain))
        return;
    if (p->root->domain.len > WEIR_DOMAIN_LEN_MAX) {
        weir_report_error(p->report, p->root->domain_at, "a domain has at most %d bytes, not %zu",
                          WEIR_DOMAIN_LEN_MAX, p->root->domain.len);
        p->root->domain.len = WEIR_DOMAIN_LEN_MAX;
    }
}

void weir_parse_atomic(struct weir_parser *p, const struct weir_field *field,
                       const struct weir_yaml *value)
{
    weir_parse_bool(p, field->name, value, &p->root->is_atomic);
}

void weir_parse_defaults(struct weir_parser *p, const struct weir_field *field,
                         const struct weir_yaml *value)
{
    if (!weir_parse_is_map(p, field->name, value))
        return;
    if (!p->root->defaults)
        p->root->defaults = WEIR_ARENA_NEW(p->arena, struct weir_draft_limit);
    if (!p->root->defaults)
        return;
    p->root->defaults_at = weir_parse_mark(p, value);
    p->root->defaults->at = p->root->defaults_at;
    p->limit = p->root->defaults;
    weir_parse_map(p, WEIR_PLACE_DEFAULT, value);
    p->limit = NULL;
}

void weir_parse_later(struct weir_parser *p, const struct weir_field *field,
                      const struct weir_yaml *value)
{
    weir_report_error(p->report, weir_parse_mark(p, value), "'%s' is not supported yet",
                      field->name.ptr);
}

bool weir_parse_file(struct weir_draft *draft, struct weir_report *report, uint32_t file,
                     const char *path, struct weir_str text)
{
    struct weir_arena nodes; /* the YAML tree is needed for this file only */
    weir_arena_init(&nodes);
    const struct weir_yaml *tree = NULL;
    struct weir_draft_root *root = WEIR_ARENA_NEW(&draft->arena, struct weir_draft_root);
    if (!root)
        goto out;
    root->at = (struct weir_mark){file, 1, 1};
    root->domain_at = root->at;
    if (!weir_yaml_parse(&tree, &nodes, text, report, file))
        goto out;
    struct weir_parser p = {
        .report = report, .arena = &draft->arena, .file = file, .path = path, .root = root};
    if (tree)
        tree = weir_yaml_follow(tree);
    if (tree && !weir_parse_is_null(tree) && weir_parse_is_map(&p, WEIR_STR("a rules file"), tree))
        weir_parse_map(&p, WEIR_PLACE_ROOT, tree);
    else if (tree && !weir_parse_is_null(tree))
        goto out; /* reported; an empty domain would be said only once more */
    if (root->domain.len == 0)
        weir_report_error(report, root->domain_at, "config file cannot have empty domain");
    if (draft->last_root)
        draft->last_root->next = root;
    else
        draft->roots = root;
    draft->last_root = root;
out:;
    bool has_failed = nodes.has_failed || draft->arena.has_failed;
    weir_arena_fini(&nodes);
    return !has_failed;
}
