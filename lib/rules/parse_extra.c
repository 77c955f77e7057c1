/* Fields with a form of their own: prefixes and their tiers, overrides, counting, attributes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/sketch.h"
#include "base/maxima.h"
#include "base/str.h"
#include "rules/parse.h"

/* The n-th of the words, or -1; for small mappings that fields.def does not list. */
static int which(const struct weir_yaml *key, const char *const *words)
{
    if (key->kind != WEIR_YAML_SCALAR)
        return -1;
    for (int i = 0; words[i]; i++)
        if (weir_str_eq(key->text, weir_str_of(words[i])))
            return i;
    return -1;
}

/* ---- ipv4_prefix, ipv6_prefix ---- */

/* 64, or {prefix: 48, times: 16}. */
static bool parse_tier(struct weir_parser *p, struct weir_str what, const struct weir_yaml *value,
                       uint32_t bits, struct weir_draft_tier *out)
{
    static const char *const words[] = {"prefix", "times", NULL};
    uint32_t prefix = UINT32_MAX;
    out->times = 1;
    if (value->kind != WEIR_YAML_MAP) {
        if (!weir_parse_number(p, what, value, 0, bits, &prefix))
            return false;
        out->prefix = (uint8_t)prefix;
        return true;
    }
    for (const struct weir_yaml *k = value->first; k; k = k->next->next) {
        const struct weir_yaml *key = weir_yaml_follow(k);
        const struct weir_yaml *number = weir_yaml_follow(k->next);
        int word = which(key, words);
        bool is_good = word >= 0;
        if (word == 0)
            is_good = weir_parse_number(p, WEIR_STR("prefix"), number, 0, bits, &prefix);
        else if (word == 1)
            is_good = weir_parse_number(p, WEIR_STR("times"), number, 1, UINT32_MAX, &out->times);
        else
            weir_parse_unknown(p, key, words);
        if (!is_good)
            return false;
    }
    if (prefix == UINT32_MAX) {
        weir_report_error(p->report, weir_parse_mark(p, value),
                          "a tier needs a prefix, as in {prefix: 48, times: 16}");
        return false;
    }
    out->prefix = (uint8_t)prefix;
    return true;
}

static void parse_tiers(struct weir_parser *p, const struct weir_field *field,
                        const struct weir_yaml *value, uint32_t bits,
                        struct weir_draft_tiers *tiers)
{
    *tiers = (struct weir_draft_tiers){.at = weir_parse_mark(p, value)};
    if (value->kind != WEIR_YAML_LIST) {
        tiers->count = parse_tier(p, field->name, value, bits, &tiers->tier[0]);
        return;
    }
    for (const struct weir_yaml *i = value->first; i; i = i->next) {
        if (tiers->count == WEIR_TIERS_MAX) {
            weir_report_error(p->report, tiers->at, "'%s' has at most %d tiers", field->name.ptr,
                              WEIR_TIERS_MAX);
            return;
        }
        if (parse_tier(p, field->name, weir_yaml_follow(i), bits, &tiers->tier[tiers->count]))
            tiers->count++;
    }
    if (!value->first)
        weir_report_error(p->report, tiers->at, "'%s' is an empty list", field->name.ptr);
}

void weir_parse_ipv4_prefix(struct weir_parser *p, const struct weir_field *field,
                            const struct weir_yaml *value)
{
    struct weir_draft_extra *extra = weir_parse_extra(p);
    if (extra)
        parse_tiers(p, field, value, 32, &extra->ipv4);
}

void weir_parse_ipv6_prefix(struct weir_parser *p, const struct weir_field *field,
                            const struct weir_yaml *value)
{
    struct weir_draft_extra *extra = weir_parse_extra(p);
    if (extra)
        parse_tiers(p, field, value, 128, &extra->ipv6);
}

/* ---- overrides ---- */

struct pair_list {
    struct weir_parser *p;
    struct weir_draft_pair **end;
    uint32_t count;
};

static struct weir_draft_pair *add_pair(struct pair_list *list, struct weir_mark at,
                                        struct weir_str key)
{
    struct weir_draft_pair *pair = WEIR_ARENA_NEW(list->p->arena, struct weir_draft_pair);
    if (!pair)
        return NULL;
    pair->at = at;
    pair->key = weir_arena_str(list->p->arena, key);
    *list->end = pair;
    list->end = &pair->next;
    list->count++;
    return pair;
}

static bool is_value_len(struct weir_parser *p, struct weir_mark at, struct weir_str value)
{
    if (value.len <= WEIR_VALUE_LEN_MAX)
        return true;
    weir_report_error(p->report, at, "a value has at most %d bytes, not %zu", WEIR_VALUE_LEN_MAX,
                      value.len);
    return false;
}

static void on_override_line(void *ctx, struct weir_mark at, struct weir_str key,
                             struct weir_str value)
{
    struct pair_list *list = ctx;
    bool is_negative = false;
    uint64_t number;
    if (!weir_scalar_int(value, &is_negative, &number) || is_negative || number > UINT32_MAX) {
        weir_report_error(list->p->report, at,
                          "an override must be a number from 0 to 4294967295, not '%.*s'",
                          WEIR_SHOWN(value));
        return;
    }
    struct weir_draft_pair *pair = is_value_len(list->p, at, key) ? add_pair(list, at, key) : NULL;
    if (pair)
        pair->number = (uint32_t)number;
}

static void parse_override(struct pair_list *list, const struct weir_yaml *key,
                           const struct weir_yaml *value)
{
    struct weir_parser *p = list->p;
    if (key->kind != WEIR_YAML_SCALAR) {
        weir_report_error(p->report, weir_parse_mark(p, key),
                          "an override is written value: number");
        return;
    }
    uint32_t number;
    struct weir_mark at = weir_parse_mark(p, key);
    if (!is_value_len(p, at, key->text) ||
        !weir_parse_number(p, WEIR_STR("an override"), value, 0, UINT32_MAX, &number))
        return;
    struct weir_draft_pair *pair = add_pair(list, at, key->text);
    if (pair)
        pair->number = number;
}

/* {"4711": 5000}, or {file: overrides.csv}: the key `file` is one of ours when its value is no
 * number. */
void weir_parse_overrides(struct weir_parser *p, const struct weir_field *field,
                          const struct weir_yaml *value)
{
    static const char *const words[] = {"file", "redis", NULL};
    struct weir_draft_extra *extra = weir_parse_extra(p);
    if (!extra || !weir_parse_is_map(p, field->name, value))
        return;
    extra->overrides = NULL;
    extra->overrides_at = weir_parse_mark(p, value);
    struct pair_list list = {.p = p, .end = &extra->overrides};
    for (const struct weir_yaml *k = value->first; k; k = k->next->next) {
        const struct weir_yaml *key = weir_yaml_follow(k);
        const struct weir_yaml *number = weir_yaml_follow(k->next);
        bool is_number =
            number->kind == WEIR_YAML_SCALAR && weir_scalar_kind(number) == WEIR_SCALAR_INT;
        int word = is_number ? -1 : which(key, words);
        struct weir_str path;
        if (word == 1)
            weir_report_error(p->report, weir_parse_mark(p, key),
                              "overrides from 'redis' are not supported yet");
        else if (word == 0 && weir_parse_str(p, WEIR_STR("file"), number, &path))
            (void)weir_parse_csv(p, weir_parse_mark(p, number), path, on_override_line, &list);
        else if (word < 0)
            parse_override(&list, key, number);
    }
    extra->override_count = list.count;
}

/* ---- if_absent, over_limit ---- */

void weir_parse_if_absent(struct weir_parser *p, const struct weir_field *field,
                          const struct weir_yaml *value)
{
    struct weir_draft_extra *extra = weir_parse_extra(p);
    struct weir_str text;
    if (!extra || !weir_parse_str(p, field->name, value, &text))
        return;
    struct weir_mark at = weir_parse_mark(p, value);
    extra->if_absent_at = at;
    if (!is_value_len(p, at, text))
        return;
    bool is_deny = value->is_plain && weir_str_eq(text, WEIR_STR("deny"));
    extra->if_absent = is_deny ? WEIR_ABSENT_DENY : WEIR_ABSENT_VALUE;
    extra->if_absent_value = text;
    if (weir_parse_is_null(value))
        extra->if_absent = WEIR_ABSENT_DROP;
}

void weir_parse_over_limit(struct weir_parser *p, const struct weir_field *field,
                           const struct weir_yaml *value)
{
    static const char *const keys[] = {"action", "max",       "within", "queue",
                                       "answer", "max_bytes", "ttl",    NULL};
    static const char *const actions[] = {"drop", "delay", "defer", NULL};
    if (!weir_parse_is_map(p, field->name, value))
        return;
    for (const struct weir_yaml *k = value->first; k; k = k->next->next) {
        const struct weir_yaml *key = weir_yaml_follow(k);
        const struct weir_yaml *one = weir_yaml_follow(k->next);
        int word = which(key, keys);
        if (word < 0)
            weir_parse_unknown(p, key, keys);
        if (word != 0)
            continue; /* the others belong to actions that are refused below */
        int action = weir_parse_word(p, WEIR_STR("action"), one, actions);
        if (action > 0)
            weir_report_error(p->report, weir_parse_mark(p, one),
                              "'over_limit: {action: %s}' is not supported yet; 'drop' is",
                              actions[action]);
    }
}

/* ---- count_if ---- */

/* 401, or 4xx for all from 400 to 499. */
static bool parse_status(struct weir_parser *p, const struct weir_yaml *value, uint16_t *out)
{
    const char *text = value->text.ptr;
    uint32_t status;
    if (value->kind == WEIR_YAML_SCALAR && value->text.len == 3 && text[0] >= '1' &&
        text[0] <= '5' && text[1] == 'x' && text[2] == 'x') {
        *out = (uint16_t)(text[0] - '0');
        return true;
    }
    if (!weir_parse_number(p, WEIR_STR("status"), value, 100, 599, &status))
        return false;
    *out = (uint16_t)status;
    return true;
}

/* 1xx go before an answer, all but 101; and where nginx logs 444 or 499, nobody was answered. */
static void warn_no_answer(struct weir_parser *p, const struct weir_yaml *value, uint16_t status)
{
    bool is_before = status >= 100 && status < 200 && status != 101;
    if (is_before || status == 444 || status == 499)
        weir_report_warning(p->report, weir_parse_mark(p, value),
                            "no answer has status %u, so that it has no effect", (unsigned)status);
}

static void parse_statuses(struct weir_parser *p, const struct weir_yaml *value)
{
    struct weir_status_set set = {0};
    bool is_list = value->kind == WEIR_YAML_LIST;
    for (const struct weir_yaml *i = is_list ? value->first : value; i;
         i = is_list ? i->next : NULL) {
        const struct weir_yaml *one = weir_yaml_follow(i);
        if (set.count == WEIR_STATUSES_MAX) {
            weir_report_error(p->report, weir_parse_mark(p, one),
                              "'status' of 'count_if' has at most %d values", WEIR_STATUSES_MAX);
            return;
        }
        if (!parse_status(p, one, &set.statuses[set.count]))
            return;
        warn_no_answer(p, one, set.statuses[set.count]);
        set.count++;
    }
    if (set.count == 0) {
        weir_report_error(p->report, weir_parse_mark(p, value), "'status' is an empty list");
        return;
    }
    p->limit->count_if = set;
    p->limit->has |= WEIR_HAS_COUNT_IF;
}

void weir_parse_count_if(struct weir_parser *p, const struct weir_field *field,
                         const struct weir_yaml *value)
{
    static const char *const words[] = {"status", NULL};
    if (!weir_parse_is_map(p, field->name, value))
        return;
    for (const struct weir_yaml *k = value->first; k; k = k->next->next) {
        const struct weir_yaml *key = weir_yaml_follow(k);
        if (which(key, words) == 0)
            parse_statuses(p, weir_yaml_follow(k->next));
        else
            weir_parse_unknown(p, key, words);
    }
    if (!value->first)
        weir_report_error(p->report, weir_parse_mark(p, value),
                          "'count_if' needs a status, as in {status: [401, 403]}");
}

/* ---- counting ---- */

/* What counts where nobody says how well: an error of 1 in 10,000 of all hits, 99 times of 100. */
#define ERROR_DEFAULT 0.0001
#define CONFIDENCE_DEFAULT 0.99

static void set_error(struct weir_draft_limit *limit, double error, double confidence)
{
    struct weir_approx approx = {0};
    weir_approx_from_error(&approx, error, confidence);
    limit->width = approx.width;
    limit->depth = approx.depth;
}

static void set_approximate_default(struct weir_draft_limit *limit)
{
    limit->bloom_bits = 0;
    set_error(limit, ERROR_DEFAULT, CONFIDENCE_DEFAULT);
}

/* {width, depth, bloom_bits} or {error, confidence}; nothing: the default. */
static void parse_approximate(struct weir_parser *p, const struct weir_yaml *map)
{
    static const char *const words[] = {"width", "depth",      "bloom_bits",
                                        "error", "confidence", NULL};
    struct weir_draft_limit *limit = p->limit;
    double share[2] = {0, CONFIDENCE_DEFAULT};
    uint32_t bloom_bits = 0;
    if (!map->first) {
        set_approximate_default(limit);
        return;
    }
    limit->width = 0;
    limit->depth = 4;
    for (const struct weir_yaml *k = map->first; k; k = k->next->next) {
        const struct weir_yaml *key = weir_yaml_follow(k);
        const struct weir_yaml *one = weir_yaml_follow(k->next);
        int word = which(key, words);
        if (word == 0)
            weir_parse_number(p, WEIR_STR("width"), one, 1, WEIR_SKETCH_WIDTH_MAX, &limit->width);
        else if (word == 1)
            weir_parse_number(p, WEIR_STR("depth"), one, 1, WEIR_SKETCH_DEPTH_MAX, &limit->depth);
        else if (word == 2)
            weir_parse_number(p, WEIR_STR("bloom_bits"), one, 0, UINT32_MAX, &bloom_bits);
        else if (word == 3 || word == 4)
            weir_parse_share(p, key->text, one, &share[word - 3]);
        else
            weir_parse_unknown(p, key, words);
    }
    limit->bloom_bits = bloom_bits;
    if (share[0] > 0 && limit->width == 0)
        set_error(limit, share[0], share[1]);
    if (limit->width == 0)
        weir_report_error(p->report, weir_parse_mark(p, map),
                          "approximate counting needs {width, depth} or {error, confidence}");
}

/* `exact`, `approximate`, `{approximate: {...}}` with its parameters, or the parameters alone. */
void weir_parse_counting(struct weir_parser *p, const struct weir_field *field,
                         const struct weir_yaml *value)
{
    static const char *const words[] = {"exact", "approximate", NULL};
    p->limit->has |= WEIR_HAS_COUNTING;
    if (value->kind == WEIR_YAML_MAP) {
        const struct weir_yaml *key = value->first ? weir_yaml_follow(value->first) : NULL;
        const struct weir_yaml *map = key ? weir_yaml_follow(value->first->next) : NULL;
        bool is_wrapped = key && which(key, words) == 1 && !value->first->next->next;
        if (!is_wrapped)
            parse_approximate(p, value);
        else if (weir_parse_is_map(p, WEIR_STR("approximate"), map))
            parse_approximate(p, map);
        return;
    }
    int word = weir_parse_word(p, field->name, value, words);
    p->limit->width = 0;
    if (word == 1)
        set_approximate_default(p->limit);
}

/* ---- attributes ---- */

static void on_map_line(void *ctx, struct weir_mark at, struct weir_str key, struct weir_str value)
{
    struct pair_list *list = ctx;
    if (!is_value_len(list->p, at, key) || !is_value_len(list->p, at, value))
        return;
    struct weir_draft_pair *pair = add_pair(list, at, key);
    if (pair)
        pair->text = weir_arena_str(list->p->arena, value);
}

static void parse_map_file(struct weir_parser *p, struct weir_draft_attribute *attribute,
                           const struct weir_yaml *value)
{
    struct weir_str path;
    struct pair_list list = {.p = p, .end = &attribute->map};
    if (!weir_parse_str(p, WEIR_STR("map"), value, &path))
        return;
    (void)weir_parse_csv(p, weir_parse_mark(p, value), path, on_map_line, &list);
    attribute->map_count = list.count;
}

/* {from: user, map: tiers.csv, default: free} */
static void parse_attribute(struct weir_parser *p, struct weir_draft_attribute *attribute,
                            const struct weir_yaml *map)
{
    static const char *const words[] = {"from", "map", "default", NULL};
    uint32_t errors = p->report->error_count;
    bool has_map = false;
    for (const struct weir_yaml *k = map->first; k; k = k->next->next) {
        const struct weir_yaml *key = weir_yaml_follow(k);
        const struct weir_yaml *one = weir_yaml_follow(k->next);
        int word = which(key, words);
        if (word == 0) {
            weir_parse_str(p, WEIR_STR("from"), one, &attribute->from);
        } else if (word == 1) {
            parse_map_file(p, attribute, one);
            has_map = true;
        } else if (word == 2) {
            attribute->has_otherwise =
                weir_parse_str(p, WEIR_STR("default"), one, &attribute->otherwise) &&
                is_value_len(p, weir_parse_mark(p, one), attribute->otherwise);
        } else {
            weir_parse_unknown(p, key, words);
        }
    }
    if ((attribute->from.len == 0 || !has_map) && p->report->error_count == errors)
        weir_report_error(
            p->report, attribute->at,
            "an attribute needs 'from' and 'map', as in {from: user, map: tiers.csv}");
}

void weir_parse_attributes(struct weir_parser *p, const struct weir_field *field,
                           const struct weir_yaml *value)
{
    if (!weir_parse_is_map(p, field->name, value))
        return;
    struct weir_draft_attribute **end = &p->root->attributes;
    *end = NULL;
    for (const struct weir_yaml *k = value->first; k; k = k->next->next) {
        const struct weir_yaml *key = weir_yaml_follow(k);
        const struct weir_yaml *map = weir_yaml_follow(k->next);
        struct weir_str name;
        if (!weir_parse_str(p, WEIR_STR("the name of an attribute"), key, &name) ||
            !weir_parse_is_map(p, name, map))
            continue;
        struct weir_draft_attribute *attribute =
            WEIR_ARENA_NEW(p->arena, struct weir_draft_attribute);
        if (!attribute)
            return;
        attribute->at = weir_parse_mark(p, key);
        attribute->name = name;
        parse_attribute(p, attribute, map);
        *end = attribute;
        end = &attribute->next;
    }
}
