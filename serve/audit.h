/* audit.h - what was changed while everything ran: when, by whom, from what, to what.
 *
 * The last WEIR_AUDIT_MAX changes, in the service's memory: a restart begins anew, and the log,
 * which gets a line for each, is what lasts.  In the log, keys are hashed as everywhere; here they
 * are in words, for who may change a key may read it.
 *
 * Threads: any, at once; a mutex, for this is no data plane.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_AUDIT_H
#define WEIR_SERVE_AUDIT_H

#include "serve/log.h"

#define WEIR_AUDIT_MAX 256

struct weir_audit;

/* One change.  Texts that are too long for their place are cut, and end in "...". */
struct weir_audit_entry {
    uint64_t number; /* 1.. since the start */
    uint64_t time_ns;
    char what[16];
    char peer[48];    /* empty: nobody from outside */
    char target[256]; /* rule, path, or domain and entries */
    char before[48];
    char after[48];
};

WEIR_MUST_CHECK int weir_audit_new(struct weir_audit **out, struct weir_log *log);
void weir_audit_free(struct weir_audit *audit);

/* What is said of a change; NULL: nothing. */
struct weir_audit_change {
    uint64_t time_ns;
    const char *what, *peer;
    struct weir_str domain; /* of a key; len 0: not a key */
    struct weir_str target;
    const char *before, *after;
};
/* Keeps it, and writes it to the log. */
void weir_audit_add(struct weir_audit *audit, const struct weir_audit_change *change);

/* The newest first.  each() is called without the lock. */
void weir_audit_each(struct weir_audit *audit,
                     void (*each)(void *ctx, const struct weir_audit_entry *entry), void *ctx);

#endif
