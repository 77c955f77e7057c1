/* admin_enforcement.c - /api/v1/rules/ID/enforcement: the kill switch, and a share of enforcement.
 *
 *     GET     {"rule":"api.user","percent":100}
 *     PUT     {"percent":10}                        the same, as it is now
 *     DELETE                                        100 again
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "proto/uri.h"
#include "serve/admin_body.h"
#include "serve/audit.h"

#include <inttypes.h>
#include <stdio.h>

#define PREFIX "/api/v1/rules/"
#define SUFFIX "/enforcement"

static void say_error(struct weir_admin_call *call, int err)
{
    if (err == WEIR_ERR_NOT_FOUND)
        weir_admin_say(call, 404, "404 no rule has this id\n");
    else if (err == WEIR_ERR_FULL)
        weir_admin_say(
            call, 409,
            "409 this rule has no statistics of its own, there are too many; set 'other' "
            "for all of those\n");
    else
        weir_admin_say_error(call, err);
}

/* False: the answer says what is wrong. */
static bool change(struct weir_admin_call *call, struct weir_str id, uint32_t before,
                   uint32_t percent)
{
    char from[16], to[16];
    int err = weir_enforcement_set(call->worker->engine, id, percent);
    if (err != 0) {
        say_error(call, err);
        return false;
    }
    snprintf(from, sizeof(from), "%" PRIu32 "%%", before);
    snprintf(to, sizeof(to), "%" PRIu32 "%%", percent);
    weir_audit_add(weir_service_audit(call->worker->service),
                   &(struct weir_audit_change){.time_ns = weir_loop_now(call->worker->loop),
                                               .what = "enforcement",
                                               .peer = call->peer,
                                               .target = id,
                                               .before = from,
                                               .after = to});
    return true;
}

static void answer(struct weir_admin_call *call, struct weir_str id)
{
    uint64_t wanted = 100;
    uint32_t percent = 0;
    const struct weir_admin_field fields[] = {{.name = "percent", .max = 100, .value = &wanted}};
    int err = weir_enforcement_get(call->worker->engine, id, &percent);
    if (err != 0) {
        say_error(call, err);
        return;
    }
    if (weir_str_eq(call->request->method, WEIR_STR("PUT")) &&
        !weir_admin_body_read(call, fields, sizeof(fields) / sizeof(fields[0])))
        return;
    bool is_change = !weir_admin_is_get(call);
    if (is_change && !change(call, id, percent, (uint32_t)wanted))
        return;
    call->content_type = WEIR_ADMIN_JSON;
    weir_admin_add(&call->body, "{\"rule\":");
    weir_admin_add_json(&call->body, id);
    weir_admin_add(&call->body, ",\"percent\":%" PRIu32 "}\n",
                   is_change ? (uint32_t)wanted : percent);
}

bool weir_admin_enforcement(struct weir_admin_call *call)
{
    char decoded[WEIR_HTTP1_TARGET_MAX];
    const struct weir_str prefix = WEIR_STR(PREFIX), suffix = WEIR_STR(SUFFIX);
    struct weir_str id = call->path;
    if (!weir_str_starts(id, prefix) || !weir_str_ends(id, suffix) ||
        id.len <= prefix.len + suffix.len)
        return false;
    id.ptr += prefix.len;
    id.len -= prefix.len + suffix.len;
    id.len = weir_uri_decode(id, decoded);
    id.ptr = decoded;
    call->status = 200;
    if (weir_admin_is_get(call) || weir_admin_is_method(call, "PUT") ||
        weir_admin_is_method(call, "DELETE"))
        answer(call, id);
    else
        weir_admin_say(call, 405, "405 method not allowed\n");
    return true;
}
