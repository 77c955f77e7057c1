/* engine.h - the inside of struct weir: a request comes in, a decision goes out.
 *
 *     plan    each descriptor -> its rule -> the counters that it meets     no count is touched
 *     charge  each counter is taken, all of a descriptor or none            the store
 *     combine the statuses -> one answer
 *
 * A request is planned whole before anything is charged, for three reasons: a bad request must
 * count nothing, `replaces` must know all the rules that matched, and the memory of all rules and
 * of all counters can be fetched at once.  A plan lives in the session, so a decision allocates
 * nothing.
 *
 * Rules are published with one store (publish.h); a session holds the version that it last used.
 *
 * Purity: no clock and no I/O but in open and reload.
 * Threads: one session, one thread.  The engine's lock (a mutex, though threads are not ours to
 *          make: its callers have them) guards the lists of sessions and of old rules, is held for
 *          a few instructions when one is opened, closed or published, and never while deciding.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_ENGINE_H
#define WEIR_ENGINE_ENGINE_H

#include "base/hot.h"
#include "base/maxima.h"
#include "engine/http.h"
#include "engine/recall.h"
#include "engine/throttle.h"
#include "engine/value_stats.h"
#include "rules/rules.h"
#include "rules/watch.h"
#include "store/local.h"
#include "table/table.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <weir/weir.h>

#define WEIR_CHARGES_MAX (WEIR_DESCRIPTORS_MAX * WEIR_LIMITS_MAX) /* of one request */
#define WEIR_UNITS (WEIR_UNIT_WEEK + 1)

/* One version of the rules.  Immutable once published, but for `holds` and `next`. */
struct weir_published {
    struct weir_rules *rules; /* NULL: there are none, and no domain exists */
    uint64_t generation;
    uint64_t sum;                /* over the rules: the same in all processes that have them */
    uint64_t since_ns;           /* when it was published */
    uint32_t holds;              /* readers that are no sessions; under the engine's lock */
    struct weir_published *next; /* in the list of old versions; under the engine's lock */
};

struct weir {
    /* What every decision reads, in one line: */
    struct weir_table *table;
    _Atomic(struct weir_published *) current;
    _Atomic uint64_t generation;
    float near_ratio;
    bool is_shadow;              /* options.shadow_mode */
    struct weir_options options; /* rules_path is ours, table_path is not kept */

    struct weir_limit overrides[WEIR_UNITS]; /* by unit: what a request's own limit starts from */
    struct weir_rules_watch *watch;          /* NULL: no rules to watch */
    bool is_unlinked;                        /* said so already */
    bool has_bad_rules;                      /* the last ones that were loaded: said so, too */

    _Atomic(struct weir_value_stats *) values; /* NULL: no rule has ever asked for them */
    struct weir_value_stats *strangers; /* domains that were asked for, and that no rules know */

    pthread_mutex_t lock; /* for what follows; see the head of this file */
    struct weir_session *sessions;
    struct weir_published *old; /* no longer current, perhaps held */
    uint32_t session_number;
};

/* One counter that a request meets.  The first one of a session lies in three cache lines, as far
 * as a token bucket reads it. */
struct weir_charge {
    const struct weir_limit *limit;
    uint64_t key;
    uint64_t hits;
    uint64_t mark;        /* what a ticket needs, once taken */
    uintptr_t order;      /* of its rule in the files */
    union weir_u16b *met; /* see weir_local_take_again() */
    bool is_taken;
    struct weir_verdict verdict;
    /* Where limit is none of a rule: of terms that rules share, or a key's. */
    struct weir_limit own;
};

/* What one descriptor comes to. */
struct weir_item {
    /* What charging reads, 64 bytes: */
    struct weir_charge *charges;
    uint32_t charge_count; /* 0: nothing to decide, the answer is OK */
    uint32_t stat;
    struct weir_value_stat *value; /* counts too, where the rule wants the request's values named */
    uint64_t hits;
    const struct weir_rule *rule; /* NULL: nothing applies, or the request's own limit does */
    uint64_t closed_for_ns;       /* by an operator; 0: not */
    enum weir_unit unit;
    bool is_charged; /* planned: its charges are there */
    bool is_refund;
    bool is_unlimited;
    bool is_quota;
    bool is_rule_shadow; /* by its rule */
    bool is_shadow;      /* that, or an operator has spared it */

    const struct weir_descriptor *descriptor; /* the caller's; while planning only */
    const struct weir_terms *terms;           /* the rule's; NULL: it must be asked itself */
    const struct weir_rule_limit *overridden; /* by this value, instead of the rule's; or NULL */
    uint64_t hash;                            /* of the entries as they are; 0: not known yet */
};

_Static_assert(offsetof(struct weir_item, descriptor) <= WEIR_LINE, "what charging reads");

/* What one request comes to. */
struct weir_plan {
    struct weir_item *items;
    uint32_t item_count;
    bool is_atomic;
    const struct weir_domain *domain; /* NULL: there is none of this name */
};

/* When the next decision is told to the table's list of busy keys (top.h). */
struct weir_top_pace {
    uint32_t mean; /* of the distances now; 0: none yet */
    uint64_t told_ns;
    uint64_t random;
};

/* Behind it lies its memory for HTTP requests (http.h). */
struct weir_session {
    /* What every decision reads, in one line: */
    struct weir *engine;
    const struct weir_published *mine; /* the same as held, for the owner alone */
    uint64_t plain_ns;                 /* no key had a limit of its own then (check_http.c) */
    uint32_t number;                   /* which share of the statistics is ours */
    uint32_t top_countdown;            /* to the next decision that is told (top.h) */
    uint32_t item_count, charge_count;
    bool is_recallable;     /* plans[0] is what the answers in recall come to */
    bool foretell;          /* requests come with another key each (recall.h) */
    _Atomic(bool) has_news; /* mine may not be current (publish.h) */

    /* With that, all that a request needs which is like the last one, in one page: */
    struct weir_swift swift;
    struct weir_recall recall;
    _Alignas(WEIR_LINE) struct weir_plan plans[WEIR_DESCRIPTORS_MAX];

    uint32_t plan_count;
    struct weir_top_pace top;
    _Atomic(const struct weir_published *) held; /* what must not be freed under us */
    _Alignas(WEIR_LINE) struct weir_item items[WEIR_DESCRIPTORS_MAX];
    _Alignas(WEIR_LINE) struct weir_charge charges[WEIR_CHARGES_MAX];
    struct weir_charge *order[WEIR_CHARGES_MAX];
    struct weir_limit overrides[WEIR_DESCRIPTORS_MAX]; /* by item: the request's own limits */
    struct weir_guess guesses[WEIR_DESCRIPTORS_MAX];   /* by item */
    uint64_t last_tags[WEIR_DESCRIPTORS_MAX];          /* by item: of the terms met last; 0: none */
    struct weir_match match;
    struct weir_throttle_sets throttles;
    struct weir_session *next; /* under the engine's lock */
    void *block;               /* the memory in which this begins a cache line */

    /* The domain that was asked for last: most callers only ever ask for one.  Of `mine`. */
    const struct weir_domain *domain;
    uint32_t domain_len; /* 0: none */
    char domain_name[WEIR_DOMAIN_LEN_MAX];
};

_Static_assert(offsetof(struct weir_session, swift) == WEIR_LINE, "what every decision reads");
_Static_assert(offsetof(struct weir_session, plans) < 4096, "what is recalled: a page");

static inline struct weir_http_room *weir_http_room_of(struct weir_session *s)
{
    return (struct weir_http_room *)(s + 1);
}

/* One line to the engine's log, if it has one. */
__attribute__((format(printf, 3, 4))) void weir_engine_log(const struct weir *w,
                                                           enum weir_level level, const char *text,
                                                           ...);

#endif
