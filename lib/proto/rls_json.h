/* rls_json.h - Envoy's rate limit service in proto3 JSON, as /json of envoyproxy/ratelimit has it.
 *
 *     {"domain": "api", "hitsAddend": 2,
 *      "descriptors": [{"entries": [{"key": "user", "value": "alice"}],
 *                       "limit": {"requestsPerUnit": 5, "unit": "MINUTE"},
 *                       "hitsAddend": "3", "isNegativeHits": false}]}
 *
 *     {"overallCode":"OVER_LIMIT","statuses":[{"code":"OVER_LIMIT",
 *      "currentLimit":{"requestsPerUnit":1,"unit":"MINUTE"},"durationUntilReset":"37s"}]}
 *
 * Read as Go's protojson reads: names in camelCase or snake_case, enums by name or number, numbers
 * also as strings, null for what is absent; an unknown field, or one twice, is an error.  Written
 * likewise: in the order of the proto, without what is zero.
 *
 * Reading builds no tree (json_read.h), and writing is by hand: a question costs no allocation.
 *
 * Purity: no I/O, no clock.  Threads: one at a time for each struct weir_rls_json.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PROTO_RLS_JSON_H
#define WEIR_PROTO_RLS_JSON_H

#include "base/maxima.h"
#include "proto/rls.h"
#include "proto/text.h"

#include <weir/weir.h>

#define WEIR_RLS_JSON_SPACE 4096 /* for strings with escapes; where that is not enough, malloc's */

/* A request as read.  Large (74 KiB): not for the stack of a deep call.  All that request points to
 * lives in here, until fini, or in the body. */
struct weir_rls_json {
    struct weir_request request;
    char *large; /* NULL, or in place of space */
    uint32_t entry_count;
    struct weir_descriptor descriptors[WEIR_DESCRIPTORS_MAX];
    struct weir_override overrides[WEIR_DESCRIPTORS_MAX];
    struct weir_entry entries[WEIR_DESCRIPTORS_MAX * WEIR_ENTRIES_MAX];
    char space[WEIR_RLS_JSON_SPACE];
};

/* 0, or WEIR_ERR_INVALID, WEIR_ERR_TOO_LARGE: why[] then says what and where, and may hold bytes of
 * the client's.  fini in each case. */
WEIR_MUST_CHECK int weir_rls_json_parse(struct weir_rls_json *json, struct weir_str body, char *why,
                                        size_t why_len);
void weir_rls_json_fini(struct weir_rls_json *json);

/* Bytes of an answer, as long as the names of limits are short. */
#define WEIR_RLS_JSON_ANSWER_LEN (1024u + 256u * WEIR_DESCRIPTORS_MAX)

/* Writes the answer.  alloc: for dynamic metadata. */
void weir_rls_json_write(struct weir_text *to, const struct weir_rls_options *options,
                         const struct weir_request *request, const struct weir_decision *decision);

#endif
