/* rules_follow.h - a node follows the rules database: a thread that asks whether anything changed.
 *
 *     every 200 ms: which version? ──the same──> nothing
 *                        │ another
 *                        v
 *     all domains ──> valid together? ──no──> said once; the last good set stays
 *                        │ yes
 *                        v
 *     kept on disk (rules_cache.h) ──> noticed by the watch on rules, as every file
 *
 * Nobody who decides waits for this thread.  While the store is away, the rules that are loaded
 * stay, and are there for the next start too; it is asked again after a pause that grows to two
 * seconds.  A store that was emptied is no order to forget all rules: it is told, and they stay.
 *
 * What an operator asks for through the admin listener is done here as well (jobs), between two
 * looks: it has to wait for Redis, and a worker cannot.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_RULES_FOLLOW_H
#define WEIR_SERVE_RULES_FOLLOW_H

#include "net/net.h"
#include "serve/log.h"
#include "serve/rules_db.h"
#include "serve/settings.h"

struct weir_rules_follow;

/* Takes a first look, at most some seconds, so that what is opened next finds the newest rules.  A
 * store that is away is no error.  0 and *out NULL where there is no rules_store; else 0, or what
 * is wrong with settings or disk, in why[]. */
WEIR_MUST_CHECK int weir_rules_follow_new(struct weir_rules_follow **out,
                                          const struct weir_settings *settings,
                                          struct weir_log *log, char *why, size_t why_len);
/* Begins to follow. */
WEIR_MUST_CHECK int weir_rules_follow_start(struct weir_rules_follow *follow);
/* From any thread: no more, soon. */
void weir_rules_follow_stop(struct weir_rules_follow *follow);
/* Waits until it is no more.  Jobs that were not done are posted back so.  NULL is fine. */
void weir_rules_follow_free(struct weir_rules_follow *follow);

/* ---- for metrics, from any thread ---- */

enum weir_rules_follow_count {
    WEIR_RULES_FOLLOW_UP,      /* 1: the store has answered the last question */
    WEIR_RULES_FOLLOW_VERSION, /* of the rules that are kept */
    WEIR_RULES_FOLLOW_REFUSED, /* sets that were not valid, since the start */
    WEIR_RULES_FOLLOW_COUNTS
};
uint64_t weir_rules_follow_count(const struct weir_rules_follow *follow,
                                 enum weir_rules_follow_count counter);

/* ---- jobs ---- */

/* Something to be asked of the database.  Its memory is the poster's, until post runs. */
struct weir_rules_job {
    /* In the thread that follows.  db is NULL where it cannot be asked: the service is going down,
     * or others have waited for a store that does not answer for so long. */
    void (*run)(struct weir_rules_job *job, struct weir_rules_db *db);
    struct weir_post post; /* afterwards, in the loop */
    struct weir_loop *loop;
    struct weir_rules_job *next; /* the queue's own, as is the time */
    uint64_t since_ms;
};
/* False: too many wait already. */
WEIR_MUST_CHECK bool weir_rules_follow_do(struct weir_rules_follow *follow,
                                          struct weir_rules_job *job);

#endif
