/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/lint.h"

#include "base/str.h"
#include "rules/match_glob.h"

#include <string.h>

#define BARE_KEYS_LOOKED_AT 64 /* of one level: what is compared with all siblings */

/* The way to where we are, and what was said already. */
struct lint {
    struct weir_compiler *c;
    const struct weir_draft_descriptor *chain[WEIR_ENTRIES_MAX];
    uint32_t depth;
    bool said_user_id;
};

/* "key_value" of a draft, as it is matched. */
struct composite {
    struct weir_str text;
    char bytes[WEIR_KEY_LEN_MAX + 1 + WEIR_VALUE_LEN_MAX];
};

static void composite_of(struct composite *out, struct weir_str key, struct weir_str value)
{
    size_t len = key.len;
    memcpy(out->bytes, key.ptr, key.len);
    if (value.len) {
        out->bytes[len++] = '_';
        memcpy(out->bytes + len, value.ptr, value.len);
        len += value.len;
    }
    out->text = (struct weir_str){.ptr = out->bytes, .len = len};
}

static void say_never(struct lint *l, const struct weir_draft_descriptor *d,
                      const struct weir_draft_descriptor *wide)
{
    weir_report_warning(l->c->report, d->at,
                        "this can never match: '%.*s' at line %u matches all that it does",
                        WEIR_STR_ARG(wide->value.len ? wide->value : wide->key), wide->at.line);
}

/* What of a level can hide or be hidden, in the order of the file: few, whatever else it has. */
struct hideable {
    const struct weir_draft_descriptor
        *all[WEIR_WILDCARDS_MAX + WEIR_REGEXES_MAX + BARE_KEYS_LOOKED_AT];
    uint32_t count;
};

static void gather(struct hideable *out, const struct weir_draft_descriptor *first)
{
    uint32_t counts[WEIR_MATCH_UNSAID] = {0};
    static const uint32_t most[WEIR_MATCH_UNSAID] = {
        [WEIR_MATCH_EXACT] = BARE_KEYS_LOOKED_AT,
        [WEIR_MATCH_WILDCARD] = WEIR_WILDCARDS_MAX,
        [WEIR_MATCH_REGEX] = WEIR_REGEXES_MAX,
    };
    out->count = 0;
    for (const struct weir_draft_descriptor *d = first; d; d = d->next) {
        enum weir_match_kind kind = weir_compile_kind(d);
        bool is_value = kind == WEIR_MATCH_EXACT && d->value.len > 0;
        if (!is_value && counts[kind] < most[kind]) {
            counts[kind]++;
            out->all[out->count++] = d;
        }
    }
}

/* A wildcard hides wildcards and regexes after it, and bare keys wherever they stand. */
static void check_hidden(struct lint *l, const struct hideable *level, uint32_t wide)
{
    struct composite pattern, other;
    composite_of(&pattern, level->all[wide]->key, level->all[wide]->value);
    for (uint32_t i = 0; i < level->count; i++) {
        const struct weir_draft_descriptor *d = level->all[i];
        enum weir_match_kind kind = weir_compile_kind(d);
        if (i == wide || (i < wide && kind != WEIR_MATCH_EXACT))
            continue;
        composite_of(&other, d->key, kind == WEIR_MATCH_WILDCARD ? d->value : WEIR_STR("*"));
        if (weir_glob_covers(pattern.text, other.text))
            say_never(l, d, level->all[wide]);
    }
}

static void check_patterns(struct lint *l, const struct weir_draft_descriptor *first)
{
    struct hideable level;
    gather(&level, first);
    for (uint32_t i = 0; i < level.count; i++)
        if (weir_compile_kind(level.all[i]) == WEIR_MATCH_WILDCARD)
            check_hidden(l, &level, i);
}

/* A value with a limit and nothing below it, beside a bare key with rules below: a longer request
 * with this value stops at the value and meets no limit at all.  (A value without a limit is how a
 * white list is written.) */
static void check_dead_end(struct lint *l, const struct weir_draft_descriptor *first,
                           const struct weir_draft_descriptor *bare)
{
    for (const struct weir_draft_descriptor *d = first; d; d = d->next) {
        bool is_dead_end = d->value.len && !d->children && d->limits && !d->limits->is_unlimited;
        if (is_dead_end && weir_str_eq(d->key, bare->key))
            weir_report_warning(l->c->report, d->at,
                                "the descriptors below '%.*s' at line %u do not apply to this "
                                "value, which has none",
                                WEIR_STR_ARG(bare->key), bare->at.line);
    }
}

static bool is_client_chosen(struct weir_str key)
{
    return weir_str_starts(key, WEIR_STR("header.")) || weir_str_starts(key, WEIR_STR("cookie.")) ||
           weir_str_starts(key, WEIR_STR("query."));
}

/* Whether a client can leave this attribute out, or change it at will, and so escape. */
static bool is_loose(const struct weir_draft_descriptor *d)
{
    bool has_absent = d->extra && d->extra->if_absent != WEIR_ABSENT_DROP;
    bool is_any = d->value.len == 0 || weir_compile_kind(d) == WEIR_MATCH_WILDCARD;
    return is_client_chosen(d->key) && is_any && !has_absent;
}

static void check_escape(struct lint *l, const struct weir_draft_descriptor *d)
{
    const struct weir_draft_descriptor *loose = NULL;
    if (!d->limits || d->limits->is_unlimited)
        return;
    for (uint32_t i = 0; i < l->depth; i++) {
        struct weir_str key = l->chain[i]->key;
        if (weir_str_eq(key, WEIR_STR("remote_address")) || weir_str_eq(key, WEIR_STR("user")))
            return;
        if (is_loose(l->chain[i]))
            loose = l->chain[i];
    }
    if (loose)
        weir_report_warning(l->c->report, d->at,
                            "a client that leaves out '%.*s' escapes this limit; count it together "
                            "with remote_address, or say 'if_absent'",
                            WEIR_STR_ARG(loose->key));
}

static void check_user_id(struct lint *l, const struct weir_draft_descriptor *d)
{
    if (l->said_user_id || !weir_str_eq(d->key, WEIR_STR("user_id")))
        return;
    for (uint32_t i = 0; i < l->c->domain->attribute_count; i++)
        if (weir_str_eq(l->c->domain->attributes[i].name, d->key))
            return;
    l->said_user_id = true;
    weir_report_warning(l->c->report, d->at,
                        "HTTP front ends know 'user', not 'user_id'; descriptors that are sent "
                        "with 'user_id' are not affected");
}

static void check_flags(struct lint *l, const struct weir_draft_descriptor *d)
{
    const char *flag = d->is_shadow             ? "shadow_mode"
                       : d->is_quota            ? "quota_mode"
                       : d->has_detailed_metric ? "detailed_metric"
                                                : NULL;
    if (flag && !d->limits)
        weir_report_warning(l->c->report, d->at,
                            "'%s' has no effect on a descriptor without rate_limit", flag);
    if (!d->limits && !d->children && d->value.len == 0)
        weir_report_warning(l->c->report, d->at,
                            "'%.*s' has neither rate_limit nor descriptors: it does nothing",
                            WEIR_STR_ARG(d->key));
}

/* Recursion is as deep as descriptors are, WEIR_ENTRIES_MAX. */
static void lint_level(struct lint *l, const struct weir_draft_descriptor *first)
{
    uint32_t bares = 0;
    check_patterns(l, first);
    for (const struct weir_draft_descriptor *d = first; d; d = d->next) {
        if (d->value.len == 0 && d->children && bares++ < BARE_KEYS_LOOKED_AT)
            check_dead_end(l, first, d);
        check_user_id(l, d);
        check_flags(l, d);
        l->chain[l->depth++] = d;
        check_escape(l, d);
        lint_level(l, d->children);
        l->depth--;
    }
}

void weir_lint(struct weir_compiler *c, const struct weir_draft_root *root)
{
    struct lint l = {.c = c};
    lint_level(&l, root->descriptors);
}
