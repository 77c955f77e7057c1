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
    struct weir_descriptor descriptors[WEIR_DESCRIPTORS_MAX];
    struct weir_entry entries[WEIR_DESCRIPTORS_MAX * WEIR_ENTRIES_MAX];
    char addresses[WEIR_DESCRIPTORS_MAX][WEIR_ADDRESS_TEXT_MAX];
    struct weir_status statuses[WEIR_DESCRIPTORS_MAX];
};

#endif
