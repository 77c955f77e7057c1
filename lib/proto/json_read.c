/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/json_read.h"

#include "proto/utf8.h"

#include <string.h>

static bool fail(struct weir_json *json, const char *fault)
{
    if (json->fault == NULL)
        json->fault = fault;
    json->at = json->end;
    return false;
}

static void skip_blanks(struct weir_json *json)
{
    while (json->at < json->end &&
           (*json->at == ' ' || *json->at == '\t' || *json->at == '\n' || *json->at == '\r'))
        json->at++;
}

/* Reads this byte, behind blanks, if it is the next. */
static bool take(struct weir_json *json, char byte)
{
    skip_blanks(json);
    if (json->at == json->end || *json->at != byte)
        return false;
    json->at++;
    return true;
}

/* ---- what is next, and lists ---- */

enum weir_json_kind weir_json_kind(struct weir_json *json)
{
    skip_blanks(json);
    if (json->at == json->end)
        return WEIR_JSON_NONE;
    switch (*json->at) {
    case '{':
        return WEIR_JSON_OBJECT;
    case '[':
        return WEIR_JSON_ARRAY;
    case '"':
        return WEIR_JSON_STRING;
    case 't':
        return WEIR_JSON_TRUE;
    case 'f':
        return WEIR_JSON_FALSE;
    case 'n':
        return WEIR_JSON_NULL;
    default:
        return *json->at == '-' || (*json->at >= '0' && *json->at <= '9') ? WEIR_JSON_NUMBER
                                                                          : WEIR_JSON_NONE;
    }
}

bool weir_json_open(struct weir_json *json, char open)
{
    char close = open == '{' ? '}' : ']';
    if (!take(json, open))
        return fail(json, "a bracket is missing");
    return !take(json, close);
}

bool weir_json_more(struct weir_json *json, char close)
{
    if (json->fault != NULL || take(json, close))
        return false;
    return take(json, ',') || fail(json, "a comma or a closing bracket is missing");
}

bool weir_json_word(struct weir_json *json)
{
    static const struct weir_str words[] = {{"true", 4}, {"false", 5}, {"null", 4}};
    size_t left = (size_t)(json->end - json->at);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (left >= words[i].len && memcmp(json->at, words[i].ptr, words[i].len) == 0) {
            json->at += words[i].len;
            return true;
        }
    }
    return fail(json, "an unknown word");
}

bool weir_json_end(struct weir_json *json)
{
    skip_blanks(json);
    if (json->at < json->end)
        return fail(json, "something follows the end");
    return json->fault == NULL;
}

/* ---- numbers ---- */

static bool skip_digits(struct weir_json *json)
{
    const char *first = json->at;
    while (json->at < json->end && *json->at >= '0' && *json->at <= '9')
        json->at++;
    return json->at > first;
}

static bool skip_one_of(struct weir_json *json, const char *bytes)
{
    if (json->at == json->end || *json->at == '\0' || strchr(bytes, *json->at) == NULL)
        return false;
    json->at++;
    return true;
}

bool weir_json_number(struct weir_json *json, struct weir_str *out)
{
    skip_blanks(json);
    const char *from = json->at;
    (void)skip_one_of(json, "-");
    bool is_good = skip_one_of(json, "0") || skip_digits(json);
    if (skip_one_of(json, "."))
        is_good &= skip_digits(json);
    if (skip_one_of(json, "eE")) {
        (void)skip_one_of(json, "+-");
        is_good &= skip_digits(json);
    }
    if (!is_good)
        return fail(json, "a number that is none");
    *out = (struct weir_str){.ptr = from, .len = (size_t)(json->at - from)};
    return true;
}

/* ---- strings ---- */

/* Four hexadecimal digits; -1: they are none. */
static int32_t read_unit(struct weir_json *json)
{
    int32_t unit = 0;
    for (int i = 0; i < 4; i++, json->at++) {
        if (json->at == json->end)
            return -1;
        char c = *json->at, lower = (char)(c | 0x20);
        if (c >= '0' && c <= '9')
            unit = unit * 16 + (c - '0');
        else if (lower >= 'a' && lower <= 'f')
            unit = unit * 16 + (lower - 'a' + 10);
        else
            return -1;
    }
    return unit;
}

/* Behind "\u"; characters beyond 16 bits are two of these.  -1: no character. */
static int32_t read_character(struct weir_json *json)
{
    int32_t high = read_unit(json);
    if (high < 0xd800 || high > 0xdfff)
        return high;
    if (high > 0xdbff || !skip_one_of(json, "\\") || !skip_one_of(json, "u"))
        return -1;
    int32_t low = read_unit(json);
    return low >= 0xdc00 && low <= 0xdfff ? 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00) : -1;
}

/* At most three bytes for six that were read, or four for twelve. */
static char *put_character(char *to, int32_t c)
{
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
        *to++ = (char)(0x80 | (c & 0x3f));
    } else {
        if (c < 0x10000) {
            *to++ = (char)(0xe0 | c >> 12);
        } else {
            *to++ = (char)(0xf0 | c >> 18);
            *to++ = (char)(0x80 | (c >> 12 & 0x3f));
        }
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
        *to++ = (char)(0x80 | (c & 0x3f));
    }
    return to;
}

/* Behind a backslash.  NULL: no escape that there is. */
static char *put_escaped(struct weir_json *json, char *to)
{
    static const char names[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    if (skip_one_of(json, "u")) {
        int32_t c = read_character(json);
        return c < 0 ? NULL : put_character(to, c);
    }
    if (!skip_one_of(json, names))
        return NULL;
    *to++ = bytes[strchr(names, json->at[-1]) - names];
    return to;
}

/* From its first backslash on: what went before is copied, too.  `left` bytes are ahead of the end,
 * and no string is longer when it is written out. */
static bool read_escaped(struct weir_json *json, const char *from, struct weir_str *out)
{
    const char *end = json->at;
    while (end < json->end && *end != '"') /* where the string ends, roughly: \" is not looked at */
        end += *end == '\\' && end + 1 < json->end ? 2 : 1;
    if (json->space_end - json->space < end - from) {
        json->is_short_of_space = true;
        return fail(json, "strings too long to be written out");
    }
    char *to = json->space;
    memcpy(to, from, (size_t)(json->at - from));
    to += json->at - from;
    while (json->at < json->end && *json->at != '"') {
        if ((unsigned char)*json->at < ' ')
            return fail(json, "a control byte in a string");
        if (*json->at != '\\') {
            *to++ = *json->at++;
            continue;
        }
        json->at++;
        to = put_escaped(json, to);
        if (to == NULL)
            return fail(json, "an escape in a string that is none");
    }
    *out = (struct weir_str){.ptr = json->space, .len = (size_t)(to - json->space)};
    json->space = to;
    return true;
}

bool weir_json_string(struct weir_json *json, struct weir_str *out)
{
    if (!take(json, '"'))
        return fail(json, "a string is missing");
    const char *from = json->at;
    while (json->at < json->end && *json->at != '"' && *json->at != '\\' &&
           (unsigned char)*json->at >= ' ')
        json->at++;
    struct weir_str text = {.ptr = from, .len = (size_t)(json->at - from)};
    if (json->at < json->end && *json->at == '\\' && !read_escaped(json, from, &text))
        return false;
    if (json->at == json->end || *json->at != '"')
        return fail(json, "a string does not end, or has a control byte");
    json->at++;
    if (!weir_utf8_is_valid(text))
        return fail(json, "a string is not UTF-8");
    *out = text;
    return true;
}

bool weir_json_name(struct weir_json *json, struct weir_str *out)
{
    return weir_json_string(json, out) && (take(json, ':') || fail(json, "a colon is missing"));
}
