/* admin_body.h - small JSON objects that come with a change: strict, and one table for each.
 *
 * An unknown field, one twice, one of another type or beyond its bounds is refused, by name.
 *
 * Threads: the connection's.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_ADMIN_BODY_H
#define WEIR_SERVE_ADMIN_BODY_H

#include "serve/admin.h"

struct weir_admin_field {
    const char *name;
    bool is_flag;      /* true or false; else a whole number */
    uint64_t min, max; /* of a number */
    uint64_t *value;   /* where it goes; a flag: 0 or 1 */
    bool *is_given;    /* NULL: must be given */
};

/* False: the answer, 400, says what is wrong. */
WEIR_MUST_CHECK bool weir_admin_body_read(struct weir_admin_call *call,
                                          const struct weir_admin_field *fields, size_t count);

#endif
