/* admin_overrides.c - /api/v1/overrides: another limit for one key, for a while.
 *
 *     GET                             all that are in force
 *     PUT ?domain=D&KEY=VALUE...      {"requests_per_unit":5,"expires_in_s":600}; 0: blocked
 *                                     {"unlimited":true,"expires_in_s":600}
 *     DELETE ?domain=D&KEY=VALUE...   the rule's own limit again
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/limit.h"
#include "base/str.h"
#include "serve/admin_body.h"
#include "serve/admin_key.h"
#include "serve/ask.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPIRES_IN_S_MAX (UINT64_C(366) * 86400)

/* ---- showing ---- */

struct list {
    struct weir_buf *to;
    uint64_t now_ns;
    bool has_some;
};

static void put_override(void *ctx, const struct weir_key_limit_view *view)
{
    struct list *list = ctx;
    uint64_t left_ns = view->limit.until_ns - list->now_ns;
    if (view->ordinal > 0)
        weir_admin_add(list->to, "%s{\"counter\":%" PRIu32 ",\"rule\":", list->has_some ? "," : "",
                       view->ordinal);
    else
        weir_admin_add(list->to, "%s{\"rule\":", list->has_some ? "," : "");
    weir_admin_add_json(list->to, view->rule_id);
    weir_admin_put_words(list->to, view->key);
    if (view->limit.is_unlimited)
        weir_admin_add(list->to, ",\"unlimited\":true");
    else
        weir_admin_add(list->to, ",\"requests_per_unit\":%" PRIu32, view->limit.requests_per_unit);
    weir_admin_add(list->to, ",\"expires_in_s\":%" PRIu64 "}",
                   (left_ns + WEIR_NS_PER_S - 1) / WEIR_NS_PER_S);
    list->has_some = true;
}

static void show(struct weir_admin_call *call)
{
    struct list list = {.to = &call->body, .now_ns = weir_loop_now(call->worker->loop)};
    call->content_type = WEIR_ADMIN_JSON;
    weir_admin_add(&call->body, "{\"overrides\":[");
    weir_key_limit_each(call->worker->engine, list.now_ns, put_override, &list);
    weir_admin_add(&call->body, "]}\n");
}

/* ---- changing ---- */

static void say_error(struct weir_admin_call *call, int err)
{
    if (err == WEIR_ERR_NOT_FOUND)
        weir_admin_say(call, 404, "404 no rule limits this key\n");
    else if (err == WEIR_ERR_TOO_LARGE)
        weir_admin_say(call, 400, "400 more than this rule's algorithm can count\n");
    else if (err == WEIR_ERR_FULL)
        weir_admin_say(call, 409, "409 the table has no room for another override\n");
    else
        weir_admin_say_error(call, err);
}

/* What is wanted; false: the answer says what is wrong with it. */
static bool read_limit(struct weir_admin_call *call, struct weir_key_limit *out, uint64_t *for_s)
{
    uint64_t requests = 0, unlimited = 0;
    bool has_requests = false, has_unlimited = false;
    const struct weir_admin_field fields[] = {
        {.name = "requests_per_unit",
         .max = UINT32_MAX,
         .value = &requests,
         .is_given = &has_requests},
        {.name = "unlimited", .is_flag = true, .value = &unlimited, .is_given = &has_unlimited},
        {.name = "expires_in_s", .min = 1, .max = EXPIRES_IN_S_MAX, .value = for_s},
    };
    if (!weir_admin_body_read(call, fields, sizeof(fields) / sizeof(fields[0])))
        return false;
    if (has_requests == (unlimited != 0)) {
        weir_admin_say(call, 400, "400 say either 'requests_per_unit' or 'unlimited': true\n");
        return false;
    }
    *out = (struct weir_key_limit){.requests_per_unit = (uint32_t)requests,
                                   .is_unlimited = unlimited != 0};
    return true;
}

/* Here it is in force at once, where the store counts, too. */
static void let_begin(struct weir_admin_call *call, struct weir_admin_key *key)
{
    if (call->worker->asks == NULL)
        return;
    weir_admin_no_hits(&key->request, &key->descriptor);
    weir_ask_unlease(call->worker->asks, &key->request, weir_loop_now(call->worker->loop));
}

static void put(struct weir_admin_call *call, struct weir_admin_key *key)
{
    struct weir_key_limit limit;
    uint64_t for_s = 0, now_ns = weir_loop_now(call->worker->loop);
    char after[48];
    if (!read_limit(call, &limit, &for_s))
        return;
    limit.until_ns = now_ns + for_s * WEIR_NS_PER_S;
    int err = weir_key_limit_set(call->worker->session, &key->request, &limit, now_ns);
    if (err != 0) {
        say_error(call, err);
        return;
    }
    if (limit.is_unlimited)
        snprintf(after, sizeof(after), "unlimited for %" PRIu64 " s", for_s);
    else
        snprintf(after, sizeof(after), "%" PRIu32 " for %" PRIu64 " s", limit.requests_per_unit,
                 for_s);
    let_begin(call, key);
    weir_admin_note(call, "override", key, NULL, after);
    show(call);
}

static void drop(struct weir_admin_call *call, struct weir_admin_key *key)
{
    int err = weir_key_limit_drop(call->worker->session, &key->request,
                                  weir_loop_now(call->worker->loop));
    if (err == WEIR_ERR_NOT_FOUND) {
        weir_admin_say(call, 404, "404 this key has no override\n");
    } else if (err != 0) {
        say_error(call, err);
    } else {
        let_begin(call, key);
        weir_admin_note(call, "override", key, NULL, "none");
        show(call);
    }
}

/* alloc: a key as it is read is large, and this is rare. */
void weir_admin_overrides(struct weir_admin_call *call)
{
    if (weir_admin_is_get(call)) {
        show(call);
        return;
    }
    struct weir_admin_key *key = malloc(sizeof(*key));
    if (key == NULL)
        weir_admin_say_error(call, WEIR_ERR_NOMEM);
    else if (weir_admin_key_read(call, key))
        weir_admin_is_method(call, "PUT") ? put(call, key) : drop(call, key);
    free(key);
}
