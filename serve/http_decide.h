/* http_decide.h - a request's attributes, asked for by the rules' shapes, and the decision.
 *
 * No allocation: all that a question needs is in the caller's memory, mostly on a stack and mostly
 * not touched.  Rules may change at any time; a question is described and decided by one version.
 *
 * Purity: no clock, no I/O.  Threads: the session's.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_HTTP_DECIDE_H
#define WEIR_SERVE_HTTP_DECIDE_H

#include "serve/http_request.h"

struct weir_http_question {
    struct weir_http_request http; /* read already */
    struct weir_decision decision; /* no statuses where no shape applies */
    bool is_denied;                /* an attribute is missing without which nobody passes */
    struct weir_descriptor descriptors[WEIR_DESCRIPTORS_MAX];
    struct weir_entry entries[WEIR_DESCRIPTORS_MAX * WEIR_ENTRIES_MAX];
    char addresses[WEIR_DESCRIPTORS_MAX][WEIR_ADDRESS_TEXT_MAX];
    struct weir_status statuses[WEIR_DESCRIPTORS_MAX];
};

/* domain: ptr is NULL where the gateway names none.  0, or an error, for which *why has a line of
 * words.  Statuses borrow from the rules until the session's next call. */
WEIR_MUST_CHECK int weir_http_decide(struct weir_http_question *q, struct weir_session *session,
                                     struct weir_str domain, uint64_t now_ns, const char **why);

#endif
