/* eventual.h - limits that many hosts share, and each decides for itself (`consistency: eventual`).
 *
 *     decide: reserve --> the table, at once --> settle              any worker
 *                                                  |  each sync_interval, or a tenth of a limit
 *                                                  v
 *     keeper: what we admitted --> the store --> what all have       the first worker
 *                                                  |
 *                                     counted here, whatever the limit says
 *
 * A decision is the table's, and never waits.  The keeper tells the store, for each key and window,
 * how many hits this process has admitted, and counts what others have admitted since it last
 * heard.  At most a fifth of a limit is admitted and not known to the store to have been; who comes
 * then is refused for the moment that an answer takes (store/tally.h says what that bounds).  While
 * the store does not answer, the rule's on_store_error says what may pass beyond:
 *
 *     local    this host's share of the window: L divided by the hosts last seen
 *     open     what the table lets pass: L, and so N*L over all
 *     closed   nothing
 *
 * What was admitted meanwhile is told when the store is back, for as long as it is of use.
 *
 * With store_global there is one such store for each site, and one for all of them, which is told
 * the sums of sites.
 *
 * A process that is started anew on its table goes on where the last one stopped.  While two run on
 * one table, as when one takes over from the other, both count what others admit of keys that both
 * decide: they refuse early for that while, never late.
 *
 * Threads: deciding from any worker's; the keeper is the first worker.  Counters from any.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_EVENTUAL_H
#define WEIR_SERVE_EVENTUAL_H

#include "engine/engine.h"
#include "serve/ask.h"

struct weir_eventual; /* of a service */

/* Before the workers' loops run; keeper: the first of them.  0, WEIR_ERR_NOMEM, or WEIR_ERR_INVALID
 * with why in words. */
WEIR_MUST_CHECK int weir_eventual_new(struct weir_eventual **out, struct weir_worker *keeper,
                                      struct weir_ask_shared *shared, char *why, size_t why_len);
/* When the keeper's loop does not run any more; free() when it is gone.  Both accept NULL. */
void weir_eventual_stop(struct weir_eventual *eventual);
void weir_eventual_free(struct weir_eventual *eventual);

/* A descriptor to be decided. */
struct weir_eventual_question {
    struct weir_session *session;
    struct weir_item *item;
    uint64_t now_ns;
    /* The name of a charge's counter in the store; asked for once for each key and window. */
    struct weir_str (*name)(void *ctx, uint32_t charge);
    void *ctx;
};
/* False: no more keys can be kept in mind, and nothing was counted: on_store_error decides. */
bool weir_eventual_decide(struct weir_eventual *eventual,
                          const struct weir_eventual_question *question, struct weir_status *out);

/* From any thread: tells everything now, not when it is due. */
void weir_eventual_flush(struct weir_eventual *eventual);

/* Adds all of the following to a page of metrics (eventual_metrics.c). */
void weir_eventual_put_metrics(struct weir_buf *to, const struct weir_eventual *eventual,
                               const struct weir_published *rules);

/* ---- from any thread: numbers that were true once ---- */

enum weir_eventual_count {
#define X(name, metric, help) WEIR_EVENTUAL_COUNT_##name,
#include "serve/eventual.def"
#undef X
    WEIR_EVENTUAL_COUNTS
};
uint64_t weir_eventual_count(const struct weir_eventual *eventual, enum weir_eventual_count count);
/* Hits beyond the limits of a rule, over all hosts, of which this one was the first to hear: the
 * sum over all hosts is what slipped through. */
uint64_t weir_eventual_over(const struct weir_eventual *eventual, uint32_t stat);
/* The longest that a hit had waited to be told when that was last looked at, and how long the last
 * answer took. */
uint64_t weir_eventual_lag_ns(const struct weir_eventual *eventual);
uint64_t weir_eventual_round_trip_ns(const struct weir_eventual *eventual);
/* How the store of all sites is.  False: there is none. */
bool weir_eventual_global(const struct weir_eventual *eventual, enum weir_redis_health *health);

#endif
