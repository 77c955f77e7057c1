/* admin_metrics.c - /metrics: what was counted, by rule, by protocol, in the table.
 *
 * By rule: at most WEIR_STATS_RULES_MAX lines and "other", however many rules there are; rules that
 * share a name share a line.  With ?format=ratelimit the names are those of envoyproxy/ratelimit's
 * own mapping: domain and the first two levels, all deeper ones added up.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "engine/engine.h"
#include "engine/publish.h"
#include "proto/prom.h"
#include "serve/admin.h"
#include "serve/eventual.h"
#include "serve/rules_follow.h"
#include "table/controls.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LABELS_MAX 3
#define ROOM_LEFT 65536 /* bytes of the body that rules leave to what follows them */

/* One line for each family. */
struct line {
    struct weir_str labels[LABELS_MAX];
    uint64_t counts[WEIR_COUNTERS];
    uint32_t enforced_percent;
    const struct weir_rule *rule; /* NULL: "other" */
};

struct lines {
    struct line *at;
    size_t count;
    size_t label_count;
    const char *names[LABELS_MAX];
    uint64_t left_out; /* lines for which there was no room */
};

/* ---- rules ---- */

/* "domain.key1.key2.deeper" to its first three parts. */
static void split_path(struct weir_str path, struct weir_str labels[LABELS_MAX])
{
    for (size_t i = 0; i < LABELS_MAX; i++) {
        const char *dot = path.len > 0 ? memchr(path.ptr, '.', path.len) : NULL;
        size_t len = dot ? (size_t)(dot - path.ptr) : path.len;
        labels[i] = (struct weir_str){.ptr = path.ptr, .len = len};
        len += dot != NULL;
        path = (struct weir_str){.ptr = path.ptr + len, .len = path.len - len};
    }
}

static struct line *add_named(struct lines *lines, struct weir_str id)
{
    struct line *line = &lines->at[lines->count++];
    *line = (struct line){0};
    if (lines->label_count == 1)
        line->labels[0] = id;
    else
        split_path(id, line->labels);
    return line;
}

static void add_line(struct lines *lines, const struct weir_table *table, uint32_t stat,
                     struct weir_str id, const struct weir_rule *rule)
{
    struct line *line = add_named(lines, id);
    line->enforced_percent = weir_enforced_percent(table, stat);
    line->rule = rule;
    for (enum weir_counter c = 0; c < WEIR_COUNTERS; c++)
        line->counts[c] = weir_stats_read(table, stat, c);
}

/* In their format rules may be there under names with values instead. */
static void add_values(struct lines *lines, const struct weir *w)
{
    const struct weir_value_stats *values = atomic_load_explicit(&w->values, memory_order_acquire);
    for (uint32_t i = 0; i < WEIR_VALUE_PLACES; i++) {
        const struct weir_value_stat *stat = weir_value_stats_at(values, i);
        if (stat == NULL)
            continue;
        struct line *line = add_named(lines, (struct weir_str){stat->name, stat->len});
        for (enum weir_counter c = 0; c < WEIR_COUNTERS; c++)
            line->counts[c] = atomic_load_explicit(&stat->counts[c], memory_order_relaxed);
    }
}

static int compare_str(struct weir_str a, struct weir_str b)
{
    size_t len = a.len < b.len ? a.len : b.len;
    int order = len > 0 ? memcmp(a.ptr, b.ptr, len) : 0;
    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

static int compare(const void *a, const void *b)
{
    const struct line *one = a, *other = b;
    int order = 0;
    for (size_t i = 0; i < LABELS_MAX && order == 0; i++)
        order = compare_str(one->labels[i], other->labels[i]);
    return order;
}

/* Lines of one name become one: Prometheus refuses a page that says something twice. */
static void merge(struct lines *lines)
{
    size_t kept = 0;
    qsort(lines->at, lines->count, sizeof(*lines->at), compare);
    for (size_t i = 1; i < lines->count; i++) {
        if (compare(&lines->at[kept], &lines->at[i]) != 0) {
            lines->at[++kept] = lines->at[i];
            continue;
        }
        for (enum weir_counter c = 0; c < WEIR_COUNTERS; c++)
            lines->at[kept].counts[c] += lines->at[i].counts[c];
    }
    lines->count = lines->count > 0 ? kept + 1 : 0;
}

/* alloc: at most one line for each number of statistics. */
static int collect(struct lines *lines, const struct weir *w, const struct weir_published *p)
{
    uint32_t count = p->rules ? weir_rules_count(p->rules) : 0;
    uint64_t seen[WEIR_STATS_RULES_MAX / 64 + 1] = {0};
    bool has_values = lines->label_count > 1;
    lines->at = calloc(WEIR_STATS_RULES_MAX + 1 + WEIR_VALUE_PLACES, sizeof(*lines->at));
    if (lines->at == NULL)
        return WEIR_ERR_NOMEM;
    for (uint32_t i = 0; i < count && lines->count < WEIR_STATS_RULES_MAX; i++) {
        const struct weir_rule *rule = weir_rules_at(p->rules, i);
        uint64_t bit = UINT64_C(1) << rule->stat % 64;
        if (rule->stat == 0 || rule->stat > WEIR_STATS_RULES_MAX || seen[rule->stat / 64] & bit)
            continue;
        seen[rule->stat / 64] |= bit;
        if (has_values && rule->has_value_stats)
            continue;
        add_line(lines, w->table, rule->stat, rule->info.id, rule);
    }
    if (weir_stats_read(w->table, 0, WEIR_COUNTER_TOTAL_HITS) > 0)
        add_line(lines, w->table, 0, WEIR_STR("other"), NULL);
    if (has_values)
        add_values(lines, w);
    merge(lines);
    return 0;
}

static void put_line(struct weir_buf *to, struct lines *lines, const struct line *line,
                     const char *name, uint64_t value)
{
    struct weir_prom_label labels[LABELS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < lines->label_count; i++) {
        /* A level that is not there has no label: the same to Prometheus as an empty one. */
        if (line->labels[i].len > 0)
            labels[count++] = (struct weir_prom_label){lines->names[i], line->labels[i]};
    }
    if (to->len + ROOM_LEFT > to->len_max)
        lines->left_out++;
    else
        weir_prom_sample(to, name, labels, count, value);
}

/* What was set, not counted: by the rules, and by an operator. */
static void put_settings(struct weir_buf *to, struct lines *lines)
{
    weir_prom_head(to, "weir_rule_limit", "gauge", "The first limit of a rule, per unit.");
    for (size_t i = 0; i < lines->count; i++)
        if (lines->at[i].rule != NULL && !lines->at[i].rule->is_unlimited)
            put_line(to, lines, &lines->at[i], "weir_rule_limit",
                     lines->at[i].rule->info.requests_per_unit);
    weir_prom_head(to, "weir_rule_enforced_percent", "gauge",
                   "How much of what a rule refuses is refused: 100, unless an operator says so.");
    for (size_t i = 0; i < lines->count; i++)
        put_line(to, lines, &lines->at[i], "weir_rule_enforced_percent",
                 lines->at[i].enforced_percent);
}

static void put_rules(struct weir_buf *to, struct lines *lines, bool as_ratelimit)
{
    static const struct {
        const char *ours, *theirs, *help;
    } families[WEIR_COUNTERS] = {
        [WEIR_COUNTER_TOTAL_HITS] = {"weir_rule_hits_total", "total_hits", "Hits asked for."},
        [WEIR_COUNTER_OVER_LIMIT] = {"weir_rule_over_limit_total", "over_limit",
                                     "Hits over the limit."},
        [WEIR_COUNTER_NEAR_LIMIT] = {"weir_rule_near_limit_total", "near_limit",
                                     "Hits near the limit."},
        [WEIR_COUNTER_WITHIN_LIMIT] = {"weir_rule_within_limit_total", "within_limit",
                                       "Hits within the limit."},
        [WEIR_COUNTER_SHADOW_MODE] = {"weir_rule_shadow_mode_total", "shadow_mode",
                                      "Hits over the limit that were let through."},
        [WEIR_COUNTER_BY_SKETCH] = {"weir_rule_over_limit_by_sketch_total", NULL,
                                    "Hits refused by what a full table's sketch remembers."},
        [WEIR_COUNTER_NEGATIVE_HITS] = {"weir_rule_hits_given_back_total", "total_negative_hits",
                                        "Hits given back by requests with negative hits."},
    };
    for (enum weir_counter c = 0; c < WEIR_COUNTERS; c++) {
        char name[64];
        if (as_ratelimit && families[c].theirs == NULL)
            continue;
        snprintf(name, sizeof(name), "%s%s", as_ratelimit ? "ratelimit_service_rate_limit_" : "",
                 as_ratelimit ? families[c].theirs : families[c].ours);
        weir_prom_head(to, name, "counter", families[c].help);
        for (size_t i = 0; i < lines->count; i++)
            put_line(to, lines, &lines->at[i], name, lines->at[i].counts[c]);
    }
    if (!as_ratelimit)
        put_settings(to, lines);
}

/* ---- everything else ---- */

static const char *const protocols[WEIR_FRONTS] = {
    [WEIR_FRONT_GRPC] = "grpc", [WEIR_FRONT_HTTP] = "http",   [WEIR_FRONT_RESP] = "resp",
    [WEIR_FRONT_DESK] = "desk", [WEIR_FRONT_ADMIN] = "admin",
};

static void put_number(struct weir_buf *to, const char *name, const char *type, const char *help,
                       uint64_t value)
{
    weir_prom_head(to, name, type, help);
    weir_prom_sample(to, name, NULL, 0, value);
}

static void put_requests(struct weir_buf *to, const struct weir_service *service)
{
    static const struct {
        const char *name, *help;
    } families[WEIR_FRONT_COUNTS] = {
        [WEIR_FRONT_COUNT_REQUESTS] = {"weir_requests_total", "Requests decided, or answered."},
        [WEIR_FRONT_COUNT_OVER_LIMIT] = {"weir_requests_over_limit_total",
                                         "Requests that were refused."},
        [WEIR_FRONT_COUNT_SHADOWED] = {"weir_requests_shadowed_total",
                                       "Requests let through for shadow_mode alone."},
        [WEIR_FRONT_COUNT_BAD] = {"weir_requests_bad_total",
                                  "Requests that made no sense, or were over a maximum."},
    };
    for (enum weir_front_count c = 0; c < WEIR_FRONT_COUNTS; c++) {
        weir_prom_head(to, families[c].name, "counter", families[c].help);
        for (enum weir_front front = 0; front < WEIR_FRONTS; front++) {
            const struct weir_prom_label label = {"protocol", weir_str_of(protocols[front])};
            weir_prom_sample(to, families[c].name, &label, 1,
                             weir_service_count(service, front, c));
        }
    }
}

/* Of /check?hold=1. */
static void put_holds(struct weir_buf *to, const struct weir_service *service)
{
    static const char name[] = "weir_hold_refusals_total";
    const struct weir_prom_label too_long = {"bound", WEIR_STR("hold_max")};
    const struct weir_prom_label no_room = {"bound", WEIR_STR("hold_requests")};
    put_number(to, "weir_holds", "gauge", "Answers that are held at this moment.",
               weir_service_hold_count(service, WEIR_HOLD_COUNT_NOW));
    put_number(to, "weir_holds_total", "counter", "Answers that were held.",
               weir_service_hold_count(service, WEIR_HOLD_COUNT_EVER));
    weir_prom_head(to, name, "counter", "Requests refused because they could not be held.");
    weir_prom_sample(to, name, &too_long, 1,
                     weir_service_hold_count(service, WEIR_HOLD_COUNT_TOO_LONG));
    weir_prom_sample(to, name, &no_room, 1,
                     weir_service_hold_count(service, WEIR_HOLD_COUNT_NO_ROOM));
}

static void put_connections(struct weir_buf *to, const struct weir_service *service)
{
    static const struct {
        const char *name, *type, *help;
        size_t offset;
    } families[] = {
        {"weir_connections", "gauge", "Connections that are open.",
         offsetof(struct weir_listener_stats, open)},
        {"weir_connections_accepted_total", "counter", "Connections that came.",
         offsetof(struct weir_listener_stats, accepted)},
        {"weir_connections_refused_total", "counter", "Connections over a maximum.",
         offsetof(struct weir_listener_stats, refused)},
        {"weir_connections_timed_out_total", "counter", "Connections that said nothing for long.",
         offsetof(struct weir_listener_stats, timed_out)},
        {"weir_connections_overflowed_total", "counter", "Connections that did not read answers.",
         offsetof(struct weir_listener_stats, overflowed)},
    };
    for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
        const struct weir_listener *listener;
        enum weir_front front;
        weir_prom_head(to, families[f].name, families[f].type, families[f].help);
        for (size_t i = 0; (listener = weir_service_listener(service, i, &front)) != NULL; i++) {
            const struct weir_prom_label label = {"protocol", weir_str_of(protocols[front])};
            struct weir_listener_stats stats;
            uint64_t value;
            weir_listener_stats(listener, &stats);
            memcpy(&value, (const char *)&stats + families[f].offset, sizeof(value));
            weir_prom_sample(to, families[f].name, &label, 1, value);
        }
    }
}

static void put_table(struct weir_buf *to, struct weir *w)
{
    struct weir_table_stats t;
    weir_stats_table(w, &t);
    put_number(to, "weir_table_bytes", "gauge", "Size of the table.", t.file_bytes);
    put_number(to, "weir_table_slots", "gauge", "Keys that fit.", t.slots);
    put_number(to, "weir_table_slots_used", "gauge", "Slots that are not empty.", t.slots_used);
    put_number(to, "weir_table_slots_live", "gauge", "Slots that still count.", t.slots_live);
    put_number(to, "weir_table_extent_bytes", "gauge", "Room for logs and the like.",
               t.extent_bytes);
    put_number(to, "weir_table_extent_bytes_used", "gauge", "Of it, in use.", t.extent_bytes_used);
    put_number(to, "weir_table_insertions_total", "counter", "Keys that came.", t.insertions);
    put_number(to, "weir_table_evictions_total", "counter", "Keys that had to leave.", t.evictions);
    put_number(to, "weir_table_sketch_answers_total", "counter",
               "Keys that came back from the sketch.", t.sketch_answers);
}

/* ---- processes ---- */

struct processes {
    struct weir_process at[WEIR_PROCESSES_MAX];
    size_t count;
};

static void collect_process(void *ctx, const struct weir_process *one)
{
    struct processes *processes = ctx;
    processes->at[processes->count++] = *one;
}

static struct weir_str hex(char text[24], uint64_t number)
{
    snprintf(text, 24, "%016" PRIx64, number);
    return weir_str_of(text);
}

/* Whoever is attached to the table; a pid may mean several processes, hence the id. */
static void put_processes(struct weir_buf *to, struct weir *w)
{
    struct processes processes = {.count = 0};
    weir_process_each(w, collect_process, &processes);
    put_number(to, "weir_processes", "gauge", "Processes on the table.", processes.count);
    weir_prom_head(to, "weir_process_rules_generation", "gauge",
                   "How often a process has published rules; equal sums are equal rules.");
    for (size_t i = 0; i < processes.count; i++) {
        const struct weir_process *one = &processes.at[i];
        char id[24], rules[24], pid[24];
        snprintf(pid, sizeof(pid), "%" PRIu64, one->pid);
        const struct weir_prom_label labels[] = {{"process", hex(id, one->id)},
                                                 {"pid", weir_str_of(pid)},
                                                 {"rules", hex(rules, one->rules)}};
        weir_prom_sample(to, "weir_process_rules_generation", labels, 3, one->generation);
    }
}

/* Domains that were asked for and that no rules know. */
static void put_strangers(struct weir_buf *to, const struct weir *w, const char *name)
{
    weir_prom_head(to, name, "counter", "Requests of a domain that no rules speak of.");
    for (uint32_t i = 0; i < WEIR_VALUE_PLACES; i++) {
        const struct weir_value_stat *stat = weir_value_stats_at(w->strangers, i);
        if (stat == NULL)
            continue;
        const struct weir_prom_label domain = {"domain", {.ptr = stat->name, .len = stat->len}};
        weir_prom_sample(
            to, name, &domain, 1,
            atomic_load_explicit(&stat->counts[WEIR_COUNTER_TOTAL_HITS], memory_order_relaxed));
    }
}

static void put_rules_store(struct weir_buf *to, const struct weir_rules_follow *follow)
{
    if (follow == NULL)
        return;
    put_number(to, "weir_rules_store_up", "gauge", "1 while the rules database answers.",
               weir_rules_follow_count(follow, WEIR_RULES_FOLLOW_UP));
    put_number(to, "weir_rules_store_version", "gauge", "Of the rules that are kept.",
               weir_rules_follow_count(follow, WEIR_RULES_FOLLOW_VERSION));
    put_number(to, "weir_rules_store_refused_total", "counter",
               "How often rules in the database were not valid.",
               weir_rules_follow_count(follow, WEIR_RULES_FOLLOW_REFUSED));
}

static void put_service(struct weir_buf *to, const struct weir_service *service,
                        const struct weir_published *rules)
{
    struct weir *w = weir_service_engine(service);
    const struct weir_prom_label version = {"version", weir_str_of(weir_version())};
    struct timespec wall = {0};
    (void)clock_gettime(CLOCK_REALTIME, &wall);
    int64_t wall_ns = (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec;
    weir_prom_head(to, "weir_build_info", "gauge", "1, and which weir this is.");
    weir_prom_sample(to, "weir_build_info", &version, 1, 1);
    put_number(to, "weir_healthy", "gauge", "1 while healthy.", weir_service_is_healthy(service));
    put_number(to, "weir_rules_generation", "gauge", "How often rules were published.",
               weir_rules_generation(w));
    put_rules_store(to, weir_service_follow(service));
    weir_prom_head(to, "weir_clock_offset_seconds", "gauge",
                   "How far the table's clock is ahead of the wall clock.");
    weir_prom_sample_real(to, "weir_clock_offset_seconds",
                          (double)((int64_t)weir_now(w) - wall_ns) / 1e9);
    put_requests(to, service);
    put_strangers(to, w, "weir_domain_not_found_total");
    put_holds(to, service);
    put_connections(to, service);
    put_table(to, w);
    put_processes(to, w);
    weir_admin_store_metrics(to, service);
    if (weir_service_eventual(service) != NULL)
        weir_eventual_put_metrics(to, weir_service_eventual(service), rules);
}

static void put_their_service(struct weir_buf *to, const struct weir_service *service)
{
    const struct weir_prom_label method = {"grpc_method", WEIR_STR("ShouldRateLimit")};
    weir_prom_head(to, "ratelimit_service_total_requests", "counter", "Calls over gRPC.");
    weir_prom_sample(to, "ratelimit_service_total_requests", &method, 1,
                     weir_service_count(service, WEIR_FRONT_GRPC, WEIR_FRONT_COUNT_REQUESTS));
    const struct weir_prom_label error = {"err_type", WEIR_STR("service_error")};
    weir_prom_head(to, "ratelimit_service_should_rate_limit_error", "counter",
                   "Calls over gRPC that were errors.");
    weir_prom_sample(to, "ratelimit_service_should_rate_limit_error", &error, 1,
                     weir_service_count(service, WEIR_FRONT_GRPC, WEIR_FRONT_COUNT_BAD));
    put_strangers(to, weir_service_engine(service),
                  "ratelimit_service_rate_limit_domain_not_found");
    put_number(to, "ratelimit_service_global_shadow_mode", "counter",
               "Requests let through for shadow_mode alone.", weir_service_shadowed(service));
    put_number(to, "ratelimit_service_config_load_success", "counter",
               "How often rules were published.",
               weir_rules_generation(weir_service_engine(service)));
    put_number(to, "ratelimit_service_config_load_error", "counter",
               "How often rules were not valid.", weir_service_bad_rules(service));
}

/* alloc: the lines go. */
void weir_admin_metrics(struct weir_admin_call *call)
{
    const struct weir_service *service = call->worker->service;
    struct weir *w = call->worker->engine;
    bool as_ratelimit = weir_str_eq(weir_admin_param(call->query, "format"), WEIR_STR("ratelimit"));
    struct lines lines = {.label_count = 1, .names = {"rule"}};
    if (as_ratelimit)
        lines = (struct lines){.label_count = 3, .names = {"domain", "key1", "key2"}};
    struct weir_published *p = weir_publish_borrow(w);
    int err = collect(&lines, w, p);
    if (err == 0) {
        put_rules(&call->body, &lines, as_ratelimit);
        if (as_ratelimit)
            put_their_service(&call->body, service);
        else
            put_service(&call->body, service, p);
        put_number(&call->body, "weir_metrics_left_out", "gauge",
                   "Lines about rules for which this page has no room.", lines.left_out);
        call->status = 200;
        call->content_type = WEIR_PROM_TYPE;
    } else {
        weir_admin_say(call, 503, "503 out of memory\n");
    }
    free(lines.at);
    weir_publish_return(w, p);
}
