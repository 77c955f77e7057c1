/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/rls_json.h"

#include "base/str.h"
#include "proto/rls_metadata.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* One field of a message: both its names, and who reads it. */
struct reading {
    struct weir_rls_json *json;
    struct weir_descriptor *descriptor; /* being read */
    struct weir_override *override;
    struct weir_entry *entry;
    char *why;
    size_t why_len;
};

struct field {
    const char *name, *other_name;
    int (*read)(struct reading *r, const json_t *value);
};

__attribute__((format(printf, 3, 4))) static int refuse(struct reading *r, int err,
                                                        const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(r->why, r->why_len, format, args);
    va_end(args);
    return err;
}

/* Reads an object by the table of its fields. */
static int read_message(struct reading *r, const json_t *value, const char *what,
                        const struct field *fields, size_t field_count)
{
    uint32_t seen = 0;
    const char *name;
    json_t *member;
    if (!json_is_object(value))
        return refuse(r, WEIR_ERR_INVALID, "%s must be an object", what);
    /* The macro is libjansson's, and its cast drops const. */
    json_t *object = (json_t *)(uintptr_t)value;
    json_object_foreach(object, name, member)
    {
        size_t i = 0;
        while (i < field_count && strcmp(name, fields[i].name) != 0 &&
               strcmp(name, fields[i].other_name) != 0)
            i++;
        if (i == field_count)
            return refuse(r, WEIR_ERR_INVALID, "%s has no field '%.40s'", what, name);
        if (seen & 1u << i)
            return refuse(r, WEIR_ERR_INVALID, "%s has '%s' twice", what, fields[i].name);
        seen |= 1u << i;
        int err = json_is_null(member) ? 0 : fields[i].read(r, member);
        if (err)
            return err;
    }
    return 0;
}

#define READ_MESSAGE(r, value, what, fields)                                                       \
    read_message((r), (value), (what), (fields), sizeof(fields) / sizeof((fields)[0]))

/* ---- plain values ---- */

static int read_string(struct reading *r, const json_t *value, const char *name, size_t len_max,
                       struct weir_str *out)
{
    if (!json_is_string(value))
        return refuse(r, WEIR_ERR_INVALID, "%s must be a string", name);
    if (json_string_length(value) > len_max)
        return refuse(r, WEIR_ERR_TOO_LARGE, "%s has %zu bytes; at most %zu are allowed", name,
                      json_string_length(value), len_max);
    *out = (struct weir_str){.ptr = json_string_value(value), .len = json_string_length(value)};
    return 0;
}

/* Digits only.  False: no such number. */
static bool number_of_text(struct weir_str text, uint64_t *out)
{
    uint64_t number = 0;
    for (size_t i = 0; i < text.len; i++) {
        uint64_t digit = (uint64_t)(unsigned char)text.ptr[i] - '0';
        if (digit > 9 || number > (UINT64_MAX - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    *out = number;
    return text.len > 0;
}

static bool number_of(const json_t *value, uint64_t *out)
{
    if (json_is_string(value))
        return number_of_text(
            (struct weir_str){.ptr = json_string_value(value), .len = json_string_length(value)},
            out);
    if (json_is_integer(value) && json_integer_value(value) >= 0) {
        *out = (uint64_t)json_integer_value(value);
        return true;
    }
    if (json_is_real(value)) { /* 1.0 and 1e3 are whole numbers to protojson */
        double real = json_real_value(value);
        bool is_whole = real >= 0 && real <= 9007199254740992.0 && real == (double)(uint64_t)real;
        *out = is_whole ? (uint64_t)real : *out;
        return is_whole;
    }
    return false;
}

static int read_number(struct reading *r, const json_t *value, const char *name, uint64_t most,
                       uint64_t *out)
{
    uint64_t number = 0;
    if (!number_of(value, &number) || number > most)
        return refuse(r, WEIR_ERR_INVALID, "%s must be a whole number from 0 to %llu", name,
                      (unsigned long long)most);
    *out = number;
    return 0;
}

/* ---- entries ---- */

static int read_key(struct reading *r, const json_t *value)
{
    return read_string(r, value, "a key", WEIR_KEY_LEN_MAX, &r->entry->key);
}

static int read_value(struct reading *r, const json_t *value)
{
    return read_string(r, value, "a value", WEIR_VALUE_LEN_MAX, &r->entry->value);
}

static int read_entries(struct reading *r, const json_t *list)
{
    static const struct field fields[] = {{"key", "key", read_key}, {"value", "value", read_value}};
    if (!json_is_array(list))
        return refuse(r, WEIR_ERR_INVALID, "entries must be a list");
    size_t count = json_array_size(list);
    if (count > WEIR_ENTRIES_MAX)
        return refuse(r, WEIR_ERR_TOO_LARGE, "%zu entries; at most %d are allowed", count,
                      WEIR_ENTRIES_MAX);
    r->descriptor->entries = &r->json->entries[r->json->entry_count];
    r->descriptor->entry_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        r->entry = &r->json->entries[r->json->entry_count++];
        *r->entry = (struct weir_entry){.key = WEIR_STR(""), .value = WEIR_STR("")};
        int err = READ_MESSAGE(r, json_array_get(list, i), "an entry", fields);
        if (err)
            return err;
    }
    return 0;
}

/* ---- the request's own limit ---- */

static const char *const unit_names[] = {"UNKNOWN", "SECOND", "MINUTE", "HOUR",
                                         "DAY",     "MONTH",  "YEAR",   "WEEK"};
#define UNITS (sizeof(unit_names) / sizeof(unit_names[0]))

static int read_requests(struct reading *r, const json_t *value)
{
    uint64_t number = 0;
    int err = read_number(r, value, "requestsPerUnit", UINT32_MAX, &number);
    r->override->requests_per_unit = (uint32_t)number;
    return err;
}

/* An unknown number is no error in proto3; it is one of the engine's, which wants a real unit. */
static int read_unit(struct reading *r, const json_t *value)
{
    if (json_is_integer(value)) {
        json_int_t number = json_integer_value(value);
        bool is_known = number > 0 && number < (json_int_t)UNITS;
        r->override->unit = is_known ? (enum weir_unit)number : WEIR_UNIT_UNKNOWN;
        return 0;
    }
    for (size_t i = 0; json_is_string(value) && i < UNITS; i++) {
        if (strcmp(json_string_value(value), unit_names[i]) == 0) {
            r->override->unit = (enum weir_unit)i;
            return 0;
        }
    }
    return refuse(r, WEIR_ERR_INVALID,
                  "unit must be SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR, or its number");
}

static int read_limit(struct reading *r, const json_t *value)
{
    static const struct field fields[] = {
        {"requestsPerUnit", "requests_per_unit", read_requests},
        {"unit", "unit", read_unit},
    };
    *r->override = (struct weir_override){.unit = WEIR_UNIT_UNKNOWN};
    r->descriptor->override = r->override;
    return READ_MESSAGE(r, value, "limit", fields);
}

/* ---- descriptors ---- */

static int read_hits(struct reading *r, const json_t *value)
{
    r->descriptor->has_hits = true;
    return read_number(r, value, "hitsAddend", UINT64_MAX, &r->descriptor->hits);
}

static int read_is_negative(struct reading *r, const json_t *value)
{
    if (!json_is_boolean(value))
        return refuse(r, WEIR_ERR_INVALID, "isNegativeHits must be true or false");
    r->descriptor->is_negative_hits = json_is_true(value);
    return 0;
}

static int read_descriptors(struct reading *r, const json_t *list)
{
    static const struct field fields[] = {
        {"entries", "entries", read_entries},
        {"limit", "limit", read_limit},
        {"hitsAddend", "hits_addend", read_hits},
        {"isNegativeHits", "is_negative_hits", read_is_negative},
    };
    if (!json_is_array(list))
        return refuse(r, WEIR_ERR_INVALID, "descriptors must be a list");
    size_t count = json_array_size(list);
    if (count > WEIR_DESCRIPTORS_MAX)
        return refuse(r, WEIR_ERR_TOO_LARGE, "%zu descriptors; at most %d are allowed", count,
                      WEIR_DESCRIPTORS_MAX);
    r->json->request.descriptor_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        r->descriptor = &r->json->descriptors[i];
        r->override = &r->json->overrides[i];
        *r->descriptor = (struct weir_descriptor){.entries = r->json->entries};
        int err = READ_MESSAGE(r, json_array_get(list, i), "a descriptor", fields);
        if (err)
            return err;
    }
    return 0;
}

/* ---- the request ---- */

static int read_domain(struct reading *r, const json_t *value)
{
    return read_string(r, value, "domain", WEIR_DOMAIN_LEN_MAX, &r->json->request.domain);
}

static int read_request_hits(struct reading *r, const json_t *value)
{
    uint64_t number = 0;
    int err = read_number(r, value, "hitsAddend", UINT32_MAX, &number);
    r->json->request.hits_addend = (uint32_t)number;
    return err;
}

int weir_rls_json_parse(struct weir_rls_json *json, struct weir_str body, char *why, size_t why_len)
{
    static const struct field fields[] = {
        {"domain", "domain", read_domain},
        {"descriptors", "descriptors", read_descriptors},
        {"hitsAddend", "hits_addend", read_request_hits},
    };
    struct reading r = {.json = json, .why = why, .why_len = why_len};
    json_error_t error;
    json->request = (struct weir_request){.domain = WEIR_STR(""), .descriptors = json->descriptors};
    json->entry_count = 0;
    json->root = json_loadb(body.ptr, body.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!json->root)
        return refuse(&r, WEIR_ERR_INVALID, "not JSON: %s", error.text);
    return READ_MESSAGE(&r, json->root, "the request", fields);
}

void weir_rls_json_fini(struct weir_rls_json *json)
{
    json_decref(json->root);
    json->root = NULL;
}

/* ---- the answer ---- */

static uint64_t cap_u32(uint64_t number)
{
    return number < UINT32_MAX ? number : UINT32_MAX;
}

static void put_code(struct weir_text *to, enum weir_code code)
{
    if (code == WEIR_CODE_OK)
        WEIR_TEXT_PUT(to, "\"OK\"");
    else
        WEIR_TEXT_PUT(to, "\"OVER_LIMIT\"");
}

static void put_limit(struct weir_text *to, const struct weir_status *status)
{
    bool is_first = true;
    WEIR_TEXT_PUT(to, ",\"currentLimit\":{");
    if (status->rule && status->rule->name.len > 0) {
        WEIR_TEXT_PUT(to, "\"name\":\"");
        weir_text_put_json(to, status->rule->name);
        WEIR_TEXT_PUT(to, "\"");
        is_first = false;
    }
    if (status->limit > 0) {
        weir_text_put(to, is_first ? WEIR_STR("\"requestsPerUnit\":")
                                   : WEIR_STR(",\"requestsPerUnit\":"));
        weir_text_put_number(to, cap_u32(status->limit));
        is_first = false;
    }
    if ((size_t)status->unit < UNITS && status->unit != WEIR_UNIT_UNKNOWN) {
        weir_text_put(to, is_first ? WEIR_STR("\"unit\":\"") : WEIR_STR(",\"unit\":\""));
        weir_text_put(to, weir_str_of(unit_names[status->unit]));
        WEIR_TEXT_PUT(to, "\"");
    }
    WEIR_TEXT_PUT(to, "}");
}

static void put_status(struct weir_text *to, const struct weir_status *status)
{
    uint64_t remaining = status->is_unlimited ? UINT32_MAX
                         : status->is_limited ? cap_u32(status->remaining)
                                              : 0;
    WEIR_TEXT_PUT(to, "{\"code\":");
    put_code(to, status->code);
    if (status->is_limited)
        put_limit(to, status);
    if (remaining > 0) {
        WEIR_TEXT_PUT(to, ",\"limitRemaining\":");
        weir_text_put_number(to, remaining);
    }
    if (status->is_limited) {
        WEIR_TEXT_PUT(to, ",\"durationUntilReset\":\"");
        weir_text_put_number(to, weir_rls_reset_s(status));
        WEIR_TEXT_PUT(to, "s\"");
    }
    WEIR_TEXT_PUT(to, "}");
}

static void put_header(struct weir_text *to, struct weir_str key, uint64_t value)
{
    WEIR_TEXT_PUT(to, "{\"key\":\"");
    weir_text_put_json(to, key);
    WEIR_TEXT_PUT(to, "\",\"value\":\"");
    weir_text_put_number(to, value);
    WEIR_TEXT_PUT(to, "\"}");
}

static void put_headers(struct weir_text *to, const struct weir_rls_options *options,
                        const struct weir_status *told)
{
    WEIR_TEXT_PUT(to, ",\"responseHeadersToAdd\":[");
    put_header(to, options->limit_header, cap_u32(told->limit));
    WEIR_TEXT_PUT(to, ",");
    put_header(to, options->remaining_header, cap_u32(told->remaining));
    WEIR_TEXT_PUT(to, ",");
    put_header(to, options->reset_header, weir_rls_reset_s(told));
    WEIR_TEXT_PUT(to, "]");
}

/* Without memory for it the answer goes without, as over gRPC. */
static void put_metadata(struct weir_text *to, const struct weir_request *request,
                         const struct weir_decision *decision)
{
    char *text = weir_rls_metadata_json(request, decision);
    if (text) {
        WEIR_TEXT_PUT(to, ",\"dynamicMetadata\":");
        weir_text_put(to, weir_str_of(text));
    }
    free(text);
}

void weir_rls_json_write(struct weir_text *to, const struct weir_rls_options *options,
                         const struct weir_request *request, const struct weir_decision *decision)
{
    const struct weir_status *told = options->has_headers ? weir_rls_told(decision) : NULL;
    WEIR_TEXT_PUT(to, "{\"overallCode\":");
    put_code(to, decision->overall);
    WEIR_TEXT_PUT(to, ",\"statuses\":[");
    for (uint32_t i = 0; i < decision->status_count; i++) {
        if (i > 0)
            WEIR_TEXT_PUT(to, ",");
        put_status(to, &decision->statuses[i]);
    }
    WEIR_TEXT_PUT(to, "]");
    if (told)
        put_headers(to, options, told);
    if (options->has_metadata)
        put_metadata(to, request, decision);
    WEIR_TEXT_PUT(to, "}");
}
