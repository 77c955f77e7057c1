/* The phases: asks libweir about a request, then lets it pass, holds or refuses it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_http_weir.h"

/* ---- which rules, and when ---- */

/* Whether there is anything that only authentication tells. */
static bool has_late(const ngx_http_weir_loc_conf_t *conf)
{
    return conf->descriptors == NULL && (conf->user != NULL || conf->attributes != NULL);
}

/* What is asked in a phase; 0: nothing. */
static ngx_uint_t stages_in(const ngx_http_weir_loc_conf_t *conf, ngx_uint_t phase)
{
    if (conf->phase != NGX_HTTP_WEIR_AUTO)
        return conf->phase == phase ? NGX_HTTP_WEIR_ALL : 0;
    if (!has_late(conf))
        return phase == NGX_HTTP_WEIR_PREACCESS ? NGX_HTTP_WEIR_ALL : 0;
    return phase == NGX_HTTP_WEIR_PREACCESS ? NGX_HTTP_WEIR_EARLY : NGX_HTTP_WEIR_LATE;
}

bool ngx_http_weir_asks_late(const ngx_http_weir_loc_conf_t *conf)
{
    return stages_in(conf, NGX_HTTP_WEIR_PRECONTENT) != 0;
}

/* ---- asking ---- */

/* How much a request counts; what is no number counts 1, and is told. */
static bool read_hits(ngx_http_request_t *r, ngx_http_complex_value_t *from, uint64_t *hits)
{
    ngx_str_t text;
    if (from == NULL || ngx_http_complex_value(r, from, &text) != NGX_OK)
        return false;
    ngx_int_t number = ngx_atoi(text.data, text.len);
    if (number == NGX_ERROR) {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "weir: hits \"%V\" is not a number; 1 is counted", &text);
        return false;
    }
    *hits = (uint64_t)number;
    return true;
}

static int read_domain(ngx_http_weir_asking_t *a, struct weir_str *domain)
{
    ngx_str_t text;
    if (a->conf->domain == NULL)
        return 0;
    if (ngx_http_complex_value(a->request, a->conf->domain, &text) != NGX_OK)
        return WEIR_ERR_NOMEM;
    *domain = ngx_http_weir_str(text);
    return 0;
}

/* The entries of one weir_descriptor: how many; 0 where a value is empty, negative an error. */
static int describe(ngx_http_request_t *r, const ngx_http_weir_descriptor_t *from,
                    struct weir_entry *to)
{
    ngx_http_weir_entry_t *entries = from->entries.elts;
    for (ngx_uint_t i = 0; i < from->entries.nelts; i++) {
        ngx_str_t value;
        if (ngx_http_complex_value(r, &entries[i].value, &value) != NGX_OK)
            return WEIR_ERR_NOMEM;
        if (value.len == 0)
            return 0;
        to[i].key = ngx_http_weir_str(entries[i].key);
        to[i].value = ngx_http_weir_str(value);
    }
    return (int)from->entries.nelts;
}

/* By what the configuration says. */
static int ask_descriptors(ngx_http_weir_asking_t *a, uint64_t now_ns, struct weir_decision *out)
{
    ngx_http_weir_worker_t *worker = a->main->worker;
    ngx_http_weir_descriptor_t *from = a->conf->descriptors->elts;
    struct weir_entry *entries = worker->entries;
    struct weir_request request = {.descriptors = worker->descriptors};
    int err = read_domain(a, &request.domain);
    for (ngx_uint_t i = 0; i < a->conf->descriptors->nelts && err == 0; i++) {
        int count = describe(a->request, &from[i], entries);
        if (count < 0)
            return count;
        if (count == 0)
            continue;
        struct weir_descriptor *to = &worker->descriptors[request.descriptor_count++];
        *to = (struct weir_descriptor){.entries = entries, .entry_count = (uint32_t)count};
        to->has_hits =
            read_hits(a->request, from[i].hits ? from[i].hits : a->conf->hits, &to->hits);
        entries += count;
    }
    *out = (struct weir_decision){.overall = WEIR_CODE_OK, .statuses = worker->statuses};
    if (err || request.descriptor_count == 0)
        return err;
    return weir_check(worker->session, &request, now_ns, out);
}

/* By what the rules say. */
static int ask_shapes(ngx_http_weir_asking_t *a, ngx_uint_t stages, uint64_t now_ns,
                      struct weir_decision *out)
{
    struct weir_http http = {
        .attribute = ngx_http_weir_attribute,
        .ctx = a,
        .is_late = ngx_http_weir_is_late,
        .stage = stages == NGX_HTTP_WEIR_ALL     ? WEIR_STAGE_ALL
                 : stages == NGX_HTTP_WEIR_EARLY ? WEIR_STAGE_EARLY
                                                 : WEIR_STAGE_LATE,
    };
    int err = read_domain(a, &http.domain);
    if (err)
        return err;
    http.has_hits = read_hits(a->request, a->conf->hits, &http.hits);
    return weir_check_http(a->main->worker->session, &http, now_ns, out);
}

/* ---- what comes of it ---- */

/* A request that cannot be counted is refused; rules that cannot be asked limit nothing. */
static ngx_int_t fail(ngx_http_request_t *r, int err)
{
    static time_t told; /* at most once a second: it is so for every request */
    ngx_log_t *log = r->connection->log;
    if (err == WEIR_ERR_NOMEM)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    if (err == WEIR_ERR_TOO_LARGE) {
        ngx_log_error(NGX_LOG_INFO, log, 0,
                      "weir: client sent a value that is too long to be counted");
        return NGX_HTTP_BAD_REQUEST;
    }
    if (told != ngx_time()) {
        told = ngx_time();
        ngx_log_error(NGX_LOG_ERR, log, 0, "weir: nothing is limited here: %s%s",
                      weir_strerror(err),
                      err == WEIR_ERR_DOMAIN_EMPTY ? "; the rules have several domains" : "");
    }
    return NGX_DECLINED;
}

static uint64_t delay_of(const struct weir_decision *decision)
{
    uint64_t longest = 0;
    for (uint32_t i = 0; i < decision->status_count; i++)
        if (decision->statuses[i].delay_ns > longest)
            longest = decision->statuses[i].delay_ns;
    return longest;
}

/* The queue has no place: as if its limit had refused. */
static void turn_away(struct weir_decision *decision)
{
    decision->overall = WEIR_CODE_OVER_LIMIT;
    for (uint32_t i = 0; i < decision->status_count; i++) {
        struct weir_status *s = &decision->statuses[i];
        if (s->delay_ns == 0)
            continue;
        s->code = WEIR_CODE_OVER_LIMIT;
        s->retry_after_ns = s->delay_ns;
    }
}

static void log_verdict(ngx_http_weir_record_t *record, const ngx_http_weir_loc_conf_t *conf)
{
    bool is_refused = record->verdict == NGX_HTTP_WEIR_REJECTED;
    if (!is_refused && record->verdict != NGX_HTTP_WEIR_DELAYED)
        return;
    ngx_log_error(is_refused ? conf->log_level : conf->log_level + 1,
                  record->request->connection->log, 0, "weir: %s%s by rule \"%V\"",
                  is_refused ? "refused" : "held", record->is_dry ? ", were this no dry run," : "",
                  &record->rule);
}

static ngx_int_t decide(ngx_http_request_t *r, ngx_http_weir_asking_t *a, ngx_uint_t stages)
{
    struct weir_decision decision;
    uint64_t now_ns = ngx_http_weir_now(a->main);
    int err = a->conf->descriptors != NULL ? ask_descriptors(a, now_ns, &decision)
                                           : ask_shapes(a, stages, now_ns, &decision);
    if (err)
        return a->conf->dry_run ? NGX_DECLINED : fail(r, err);
    uint64_t delay_ns = decision.overall == WEIR_CODE_OK ? delay_of(&decision) : 0;
    if (delay_ns > 0 && !a->conf->dry_run && !ngx_http_weir_may_hold(a->main, delay_ns))
        turn_away(&decision);
    ngx_http_weir_record_t *record = ngx_http_weir_keep(r, stages, &decision, now_ns);
    if (record == NULL)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    bool is_refused = decision.overall == WEIR_CODE_OVER_LIMIT;
    if (delay_ns > 0 && !is_refused)
        record->verdict = NGX_HTTP_WEIR_DELAYED;
    log_verdict(record, a->conf);
    if (a->conf->dry_run)
        return NGX_DECLINED;
    if (is_refused)
        return ngx_http_weir_refuse(r, &decision);
    return delay_ns > 0 ? ngx_http_weir_hold(record, delay_ns, now_ns) : NGX_DECLINED;
}

static ngx_int_t handle(ngx_http_request_t *r, ngx_uint_t phase)
{
    ngx_http_weir_asking_t a;
    ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    ngx_uint_t stages = conf->enable && r == r->main ? stages_in(conf, phase) : 0;
    if (stages == 0)
        return NGX_DECLINED;
    ngx_http_weir_record_t *record = ngx_http_weir_find(r);
    if (record != NULL &&
        ((record->stages & stages) != 0 || record->verdict == NGX_HTTP_WEIR_REJECTED))
        return NGX_DECLINED; /* once a request */
    a.request = r;
    a.main = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    a.conf = conf;
    a.scratch_used = 0;
    a.known = 0;
    if (ngx_http_weir_worker(a.main) == NULL)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    return decide(r, &a, stages);
}

ngx_int_t ngx_http_weir_preaccess(ngx_http_request_t *r)
{
    return handle(r, NGX_HTTP_WEIR_PREACCESS);
}

ngx_int_t ngx_http_weir_precontent(ngx_http_request_t *r)
{
    return handle(r, NGX_HTTP_WEIR_PRECONTENT);
}
