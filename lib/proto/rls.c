/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/rls.h"

#include "base/maxima.h"
#include "proto/rls_metadata.h"
#include "proto/utf8.h"
#include "rls.pb-c.h"

#include <stdio.h>
#include <string.h>

#define SECOND_NS UINT64_C(1000000000)
#define NUMBER_MAX 24 /* bytes of a number as text */

typedef Envoy__Service__Ratelimit__V3__RateLimitRequest pb_request;
typedef Envoy__Service__Ratelimit__V3__RateLimitResponse pb_response;
typedef Envoy__Service__Ratelimit__V3__RateLimitResponse__DescriptorStatus pb_status;
typedef Envoy__Service__Ratelimit__V3__RateLimitResponse__RateLimit pb_limit;
typedef Envoy__Extensions__Common__Ratelimit__V3__RateLimitDescriptor pb_descriptor;
typedef Envoy__Config__Core__V3__HeaderValue pb_header;
typedef Google__Protobuf__Duration pb_duration;

static void *bump_alloc(void *bump, size_t len)
{
    return weir_bump_alloc(bump, len);
}

static void bump_free(void *bump, void *ptr)
{
    (void)bump, (void)ptr; /* all at once, by the owner of the memory */
}

static struct weir_str str_of(ProtobufCBinaryData bytes)
{
    return (struct weir_str){.ptr = bytes.data ? (const char *)bytes.data : "", .len = bytes.len};
}

static ProtobufCBinaryData bytes_of(struct weir_str str)
{
    /* protobuf-c's type has no const, but packing only reads. */
    return (ProtobufCBinaryData){.len = str.len, .data = (uint8_t *)(uintptr_t)str.ptr};
}

/* ---- requests ---- */

static int decode_entries(const pb_descriptor *from, struct weir_entry *to)
{
    for (size_t i = 0; i < from->n_entries; i++) {
        to[i].key = str_of(from->entries[i]->key);
        to[i].value = str_of(from->entries[i]->value);
        if (!weir_utf8_is_valid(to[i].key) || !weir_utf8_is_valid(to[i].value))
            return WEIR_ERR_INVALID;
    }
    return 0;
}

static int decode_descriptor(struct weir_bump *memory, const pb_descriptor *from,
                             struct weir_descriptor *to)
{
    if (from->n_entries > WEIR_ENTRIES_MAX)
        return WEIR_ERR_TOO_LARGE;
    struct weir_entry *entries = WEIR_BUMP_ARRAY(memory, from->n_entries, struct weir_entry);
    if (!entries)
        return WEIR_ERR_TOO_LARGE;
    *to = (struct weir_descriptor){
        .entries = entries,
        .entry_count = (uint32_t)from->n_entries,
        .is_negative_hits = from->is_negative_hits != 0,
    };
    if (from->hits_addend) {
        to->has_hits = true;
        to->hits = from->hits_addend->value;
    }
    if (from->limit) {
        struct weir_override *override = WEIR_BUMP_ARRAY(memory, 1, struct weir_override);
        if (!override)
            return WEIR_ERR_TOO_LARGE;
        int32_t unit = from->limit->unit;
        bool is_known = unit > WEIR_UNIT_UNKNOWN && unit <= WEIR_UNIT_WEEK;
        override->requests_per_unit = from->limit->requests_per_unit;
        override->unit = is_known ? (enum weir_unit)unit : WEIR_UNIT_UNKNOWN;
        to->override = override;
    }
    return decode_entries(from, entries);
}

int weir_rls_decode(struct weir_bump *memory, struct weir_str message, struct weir_request *out)
{
    ProtobufCAllocator allocator = {bump_alloc, bump_free, memory};
    pb_request *from = envoy__service__ratelimit__v3__rate_limit_request__unpack(
        &allocator, message.len, (const uint8_t *)message.ptr);
    if (!from)
        return memory->has_failed ? WEIR_ERR_TOO_LARGE : WEIR_ERR_INVALID;
    if (from->n_descriptors > WEIR_DESCRIPTORS_MAX)
        return WEIR_ERR_TOO_LARGE;
    struct weir_descriptor *descriptors =
        WEIR_BUMP_ARRAY(memory, from->n_descriptors, struct weir_descriptor);
    if (!descriptors)
        return WEIR_ERR_TOO_LARGE;
    struct weir_str domain = str_of(from->domain);
    if (!weir_utf8_is_valid(domain))
        return WEIR_ERR_INVALID;
    for (size_t i = 0; i < from->n_descriptors; i++) {
        int err = decode_descriptor(memory, from->descriptors[i], &descriptors[i]);
        if (err)
            return err;
    }
    *out = (struct weir_request){
        .domain = domain,
        .descriptors = descriptors,
        .descriptor_count = (uint32_t)from->n_descriptors,
        .hits_addend = from->hits_addend,
    };
    return 0;
}

/* ---- responses ---- */

static uint32_t cap_u32(uint64_t number)
{
    return number < UINT32_MAX ? (uint32_t)number : UINT32_MAX;
}

uint64_t weir_rls_reset_s(const struct weir_status *status)
{
    return status->reset_after_ns / SECOND_NS + (status->reset_after_ns % SECOND_NS > 0);
}

const struct weir_status *weir_rls_told(const struct weir_decision *decision)
{
    const struct weir_status *over = NULL, *least = NULL;
    for (uint32_t i = 0; i < decision->status_count; i++) {
        const struct weir_status *s = &decision->statuses[i];
        if (!s->is_limited)
            continue;
        if (s->code == WEIR_CODE_OVER_LIMIT && !s->is_quota)
            over = s;
        if (!least || s->remaining < least->remaining)
            least = s;
    }
    return over ? over : least;
}

/* One status and what it points to, in one piece. */
struct told_status {
    pb_status status;
    pb_limit limit;
    pb_duration reset;
};

static void tell_status(struct told_status *to, const struct weir_status *from)
{
    envoy__service__ratelimit__v3__rate_limit_response__descriptor_status__init(&to->status);
    to->status.code = (int32_t)from->code;
    if (from->is_unlimited)
        to->status.limit_remaining = UINT32_MAX;
    if (!from->is_limited)
        return;
    envoy__service__ratelimit__v3__rate_limit_response__rate_limit__init(&to->limit);
    google__protobuf__duration__init(&to->reset);
    to->status.limit_remaining = cap_u32(from->remaining);
    to->status.current_limit = &to->limit;
    to->status.duration_until_reset = &to->reset;
    to->limit.requests_per_unit = cap_u32(from->limit);
    to->limit.unit = (int32_t)from->unit;
    if (from->rule)
        to->limit.name = bytes_of(from->rule->name);
    to->reset.seconds = (int64_t)weir_rls_reset_s(from);
}

static int tell_statuses(struct weir_bump *memory, const struct weir_decision *decision,
                         pb_response *to)
{
    uint32_t count = decision->status_count;
    struct told_status *told = WEIR_BUMP_ARRAY(memory, count, struct told_status);
    pb_status **list = WEIR_BUMP_ARRAY(memory, count, pb_status *);
    if (!told || !list)
        return WEIR_ERR_TOO_LARGE;
    for (uint32_t i = 0; i < count; i++) {
        tell_status(&told[i], &decision->statuses[i]);
        list[i] = &told[i].status;
    }
    to->n_statuses = count;
    to->statuses = list;
    return 0;
}

struct told_headers {
    pb_header headers[3];
    pb_header *list[3];
    char numbers[3][NUMBER_MAX];
};

static int tell_headers(struct weir_bump *memory, const struct weir_rls_options *options,
                        const struct weir_decision *decision, pb_response *to)
{
    const struct weir_status *status = weir_rls_told(decision);
    if (!status)
        return 0;
    struct told_headers *told = WEIR_BUMP_ARRAY(memory, 1, struct told_headers);
    if (!told)
        return WEIR_ERR_TOO_LARGE;
    const struct weir_str names[3] = {options->limit_header, options->remaining_header,
                                      options->reset_header};
    const uint64_t numbers[3] = {status->limit, cap_u32(status->remaining),
                                 weir_rls_reset_s(status)};
    for (int i = 0; i < 3; i++) {
        int len = snprintf(told->numbers[i], NUMBER_MAX, "%llu", (unsigned long long)numbers[i]);
        envoy__config__core__v3__header_value__init(&told->headers[i]);
        told->headers[i].key = bytes_of(names[i]);
        told->headers[i].value = bytes_of((struct weir_str){told->numbers[i], (size_t)len});
        told->list[i] = &told->headers[i];
    }
    to->n_response_headers_to_add = 3;
    to->response_headers_to_add = told->list;
    return 0;
}

int weir_rls_respond(struct weir_bump *memory, const struct weir_rls_options *options,
                     const struct weir_request *request, const struct weir_decision *decision,
                     struct weir_rls_response **out, size_t *len)
{
    pb_response *to = WEIR_BUMP_ARRAY(memory, 1, pb_response);
    if (!to)
        return WEIR_ERR_TOO_LARGE;
    envoy__service__ratelimit__v3__rate_limit_response__init(to);
    to->overall_code = (int32_t)decision->overall;
    int err = tell_statuses(memory, decision, to);
    if (!err && options->has_headers)
        err = tell_headers(memory, options, decision, to);
    if (err)
        return err;
    if (options->has_metadata)
        to->dynamic_metadata = weir_rls_metadata(memory, request, decision);
    *out = (struct weir_rls_response *)to;
    *len = envoy__service__ratelimit__v3__rate_limit_response__get_packed_size(to);
    return 0;
}

void weir_rls_pack(const struct weir_rls_response *response, uint8_t *out)
{
    (void)envoy__service__ratelimit__v3__rate_limit_response__pack((const pb_response *)response,
                                                                   out);
}
