/* settings_yaml.c - weir.yaml: a flat map from a setting's name to its value.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/str.h"
#include "rules/yaml_file.h"
#include "serve/settings.h"

#include <string.h>

#define VALUE_LEN_MAX 65536

static void unknown_key(const struct weir_yaml_file *file, const struct weir_yaml *key)
{
    const char *names[WEIR_SETTINGS_COUNT + 1] = {NULL};
    for (size_t i = 0; i < WEIR_SETTINGS_COUNT; i++)
        names[i] = weir_setting_at(i)->id;
    weir_yaml_file_unknown(file, key, names);
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

static void read_pair(struct weir_settings *settings, const struct weir_yaml_file *file,
                      const struct weir_yaml *key, const struct weir_yaml *value)
{
    key = weir_yaml_follow(key);
    if (key->kind != WEIR_YAML_SCALAR) {
        weir_yaml_file_wrong(file, key, "a setting has a name");
        return;
    }
    size_t number = number_of(key->text);
    if (number == WEIR_SETTINGS_COUNT) {
        unknown_key(file, key);
        return;
    }
    struct weir_buf text;
    weir_buf_init(&text, VALUE_LEN_MAX);
    bool ok = text_of(value, &text);
    weir_buf_add_char(&text, '\0');
    if (!ok || text.has_failed) {
        weir_yaml_file_wrong(file, value, "this should be a value, or a list of values");
    } else {
        char from[1024];
        snprintf(from, sizeof(from), "%s:%u:%u", file->path, value->line, value->column);
        weir_settings_set(settings, (enum weir_setting_number)number, text.ptr, from);
    }
    weir_buf_fini(&text);
}

static void read_map(void *ctx, const struct weir_yaml_file *file, const struct weir_yaml *map)
{
    for (const struct weir_yaml *key = map->first; key != NULL; key = key->next->next)
        read_pair(ctx, file, key, key->next);
}

int weir_settings_from_yaml(struct weir_settings *settings, const char *path, weir_log_fn say,
                            void *say_ctx)
{
    struct weir_arena arena;
    weir_arena_init(&arena);
    int err = weir_yaml_file_read(path, &arena, read_map, settings, say, say_ctx);
    weir_arena_fini(&arena);
    return err;
}
