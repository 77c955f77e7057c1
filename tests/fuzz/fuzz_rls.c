/* fuzz_rls.c - any bytes as a RateLimitRequest: a request or a refusal, never a crash.
 *
 * And the same request as protobuf-c makes of them, which knows nothing of our decoder: whatever it
 * accepts within the maxima, we accept and read alike.  Not the other way round: it refuses known
 * fields of a wrong type, which we skip.  And not where a field that may be there once is there
 * twice: messages are merged then, but protobuf-c loses numbers, and text that is overwritten must
 * be UTF-8 for us.  What is decoded is answered, and the answer must be a RateLimitResponse for
 * protobuf-c.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/str.h"
#include "proto/pb.h"
#include "proto/rls.h"
#include "proto/utf8.h"
#include "rls.pb-c.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

typedef Envoy__Service__Ratelimit__V3__RateLimitRequest pb_request;
typedef Envoy__Service__Ratelimit__V3__RateLimitResponse pb_response;
typedef Envoy__Extensions__Common__Ratelimit__V3__RateLimitDescriptor pb_descriptor;

static struct weir_rls_room room; /* large, and made to be used again */

static struct weir_str str_of(ProtobufCBinaryData bytes)
{
    return (struct weir_str){.ptr = (const char *)bytes.data, .len = bytes.len};
}

static bool is_within(const pb_request *from)
{
    if (from->n_descriptors > WEIR_DESCRIPTORS_MAX || !weir_utf8_is_valid(str_of(from->domain)))
        return false;
    for (size_t i = 0; i < from->n_descriptors; i++) {
        const pb_descriptor *d = from->descriptors[i];
        if (d->n_entries > WEIR_ENTRIES_MAX)
            return false;
        for (size_t k = 0; k < d->n_entries; k++) {
            if (!weir_utf8_is_valid(str_of(d->entries[k]->key)) ||
                !weir_utf8_is_valid(str_of(d->entries[k]->value)))
                return false;
        }
    }
    return true;
}

/* Whether a field that may be there once is there twice, or one has a number that cannot be: in a
 * request (depth 0), a descriptor (1) or an entry (2). */
static bool is_beyond_compare(struct weir_str message, int depth)
{
    static const uint32_t lists[] = {2, 1, 0}; /* the field that may be there often */
    struct weir_pb_reader r = weir_pb_read(message);
    struct weir_pb_field field = {0};
    uint32_t seen = 0;
    while (weir_pb_next(&r, &field)) {
        if (depth == 1 && field.number == 4 && field.type != WEIR_PB_VARINT)
            return true; /* protobuf-c reads a bool from whatever is there */
        if (field.number == lists[depth]) {
            if (field.type == WEIR_PB_BYTES && is_beyond_compare(field.bytes, depth + 1))
                return true;
        } else if (field.number < 32) {
            if (seen & 1u << field.number)
                return true;
            seen |= 1u << field.number;
        }
    }
    return r.is_bad; /* of field numbers that cannot be, protobuf-c keeps the lower bits */
}

static void compare_descriptor(const struct weir_descriptor *ours, const pb_descriptor *theirs)
{
    WEIR_ASSERT(ours->entry_count == theirs->n_entries);
    for (uint32_t i = 0; i < ours->entry_count; i++) {
        WEIR_ASSERT(weir_str_eq(ours->entries[i].key, str_of(theirs->entries[i]->key)));
        WEIR_ASSERT(weir_str_eq(ours->entries[i].value, str_of(theirs->entries[i]->value)));
    }
    WEIR_ASSERT(ours->is_negative_hits == (theirs->is_negative_hits != 0));
    WEIR_ASSERT(ours->has_hits == (theirs->hits_addend != NULL));
    if (theirs->hits_addend)
        WEIR_ASSERT(ours->hits == theirs->hits_addend->value);
    WEIR_ASSERT((ours->override != NULL) == (theirs->limit != NULL));
    if (!theirs->limit)
        return;
    WEIR_ASSERT(ours->override->requests_per_unit == theirs->limit->requests_per_unit);
    int32_t unit = theirs->limit->unit;
    WEIR_ASSERT((int32_t)ours->override->unit == (unit >= 0 && unit <= WEIR_UNIT_WEEK ? unit : 0));
}

static void compare(int err, const struct weir_request *ours, const pb_request *theirs)
{
    if (!theirs || !is_within(theirs))
        return;
    WEIR_ASSERT(err == 0);
    WEIR_ASSERT(weir_str_eq(ours->domain, str_of(theirs->domain)));
    WEIR_ASSERT(ours->hits_addend == theirs->hits_addend);
    WEIR_ASSERT(ours->descriptor_count == theirs->n_descriptors);
    for (uint32_t i = 0; i < ours->descriptor_count; i++)
        compare_descriptor(&ours->descriptors[i], theirs->descriptors[i]);
}

/* A decision that depends on the request alone. */
static void decide(const struct weir_request *request, struct weir_decision *out)
{
    out->overall = request->hits_addend % 2 ? WEIR_CODE_OK : WEIR_CODE_OVER_LIMIT;
    out->status_count = request->descriptor_count;
    for (uint32_t i = 0; i < request->descriptor_count; i++) {
        const struct weir_descriptor *d = &request->descriptors[i];
        out->statuses[i] = (struct weir_status){
            .code = d->is_negative_hits ? WEIR_CODE_OVER_LIMIT : WEIR_CODE_OK,
            .is_limited = d->override != NULL,
            .is_unlimited = d->entry_count == 0,
            .unit = d->override ? d->override->unit : WEIR_UNIT_UNKNOWN,
            .limit = d->override ? d->override->requests_per_unit : 0,
            .remaining = d->hits,
            .reset_after_ns = d->hits * 977,
        };
    }
}

static void answer(const struct weir_request *request)
{
    static struct weir_status statuses[WEIR_DESCRIPTORS_MAX];
    static _Alignas(16) uint8_t block[1 << 16];
    struct weir_decision decision = {.statuses = statuses};
    struct weir_rls_options options = {.has_headers = true,
                                       .limit_header = WEIR_STR("L"),
                                       .remaining_header = WEIR_STR("R"),
                                       .reset_header = WEIR_STR("T")};
    struct weir_rls_response response;
    struct weir_bump memory;
    for (uint32_t i = 0; i < request->descriptor_count; i++) { /* metadata knows the maxima */
        for (uint32_t k = 0; k < request->descriptors[i].entry_count; k++) {
            const struct weir_entry *entry = &request->descriptors[i].entries[k];
            if (entry->key.len > WEIR_KEY_LEN_MAX || entry->value.len > WEIR_VALUE_LEN_MAX)
                return;
        }
    }
    decide(request, &decision);
    options.has_metadata = request->domain.len > 2;
    weir_bump_init(&memory, block, sizeof(block));
    weir_rls_respond(&response, &memory, &options, request, &decision);
    uint8_t *out = malloc(response.len);
    WEIR_ASSERT(out);
    weir_rls_pack(&response, out);
    pb_response *theirs =
        envoy__service__ratelimit__v3__rate_limit_response__unpack(NULL, response.len, out);
    WEIR_ASSERT(theirs && theirs->n_statuses == decision.status_count);
    for (uint32_t i = 0; i < decision.status_count; i++) {
        WEIR_ASSERT(theirs->statuses[i]->code == (int32_t)statuses[i].code);
        WEIR_ASSERT((theirs->statuses[i]->current_limit != NULL) == statuses[i].is_limited);
    }
    WEIR_ASSERT(envoy__service__ratelimit__v3__rate_limit_response__get_packed_size(theirs) ==
                response.len);
    envoy__service__ratelimit__v3__rate_limit_response__free_unpacked(theirs, NULL);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct weir_str message = {(const char *)bytes, len};
    struct weir_request request;
    weir_rls_room_empty(&room);
    int err = weir_rls_decode(&room, message, &request);
    pb_request *theirs =
        envoy__service__ratelimit__v3__rate_limit_request__unpack(NULL, len, bytes);
    if (!is_beyond_compare(message, 0))
        compare(err, &request, theirs);
    if (theirs)
        envoy__service__ratelimit__v3__rate_limit_request__free_unpacked(theirs, NULL);
    if (err)
        WEIR_ASSERT(room.descriptor_count == 0 && room.entry_count == 0);
    else
        answer(&request);
    return 0;
}
