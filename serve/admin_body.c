/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/admin_body.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) static bool refuse(struct weir_admin_call *call,
                                                         const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    weir_admin_say(call, 400, text);
    return false;
}

static bool read_field(struct weir_admin_call *call, const struct weir_admin_field *field,
                       const json_t *value)
{
    if (field->is_flag) {
        if (!json_is_boolean(value))
            return refuse(call, "400 '%s' must be true or false\n", field->name);
        *field->value = json_is_true(value);
        return true;
    }
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    if (number < 0 || (uint64_t)number < field->min || (uint64_t)number > field->max)
        return refuse(call, "400 '%s' must be a whole number from %" PRIu64 " to %" PRIu64 "\n",
                      field->name, field->min, field->max);
    *field->value = (uint64_t)number;
    return true;
}

static bool read_object(struct weir_admin_call *call, json_t *root,
                        const struct weir_admin_field *fields, size_t count)
{
    const char *name;
    json_t *value;
    json_object_foreach(root, name, value)
    {
        size_t i = 0;
        while (i < count && strcmp(fields[i].name, name) != 0)
            i++;
        if (i == count)
            return refuse(call, "400 there is no field '%.40s'\n", name);
        if (!read_field(call, &fields[i], value))
            return false;
        if (fields[i].is_given != NULL)
            *fields[i].is_given = true;
    }
    for (size_t i = 0; i < count; i++)
        if (fields[i].is_given == NULL && json_object_get(root, fields[i].name) == NULL)
            return refuse(call, "400 '%s' is missing\n", fields[i].name);
    return true;
}

bool weir_admin_body_read(struct weir_admin_call *call, const struct weir_admin_field *fields,
                          size_t count)
{
    struct weir_str body = call->request->body;
    json_error_t error;
    json_t *root = json_loadb(body.ptr ? body.ptr : "", body.len, JSON_REJECT_DUPLICATES, &error);
    bool is_read = false;
    if (root == NULL)
        refuse(call, "400 the body is no JSON: %.100s\n", error.text);
    else if (!json_is_object(root))
        refuse(call, "400 the body must be an object\n");
    else
        is_read = read_object(call, root, fields, count);
    json_decref(root);
    return is_read;
}
