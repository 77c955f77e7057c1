/* What is kept of a decision until its request ends.
 *
 * Statuses are libweir's only until it is asked again, so headers that are lists of them are
 * written here and now; the others are made of a few numbers, which are kept.  Where a request is
 * asked twice, the tighter answer is in the headers that have room for one, and both are in those
 * that are lists.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_http_weir.h"

ngx_http_weir_record_t *ngx_http_weir_find_again(ngx_http_request_t *r)
{
    for (ngx_pool_cleanup_t *c = r->pool->cleanup; c != NULL; c = c->next)
        if (ngx_weir_is_record(c))
            return c->data;
    return NULL;
}

/* Headers that are lists, while they are needed for no longer than a call. */
typedef struct {
    struct weir_header headers[WEIR_LISTS_MAX];
    char values[WEIR_HEADERS_LEN_MAX];
} lists_t;

/* Apart, for the stack that it takes. */
static __attribute__((noinline)) ngx_int_t keep_lists(ngx_http_weir_record_t *record,
                                                      ngx_pool_t *pool,
                                                      const struct weir_decision *decision)
{
    lists_t lists;
    uint32_t count =
        weir_headers_lists(lists.headers, lists.values, record->base.dialects, decision);
    if (count == 0)
        return NGX_OK;
    struct weir_str last = lists.headers[count - 1].value;
    size_t len = (size_t)(last.ptr + last.len - lists.values);
    struct weir_header *headers = ngx_palloc(pool, count * sizeof(*headers) + len);
    if (headers == NULL)
        return NGX_ERROR;
    char *values = (char *)(headers + count);
    ngx_memcpy(values, lists.values, len);
    for (uint32_t i = 0; i < count; i++) {
        headers[i] = lists.headers[i];
        headers[i].value.ptr = values + (lists.headers[i].value.ptr - lists.values);
    }
    record->lists = headers;
    record->base.list_count = (uint8_t)count;
    return NGX_OK;
}

static void compare(ngx_http_weir_record_t *record, const ngx_http_weir_record_t *before)
{
    ngx_weir_record_t *to = &record->base;
    const ngx_weir_record_t *from = &before->base;
    to->stages |= from->stages;
    to->delay_ms = from->delay_ms;
    if (to->verdict < from->verdict)
        to->verdict = from->verdict;
    if (to->verdict == NGX_WEIR_REJECTED || !from->told.is_limited ||
        (to->told.is_limited && to->told.remaining < from->told.remaining))
        return;
    to->told = from->told;
    to->rule = from->rule;
    to->named = NULL;
}

_Static_assert(sizeof(ngx_http_weir_record_t) <= NGX_WEIR_RECORD_LEN, "a record's memory");

/* What HTTP's records have beside ngx_weir.h's. */
static ngx_inline void begin(ngx_http_weir_record_t *record, const ngx_http_weir_asking_t *a,
                             ngx_uint_t stages)
{
    const ngx_http_weir_loc_conf_t *conf = (ngx_http_weir_loc_conf_t *)a->base.place;
    record->base.dialects = (uint8_t)conf->dialects;
    record->base.stages = (uint8_t)stages;
    record->base.list_count = 0;
    record->base.has_before = a->before != NULL;
    record->before = a->before;
}

NGX_WEIR_HOT ngx_http_weir_record_t *ngx_http_weir_keep_again(ngx_http_weir_asking_t *a,
                                                              ngx_uint_t stages, uint64_t now_ns)
{
    ngx_http_request_t *r = a->base.from;
    ngx_http_weir_record_t *record = ngx_weir_keep_again(&a->base, r->pool, now_ns);
    if (NGX_WEIR_SELDOM(record == NULL))
        return NULL;
    begin(record, a, stages);
    ngx_http_weir_set(r, record);
    ngx_http_weir_foretell(record->base.told.foretell);
    return record;
}

NGX_WEIR_HOT ngx_http_weir_record_t *ngx_http_weir_keep(ngx_http_weir_asking_t *a,
                                                        ngx_uint_t stages,
                                                        const struct weir_decision *decision,
                                                        uint64_t now_ns)
{
    ngx_http_request_t *r = a->base.from;
    ngx_http_weir_record_t *record = ngx_weir_keep(&a->base, r->pool, decision, now_ns);
    if (NGX_WEIR_SELDOM(record == NULL))
        return NULL;
    begin(record, a, stages);
    if (NGX_WEIR_SELDOM(record->base.dialects & WEIR_DIALECT_IETF_11) && !record->base.is_dry &&
        keep_lists(record, r->pool, decision) != NGX_OK) {
        ngx_weir_end(&record->base);
        return NULL;
    }
    if (NGX_WEIR_SELDOM(record->base.has_before))
        compare(record, record->before);
    ngx_http_weir_set(r, record);
    return record;
}
