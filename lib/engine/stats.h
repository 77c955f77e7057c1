/* stats.h - what a decision adds to its rule's statistics, as envoyproxy/ratelimit counts.
 *
 *            0 ......... near ......... limit ........
 *     within |###########|##############|              all hits of an allowed request
 *     near               |##############|              those of them, or of a refused one, in here
 *     over                              |########      the hits beyond, of a refused request
 *
 * near = floor(limit x near_limit_ratio) in float32, as there.  Of a refused request only the part
 * beyond the limit is over_limit, and only the part between near and limit is near_limit.
 *
 * Purity: the increment is arithmetic only.  Threads: counters are sharded by session.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_STATS_H
#define WEIR_ENGINE_STATS_H

#include "engine/engine.h"

/* By what one decision raises the counters. */
struct weir_stats_increment {
    uint64_t total_hits, over_limit, near_limit, within_limit, shadow_mode, over_limit_by_sketch;
};

struct weir_stats_increment weir_stats_increment_of(const struct weir_verdict *verdict,
                                                    uint64_t hits, float near_ratio,
                                                    bool is_shadow);

/* What must be in use for a limit to be nearly used up. */
uint64_t weir_stats_near(uint64_t limit, float near_ratio);

/* Adds one descriptor's decision to the statistics of its rule. */
void weir_stats_decided(struct weir_session *s, const struct weir_item *item,
                        const struct weir_verdict *verdict);
/* The same where others have refused the request, and it took nothing: it was asked, no more. */
void weir_stats_asked(struct weir_session *s, const struct weir_item *item);
/* The same where it gave hits back: no decision, so nothing else is counted. */
void weir_stats_refunded(struct weir_session *s, const struct weir_item *item);

#endif
