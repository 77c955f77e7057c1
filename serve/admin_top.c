/* admin_top.c - GET /api/v1/top: the busiest keys of the last minute, over all processes.
 *
 *     {"keys":[{"rule":"api.user","domain":"api","entries":[...],"hits":1200,"over_limit":900}]}
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "serve/admin_key.h"

#include <inttypes.h>

#define SHOWN 50 /* unless ?limit= says otherwise */

struct list {
    struct weir_buf *to;
    uint32_t left, shown;
};

static void put_key(void *ctx, const struct weir_top_key *one)
{
    struct list *list = ctx;
    if (list->left == 0)
        return;
    weir_admin_add(list->to, "%s{\"rule\":", list->shown > 0 ? "," : "");
    weir_admin_add_json(list->to, one->rule_id);
    weir_admin_put_words(list->to, one->key);
    weir_admin_add(list->to, ",\"hits\":%" PRIu64 ",\"over_limit\":%" PRIu64 "}", one->hits,
                   one->over_limit);
    list->left--;
    list->shown++;
}

void weir_admin_top(struct weir_admin_call *call)
{
    struct list list = {
        .to = &call->body,
        .left = weir_admin_number(call->query, "limit", SHOWN, WEIR_TOP_KEYS_MAX),
    };
    call->content_type = WEIR_ADMIN_JSON;
    weir_admin_add(&call->body, "{\"keys\":[");
    weir_top_each(call->worker->engine, weir_loop_now(call->worker->loop), put_key, &list);
    weir_admin_add(&call->body, "]}\n");
}
