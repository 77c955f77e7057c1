/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/request_json.h"

#include "base/err.h"
#include "base/str.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>

/* Where in the line we are, so that a refusal can name the place. */
struct place {
    char *why;
    size_t why_len;
    size_t descriptor; /* SIZE_MAX: not inside one */
    size_t entry;      /* SIZE_MAX: not inside one */
};

__attribute__((format(printf, 3, 4))) static int refuse(const struct place *at, int err,
                                                        const char *format, ...)
{
    char text[160];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (at->descriptor == SIZE_MAX)
        snprintf(at->why, at->why_len, "%s", text);
    else if (at->entry == SIZE_MAX)
        snprintf(at->why, at->why_len, "descriptors[%zu]: %s", at->descriptor, text);
    else
        snprintf(at->why, at->why_len, "descriptors[%zu].entries[%zu]: %s", at->descriptor,
                 at->entry, text);
    return err;
}

static struct weir_str str_of(const json_t *string)
{
    return (struct weir_str){.ptr = json_string_value(string), .len = json_string_length(string)};
}

static int read_string(const struct place *at, const json_t *value, const char *name,
                       size_t len_max, struct weir_str *out)
{
    if (!json_is_string(value))
        return refuse(at, WEIR_ERR_INVALID, "%s must be a string", name);
    if (json_string_length(value) > len_max)
        return refuse(at, WEIR_ERR_TOO_LARGE, "%s has %zu bytes; at most %zu are allowed", name,
                      json_string_length(value), len_max);
    *out = str_of(value);
    return 0;
}

/* One entry, as [key, value] or {"key": key, "value": value}. */
static int read_entry(const struct place *at, const json_t *value, struct weir_entry *out)
{
    struct weir_entry entry = {0};
    const json_t *key_json, *value_json;
    if (json_is_array(value) && json_array_size(value) == 2) {
        key_json = json_array_get(value, 0);
        value_json = json_array_get(value, 1);
    } else if (json_is_object(value)) {
        key_json = json_object_get(value, "key");
        value_json = json_object_get(value, "value");
    } else {
        return refuse(at, WEIR_ERR_INVALID,
                      "an entry must be [key, value] or {\"key\": ..., \"value\": ...}");
    }
    int err = read_string(at, key_json, "the key", WEIR_KEY_LEN_MAX, &entry.key);
    if (err == 0)
        err = read_string(at, value_json, "the value", WEIR_VALUE_LEN_MAX, &entry.value);
    if (err != 0)
        return err;
    if (entry.key.len == 0)
        return refuse(at, WEIR_ERR_INVALID, "the key is empty");
    *out = entry;
    return 0;
}

static int read_entries(struct place at, const json_t *list, struct weir_entry *out,
                        uint32_t *count)
{
    if (!json_is_array(list))
        return refuse(&at, WEIR_ERR_INVALID, "entries must be a list");
    size_t size = json_array_size(list);
    if (size == 0)
        return refuse(&at, WEIR_ERR_INVALID, "entries must not be empty");
    if (size > WEIR_ENTRIES_MAX)
        return refuse(&at, WEIR_ERR_TOO_LARGE, "%zu entries; at most %d are allowed", size,
                      WEIR_ENTRIES_MAX);
    for (at.entry = 0; at.entry < size; at.entry++) {
        int err = read_entry(&at, json_array_get(list, at.entry), &out[at.entry]);
        if (err != 0)
            return err;
    }
    *count = (uint32_t)size;
    return 0;
}

static int read_hits(const struct place *at, const json_t *value, struct weir_descriptor *out)
{
    if (!json_is_integer(value))
        return refuse(at, WEIR_ERR_INVALID, "hits must be a whole number");
    json_int_t hits = json_integer_value(value);
    out->has_hits = true;
    out->is_negative_hits = hits < 0;
    out->hits = hits < 0 ? 0 - (uint64_t)hits : (uint64_t)hits;
    return 0;
}

static enum weir_unit unit_of(const json_t *value)
{
    static const struct {
        const char *name;
        enum weir_unit unit;
    } units[] = {
        {"second", WEIR_UNIT_SECOND}, {"minute", WEIR_UNIT_MINUTE}, {"hour", WEIR_UNIT_HOUR},
        {"day", WEIR_UNIT_DAY},       {"week", WEIR_UNIT_WEEK},     {"month", WEIR_UNIT_MONTH},
        {"year", WEIR_UNIT_YEAR},
    };
    if (!json_is_string(value))
        return WEIR_UNIT_UNKNOWN;
    /* Envoy's enum is in capitals, rules files are not. */
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (strcasecmp(json_string_value(value), units[i].name) == 0)
            return units[i].unit;
    return WEIR_UNIT_UNKNOWN;
}

static int read_override(const struct place *at, const json_t *value, struct weir_override *out)
{
    if (!json_is_object(value))
        return refuse(at, WEIR_ERR_INVALID,
                      "limit must be {\"requests_per_unit\": ..., \"unit\": ...}");
    const json_t *requests = json_object_get(value, "requests_per_unit");
    if (!json_is_integer(requests) || json_integer_value(requests) < 0 ||
        json_integer_value(requests) > UINT32_MAX)
        return refuse(at, WEIR_ERR_INVALID,
                      "limit.requests_per_unit must be a whole number from 0 to %u", UINT32_MAX);
    out->requests_per_unit = (uint32_t)json_integer_value(requests);
    out->unit = unit_of(json_object_get(value, "unit"));
    if (out->unit == WEIR_UNIT_UNKNOWN)
        return refuse(at, WEIR_ERR_INVALID,
                      "limit.unit must be second, minute, hour, day, week, month or year");
    return 0;
}

/* hits: the request's, for a descriptor without its own; NULL where the request has none. */
static int read_descriptor(const struct place *at, const json_t *value, const json_t *hits,
                           struct weir_override *override, struct weir_entry *entries,
                           struct weir_descriptor *out)
{
    if (!json_is_object(value))
        return refuse(at, WEIR_ERR_INVALID, "a descriptor must be an object");
    *out = (struct weir_descriptor){.entries = entries};
    const json_t *own_hits = json_object_get(value, "hits");
    const json_t *limit = json_object_get(value, "limit");
    int err = read_entries(*at, json_object_get(value, "entries"), entries, &out->entry_count);
    if (err == 0 && (own_hits != NULL || hits != NULL))
        err = read_hits(at, own_hits != NULL ? own_hits : hits, out);
    if (err == 0 && limit != NULL && !json_is_null(limit)) {
        err = read_override(at, limit, override);
        out->override = override;
    }
    return err;
}

static int read_descriptors(struct weir_request_json *json, struct place at, const json_t *list)
{
    const json_t *hits = json_object_get(json->root, "hits");
    struct weir_entry *free_entries = json->entries;
    if (!json_is_array(list))
        return refuse(&at, WEIR_ERR_INVALID, "descriptors must be a list");
    size_t size = json_array_size(list);
    if (size > WEIR_DESCRIPTORS_MAX)
        return refuse(&at, WEIR_ERR_TOO_LARGE, "%zu descriptors; at most %d are allowed", size,
                      WEIR_DESCRIPTORS_MAX);
    for (size_t i = 0; i < size; i++) {
        at.descriptor = i;
        int err = read_descriptor(&at, json_array_get(list, i), hits, &json->overrides[i],
                                  free_entries, &json->descriptors[i]);
        if (err != 0)
            return err;
        free_entries += json->descriptors[i].entry_count;
    }
    json->request.descriptors = json->descriptors;
    json->request.descriptor_count = (uint32_t)size;
    return 0;
}

static int read_request(struct weir_request_json *json, const struct place *at)
{
    const json_t *root = json->root;
    const json_t *now = json_object_get(root, "t_ns");
    if (!json_is_object(root))
        return refuse(at, WEIR_ERR_INVALID, "a request must be an object");
    if (!json_is_integer(now) || json_integer_value(now) < 0)
        return refuse(at, WEIR_ERR_INVALID,
                      "t_ns must be a whole number of nanoseconds since 1970, from 0 on");
    json->now_ns = (uint64_t)json_integer_value(now);
    json->request = (struct weir_request){.hits_addend = 0};
    int err = read_string(at, json_object_get(root, "domain"), "domain", WEIR_DOMAIN_LEN_MAX,
                          &json->request.domain);
    if (err == 0)
        err = read_descriptors(json, *at, json_object_get(root, "descriptors"));
    json->expect = json_object_get(root, "expect");
    return err;
}

void weir_request_json_init(struct weir_request_json *json)
{
    json->root = NULL;
    json->expect = NULL;
}

int weir_request_json_parse(struct weir_request_json *json, struct weir_str line, char *why,
                            size_t why_len)
{
    struct place at = {.why = why, .why_len = why_len, .descriptor = SIZE_MAX, .entry = SIZE_MAX};
    json_error_t error;
    weir_request_json_fini(json);
    if (line.len > WEIR_REQUEST_JSON_LEN_MAX)
        return refuse(&at, WEIR_ERR_TOO_LARGE, "the line has %zu bytes; at most %u are allowed",
                      line.len, WEIR_REQUEST_JSON_LEN_MAX);
    json->root = json_loadb(line.ptr, line.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (json->root == NULL)
        return refuse(&at, WEIR_ERR_INVALID, "not JSON: %s (column %d)", error.text, error.column);
    return read_request(json, &at);
}

void weir_request_json_fini(struct weir_request_json *json)
{
    json_decref(json->root);
    weir_request_json_init(json);
}

const char *weir_code_name(enum weir_code code)
{
    return code == WEIR_CODE_OK ? "OK" : "OVER_LIMIT";
}

/* ---- writing: no printf, since replay writes millions of these ---- */

static char *put_text(char *to, const char *text)
{
    size_t len = strlen(text);
    memcpy(to, text, len);
    return to + len;
}

static char *put_number(char *to, uint64_t number)
{
    char digits[20];
    size_t len = 0;
    do {
        digits[len++] = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    while (len > 0)
        *to++ = digits[--len];
    return to;
}

static char *put_status(char *to, const struct weir_status *status)
{
    to = put_text(to, "{\"code\": \"");
    to = put_text(to, weir_code_name(status->code));
    to = put_text(to, "\"");
    if (status->is_limited) {
        to = put_number(put_text(to, ", \"limit\": "), status->limit);
        to = put_number(put_text(to, ", \"remaining\": "), status->remaining);
        to = put_number(put_text(to, ", \"reset_after_ns\": "), status->reset_after_ns);
        to = put_text(to, ", \"retry_after_ns\": ");
        to = status->retry_after_ns == WEIR_NEVER ? put_text(to, "null")
                                                  : put_number(to, status->retry_after_ns);
        to = put_number(put_text(to, ", \"delay_ns\": "), status->delay_ns);
    }
    return put_text(to, "}");
}

size_t weir_decision_json_write(const struct weir_decision *decision, char *buf)
{
    char *to = buf;
    WEIR_ASSERT(decision->status_count <= WEIR_DESCRIPTORS_MAX);
    to = put_text(to, "{\"overall\": \"");
    to = put_text(to, weir_code_name(decision->overall));
    to = put_text(to, "\", \"statuses\": [");
    for (uint32_t i = 0; i < decision->status_count; i++) {
        if (i > 0)
            to = put_text(to, ", ");
        to = put_status(to, &decision->statuses[i]);
    }
    to = put_text(to, "]}");
    return (size_t)(to - buf);
}
