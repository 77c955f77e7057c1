/* Unquoted scalars, as yaml.v2 reads them: YAML 1.1 booleans, underscores in numbers, 010 is eight.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "rules/yaml_node.h"

#include <stdlib.h>

#define NUMBER_LEN_MAX 64 /* longer is no number that anyone means */

static bool is_one_of(struct weir_str text, const char *const *words)
{
    for (; *words; words++)
        if (weir_str_eq(text, weir_str_of(*words)))
            return true;
    return false;
}

static bool is_null(struct weir_str text)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL", NULL};
    return is_one_of(text, words);
}

bool weir_scalar_bool(struct weir_str text, bool *out)
{
    static const char *const yes[] = {"y",    "Y",    "yes", "Yes", "YES", "true",
                                      "True", "TRUE", "on",  "On",  "ON",  NULL};
    static const char *const no[] = {"n",     "N",     "no",  "No",  "NO",  "false",
                                     "False", "FALSE", "off", "Off", "OFF", NULL};
    if (is_one_of(text, yes)) {
        *out = true;
        return true;
    }
    if (is_one_of(text, no)) {
        *out = false;
        return true;
    }
    return false;
}

/* Copies without underscores; false: too long for a number, or a byte that no number has. */
static bool copy_number(struct weir_str text, char out[NUMBER_LEN_MAX])
{
    size_t len = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] == '_')
            continue;
        if (len + 1 == NUMBER_LEN_MAX || text.ptr[i] == '\0')
            return false;
        out[len++] = text.ptr[i];
    }
    out[len] = '\0';
    return len > 0;
}

/* Skips the prefix of a base; numbers with a leading 0 are octal. */
static int base_of(const char **digits)
{
    const char *d = *digits;
    if (d[0] != '0' || d[1] == '\0')
        return 10;
    *digits = d + 2;
    switch (d[1]) {
    case 'x':
    case 'X':
        return 16;
    case 'b':
    case 'B':
        return 2;
    case 'o':
    case 'O':
        return 8;
    default:
        *digits = d + 1;
        return 8;
    }
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return 99;
}

bool weir_scalar_int(struct weir_str text, bool *is_negative, uint64_t *magnitude)
{
    char number[NUMBER_LEN_MAX];
    if (text.len == 0 || text.ptr[0] == '_' || !copy_number(text, number))
        return false;
    const char *digits = number;
    bool negative = *digits == '-';
    if (*digits == '-' || *digits == '+')
        digits++;
    int base = base_of(&digits);
    if (*digits == '\0')
        return false;
    uint64_t sum = 0;
    for (; *digits; digits++) {
        int digit = digit_of(*digits);
        if (digit >= base || __builtin_mul_overflow(sum, (uint64_t)base, &sum) ||
            __builtin_add_overflow(sum, (uint64_t)digit, &sum))
            return false;
    }
    *is_negative = negative && sum != 0;
    *magnitude = sum;
    return true;
}

/* yaml.v2's pattern: [-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)? */
static bool looks_like_float(const char *c)
{
    if (*c == '-' || *c == '+')
        c++;
    size_t whole = strspn(c, "0123456789");
    c += whole;
    if (*c == '.') {
        c++;
        size_t part = strspn(c, "0123456789");
        if (whole + part == 0)
            return false;
        c += part;
    } else if (whole == 0) {
        return false;
    }
    if (*c == 'e' || *c == 'E') {
        c++;
        if (*c == '-' || *c == '+')
            c++;
        size_t power = strspn(c, "0123456789");
        if (power == 0)
            return false;
        c += power;
    }
    return *c == '\0';
}

bool weir_scalar_float(struct weir_str text, double *out)
{
    char number[NUMBER_LEN_MAX];
    if (text.len == 0 || !copy_number(text, number) || !looks_like_float(number))
        return false;
    *out = strtod(number, NULL);
    return true;
}

static bool is_infinite(struct weir_str text)
{
    static const char *const words[] = {".inf",  ".Inf",  ".INF",  "+.inf", "+.Inf",
                                        "+.INF", "-.inf", "-.Inf", "-.INF", ".nan",
                                        ".NaN",  ".NAN",  NULL};
    return is_one_of(text, words);
}

enum weir_scalar weir_scalar_kind(const struct weir_yaml *scalar)
{
    bool truth;
    bool is_negative;
    uint64_t magnitude;
    double number;
    if (!scalar->is_plain)
        return WEIR_SCALAR_STR;
    if (is_null(scalar->text))
        return WEIR_SCALAR_NULL;
    char c = scalar->text.ptr[0];
    bool is_numeric = (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.';
    if (!is_numeric)
        return weir_scalar_bool(scalar->text, &truth) ? WEIR_SCALAR_BOOL : WEIR_SCALAR_STR;
    if (weir_scalar_int(scalar->text, &is_negative, &magnitude)) /* beyond int64 Go has no int */
        return magnitude <= INT64_MAX ? WEIR_SCALAR_INT : WEIR_SCALAR_FLOAT;
    if (weir_scalar_float(scalar->text, &number) || is_infinite(scalar->text))
        return WEIR_SCALAR_FLOAT;
    return WEIR_SCALAR_STR;
}
