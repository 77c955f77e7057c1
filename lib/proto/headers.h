/* headers.h - a decision as HTTP tells it: rate-limit headers, and the body of a refusal.
 *
 *     dialect       on every limited answer                    on refusals also
 *     legacy        X-Ratelimit-Limit, X-Ratelimit-Remaining   X-Ratelimit-Retry-After, Retry-After
 *     reset-epoch   those, X-Ratelimit-Reset: Unix time        the same
 *     reset-delta   those, X-Ratelimit-Reset: seconds to wait  the same
 *     ietf-11       RateLimit-Policy, RateLimit                Retry-After
 *     none
 *
 * In libweir, and in weir.h for everyone; here is what only our own programs use.
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

#define WEIR_HEADERS_LIST_MAX 1536 /* bytes of the value of RateLimit, of -Policy */
_Static_assert(WEIR_HEADERS_LEN_MAX >= 2 * WEIR_HEADERS_LIST_MAX + 512, "all headers fit");

/* Writes header lines, each ended by CRLF.  dialects: of enum weir_dialect, or'ed. */
void weir_headers_write(struct weir_text *to, uint32_t dialects,
                        const struct weir_decision *decision, uint64_t now_ns);

/* Writes the body of a refusal and returns its content type. */
struct weir_str weir_headers_refusal(struct weir_text *to, enum weir_refusal_body kind, int status,
                                     const struct weir_decision *decision);

#endif
