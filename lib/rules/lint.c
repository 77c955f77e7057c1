/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/lint.h"

void weir_lint(struct weir_compiler *c, const struct weir_draft_root *root)
{
    (void)c;
    (void)root;
}
