/* lint.h - warnings about rules that are legal and surely not meant.
 *
 * Purity: reads the draft.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_RULES_LINT_H
#define WEIR_RULES_LINT_H

#include "rules/compile.h"

void weir_lint(struct weir_compiler *c, const struct weir_draft_root *root);

#endif
