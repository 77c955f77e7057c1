/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/audit.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct weir_audit {
    struct weir_log *log;
    pthread_mutex_t lock; /* for what follows */
    uint64_t count;       /* ever */
    struct weir_audit_entry entries[WEIR_AUDIT_MAX];
};

int weir_audit_new(struct weir_audit **out, struct weir_log *log)
{
    struct weir_audit *audit = calloc(1, sizeof(*audit));
    if (audit == NULL)
        return WEIR_ERR_NOMEM;
    audit->log = log;
    pthread_mutex_init(&audit->lock, NULL); /* cannot fail without attributes */
    *out = audit;
    return 0;
}

void weir_audit_free(struct weir_audit *audit)
{
    if (audit == NULL)
        return;
    pthread_mutex_destroy(&audit->lock);
    free(audit);
}

static void copy(char *to, size_t room, struct weir_str text)
{
    bool fits = text.len < room;
    snprintf(to, room, "%.*s%s", (int)(fits ? text.len : room - 4), text.ptr, fits ? "" : "...");
}

static void copy_text(char *to, size_t room, const char *text)
{
    copy(to, room, weir_str_of(text ? text : ""));
}

static void write_log(struct weir_audit *audit, const struct weir_audit_change *change)
{
    bool is_key = change->domain.len > 0;
    WEIR_LOG(audit->log, WEIR_LOG_INFO, "changed", WEIR_LOG_TEXT("what", change->what),
             WEIR_LOG_TEXT("peer", change->peer ? change->peer : ""),
             WEIR_LOG_STR("domain", change->domain),
             is_key ? WEIR_LOG_KEY("target", change->target)
                    : WEIR_LOG_STR("target", change->target),
             WEIR_LOG_TEXT("from", change->before ? change->before : ""),
             WEIR_LOG_TEXT("to", change->after ? change->after : ""));
}

void weir_audit_add(struct weir_audit *audit, const struct weir_audit_change *change)
{
    pthread_mutex_lock(&audit->lock);
    struct weir_audit_entry *entry = &audit->entries[audit->count++ % WEIR_AUDIT_MAX];
    entry->number = audit->count;
    entry->time_ns = change->time_ns;
    copy_text(entry->what, sizeof(entry->what), change->what);
    copy_text(entry->peer, sizeof(entry->peer), change->peer);
    copy(entry->target, sizeof(entry->target), change->target);
    copy_text(entry->before, sizeof(entry->before), change->before);
    copy_text(entry->after, sizeof(entry->after), change->after);
    pthread_mutex_unlock(&audit->lock);
    write_log(audit, change);
}

void weir_audit_each(struct weir_audit *audit,
                     void (*each)(void *ctx, const struct weir_audit_entry *entry), void *ctx)
{
    pthread_mutex_lock(&audit->lock);
    uint64_t newest = audit->count;
    pthread_mutex_unlock(&audit->lock);
    for (uint64_t n = newest; n > 0 && newest - n < WEIR_AUDIT_MAX; n--) {
        pthread_mutex_lock(&audit->lock);
        struct weir_audit_entry entry = audit->entries[(n - 1) % WEIR_AUDIT_MAX];
        pthread_mutex_unlock(&audit->lock);
        if (entry.number == n) /* not overwritten meanwhile */
            each(ctx, &entry);
    }
}
