/* How a decision is told: headers on every limited answer, a body for a refusal.
 *
 * Headers come from a header filter, behind nginx's own cache and behind add_header and expires:
 * what nginx stores has none of them.  What a cache on the way may store for others (the answer
 * says how long it is fresh, and not that it is private) goes without them: they are one client's.
 * The upstream's Cache-Control is left alone; a refusal has one of its own.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_http_weir.h"

#define BODY_LEN_MAX 4096

/* ---- headers ---- */

static ngx_inline void set(ngx_table_elt_t *h, struct weir_str name, struct weir_str value)
{
    h->hash = 1;
    h->key.len = name.len;
    h->key.data = (u_char *)name.ptr;
    h->value.len = value.len;
    h->value.data = (u_char *)value.ptr;
    h->lowcase_key = NULL;
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif
}

static ngx_int_t push(ngx_http_request_t *r, const struct weir_header *header)
{
    ngx_table_elt_t *h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL)
        return NGX_ERROR;
    set(h, header->name, header->value);
    return NGX_OK;
}

static ngx_int_t push_all(ngx_http_request_t *r, const struct weir_header *headers,
                          ngx_uint_t count)
{
    for (ngx_uint_t i = 0; i < count; i++)
        if (push(r, &headers[i]) != NGX_OK)
            return NGX_ERROR;
    return NGX_OK;
}

static ngx_int_t push_numbers(ngx_http_request_t *r, ngx_http_weir_record_t *record)
{
    struct weir_header headers[WEIR_NUMBERS_MAX];
    uint32_t count = weir_headers_numbers(headers, record->numbers, record->base.dialects,
                                          &record->base.told, &ngx_weir_near.told_last);
    return push_all(r, headers, count);
}

/* Of every stage; but a refusal tells of itself alone. */
static ngx_int_t push_lists(ngx_http_request_t *r, const ngx_http_weir_record_t *record,
                            bool is_refused)
{
    for (; record != NULL; record = is_refused ? NULL : ngx_http_weir_before(record))
        if (record->base.list_count > 0 &&
            push_all(r, record->lists, record->base.list_count) != NGX_OK)
            return NGX_ERROR;
    return NGX_OK;
}

static bool is_named(const ngx_table_elt_t *h, const char *name)
{
    return h->key.len == ngx_strlen(name) &&
           ngx_strncasecmp(h->key.data, (u_char *)name, h->key.len) == 0;
}

static bool says(const ngx_str_t *value, const char *word)
{
    return ngx_strlcasestrn(value->data, value->data + value->len, (u_char *)word,
                            ngx_strlen(word) - 1) != NULL;
}

/* What the answer says about shared caches. */
typedef struct {
    bool is_fresh;
    bool is_private;
} caching_t;

static void note_cache_control(caching_t *caching, const ngx_str_t *value)
{
    caching->is_private |= says(value, "private") || says(value, "no-store") ||
                           says(value, "no-cache") || says(value, "max-age=0");
    caching->is_fresh |=
        says(value, "public") || says(value, "max-age=") || says(value, "s-maxage=");
}

/* Whether a header may be one of those below: most are told apart by length and first letter. */
static ngx_inline bool may_concern_us(const ngx_table_elt_t *h)
{
    const uint32_t letters =
        1u << ('x' & 31) | 1u << ('r' & 31) | 1u << ('c' & 31) | 1u << ('e' & 31);
    const size_t shortest = sizeof("expires") - 1;
    return h->hash != 0 && h->key.len >= shortest && letters >> (h->key.data[0] & 31) & 1;
}

/* Whether a header gives way to ours, because only one limiter can send it; if not, notes what it
 * says about caches. */
static __attribute__((noinline)) bool gives_way(caching_t *caching, const ngx_table_elt_t *h,
                                                bool is_refused)
{
    switch (h->key.data[0] | 0x20) {
    case 'x':
        return h->key.len > 12 && ngx_strncasecmp(h->key.data, (u_char *)"x-ratelimit-", 12) == 0;
    case 'r':
        return is_named(h, "ratelimit") || is_named(h, "ratelimit-policy") ||
               (is_refused && is_named(h, "retry-after"));
    case 'c':
        if (!is_named(h, "cache-control"))
            return false;
        note_cache_control(caching, &h->value);
        return is_refused;
    case 'e':
        if (is_named(h, "expires") && ngx_parse_http_time(h->value.data, h->value.len) > ngx_time())
            caching->is_fresh = true;
        return false;
    default:
        return false;
    }
}

/* Hides what is not ours to pass on; says whether a shared cache may store the answer. */
static bool prepare(ngx_http_request_t *r, bool is_refused)
{
    caching_t caching = {false, false};
    for (ngx_list_part_t *part = &r->headers_out.headers.part; part != NULL; part = part->next) {
        ngx_table_elt_t *headers = part->elts;
        for (ngx_uint_t i = 0; i < part->nelts; i++) {
            ngx_table_elt_t *h = &headers[i];
            if (may_concern_us(h) && gives_way(&caching, h, is_refused))
                h->hash = 0;
        }
    }
    bool can_cache = (r->method & (NGX_HTTP_GET | NGX_HTTP_HEAD)) != 0;
    return can_cache && caching.is_fresh && !caching.is_private;
}

/* Whether there is anything to tell. */
static bool is_told(const ngx_http_weir_record_t *record)
{
    const struct weir_told *told = &record->base.told;
    return !record->base.is_dry &&
           (told->is_refused || (told->is_limited && record->base.dialects));
}

static ngx_int_t push_told(ngx_http_request_t *r, ngx_http_weir_record_t *record)
{
    bool is_refused = record->base.verdict == NGX_WEIR_REJECTED;
    if (prepare(r, is_refused) && !is_refused)
        return NGX_OK;
    if (push_numbers(r, record) != NGX_OK)
        return NGX_ERROR;
    return push_lists(r, record, is_refused);
}

static __attribute__((noinline)) ngx_int_t tell(ngx_http_request_t *r)
{
    ngx_http_weir_record_t *record = r == r->main ? ngx_http_weir_find(r) : NULL;
    for (ngx_http_weir_record_t *one = record; one != NULL; one = ngx_http_weir_before(one))
        ngx_weir_settle(&one->base, r->headers_out.status);
    if (record != NULL && is_told(record) && push_told(r, record) != NGX_OK)
        return NGX_ERROR;
    return ngx_weir_near.next_filter(r);
}

/* ---- the quickest way: who passes is told two numbers, and no other header concerns us ---- */

static ngx_inline bool is_any_of_concern(const ngx_list_t *list)
{
    for (const ngx_list_part_t *part = &list->part; part != NULL; part = part->next) {
        const ngx_table_elt_t *h = part->elts, *end = h + part->nelts;
        for (; h < end; h++)
            if (NGX_WEIR_SELDOM(may_concern_us(h)))
                return true;
    }
    return false;
}

static ngx_inline struct weir_str value_of(const char *at, uint32_t len)
{
    return (struct weir_str){.ptr = at, .len = len};
}

/* False: nothing was done. */
static ngx_inline bool tells_two(ngx_http_request_t *r)
{
    static const struct weir_str limit = {WEIR_HEADER_LIMIT, sizeof(WEIR_HEADER_LIMIT) - 1};
    static const struct weir_str left = {WEIR_HEADER_REMAINING, sizeof(WEIR_HEADER_REMAINING) - 1};
    const ngx_http_weir_word_t *word = ngx_http_weir_word(r);
    if (NGX_WEIR_SELDOM(word->limit == 0 || r != r->main))
        return false;
    ngx_http_weir_record_t *record = r->ctx[ngx_weir_near.index];
    __builtin_prefetch(record->numbers, 1); /* far by now, where it was passed on */
    __builtin_prefetch(&ngx_weir_near.told_last);
    ngx_list_t *list = &r->headers_out.headers;
    ngx_list_part_t *part = list->last;
    if (NGX_WEIR_SELDOM(part->nelts + 2 > list->nalloc || is_any_of_concern(list)))
        return false;
    struct weir_two two =
        weir_headers_two(record->numbers, word->limit, word->remaining, &ngx_weir_near.told_last);
    if (NGX_WEIR_SELDOM(two.limit_len == 0))
        return false;
    ngx_table_elt_t *h = (ngx_table_elt_t *)part->elts + part->nelts;
    part->nelts += 2;
    set(&h[0], limit, value_of(record->numbers, two.limit_len));
    set(&h[1], left, value_of(record->numbers + WEIR_NUMBER_LEN, two.remaining_len));
    return true;
}

NGX_WEIR_HOT static ngx_int_t filter(ngx_http_request_t *r)
{
    return NGX_WEIR_MOSTLY(tells_two(r)) ? ngx_weir_near.next_filter(r) : tell(r);
}

ngx_int_t ngx_http_weir_init_filter(ngx_conf_t *cf)
{
    (void)cf;
    ngx_weir_near.next_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = filter;
    return NGX_OK;
}

/* ---- refusals ---- */

static bool has_error_page(ngx_http_request_t *r, ngx_uint_t status)
{
    ngx_http_core_loc_conf_t *core = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
    ngx_http_err_page_t *pages = core->error_pages != NULL ? core->error_pages->elts : NULL;
    for (ngx_uint_t i = 0; pages != NULL && i < core->error_pages->nelts; i++)
        if (pages[i].status == (ngx_int_t)status)
            return true;
    return false;
}

static bool is_grpc(ngx_http_request_t *r)
{
    static const u_char grpc[] = "application/grpc";
    const size_t len = sizeof(grpc) - 1;
    if (r->headers_in.content_type == NULL)
        return false;
    ngx_str_t type = r->headers_in.content_type->value;
    return type.len >= len && ngx_strncasecmp(type.data, (u_char *)grpc, len) == 0 &&
           (type.len == len || type.data[len] == '+' || type.data[len] == ';');
}

/* A call over gRPC ends with a status in its headers, and no body. */
static ngx_int_t refuse_grpc(ngx_http_request_t *r)
{
    static const struct weir_header headers[] = {
        {{"grpc-status", 11}, {"8", 1}},
        {{"grpc-message", 12}, {"Too many requests", 17}},
    };
    ngx_int_t rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK)
        return rc;
    if (push_all(r, headers, 2) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    r->headers_out.status = NGX_HTTP_OK;
    ngx_str_set(&r->headers_out.content_type, "application/grpc");
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_length_n = 0;
#if (NGX_HTTP_V2)
    if (r->stream) {
        r->headers_out.content_length_n = -1;
        r->header_only = 1;
    }
#endif
    return ngx_http_send_header(r);
}

static ngx_int_t refuse_with_body(ngx_http_request_t *r, const ngx_http_weir_loc_conf_t *conf,
                                  const struct weir_decision *decision)
{
    char text[BODY_LEN_MAX];
    struct weir_str type = {.ptr = "text/plain; charset=utf-8", .len = 25};
    ngx_http_complex_value_t value = {.value = {.len = 0}};
    enum weir_refusal_body kind =
        conf->body == NGX_HTTP_WEIR_BODY_PROBLEM ? WEIR_REFUSAL_PROBLEM : WEIR_REFUSAL_PLAIN;
    if (conf->body == NGX_HTTP_WEIR_BODY_TEXT) {
        value = *conf->body_text;
    } else if (conf->body != NGX_HTTP_WEIR_BODY_NONE) {
        value.value.len =
            weir_refusal(text, sizeof(text), kind, (int)conf->status, decision, &type);
        if (value.value.len == 0) /* names that nobody gives: then without them */
            value.value.len = weir_refusal(text, sizeof(text), WEIR_REFUSAL_PLAIN,
                                           (int)conf->status, decision, &type);
        value.value.data = ngx_pnalloc(r->pool, value.value.len);
        if (value.value.data == NULL)
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        ngx_memcpy(value.value.data, text, value.value.len);
    }
    ngx_str_t content_type = {.len = type.len, .data = (u_char *)type.ptr};
    return ngx_http_send_response(r, conf->status, &content_type, &value);
}

/* Who asks first whether to send a body is not told to go on.  Whether it sends it all the same
 * cannot be known, so the connection ends here. */
static void forget_expectation(ngx_http_request_t *r)
{
    if (r->headers_in.expect == NULL || r->expect_tested)
        return;
    r->expect_tested = 1;
    r->keepalive = 0;
}

ngx_int_t ngx_http_weir_refuse(ngx_http_request_t *r, const struct weir_decision *decision)
{
    ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    ngx_int_t rc;
    if (conf->status == NGX_HTTP_CLOSE) /* as of `return 444`: not a word */
        return NGX_HTTP_CLOSE;
    forget_expectation(r);
    if (is_grpc(r))
        rc = refuse_grpc(r);
    else if (conf->body == NGX_HTTP_WEIR_BODY_HTML || has_error_page(r, conf->status))
        return (ngx_int_t)conf->status;
    else
        rc = refuse_with_body(r, conf, decision);
    ngx_http_finalize_request(r, rc);
    return NGX_DONE;
}
