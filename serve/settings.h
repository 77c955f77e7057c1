/* settings.h - what `weir serve` was told, and by whom.
 *
 *     flags  >  weir.yaml  >  environment  >  default
 *
 * One table (config.def) makes everything.  A setting is text until all four have spoken; then the
 * winner is parsed, so that a wrong value is complained about once, with the place that it came
 * from, and a value that nobody uses need not be right.  All complaints are made, not only the
 * first.
 *
 * Threads: made by one, then read by any.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_SETTINGS_H
#define WEIR_SERVE_SETTINGS_H

#include "base/arena.h"

#include <stdio.h>
#include <weir/weir.h>

enum weir_setting_kind {
    WEIR_SETTING_TEXT,
    WEIR_SETTING_PATH,   /* text; relative ones in weir.yaml are relative to where weir runs */
    WEIR_SETTING_URL,    /* text; a password in it is not shown */
    WEIR_SETTING_SECRET, /* text that is not shown */
    WEIR_SETTING_WORD,   /* one of several words */
    WEIR_SETTING_SWITCH, /* on, off; true, false; yes, no; 1, 0 */
    WEIR_SETTING_COUNT,  /* a whole number */
    WEIR_SETTING_SIZE,   /* bytes: 64m */
    WEIR_SETTING_TIME,   /* milliseconds: 10s, 500ms, 1m30s; a bare number is seconds */
    WEIR_SETTING_RATIO,  /* 0 to 1 */
};

struct weir_setting {
    const char *id;
    enum weir_setting_kind kind;
    const char *initial, *metavar, *also;
    uint64_t least, most;
    const char *help;
    size_t offset; /* of the field in struct weir_settings */
};

enum weir_setting_number {
#define WEIR_SETTING_GROUP(id, title)
#define WEIR_SETTING(id, kind, initial, metavar, also, least, most, help) WEIR_SETTING_NUMBER_##id,
#include "serve/config.def"
#undef WEIR_SETTING
    WEIR_SETTINGS_COUNT
};

/* Where the text of a setting came from, in words: "--grpc", "weir.yaml:3:7", "GRPC_PORT in the
 * environment", "default". */
struct weir_setting_source {
    const char *text, *from;
    bool is_default;
};

#define WEIR_SETTING_TYPE_TEXT const char *
#define WEIR_SETTING_TYPE_PATH const char *
#define WEIR_SETTING_TYPE_URL const char *
#define WEIR_SETTING_TYPE_SECRET const char *
#define WEIR_SETTING_TYPE_WORD const char *
#define WEIR_SETTING_TYPE_SWITCH bool
#define WEIR_SETTING_TYPE_COUNT uint64_t
#define WEIR_SETTING_TYPE_SIZE uint64_t
#define WEIR_SETTING_TYPE_TIME uint64_t
#define WEIR_SETTING_TYPE_RATIO double

struct weir_settings {
#define WEIR_SETTING(id, kind, initial, metavar, also, least, most, help)                          \
    WEIR_SETTING_TYPE_##kind id;
#include "serve/config.def"
#undef WEIR_SETTING
    struct weir_setting_source sources[WEIR_SETTINGS_COUNT];
    struct weir_arena arena; /* of all texts */
};

/* The table, in the order of config.def. */
const struct weir_setting *weir_setting_at(size_t number);
/* The title of the group that begins with this setting, or NULL. */
const char *weir_setting_group(size_t number);

/* Flags: WEIR_SETTINGS_COUNT texts, NULL where none was given.  say() is told all that is wrong,
 * and warnings about variables that mean nothing here.  0, WEIR_ERR_INVALID or WEIR_ERR_NOMEM; fini
 * in each case. */
WEIR_MUST_CHECK int weir_settings_load(struct weir_settings *out, const char *const *flags,
                                       char *const *environment, weir_log_fn say, void *say_ctx);
void weir_settings_fini(struct weir_settings *settings);

/* The settings as a weir.yaml, with where each came from behind it. */
void weir_settings_print(const struct weir_settings *settings, FILE *out);

/* A URL without its user and password, perhaps in room. */
const char *weir_settings_shown(const char *url, char *room, size_t room_len);

/* Where the table is if nobody says: in the user's own folder of shared memory. */
const char *weir_settings_default_table(struct weir_arena *arena);

/* ---- between the files of settings ---- */

/* settings_env.c: takes the environment's word for every setting it has one for. */
void weir_settings_from_env(struct weir_settings *settings, char *const *environment,
                            weir_log_fn say, void *say_ctx);
/* settings_yaml.c: 0, or WEIR_ERR_INVALID, said. */
WEIR_MUST_CHECK int weir_settings_from_yaml(struct weir_settings *settings, const char *path,
                                            weir_log_fn say, void *say_ctx);
/* A copy in the settings' arena, ended by NUL. */
const char *weir_settings_copy(struct weir_settings *settings, struct weir_str text);
/* Copies both texts. */
void weir_settings_set(struct weir_settings *settings, enum weir_setting_number number,
                       const char *text, const char *from);
/* settings_parse.c: the text into the field.  False: what[] says what would be right. */
bool weir_setting_parse(const struct weir_setting *setting, const char *text,
                        struct weir_settings *settings, char *what, size_t what_len);

#undef WEIR_SETTING_GROUP
#endif
