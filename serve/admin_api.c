/* admin_api.c - /rlconfig and /api/v1: the rules as loaded, and what is left of a key's limits.
 *
 * A key is asked about as a request would name it, by domain and entries; what is looked up is the
 * counters that such a request would meet.  Looking takes nothing and counts nothing.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo/limit.h"
#include "base/str.h"
#include "engine/engine.h"
#include "engine/publish.h"
#include "proto/rls_json.h"
#include "serve/admin_key.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define ROOM_LEFT 65536 /* bytes of the body at which a list of rules ends */
#define WHY_LEN 256

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

/* ---- keys ---- */

static void put_status(struct weir_buf *to, const struct weir_status *status)
{
    weir_admin_add(to, "{\"limited\":%s", status->is_limited ? "true" : "false");
    if (status->rule != NULL) {
        weir_admin_add(to, ",\"rule\":");
        weir_admin_add_json(to, status->rule->id);
    }
    if (status->is_unlimited)
        weir_admin_add(to, ",\"unlimited\":true");
    if (status->is_quota)
        weir_admin_add(to, ",\"quota_mode\":true");
    if (status->is_limited)
        weir_admin_add(
            to, ",\"limit\":%" PRIu64 ",\"remaining\":%" PRIu64 ",\"reset_after_ms\":%" PRIu64,
            status->limit, status->remaining, (status->reset_after_ns + 999999) / 1000000);
    weir_buf_add_char(to, '}');
}

/* descriptors: ours to change. */
static void look(struct weir_admin_call *call, const struct weir_request *request,
                 struct weir_descriptor *descriptors)
{
    struct weir_status statuses[WEIR_DESCRIPTORS_MAX];
    struct weir_decision decision = {.statuses = statuses};
    for (uint32_t i = 0; i < request->descriptor_count && i < WEIR_DESCRIPTORS_MAX; i++) {
        descriptors[i].has_hits = true;
        descriptors[i].is_negative_hits = false;
        descriptors[i].hits = 0;
    }
    int err =
        weir_check(call->worker->session, request, weir_loop_now(call->worker->loop), &decision);
    if (err != 0) {
        weir_admin_say_error(call, err);
        return;
    }
    call->content_type = WEIR_ADMIN_JSON;
    weir_admin_add(&call->body, "{\"descriptors\":[");
    for (uint32_t i = 0; i < decision.status_count; i++) {
        if (i > 0)
            weir_buf_add_char(&call->body, ',');
        put_status(&call->body, &statuses[i]);
    }
    weir_admin_add(&call->body, "]}\n");
}

static void reset(struct weir_admin_call *call, const struct weir_admin_key *key)
{
    uint32_t cleared = 0;
    char count[32];
    int err = weir_reset(call->worker->session, &key->request, &cleared);
    if (err != 0) {
        weir_admin_say_error(call, err);
        return;
    }
    snprintf(count, sizeof(count), "%" PRIu32 " cleared", cleared);
    weir_admin_note(call, "reset", key, NULL, count);
    call->content_type = WEIR_ADMIN_JSON;
    weir_admin_add(&call->body, "{\"cleared\":%" PRIu32 "}\n", cleared);
}

/* alloc: a request in JSON is large, and this is rare. */
static void answer_explain(struct weir_admin_call *call)
{
    char why[WHY_LEN] = "";
    struct weir_rls_json *json = malloc(sizeof(*json));
    if (json == NULL) {
        weir_admin_say(call, 503, "503 out of memory\n");
        return;
    }
    if (weir_rls_json_parse(json, call->request->body, why, sizeof(why)) != 0)
        weir_admin_say(call, 400, why);
    else
        look(call, &json->request, json->descriptors);
    weir_rls_json_fini(json);
    free(json);
}

/* GET and DELETE /api/v1/key.  alloc: a key as it is read is large, and this is rare. */
static void answer_key(struct weir_admin_call *call)
{
    struct weir_admin_key *key = malloc(sizeof(*key));
    if (key == NULL)
        weir_admin_say_error(call, WEIR_ERR_NOMEM);
    else if (weir_admin_key_read(call, key))
        weir_admin_is_method(call, "DELETE") ? reset(call, key)
                                             : look(call, &key->request, &key->descriptor);
    free(key);
}

/* ---- routes ---- */

bool weir_admin_api(struct weir_admin_call *call)
{
    static const struct {
        const char *path, *methods[3]; /* GET is HEAD, too */
        void (*answer)(struct weir_admin_call *call);
    } routes[] = {{"/rlconfig", {"GET"}, answer_config},
                  {"/api/v1/rules", {"GET"}, answer_rules},
                  {"/api/v1/explain", {"POST"}, answer_explain},
                  {"/api/v1/key", {"GET", "DELETE"}, answer_key},
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
