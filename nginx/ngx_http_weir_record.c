/* What is kept of a decision until its request ends.
 *
 * Statuses are libweir's only until it is asked again, so headers are written here and now.  Where
 * a request is asked twice, the tighter answer is in the headers that have room for one, and both
 * are in those that are lists.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_http_weir.h"

/* An internal redirect forgets contexts, not cleanups. */
ngx_http_weir_record_t *ngx_http_weir_find(ngx_http_request_t *r)
{
    ngx_http_weir_record_t *record = ngx_http_get_module_ctx(r, ngx_http_weir_module);
    if (record != NULL || (!r->internal && !r->filter_finalize))
        return record;
    for (ngx_pool_cleanup_t *c = r->pool->cleanup; c != NULL; c = c->next)
        if (c->handler == ngx_weir_end)
            return c->data;
    return NULL;
}

/* How a decision will be told, before there is memory to keep it in. */
typedef struct {
    size_t lines_len, lists_len;
    char lines[WEIR_HEADERS_LEN_MAX];
    char lists[WEIR_HEADERS_LEN_MAX];
} telling_t;

static void tell(telling_t *t, const ngx_http_weir_loc_conf_t *conf,
                 const struct weir_decision *decision, uint64_t now_ns)
{
    bool is_refused = decision->overall == WEIR_CODE_OVER_LIMIT;
    uint32_t lists = is_refused ? 0 : conf->dialects & WEIR_DIALECT_IETF_11;
    t->lines_len = t->lists_len = 0;
    if (conf->base.dry_run)
        return;
    t->lines_len = weir_headers(t->lines, (uint32_t)conf->dialects & ~lists, decision, now_ns);
    if (lists)
        t->lists_len = weir_headers(t->lists, lists, decision, now_ns);
}

static ngx_str_t copy(u_char **to, const void *from, size_t len)
{
    ngx_str_t text = {.len = len, .data = *to};
    *to = ngx_cpymem(*to, from, len);
    return text;
}

static void compare(ngx_http_weir_record_t *record, const ngx_http_weir_record_t *before)
{
    ngx_weir_record_t *to = &record->base;
    const ngx_weir_record_t *from = &before->base;
    record->stages |= before->stages;
    to->delay_ms = from->delay_ms;
    if (to->verdict < from->verdict)
        to->verdict = from->verdict;
    if (to->verdict == NGX_WEIR_REJECTED || !from->has_numbers ||
        (to->has_numbers && to->remaining < from->remaining))
        return;
    to->has_numbers = 1;
    to->limit = from->limit;
    to->remaining = from->remaining;
    to->rule = from->rule;
    record->lines = before->lines;
}

ngx_http_weir_record_t *ngx_http_weir_keep(ngx_http_weir_asking_t *a, ngx_uint_t stages,
                                           const struct weir_decision *decision, uint64_t now_ns)
{
    ngx_http_request_t *r = a->base.from;
    ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    ngx_http_weir_record_t *before = ngx_http_weir_find(r);
    u_char *at;
    telling_t t;
    tell(&t, conf, decision, now_ns);
    ngx_http_weir_record_t *record =
        ngx_weir_keep(&a->base, r->pool, decision, sizeof(*record), t.lines_len + t.lists_len, &at);
    if (record == NULL)
        return NULL;
    record->before = before;
    record->stages = stages;
    record->lines = copy(&at, t.lines, t.lines_len);
    record->lists = copy(&at, t.lists, t.lists_len);
    if (before != NULL)
        compare(record, before);
    ngx_http_set_ctx(r, record, ngx_http_weir_module);
    return record;
}
