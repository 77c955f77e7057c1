/* uri.h - a request target as nginx sees it: the decoded, normalised path, and the query.
 *
 *     /a//b/./c/../%64?x=1   ->   /a/b/d   x=1
 *
 * One normalisation for every front end, so that a rule means the same behind each: escapes are
 * decoded once (%2F is a slash, %2e a dot), slashes merged, dot segments removed; a '#' ends the
 * path, and %23, %25 and %3F are those characters and nothing more.  What nginx refuses (%00, a
 * broken escape, ".." above the root, no slash at the start) is refused here.
 *
 * Purity: no I/O, no allocation.  Threads: any.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PROTO_URI_H
#define WEIR_PROTO_URI_H

#include <weir/types.h>
#include <weir/weir.h>

/* *path: a slice of target where nothing had to change, else of out, which holds target.len bytes.
 * *query: what follows the first '?', without a fragment; ptr is NULL where there is none.
 * 0, or WEIR_ERR_INVALID. */
WEIR_MUST_CHECK int weir_uri_normalise(struct weir_str target, char *out, struct weir_str *path,
                                       struct weir_str *query);

/* Decodes a name or value of a query: percent escapes, and plus for space.  A broken escape stays
 * as it is, as browsers do.  out holds text.len bytes; returns how many were written. */
size_t weir_uri_decode(struct weir_str text, char *out);

#endif
