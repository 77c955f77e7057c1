/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/rls.h"

#include "base/err.h"
#include "proto/pb.h"
#include "proto/rls_metadata.h"
#include "proto/utf8.h"

#include <stdio.h>

#define SECOND_NS UINT64_C(1000000000)

/* ---- requests ---- */

static int decode_entry(struct weir_str message, struct weir_entry *to)
{
    struct weir_pb_reader r = weir_pb_read(message);
    struct weir_pb_field field = {0};
    *to = (struct weir_entry){{"", 0}, {"", 0}};
    while (weir_pb_next(&r, &field)) {
        if (field.type != WEIR_PB_BYTES)
            continue;
        if (field.number == 1)
            to->key = field.bytes;
        else if (field.number == 2)
            to->value = field.bytes;
        else
            continue;
        if (!weir_utf8_is_valid(field.bytes))
            return WEIR_ERR_INVALID;
    }
    return r.is_bad ? WEIR_ERR_INVALID : 0;
}

static int decode_override(struct weir_str message, struct weir_override *to)
{
    struct weir_pb_reader r = weir_pb_read(message);
    struct weir_pb_field field = {0};
    while (weir_pb_next(&r, &field)) {
        if (field.type != WEIR_PB_VARINT)
            continue;
        uint32_t number = (uint32_t)field.varint;
        if (field.number == 1)
            to->requests_per_unit = number;
        else if (field.number == 2)
            to->unit = number <= WEIR_UNIT_WEEK ? (enum weir_unit)number : WEIR_UNIT_UNKNOWN;
    }
    return r.is_bad ? WEIR_ERR_INVALID : 0;
}

/* google.protobuf.UInt64Value */
static int decode_wrapped(struct weir_str message, uint64_t *to)
{
    struct weir_pb_reader r = weir_pb_read(message);
    struct weir_pb_field field = {0};
    while (weir_pb_next(&r, &field)) {
        if (field.number == 1 && field.type == WEIR_PB_VARINT)
            *to = field.varint;
    }
    return r.is_bad ? WEIR_ERR_INVALID : 0;
}

static int decode_descriptor_message(struct weir_rls_room *room, struct weir_descriptor *to,
                                     const struct weir_pb_field *field)
{
    struct weir_override *override = &room->overrides[to - room->descriptors];
    switch (field->number) {
    case 1:
        if (to->entry_count == WEIR_ENTRIES_MAX)
            return WEIR_ERR_TOO_LARGE;
        /* As many as all descriptors together may have: there is always one left. */
        to->entry_count++;
        return decode_entry(field->bytes, &room->entries[room->entry_count++]);
    case 2:
        if (!to->override)
            *override = (struct weir_override){0};
        to->override = override;
        return decode_override(field->bytes, override);
    case 3:
        to->has_hits = true;
        return decode_wrapped(field->bytes, &to->hits);
    default:
        return 0;
    }
}

static int decode_descriptor(struct weir_rls_room *room, struct weir_str message)
{
    struct weir_descriptor *to = &room->descriptors[room->descriptor_count++];
    struct weir_pb_reader r = weir_pb_read(message);
    struct weir_pb_field field = {0};
    *to = (struct weir_descriptor){.entries = &room->entries[room->entry_count]};
    while (weir_pb_next(&r, &field)) {
        if (field.type == WEIR_PB_BYTES) {
            int err = decode_descriptor_message(room, to, &field);
            if (err)
                return err;
        } else if (field.type == WEIR_PB_VARINT && field.number == 4) {
            to->is_negative_hits = field.varint != 0;
        }
    }
    return r.is_bad ? WEIR_ERR_INVALID : 0;
}

static int decode_request(struct weir_rls_room *room, struct weir_str message,
                          struct weir_request *to)
{
    struct weir_pb_reader r = weir_pb_read(message);
    struct weir_pb_field field = {0};
    while (weir_pb_next(&r, &field)) {
        int err = 0;
        if (field.number == 2 && field.type == WEIR_PB_BYTES) {
            if (to->descriptor_count == WEIR_DESCRIPTORS_MAX)
                return WEIR_ERR_TOO_LARGE;
            if (room->descriptor_count == WEIR_DESCRIPTORS_MAX)
                return WEIR_ERR_FULL;
            to->descriptor_count++;
            err = decode_descriptor(room, field.bytes);
        } else if (field.number == 1 && field.type == WEIR_PB_BYTES) {
            to->domain = field.bytes;
            err = weir_utf8_is_valid(field.bytes) ? 0 : WEIR_ERR_INVALID;
        } else if (field.number == 3 && field.type == WEIR_PB_VARINT) {
            to->hits_addend = (uint32_t)field.varint;
        }
        if (err)
            return err;
    }
    return r.is_bad ? WEIR_ERR_INVALID : 0;
}

int weir_rls_decode(struct weir_rls_room *room, struct weir_str message, struct weir_request *out)
{
    uint32_t descriptor_count = room->descriptor_count, entry_count = room->entry_count;
    struct weir_request request = {.domain = {"", 0},
                                   .descriptors = &room->descriptors[descriptor_count]};
    int err = decode_request(room, message, &request);
    if (err) {
        room->descriptor_count = descriptor_count;
        room->entry_count = entry_count;
        return err;
    }
    *out = request;
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

/* A DescriptorStatus, its numbers as they are written and the lengths of what is inside. */
struct status_form {
    struct weir_str name;
    uint32_t limit, remaining;
    uint64_t reset_s;
    size_t limit_len, reset_len, len;
};

static struct status_form form_of(const struct weir_status *s)
{
    struct status_form f = {.len = weir_pb_number_len((uint64_t)s->code)};
    if (!s->is_limited) {
        f.remaining = s->is_unlimited ? UINT32_MAX : 0;
        f.len += weir_pb_number_len(f.remaining);
        return f;
    }
    f.name = s->rule ? s->rule->name : (struct weir_str){"", 0};
    f.limit = cap_u32(s->limit);
    f.remaining = cap_u32(s->remaining);
    f.reset_s = weir_rls_reset_s(s);
    f.limit_len = weir_pb_number_len(f.limit) + weir_pb_number_len((uint64_t)s->unit) +
                  weir_pb_bytes_len(f.name);
    f.reset_len = weir_pb_number_len(f.reset_s);
    f.len += weir_pb_message_len(f.limit_len) + weir_pb_number_len(f.remaining) +
             weir_pb_message_len(f.reset_len);
    return f;
}

static uint8_t *put_status(uint8_t *to, const struct weir_status *s)
{
    struct status_form f = form_of(s);
    to = weir_pb_put_message(to, 2, f.len);
    to = weir_pb_put_number(to, 1, (uint64_t)s->code);
    if (s->is_limited) {
        to = weir_pb_put_message(to, 2, f.limit_len);
        to = weir_pb_put_number(to, 1, f.limit);
        to = weir_pb_put_number(to, 2, (uint64_t)s->unit);
        to = weir_pb_put_bytes(to, 3, f.name);
    }
    to = weir_pb_put_number(to, 3, f.remaining);
    if (s->is_limited) {
        to = weir_pb_put_message(to, 4, f.reset_len);
        to = weir_pb_put_number(to, 1, f.reset_s);
    }
    return to;
}

static struct weir_str number_of(const struct weir_rls_header *header)
{
    return (struct weir_str){header->number, header->number_len};
}

static size_t header_len(const struct weir_rls_header *header)
{
    return weir_pb_bytes_len(header->name) + weir_pb_bytes_len(number_of(header));
}

static void tell_headers(struct weir_rls_response *to, const struct weir_rls_options *options)
{
    const struct weir_status *status = weir_rls_told(to->decision);
    if (!status)
        return;
    const struct weir_str names[3] = {options->limit_header, options->remaining_header,
                                      options->reset_header};
    const uint64_t numbers[3] = {cap_u32(status->limit), cap_u32(status->remaining),
                                 weir_rls_reset_s(status)};
    for (int i = 0; i < 3; i++) {
        struct weir_rls_header *header = &to->headers[i];
        header->name = names[i];
        header->number_len = (size_t)snprintf(header->number, sizeof(header->number), "%llu",
                                              (unsigned long long)numbers[i]);
        to->len += weir_pb_message_len(header_len(header));
    }
    to->header_count = 3;
}

void weir_rls_respond(struct weir_rls_response *out, struct weir_bump *memory,
                      const struct weir_rls_options *options, const struct weir_request *request,
                      const struct weir_decision *decision)
{
    out->decision = decision;
    out->len = weir_pb_number_len((uint64_t)decision->overall);
    out->header_count = 0;
    out->metadata = NULL;
    for (uint32_t i = 0; i < decision->status_count; i++)
        out->len += weir_pb_message_len(form_of(&decision->statuses[i]).len);
    if (options->has_headers)
        tell_headers(out, options);
    if (options->has_metadata)
        out->metadata = weir_rls_metadata(memory, request, decision, &out->metadata_len);
    if (out->metadata)
        out->len += weir_pb_message_len(out->metadata_len);
}

void weir_rls_pack(const struct weir_rls_response *response, uint8_t *out)
{
    const struct weir_decision *decision = response->decision;
    uint8_t *to = weir_pb_put_number(out, 1, (uint64_t)decision->overall);
    for (uint32_t i = 0; i < decision->status_count; i++)
        to = put_status(to, &decision->statuses[i]);
    for (uint32_t i = 0; i < response->header_count; i++) {
        const struct weir_rls_header *header = &response->headers[i];
        to = weir_pb_put_message(to, 3, header_len(header));
        to = weir_pb_put_bytes(to, 1, header->name);
        to = weir_pb_put_bytes(to, 2, number_of(header));
    }
    if (response->metadata) {
        to = weir_pb_put_message(to, 6, response->metadata_len);
        to = weir_rls_metadata_pack(response->metadata, to);
    }
    WEIR_ASSERT(to == out + response->len);
}
