/* rules_rig.h - what the tests of the rules share: load a text, read what was said, match.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_RULES_RIG_H
#define WEIR_TESTS_RULES_RIG_H

#include "base/str.h"
#include "rules/rules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Everything that one load said, a line each. */
struct said {
    char text[65536];
    size_t len;
    uint32_t errors, warnings;
};

static struct said said;

static inline void say(void *ctx, enum weir_level level, const char *line)
{
    (void)ctx;
    said.errors += level == WEIR_LEVEL_ERROR;
    said.warnings += level == WEIR_LEVEL_WARNING;
    int len = snprintf(said.text + said.len, sizeof(said.text) - said.len, "%s\n", line);
    if (len > 0 && (size_t)len < sizeof(said.text) - said.len)
        said.len += (size_t)len;
}

static inline struct weir_rules *load_merged(const char *text, bool merge)
{
    struct weir_rules *rules = NULL;
    struct weir_rules_options options = {.log = say, .merge_domains = merge};
    said = (struct said){.len = 0};
    int err = weir_rules_load_text(&rules, weir_str_of(text), "rules.yaml", &options);
    assert_int_equal(err != 0, said.errors != 0);
    assert_int_equal(err != 0, rules == NULL);
    return rules;
}

static inline struct weir_rules *load(const char *text)
{
    return load_merged(text, false);
}

/* The text loads; the caller frees. */
static inline struct weir_rules *loaded(const char *text)
{
    struct weir_rules *rules = load(text);
    if (!rules)
        print_message("%s", said.text);
    assert_non_null(rules);
    return rules;
}

static inline void assert_said(const char *words)
{
    if (!strstr(said.text, words))
        print_message("missing: %s\nsaid: %s", words, said.text);
    assert_non_null(strstr(said.text, words));
}

/* The text is refused, with these words. */
static inline void assert_refused(const char *text, const char *words)
{
    struct weir_rules *rules = load(text);
    weir_rules_free(rules);
    if (rules)
        print_message("loaded: %s\n", text);
    assert_null(rules);
    assert_said(words);
}

/* The text loads, and these words are among the warnings. */
static inline void assert_warned(const char *text, const char *words)
{
    weir_rules_free(loaded(text));
    assert_int_equal(said.errors, 0);
    assert_said(words);
}

static inline void assert_quiet(const char *text)
{
    weir_rules_free(loaded(text));
    if (said.len)
        print_message("%s", said.text);
    assert_int_equal(said.len, 0);
}

/* Descriptors are written "key=value key=value"; a value may be empty, a key may not have a =. */
static inline uint32_t read_entries(const char *text, char *work, struct weir_entry *entries)
{
    uint32_t count = 0;
    size_t len = strlen(text);
    memcpy(work, text, len + 1);
    for (char *at = work; *at;) {
        char *space = strchr(at, ' ');
        char *end = space ? space : at + strlen(at);
        char *equals = memchr(at, '=', (size_t)(end - at));
        assert_non_null(equals);
        entries[count].key = (struct weir_str){at, (size_t)(equals - at)};
        entries[count++].value = (struct weir_str){equals + 1, (size_t)(end - equals) - 1};
        at = space ? space + 1 : end;
    }
    return count;
}

static inline struct weir_match match(const struct weir_rules *rules, const char *domain,
                                      const char *descriptor)
{
    static char work[8192];
    static struct weir_entry entries[64];
    struct weir_match out;
    memset(&out, 0xa5, sizeof(out));
    const struct weir_domain *found = weir_rules_domain(rules, weir_str_of(domain));
    assert_non_null(found);
    weir_rules_match(found, entries, read_entries(descriptor, work, entries), &out);
    return out;
}

/* The id of the rule that a descriptor of domain d meets, or "". */
static inline const char *id_of(const struct weir_rules *rules, const char *descriptor)
{
    static char id[8192];
    struct weir_match out = match(rules, "d", descriptor);
    struct weir_str text = out.rule ? out.rule->info.id : WEIR_STR("");
    snprintf(id, sizeof(id), "%.*s", WEIR_STR_ARG(text));
    return id;
}

#endif
