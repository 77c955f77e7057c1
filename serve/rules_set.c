/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/rules_set.h"

#include "base/err.h"
#include "base/str.h"
#include "store/redis/sha256.h"

#include <stdio.h>
#include <stdlib.h>

void weir_rules_set_init(struct weir_rules_set *set)
{
    *set = (struct weir_rules_set){.count = 0};
    weir_arena_init(&set->arena);
}

void weir_rules_set_fini(struct weir_rules_set *set)
{
    weir_arena_fini(&set->arena);
}

void weir_rules_set_reserve(struct weir_rules_set *set, uint32_t count_max)
{
    struct weir_rules_set_domain *more =
        WEIR_ARENA_ARRAY(&set->arena, count_max, struct weir_rules_set_domain);
    if (more == NULL)
        return;
    WEIR_ASSERT(count_max >= set->count);
    if (set->count > 0)
        memcpy(more, set->domains, set->count * sizeof(*more));
    set->domains = more;
    set->count_max = count_max;
}

/* ended by NUL */
static const char *copy(struct weir_rules_set *set, const char *text)
{
    const char *to = weir_arena_str(&set->arena, (struct weir_str){text, strlen(text) + 1}).ptr;
    return to != NULL ? to : "";
}

void weir_rules_set_add(struct weir_rules_set *set, struct weir_str name,
                        const struct weir_redis_rules_entry *entry, const char *wrong)
{
    char file[WEIR_RULES_FILE_NAME_LEN];
    if (set->arena.has_failed)
        return;
    WEIR_ASSERT(set->count < set->count_max);
    struct weir_rules_set_domain *domain = &set->domains[set->count++];
    weir_rules_set_file_name(name, file);
    *domain = (struct weir_rules_set_domain){
        .name = weir_arena_str(&set->arena, name), .label = copy(set, file), .wrong = wrong};
    domain->entry = *entry;
    domain->entry.who = weir_arena_str(&set->arena, entry->who);
    domain->entry.why = weir_arena_str(&set->arena, entry->why);
    domain->entry.sha256 = weir_arena_str(&set->arena, entry->sha256);
    domain->entry.text = weir_arena_str(&set->arena, entry->text);
    set->bytes += entry->text.len;
}

/* NULL where there is no such domain. */
static struct weir_rules_set_domain *find(const struct weir_rules_set *set, struct weir_str name)
{
    for (uint32_t i = 0; i < set->count; i++)
        if (weir_str_eq(set->domains[i].name, name))
            return &set->domains[i];
    return NULL;
}

void weir_rules_set_change(struct weir_rules_set *set, const struct weir_redis_rules_change *change,
                           const char *label)
{
    struct weir_rules_set_domain *domain = find(set, change->domain);
    if (change->is_delete) {
        if (domain != NULL)
            *domain = set->domains[--set->count];
        return;
    }
    if (domain == NULL) {
        WEIR_ASSERT(set->count < set->count_max);
        domain = &set->domains[set->count++];
    }
    *domain = (struct weir_rules_set_domain){
        .name = change->domain, .label = label, .entry = {.text = change->text}};
}

/* What weir did not store, and texts of another domain than they are stored under. */
static int check_domains(const struct weir_rules_set *set, const struct weir_rules *rules,
                         weir_log_fn log, void *log_ctx)
{
    int err = 0;
    for (uint32_t i = 0; i < set->count; i++) {
        const struct weir_rules_set_domain *domain = &set->domains[i];
        const char *wrong = domain->wrong;
        char line[WEIR_RULES_FILE_NAME_LEN + 128];
        if (wrong == NULL && rules != NULL && weir_rules_domain(rules, domain->name) == NULL)
            wrong = "these are not the rules of this domain";
        if (wrong == NULL)
            continue;
        snprintf(line, sizeof(line), "%.200s: %s", domain->label, wrong);
        if (log != NULL)
            log(log_ctx, WEIR_LEVEL_ERROR, line);
        err = WEIR_ERR_RULES;
    }
    return err;
}

int weir_rules_set_check(const struct weir_rules_set *set, weir_log_fn log, void *log_ctx)
{
    struct weir_rules *rules = NULL;
    const struct weir_rules_options options = {.log = log, .log_ctx = log_ctx};
    struct weir_rules_text *texts = calloc(set->count + 1, sizeof(*texts));
    if (texts == NULL || set->arena.has_failed) {
        free(texts);
        return WEIR_ERR_NOMEM;
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < set->count; i++)
        if (set->domains[i].wrong == NULL)
            texts[count++] = (struct weir_rules_text){.name = set->domains[i].label,
                                                      .text = set->domains[i].entry.text};
    int err = weir_rules_load_texts(&rules, texts, count, &options);
    int wrong = err == WEIR_ERR_NOMEM ? 0 : check_domains(set, rules, log, log_ctx);
    weir_rules_free(rules);
    free(texts);
    return err != 0 ? err : wrong;
}

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

void weir_rules_set_file_name(struct weir_str domain, char out[static WEIR_RULES_FILE_NAME_LEN])
{
    static const char digits[] = "0123456789ABCDEF";
    uint8_t sha[WEIR_SHA256_LEN];
    size_t len = 0;
    const size_t most = WEIR_RULES_FILE_NAME_LEN - sizeof("%XX.yaml");
    for (size_t i = 0; i < domain.len && len <= most; i++) {
        char c = domain.ptr[i];
        if (is_plain(c) && (c != '.' || i > 0)) { /* what begins with a dot is not looked at */
            out[len++] = c;
        } else {
            out[len++] = '%';
            out[len++] = digits[(unsigned char)c >> 4];
            out[len++] = digits[(unsigned char)c & 15];
        }
    }
    if (len > most ||
        domain.len == 0) { /* '%' and no digits behind it: no name of the other kind */
        weir_sha256(domain.ptr, domain.len, sha);
        memcpy(out, "%sha256-", 8);
        len = 8;
        for (size_t i = 0; i < sizeof(sha); i++) {
            out[len++] = digits[sha[i] >> 4];
            out[len++] = digits[sha[i] & 15];
        }
    }
    memcpy(out + len, ".yaml", sizeof(".yaml"));
}

struct weir_str weir_rules_set_domain_of(struct weir_rules_set *set,
                                         const struct weir_rules_text *text, weir_log_fn log,
                                         void *log_ctx)
{
    struct weir_rules *rules;
    struct weir_str name = {0};
    const struct weir_rules_options options = {.log = log, .log_ctx = log_ctx};
    if (weir_rules_load_text(&rules, text->text, text->name, &options) != 0)
        return name;
    const struct weir_domain *domain = weir_rules_domain_at(rules, 0);
    if (domain != NULL)
        name = weir_arena_str(&set->arena, weir_domain_name(domain));
    weir_rules_free(rules);
    return name;
}
