/* budget.h - memory that many share: whoever wants some must find it left.
 *
 * Every connection has maxima of its own, but ten thousand peers that each stay below theirs can
 * still want more than the machine has.  So what a thread's connections hold of requests that are
 * not whole yet is paid from one budget, and who finds it empty is refused.
 *
 * Threads: one at a time.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_BUDGET_H
#define WEIR_BASE_BUDGET_H

#include <stdbool.h>
#include <stddef.h>

struct weir_budget {
    size_t left; /* bytes */
};

/* Where budget is NULL there is none to keep to. */
static inline bool weir_budget_take(struct weir_budget *budget, size_t bytes)
{
    if (budget == NULL)
        return true;
    if (bytes > budget->left)
        return false;
    budget->left -= bytes;
    return true;
}

static inline void weir_budget_give(struct weir_budget *budget, size_t bytes)
{
    if (budget != NULL)
        budget->left += bytes;
}

#endif
