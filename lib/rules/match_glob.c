/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/match_glob.h"

#include <string.h>

void weir_glob_init(struct weir_pattern *out, struct weir_str pattern)
{
    size_t stars = 0;
    size_t last = 0;
    for (size_t i = 0; i < pattern.len; i++) {
        if (pattern.ptr[i] != '*')
            continue;
        if (stars++ == 0)
            out->prefix_len = (uint16_t)i;
        last = i;
    }
    out->literal_len = (uint16_t)(pattern.len - stars);
    out->suffix_len = (uint16_t)(pattern.len - last - 1u);
}

/* The parts between the first and the last star, from left to right. */
static bool has_middle(const char *part, const char *parts_end, const char *at, const char *at_end)
{
    while (part < parts_end) {
        const char *star = memchr(part, '*', (size_t)(parts_end - part));
        size_t len = (size_t)((star ? star : parts_end) - part);
        const char *found = len ? memmem(at, (size_t)(at_end - at), part, len) : at;
        if (!found)
            return false;
        at = found + len;
        part += len + 1;
    }
    return true;
}

bool weir_glob_matches(const struct weir_pattern *known, struct weir_str pattern,
                       struct weir_str text)
{
    if (text.len < known->literal_len || memcmp(text.ptr, pattern.ptr, known->prefix_len) != 0)
        return false;
    size_t tail = known->suffix_len;
    if (memcmp(text.ptr + text.len - tail, pattern.ptr + pattern.len - tail, tail) != 0)
        return false;
    size_t inner = pattern.len - known->prefix_len - tail; /* from the first star to the last */
    if (inner <= 1)
        return true;
    const char *part = pattern.ptr + known->prefix_len + 1;
    return has_middle(part, part + inner - 2, text.ptr + known->prefix_len,
                      text.ptr + text.len - tail);
}

/* The narrow pattern is taken as a text in which each star is a byte that no literal equals.  A
 * wide pattern that matches this text swallows the stars whole, so it matches all that they stand
 * for. */
bool weir_glob_covers(struct weir_str wide, struct weir_str narrow)
{
    char text[WEIR_KEY_LEN_MAX + 1 + WEIR_VALUE_LEN_MAX];
    if (narrow.len > sizeof(text))
        return false;
    for (size_t i = 0; i < narrow.len; i++)
        text[i] = narrow.ptr[i] == '*' ? '\0' : narrow.ptr[i];
    struct weir_pattern known = {0};
    weir_glob_init(&known, wide);
    return weir_glob_matches(&known, wide, (struct weir_str){.ptr = text, .len = narrow.len});
}
