/* rls.h - Envoy's rate limit service in protobuf: bytes to a request, a decision to bytes.
 *
 *     RateLimitRequest  --decode-->  struct weir_request      borrowed from the memory given
 *     struct weir_decision  --respond-->  RateLimitResponse  --pack-->  bytes
 *
 * protobuf-c reads and writes; all that it allocates comes from a struct weir_bump, so that a
 * request costs no malloc, and a small message that unfolds into a large one meets a bound.  What a
 * decision means is the engine's; here only its form changes: a duration in whole seconds, rounded
 * up, numbers that stop at 32 bits.
 *
 * Purity: no I/O, no clock; allocates only for dynamic metadata.
 * Threads: any, each with its own memory.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PROTO_RLS_H
#define WEIR_PROTO_RLS_H

#include "proto/bump.h"

#include <weir/weir.h>

/* Enough for any request and response within the maxima and 1 MiB of message, but for dynamic
 * metadata, which may need more: it is then left out. */
#define WEIR_RLS_MEMORY_MAX (4u << 20)

struct weir_rls_options {
    bool has_headers; /* add the three below to responses */
    struct weir_str limit_header, remaining_header, reset_header;
    bool has_metadata; /* tell what was asked, and the `metadata` of rules that passed */
};

struct weir_rls_response; /* made by respond(), in the memory given */

/* 0; WEIR_ERR_INVALID: not protobuf, or not UTF-8; WEIR_ERR_TOO_LARGE: over a maximum, or, if
 * memory->has_failed, over what memory holds.  out borrows from memory and from message. */
WEIR_MUST_CHECK int weir_rls_decode(struct weir_bump *memory, struct weir_str message,
                                    struct weir_request *out);

/* Prepares the response to a request that was decided, and says how long it is.
 * 0, or WEIR_ERR_TOO_LARGE: memory is too small. */
WEIR_MUST_CHECK int weir_rls_respond(struct weir_bump *memory,
                                     const struct weir_rls_options *options,
                                     const struct weir_request *request,
                                     const struct weir_decision *decision,
                                     struct weir_rls_response **out, size_t *len);
void weir_rls_pack(const struct weir_rls_response *response, uint8_t *out);

/* The status that the headers of a response tell of: the last that is over its limit and not in
 * quota mode; else the first of those with the least left; NULL where no limit applied. */
const struct weir_status *weir_rls_told(const struct weir_decision *decision);
/* Whole seconds until status resets, rounded up. */
uint64_t weir_rls_reset_s(const struct weir_status *status);

#endif
