/* rules_print.c - what `weir rules` says.
 *
 * Words that come from the store may hold anything: what would move a terminal's cursor is shown as
 * a question mark, and what is no UTF-8 is not put into JSON.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"
#include "rules.h"

#include "base/str.h"

#include <inttypes.h>
#include <jansson.h>
#include <time.h>

/* ---- words ---- */

static void put_words(FILE *out, struct weir_str words, int width)
{
    size_t i = 0;
    for (; i < words.len; i++)
        fputc((unsigned char)words.ptr[i] < 0x20 || words.ptr[i] == 0x7f ? '?' : words.ptr[i], out);
    for (; (int)i < width; i++)
        fputc(' ', out);
}

static const char *date_of(struct cli_words *buf, uint64_t time_s)
{
    time_t seconds = (time_t)time_s;
    struct tm parts;
    if (gmtime_r(&seconds, &parts) == NULL ||
        strftime(buf->text, sizeof(buf->text), "%Y-%m-%d %H:%M:%S UTC", &parts) == 0)
        snprintf(buf->text, sizeof(buf->text), "%" PRIu64, time_s);
    return buf->text;
}

static json_t *json_words(struct weir_str words)
{
    json_t *text = json_stringn(words.ptr != NULL ? words.ptr : "", words.len);
    return text != NULL ? text : json_string("(not UTF-8)");
}

/* domain, version, time_s, who, message, sha256, bytes */
static json_t *json_entry(struct weir_str domain, const struct weir_redis_rules_entry *entry)
{
    json_t *one = json_pack("{s:o, s:I, s:I, s:o, s:o}", "domain", json_words(domain), "version",
                            (json_int_t)entry->version, "time_s", (json_int_t)entry->time_s, "who",
                            json_words(entry->who), "message", json_words(entry->why));
    if (entry->is_deleted)
        json_object_set_new(one, "deleted", json_true());
    if (entry->sha256.len > 0 && !entry->is_deleted) {
        json_object_set_new(one, "sha256", json_words(entry->sha256));
        json_object_set_new(one, "bytes", json_integer((json_int_t)entry->bytes));
    }
    return one;
}

static void print_json(json_t *root)
{
    json_dumpf(root, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(root);
}

/* ---- what is there ---- */

static int name_width(const struct weir_rules_set *set)
{
    size_t width = sizeof("DOMAIN") - 1;
    for (uint32_t i = 0; i < set->count; i++)
        width = set->domains[i].name.len > width ? set->domains[i].name.len : width;
    return (int)width;
}

void cli_rules_print_set(const struct weir_rules_set *set, bool is_json)
{
    struct cli_words date;
    int width = name_width(set);
    json_t *list = json_array();
    if (!is_json && set->count > 0)
        printf("%-*s  VERSION  STORED                   BY\n", width, "DOMAIN");
    for (uint32_t i = 0; i < set->count; i++) {
        const struct weir_rules_set_domain *domain = &set->domains[i];
        if (is_json) {
            json_t *one = json_entry(domain->name, &domain->entry);
            if (domain->wrong != NULL)
                json_object_set_new(one, "wrong", json_string(domain->wrong));
            json_array_append_new(list, one);
            continue;
        }
        put_words(stdout, domain->name, width);
        printf("  %7" PRIu64 "  %s  ", domain->entry.version, date_of(&date, domain->entry.time_s));
        put_words(stdout, domain->wrong != NULL ? weir_str_of(domain->wrong) : domain->entry.who,
                  0);
        printf("\n");
    }
    if (is_json)
        print_json(
            json_pack("{s:I, s:O}", "version", (json_int_t)set->head.version, "domains", list));
    else if (set->count == 0)
        printf("no domains\n");
    json_decref(list);
}

void cli_rules_print_entry(struct weir_str domain, const struct weir_redis_rules_entry *entry,
                           bool is_json)
{
    if (!is_json) {
        fwrite(entry->text.ptr, 1, entry->text.len, stdout);
        return;
    }
    json_t *one = json_entry(domain, entry);
    json_object_set_new(one, "text", json_words(entry->text));
    print_json(one);
}

void cli_rules_history_add(void *history, const struct weir_redis_rules_entry *entry)
{
    struct cli_rules_history *h = history;
    struct cli_words date;
    h->count++;
    if (h->is_json) {
        if (h->list == NULL)
            h->list = json_array();
        json_array_append_new(h->list, json_entry(h->domain, entry));
        return;
    }
    if (h->count == 1)
        printf("VERSION  STORED                     BYTES  BY\n");
    printf("%7" PRIu64 "  %s  ", entry->version, date_of(&date, entry->time_s));
    if (entry->is_deleted)
        printf("deleted  ");
    else
        printf("%7" PRIu64 "  ", entry->bytes);
    put_words(stdout, entry->who, 0);
    if (entry->why.len > 0) {
        printf(": ");
        put_words(stdout, entry->why, 0);
    }
    printf("\n");
}

void cli_rules_history_end(struct cli_rules_history *h)
{
    if (h->is_json)
        print_json(json_pack("{s:o, s:o}", "domain", json_words(h->domain), "versions",
                             h->list != NULL ? (json_t *)h->list : json_array()));
}

/* ---- what was changed ---- */

static void print_step(const struct weir_redis_rules_change *change,
                       const struct weir_redis_rules_step *step)
{
    put_words(stdout, change->domain, 0);
    if (change->is_delete)
        printf(": deleted, was version %" PRIu64 "\n", step->before);
    else if (step->after == step->before)
        printf(": unchanged, version %" PRIu64 "\n", step->after);
    else if (step->before == 0)
        printf(": version %" PRIu64 ", new\n", step->after);
    else
        printf(": version %" PRIu64 ", replaces %" PRIu64 "\n", step->after, step->before);
}

void cli_rules_print_steps(const struct weir_rules_db_order *order, uint64_t version,
                           const struct weir_redis_rules_step *steps, bool is_json)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < order->count; i++) {
        if (!is_json) {
            print_step(&order->changes[i], &steps[i]);
            continue;
        }
        json_array_append_new(list, json_pack("{s:o, s:I, s:I, s:b}", "domain",
                                              json_words(order->changes[i].domain), "version",
                                              (json_int_t)steps[i].after, "replaces",
                                              (json_int_t)steps[i].before, "changed",
                                              (int)(steps[i].after != steps[i].before)));
    }
    if (is_json)
        print_json(
            json_pack("{s:b, s:I, s:O}", "ok", 1, "version", (json_int_t)version, "domains", list));
    json_decref(list);
}

static uint64_t replaced_by(const struct weir_rules_db_order *order, struct weir_str domain)
{
    for (uint32_t i = 0; i < order->count; i++)
        if (weir_str_eq(order->changes[i].domain, domain))
            return order->changes[i].replaces;
    return 0;
}

void cli_rules_print_conflict(const struct weir_rules_db_order *order,
                              const struct weir_redis_rules_result *result, bool is_json)
{
    struct cli_words date;
    const struct weir_redis_rules_entry *now = &result->current;
    if (is_json)
        print_json(json_pack("{s:b, s:o}", "ok", 0, "conflict", json_entry(result->domain, now)));
    fflush(stdout);
    fprintf(stderr, "weir: ");
    put_words(stderr, result->domain, 0);
    if (now->version == 0) {
        fprintf(stderr, " is not there (any more), and was to be at version %" PRIu64 "\n",
                replaced_by(order, result->domain));
        return;
    }
    fprintf(stderr, " is at version %" PRIu64 " by now, not %" PRIu64 ": stored %s by ",
            now->version, replaced_by(order, result->domain), date_of(&date, now->time_s));
    put_words(stderr, now->who, 0);
    if (now->why.len > 0) {
        fprintf(stderr, " (");
        put_words(stderr, now->why, 0);
        fprintf(stderr, ")");
    }
    fprintf(stderr,
            "\nweir: nothing was changed; look at it with 'weir rules get', and put yours "
            "again with --if-version %" PRIu64 "\n",
            now->version);
}
