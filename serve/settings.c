/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/settings.h"

#include "base/err.h"
#include "base/str.h"
#include "store/redis/url.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WHAT_LEN 160
#define LINE_LEN 1024

static const struct weir_setting table[] = {
#define WEIR_SETTING_GROUP(id, title)
#define WEIR_SETTING(id_, kind_, initial_, metavar_, also_, least_, most_, help_)                  \
    {.id = #id_,                                                                                   \
     .kind = WEIR_SETTING_##kind_,                                                                 \
     .initial = (initial_),                                                                        \
     .metavar = (metavar_),                                                                        \
     .also = (also_),                                                                              \
     .least = (least_),                                                                            \
     .most = (most_),                                                                              \
     .help = (help_),                                                                              \
     .offset = offsetof(struct weir_settings, id_)},
#include "serve/config.def"
#undef WEIR_SETTING
#undef WEIR_SETTING_GROUP
};

const struct weir_setting *weir_setting_at(size_t number)
{
    WEIR_ASSERT(number < WEIR_SETTINGS_COUNT);
    return &table[number];
}

const char *weir_setting_group(size_t number)
{
    static const char *const titles[WEIR_SETTINGS_COUNT] = {
#define WEIR_SETTING_GROUP(id, title) [WEIR_SETTING_NUMBER_##id] = (title),
#define WEIR_SETTING(id, kind, initial, metavar, also, least, most, help)
#include "serve/config.def"
#undef WEIR_SETTING
#undef WEIR_SETTING_GROUP
    };
    return titles[number];
}

/* "start_without_rules" to "start-without-rules"; len includes the NUL. */
static void write_flag(const struct weir_setting *setting, char *out, size_t len)
{
    snprintf(out, len, "%s", setting->id);
    for (; *out != '\0'; out++)
        if (*out == '_')
            *out = '-';
}

const char *weir_settings_copy(struct weir_settings *settings, struct weir_str text)
{
    char *copy = weir_arena_alloc(&settings->arena, text.len + 1, 1); /* zeroed: it ends in NUL */
    if (copy == NULL)
        return "";
    memcpy(copy, text.ptr, text.len);
    return copy;
}

void weir_settings_set(struct weir_settings *settings, enum weir_setting_number number,
                       const char *text, const char *from)
{
    settings->sources[number] = (struct weir_setting_source){
        .text = weir_settings_copy(settings, weir_str_of(text)),
        .from = weir_settings_copy(settings, weir_str_of(from)),
    };
}

static void set_flags(struct weir_settings *settings, const char *const *flags)
{
    for (size_t i = 0; i < WEIR_SETTINGS_COUNT; i++) {
        char from[64] = "--";
        if (flags[i] == NULL)
            continue;
        write_flag(&table[i], from + 2, sizeof(from) - 2);
        weir_settings_set(settings, (enum weir_setting_number)i, flags[i], from);
    }
}

/* ---- defaults that depend on other settings, or on who we are ---- */

const char *weir_settings_default_table(struct weir_arena *arena)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char path[512];
    if (geteuid() != 0 && runtime != NULL && runtime[0] == '/' && access(runtime, W_OK) == 0)
        snprintf(path, sizeof(path), "%s/weir", runtime);
    else
        snprintf(path, sizeof(path), "/dev/shm/weir-%lu", (unsigned long)geteuid());
    /* With its NUL. */
    return weir_arena_str(arena, (struct weir_str){path, strlen(path) + 1}).ptr;
}

static void default_table(struct weir_settings *settings)
{
    if (settings->table[0] != '\0')
        return;
    settings->table = weir_settings_default_table(&settings->arena);
    settings->sources[WEIR_SETTING_NUMBER_table].text = settings->table;
}

/* Where the rules of a rules database are kept. */
static void default_rules(struct weir_settings *settings)
{
    const char *state = getenv("STATE_DIRECTORY"), *user = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    char path[512];
    if (strcmp(settings->rules_store, "off") == 0 || settings->rules[0] != '\0')
        return;
    if (state != NULL && state[0] == '/') /* of several, the first */
        snprintf(path, sizeof(path), "%.*s/rules", (int)strcspn(state, ":"), state);
    else if (geteuid() != 0 && user != NULL && user[0] == '/')
        snprintf(path, sizeof(path), "%s/weir/rules", user);
    else if (geteuid() != 0 && home != NULL && home[0] == '/')
        snprintf(path, sizeof(path), "%s/.local/state/weir/rules", home);
    else
        snprintf(path, sizeof(path), "/var/lib/weir/rules");
    settings->rules = weir_settings_copy(settings, weir_str_of(path));
    settings->sources[WEIR_SETTING_NUMBER_rules].text = settings->rules;
}

static void default_addresses(struct weir_settings *settings)
{
    static const struct {
        enum weir_setting_number number;
        const char *everywhere;
    } at[] = {{WEIR_SETTING_NUMBER_grpc, ":8081"}, {WEIR_SETTING_NUMBER_http, ":8080"}};
    for (size_t i = 0; settings->compat && i < sizeof(at) / sizeof(at[0]); i++) {
        struct weir_setting_source *source = &settings->sources[at[i].number];
        if (!source->is_default)
            continue;
        source->text = at[i].everywhere;
        source->from = "default, with compat";
        memcpy((char *)settings + table[at[i].number].offset, &source->text, sizeof(source->text));
    }
}

/* ---- all together ---- */

static int parse_all(struct weir_settings *settings, weir_log_fn say, void *say_ctx)
{
    int err = 0;
    for (size_t i = 0; i < WEIR_SETTINGS_COUNT; i++) {
        const struct weir_setting_source *source = &settings->sources[i];
        char what[WHAT_LEN], line[LINE_LEN];
        if (weir_setting_parse(&table[i], source->text, settings, what, sizeof(what)))
            continue;
        snprintf(line, sizeof(line), "%s: '%s' is not %s", source->from, source->text, what);
        say(say_ctx, WEIR_LEVEL_ERROR, line);
        err = WEIR_ERR_INVALID;
    }
    return err;
}

int weir_settings_load(struct weir_settings *out, const char *const *flags,
                       char *const *environment, weir_log_fn say, void *say_ctx)
{
    int yaml_err = 0;
    memset(out, 0, sizeof(*out));
    weir_arena_init(&out->arena);
    for (size_t i = 0; i < WEIR_SETTINGS_COUNT; i++)
        out->sources[i] = (struct weir_setting_source){table[i].initial, "default", true};
    weir_settings_from_env(out, environment, say, say_ctx);
    set_flags(out, flags); /* now already: one of them may be --config */
    const char *config = out->sources[WEIR_SETTING_NUMBER_config].text;
    if (config[0] != '\0')
        yaml_err = weir_settings_from_yaml(out, config, say, say_ctx);
    set_flags(out, flags);
    if (out->arena.has_failed)
        return WEIR_ERR_NOMEM;
    int err = parse_all(out, say, say_ctx);
    if (err == 0)
        err = yaml_err;
    if (err == 0) {
        default_table(out);
        default_rules(out);
        default_addresses(out);
    }
    return out->arena.has_failed ? WEIR_ERR_NOMEM : err;
}

void weir_settings_fini(struct weir_settings *settings)
{
    weir_arena_fini(&settings->arena);
}

const char *weir_settings_shown(const char *url, char *room, size_t room_len)
{
    const char *begin = strstr(url, "://");
    const char *query = weir_redis_url_sentinel_login(url);
    const char *end = query != NULL ? query : url + strlen(url);
    const char *at = begin != NULL ? memrchr(begin, '@', (size_t)(end - begin)) : NULL;
    if (at == NULL && query == NULL)
        return url;
    int len = 0;
    if (at != NULL)
        len = snprintf(room, room_len, "%.*s(hidden)", (int)(begin + 3 - url), url);
    if ((size_t)len < room_len)
        snprintf(room + len, room_len - (size_t)len, "%.*s%s", (int)(end - (at ? at : url)),
                 at ? at : url, query != NULL ? "?(hidden)" : "");
    return room;
}

/* The text as it may be shown. */
static const char *shown(enum weir_setting_kind kind, const char *text, char *room, size_t room_len)
{
    if (kind == WEIR_SETTING_SECRET && text[0] != '\0')
        return "(hidden)";
    return kind == WEIR_SETTING_URL ? weir_settings_shown(text, room, room_len) : text;
}

void weir_settings_print(const struct weir_settings *settings, FILE *out)
{
    for (size_t i = 0; i < WEIR_SETTINGS_COUNT; i++) {
        const struct weir_setting_source *source = &settings->sources[i];
        const char *title = weir_setting_group(i);
        if (i == WEIR_SETTING_NUMBER_config)
            continue; /* what it said stands here already */
        if (title != NULL)
            fprintf(out, "%s# %s\n", i > 0 ? "\n" : "", title);
        int used = fprintf(out, "%s: '", table[i].id);
        char room[LINE_LEN];
        for (const char *c = shown(table[i].kind, source->text, room, sizeof(room)); *c != '\0';
             c++)
            used += fprintf(out, *c == '\'' ? "''" : "%c", *c);
        used += fprintf(out, "'");
        fprintf(out, "%*s# %s\n", used < 40 ? 40 - used : 1, "", source->from);
    }
}
