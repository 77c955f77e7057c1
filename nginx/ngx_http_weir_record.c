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

/* Headers, before there is memory to keep them in. */
typedef struct {
    uint32_t count;
    size_t len; /* of the values */
    struct weir_header headers[WEIR_HEADERS_MAX];
    char values[WEIR_HEADERS_LEN_MAX];
} telling_t;

/* Returns how many bytes keep_headers() will need. */
static size_t tell(telling_t *t, uint32_t dialects, const struct weir_decision *decision,
                   uint64_t now_ns)
{
    t->count = weir_headers_split(t->headers, t->values, dialects, decision, now_ns);
    if (t->count == 0)
        return 0;
    struct weir_str last = t->headers[t->count - 1].value;
    t->len = (size_t)(last.ptr + last.len - t->values);
    return t->count * sizeof(struct weir_header) + ngx_align(t->len, sizeof(void *));
}

/* Copies headers to *to, and moves that on by what tell() has said. */
static ngx_http_weir_headers_t keep_headers(u_char **to, const telling_t *t, size_t len)
{
    struct weir_header *headers = (struct weir_header *)(void *)*to;
    char *values = (char *)(headers + t->count);
    if (len == 0)
        return (ngx_http_weir_headers_t){.count = 0};
    ngx_memcpy(values, t->values, t->len);
    for (uint32_t i = 0; i < t->count; i++) {
        headers[i] = t->headers[i];
        headers[i].value.ptr = values + (t->headers[i].value.ptr - t->values);
    }
    *to += len;
    return (ngx_http_weir_headers_t){.at = headers, .count = t->count};
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
    record->single = before->single;
}

ngx_http_weir_record_t *ngx_http_weir_keep(ngx_http_weir_asking_t *a, ngx_uint_t stages,
                                           const struct weir_decision *decision, uint64_t now_ns)
{
    ngx_http_request_t *r = a->base.from;
    ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    ngx_http_weir_record_t *before = ngx_http_weir_find(r);
    bool is_refused = decision->overall == WEIR_CODE_OVER_LIMIT;
    uint32_t lists = is_refused ? 0 : conf->dialects & WEIR_DIALECT_IETF_11;
    size_t told_len = 0, listed_len = 0;
    telling_t told, listed;
    u_char *at;
    if (!conf->base.dry_run) {
        told_len = tell(&told, (uint32_t)conf->dialects & ~lists, decision, now_ns);
        listed_len = lists ? tell(&listed, lists, decision, now_ns) : 0;
    }
    ngx_http_weir_record_t *record =
        ngx_weir_keep(&a->base, r->pool, decision, sizeof(*record), told_len + listed_len, &at);
    if (record == NULL)
        return NULL;
    record->before = before;
    record->stages = stages;
    record->single = keep_headers(&at, &told, told_len);
    record->lists = keep_headers(&at, &listed, listed_len);
    if (before != NULL)
        compare(record, before);
    ngx_http_set_ctx(r, record, ngx_http_weir_module);
    return record;
}
