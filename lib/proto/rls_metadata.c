/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/rls_metadata.h"

#include "base/maxima.h"
#include "google_types.pb-c.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

typedef Google__Protobuf__Struct pb_struct;
typedef Google__Protobuf__Field pb_field;
typedef Google__Protobuf__Value pb_value;
typedef Google__Protobuf__ListValue pb_list;

#define ENTRY_LEN_MAX (WEIR_KEY_LEN_MAX + 1 + WEIR_VALUE_LEN_MAX)

/* ---- the tree ---- */

static json_t *entry_json(const struct weir_entry *entry)
{
    char text[ENTRY_LEN_MAX]; /* what was decided is within the maxima */
    memcpy(text, entry->key.ptr, entry->key.len);
    text[entry->key.len] = '=';
    memcpy(text + entry->key.len + 1, entry->value.ptr, entry->value.len);
    return json_stringn(text, entry->key.len + 1 + entry->value.len);
}

static json_t *limit_json(const struct weir_override *override)
{
    static const char *const names[] = {"UNKNOWN", "SECOND", "MINUTE", "HOUR",
                                        "DAY",     "MONTH",  "YEAR",   "WEEK"};
    return json_sprintf("requests_per_unit:%u unit:%s", (unsigned) override->requests_per_unit,
                        names[override->unit]);
}

static json_t *descriptor_json(const struct weir_descriptor *descriptor)
{
    json_t *to = json_object(), *entries = json_array();
    for (uint32_t i = 0; i < descriptor->entry_count; i++)
        json_array_append_new(entries, entry_json(&descriptor->entries[i]));
    json_object_set_new(to, "entries", entries);
    if (descriptor->override)
        json_object_set_new(to, "limit", limit_json(descriptor->override));
    if (descriptor->has_hits)
        json_object_set_new(to, "hitsAddend", json_real((double)descriptor->hits));
    return to;
}

/* Adds what `to` has not; where both have an object, its fields likewise. */
static void merge(json_t *to, json_t *from)
{
    const char *key;
    json_t *value;
    json_object_foreach(from, key, value)
    {
        json_t *mine = json_object_get(to, key);
        if (!mine)
            json_object_set(to, key, value);
        else if (json_is_object(mine) && json_is_object(value))
            merge(mine, value);
    }
}

static json_t *rules_json(const struct weir_decision *decision)
{
    json_t *all = json_object();
    for (uint32_t i = 0; i < decision->status_count; i++) {
        const struct weir_status *status = &decision->statuses[i];
        if (status->code != WEIR_CODE_OK || !status->rule || status->rule->metadata.len == 0)
            continue;
        struct weir_str text = status->rule->metadata;
        json_t *one = json_loadb(text.ptr, text.len, 0, NULL);
        if (json_is_object(one))
            merge(all, one);
        json_decref(one);
    }
    return all;
}

static json_t *tree(const struct weir_request *request, const struct weir_decision *decision)
{
    json_t *to = json_object(), *descriptors = json_array(), *rules = rules_json(decision);
    json_object_set_new(to, "domain", json_stringn(request->domain.ptr, request->domain.len));
    for (uint32_t i = 0; i < request->descriptor_count; i++)
        json_array_append_new(descriptors, descriptor_json(&request->descriptors[i]));
    json_object_set_new(to, "descriptors", descriptors);
    if (request->hits_addend != 0)
        json_object_set_new(to, "hitsAddend", json_real(request->hits_addend));
    if (json_object_size(rules) > 0)
        json_object_set(to, "metadata", rules);
    json_decref(rules);
    return to;
}

/* ---- the tree as protobuf ---- */

static pb_value *value_of(struct weir_bump *memory, const json_t *from);

/* A copy: the tree is gone before the response is packed. */
static ProtobufCBinaryData copy(struct weir_bump *memory, const char *text, size_t len)
{
    uint8_t *to = weir_bump_alloc(memory, len);
    if (!to)
        return (ProtobufCBinaryData){0};
    memcpy(to, text, len);
    return (ProtobufCBinaryData){.len = len, .data = to};
}

static pb_struct *struct_of(struct weir_bump *memory, json_t *from)
{
    pb_struct *to = WEIR_BUMP_ARRAY(memory, 1, pb_struct);
    pb_field **list = WEIR_BUMP_ARRAY(memory, json_object_size(from), pb_field *);
    const char *key;
    json_t *value;
    if (!to || !list)
        return NULL;
    google__protobuf__struct__init(to);
    to->fields = list;
    json_object_foreach(from, key, value)
    {
        pb_field *field = WEIR_BUMP_ARRAY(memory, 1, pb_field);
        if (!field)
            return NULL;
        google__protobuf__field__init(field);
        field->key = copy(memory, key, strlen(key));
        field->value = value_of(memory, value);
        if (!field->value)
            return NULL;
        list[to->n_fields++] = field;
    }
    return to;
}

static pb_list *list_of(struct weir_bump *memory, const json_t *from)
{
    pb_list *to = WEIR_BUMP_ARRAY(memory, 1, pb_list);
    pb_value **list = WEIR_BUMP_ARRAY(memory, json_array_size(from), pb_value *);
    if (!to || !list)
        return NULL;
    google__protobuf__list_value__init(to);
    to->values = list;
    for (size_t i = 0; i < json_array_size(from); i++) {
        list[i] = value_of(memory, json_array_get(from, i));
        if (!list[i])
            return NULL;
    }
    to->n_values = json_array_size(from);
    return to;
}

static void set_value(struct weir_bump *memory, pb_value *to, const json_t *from)
{
    switch (json_typeof(from)) {
    case JSON_OBJECT:
        to->kind_case = GOOGLE__PROTOBUF__VALUE__KIND_STRUCT_VALUE;
        to->struct_value = struct_of(memory, (json_t *)(uintptr_t)from);
        break;
    case JSON_ARRAY:
        to->kind_case = GOOGLE__PROTOBUF__VALUE__KIND_LIST_VALUE;
        to->list_value = list_of(memory, from);
        break;
    case JSON_STRING:
        to->kind_case = GOOGLE__PROTOBUF__VALUE__KIND_STRING_VALUE;
        to->string_value = copy(memory, json_string_value(from), json_string_length(from));
        break;
    case JSON_INTEGER:
    case JSON_REAL:
        to->kind_case = GOOGLE__PROTOBUF__VALUE__KIND_NUMBER_VALUE;
        to->number_value = json_number_value(from);
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        to->kind_case = GOOGLE__PROTOBUF__VALUE__KIND_BOOL_VALUE;
        to->bool_value = json_is_true(from);
        break;
    case JSON_NULL:
        to->kind_case = GOOGLE__PROTOBUF__VALUE__KIND_NULL_VALUE;
        break;
    }
}

static pb_value *value_of(struct weir_bump *memory, const json_t *from)
{
    pb_value *to = WEIR_BUMP_ARRAY(memory, 1, pb_value);
    if (!to)
        return NULL;
    google__protobuf__value__init(to);
    set_value(memory, to, from);
    return memory->has_failed ? NULL : to;
}

const void *weir_rls_metadata(struct weir_bump *memory, const struct weir_request *request,
                              const struct weir_decision *decision, size_t *len)
{
    struct weir_bump before = *memory;
    json_t *from = tree(request, decision);
    pb_struct *to = struct_of(memory, from);
    json_decref(from);
    if (!to) {
        *memory = before;
        return NULL;
    }
    *len = google__protobuf__struct__get_packed_size(to);
    return to;
}

uint8_t *weir_rls_metadata_pack(const void *metadata, uint8_t *out)
{
    return out + google__protobuf__struct__pack(metadata, out);
}

char *weir_rls_metadata_json(const struct weir_request *request,
                             const struct weir_decision *decision)
{
    json_t *root = tree(request, decision);
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}
