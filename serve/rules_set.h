/* rules_set.h - all rules of a rules database at one moment, in memory.
 *
 *     Redis ──> set ──> checked whole, by the same loader as any file ──> stored, or kept on disk
 *
 * A database is changed by hand now and then, whatever one says: so a set also knows which of its
 * domains are not as weir stored them, and is not good as long as one is.
 *
 * Purity: no I/O.  Threads: one at a time.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_RULES_SET_H
#define WEIR_SERVE_RULES_SET_H

#include "base/arena.h"
#include "rules/rules.h"
#include "store/redis/rules.h"

#define WEIR_RULES_FILE_NAME_LEN 200 /* with its NUL */

struct weir_rules_set_domain {
    struct weir_str name;
    const char *label; /* in messages */
    const char *wrong; /* why this cannot be what weir stored; NULL: it is */
    struct weir_redis_rules_entry entry;
};

struct weir_rules_set {
    struct weir_arena arena; /* of all texts */
    struct weir_redis_rules_head head;
    struct weir_rules_set_domain *domains; /* has room for count_max */
    uint32_t count, count_max;
    size_t bytes; /* of all rules */
};

void weir_rules_set_init(struct weir_rules_set *set);
void weir_rules_set_fini(struct weir_rules_set *set);

/* Room for so many domains; has_failed of the arena says whether all is well. */
void weir_rules_set_reserve(struct weir_rules_set *set, uint32_t count_max);
/* Copies name and entry, and calls the domain by its file's name.  wrong is not copied. */
void weir_rules_set_add(struct weir_rules_set *set, struct weir_str name,
                        const struct weir_redis_rules_entry *entry, const char *wrong);
/* What the set will be after a change, of which it borrows the text.  There must be room. */
void weir_rules_set_change(struct weir_rules_set *set, const struct weir_redis_rules_change *change,
                           const char *label);

/* Whether all rules together are valid.  0, WEIR_ERR_RULES or WEIR_ERR_NOMEM; log gets all that is
 * wrong, and warnings. */
WEIR_MUST_CHECK int weir_rules_set_check(const struct weir_rules_set *set, weir_log_fn log,
                                         void *log_ctx);

/* "api.yaml": what is no letter, digit, dash, dot or underscore becomes %XX, and a long name its
 * SHA-256. */
void weir_rules_set_file_name(struct weir_str domain, char out[static WEIR_RULES_FILE_NAME_LEN]);

/* The domain that a text speaks of, in the arena; ptr NULL where it is not valid, which log has
 * been told. */
struct weir_str weir_rules_set_domain_of(struct weir_rules_set *set,
                                         const struct weir_rules_text *text, weir_log_fn log,
                                         void *log_ctx);

#endif
