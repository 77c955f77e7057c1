/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/http_options.h"

#include "base/str.h"

#include <stdio.h>

const struct weir_http_settings weir_http_settings_default = {
    .trusted_proxies = "127.0.0.0/8, ::1, unix",
    .user_header = "",
    .attributes = "",
    .original_request = "auto",
    .check_domain = "",
    .check_headers = "legacy",
    .check_body = "plain",
};

/* The next word of a list with commas, without the spaces around it; false at its end. */
static bool next_word(struct weir_str *list, struct weir_str *word)
{
    if (!list->ptr)
        return false;
    const char *comma = list->len > 0 ? memchr(list->ptr, ',', list->len) : NULL;
    size_t len = comma ? (size_t)(comma - list->ptr) : list->len;
    *word = (struct weir_str){.ptr = list->ptr, .len = len};
    list->ptr = comma ? comma + 1 : NULL;
    list->len = comma ? list->len - len - 1 : 0;
    while (word->len > 0 && word->ptr[0] == ' ')
        word->ptr++, word->len--;
    while (word->len > 0 && word->ptr[word->len - 1] == ' ')
        word->len--;
    return true;
}

/* ---- trusted proxies ---- */

static int read_proxies(struct weir_http_options *out, const char *text, char *why, size_t why_len)
{
    struct weir_str list = weir_str_of(text), word;
    const char *what_is_wrong; /* is said in words of this list */
    bool is_exact;
    while (next_word(&list, &word)) {
        if (word.len == 0)
            continue;
        if (weir_str_eq(word, WEIR_STR("unix"))) {
            out->trusts_unix = true;
            continue;
        }
        if (out->proxy_count == WEIR_HTTP_PROXIES_MAX) {
            snprintf(why, why_len, "more than %d trusted proxies", WEIR_HTTP_PROXIES_MAX);
            return WEIR_ERR_TOO_LARGE;
        }
        if (!weir_cidr_parse(&out->proxies[out->proxy_count++], word, &what_is_wrong, &is_exact)) {
            snprintf(why, why_len, "'%.*s' is no address, no network and not 'unix'",
                     WEIR_STR_ARG(word));
            return WEIR_ERR_INVALID;
        }
    }
    return 0;
}

bool weir_http_options_trust(const struct weir_http_options *options, struct weir_address address)
{
    for (uint32_t i = 0; i < options->proxy_count; i++)
        if (weir_cidr_holds(&options->proxies[i], address))
            return true;
    return false;
}

/* ---- attributes ---- */

static int add_attribute(struct weir_http_options *out, struct weir_http_attribute attribute,
                         char *why, size_t why_len)
{
    if (out->attribute_count == WEIR_HTTP_ATTRIBUTES_MAX) {
        snprintf(why, why_len, "more than %d attributes", WEIR_HTTP_ATTRIBUTES_MAX);
        return WEIR_ERR_TOO_LARGE;
    }
    out->attributes[out->attribute_count++] = attribute;
    return 0;
}

/* NAME=header:PART, NAME=cookie:PART or NAME=query:PART */
static bool read_attribute(struct weir_str word, struct weir_http_attribute *out)
{
    static const struct weir_str kinds[] = {
        [WEIR_HTTP_FROM_HEADER] = {"header:", 7},
        [WEIR_HTTP_FROM_COOKIE] = {"cookie:", 7},
        [WEIR_HTTP_FROM_QUERY] = {"query:", 6},
    };
    const char *equals = memchr(word.ptr, '=', word.len);
    if (!equals || equals == word.ptr)
        return false;
    struct weir_str from = {.ptr = equals + 1, .len = word.len - (size_t)(equals + 1 - word.ptr)};
    out->name = (struct weir_str){.ptr = word.ptr, .len = (size_t)(equals - word.ptr)};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (!weir_str_starts(from, kinds[i]) || from.len == kinds[i].len)
            continue;
        out->from = (enum weir_http_from)i;
        out->part =
            (struct weir_str){.ptr = from.ptr + kinds[i].len, .len = from.len - kinds[i].len};
        return true;
    }
    return false;
}

static int read_attributes(struct weir_http_options *out, const struct weir_http_settings *settings,
                           char *why, size_t why_len)
{
    struct weir_str list = weir_str_of(settings->attributes), word;
    struct weir_http_attribute attribute = {.name = WEIR_STR("user"),
                                            .part = weir_str_of(settings->user_header),
                                            .from = WEIR_HTTP_FROM_HEADER};
    int err = attribute.part.len > 0 ? add_attribute(out, attribute, why, why_len) : 0;
    while (!err && next_word(&list, &word)) {
        if (word.len == 0)
            continue;
        if (!read_attribute(word, &attribute)) {
            snprintf(why, why_len, "'%.*s' is not NAME=header:X, NAME=cookie:X or NAME=query:X",
                     WEIR_STR_ARG(word));
            return WEIR_ERR_INVALID;
        }
        err = add_attribute(out, attribute, why, why_len);
    }
    return err;
}

/* ---- the rest ---- */

static bool read_original(const char *text, uint32_t *out)
{
    static const struct {
        const char *name;
        uint32_t original;
    } known[] = {
        {"auto", WEIR_HTTP_ORIGINAL_AUTO},
        {"line", WEIR_HTTP_ORIGINAL_LINE},
        {"forwarded", WEIR_HTTP_ORIGINAL_FORWARDED},
        {"original", WEIR_HTTP_ORIGINAL_ORIGINAL},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(text, known[i].name) == 0) {
            *out = known[i].original;
            return true;
        }
    }
    return false;
}

int weir_http_options_read(struct weir_http_options *out, const struct weir_http_settings *settings,
                           char *why, size_t why_len)
{
    *out = (struct weir_http_options){.domain = weir_str_of(settings->check_domain)};
    int err = read_proxies(out, settings->trusted_proxies, why, why_len);
    if (!err)
        err = read_attributes(out, settings, why, why_len);
    if (err)
        return err;
    if (!read_original(settings->original_request, &out->original)) {
        snprintf(why, why_len, "'%s' is not auto, line, forwarded or original",
                 settings->original_request);
        return WEIR_ERR_INVALID;
    }
    if (weir_dialects_read(weir_str_of(settings->check_headers), &out->dialects) != 0) {
        snprintf(why, why_len,
                 "'%s' is no list of legacy, ietf-11, reset-epoch or reset-delta, nor none",
                 settings->check_headers);
        return WEIR_ERR_INVALID;
    }
    bool is_problem = strcmp(settings->check_body, "problem+json") == 0;
    out->body = is_problem ? WEIR_REFUSAL_PROBLEM : WEIR_REFUSAL_PLAIN;
    if (!is_problem && strcmp(settings->check_body, "plain") != 0) {
        snprintf(why, why_len, "'%s' is not plain or problem+json", settings->check_body);
        return WEIR_ERR_INVALID;
    }
    return 0;
}
