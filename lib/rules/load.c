/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "rules/compile.h"
#include "rules/files.h"
#include "rules/match_regex.h"
#include "rules/parse.h"

#include <stdlib.h>
#include <sys/random.h>

/* One load, from the first file to the last word of the report. */
struct load {
    struct weir_report report;
    struct weir_draft draft;
    const char *path;
};

static struct load *load_new(void)
{
    struct load *load = calloc(1, sizeof(*load));
    if (!load)
        return NULL;
    weir_report_init(&load->report);
    weir_arena_init(&load->draft.arena);
    return load;
}

static void load_free(struct load *load)
{
    weir_arena_fini(&load->draft.arena);
    weir_report_fini(&load->report);
    free(load);
}

/* False only when out of memory. */
static bool load_text(struct load *load, const char *name, const char *path, struct weir_str text)
{
    uint32_t file = weir_report_file(&load->report, name);
    if (file == 0)
        return false;
    if (!weir_file_is_text(&load->report, file, text))
        return true;
    return weir_parse_file(&load->draft, &load->report, file, path, text);
}

/* Names in messages: a file alone as it was given, files of a directory relative to it. */
static const char *name_of(const struct load *load, const char *path)
{
    size_t len = strlen(load->path);
    if (strncmp(path, load->path, len) == 0 && path[len] == '/')
        return path + len + 1;
    return path;
}

static bool load_file(void *ctx, const char *path)
{
    struct load *load = ctx;
    struct weir_file file;
    if (!weir_file_read(&file, &load->report, (struct weir_mark){0}, path))
        return true;
    struct weir_str text = {.ptr = file.ptr, .len = file.len};
    bool is_good = load_text(load, name_of(load, path), path, text);
    weir_file_free(&file);
    return is_good;
}

/* Compiles what was read.  A set that is good is handed out; any other is freed. */
static int load_finish(struct load *load, const struct weir_rules_options *options,
                       struct weir_rules **out)
{
    struct weir_hash_key key;
    struct weir_rules *rules = calloc(1, sizeof(*rules));
    int err = WEIR_ERR_NOMEM;
    if (!rules)
        goto out;
    weir_arena_init(&rules->arena);
    err = WEIR_ERR_IO;
    if (getrandom(&key, sizeof(key), 0) != (ssize_t)sizeof(key))
        goto out;
    err = WEIR_ERR_NOMEM;
    if (!weir_compile(rules, &load->draft, &load->report, options->merge_domains, &key))
        goto out;
    err = load->report.error_count ? WEIR_ERR_RULES : 0;
out:
    if (err) {
        weir_rules_free(rules);
        return err;
    }
    *out = rules;
    return 0;
}

static int load_end(struct load *load, const struct weir_rules_options *options, int err,
                    struct weir_rules **out)
{
    struct weir_rules *rules = NULL;
    if (err != WEIR_ERR_NOMEM) {
        int compiled = load_finish(load, options, &rules);
        err = compiled == WEIR_ERR_NOMEM || err == 0 ? compiled : err;
    }
    if (err == WEIR_ERR_NOMEM)
        weir_report_error(&load->report, (struct weir_mark){0}, "out of memory");
    weir_report_flush(&load->report, options->log, options->log_ctx);
    load_free(load);
    if (err) {
        weir_rules_free(rules);
        return err;
    }
    *out = rules;
    return 0;
}

int weir_rules_load(struct weir_rules **out, const struct weir_rules_options *options)
{
    struct load *load = load_new();
    if (!load)
        return WEIR_ERR_NOMEM;
    load->path = options->path;
    int err = weir_files_each(&load->report, options->path, load_file, load);
    return load_end(load, options, err, out);
}

int weir_rules_load_texts(struct weir_rules **out, const struct weir_rules_text *texts,
                          uint32_t count, const struct weir_rules_options *options)
{
    struct load *load = load_new();
    int err = 0;
    if (!load)
        return WEIR_ERR_NOMEM;
    for (uint32_t i = 0; i < count && err == 0; i++)
        err = load_text(load, texts[i].name, NULL, texts[i].text) ? 0 : WEIR_ERR_NOMEM;
    return load_end(load, options, err, out);
}

int weir_rules_load_text(struct weir_rules **out, struct weir_str text, const char *name,
                         const struct weir_rules_options *options)
{
    return weir_rules_load_texts(out, &(const struct weir_rules_text){name, text}, 1, options);
}

void weir_rules_free(struct weir_rules *rules)
{
    if (!rules)
        return;
    weir_regex_free_all(rules->regexes);
    weir_arena_fini(&rules->arena);
    free(rules);
}
