/* What is kept of a decision until its request ends.
 *
 * Names of rules and statuses are libweir's only until it is asked again, so headers are written
 * here and now.  Where a request is asked twice, the tighter answer is in the headers that have
 * room for one, and both are in those that are lists.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_http_weir.h"

#define NS_PER_MS 1000000

/* ---- the end ---- */

/* The answer is known: before its client sees it, so that the next request finds what was given
 * back. */
void ngx_http_weir_settle(ngx_http_weir_record_t *record, ngx_uint_t http_status)
{
    if (record->ticket_count == 0)
        return;
    uint64_t now_ns = ngx_http_weir_now(record->main);
    for (ngx_uint_t i = 0; i < record->ticket_count; i++)
        weir_settle(record->main->worker->session, &record->tickets[i], (int)http_status, now_ns);
}

/* What is left is given back: all of a request that left before its turn, else its slots. */
static void end(void *data)
{
    ngx_http_weir_record_t *record = data;
    ngx_http_weir_worker_t *worker = record->main->worker;
    if (record->renew != NULL && record->renew->timer_set)
        ngx_del_timer(record->renew);
    if (record->is_held)
        worker->held--;
    else
        ngx_http_weir_settle(record, 0); /* unless there was an answer */
    if (record->ticket_count == 0)
        return;
    uint64_t now_ns = ngx_http_weir_now(record->main);
    for (ngx_uint_t i = 0; i < record->ticket_count; i++)
        weir_release(worker->session, &record->tickets[i], now_ns);
}

/* ---- long requests ---- */

static void renew(ngx_event_t *ev)
{
    ngx_http_weir_record_t *record = ev->data;
    uint64_t now_ns = ngx_http_weir_now(record->main), often_ns = WEIR_NEVER;
    for (ngx_uint_t i = 0; i < record->ticket_count; i++) {
        struct weir_ticket *ticket = &record->tickets[i];
        if (ticket->renew_ns == 0)
            continue;
        if (ticket->renew_ns < often_ns)
            often_ns = ticket->renew_ns;
        /* An expired slot is lost: a machine that slept. */
        if (weir_renew(record->main->worker->session, ticket, now_ns) != 0)
            ngx_log_error(NGX_LOG_INFO, ev->log, 0, "weir: a concurrency slot has expired");
    }
    ngx_add_timer(ev, (ngx_msec_t)(often_ns / NS_PER_MS));
}

static void renew_often(ngx_http_weir_record_t *record, ngx_event_t *ev)
{
    uint64_t often_ns = WEIR_NEVER;
    for (ngx_uint_t i = 0; i < record->ticket_count; i++) {
        uint64_t one_ns = record->tickets[i].renew_ns;
        if (one_ns > 0 && one_ns < often_ns)
            often_ns = one_ns;
    }
    if (often_ns == WEIR_NEVER)
        return;
    ngx_memzero(ev, sizeof(*ev));
    ev->handler = renew;
    ev->data = record;
    ev->log = record->request->connection->log;
    ev->cancelable = 1;
    record->renew = ev;
    ngx_add_timer(ev, (ngx_msec_t)(often_ns / NS_PER_MS));
}

/* ---- found ---- */

/* An internal redirect forgets contexts, not cleanups. */
ngx_http_weir_record_t *ngx_http_weir_find(ngx_http_request_t *r)
{
    ngx_http_weir_record_t *record = ngx_http_get_module_ctx(r, ngx_http_weir_module);
    if (record != NULL || (!r->internal && !r->filter_finalize))
        return record;
    for (ngx_pool_cleanup_t *c = r->pool->cleanup; c != NULL; c = c->next)
        if (c->handler == end)
            return c->data;
    return NULL;
}

/* ---- kept ---- */

/* How a decision will be told, before there is memory to keep it in. */
typedef struct {
    const struct weir_status *tightest; /* NULL: no limit applied */
    size_t lines_len, lists_len;
    ngx_uint_t ticket_count;
    char lines[WEIR_HEADERS_LEN_MAX];
    char lists[WEIR_HEADERS_LEN_MAX];
} telling_t;

static void tell(telling_t *t, const ngx_http_weir_loc_conf_t *conf,
                 const struct weir_decision *decision, uint64_t now_ns)
{
    bool is_refused = decision->overall == WEIR_CODE_OVER_LIMIT;
    uint32_t lists = is_refused ? 0 : conf->dialects & WEIR_DIALECT_IETF_11;
    t->tightest = weir_headers_tightest(decision);
    t->lines_len = t->lists_len = t->ticket_count = 0;
    for (uint32_t i = 0; i < decision->status_count && !is_refused; i++)
        t->ticket_count += decision->statuses[i].ticket.count > 0;
    if (conf->dry_run)
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

/* Tickets, then texts, behind the record. */
static void fill(ngx_http_weir_record_t *record, const telling_t *t,
                 const struct weir_decision *decision)
{
    const struct weir_status *s = t->tightest;
    record->tickets = (struct weir_ticket *)(void *)(record + 1);
    ngx_event_t *ev = (ngx_event_t *)(void *)(record->tickets + t->ticket_count);
    u_char *at = (u_char *)(t->ticket_count > 0 ? ev + 1 : ev);
    for (uint32_t i = 0; record->ticket_count < t->ticket_count; i++)
        if (decision->statuses[i].ticket.count > 0)
            record->tickets[record->ticket_count++] = decision->statuses[i].ticket;
    renew_often(record, ev);
    record->lines = copy(&at, t->lines, t->lines_len);
    record->lists = copy(&at, t->lists, t->lists_len);
    if (s == NULL)
        return;
    record->has_numbers = 1;
    record->limit = s->limit;
    record->remaining = s->remaining;
    if (s->code == WEIR_CODE_OVER_LIMIT)
        record->wait_s = weir_headers_wait_s(s);
    if (s->rule != NULL)
        record->rule = copy(&at, s->rule->id.ptr, s->rule->id.len);
}

static void compare(ngx_http_weir_record_t *record, const ngx_http_weir_record_t *before)
{
    record->stages |= before->stages;
    record->delay_ms = before->delay_ms;
    if (record->verdict < before->verdict)
        record->verdict = before->verdict;
    if (record->verdict == NGX_HTTP_WEIR_REJECTED || !before->has_numbers ||
        (record->has_numbers && record->remaining < before->remaining))
        return;
    record->has_numbers = 1;
    record->limit = before->limit;
    record->remaining = before->remaining;
    record->rule = before->rule;
    record->lines = before->lines;
}

static void release_all(ngx_http_weir_main_conf_t *main, const struct weir_decision *decision,
                        uint64_t now_ns)
{
    for (uint32_t i = 0; i < decision->status_count; i++)
        weir_release(main->worker->session, &decision->statuses[i].ticket, now_ns);
}

ngx_http_weir_record_t *ngx_http_weir_keep(ngx_http_request_t *r, ngx_uint_t stages,
                                           const struct weir_decision *decision, uint64_t now_ns)
{
    ngx_http_weir_main_conf_t *main = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    ngx_http_weir_record_t *before = ngx_http_weir_find(r);
    bool is_refused = decision->overall == WEIR_CODE_OVER_LIMIT;
    telling_t t;
    tell(&t, conf, decision, now_ns);
    size_t rule_len = t.tightest != NULL && t.tightest->rule != NULL ? t.tightest->rule->id.len : 0;
    size_t ticket_len = t.ticket_count * sizeof(struct weir_ticket) +
                        (t.ticket_count > 0 ? sizeof(ngx_event_t) : 0);
    ngx_pool_cleanup_t *cleanup =
        ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_weir_record_t) + ticket_len + t.lines_len +
                                          t.lists_len + rule_len);
    if (cleanup == NULL || is_refused)
        release_all(main, decision, now_ns); /* refused by one limit: nothing of the others */
    if (cleanup == NULL)
        return NULL;
    ngx_http_weir_record_t *record = cleanup->data;
    ngx_memzero(record, sizeof(*record));
    record->request = r;
    record->main = main;
    record->before = before;
    record->stages = stages;
    record->is_dry = (unsigned)conf->dry_run;
    record->verdict = is_refused           ? NGX_HTTP_WEIR_REJECTED
                      : t.tightest != NULL ? NGX_HTTP_WEIR_PASSED
                                           : NGX_HTTP_WEIR_BYPASSED;
    fill(record, &t, decision);
    if (before != NULL)
        compare(record, before);
    cleanup->handler = end;
    ngx_http_set_ctx(r, record, ngx_http_weir_module);
    return record;
}
