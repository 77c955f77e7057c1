/* The fields of a rate_limit, and of the `defaults:` of a domain.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/limit.h"
#include "base/maxima.h"
#include "base/str.h"
#include "rules/parse.h"

static struct weir_draft_limit *new_limit(struct weir_parser *p, const struct weir_yaml *at)
{
    struct weir_draft_limit *limit = WEIR_ARENA_NEW(p->arena, struct weir_draft_limit);
    if (limit)
        limit->at = weir_parse_mark(p, at);
    return limit;
}

static void parse_list(struct weir_parser *p, const struct weir_yaml *list)
{
    struct weir_draft_descriptor *descriptor = p->descriptor;
    struct weir_draft_limit **end = &descriptor->limits;
    descriptor->is_list = true;
    for (const struct weir_yaml *i = list->first; i; i = i->next) {
        const struct weir_yaml *item = weir_yaml_follow(i);
        if (!weir_parse_is_map(p, WEIR_STR("a limit of the list"), item))
            continue;
        if (descriptor->limit_count == WEIR_LIMITS_MAX) {
            weir_report_error(p->report, weir_parse_mark(p, item), "a rule has at most %d limits",
                              WEIR_LIMITS_MAX);
            return;
        }
        p->limit = *end = new_limit(p, item);
        if (!p->limit)
            return;
        end = &p->limit->next;
        descriptor->limit_count++;
        weir_parse_map(p, WEIR_PLACE_LIMIT, item);
    }
    if (!list->first)
        weir_report_error(p->report, weir_parse_mark(p, list), "'rate_limit' is an empty list");
}

/* A second mapping, as merge keys bring it, adds to the first, as in Go; all else replaces it. */
void weir_parse_rate_limit(struct weir_parser *p, const struct weir_field *field,
                           const struct weir_yaml *value)
{
    struct weir_draft_descriptor *descriptor = p->descriptor;
    if (value->kind != WEIR_YAML_MAP || descriptor->is_list) {
        descriptor->limits = NULL;
        descriptor->limit_count = 0;
        descriptor->is_list = false;
    }
    if (weir_parse_is_null(value))
        return;
    if (value->kind == WEIR_YAML_LIST) {
        parse_list(p, value);
        return;
    }
    if (!weir_parse_is_map(p, field->name, value))
        return;
    if (!descriptor->limits)
        descriptor->limits = new_limit(p, value);
    p->limit = descriptor->limits;
    if (!p->limit)
        return;
    descriptor->limit_count = 1;
    weir_parse_map(p, WEIR_PLACE_LIMIT, value);
}

/* The unit is judged when `unlimited` and the defaults are known. */
void weir_parse_unit(struct weir_parser *p, const struct weir_field *field,
                     const struct weir_yaml *value)
{
    p->limit->unit_at = weir_parse_mark(p, value);
    if (weir_parse_str(p, field->name, value, &p->limit->unit))
        p->limit->has |= WEIR_HAS_UNIT;
}

void weir_parse_requests_per_unit(struct weir_parser *p, const struct weir_field *field,
                                  const struct weir_yaml *value)
{
    if (weir_parse_number(p, field->name, value, 0, UINT32_MAX, &p->limit->requests))
        p->limit->has |= WEIR_HAS_REQUESTS;
}

void weir_parse_unlimited(struct weir_parser *p, const struct weir_field *field,
                          const struct weir_yaml *value)
{
    weir_parse_bool(p, field->name, value, &p->limit->is_unlimited);
}

void weir_parse_name(struct weir_parser *p, const struct weir_field *field,
                     const struct weir_yaml *value)
{
    struct weir_str *name = p->place == WEIR_PLACE_NAMES ? &p->name->name : &p->limit->name;
    if (!weir_parse_str(p, field->name, value, name) || name->len <= WEIR_KEY_LEN_MAX)
        return;
    weir_report_error(p->report, weir_parse_mark(p, value), "'name' has at most %d bytes, not %zu",
                      WEIR_KEY_LEN_MAX, name->len);
    name->len = WEIR_KEY_LEN_MAX;
}

void weir_parse_replaces(struct weir_parser *p, const struct weir_field *field,
                         const struct weir_yaml *value)
{
    struct weir_draft_name **end = &p->limit->replaces;
    *end = NULL;
    if (weir_parse_is_null(value))
        return;
    if (value->kind != WEIR_YAML_LIST) {
        weir_report_error(p->report, weir_parse_mark(p, value),
                          WEIR_NOT_LOADED "'%s' must be a list, as in [{name: other}]",
                          field->name.ptr);
        return;
    }
    for (const struct weir_yaml *i = value->first; i; i = i->next) {
        const struct weir_yaml *item = weir_yaml_follow(i);
        if (item->kind != WEIR_YAML_MAP) {
            weir_parse_no_map(p, item, "write {name: other}");
            continue;
        }
        p->name = *end = WEIR_ARENA_NEW(p->arena, struct weir_draft_name);
        if (!p->name)
            return;
        end = &p->name->next;
        p->name->at = weir_parse_mark(p, item);
        weir_parse_map(p, WEIR_PLACE_NAMES, item);
    }
}

void weir_parse_unit_multiplier(struct weir_parser *p, const struct weir_field *field,
                                const struct weir_yaml *value)
{
    if (weir_parse_number(p, field->name, value, 1, UINT32_MAX, &p->limit->unit_multiplier))
        p->limit->has |= WEIR_HAS_MULTIPLIER;
}

void weir_parse_algorithm(struct weir_parser *p, const struct weir_field *field,
                          const struct weir_yaml *value)
{
    int word = weir_parse_word(p, field->name, value, weir_algorithm_names());
    if (word < 0)
        return;
    p->limit->algorithm = (uint8_t)word;
    p->limit->has |= WEIR_HAS_ALGORITHM;
}

void weir_parse_burst(struct weir_parser *p, const struct weir_field *field,
                      const struct weir_yaml *value)
{
    if (weir_parse_number(p, field->name, value, 0, UINT32_MAX, &p->limit->burst))
        p->limit->has |= WEIR_HAS_BURST;
}

void weir_parse_refill(struct weir_parser *p, const struct weir_field *field,
                       const struct weir_yaml *value)
{
    static const char *const words[] = {"continuous", "interval", NULL};
    int word = weir_parse_word(p, field->name, value, words);
    if (word < 0)
        return;
    p->limit->refill_interval = word == 1;
    p->limit->has |= WEIR_HAS_REFILL;
}

void weir_parse_rounding(struct weir_parser *p, const struct weir_field *field,
                         const struct weir_yaml *value)
{
    static const char *const words[] = {"down", "up", NULL};
    int word = weir_parse_word(p, field->name, value, words);
    if (word < 0)
        return;
    p->limit->round_up = word == 1;
    p->limit->has |= WEIR_HAS_ROUNDING;
}

void weir_parse_buckets(struct weir_parser *p, const struct weir_field *field,
                        const struct weir_yaml *value)
{
    if (weir_parse_number(p, field->name, value, 1, WEIR_BUCKETS_MAX, &p->limit->buckets))
        p->limit->has |= WEIR_HAS_BUCKETS;
}

void weir_parse_count_rejected(struct weir_parser *p, const struct weir_field *field,
                               const struct weir_yaml *value)
{
    if (weir_parse_bool(p, field->name, value, &p->limit->count_rejected))
        p->limit->has |= WEIR_HAS_COUNT_REJECTED;
}

void weir_parse_scope(struct weir_parser *p, const struct weir_field *field,
                      const struct weir_yaml *value)
{
    static const char *const words[] = {"global", "host", NULL};
    int word = weir_parse_word(p, field->name, value, words);
    if (word < 0)
        return;
    p->limit->is_host_scope = word == 1;
    p->limit->has |= WEIR_HAS_SCOPE;
}

void weir_parse_on_store_error(struct weir_parser *p, const struct weir_field *field,
                               const struct weir_yaml *value)
{
    static const char *const words[] = {"local", "open", "closed", NULL};
    int word = weir_parse_word(p, field->name, value, words);
    if (word < 0)
        return;
    p->limit->on_store_error = (uint8_t)(WEIR_STORE_ERROR_LOCAL + word);
    p->limit->has |= WEIR_HAS_ON_STORE_ERROR;
}

void weir_parse_consistency(struct weir_parser *p, const struct weir_field *field,
                            const struct weir_yaml *value)
{
    static const char *const words[] = {"exact", "eventual", NULL};
    int word = weir_parse_word(p, field->name, value, words);
    if (word < 0)
        return;
    p->limit->consistency = (uint8_t)(WEIR_CONSISTENCY_EXACT + word);
    p->limit->has |= WEIR_HAS_CONSISTENCY;
}
