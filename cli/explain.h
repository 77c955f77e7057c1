/* explain.h - what `weir explain` finds out about one descriptor, and how it tells.
 *
 * Threads: one.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_EXPLAIN_H
#define WEIR_CLI_EXPLAIN_H

#include "rules/tree.h"

#include <stdbool.h>
#include <weir/weir.h>

/* What was chosen at one level. */
struct cli_step {
    const char *how;         /* "exact value", "wildcard" ... */
    struct weir_str pattern; /* as the rules spell it */
    const char *counted;     /* "value", "shared" or "prefix": what of it names the counter */
};

struct cli_explained {
    struct weir_entry entries[WEIR_ENTRIES_MAX];
    uint32_t entry_count;
    struct cli_step steps[WEIR_ENTRIES_MAX];
    uint32_t step_count; /* fewer than entries: the walk ended early */
    struct weir_match match;
    char why[256];             /* there is no limit; empty where there is one */
    struct weir_status status; /* of a look */
};

/* explain.c: entries in, steps, match and why out. */
void cli_explain_walk(const struct weir_domain *domain, struct cli_explained *out);

/* explain_print.c: the shapes of the domain, then each descriptor, then the end. */
void cli_explain_begin(const struct weir_domain *domain, bool as_json);
void cli_explain_print(const struct cli_explained *one, bool is_first, bool as_json);
void cli_explain_end(bool as_json);

#endif
