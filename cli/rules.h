/* rules.h - `weir rules`, between its files: rules.c asks, rules_print.c tells.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_RULES_H
#define WEIR_CLI_RULES_H

#include "serve/rules_db.h"

#include <stdbool.h>

/* How things are told: as JSON, or in words. */
void cli_rules_print_set(const struct weir_rules_set *set, bool is_json);
void cli_rules_print_entry(struct weir_str domain, const struct weir_redis_rules_entry *entry,
                           bool is_json);
/* What a change did, or why it did nothing. */
void cli_rules_print_steps(const struct weir_rules_db_order *order, uint64_t version,
                           const struct weir_redis_rules_step *steps, bool is_json);
void cli_rules_print_conflict(const struct weir_rules_db_order *order,
                              const struct weir_redis_rules_result *result, bool is_json);

/* One after the other, then the end. */
struct cli_rules_history {
    struct weir_str domain;
    bool is_json;
    void *list; /* json_t */
    uint32_t count;
};
void cli_rules_history_add(void *history, const struct weir_redis_rules_entry *entry);
void cli_rules_history_end(struct cli_rules_history *history);

#endif
