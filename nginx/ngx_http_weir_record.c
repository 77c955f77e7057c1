/* What is kept of a decision until its request ends.
 *
 * Statuses are libweir's only until it is asked again, so headers that are lists of them are
 * written here and now; the others are made of a few numbers, which are kept.  Where a request is
 * asked twice, the tighter answer is in the headers that have room for one, and both are in those
 * that are lists.
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

/* Lists, before there is memory to keep them in. */
typedef struct {
    uint32_t count;
    size_t len; /* of the values */
    struct weir_header headers[WEIR_LISTS_MAX];
    char values[WEIR_HEADERS_LEN_MAX];
} lists_t;

/* Returns how many bytes keep_lists() will need. */
static size_t tell_lists(lists_t *lists, uint32_t dialects, const struct weir_decision *decision)
{
    lists->count = weir_headers_lists(lists->headers, lists->values, dialects, decision);
    if (lists->count == 0)
        return 0;
    struct weir_str last = lists->headers[lists->count - 1].value;
    lists->len = (size_t)(last.ptr + last.len - lists->values);
    return lists->count * sizeof(struct weir_header) + ngx_align(lists->len, sizeof(void *));
}

static void keep_lists(ngx_http_weir_record_t *record, u_char *to, const lists_t *lists)
{
    struct weir_header *headers = (struct weir_header *)(void *)to;
    char *values = (char *)(headers + lists->count);
    ngx_memcpy(values, lists->values, lists->len);
    for (uint32_t i = 0; i < lists->count; i++) {
        headers[i] = lists->headers[i];
        headers[i].value.ptr = values + (lists->headers[i].value.ptr - lists->values);
    }
    record->lists = headers;
    record->list_count = lists->count;
}

static void compare(ngx_http_weir_record_t *record, const ngx_http_weir_record_t *before)
{
    ngx_weir_record_t *to = &record->base;
    const ngx_weir_record_t *from = &before->base;
    record->stages |= before->stages;
    to->delay_ms = from->delay_ms;
    if (to->verdict < from->verdict)
        to->verdict = from->verdict;
    if (to->verdict == NGX_WEIR_REJECTED || !from->told.is_limited ||
        (to->told.is_limited && to->told.remaining < from->told.remaining))
        return;
    to->told = from->told;
    to->rule = from->rule;
}

ngx_http_weir_record_t *ngx_http_weir_keep(ngx_http_weir_asking_t *a, ngx_uint_t stages,
                                           const struct weir_decision *decision, uint64_t now_ns)
{
    ngx_http_request_t *r = a->base.from;
    ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    ngx_http_weir_record_t *before = ngx_http_weir_find(r);
    size_t lists_len = 0;
    lists_t lists;
    u_char *at;
    if ((conf->dialects & WEIR_DIALECT_IETF_11) && !conf->base.dry_run)
        lists_len = tell_lists(&lists, (uint32_t)conf->dialects, decision);
    ngx_http_weir_record_t *record =
        ngx_weir_keep(&a->base, r->pool, decision, now_ns, sizeof(*record), lists_len, &at);
    if (record == NULL)
        return NULL;
    record->before = before;
    record->stages = stages;
    record->dialects = (uint32_t)conf->dialects;
    record->list_count = 0;
    if (lists_len > 0)
        keep_lists(record, at, &lists);
    if (before != NULL)
        compare(record, before);
    ngx_http_set_ctx(r, record, ngx_http_weir_module);
    return record;
}
