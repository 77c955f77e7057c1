/* replay.h - the parts of `weir replay`: what it compares, and what it adds up.
 *
 * Threads: one.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_REPLAY_H
#define WEIR_CLI_REPLAY_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/weir.h>

struct json_t;

/* ---- replay_expect.c: is the decision what the trace says it must be? ---- */

struct cli_expect {
    uint64_t compared;  /* lines that had an expectation */
    uint64_t differing; /* lines that did not meet it */
    uint64_t printed;   /* differences printed; the rest are only counted */
};

/* Compares one decision, field by field, and prints `file:line: field: expected X, got Y`. */
void cli_expect_compare(struct cli_expect *all, const char *file, uint64_t line,
                        const struct json_t *expect, const struct weir_decision *decision);

/* ---- replay_store.c: decisions by Redis instead of the table ---- */

struct cli_store; /* opaque: a connection to one Redis */

/* 0, or an error that has been printed. */
WEIR_MUST_CHECK int cli_store_new(struct cli_store **out, const char *url,
                                  struct weir_session *session);
void cli_store_free(struct cli_store *store);
/* As weir_check().  *is_store: it was the store that failed, and why has been printed. */
WEIR_MUST_CHECK int cli_store_check(struct cli_store *store, const struct weir_request *request,
                                    uint64_t now_ns, struct weir_decision *out, bool *is_store);

/* ---- replay_summary.c: what did each rule do? ---- */

struct cli_summary; /* opaque: a hash table of rules */

WEIR_MUST_CHECK int cli_summary_new(struct cli_summary **out);
void cli_summary_free(struct cli_summary *summary);
/* 0, or WEIR_ERR_NOMEM. */
WEIR_MUST_CHECK int cli_summary_add(struct cli_summary *summary, const struct weir_request *request,
                                    uint64_t now_ns, const struct weir_decision *decision);
void cli_summary_print(const struct cli_summary *summary, bool as_json);

#endif
