/* rules_cache.h - the last good rules of a rules database, on disk, where everybody loads them.
 *
 *     /var/lib/weir/
 *       rules -> .rules.57-9f3c02d1         the set that counts: what --rules and nginx name
 *       .rules.57-9f3c02d1/                 a file for each domain, as any directory of rules
 *         api.yaml  web.yaml
 *         .head                             which database, which version
 *       .rules.56-0b77e6a4/                 the one before: somebody may be reading it still
 *       .rules.lock                         held by the process that writes here
 *
 * A set is written whole beside the others and synced; then the link is renamed over, which is one
 * step.  So there is one way in for rules, files that are watched, and it never shows half a set: a
 * process killed anywhere leaves a folder that nobody names, which the next one removes.
 *
 * Threads: one at a time.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_RULES_CACHE_H
#define WEIR_SERVE_RULES_CACHE_H

#include "serve/rules_set.h"

#include <limits.h>

struct weir_rules_cache {
    char path[PATH_MAX];   /* the link */
    char folder[PATH_MAX]; /* that it lies in */
    const char *name;      /* the link's own, in path */
    int lock_fd;           /* -1: none, or somebody else has the lock */
};

/* Makes the folder where there is none.  0, or WEIR_ERR_INVALID, WEIR_ERR_IO: why[] says what;
 * among others, that there is something at path which was not made here. */
WEIR_MUST_CHECK int weir_rules_cache_init(struct weir_rules_cache *cache, const char *path,
                                          char *why, size_t why_len);
void weir_rules_cache_fini(struct weir_rules_cache *cache); /* also after a failed init */

/* True where no other process writes here; it may become true later. */
bool weir_rules_cache_lock(struct weir_rules_cache *cache);
/* What is kept; version 0: nothing, or nobody knows what. */
struct weir_redis_rules_head weir_rules_cache_head(const struct weir_rules_cache *cache);
/* Whether the files of the set are there, byte by byte, and no others that would be loaded. */
bool weir_rules_cache_has(const struct weir_rules_cache *cache, const struct weir_rules_set *set);
/* Keeps the set, which is good, in place of the last one.  Only with the lock.  0, or WEIR_ERR_IO:
 * the old one stays, and why[] says why. */
WEIR_MUST_CHECK int weir_rules_cache_keep(struct weir_rules_cache *cache,
                                          const struct weir_rules_set *set, char *why,
                                          size_t why_len);

#endif
