/* engine_rig.h - an engine on rules that a test writes down, asked in one line.
 *
 *     struct rig *r = rig_open("domain: t\ndescriptors: ...", NULL);
 *     assert_ok(r, ask(r, "t", "k1=v1,sub=x; k2=r"), 0, 4);
 *
 * A request is written as descriptors between semicolons, entries between commas.  Hits may follow:
 * "k=v +3", "k=v +0" (look), "k=v -2" (give back).  The time stands still unless a test moves it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_ENGINE_RIG_H
#define WEIR_TESTS_ENGINE_RIG_H

#include "base/maxima.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>
#include <cmocka.h>

#define RIG_START_NS (UINT64_C(1700006400) * 1000000000) /* a midnight */
#define RIG_SECOND UINT64_C(1000000000)

struct rig {
    char dir[32]; /* our own: a watch would hear of everything in /tmp */
    char path[64];
    struct weir *w;
    struct weir_session *s;
    uint64_t now_ns;
    uint32_t hits_addend;
    const struct weir_override *override; /* for every descriptor of the next request */
    char log[4096];

    char text[512];
    struct weir_entry entries[64];
    struct weir_descriptor descriptors[WEIR_DESCRIPTORS_MAX + 1];
    struct weir_request request;
    struct weir_status statuses[WEIR_DESCRIPTORS_MAX + 1];
    struct weir_decision decision;
};

static inline void rig_log(void *ctx, enum weir_level level, const char *line)
{
    struct rig *r = ctx;
    size_t len = strlen(r->log);
    (void)level;
    snprintf(r->log + len, sizeof(r->log) - len, "%s\n", line);
}

static inline void rig_write(struct rig *r, const char *rules)
{
    FILE *f = fopen(r->path, "w");
    assert_non_null(f);
    fputs(rules, f);
    fclose(f);
}

/* options: what is not as usual; the rules and the log are the rig's. */
static inline struct rig *rig_open(const char *rules, const struct weir_options *options)
{
    struct rig *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    snprintf(r->dir, sizeof(r->dir), "/tmp/weir_XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    snprintf(r->path, sizeof(r->path), "%s/rules.yaml", r->dir);
    rig_write(r, rules);
    r->now_ns = RIG_START_NS;
    r->decision.statuses = r->statuses;
    struct weir_options o = options ? *options : (struct weir_options){0};
    o.rules_path = r->path;
    o.log = rig_log;
    o.log_ctx = r;
    if (o.table_bytes == 0)
        o.table_bytes = UINT64_C(8) << 20;
    if (weir_open(&r->w, &o) != 0)
        fail_msg("cannot open: %s", r->log);
    assert_int_equal(weir_session_open(&r->s, r->w), 0);
    return r;
}

static inline void rig_close(struct rig *r)
{
    weir_session_close(r->s);
    weir_close(r->w);
    unlink(r->path);
    rmdir(r->dir);
    free(r);
}

static inline char *rig_trim(char *text)
{
    text += strspn(text, " ");
    for (size_t len = strlen(text); len > 0 && text[len - 1] == ' '; len--)
        text[len - 1] = '\0';
    return text;
}

static inline void rig_parse_hits(struct weir_descriptor *d, char *text)
{
    char *sign = strpbrk(text, "+-");
    if (!sign || sign == text || sign[-1] != ' ')
        return;
    d->has_hits = true;
    d->is_negative_hits = *sign == '-';
    d->hits = strtoull(sign + 1, NULL, 10);
    *sign = '\0';
}

/* Makes r->request of the text. */
static inline void rig_parse(struct rig *r, const char *domain, const char *text)
{
    char *rest = NULL, *rest_entries = NULL;
    uint32_t entry = 0, count = 0;
    snprintf(r->text, sizeof(r->text), "%s", text);
    for (char *one = strtok_r(r->text, ";", &rest); one; one = strtok_r(NULL, ";", &rest)) {
        struct weir_descriptor *d = &r->descriptors[count++];
        *d = (struct weir_descriptor){.entries = &r->entries[entry], .override = r->override};
        rig_parse_hits(d, one);
        for (char *e = strtok_r(one, ",", &rest_entries); e;
             e = strtok_r(NULL, ",", &rest_entries)) {
            char *value = strchr(e, '=');
            assert_non_null(value);
            *value++ = '\0';
            r->entries[entry++] =
                (struct weir_entry){weir_str_of(rig_trim(e)), weir_str_of(rig_trim(value))};
            d->entry_count++;
        }
    }
    r->request = (struct weir_request){.domain = weir_str_of(domain),
                                       .descriptors = r->descriptors,
                                       .descriptor_count = count,
                                       .hits_addend = r->hits_addend};
}

/* Asks; the statuses are in r afterwards. */
static inline enum weir_code ask(struct rig *r, const char *domain, const char *text)
{
    rig_parse(r, domain, text);
    assert_int_equal(weir_check(r->s, &r->request, r->now_ns, &r->decision), 0);
    assert_int_equal(r->decision.status_count, r->request.descriptor_count);
    return r->decision.overall;
}

/* Asks n times; says how many were OK. */
static inline int ask_times(struct rig *r, const char *domain, const char *text, int n)
{
    int passed = 0;
    while (n-- > 0)
        passed += ask(r, domain, text) == WEIR_CODE_OK;
    return passed;
}

static inline void assert_status(const struct rig *r, uint32_t i, enum weir_code code,
                                 uint64_t limit, uint64_t remaining)
{
    assert_true(r->statuses[i].is_limited);
    assert_int_equal(r->statuses[i].code, code);
    assert_int_equal(r->statuses[i].limit, limit);
    assert_int_equal(r->statuses[i].remaining, remaining);
}

/* OK and nothing else: no limit applied. */
static inline void assert_bare(const struct rig *r, uint32_t i)
{
    assert_int_equal(r->statuses[i].code, WEIR_CODE_OK);
    assert_false(r->statuses[i].is_limited);
    assert_int_equal(r->statuses[i].remaining, 0);
    assert_int_equal(r->statuses[i].reset_after_ns, 0);
    assert_null(r->statuses[i].rule);
}

struct rig_find {
    const char *id;
    struct weir_rule_stats found;
};

static inline void rig_find_stats(void *ctx, const struct weir_rule_stats *one)
{
    struct rig_find *f = ctx;
    if (weir_str_eq(one->info.id, weir_str_of(f->id)))
        f->found = *one;
}

static inline struct weir_rule_stats stats_of(struct rig *r, const char *id)
{
    struct rig_find f = {.id = id};
    weir_stats_rules(r->w, rig_find_stats, &f);
    return f.found;
}

#endif
