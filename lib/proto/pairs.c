/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/pairs.h"

#include "base/str.h"
#include "proto/uri.h"

/* The next "name=value" of a list; false at its end. */
static bool next_pair(struct weir_str *list, char separator, struct weir_str *name,
                      struct weir_str *value)
{
    if (list->len == 0)
        return false;
    const char *stop = memchr(list->ptr, separator, list->len);
    size_t len = stop ? (size_t)(stop - list->ptr) : list->len;
    const char *equals = len > 0 ? memchr(list->ptr, '=', len) : NULL;
    size_t name_len = equals ? (size_t)(equals - list->ptr) : len;
    *name = (struct weir_str){.ptr = list->ptr, .len = name_len};
    *value = (struct weir_str){.ptr = list->ptr + name_len + (equals != NULL),
                               .len = len - name_len - (equals != NULL)};
    list->ptr += len + (stop != NULL);
    list->len -= len + (stop != NULL);
    return true;
}

bool weir_query_find(struct weir_str query, struct weir_str name, struct weir_str *value)
{
    struct weir_str found;
    while (next_pair(&query, '&', &found, value))
        if (weir_str_eq(found, name))
            return true;
    return false;
}

/* Into room, if there is anything to decode; false where that is too small. */
static bool decode(struct weir_str text, char *room, size_t room_len, struct weir_str *out)
{
    *out = text;
    if (text.len == 0 || (!memchr(text.ptr, '%', text.len) && !memchr(text.ptr, '+', text.len)))
        return true;
    if (text.len > room_len)
        return false;
    *out = (struct weir_str){.ptr = room, .len = weir_uri_decode(text, room)};
    return true;
}

int weir_query_value(struct weir_str query, struct weir_str name, char *room, size_t room_len,
                     struct weir_str *value)
{
    struct weir_str found, raw, plain;
    while (next_pair(&query, '&', &found, &raw)) {
        /* A name is decoded only to be compared: its place in room is free again. */
        if (!decode(found, room, room_len, &plain))
            return WEIR_ERR_TOO_LARGE;
        if (weir_str_eq(plain, name))
            return decode(raw, room, room_len, value) ? 1 : WEIR_ERR_TOO_LARGE;
    }
    return 0;
}

bool weir_cookie_value(struct weir_str header, struct weir_str name, struct weir_str *value)
{
    struct weir_str found;
    while (next_pair(&header, ';', &found, value)) {
        while (found.len > 0 && found.ptr[0] == ' ')
            found.ptr++, found.len--;
        if (weir_str_eq(found, name))
            return true;
    }
    return false;
}
