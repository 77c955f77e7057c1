/* settings_yaml.c - weir.yaml: a flat map from a setting's name to its value.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/str.h"
#include "rules/fields.h"
#include "rules/files.h"
#include "rules/yaml_node.h"
#include "serve/settings.h"

#include <stdlib.h>
#include <string.h>

#define VALUE_LEN_MAX 65536

struct reader {
    struct weir_settings *settings;
    struct weir_report *report;
    const char *path;
    uint32_t file;
};

static struct weir_mark mark_of(const struct reader *reader, const struct weir_yaml *node)
{
    return (struct weir_mark){.file = reader->file, .line = node->line, .column = node->column};
}

static void unknown_key(const struct reader *reader, const struct weir_yaml *key)
{
    const char *names[WEIR_SETTINGS_COUNT + 1] = {NULL};
    for (size_t i = 0; i < WEIR_SETTINGS_COUNT; i++)
        names[i] = weir_setting_at(i)->id;
    const char *meant = weir_suggest(key->text, names);
    weir_report_error(reader->report, mark_of(reader, key),
                      "'%.*s' is not a setting%s%s%s; weir serve --help lists them",
                      WEIR_STR_ARG(key->text), meant != NULL ? "; did you mean '" : "",
                      meant != NULL ? meant : "", meant != NULL ? "'?" : "");
}

static size_t number_of(struct weir_str name)
{
    for (size_t i = 0; i < WEIR_SETTINGS_COUNT; i++)
        if (i != WEIR_SETTING_NUMBER_config &&
            weir_str_eq(name, weir_str_of(weir_setting_at(i)->id)))
            return i;
    return WEIR_SETTINGS_COUNT;
}

/* A scalar as it is written; a list of them with commas between.  False: it is neither. */
static bool text_of(const struct weir_yaml *value, struct weir_buf *out)
{
    value = weir_yaml_follow(value);
    if (value->kind == WEIR_YAML_SCALAR) {
        if (weir_scalar_kind(value) != WEIR_SCALAR_NULL)
            weir_buf_add(out, value->text);
        return true;
    }
    if (value->kind != WEIR_YAML_LIST)
        return false;
    for (const struct weir_yaml *item = value->first; item != NULL; item = item->next) {
        const struct weir_yaml *one = weir_yaml_follow(item);
        if (one->kind != WEIR_YAML_SCALAR)
            return false;
        if (item != value->first)
            weir_buf_add_char(out, ',');
        weir_buf_add(out, one->text);
    }
    return true;
}

static void read_pair(const struct reader *reader, const struct weir_yaml *key,
                      const struct weir_yaml *value)
{
    key = weir_yaml_follow(key);
    if (key->kind != WEIR_YAML_SCALAR) {
        weir_report_error(reader->report, mark_of(reader, key), "a setting has a name");
        return;
    }
    size_t number = number_of(key->text);
    if (number == WEIR_SETTINGS_COUNT) {
        unknown_key(reader, key);
        return;
    }
    struct weir_buf text;
    weir_buf_init(&text, VALUE_LEN_MAX);
    bool ok = text_of(value, &text);
    weir_buf_add_char(&text, '\0');
    if (!ok || text.has_failed) {
        weir_report_error(reader->report, mark_of(reader, value),
                          "'%s' is a value, or a list of values", weir_setting_at(number)->id);
    } else {
        char from[1024];
        snprintf(from, sizeof(from), "%s:%u:%u", reader->path, value->line, value->column);
        weir_settings_set(reader->settings, (enum weir_setting_number)number, text.ptr, from);
    }
    weir_buf_fini(&text);
}

static void read_file(const struct reader *reader, struct weir_arena *arena, struct weir_str text)
{
    const struct weir_yaml *root;
    if (!weir_file_is_text(reader->report, reader->file, text) ||
        !weir_yaml_parse(&root, arena, text, reader->report, reader->file) || root == NULL)
        return; /* reported; or empty, which says nothing */
    root = weir_yaml_follow(root);
    if (root->kind != WEIR_YAML_MAP) {
        weir_report_error(reader->report, mark_of(reader, root), "settings are a map, name: value");
        return;
    }
    for (const struct weir_yaml *key = root->first; key != NULL; key = key->next->next)
        read_pair(reader, key, key->next);
}

int weir_settings_from_yaml(struct weir_settings *settings, const char *path, weir_log_fn say,
                            void *say_ctx)
{
    struct weir_report *report = malloc(sizeof(*report)); /* large for a stack */
    struct weir_file file;
    struct weir_arena arena;
    if (report == NULL)
        return WEIR_ERR_NOMEM;
    weir_report_init(report);
    weir_arena_init(&arena);
    struct reader reader = {.settings = settings, .report = report, .path = path};
    reader.file = weir_report_file(report, path);
    if (weir_file_read(&file, report, (struct weir_mark){.file = reader.file}, path)) {
        read_file(&reader, &arena, (struct weir_str){file.ptr, file.len});
        weir_file_free(&file);
    }
    int err = report->error_count != 0 ? WEIR_ERR_INVALID : 0;
    if (arena.has_failed)
        err = WEIR_ERR_NOMEM;
    weir_report_flush(report, say, say_ctx);
    weir_arena_fini(&arena);
    weir_report_fini(report);
    free(report);
    return err;
}
