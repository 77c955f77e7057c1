/* http_decide.h - a request's attributes, asked for by the rules' shapes, and the decision.
 *
 * The deciding is libweir's, the same as in other front ends that see HTTP; or a store's.
 *
 * Threads: the worker's.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_HTTP_DECIDE_H
#define WEIR_SERVE_HTTP_DECIDE_H

#include "serve/ask.h"
#include "serve/http_request.h"

struct weir_http_question {
    struct weir_http_request http; /* read already */
    struct weir_decision decision; /* no statuses where no shape applies */
};

/* domain: ptr is NULL where the gateway names none.  0, WEIR_ASK_PENDING, or an error, for which
 * *why has a line of words.  Statuses are the session's, until its next call. */
WEIR_MUST_CHECK int weir_http_decide(struct weir_http_question *q, struct weir_worker *worker,
                                     struct weir_str domain, struct weir_waiter *waiter,
                                     const char **why);

#endif
