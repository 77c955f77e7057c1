/* What is kept of a decision until its request or session ends.
 *
 * Names of rules and statuses are libweir's only until it is asked again, so what logs may want of
 * them is copied here and now.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_weir.h"

#define NS_PER_MS 1000000

/* ---- the end ---- */

/* What a store has counted is the service's to hear of. */
static void settle_one(ngx_weir_main_conf_t *main, struct weir_ticket *ticket, int status,
                       uint64_t now_ns)
{
    ngx_weir_worker_t *worker = main->worker;
    if (worker->desk != NULL)
        weir_desk_settle(worker->desk, ticket, status, now_ns);
    else
        weir_settle(worker->session, ticket, status, now_ns);
}

static void release_one(ngx_weir_main_conf_t *main, struct weir_ticket *ticket, uint64_t now_ns)
{
    ngx_weir_worker_t *worker = main->worker;
    if (worker->desk != NULL)
        weir_desk_release(worker->desk, ticket, now_ns);
    else
        weir_release(worker->session, ticket, now_ns);
}

static int renew_one(ngx_weir_main_conf_t *main, struct weir_ticket *ticket, uint64_t now_ns)
{
    ngx_weir_worker_t *worker = main->worker;
    return worker->desk != NULL ? weir_desk_renew(worker->desk, ticket, now_ns)
                                : weir_renew(worker->session, ticket, now_ns);
}

/* The answer is known: before its client sees it, so that the next request finds what was given
 * back. */
void ngx_weir_settle(ngx_weir_record_t *record, ngx_uint_t status)
{
    if (record->ticket_count == 0)
        return;
    uint64_t now_ns = ngx_weir_now(record->main);
    for (ngx_uint_t i = 0; i < record->ticket_count; i++)
        settle_one(record->main, &record->tickets[i], (int)status, now_ns);
    ngx_weir_service_kick(record->main);
}

void ngx_weir_end(void *data)
{
    ngx_weir_record_t *record = data;
    ngx_weir_worker_t *worker = record->main->worker;
    if (record->renew != NULL && record->renew->timer_set)
        ngx_del_timer(record->renew);
    if (record->is_held)
        worker->held--;
    else
        ngx_weir_settle(record, 0); /* unless there was an answer */
    record->is_held = 0;
    if (record->ticket_count == 0)
        return;
    uint64_t now_ns = ngx_weir_now(record->main);
    for (ngx_uint_t i = 0; i < record->ticket_count; i++)
        release_one(record->main, &record->tickets[i], now_ns);
    record->ticket_count = 0;
    ngx_weir_service_kick(record->main);
}

static void release_all(ngx_weir_main_conf_t *main, const struct weir_decision *decision)
{
    uint64_t now_ns = ngx_weir_now(main);
    for (uint32_t i = 0; i < decision->status_count; i++)
        release_one(main, &decision->statuses[i].ticket, now_ns);
    ngx_weir_service_kick(main);
}

/* ---- long requests ---- */

static void renew(ngx_event_t *ev)
{
    ngx_weir_record_t *record = ev->data;
    uint64_t now_ns = ngx_weir_now(record->main), often_ns = WEIR_NEVER;
    for (ngx_uint_t i = 0; i < record->ticket_count; i++) {
        struct weir_ticket *ticket = &record->tickets[i];
        if (ticket->renew_ns == 0)
            continue;
        if (ticket->renew_ns < often_ns)
            often_ns = ticket->renew_ns;
        /* An expired slot is lost: a machine that slept. */
        int err = renew_one(record->main, ticket, now_ns);
        if (err != 0)
            ngx_log_error(NGX_LOG_INFO, ev->log, 0, "weir: a concurrency slot has expired: %s",
                          weir_strerror(err));
    }
    ngx_weir_service_kick(record->main);
    ngx_add_timer(ev, (ngx_msec_t)(often_ns / NS_PER_MS));
}

static void renew_often(ngx_weir_record_t *record, ngx_event_t *ev)
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
    ev->log = record->connection->log;
    ev->cancelable = 1;
    record->renew = ev;
    ngx_add_timer(ev, (ngx_msec_t)(often_ns / NS_PER_MS));
}

/* ---- kept ---- */

static ngx_uint_t count_tickets(const struct weir_decision *decision)
{
    ngx_uint_t count = 0;
    for (uint32_t i = 0; i < decision->status_count; i++)
        count += decision->statuses[i].ticket.count > 0;
    return count;
}

/* Bytes of what a store knows the tickets by. */
static size_t away_len(const struct weir_decision *decision)
{
    size_t len = 0;
    for (uint32_t i = 0; i < decision->status_count; i++)
        len += decision->statuses[i].ticket.count > 0 ? decision->statuses[i].ticket.away.len : 0;
    return len;
}

static u_char *keep_away(struct weir_ticket *ticket, u_char *at)
{
    struct weir_str away = ticket->away;
    if (away.len == 0)
        return at;
    ticket->away.ptr = (const char *)at;
    return ngx_cpymem(at, away.ptr, away.len);
}

/* Tickets and the rule's name, at `behind` and after it. */
static void fill(ngx_weir_record_t *record, u_char *behind, ngx_uint_t ticket_count,
                 const struct weir_decision *decision, struct weir_str rule)
{
    if (ticket_count > 0) {
        record->tickets = (struct weir_ticket *)(void *)behind;
        for (uint32_t i = 0; record->ticket_count < ticket_count; i++)
            if (decision->statuses[i].ticket.count > 0)
                record->tickets[record->ticket_count++] = decision->statuses[i].ticket;
        ngx_event_t *ev = (ngx_event_t *)(void *)(record->tickets + ticket_count);
        renew_often(record, ev);
        behind = (u_char *)(ev + 1);
        for (ngx_uint_t i = 0; i < ticket_count; i++)
            behind = keep_away(&record->tickets[i], behind);
    }
    record->rule.len = rule.len;
    record->rule.data = behind;
    if (rule.len > 0)
        ngx_memcpy(behind, rule.ptr, rule.len);
}

/* Field by field: to clear the whole first takes longer than all else here. */
static void begin(ngx_weir_record_t *record, const ngx_weir_asking_t *a,
                  const struct weir_told *told)
{
    record->main = a->main;
    record->connection = a->connection;
    record->verdict = told->is_refused   ? NGX_WEIR_REJECTED
                      : told->is_limited ? NGX_WEIR_PASSED
                                         : NGX_WEIR_BYPASSED;
    record->is_dry = (unsigned)a->place->dry_run;
    record->is_held = 0;
    record->told = *told;
    record->due_ns = 0;
    record->delay_ms = 0;
    record->renew = NULL;
    record->ticket_count = 0;
    record->tickets = NULL;
}

/* As ngx_pool_cleanup_add() would, but with the record in one piece of memory with its cleanup:
 * this is done for every request. */
static void *add_cleanup(ngx_pool_t *pool, size_t len)
{
    ngx_pool_cleanup_t *cleanup = ngx_palloc(pool, sizeof(*cleanup) + len);
    if (cleanup == NULL)
        return NULL;
    cleanup->handler = ngx_weir_end;
    cleanup->data = cleanup + 1;
    cleanup->next = pool->cleanup;
    pool->cleanup = cleanup;
    return cleanup->data;
}

void *ngx_weir_keep(ngx_weir_asking_t *a, ngx_pool_t *pool, const struct weir_decision *decision,
                    uint64_t now_ns, size_t len, size_t more_len, u_char **more)
{
    struct weir_told told;
    weir_headers_tell(&told, decision, now_ns);
    struct weir_str rule = told.rule != NULL ? told.rule->id : (struct weir_str){.len = 0};
    ngx_uint_t ticket_count = told.is_refused ? 0 : count_tickets(decision);
    size_t ticket_len = ticket_count * sizeof(struct weir_ticket) +
                        (ticket_count > 0 ? sizeof(ngx_event_t) + away_len(decision) : 0);
    ngx_weir_record_t *record = add_cleanup(pool, len + ticket_len + rule.len + more_len);
    if (record == NULL || told.is_refused)
        release_all(a->main, decision); /* refused by one limit: nothing of the others */
    if (record == NULL)
        return NULL;
    begin(record, a, &told);
    *more = (u_char *)record + len;
    fill(record, *more + more_len, ticket_count, decision, rule);
    return record;
}

void ngx_weir_log(const ngx_weir_record_t *record, const ngx_weir_place_conf_t *place)
{
    bool is_refused = record->verdict == NGX_WEIR_REJECTED;
    if (!is_refused && record->verdict != NGX_WEIR_DELAYED)
        return;
    ngx_log_error(is_refused ? place->log_level : place->log_level + 1, record->connection->log, 0,
                  "weir: %s%s by rule \"%V\"", is_refused ? "refused" : "held",
                  record->is_dry ? ", were this no dry run," : "", &record->rule);
}
