/* rls_metadata.h - what was asked and what the rules say of it, as a google.protobuf.Struct.
 *
 * Off unless an operator wants it, and so written for ease: a tree of libjansson's is built, then
 * turned into protobuf-c's.
 *
 *     domain, descriptors: [{entries: ["key=value"], limit, hitsAddend}], hitsAddend,
 *     metadata: that of every rule that passed; of two that set one field, the first wins
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PROTO_RLS_METADATA_H
#define WEIR_PROTO_RLS_METADATA_H

#include "proto/bump.h"

#include <weir/types.h>

/* protobuf-c's struct, and how long it is packed; NULL where memory is too small: the answer then
 * goes without. */
const void *weir_rls_metadata(struct weir_bump *memory, const struct weir_request *request,
                              const struct weir_decision *decision, size_t *len);
/* Returns the end of what was written. */
uint8_t *weir_rls_metadata_pack(const void *metadata, uint8_t *out);

/* The same as JSON text, from malloc(); NULL where there is no memory for it. */
char *weir_rls_metadata_json(const struct weir_request *request,
                             const struct weir_decision *decision);

#endif
