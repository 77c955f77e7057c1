/* headers.h - a decision as HTTP tells it: rate-limit headers, and the body of a refusal.
 *
 *     dialect       on every limited answer                    on refusals also
 *     legacy        X-Ratelimit-Limit, X-Ratelimit-Remaining   X-Ratelimit-Retry-After, Retry-After
 *     reset-epoch   those, X-Ratelimit-Reset: Unix time        the same
 *     reset-delta   those, X-Ratelimit-Reset: seconds to wait  the same
 *     ietf-11       RateLimit-Policy, RateLimit                Retry-After
 *     none
 *
 * Cache-Control: no-store goes with every refusal (RFC 6585, 4).  Dialects can be combined, but for
 * the two that mean different things by one name.  Seconds are whole and rounded up, and who is
 * refused waits at least one.  Where waiting does not help, because the request asks for more than
 * the limit holds, the time until the limit is unused again is told, or a whole window.
 *
 * Of several limits the tightest is in the X-Ratelimit headers: of those that refuse the one with
 * the longest wait, else the one with the least left.  The IETF pair has all of them, the tightest
 * first, up to LIST_MAX bytes: gateways take heads of 4 KiB.  A rule in shadow mode that would
 * refuse is told nowhere.
 *
 * Purity: no clock, no I/O, no allocation.  Threads: any.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PROTO_HEADERS_H
#define WEIR_PROTO_HEADERS_H

#include "proto/text.h"

#include <weir/weir.h>

#define WEIR_HEADERS_LIST_MAX 1536             /* bytes of the value of RateLimit, of -Policy */
#define WEIR_HEADERS_LEN_MAX (2 * 1536 + 512)  /* bytes of all headers */
#define WEIR_REFUSAL_LEN_MAX (512 + 64 * 1024) /* bytes of a refusal's body */

enum weir_dialect {
    WEIR_DIALECT_LEGACY = 1,
    WEIR_DIALECT_IETF_11 = 2,
    WEIR_DIALECT_RESET_EPOCH = 4,
    WEIR_DIALECT_RESET_DELTA = 8,
};

enum weir_refusal_body { WEIR_REFUSAL_PLAIN, WEIR_REFUSAL_PROBLEM };

/* Reads "legacy,ietf-11" and the like; "none" is no dialect.  0, or WEIR_ERR_INVALID. */
WEIR_MUST_CHECK int weir_dialects_read(struct weir_str text, uint32_t *dialects);

/* The status that speaks for all; NULL where no limit applied. */
const struct weir_status *weir_headers_tightest(const struct weir_decision *decision);

/* Writes header lines, each ended by CRLF.  dialects: of enum weir_dialect, or'ed. */
void weir_headers_write(struct weir_text *to, uint32_t dialects,
                        const struct weir_decision *decision, uint64_t now_ns);

/* Writes the body of a refusal and returns its content type. */
struct weir_str weir_headers_refusal(struct weir_text *to, enum weir_refusal_body kind, int status,
                                     const struct weir_decision *decision);

#endif
