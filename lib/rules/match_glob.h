/* match_glob.h - wildcards, as envoyproxy/ratelimit matches them: * stands for any bytes, none
 * included.
 *
 * A pattern and a text are both "key_value", whole.  The parts between stars are looked for from
 * left to right, the first place taken; the last part must end the text.
 *
 * Purity: no state.  Threads: any.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_RULES_MATCH_GLOB_H
#define WEIR_RULES_MATCH_GLOB_H

#include "rules/tree.h"

/* Fills in what can be known of the pattern before any text is seen. */
void weir_glob_init(struct weir_pattern *out, struct weir_str pattern);
bool weir_glob_matches(const struct weir_pattern *known, struct weir_str pattern,
                       struct weir_str text);
/* Whether all that `narrow` matches is matched by `wide` too.  Never wrong when it says yes. */
bool weir_glob_covers(struct weir_str wide, struct weir_str narrow);

#endif
