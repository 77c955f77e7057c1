/* rules_db.h - the rules database: read, and changed.
 *
 *     all domains ──> with the change ──> valid together? ──> stored, if nobody was faster
 *         ^                                                        │
 *         └────────────── somebody changed something else ─────────┘
 *
 * What is stored was checked against all that is stored beside it: a change says which state of the
 * database it was checked with, and where that has moved on everything is done again.
 *
 * Threads: one at a time; waits for Redis.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_RULES_DB_H
#define WEIR_SERVE_RULES_DB_H

#include "serve/redis_wire.h"
#include "serve/rules_set.h"

#define WEIR_RULES_DB_PREFIX "weir:" /* of all keys, where nobody says otherwise */
#define WEIR_RULES_DB_PREFIX_MAX 128

struct weir_rules_db;

/* 0, WEIR_ERR_NOMEM, or WEIR_ERR_INVALID: why[] says what is wrong with URL or prefix. */
WEIR_MUST_CHECK int weir_rules_db_new(struct weir_rules_db **out,
                                      const struct weir_redis_wire_options *options,
                                      const char *prefix, char *why, size_t why_len);
void weir_rules_db_free(struct weir_rules_db *db); /* NULL is fine */

/* What went wrong last, in words, for all below that return an error: WEIR_ERR_IO where the store
 * is away, WEIR_ERR_STORE where it refused, WEIR_ERR_INVALID where it holds what weir did not
 * store, WEIR_ERR_TOO_LARGE, WEIR_ERR_NOMEM. */
const char *weir_rules_db_why(const struct weir_rules_db *db);

WEIR_MUST_CHECK int weir_rules_db_head(struct weir_rules_db *db,
                                       struct weir_redis_rules_head *head);
/* All domains; of a database that was never begun, none, and version 0.  room: for how many more
 * domains.  The set is the caller's to free in each case. */
WEIR_MUST_CHECK int weir_rules_db_fetch(struct weir_rules_db *db, struct weir_rules_set *set,
                                        uint32_t room);
/* version 0: the current.  1, 0 where there is none, or an error.  The entry is good until the next
 * call. */
WEIR_MUST_CHECK int weir_rules_db_get(struct weir_rules_db *db, struct weir_str domain,
                                      uint64_t version, struct weir_redis_rules_entry *entry);
/* The newest first, without texts.  How many there were, or an error. */
WEIR_MUST_CHECK int weir_rules_db_history(struct weir_rules_db *db, struct weir_str domain,
                                          void (*each)(void *ctx,
                                                       const struct weir_redis_rules_entry *entry),
                                          void *ctx);

struct weir_rules_db_order {
    const struct weir_redis_rules_change *changes;
    const char *const *labels; /* of each, in messages about its text */
    uint32_t count;
    struct weir_str who, why; /* cut at WEIR_RULES_DB_WORDS_MAX */
    weir_log_fn log;          /* all that is wrong with the rules; may be NULL */
    void *log_ctx;
};
/* All of them or none.  0: the result says what became of it (never that it has moved), and is good
 * until the next call; steps[count]: what became of each domain.  WEIR_ERR_RULES: not
 * valid, and logged. */
WEIR_MUST_CHECK int weir_rules_db_change(struct weir_rules_db *db,
                                         const struct weir_rules_db_order *order,
                                         struct weir_redis_rules_result *result,
                                         struct weir_redis_rules_step *steps);
/* Puts a domain back to what it was at a version; order has one change, whose text is ignored.  0
 * as above, WEIR_ERR_NOT_FOUND where that version is not kept or has no text, or an error. */
WEIR_MUST_CHECK int weir_rules_db_rollback(struct weir_rules_db *db,
                                           const struct weir_rules_db_order *order,
                                           uint64_t version, struct weir_redis_rules_result *result,
                                           struct weir_redis_rules_step *steps);

#endif
