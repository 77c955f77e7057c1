/* What is kept of a decision until its request or session ends.
 *
 * Names of rules and statuses are libweir's only until it is asked again, so what logs may want of
 * them is copied here and now.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_weir.h"

#define NS_PER_MS 1000000
#define NAME_LEN_MAX 32 /* of a rule: longer ones are in the request's pool */

/* ---- memory ----
 *
 * Records, each with its cleanup, go round among a worker's requests: the last one's is still in
 * the processor's cache, and the request's pool, about full when a request is passed on, need not
 * get another block.  As many are made as there were ever requests at once, and some. */

struct ngx_weir_piece_s {
    ngx_pool_cleanup_t cleanup; /* nginx reads it once more after it was called */
    ngx_weir_piece_t *next;     /* that is free, too */
    u_char name[NAME_LEN_MAX];  /* of the rule, if it is no longer */
};
_Static_assert(sizeof(ngx_weir_piece_t) == NGX_WEIR_LINE, "what is before a record");

static ngx_weir_piece_t *piece_of(void *record)
{
    return (ngx_weir_piece_t *)record - 1;
}

/* Many at once: one by one they would lie between what nginx frees and allocates again. */
#define BATCH 64
typedef struct batch_s batch_t;
struct batch_s {
    struct {
        ngx_weir_piece_t piece;
        u_char record[NGX_WEIR_RECORD_LEN];
    } pieces[BATCH];
    batch_t *next;
};

/* A process has one engine as long as it lives, and so have they. */
static batch_t *batches;

static __attribute__((noinline)) void make_pieces(void)
{
    batch_t *batch = ngx_memalign(NGX_WEIR_LINE, sizeof(*batch), ngx_cycle->log);
    if (batch == NULL)
        return;
    batch->next = batches;
    batches = batch;
    for (ngx_uint_t i = 0; i < BATCH; i++) {
        ngx_weir_piece_t *piece = &batch->pieces[i].piece;
        ((ngx_weir_record_t *)(piece + 1))->named = NULL;
        piece->next = ngx_weir_near.pieces;
        ngx_weir_near.pieces = piece;
    }
}

static void *take_piece(void)
{
    if (NGX_WEIR_SELDOM(ngx_weir_near.pieces == NULL))
        make_pieces();
    ngx_weir_piece_t *piece = ngx_weir_near.pieces;
    if (NGX_WEIR_SELDOM(piece == NULL))
        return NULL;
    ngx_weir_near.pieces = piece->next;
    return piece + 1;
}

static void give_piece(void *record)
{
    ngx_weir_piece_t *piece = piece_of(record);
    piece->next = ngx_weir_near.pieces;
    ngx_weir_near.pieces = piece;
}

void ngx_weir_free_records(void)
{
    ngx_uint_t made = 0, count = 0;
    for (batch_t *batch = batches; batch != NULL; batch = batch->next)
        made += BATCH;
    for (ngx_weir_piece_t *piece = ngx_weir_near.pieces; piece != NULL; piece = piece->next)
        count++;
    if (count < made)
        return; /* a request has one yet: who was told to end at once */
    ngx_weir_near.pieces = NULL;
    while (batches != NULL) {
        batch_t *batch = batches;
        batches = batch->next;
        ngx_free(batch);
    }
}

/* As ngx_pool_cleanup_add() would. */
static void end_with(ngx_pool_t *pool, void *record, ngx_pool_cleanup_pt handler)
{
    ngx_weir_piece_t *piece = piece_of(record);
    piece->cleanup.handler = handler;
    piece->cleanup.data = record;
    piece->cleanup.next = pool->cleanup;
    pool->cleanup = &piece->cleanup;
}

/* ---- the end ---- */

/* What a store has counted is the service's to hear of. */
static void settle_one(ngx_weir_main_conf_t *main, struct weir_ticket *ticket, int status,
                       uint64_t now_ns)
{
    ngx_weir_worker_t *worker = &main->worker;
    if (worker->desk != NULL)
        weir_desk_settle(worker->desk, ticket, status, now_ns);
    else
        weir_settle(worker->session, ticket, status, now_ns);
}

static void release_one(ngx_weir_main_conf_t *main, struct weir_ticket *ticket, uint64_t now_ns)
{
    ngx_weir_worker_t *worker = &main->worker;
    if (worker->desk != NULL)
        weir_desk_release(worker->desk, ticket, now_ns);
    else
        weir_release(worker->session, ticket, now_ns);
}

static int renew_one(ngx_weir_main_conf_t *main, struct weir_ticket *ticket, uint64_t now_ns)
{
    ngx_weir_worker_t *worker = &main->worker;
    return worker->desk != NULL ? weir_desk_renew(worker->desk, ticket, now_ns)
                                : weir_renew(worker->session, ticket, now_ns);
}

/* The answer is known: before its client sees it, so that the next request finds what was given
 * back. */
void ngx_weir_settle_tickets(ngx_weir_record_t *record, ngx_uint_t status)
{
    uint64_t now_ns = ngx_weir_now(record->main);
    for (ngx_uint_t i = 0; i < record->ticket_count; i++)
        settle_one(record->main, &record->tickets[i], (int)status, now_ns);
    ngx_weir_service_kick(record->main);
}

void ngx_weir_end(ngx_weir_record_t *record)
{
    if (record->renew != NULL && record->renew->timer_set)
        ngx_del_timer(record->renew);
    if (record->is_held)
        record->main->worker.held--;
    else
        ngx_weir_settle(record, 0); /* unless there was an answer */
    record->is_held = false;
    if (record->ticket_count == 0)
        return;
    uint64_t now_ns = ngx_weir_now(record->main);
    for (ngx_uint_t i = 0; i < record->ticket_count; i++)
        release_one(record->main, &record->tickets[i], now_ns);
    record->ticket_count = 0;
    ngx_weir_service_kick(record->main);
}

/* And its memory is another's: the cleanup of a record. */
NGX_WEIR_HOT static void forget(void *data)
{
    ngx_weir_record_t *record = data;
    if (NGX_WEIR_SELDOM(record->ticket_count > 0 || record->is_held))
        ngx_weir_end(record);
    give_piece(record);
}

/* The same where there is nothing to give back: the record, far away by now, is not looked at. */
NGX_WEIR_HOT static void forget_plain(void *data)
{
    give_piece(data);
}

bool ngx_weir_is_record(const ngx_pool_cleanup_t *cleanup)
{
    return cleanup->handler == forget || cleanup->handler == forget_plain;
}

static __attribute__((noinline)) void release_all(ngx_weir_main_conf_t *main,
                                                  const struct weir_decision *decision)
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

static __attribute__((noinline)) ngx_int_t keep_tickets(ngx_weir_record_t *record, ngx_pool_t *pool,
                                                        ngx_uint_t count,
                                                        const struct weir_decision *decision)
{
    size_t len = count * sizeof(struct weir_ticket) + sizeof(ngx_event_t) + away_len(decision);
    record->tickets = ngx_palloc(pool, len);
    if (record->tickets == NULL)
        return NGX_ERROR;
    for (uint32_t i = 0; record->ticket_count < count; i++)
        if (decision->statuses[i].ticket.count > 0)
            record->tickets[record->ticket_count++] = decision->statuses[i].ticket;
    ngx_event_t *ev = (ngx_event_t *)(void *)(record->tickets + count);
    u_char *behind = (u_char *)(ev + 1);
    for (ngx_uint_t i = 0; i < count; i++)
        behind = keep_away(&record->tickets[i], behind);
    renew_often(record, ev);
    return NGX_OK;
}

static __attribute__((noinline)) ngx_int_t copy_name(ngx_weir_record_t *record, ngx_pool_t *pool,
                                                     struct weir_str name)
{
    ngx_weir_piece_t *piece = piece_of(record);
    record->rule.len = name.len;
    record->rule.data = name.len <= sizeof(piece->name) ? piece->name : ngx_pnalloc(pool, name.len);
    if (record->rule.data == NULL)
        return NGX_ERROR;
    ngx_memcpy(record->rule.data, name.ptr, name.len);
    return NGX_OK;
}

/* Of two rules of one generation, and only of these, it can be told by their place which they are:
 * where the service has decided, they are none of the table's. */
static ngx_inline ngx_int_t keep_name(ngx_weir_record_t *record, ngx_pool_t *pool)
{
    const struct weir_rule_info *rule = record->told.rule;
    uint64_t generation = record->told.generation;
    if (NGX_WEIR_MOSTLY(record->named == rule && rule != NULL &&
                        record->named_generation == generation))
        return NGX_OK;
    record->named = NULL;
    record->rule.len = 0;
    if (rule == NULL)
        return NGX_OK;
    if (copy_name(record, pool, rule->id) != NGX_OK) {
        record->rule.len = 0;
        return NGX_ERROR;
    }
    if (generation != 0 && record->rule.data == piece_of(record)->name) {
        record->named = rule;
        record->named_generation = generation;
    }
    return NGX_OK;
}

/* Field by field: to clear the whole first takes longer than all else here. */
static void begin(ngx_weir_record_t *record, const ngx_weir_asking_t *a)
{
    const struct weir_told *told = &record->told;
    record->main = a->main;
    record->connection = a->connection;
    record->verdict = NGX_WEIR_SELDOM(told->is_refused) ? NGX_WEIR_REJECTED
                      : told->is_limited                ? NGX_WEIR_PASSED
                                                        : NGX_WEIR_BYPASSED;
    record->is_dry = a->place->dry_run != 0;
    record->is_held = false;
    record->delay_ms = 0;
    record->renew = NULL;
    record->ticket_count = 0;
}

/* All that a record borrows becomes its own. */
static ngx_int_t keep_all(ngx_weir_record_t *record, ngx_pool_t *pool,
                          const struct weir_decision *decision)
{
    ngx_uint_t count = NGX_WEIR_SELDOM(record->told.is_refused) ? 0 : count_tickets(decision);
    if (NGX_WEIR_SELDOM(keep_name(record, pool) != NGX_OK))
        return NGX_ERROR;
    return NGX_WEIR_SELDOM(count > 0) ? keep_tickets(record, pool, count, decision) : NGX_OK;
}

NGX_WEIR_HOT void *ngx_weir_keep(ngx_weir_asking_t *a, ngx_pool_t *pool,
                                 const struct weir_decision *decision, uint64_t now_ns)
{
    ngx_weir_record_t *record = take_piece();
    if (NGX_WEIR_MOSTLY(record != NULL)) {
        weir_headers_tell(&record->told, decision, now_ns);
        if (NGX_WEIR_MOSTLY(a->main->worker.desk == NULL))
            record->told.generation = weir_rules_generation(a->main->engine);
        begin(record, a);
        if (NGX_WEIR_SELDOM(keep_all(record, pool, decision) != NGX_OK)) {
            give_piece(record);
            record = NULL;
        }
    }
    if (NGX_WEIR_SELDOM(record == NULL || record->told.is_refused))
        release_all(a->main, decision); /* refused by one limit: nothing of the others */
    if (NGX_WEIR_MOSTLY(record != NULL))
        end_with(pool, record, forget);
    return record;
}

/* What was decided by libweir's quickest way: it passes, and nothing is to be given back. */
static ngx_inline void keep_plain(ngx_weir_record_t *record, ngx_pool_t *pool)
{
    (void)keep_name(record, pool); /* where there is no memory it has none */
    end_with(pool, record, forget_plain);
}

NGX_WEIR_HOT void *ngx_weir_keep_again(ngx_weir_asking_t *a, ngx_pool_t *pool, uint64_t now_ns)
{
    struct weir_session *session = a->main->worker.session;
    ngx_weir_record_t *record = take_piece();
    if (NGX_WEIR_SELDOM(record == NULL))
        return NULL;
    if (NGX_WEIR_SELDOM(!weir_check_http_again(session, &a->http, now_ns, &record->told))) {
        give_piece(record);
        return NULL;
    }
    if (record->told.by_address && a->main->proxies == NULL)
        ngx_weir_near.by_address = true;
    begin(record, a);
    keep_plain(record, pool);
    return record;
}

NGX_WEIR_HOT void *ngx_weir_keep_address(ngx_weir_main_conf_t *main, ngx_connection_t *c,
                                         ngx_pool_t *pool, uint64_t state)
{
    struct weir_str address = ngx_weir_str(ngx_weir_address(c->addr_text));
    uint64_t now_ns = ngx_weir_now(main);
    ngx_weir_record_t *record = take_piece();
    if (NGX_WEIR_SELDOM(record == NULL))
        return NULL;
    if (NGX_WEIR_SELDOM(
            !weir_check_address_again(main->worker.session, address, now_ns, &record->told))) {
        ngx_weir_near.by_address = false;
        give_piece(record);
        return NULL;
    }
    record->main = main;
    record->state = state;
    record->connection = c;
    record->delay_ms = 0;
    record->renew = NULL;
    keep_plain(record, pool);
    return record;
}

void ngx_weir_tell_log(const ngx_weir_record_t *record, const ngx_weir_place_conf_t *place)
{
    bool is_refused = record->verdict == NGX_WEIR_REJECTED;
    ngx_log_error(is_refused ? place->log_level : place->log_level + 1, record->connection->log, 0,
                  "weir: %s%s by rule \"%V\"", is_refused ? "refused" : "held",
                  record->is_dry ? ", were this no dry run," : "", &record->rule);
}
