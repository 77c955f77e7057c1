/* SPDX-License-Identifier: Apache-2.0 */
#include "replay.h"

#include "cli.h"

#include "base/hash.h"
#include "base/str.h"

#include <jansson.h>
#include <stdlib.h>

#define CAPACITY_FIRST 256u /* a power of two, as every capacity is */
#define NAME_WIDTH 36

struct counts {
    uint64_t requests, allowed, refused, shadow;
};

struct rule {
    uint64_t hash; /* of domain and id; 0: empty */
    char *name;
    struct counts counts;
};

struct cli_summary {
    struct rule *rules; /* open addressing */
    size_t capacity, used;
    struct counts total; /* of requests; a rule's are of descriptors */
    uint64_t first_ns, last_ns;
};

int cli_summary_new(struct cli_summary **out)
{
    struct cli_summary *summary = calloc(1, sizeof(*summary));
    if (summary == NULL)
        return WEIR_ERR_NOMEM;
    summary->first_ns = UINT64_MAX;
    summary->capacity = CAPACITY_FIRST;
    summary->rules = calloc(summary->capacity, sizeof(*summary->rules));
    if (summary->rules == NULL) {
        free(summary);
        return WEIR_ERR_NOMEM;
    }
    *out = summary;
    return 0;
}

void cli_summary_free(struct cli_summary *summary)
{
    if (summary == NULL)
        return;
    for (size_t i = 0; i < summary->capacity; i++)
        free(summary->rules[i].name);
    free(summary->rules);
    free(summary);
}

/* Where the hash is, or would be. */
static struct rule *place_of(struct rule *rules, size_t capacity, uint64_t hash)
{
    size_t at = hash & (capacity - 1);
    while (rules[at].hash != 0 && rules[at].hash != hash)
        at = (at + 1) & (capacity - 1);
    return &rules[at];
}

static int grow(struct cli_summary *summary)
{
    size_t capacity = summary->capacity * 2;
    struct rule *rules = calloc(capacity, sizeof(*rules));
    if (rules == NULL)
        return WEIR_ERR_NOMEM;
    for (size_t i = 0; i < summary->capacity; i++)
        if (summary->rules[i].hash != 0)
            *place_of(rules, capacity, summary->rules[i].hash) = summary->rules[i];
    free(summary->rules);
    summary->rules = rules;
    summary->capacity = capacity;
    return 0;
}

/* What the report calls the rule of a status.  A path begins with its domain, an `id:` does not. */
static char *name_of(struct weir_str domain, const struct weir_status *status)
{
    char *name;
    int len;
    if (status->rule == NULL)
        return strdup(status->is_limited ? "(limits brought by requests)" : "(no limit)");
    struct weir_str id = status->rule->id;
    if (weir_str_starts(id, domain))
        len = asprintf(&name, "%.*s", WEIR_STR_ARG(id));
    else
        len = asprintf(&name, "%.*s.%.*s", WEIR_STR_ARG(domain), WEIR_STR_ARG(id));
    return len >= 0 ? name : NULL;
}

static int find_rule(struct cli_summary *summary, struct weir_str domain,
                     const struct weir_status *status, struct counts **out)
{
    struct weir_hash_key key = {.k0 = 1, .k1 = 1};
    if (status->rule != NULL) {
        key.k0 = weir_siphash13(&key, domain.ptr, domain.len);
        key.k0 = weir_siphash13(&key, status->rule->id.ptr, status->rule->id.len);
    }
    uint64_t hash = status->rule != NULL ? key.k0 | 1 : status->is_limited ? 2 : 4;

    struct rule *rule = place_of(summary->rules, summary->capacity, hash);
    if (rule->hash == 0) {
        if (summary->used * 2 >= summary->capacity) {
            int err = grow(summary);
            if (err != 0)
                return err;
            rule = place_of(summary->rules, summary->capacity, hash);
        }
        char *name = name_of(domain, status);
        if (name == NULL)
            return WEIR_ERR_NOMEM;
        *rule = (struct rule){.hash = hash, .name = name};
        summary->used++;
    }
    *out = &rule->counts;
    return 0;
}

static void count(struct counts *counts, enum weir_code code, bool is_shadow)
{
    counts->requests++;
    counts->allowed += code == WEIR_CODE_OK;
    counts->refused += code != WEIR_CODE_OK;
    counts->shadow += is_shadow;
}

int cli_summary_add(struct cli_summary *summary, const struct weir_request *request,
                    uint64_t now_ns, const struct weir_decision *decision)
{
    bool is_shadow = false;
    for (uint32_t i = 0; i < decision->status_count; i++) {
        const struct weir_status *status = &decision->statuses[i];
        struct counts *counts;
        int err = find_rule(summary, request->domain, status, &counts);
        if (err != 0)
            return err;
        count(counts, status->code, status->is_shadow);
        is_shadow |= status->is_shadow;
    }
    count(&summary->total, decision->overall, is_shadow);
    if (now_ns < summary->first_ns)
        summary->first_ns = now_ns;
    if (now_ns > summary->last_ns)
        summary->last_ns = now_ns;
    return 0;
}

static int by_requests(const void *a, const void *b)
{
    const struct rule *one = a, *other = b;
    if (one->counts.requests != other->counts.requests)
        return one->counts.requests < other->counts.requests ? 1 : -1;
    return strcmp(one->name, other->name);
}

/* The rules that were met, busiest first.  NULL: no memory. */
static struct rule *sorted_rules(const struct cli_summary *summary)
{
    struct rule *sorted = calloc(summary->used + 1, sizeof(*sorted));
    size_t n = 0;
    if (sorted == NULL)
        return NULL;
    for (size_t i = 0; i < summary->capacity; i++)
        if (summary->rules[i].hash != 0)
            sorted[n++] = summary->rules[i];
    qsort(sorted, n, sizeof(*sorted), by_requests);
    return sorted;
}

static void print_row(const char *name, const struct counts *counts, uint64_t of)
{
    struct cli_words a, b, c, d, e;
    printf("%-*s %11s %8s %11s %11s %8s\n", NAME_WIDTH, name, cli_words_count(&a, counts->requests),
           cli_words_share(&b, counts->requests, of), cli_words_count(&c, counts->allowed),
           cli_words_count(&d, counts->refused),
           cli_words_share(&e, counts->refused, counts->requests));
    if (counts->shadow > 0)
        printf("%-*s %s more would be refused without shadow_mode\n", NAME_WIDTH, "",
               cli_words_count(&a, counts->shadow));
}

static void print_text(const struct cli_summary *summary, const struct rule *rules)
{
    struct cli_words a, b;
    const struct counts *total = &summary->total;
    printf("%s requests", cli_words_count(&a, total->requests));
    if (total->requests > 0)
        printf(" in %s", cli_words_duration(&b, summary->last_ns - summary->first_ns));
    printf("\n\n%-*s %11s %8s %11s %11s %8s\n", NAME_WIDTH, "rule", "checks", "share", "allowed",
           "refused", "of them");
    for (size_t i = 0; i < summary->used; i++)
        print_row(rules[i].name, &rules[i].counts, total->requests);
    print_row("all requests", total, total->requests);
}

static json_t *json_of(const char *name, const struct counts *counts)
{
    double share = counts->requests > 0 ? (double)counts->refused / (double)counts->requests : 0;
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:f}", "rule", name, "requests",
                     (json_int_t)counts->requests, "allowed", (json_int_t)counts->allowed,
                     "refused", (json_int_t)counts->refused, "shadow", (json_int_t)counts->shadow,
                     "refused_share", share);
}

static void print_json(const struct cli_summary *summary, const struct rule *rules)
{
    const struct counts *total = &summary->total;
    uint64_t span = total->requests > 0 ? summary->last_ns - summary->first_ns : 0;
    json_t *list = json_array();
    for (size_t i = 0; i < summary->used; i++)
        json_array_append_new(list, json_of(rules[i].name, &rules[i].counts));
    json_t *root =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "requests", (json_int_t)total->requests,
                  "allowed", (json_int_t)total->allowed, "refused", (json_int_t)total->refused,
                  "shadow", (json_int_t)total->shadow, "span_ns", (json_int_t)span, "rules", list);
    json_dumpf(root, stdout, JSON_REAL_PRECISION(6));
    printf("\n");
    json_decref(root);
}

void cli_summary_print(const struct cli_summary *summary, bool as_json)
{
    struct rule *rules = sorted_rules(summary);
    if (rules == NULL)
        return;
    if (as_json)
        print_json(summary, rules);
    else
        print_text(summary, rules);
    free(rules);
}
