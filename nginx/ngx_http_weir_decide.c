/* The phases: asks libweir about a request, then lets it pass, holds or refuses it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_http_weir.h"

/* ---- which rules, and when ---- */

/* Whether there is anything that only authentication tells. */
static bool has_late(const ngx_http_weir_loc_conf_t *conf)
{
    return conf->base.descriptors == NULL && (conf->user != NULL || conf->base.attributes != NULL);
}

void ngx_http_weir_set_stages(ngx_http_weir_loc_conf_t *conf)
{
    uint8_t *stages = conf->stages;
    if (!conf->base.enable)
        return; /* none */
    if (conf->phase != NGX_HTTP_WEIR_AUTO) {
        stages[conf->phase] = NGX_HTTP_WEIR_ALL;
    } else if (!has_late(conf)) {
        stages[NGX_HTTP_WEIR_PREACCESS] = NGX_HTTP_WEIR_ALL;
    } else {
        stages[NGX_HTTP_WEIR_PREACCESS] = NGX_HTTP_WEIR_EARLY;
        stages[NGX_HTTP_WEIR_PRECONTENT] = NGX_HTTP_WEIR_LATE;
        return;
    }
    conf->is_plain = ngx_weir_is_plain(&conf->base) && !(conf->dialects & WEIR_DIALECT_IETF_11);
    if (conf->is_plain && stages[NGX_HTTP_WEIR_PREACCESS] != 0)
        conf->state = ngx_http_weir_passed(conf->base.dry_run != 0, conf->dialects);
}

/* ---- asking ---- */

static enum weir_stage stage_of(ngx_uint_t stages)
{
    return NGX_WEIR_MOSTLY(stages == NGX_HTTP_WEIR_ALL) ? WEIR_STAGE_ALL
           : stages == NGX_HTTP_WEIR_EARLY              ? WEIR_STAGE_EARLY
                                                        : WEIR_STAGE_LATE;
}

/* How a request looks to the rules. */
static ngx_inline void init_asking(ngx_http_weir_asking_t *a, ngx_http_request_t *r,
                                   ngx_http_weir_loc_conf_t *conf)
{
    a->base.main = r->main_conf[ngx_weir_near.index];
    a->base.connection = r->connection;
    a->base.http = (struct weir_http){
        .attribute = ngx_http_weir_attribute, .ctx = a, .is_late = ngx_http_weir_is_late};
    a->base.kind = &ngx_http_weir_kind;
    a->base.from = r;
    a->base.place = &conf->base;
    a->base.known = 0;
    a->before = ngx_http_weir_find(r);
    a->has_user = false;
    a->scratch_used = 0;
}

/* It is decided: lets it pass, holds or refuses it. */
static ngx_inline ngx_int_t conclude(ngx_http_weir_asking_t *a, ngx_uint_t stages,
                                     struct weir_decision *decision, uint64_t now_ns)
{
    ngx_http_request_t *r = a->base.from;
    uint64_t delay_ns = ngx_weir_delay(&a->base, decision);
    ngx_http_weir_record_t *record = ngx_http_weir_keep(a, stages, decision, now_ns);
    if (NGX_WEIR_SELDOM(record == NULL))
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    if (NGX_WEIR_SELDOM(delay_ns > 0))
        record->base.verdict = NGX_WEIR_DELAYED;
    ngx_weir_log(&record->base, a->base.place);
    if (NGX_WEIR_SELDOM(a->base.place->dry_run))
        return NGX_DECLINED;
    if (NGX_WEIR_SELDOM(decision->overall == WEIR_CODE_OVER_LIMIT))
        return ngx_http_weir_refuse(r, decision);
    return NGX_WEIR_SELDOM(delay_ns > 0) ? ngx_http_weir_hold(r, record, delay_ns, now_ns)
                                         : NGX_DECLINED;
}

static __attribute__((noinline)) ngx_int_t decide(ngx_http_weir_asking_t *a, ngx_uint_t stages,
                                                  struct weir_desk_waiter *waiter)
{
    struct weir_decision decision;
    uint64_t now_ns = ngx_weir_now(a->base.main);
    int err = ngx_weir_ask(&a->base, stage_of(stages), now_ns, &decision, waiter);
    if (NGX_WEIR_MOSTLY(err == 0))
        return conclude(a, stages, &decision, now_ns);
    return err == WEIR_PENDING ? ngx_http_weir_wait(a->base.from) : ngx_weir_fail(&a->base, err);
}

ngx_int_t ngx_http_weir_answered(ngx_http_request_t *r, ngx_uint_t stages,
                                 struct weir_decision *decision)
{
    ngx_http_weir_asking_t a;
    init_asking(&a, r, r->loc_conf[ngx_weir_near.index]);
    return decision != NULL ? conclude(&a, stages, decision, ngx_weir_now(a.base.main))
                            : decide(&a, stages, NULL);
}

static __attribute__((noinline)) NGX_WEIR_HOT ngx_int_t handle(ngx_http_request_t *r,
                                                               ngx_uint_t phase)
{
    ngx_http_weir_asking_t a;
    struct weir_desk_waiter *waiter = NULL;
    ngx_http_weir_loc_conf_t *conf = r->loc_conf[ngx_weir_near.index];
    ngx_uint_t stages = conf->stages[phase];
    if (NGX_WEIR_SELDOM(stages == 0 || r != r->main))
        return NGX_DECLINED;
    init_asking(&a, r, conf);
    if (NGX_WEIR_SELDOM(a.before != NULL) &&
        ((a.before->base.stages & stages) != 0 || a.before->base.verdict == NGX_WEIR_REJECTED))
        return NGX_DECLINED; /* once a request */
    if (NGX_WEIR_SELDOM(!ngx_weir_has_worker(a.base.main)))
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    if (NGX_WEIR_SELDOM(a.base.main->worker.desk != NULL)) {
        waiter = ngx_http_weir_waiter(r, stages);
        if (waiter == NULL)
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    if (NGX_WEIR_MOSTLY(conf->is_plain && waiter == NULL && a.before == NULL) &&
        ngx_http_weir_keep_again(&a, stages, ngx_weir_now(a.base.main)) != NULL)
        return NGX_DECLINED;
    return decide(&a, stages, waiter);
}

/* ---- a look ahead ---- */

static ngx_http_handler_pt *early; /* NULL: not known */

__attribute__((noinline)) void ngx_http_weir_set_early(bool is_of_use)
{
    ngx_weir_near.foretells = is_of_use;
    if (early != NULL)
        *early = is_of_use ? ngx_http_weir_server_rewrite : ngx_weir_near.next_rewrite;
}

void ngx_http_weir_begin_early(ngx_http_handler_pt *place)
{
    early = place;
    ngx_http_weir_set_early(false);
}

/* Not if a variable would be looked at: nginx keeps what they are, and it is too early to say. */
static ngx_inline void foresee(ngx_http_request_t *r)
{
    ngx_http_weir_asking_t a;
    ngx_http_weir_loc_conf_t *conf = r->loc_conf[ngx_weir_near.index];
    if (r != r->main || conf->user != NULL || conf->base.attributes != NULL)
        return;
    init_asking(&a, r, conf);
    ngx_http_weir_foretell(weir_check_http_soon(a.base.main->worker.session, &a.base.http));
}

/* Some time before it is decided, so that its counter is there by then.  In vain, where the request
 * is another in the end, by a rewrite or by its location. */
NGX_WEIR_HOT ngx_int_t ngx_http_weir_server_rewrite(ngx_http_request_t *r)
{
    foresee(r);
    return ngx_weir_near.next_rewrite(r);
}

/* ---- before authentication, and behind it ---- */

/* The quickest way: where nothing but the connection's address is asked for, and it passes. */
static ngx_inline bool passes(ngx_http_request_t *r)
{
    const ngx_http_weir_loc_conf_t *conf = r->loc_conf[ngx_weir_near.index];
    ngx_weir_main_conf_t *main = r->main_conf[ngx_weir_near.index];
    if (NGX_WEIR_SELDOM(conf->state == 0 || r != r->main || ngx_http_weir_find(r) != NULL))
        return false;
    ngx_http_weir_record_t *record =
        ngx_weir_keep_address(main, r->connection, r->pool, conf->state);
    if (NGX_WEIR_SELDOM(record == NULL))
        return false;
    ngx_http_weir_set(r, record);
    ngx_http_weir_foretell(record->base.told.foretell);
    return true;
}

NGX_WEIR_HOT ngx_int_t ngx_http_weir_preaccess(ngx_http_request_t *r)
{
    ngx_int_t rc = NGX_DECLINED;
    if (NGX_WEIR_SELDOM(!ngx_weir_near.by_address || !passes(r)))
        rc = handle(r, NGX_HTTP_WEIR_PREACCESS);
    return NGX_WEIR_MOSTLY(rc == NGX_DECLINED) ? ngx_weir_near.next_preaccess(r) : rc;
}

ngx_int_t ngx_http_weir_precontent(ngx_http_request_t *r)
{
    return handle(r, NGX_HTTP_WEIR_PRECONTENT);
}
