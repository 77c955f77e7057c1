/* SPDX-License-Identifier: Apache-2.0 */
#include "replay.h"

#include "proto/request_json.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PRINTED_MAX 20 /* enough to see a pattern */
#define PATH_LEN_MAX 96

struct comparison {
    struct cli_expect *all;
    const char *file;
    uint64_t line;
};

static char *text_of(const json_t *value)
{
    return value != NULL ? json_dumps(value, JSON_ENCODE_ANY) : strdup("nothing");
}

static void print_difference(const struct comparison *c, const char *path, const json_t *expected,
                             const json_t *got)
{
    if (c->all->printed++ >= PRINTED_MAX)
        return;
    char *expected_text = text_of(expected), *got_text = text_of(got);
    printf("%s:%llu: %s: expected %s, got %s\n", c->file, (unsigned long long)c->line, path,
           expected_text != NULL ? expected_text : "?", got_text != NULL ? got_text : "?");
    free(expected_text);
    free(got_text);
    if (c->all->printed == PRINTED_MAX)
        printf("... further differences are counted only\n");
}

static void compare_object(const struct comparison *c, const char *path, const json_t *expected,
                           const json_t *got)
{
    char below[PATH_LEN_MAX];
    const char *key;
    json_t *value;
    /* jansson iterates over non-const objects only; nothing is changed. */
    json_object_foreach((json_t *)(uintptr_t)expected, key, value)
    {
        if (json_equal(value, json_object_get(got, key)))
            continue;
        snprintf(below, sizeof(below), "%.32s.%.48s", path, key);
        print_difference(c, below, value, json_object_get(got, key));
    }
    json_object_foreach((json_t *)(uintptr_t)got, key, value)
    {
        if (json_object_get(expected, key) != NULL)
            continue;
        snprintf(below, sizeof(below), "%.32s.%.48s", path, key);
        print_difference(c, below, NULL, value);
    }
}

static void compare_statuses(const struct comparison *c, const json_t *expected, const json_t *got)
{
    char path[PATH_LEN_MAX];
    size_t count = json_array_size(expected) > json_array_size(got) ? json_array_size(expected)
                                                                    : json_array_size(got);
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_array_get(expected, i), *other = json_array_get(got, i);
        if (one != NULL && other != NULL && json_equal(one, other))
            continue;
        snprintf(path, sizeof(path), "statuses[%zu]", i);
        if (json_is_object(one) && json_is_object(other))
            compare_object(c, path, one, other);
        else
            print_difference(c, path, one, other);
    }
}

void cli_expect_compare(struct cli_expect *all, const char *file, uint64_t line,
                        const struct json_t *expect, const struct weir_decision *decision)
{
    struct comparison c = {.all = all, .file = file, .line = line};
    char text[WEIR_DECISION_JSON_LEN_MAX];
    json_t *got = json_loadb(text, weir_decision_json_write(decision, text), 0, NULL);
    all->compared++;
    if (got == NULL || !json_equal(expect, got)) {
        const json_t *overall = json_object_get(expect, "overall");
        all->differing++;
        if (overall == NULL || !json_equal(overall, json_object_get(got, "overall")))
            print_difference(&c, "overall", overall, json_object_get(got, "overall"));
        compare_statuses(&c, json_object_get(expect, "statuses"), json_object_get(got, "statuses"));
    }
    json_decref(got);
}
