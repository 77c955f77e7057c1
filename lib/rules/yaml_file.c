/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/yaml_file.h"

#include "base/str.h"
#include "rules/fields.h"
#include "rules/files.h"

#include <stdlib.h>

#define NAMES_LOOKED_AT 1024 /* of one map: who has more does not write settings */

static struct weir_mark mark_of(const struct weir_yaml_file *file, const struct weir_yaml *node)
{
    return (struct weir_mark){.file = file->number, .line = node->line, .column = node->column};
}

void weir_yaml_file_wrong(const struct weir_yaml_file *file, const struct weir_yaml *at,
                          const char *why)
{
    weir_report_error(file->report, mark_of(file, at), "%s", why);
}

void weir_yaml_file_unknown(const struct weir_yaml_file *file, const struct weir_yaml *key,
                            const char *const *names)
{
    const char *meant = weir_suggest(key->text, names);
    weir_report_error(file->report, mark_of(file, key), "'%.*s' is not known here%s%s%s",
                      WEIR_STR_ARG(key->text), meant != NULL ? "; did you mean '" : "",
                      meant != NULL ? meant : "", meant != NULL ? "'?" : "");
}

/* The key before this one that has its name; NULL: there is none. */
static const struct weir_yaml *find_before(const struct weir_yaml *map, const struct weir_yaml *key)
{
    struct weir_str name = weir_yaml_follow(key)->text;
    for (const struct weir_yaml *k = map->first; k != key; k = k->next->next) {
        const struct weir_yaml *before = weir_yaml_follow(k);
        if (before->kind == WEIR_YAML_SCALAR && weir_str_eq(before->text, name))
            return k;
    }
    return NULL;
}

void weir_yaml_file_once(const struct weir_yaml_file *file, const struct weir_yaml *map)
{
    uint32_t left = NAMES_LOOKED_AT;
    for (const struct weir_yaml *k = map->first; k != NULL && left > 0; k = k->next->next, left--) {
        const struct weir_yaml *key = weir_yaml_follow(k);
        const struct weir_yaml *before = key->kind == WEIR_YAML_SCALAR ? find_before(map, k) : NULL;
        if (before != NULL)
            weir_report_error(file->report, mark_of(file, k),
                              "'%.*s' is there twice; the first is at line %u",
                              WEIR_STR_ARG(key->text), before->line);
    }
}

/* NULL where there is no map; said, unless the file is empty. */
static const struct weir_yaml *map_of(const struct weir_yaml_file *file, struct weir_arena *arena,
                                      struct weir_str text)
{
    const struct weir_yaml *root;
    if (!weir_file_is_text(file->report, file->number, text) ||
        !weir_yaml_parse(&root, arena, text, file->report, file->number) || root == NULL)
        return NULL;
    root = weir_yaml_follow(root);
    if (root->kind == WEIR_YAML_MAP) {
        weir_yaml_file_once(file, root);
        return root;
    }
    weir_yaml_file_wrong(file, root, "the file is a map, name: value");
    return NULL;
}

int weir_yaml_file_read(const char *path, struct weir_arena *arena,
                        void (*read)(void *ctx, const struct weir_yaml_file *file,
                                     const struct weir_yaml *map),
                        void *ctx, weir_log_fn say, void *say_ctx)
{
    struct weir_yaml_file file = {.path = path};
    struct weir_file bytes;
    file.report = malloc(sizeof(*file.report)); /* large for a stack */
    if (file.report == NULL)
        return WEIR_ERR_NOMEM;
    weir_report_init(file.report);
    file.number = weir_report_file(file.report, path);
    bool is_read = weir_file_read(&bytes, file.report, (struct weir_mark){0}, path);
    if (is_read) {
        const struct weir_yaml *map = map_of(&file, arena, (struct weir_str){bytes.ptr, bytes.len});
        if (map != NULL)
            read(ctx, &file, map);
        weir_file_free(&bytes);
    }
    int err = !is_read ? WEIR_ERR_IO : file.report->error_count > 0 ? WEIR_ERR_INVALID : 0;
    if (arena->has_failed)
        err = WEIR_ERR_NOMEM;
    weir_report_flush(file.report, say, say_ctx);
    weir_report_fini(file.report);
    free(file.report);
    return err;
}
