/* utf8.h - is this text UTF-8?  As RFC 3629 has it: no surrogates, nothing overlong.
 *
 * Purity: no I/O, no state.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PROTO_UTF8_H
#define WEIR_PROTO_UTF8_H

#include <weir/types.h>

bool weir_utf8_is_valid(struct weir_str text);

#endif
