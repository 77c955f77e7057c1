/* rls.h - Envoy's rate limit service in protobuf: bytes to a request, a decision to bytes.
 *
 *     RateLimitRequest  --decode-->  struct weir_request      borrows from the bytes
 *     struct weir_decision  --respond-->  how long  --pack-->  RateLimitResponse
 *
 * rls.proto says what the messages are.  They are read and written by hand (pb.h): protobuf-c, even
 * on memory that cost nothing, took nearly a fifth of a request's instructions, copied all strings,
 * and let a small message unfold into megabytes.  What it makes of rls.proto is the oracle of our
 * tests, and writes what is rare.  As the Go service's decoder: known fields of a wrong type are
 * skipped like unknown ones, a message that comes twice is merged, text must be UTF-8.
 *
 * What a decision means is the engine's; here only its form changes: durations in whole seconds,
 * rounded up, numbers that stop at 32 bits.
 *
 * Purity: no I/O, no clock; allocates only for dynamic metadata.
 * Threads: any, each with its own memory.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PROTO_RLS_H
#define WEIR_PROTO_RLS_H

#include "base/maxima.h"
#include "proto/bump.h"

#include <weir/weir.h>

/* Where requests are decoded to, one behind the other.  An empty one has room for any request
 * within the maxima.  Large: for a stack that is not deep, and not to be set to zero. */
struct weir_rls_room {
    uint32_t descriptor_count, entry_count;
    struct weir_descriptor descriptors[WEIR_DESCRIPTORS_MAX];
    struct weir_override overrides[WEIR_DESCRIPTORS_MAX]; /* by descriptor */
    struct weir_entry entries[WEIR_DESCRIPTORS_MAX * WEIR_ENTRIES_MAX];
};

static inline void weir_rls_room_empty(struct weir_rls_room *room)
{
    room->descriptor_count = room->entry_count = 0;
}

/* For dynamic metadata; where it needs more, it is left out. */
#define WEIR_RLS_METADATA_MEMORY (4u << 20)

struct weir_rls_options {
    bool has_headers; /* add the three below to responses */
    struct weir_str limit_header, remaining_header, reset_header;
    bool has_metadata; /* tell what was asked, and the `metadata` of rules that passed */
};

struct weir_rls_header {
    struct weir_str name;
    char number[24];
    size_t number_len;
};

/* A response that is yet to be written. */
struct weir_rls_response {
    const struct weir_decision *decision;
    size_t len;
    uint32_t header_count;
    struct weir_rls_header headers[3];
    const void *metadata; /* protobuf-c's, or NULL */
    size_t metadata_len;
};

/* 0; WEIR_ERR_INVALID: not protobuf, or not UTF-8; WEIR_ERR_TOO_LARGE: over a maximum;
 * WEIR_ERR_FULL: not beside the requests that are in the room already, which is as before then.
 * out borrows from room and from message. */
WEIR_MUST_CHECK int weir_rls_decode(struct weir_rls_room *room, struct weir_str message,
                                    struct weir_request *out);

/* Prepares the response to a request that was decided, and says how long it is (out->len).
 * Decision and memory, which is used for metadata alone, must stay until it is packed. */
void weir_rls_respond(struct weir_rls_response *out, struct weir_bump *memory,
                      const struct weir_rls_options *options, const struct weir_request *request,
                      const struct weir_decision *decision);
void weir_rls_pack(const struct weir_rls_response *response, uint8_t *out);

/* The status that the headers of a response tell of: the last that is over its limit and not in
 * quota mode; else the first of those with the least left; NULL where no limit applied. */
const struct weir_status *weir_rls_told(const struct weir_decision *decision);
/* Whole seconds until status resets, rounded up. */
uint64_t weir_rls_reset_s(const struct weir_status *status);

#endif
