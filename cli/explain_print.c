/* SPDX-License-Identifier: Apache-2.0 */
#include "explain.h"

#include "cli.h"

#include "base/str.h"
#include "proto/request_json.h"
#include "rules/shapes.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#define LABEL_WIDTH 10
#define SHAPE_LEN_MAX 512

/* ---- words ---- */

/* The unit that a window is told in: the longest that divides it. */
static enum weir_unit unit_of(uint64_t window_s, uint32_t *multiplier)
{
    static const enum weir_unit longest_first[] = {
        WEIR_UNIT_YEAR, WEIR_UNIT_MONTH,  WEIR_UNIT_WEEK,   WEIR_UNIT_DAY,
        WEIR_UNIT_HOUR, WEIR_UNIT_MINUTE, WEIR_UNIT_SECOND,
    };
    for (size_t i = 0; i < CLI_COUNT_OF(longest_first); i++) {
        uint64_t seconds = weir_unit_seconds(longest_first[i]);
        if (window_s >= seconds && window_s % seconds == 0) {
            *multiplier = (uint32_t)(window_s / seconds);
            return longest_first[i];
        }
    }
    *multiplier = 1;
    return WEIR_UNIT_UNKNOWN;
}

/* "300 per minute, sliding_window_counter", and what is unusual about it. */
static void print_limit(const struct weir_limit *limit)
{
    struct cli_words words;
    uint32_t multiplier;
    enum weir_algorithm algorithm = (enum weir_algorithm)limit->algorithm;
    enum weir_unit unit = unit_of(limit->window_ns / WEIR_NS_PER_S, &multiplier);
    if (algorithm == WEIR_CONCURRENCY)
        printf("%" PRIu32 " at a time, each for at most %s", limit->requests,
               cli_words_duration(&words, limit->window_ns));
    else
        printf("%s, %s", cli_words_rate(&words, limit->requests, unit, multiplier),
               weir_algorithm_name(algorithm));
    if (algorithm == WEIR_TOKEN_BUCKET)
        printf(", burst %" PRIu32 "%s", limit->burst,
               limit->refill_interval ? ", refilled at intervals" : "");
    if (algorithm == WEIR_LEAKY_BUCKET)
        printf(", queue of %" PRIu32, limit->burst);
    if (algorithm == WEIR_SLIDING_WINDOW_COUNTER && limit->buckets > 1)
        printf(" in %" PRIu32 " sub-windows", limit->buckets);
    if (limit->round_up)
        printf(", rounded up");
    if (limit->count_rejected && algorithm != WEIR_FIXED_WINDOW)
        printf(", refused hits count");
    if (!limit->count_rejected && algorithm == WEIR_FIXED_WINDOW)
        printf(", refused hits do not count");
}

static void print_label(const char *label)
{
    printf("  %-*s ", LABEL_WIDTH, label);
}

static void print_limits(const struct cli_explained *one)
{
    bool has_prefix = false;
    for (uint32_t i = 0; i < one->entry_count; i++)
        has_prefix |= one->match.part[i] == WEIR_PART_PREFIX;
    for (uint8_t i = 0; i < one->match.limit_count; i++) {
        const struct weir_rule_limit *limit = &one->match.limits[i];
        print_label(i == 0 ? "limit" : "and");
        print_limit(&limit->limit);
        if (has_prefix)
            printf(", by /%u of IPv4 and /%u of IPv6", limit->ipv4_prefix, limit->ipv6_prefix);
        printf("\n");
    }
}

static void print_rule(const struct cli_explained *one)
{
    struct cli_words words;
    const struct weir_rule *rule = one->match.rule;
    const struct weir_status *status = &one->status;
    print_label("rule");
    printf("%.*s%s%s%s\n", WEIR_STR_ARG(rule->info.id), rule->is_shadow ? ", in shadow mode" : "",
           rule->is_quota ? ", in quota mode" : "",
           one->match.limits != weir_rule_limits(rule)
               ? ", with this value's own number (overrides)"
               : "");
    if (rule->is_unlimited) {
        print_label("limit");
        printf("none: unlimited\n");
        return;
    }
    print_limits(one);
    if (!status->is_limited)
        return;
    print_label("now");
    printf("%" PRIu64 " of %" PRIu64 " left", status->remaining, status->limit);
    if (status->reset_after_ns > 0)
        printf(", as if unused in %s", cli_words_duration(&words, status->reset_after_ns));
    printf("\n");
}

static void print_text(const struct cli_explained *one)
{
    static const struct {
        const char *counted, *words;
    } counters[] = {
        {"value", ""},
        {"shared", "; all that match share one counter"},
        {"prefix", "; counted by its prefix"},
    };
    printf("\n");
    for (uint32_t i = 0; i < one->entry_count; i++)
        printf("%s%.*s=%.*s", i > 0 ? "," : "", WEIR_STR_ARG(one->entries[i].key),
               WEIR_STR_ARG(one->entries[i].value));
    printf("\n");
    for (uint32_t i = 0; i < one->step_count; i++) {
        const struct cli_step *step = &one->steps[i];
        print_label(i == 0 ? "matches" : "then");
        printf("%.*s (%s", WEIR_STR_ARG(step->pattern), step->how);
        for (size_t j = 0; j < CLI_COUNT_OF(counters) && one->match.rule != NULL; j++)
            if (strcmp(counters[j].counted, step->counted) == 0)
                printf("%s", counters[j].words);
        printf(")\n");
    }
    if (one->match.rule != NULL) {
        print_rule(one);
        return;
    }
    print_label("no limit");
    if (one->step_count < one->entry_count) {
        const struct weir_entry *stuck = &one->entries[one->step_count];
        printf("at %.*s=%.*s: ", WEIR_STR_ARG(stuck->key), WEIR_STR_ARG(stuck->value));
    }
    printf("%s\n", one->why);
}

/* ---- JSON ---- */

/* Arguments need not be UTF-8; JSON must be. */
static json_t *json_text(struct weir_str text)
{
    json_t *value = json_stringn(text.ptr, text.len);
    return value != NULL ? value : json_string("(not UTF-8)");
}

static json_t *json_of_limit(const struct weir_limit *limit)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:b, s:b, s:b}", "algorithm",
                     weir_algorithm_name((enum weir_algorithm)limit->algorithm),
                     "requests_per_unit", (json_int_t)limit->requests, "window_s",
                     (json_int_t)(limit->window_ns / WEIR_NS_PER_S), "burst",
                     (json_int_t)limit->burst, "buckets", (json_int_t)limit->buckets,
                     "count_rejected", limit->count_rejected, "round_up", limit->round_up,
                     "refill_interval", limit->refill_interval);
}

static json_t *json_of_status(const struct weir_status *status)
{
    if (!status->is_limited)
        return json_null();
    return json_pack("{s:s, s:I, s:I, s:I}", "code", weir_code_name(status->code), "limit",
                     (json_int_t)status->limit, "remaining", (json_int_t)status->remaining,
                     "reset_after_ns", (json_int_t)status->reset_after_ns);
}

static void print_json(const struct cli_explained *one)
{
    const struct weir_rule *rule = one->match.rule;
    json_t *entries = json_array(), *steps = json_array(), *limits = json_array();
    for (uint32_t i = 0; i < one->entry_count; i++)
        json_array_append_new(entries, json_pack("[o, o]", json_text(one->entries[i].key),
                                                 json_text(one->entries[i].value)));
    for (uint32_t i = 0; i < one->step_count; i++)
        json_array_append_new(steps, json_pack("{s:s, s:o, s:s}", "how", one->steps[i].how,
                                               "pattern", json_text(one->steps[i].pattern),
                                               "counted", one->steps[i].counted));
    for (uint8_t i = 0; i < one->match.limit_count; i++)
        json_array_append_new(limits, json_of_limit(&one->match.limits[i].limit));
    json_t *root = json_pack(
        "{s:o, s:o, s:o, s:o, s:b, s:b, s:b, s:o, s:o}", "entries", entries, "steps", steps, "rule",
        rule != NULL ? json_text(rule->info.id) : json_null(), "why_none",
        rule == NULL ? json_string(one->why) : json_null(), "unlimited",
        rule != NULL && rule->is_unlimited, "shadow", rule != NULL && rule->is_shadow, "quota",
        rule != NULL && rule->is_quota, "limits", limits, "now", json_of_status(&one->status));
    json_dumpf(root, stdout, 0);
    json_decref(root);
}

/* ---- shapes ---- */

/* "path > user", "generic_key=all", "user (if absent: anon)". */
static void shape_words(const struct weir_shape *shape, char *out)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < shape->part_count && used < SHAPE_LEN_MAX; i++) {
        const struct weir_shape_part *part = &shape->parts[i];
        struct weir_str absent = part->if_absent_value;
        if (part->if_absent == WEIR_ABSENT_DENY)
            absent = WEIR_STR("deny");
        int len =
            snprintf(out + used, SHAPE_LEN_MAX - used, "%s%.*s%s%.*s%s%.*s%s", i > 0 ? " > " : "",
                     WEIR_STR_ARG(part->key), part->is_fixed ? "=" : "", WEIR_STR_ARG(part->fixed),
                     part->if_absent != WEIR_ABSENT_DROP ? " (if absent: " : "",
                     WEIR_STR_ARG(absent), part->if_absent != WEIR_ABSENT_DROP ? ")" : "");
        used += len > 0 ? (size_t)len : 0;
    }
}

void cli_explain_begin(const struct weir_domain *domain, bool as_json)
{
    char words[SHAPE_LEN_MAX];
    json_t *shapes = json_array();
    if (!as_json)
        printf("domain %.*s%s\n", WEIR_STR_ARG(domain->name),
               domain->is_atomic ? ", atomic: a refused request consumes nothing" : "");
    for (uint32_t i = 0; i < weir_shapes_count(domain); i++) {
        shape_words(weir_shapes_at(domain, i), words);
        json_array_append_new(shapes, json_text(weir_str_of(words)));
        if (!as_json) {
            print_label("shape");
            printf("%s\n", words);
        }
    }
    if (as_json) {
        json_t *head = json_pack("{s:o, s:b, s:O}", "domain", json_text(domain->name), "atomic",
                                 domain->is_atomic, "shapes", shapes);
        char *text = json_dumps(head, 0);
        if (text != NULL) /* without its closing brace: the descriptors follow */
            printf("%.*s, \"descriptors\": [", (int)strlen(text) - 1, text);
        free(text);
        json_decref(head);
    }
    json_decref(shapes);
}

void cli_explain_print(const struct cli_explained *one, bool is_first, bool as_json)
{
    if (!as_json) {
        print_text(one);
        return;
    }
    if (!is_first)
        printf(", ");
    print_json(one);
}

void cli_explain_end(bool as_json)
{
    if (as_json)
        printf("]}\n");
}
