/* Asks libweir: by the rules' shapes, or by what weir_descriptor says.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_weir.h"

static ngx_int_t text_of(ngx_weir_asking_t *a, ngx_weir_value_t *value, ngx_str_t *out)
{
    return a->kind->text(a->from, value, out);
}

/* ---- attributes ---- */

static ngx_weir_entry_t *entry_of(const ngx_weir_place_conf_t *place, struct weir_str key,
                                  ngx_uint_t *i)
{
    ngx_weir_entry_t *entries = place->attributes != NULL ? place->attributes->elts : NULL;
    for (*i = 0; entries != NULL && *i < place->attributes->nelts; ++*i) {
        ngx_weir_entry_t *e = &entries[*i];
        if (e->key.len == key.len && ngx_memcmp(e->key.data, key.ptr, key.len) == 0)
            return e;
    }
    return NULL;
}

bool ngx_weir_has_attribute(const ngx_weir_place_conf_t *place, struct weir_str key)
{
    ngx_uint_t i;
    return entry_of(place, key, &i) != NULL;
}

/* Looked up once, though several rules may ask; empty is absent. */
int ngx_weir_attribute(ngx_weir_asking_t *a, struct weir_str key, struct weir_str *value)
{
    ngx_uint_t i;
    ngx_str_t *values = a->main->worker.room->values;
    ngx_weir_entry_t *entry = entry_of(a->place, key, &i);
    if (entry == NULL)
        return 0;
    if (!(a->known >> i & 1)) {
        if (text_of(a, entry->value, &values[i]) != NGX_OK)
            return WEIR_ERR_NOMEM;
        a->known |= (ngx_uint_t)1 << i;
    }
    *value = ngx_weir_str(values[i]);
    return values[i].len > 0;
}

/* ::ffff:192.0.2.1 is 192.0.2.1, however it was connected. */
static ngx_str_t canonical(ngx_str_t text)
{
    static const u_char mapped[] = "::ffff:";
    const size_t len = sizeof(mapped) - 1;
    if (text.len > len && ngx_memcmp(text.data, mapped, len) == 0 &&
        ngx_strlchr(text.data, text.data + text.len, '.') != NULL) {
        text.data += len;
        text.len -= len;
    }
    return text;
}

ngx_str_t ngx_weir_other_address(ngx_str_t text)
{
    /* Without an address all who come this way are counted as one: limited, and so noticed. */
    if (text.data[0] == 'u') {
        ngx_str_set(&text, "unix"); /* two statements */
    }
    return canonical(text);
}

/* ---- asking ---- */

/* How much a request counts; what is no number counts 1, and is told. */
static bool read_hits(ngx_weir_asking_t *a, ngx_weir_value_t *from, uint64_t *hits)
{
    ngx_str_t text;
    if (text_of(a, from, &text) != NGX_OK)
        return false;
    ngx_int_t number = ngx_atoi(text.data, text.len);
    if (number == NGX_ERROR) {
        ngx_log_error(NGX_LOG_WARN, a->connection->log, 0,
                      "weir: hits \"%V\" is not a number; 1 is counted", &text);
        return false;
    }
    *hits = (uint64_t)number;
    return true;
}

static int read_domain(ngx_weir_asking_t *a, struct weir_str *domain)
{
    ngx_str_t text;
    if (NGX_WEIR_MOSTLY(a->place->domain == NULL))
        return 0;
    if (text_of(a, a->place->domain, &text) != NGX_OK)
        return WEIR_ERR_NOMEM;
    *domain = ngx_weir_str(text);
    return 0;
}

/* The entries of one weir_descriptor: how many; 0 where a value is empty, negative an error. */
static int describe(ngx_weir_asking_t *a, const ngx_weir_descriptor_t *from, struct weir_entry *to)
{
    ngx_weir_entry_t *entries = from->entries.elts;
    for (ngx_uint_t i = 0; i < from->entries.nelts; i++) {
        ngx_str_t value;
        if (text_of(a, entries[i].value, &value) != NGX_OK)
            return WEIR_ERR_NOMEM;
        if (value.len == 0)
            return 0;
        to[i].key = ngx_weir_str(entries[i].key);
        to[i].value = ngx_weir_str(value);
    }
    return (int)from->entries.nelts;
}

/* By what the configuration says.  Apart from the rules' way, which it would lengthen. */
static __attribute__((noinline)) int ask_descriptors(ngx_weir_asking_t *a, uint64_t now_ns,
                                                     struct weir_decision *out,
                                                     struct weir_desk_waiter *waiter)
{
    ngx_weir_worker_t *worker = &a->main->worker;
    ngx_weir_descriptor_t *from = a->place->descriptors->elts;
    struct weir_entry *entries = worker->room->entries;
    struct weir_request request = {.descriptors = worker->room->descriptors};
    int err = read_domain(a, &request.domain);
    for (ngx_uint_t i = 0; i < a->place->descriptors->nelts && err == 0; i++) {
        int count = describe(a, &from[i], entries);
        if (count < 0)
            return count;
        if (count == 0)
            continue;
        struct weir_descriptor *to = &worker->room->descriptors[request.descriptor_count++];
        *to = (struct weir_descriptor){.entries = entries, .entry_count = (uint32_t)count};
        ngx_weir_value_t *hits = from[i].hits ? from[i].hits : a->place->hits;
        to->has_hits = hits != NULL && read_hits(a, hits, &to->hits);
        entries += count;
    }
    *out = (struct weir_decision){.overall = WEIR_CODE_OK, .statuses = worker->room->statuses};
    if (err || request.descriptor_count == 0)
        return err;
    return worker->desk != NULL ? weir_desk_check(worker->desk, &request, now_ns, out, waiter)
                                : weir_check(worker->session, &request, now_ns, out);
}

/* By what the rules say. */
static int ask_shapes(ngx_weir_asking_t *a, enum weir_stage stage, uint64_t now_ns,
                      struct weir_decision *out, struct weir_desk_waiter *waiter)
{
    ngx_weir_worker_t *worker = &a->main->worker;
    struct weir_http *http = &a->http;
    int err = read_domain(a, &http->domain);
    if (NGX_WEIR_SELDOM(err))
        return err;
    http->stage = stage;
    http->has_hits =
        NGX_WEIR_SELDOM(a->place->hits != NULL) && read_hits(a, a->place->hits, &http->hits);
    return NGX_WEIR_SELDOM(worker->desk != NULL)
               ? weir_desk_check_http(worker->desk, http, now_ns, out, waiter)
               : weir_check_http(worker->session, http, now_ns, out);
}

NGX_WEIR_HOT int ngx_weir_ask(ngx_weir_asking_t *a, enum weir_stage stage, uint64_t now_ns,
                              struct weir_decision *out, struct weir_desk_waiter *waiter)
{
    int err = NGX_WEIR_SELDOM(a->place->descriptors != NULL)
                  ? ask_descriptors(a, now_ns, out, waiter)
                  : ask_shapes(a, stage, now_ns, out, waiter);
    ngx_weir_service_kick(a->main);
    return err;
}

/* What cannot be counted is refused; rules that cannot be asked limit nothing. */
ngx_int_t ngx_weir_fail(ngx_weir_asking_t *a, int err)
{
    enum { BAD_REQUEST = 400, INTERNAL_ERROR = 500 }; /* in HTTP and in stream alike */
    static time_t told; /* at most once a second: it is so for every request */
    ngx_log_t *log = a->connection->log;
    if (a->place->dry_run)
        return NGX_DECLINED;
    if (err == WEIR_ERR_NOMEM)
        return INTERNAL_ERROR;
    if (err == WEIR_ERR_TOO_LARGE) {
        ngx_log_error(NGX_LOG_INFO, log, 0,
                      "weir: client sent a value that is too long to be counted");
        return BAD_REQUEST;
    }
    if (told != ngx_time()) {
        told = ngx_time();
        ngx_log_error(NGX_LOG_ERR, log, 0, "weir: nothing is limited here: %s%s",
                      weir_strerror(err),
                      err == WEIR_ERR_DOMAIN_EMPTY ? "; the rules have several domains"
                      : err == WEIR_ERR_NOT_FOUND  ? "; the rules have no such domain"
                                                   : "");
    }
    return NGX_DECLINED;
}
