/* pairs.h - "name=value" in queries and cookies.
 *
 * What is public of it is in weir.h: every front end that sees an HTTP request reads query.NAME and
 * cookie.NAME the same way.  The first of a name counts.
 *
 * Purity: no I/O, no allocation.  Threads: any.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PROTO_PAIRS_H
#define WEIR_PROTO_PAIRS_H

#include <weir/weir.h>

/* The first value of a parameter in a query, not decoded; false: it has none. */
bool weir_query_find(struct weir_str query, struct weir_str name, struct weir_str *value);

#endif
