/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/pairs.h"

#include "base/hot.h"
#include "base/str.h"
#include "proto/uri.h"

struct pair {
    struct weir_str name, value;
    bool is_name_coded, is_value_coded; /* has anything that weir_uri_decode() would change */
};

/* What is before the first of two bytes, and goes from the list.  Byte by byte: nearly all of it is
 * short, and to search it once for each byte takes longer. */
static inline struct weir_str cut(struct weir_str *list, char one, char other, bool *is_coded)
{
    struct weir_str before = {.ptr = list->ptr};
    bool has_code = false;
    size_t i = 0;
    for (; i < list->len && list->ptr[i] != one && list->ptr[i] != other; i++)
        has_code |= list->ptr[i] == '%' || list->ptr[i] == '+';
    before.len = i;
    list->ptr += i;
    list->len -= i;
    *is_coded = has_code;
    return before;
}

static inline bool skip(struct weir_str *list, char one)
{
    if (list->len == 0 || list->ptr[0] != one)
        return false;
    list->ptr++;
    list->len--;
    return true;
}

/* The next "name=value" of a list; false at its end. */
static inline bool next_pair(struct weir_str *list, char separator, struct pair *out)
{
    if (list->len == 0)
        return false;
    out->name = cut(list, '=', separator, &out->is_name_coded);
    (void)skip(list, '=');
    out->value = cut(list, separator, separator, &out->is_value_coded);
    (void)skip(list, separator);
    return true;
}

bool weir_query_find(struct weir_str query, struct weir_str name, struct weir_str *value)
{
    struct pair pair;
    while (next_pair(&query, '&', &pair)) {
        *value = pair.value;
        if (weir_str_eq(pair.name, name))
            return true;
    }
    return false;
}

/* Into room, if there is anything to decode; false where that is too small. */
static bool decode(struct weir_str text, bool is_coded, char *room, size_t room_len,
                   struct weir_str *out)
{
    *out = text;
    if (!is_coded)
        return true;
    if (text.len > room_len)
        return false;
    *out = (struct weir_str){.ptr = room, .len = weir_uri_decode(text, room)};
    return true;
}

WEIR_HOT int weir_query_value(struct weir_str query, struct weir_str name, char *room,
                              size_t room_len, struct weir_str *value)
{
    struct pair pair;
    struct weir_str plain;
    while (next_pair(&query, '&', &pair)) {
        /* A name is decoded only to be compared: its place in room is free again. */
        if (!decode(pair.name, pair.is_name_coded, room, room_len, &plain))
            return WEIR_ERR_TOO_LARGE;
        if (!weir_str_eq(plain, name))
            continue;
        bool has_room = decode(pair.value, pair.is_value_coded, room, room_len, value);
        return has_room ? 1 : WEIR_ERR_TOO_LARGE;
    }
    return 0;
}

bool weir_cookie_value(struct weir_str header, struct weir_str name, struct weir_str *value)
{
    struct pair pair;
    while (next_pair(&header, ';', &pair)) {
        *value = pair.value;
        while (pair.name.len > 0 && pair.name.ptr[0] == ' ')
            pair.name.ptr++, pair.name.len--;
        if (weir_str_eq(pair.name, name))
            return true;
    }
    return false;
}
