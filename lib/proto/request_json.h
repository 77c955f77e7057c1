/* request_json.h - a request and its decision as one line of JSON each.
 *
 *     {"t_ns": 1700000040000000000, "domain": "api", "hits": 1,
 *      "descriptors": [{"entries": [["user", "alice"]], "hits": 2,
 *                       "limit": {"requests_per_unit": 5, "unit": "minute"}}]}
 *
 *     {"overall": "OK", "statuses": [{"code": "OK", "limit": 5, "remaining": 3, ...}]}
 *
 * An entry may also be {"key": "user", "value": "alice"}.  hits: 1 if absent, 0 looks without
 * taking, below 0 gives back; a descriptor's own go before the request's.  Fields that weir does
 * not know are left alone, since traces carry notes of their own; what it knows must be right, and
 * a refusal names the place: "descriptors[2].entries[0]: the key is empty".
 *
 * libjansson reads; it builds a tree for each line, some 3 us, which is what a replay costs.
 * Writing is by hand, into the caller's buffer.
 *
 * Purity: no I/O, no clock.  Threads: one at a time for each struct weir_request_json.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PROTO_REQUEST_JSON_H
#define WEIR_PROTO_REQUEST_JSON_H

#include "base/maxima.h"

#include <weir/types.h>
#include <weir/weir.h>

struct json_t; /* libjansson's; only who compares with `expect` needs its header */

#define WEIR_REQUEST_JSON_LEN_MAX (16u << 20) /* bytes of a line: the maxima, with room to escape */

/* A parsed line.  Large (70 KiB, so that nothing is allocated by request): not for the stack of a
 * deep call.  All that request points to lives in here, until the next parse or fini. */
struct weir_request_json {
    struct weir_request request;
    uint64_t now_ns;             /* t_ns */
    const struct json_t *expect; /* what the line says the decision must be, or NULL */
    struct json_t *root;         /* owns the strings */
    struct weir_descriptor descriptors[WEIR_DESCRIPTORS_MAX];
    struct weir_override overrides[WEIR_DESCRIPTORS_MAX];
    struct weir_entry entries[WEIR_DESCRIPTORS_MAX * WEIR_ENTRIES_MAX];
};

/* Ready for parse(); of the whole struct only this much need be set. */
void weir_request_json_init(struct weir_request_json *json);
/* Reads one line.  0, or WEIR_ERR_INVALID, WEIR_ERR_TOO_LARGE; why[] then says what and where. */
WEIR_MUST_CHECK int weir_request_json_parse(struct weir_request_json *json, struct weir_str line,
                                            char *why, size_t why_len);
void weir_request_json_fini(struct weir_request_json *json);

/* Enough for the decision on WEIR_DESCRIPTORS_MAX descriptors. */
#define WEIR_DECISION_JSON_LEN_MAX (64u + 224u * WEIR_DESCRIPTORS_MAX)

/* Writes the decision, without a newline or NUL, and returns its length.  buf: at least
 * WEIR_DECISION_JSON_LEN_MAX bytes. */
size_t weir_decision_json_write(const struct weir_decision *decision, char *buf);

const char *weir_code_name(enum weir_code code); /* "OK", "OVER_LIMIT" */

#endif
