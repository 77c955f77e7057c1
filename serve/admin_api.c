/* admin_api.c - /rlconfig and /api/v1: which answer is whose, and the rules as loaded.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/limit.h"
#include "base/str.h"
#include "engine/engine.h"
#include "engine/publish.h"
#include "serve/admin.h"

#include <inttypes.h>

#define ROOM_LEFT 65536 /* bytes of the body at which a list of rules ends */

/* ---- rules ---- */

static void put_config_line(struct weir_buf *to, const struct weir_rule *rule)
{
    const char *unit = weir_unit_name((enum weir_unit)rule->unit);
    char upper[16] = "UNKNOWN";
    for (size_t i = 0; unit != NULL && i < sizeof(upper); i++) {
        upper[i] = (char)(unit[i] >= 'a' ? unit[i] - 32 : unit[i]);
        if (unit[i] == '\0')
            break;
    }
    weir_buf_add(to, rule->info.id);
    weir_admin_add(to, ": unit=%s requests_per_unit=%" PRIu32 ", shadow_mode: %s, quota_mode: %s\n",
                   upper, rule->is_unlimited ? 0 : rule->info.requests_per_unit,
                   rule->is_shadow ? "true" : "false", rule->is_quota ? "true" : "false");
}

static void put_limit(struct weir_buf *to, const struct weir_limit *limit)
{
    weir_admin_add(to,
                   "{\"algorithm\":\"%s\",\"requests\":%" PRIu32 ",\"window_s\":%" PRIu64
                   ",\"burst\":%" PRIu32 "}",
                   weir_algorithm_name((enum weir_algorithm)limit->algorithm), limit->requests,
                   limit->window_ns / WEIR_NS_PER_S, limit->burst);
}

static void put_rule(struct weir_buf *to, const struct weir_rule *rule)
{
    const struct weir_rule_limit *limits = weir_rule_limits(rule);
    weir_admin_add(to, "{\"id\":");
    weir_admin_add_json(to, rule->info.id);
    weir_admin_add(to, ",\"name\":");
    weir_admin_add_json(to, rule->info.name);
    weir_admin_add(to, ",\"unlimited\":%s,\"shadow_mode\":%s,\"quota_mode\":%s,\"limits\":[",
                   rule->is_unlimited ? "true" : "false", rule->is_shadow ? "true" : "false",
                   rule->is_quota ? "true" : "false");
    for (uint32_t i = 0; i < rule->limit_count; i++) {
        if (i > 0)
            weir_buf_add_char(to, ',');
        put_limit(to, &limits[i].limit);
    }
    weir_admin_add(to, "]}");
}

/* ?from=N begins with the Nth: a page has as many as fit. */
static uint32_t first_of(const struct weir_admin_call *call, uint32_t count)
{
    return weir_admin_number(call->query, "from", 0, count);
}

static void answer_config(struct weir_admin_call *call)
{
    struct weir_buf *to = &call->body;
    struct weir_published *p = weir_publish_borrow(call->worker->engine);
    uint32_t count = p->rules ? weir_rules_count(p->rules) : 0;
    call->content_type = "text/plain; charset=utf-8";
    for (uint32_t i = first_of(call, count); i < count && to->len + ROOM_LEFT < to->len_max; i++)
        put_config_line(to, weir_rules_at(p->rules, i));
    weir_publish_return(call->worker->engine, p);
}

static void answer_rules(struct weir_admin_call *call)
{
    struct weir_buf *to = &call->body;
    struct weir_published *p = weir_publish_borrow(call->worker->engine);
    uint32_t count = p->rules ? weir_rules_count(p->rules) : 0, first = first_of(call, count);
    uint32_t i = first;
    call->content_type = WEIR_ADMIN_JSON;
    weir_admin_add(to, "{\"generation\":%" PRIu64 ",\"count\":%" PRIu32 ",\"rules\":[",
                   p->generation, count);
    for (; i < count && to->len + ROOM_LEFT < to->len_max; i++) {
        if (i > first)
            weir_buf_add_char(to, ',');
        put_rule(to, weir_rules_at(p->rules, i));
    }
    weir_buf_add_char(to, ']');
    if (i < count)
        weir_admin_add(to, ",\"next\":%" PRIu32, i);
    weir_admin_add(to, "}\n");
    weir_publish_return(call->worker->engine, p);
}

/* ---- routes ---- */

bool weir_admin_api(struct weir_admin_call *call)
{
    static const struct {
        const char *path, *methods[3]; /* GET is HEAD, too */
        void (*answer)(struct weir_admin_call *call);
    } routes[] = {{"/rlconfig", {"GET"}, answer_config},
                  {"/api/v1/rules", {"GET"}, answer_rules},
                  {"/api/v1/explain", {"POST"}, weir_admin_explain},
                  {"/api/v1/key", {"GET", "DELETE"}, weir_admin_state},
                  {"/api/v1/overrides", {"GET", "PUT", "DELETE"}, weir_admin_overrides},
                  {"/api/v1/top", {"GET"}, weir_admin_top},
                  {"/api/v1/store", {"GET"}, weir_admin_store},
                  {"/api/v1/audit", {"GET"}, weir_admin_audit}};
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        if (!weir_str_eq(call->path, weir_str_of(routes[i].path)))
            continue;
        call->status = 200;
        for (size_t m = 0; m < 3 && routes[i].methods[m] != NULL; m++) {
            if (weir_admin_is_method(call, routes[i].methods[m])) {
                routes[i].answer(call);
                return true;
            }
        }
        weir_admin_say(call, 405, "405 method not allowed\n");
        return true;
    }
    return weir_admin_enforcement(call) || weir_admin_rules_db(call);
}
