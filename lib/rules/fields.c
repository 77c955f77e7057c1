/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/fields.h"

#include "base/str.h"
#include "rules/parse.h"

#include <string.h>

#define WORD_LEN_MAX 32u /* longer words are not corrected */

enum {
    ROOT = WEIR_PLACE_ROOT,
    DESC = WEIR_PLACE_DESC,
    LIMIT = WEIR_PLACE_LIMIT,
    DEFAULT = WEIR_PLACE_DEFAULT,
    NAMES = WEIR_PLACE_NAMES,
};

enum field_number {
#define WEIR_FIELD(name, places, whose, parse) FIELD_##name,
#include "rules/fields.def"
#undef WEIR_FIELD
    FIELD_COUNT,
};

static const struct weir_field fields[] = {
#define WEIR_FIELD(field, where, whose, reader)                                                    \
    {{#field, sizeof(#field) - 1}, (uint8_t)(where), WEIR_FIELD_##whose, FIELD_##field, reader},
#include "rules/fields.def"
#undef WEIR_FIELD
};

_Static_assert(FIELD_COUNT <= 64, "the numbers of fields are bits of a 64-bit mask");

/* Names differ early: length and first byte leave one or two candidates of all. */
const struct weir_field *weir_field_find(struct weir_str name)
{
    if (name.len == 0)
        return NULL;
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        const struct weir_field *f = &fields[i];
        if (f->name.len == name.len && f->name.ptr[0] == name.ptr[0] &&
            memcmp(f->name.ptr, name.ptr, name.len) == 0)
            return f;
    }
    return NULL;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static uint32_t min3(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Edits between two words, whatever their case; a swap of neighbours is one (as Damerau counts). */
static uint32_t distance(struct weir_str a, struct weir_str b)
{
    uint32_t rows[3][WORD_LEN_MAX + 1];
    uint32_t *before = rows[0], *above = rows[1], *row = rows[2];
    for (uint32_t j = 0; j <= b.len; j++)
        above[j] = j;
    for (uint32_t i = 1; i <= a.len; i++) {
        row[0] = i;
        for (uint32_t j = 1; j <= b.len; j++) {
            char x = lower(a.ptr[i - 1]), y = lower(b.ptr[j - 1]);
            row[j] = min3(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == lower(b.ptr[j - 2]) && lower(a.ptr[i - 2]) == y &&
                before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
        uint32_t *oldest = before;
        before = above;
        above = row;
        row = oldest;
    }
    return above[b.len];
}

/* How wrong a word may be and still be recognised: a third of it, and never more than 3 edits. */
static uint32_t patience(struct weir_str word)
{
    uint32_t third = (uint32_t)word.len / 3 + (word.len < 6);
    return third < 3 ? third : 3;
}

static bool is_nearer(struct weir_str text, struct weir_str word, uint32_t *best)
{
    if (text.len > WORD_LEN_MAX || word.len > WORD_LEN_MAX)
        return false;
    uint32_t edits = distance(text, word);
    if (edits > patience(word) || edits >= *best)
        return false;
    *best = edits;
    return true;
}

const struct weir_field *weir_field_suggest(struct weir_str name, enum weir_where place)
{
    for (int pass = 0; pass < 2; pass++) {
        const struct weir_field *found = NULL;
        uint32_t best = UINT32_MAX;
        for (size_t i = 0; i < FIELD_COUNT; i++) {
            bool is_here = (fields[i].places & place) != 0;
            if (is_here == (pass == 0) && is_nearer(name, fields[i].name, &best))
                found = &fields[i];
        }
        if (found)
            return found;
    }
    return NULL;
}

const char *weir_field_home(const struct weir_field *field)
{
    if (field->places & WEIR_PLACE_ROOT)
        return "the top of the file";
    if (field->places & WEIR_PLACE_DESC)
        return "a descriptor";
    return "rate_limit";
}

const char *weir_suggest(struct weir_str text, const char *const *words)
{
    const char *found = NULL;
    uint32_t best = UINT32_MAX;
    for (; *words; words++)
        if (is_nearer(text, weir_str_of(*words), &best))
            found = *words;
    return found;
}
