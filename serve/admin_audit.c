/* admin_audit.c - GET /api/v1/audit: the last changes, the newest first.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "serve/admin.h"
#include "serve/audit.h"

#include <inttypes.h>
#include <time.h>

struct list {
    struct weir_buf *to;
    bool has_some;
};

static void put_time(struct weir_buf *to, uint64_t time_ns)
{
    time_t seconds = (time_t)(time_ns / UINT64_C(1000000000));
    struct tm parts = {0};
    char text[32] = "";
    if (gmtime_r(&seconds, &parts) != NULL)
        (void)strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
    weir_admin_add(to, ",\"time\":\"%s\"", text);
}

static void put_text(struct weir_buf *to, const char *name, const char *text)
{
    if (text[0] == '\0')
        return;
    weir_admin_add(to, ",\"%s\":", name);
    weir_admin_add_json(to, weir_str_of(text));
}

static void put_entry(void *ctx, const struct weir_audit_entry *entry)
{
    struct list *list = ctx;
    weir_admin_add(list->to, "%s{\"number\":%" PRIu64, list->has_some ? "," : "", entry->number);
    put_time(list->to, entry->time_ns);
    put_text(list->to, "what", entry->what);
    put_text(list->to, "peer", entry->peer);
    put_text(list->to, "target", entry->target);
    put_text(list->to, "from", entry->before);
    put_text(list->to, "to", entry->after);
    weir_buf_add_char(list->to, '}');
    list->has_some = true;
}

void weir_admin_audit(struct weir_admin_call *call)
{
    struct list list = {.to = &call->body};
    call->content_type = WEIR_ADMIN_JSON;
    weir_admin_add(&call->body, "{\"changes\":[");
    weir_audit_each(weir_service_audit(call->worker->service), put_entry, &list);
    weir_admin_add(&call->body, "]}\n");
}
