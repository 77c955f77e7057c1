/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/rls_json.h"

#include "base/str.h"
#include "proto/json_read.h"
#include "proto/rls_metadata.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define REAL_LEN_MAX 63 /* of a number with a point or an exponent */

/* A request that is being read. */
struct reading {
    struct weir_json in;
    struct weir_rls_json *json;
    struct weir_descriptor *descriptor;
    struct weir_override *override;
    struct weir_entry *entry;
    char *why;
    size_t why_len;
};

/* One field of a message: both its names, and who reads it. */
struct field {
    struct weir_str name, other_name;
    int (*read)(struct reading *r);
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

static int refuse_text(struct reading *r)
{
    return refuse(r, WEIR_ERR_INVALID, "not JSON: %s",
                  r->in.fault ? r->in.fault : "a value is missing");
}

/* 0 where a value of this kind comes next. */
static int expect(struct reading *r, enum weir_json_kind kind, const char *what, const char *is)
{
    enum weir_json_kind found = weir_json_kind(&r->in);
    if (found == kind)
        return 0;
    if (found == WEIR_JSON_NONE)
        return refuse_text(r);
    return refuse(r, WEIR_ERR_INVALID, "%s must be %s", what, is);
}

/* One member of an object, by the table of its fields; seen has a bit for each that came before. */
static int read_member(struct reading *r, const char *what, const struct field *fields,
                       size_t field_count, uint32_t *seen)
{
    struct weir_str name;
    size_t i = 0;
    if (!weir_json_name(&r->in, &name))
        return refuse_text(r);
    while (i < field_count && !weir_str_eq(name, fields[i].name) &&
           !weir_str_eq(name, fields[i].other_name))
        i++;
    if (i == field_count)
        return refuse(r, WEIR_ERR_INVALID, "%s has no field '%.*s'", what,
                      (int)(name.len < 40 ? name.len : 40), name.ptr);
    if (*seen & 1u << i)
        return refuse(r, WEIR_ERR_INVALID, "%s has '%s' twice", what, fields[i].name.ptr);
    *seen |= 1u << i;
    if (weir_json_kind(&r->in) != WEIR_JSON_NULL)
        return fields[i].read(r);
    return weir_json_word(&r->in) ? 0 : refuse_text(r);
}

static int read_message(struct reading *r, const char *what, const struct field *fields,
                        size_t field_count)
{
    uint32_t seen = 0;
    int err = expect(r, WEIR_JSON_OBJECT, what, "an object");
    if (err)
        return err;
    for (bool more = weir_json_open(&r->in, '{'); more; more = weir_json_more(&r->in, '}')) {
        err = read_member(r, what, fields, field_count, &seen);
        if (err)
            return err;
    }
    return r->in.fault ? refuse_text(r) : 0;
}

#define READ_MESSAGE(r, what, fields)                                                              \
    read_message((r), (what), (fields), sizeof(fields) / sizeof((fields)[0]))
#define FIELD(name, other_name, read)                                                              \
    {                                                                                              \
        {(name), sizeof(name) - 1}, {(other_name), sizeof(other_name) - 1}, (read)                 \
    }

/* ---- plain values ---- */

static int read_string(struct reading *r, const char *name, size_t len_max, struct weir_str *out)
{
    int err = expect(r, WEIR_JSON_STRING, name, "a string");
    if (err)
        return err;
    if (!weir_json_string(&r->in, out))
        return refuse_text(r);
    if (out->len > len_max)
        return refuse(r, WEIR_ERR_TOO_LARGE, "%s has %zu bytes; at most %zu are allowed", name,
                      out->len, len_max);
    return 0;
}

/* Digits only.  False: no such number. */
static bool number_of_digits(struct weir_str text, uint64_t *out)
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

/* 1.0 and 1e3 are whole numbers to protojson. */
static bool number_of_real(struct weir_str text, uint64_t *out)
{
    char copy[REAL_LEN_MAX + 1];
    if (text.len > REAL_LEN_MAX)
        return false;
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    double real = strtod(copy, NULL);
    if (!(real >= 0 && real <= 9007199254740992.0) || real != (double)(uint64_t)real)
        return false;
    *out = (uint64_t)real;
    return true;
}

static int read_number(struct reading *r, const char *name, uint64_t most, uint64_t *out)
{
    struct weir_str text = {.ptr = NULL};
    uint64_t number = 0;
    enum weir_json_kind kind = weir_json_kind(&r->in);
    if ((kind == WEIR_JSON_STRING && !weir_json_string(&r->in, &text)) ||
        (kind == WEIR_JSON_NUMBER && !weir_json_number(&r->in, &text)) || kind == WEIR_JSON_NONE)
        return refuse_text(r);
    bool is_good = number_of_digits(text, &number) ||
                   (kind == WEIR_JSON_NUMBER && number_of_real(text, &number));
    if (!is_good || number > most)
        return refuse(r, WEIR_ERR_INVALID, "%s must be a whole number from 0 to %llu", name,
                      (unsigned long long)most);
    *out = number;
    return 0;
}

/* ---- entries ---- */

static int read_key(struct reading *r)
{
    return read_string(r, "a key", WEIR_KEY_LEN_MAX, &r->entry->key);
}

static int read_value(struct reading *r)
{
    return read_string(r, "a value", WEIR_VALUE_LEN_MAX, &r->entry->value);
}

static int read_entries(struct reading *r)
{
    static const struct field fields[] = {FIELD("key", "key", read_key),
                                          FIELD("value", "value", read_value)};
    int err = expect(r, WEIR_JSON_ARRAY, "entries", "a list");
    if (err)
        return err;
    r->descriptor->entries = &r->json->entries[r->json->entry_count];
    for (bool more = weir_json_open(&r->in, '['); more; more = weir_json_more(&r->in, ']')) {
        if (r->descriptor->entry_count++ == WEIR_ENTRIES_MAX)
            return refuse(r, WEIR_ERR_TOO_LARGE, "more entries than %d", WEIR_ENTRIES_MAX);
        r->entry = &r->json->entries[r->json->entry_count++];
        *r->entry = (struct weir_entry){.key = WEIR_STR(""), .value = WEIR_STR("")};
        err = READ_MESSAGE(r, "an entry", fields);
        if (err)
            return err;
    }
    return r->in.fault ? refuse_text(r) : 0;
}

/* ---- the request's own limit ---- */

static const char *const unit_names[] = {"UNKNOWN", "SECOND", "MINUTE", "HOUR",
                                         "DAY",     "MONTH",  "YEAR",   "WEEK"};
#define UNITS (sizeof(unit_names) / sizeof(unit_names[0]))

static int read_requests(struct reading *r)
{
    uint64_t number = 0;
    int err = read_number(r, "requestsPerUnit", UINT32_MAX, &number);
    r->override->requests_per_unit = (uint32_t)number;
    return err;
}

static bool is_whole(struct weir_str number)
{
    for (size_t i = 0; i < number.len; i++)
        if (number.ptr[i] != '-' && (number.ptr[i] < '0' || number.ptr[i] > '9'))
            return false;
    return true;
}

/* An unknown number is no error in proto3; it is one of the engine's, which wants a real unit. */
static bool unit_of_number(struct weir_str text, enum weir_unit *out)
{
    uint64_t number = 0;
    bool is_known = number_of_digits(text, &number) && number < UNITS;
    *out = is_known ? (enum weir_unit)number : WEIR_UNIT_UNKNOWN;
    return is_whole(text);
}

static bool unit_of_name(struct weir_str text, enum weir_unit *out)
{
    size_t i = 0;
    while (i < UNITS && !weir_str_eq(text, weir_str_of(unit_names[i])))
        i++;
    *out = i < UNITS ? (enum weir_unit)i : WEIR_UNIT_UNKNOWN;
    return i < UNITS;
}

static int read_unit(struct reading *r)
{
    struct weir_str text;
    enum weir_json_kind kind = weir_json_kind(&r->in);
    bool is_good = false;
    if (kind == WEIR_JSON_NUMBER && weir_json_number(&r->in, &text))
        is_good = unit_of_number(text, &r->override->unit);
    else if (kind == WEIR_JSON_STRING && weir_json_string(&r->in, &text))
        is_good = unit_of_name(text, &r->override->unit);
    if (r->in.fault || kind == WEIR_JSON_NONE)
        return refuse_text(r);
    if (!is_good)
        return refuse(r, WEIR_ERR_INVALID,
                      "unit must be SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR, or its number");
    return 0;
}

static int read_limit(struct reading *r)
{
    static const struct field fields[] = {
        FIELD("requestsPerUnit", "requests_per_unit", read_requests),
        FIELD("unit", "unit", read_unit),
    };
    *r->override = (struct weir_override){.unit = WEIR_UNIT_UNKNOWN};
    r->descriptor->override = r->override;
    return READ_MESSAGE(r, "limit", fields);
}

/* ---- descriptors ---- */

static int read_hits(struct reading *r)
{
    r->descriptor->has_hits = true;
    return read_number(r, "hitsAddend", UINT64_MAX, &r->descriptor->hits);
}

static int read_is_negative(struct reading *r)
{
    enum weir_json_kind kind = weir_json_kind(&r->in);
    if (kind != WEIR_JSON_TRUE && kind != WEIR_JSON_FALSE)
        return expect(r, WEIR_JSON_TRUE, "isNegativeHits", "true or false");
    r->descriptor->is_negative_hits = kind == WEIR_JSON_TRUE;
    return weir_json_word(&r->in) ? 0 : refuse_text(r);
}

static int read_descriptors(struct reading *r)
{
    static const struct field fields[] = {
        FIELD("entries", "entries", read_entries),
        FIELD("limit", "limit", read_limit),
        FIELD("hitsAddend", "hits_addend", read_hits),
        FIELD("isNegativeHits", "is_negative_hits", read_is_negative),
    };
    int err = expect(r, WEIR_JSON_ARRAY, "descriptors", "a list");
    if (err)
        return err;
    for (bool more = weir_json_open(&r->in, '['); more; more = weir_json_more(&r->in, ']')) {
        uint32_t i = r->json->request.descriptor_count++;
        if (i == WEIR_DESCRIPTORS_MAX)
            return refuse(r, WEIR_ERR_TOO_LARGE, "more descriptors than %d", WEIR_DESCRIPTORS_MAX);
        r->descriptor = &r->json->descriptors[i];
        r->override = &r->json->overrides[i];
        *r->descriptor = (struct weir_descriptor){.entries = r->json->entries};
        err = READ_MESSAGE(r, "a descriptor", fields);
        if (err)
            return err;
    }
    return r->in.fault ? refuse_text(r) : 0;
}

/* ---- the request ---- */

static int read_domain(struct reading *r)
{
    return read_string(r, "domain", WEIR_DOMAIN_LEN_MAX, &r->json->request.domain);
}

static int read_request_hits(struct reading *r)
{
    uint64_t number = 0;
    int err = read_number(r, "hitsAddend", UINT32_MAX, &number);
    r->json->request.hits_addend = (uint32_t)number;
    return err;
}

static int read_request(struct reading *r)
{
    static const struct field fields[] = {
        FIELD("domain", "domain", read_domain),
        FIELD("descriptors", "descriptors", read_descriptors),
        FIELD("hitsAddend", "hits_addend", read_request_hits),
    };
    struct weir_rls_json *json = r->json;
    json->request = (struct weir_request){.domain = WEIR_STR(""), .descriptors = json->descriptors};
    json->entry_count = 0;
    int err = READ_MESSAGE(r, "the request", fields);
    if (err == 0 && !weir_json_end(&r->in))
        err = refuse_text(r);
    return err;
}

/* alloc: for more escaped strings than anybody sends; then once, for all of them. */
int weir_rls_json_parse(struct weir_rls_json *json, struct weir_str body, char *why, size_t why_len)
{
    struct reading r = {.json = json, .why = why, .why_len = why_len};
    json->large = NULL;
    r.in = weir_json_of(body, json->space, sizeof(json->space));
    int err = read_request(&r);
    if (err == 0 || !r.in.is_short_of_space)
        return err;
    json->large = malloc(body.len);
    if (json->large == NULL)
        return refuse(&r, WEIR_ERR_NOMEM, "out of memory");
    r.in = weir_json_of(body, json->large, body.len);
    return read_request(&r);
}

void weir_rls_json_fini(struct weir_rls_json *json)
{
    free(json->large);
    json->large = NULL;
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
