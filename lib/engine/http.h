/* http.h - memory for an HTTP request while the rules' shapes make descriptors of it.
 *
 * Most of it is never touched: few requests meet more than a handful of shapes.
 *
 * Threads: the session's own.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_HTTP_H
#define WEIR_ENGINE_HTTP_H

#include "base/maxima.h"
#include "rules/shapes.h"

struct weir_http_room {
    struct weir_status statuses[WEIR_DESCRIPTORS_MAX];
    struct weir_descriptor descriptors[WEIR_DESCRIPTORS_MAX];
    struct weir_entry entries[WEIR_DESCRIPTORS_MAX * WEIR_ENTRIES_MAX];
    char addresses[WEIR_DESCRIPTORS_MAX][WEIR_ADDRESS_TEXT_MAX];
};

/* The request in descriptors, by the rules that the session holds from now on.  None: *decision is
 * the answer already.  Both are the session's, until its next call.  Errors as weir_check_http().
 */
WEIR_MUST_CHECK int weir_http_describe(struct weir_session *s, const struct weir_http *http,
                                       struct weir_request *request,
                                       struct weir_decision *decision);

#endif
