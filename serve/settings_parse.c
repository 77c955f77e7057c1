/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "rules/yaml_node.h"
#include "serve/settings.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Other names for our words, as envoyproxy/ratelimit has them. */
static const char *const synonyms[][2] = {
    {"warning", "warn"}, {"trace", "debug"}, {"fatal", "error"},
    {"panic", "error"},  {"text", "logfmt"},
};

static bool parse_switch(const char *text, bool *out)
{
    if (strcmp(text, "1") == 0 || strcmp(text, "0") == 0) {
        *out = text[0] == '1';
        return true;
    }
    /* Go's t and f too: the variables that we take over are Go's. */
    if (strcasecmp(text, "t") == 0 || strcasecmp(text, "f") == 0) {
        *out = text[0] == 't' || text[0] == 'T';
        return true;
    }
    return weir_scalar_bool(weir_str_of(text), out);
}

/* Digits at *at; moves it behind them. */
static bool parse_digits(const char **at, uint64_t *out)
{
    char *end;
    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    *out = strtoull(*at, &end, 10);
    *at = end;
    return errno == 0;
}

static bool parse_count(const char *text, uint64_t *out)
{
    return parse_digits(&text, out) && *text == '\0';
}

static bool parse_size(const char *text, uint64_t *out)
{
    static const char suffixes[] = "kmgt";
    uint64_t number;
    if (!parse_digits(&text, &number))
        return false;
    unsigned shift = 0;
    if (*text != '\0') {
        const char *suffix = strchr(suffixes, *text | 0x20);
        if (suffix == NULL || text[1] != '\0')
            return false;
        shift = 10 * (unsigned)(suffix - suffixes + 1);
    }
    if (number > UINT64_MAX >> shift)
        return false;
    *out = number << shift;
    return true;
}

/* "1m30s", "500ms", "24h"; "10" is seconds. */
static bool parse_time(const char *text, uint64_t *out_ms)
{
    static const struct {
        const char *name;
        uint64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
    uint64_t sum = 0, number;
    if (parse_count(text, &number) && number <= UINT64_MAX / 1000) {
        *out_ms = number * 1000;
        return true;
    }
    while (*text != '\0') {
        size_t unit = 0;
        if (!parse_digits(&text, &number))
            return false;
        while (unit < 5 && strncmp(text, units[unit].name, strlen(units[unit].name)) != 0)
            unit++;
        if (unit == 5 || number > UINT32_MAX)
            return false;
        sum += number * units[unit].ms;
        text += strlen(units[unit].name);
    }
    *out_ms = sum;
    return true;
}

/* The word of the metavar that the text is, whatever its case; NULL: none. */
static const char *parse_word(const struct weir_setting *setting, const char *text,
                              struct weir_settings *settings)
{
    for (size_t i = 0; i < sizeof(synonyms) / sizeof(synonyms[0]); i++)
        if (strcasecmp(text, synonyms[i][0]) == 0)
            text = synonyms[i][1];
    size_t len;
    for (const char *word = setting->metavar; *word != '\0'; word += len + (word[len] == '|')) {
        len = strcspn(word, "|");
        if (len == strlen(text) && strncasecmp(word, text, len) == 0)
            return weir_settings_copy(settings, (struct weir_str){word, len});
    }
    return NULL;
}

static bool parse_number(const struct weir_setting *setting, const char *text, void *field,
                         char *what, size_t what_len)
{
    uint64_t number = 0;
    bool ok;
    if (setting->kind == WEIR_SETTING_COUNT) {
        ok = parse_count(text, &number);
        snprintf(what, what_len, "a number from %" PRIu64 " to %" PRIu64, setting->least,
                 setting->most);
    } else if (setting->kind == WEIR_SETTING_SIZE) {
        ok = parse_size(text, &number);
        snprintf(what, what_len, "a size from %" PRIu64 " to %" PRIu64 " bytes, such as 64m",
                 setting->least, setting->most);
    } else {
        ok = parse_time(text, &number);
        snprintf(what, what_len, "a time from %" PRIu64 " to %" PRIu64 " ms, such as 10s or 500ms",
                 setting->least, setting->most);
    }
    if (!ok || number < setting->least || number > setting->most)
        return false;
    memcpy(field, &number, sizeof(number));
    return true;
}

bool weir_setting_parse(const struct weir_setting *setting, const char *text,
                        struct weir_settings *settings, char *what, size_t what_len)
{
    void *field = (char *)settings + setting->offset;
    const char *word;
    double ratio;
    bool is_on;
    switch (setting->kind) {
    case WEIR_SETTING_TEXT:
    case WEIR_SETTING_PATH:
    case WEIR_SETTING_URL:
    case WEIR_SETTING_SECRET:
        memcpy(field, &text, sizeof(text));
        return true;
    case WEIR_SETTING_WORD:
        word = parse_word(setting, text, settings);
        snprintf(what, what_len, "one of %s", setting->metavar);
        if (word != NULL)
            memcpy(field, &word, sizeof(word));
        return word != NULL;
    case WEIR_SETTING_SWITCH:
        snprintf(what, what_len, "on or off");
        if (!parse_switch(text, &is_on))
            return false;
        memcpy(field, &is_on, sizeof(is_on));
        return true;
    case WEIR_SETTING_COUNT:
    case WEIR_SETTING_SIZE:
    case WEIR_SETTING_TIME:
        return parse_number(setting, text, field, what, what_len);
    case WEIR_SETTING_RATIO:
        snprintf(what, what_len, "a number above 0, up to 1");
        if (!weir_scalar_float(weir_str_of(text), &ratio) || !(ratio > 0 && ratio <= 1))
            return false;
        memcpy(field, &ratio, sizeof(ratio));
        return true;
    }
    return false;
}
