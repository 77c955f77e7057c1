/* The module as nginx knows it: see ngx_http_weir.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_http_weir.h"

static ngx_array_t *handlers_of(ngx_conf_t *cf, ngx_uint_t phase)
{
    ngx_http_core_main_conf_t *core = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    return &core->phases[phase].handlers;
}

static ngx_int_t add_handler(ngx_conf_t *cf, ngx_uint_t phase, ngx_http_handler_pt handler)
{
    ngx_http_handler_pt *place = ngx_array_push(handlers_of(cf, phase));
    if (place == NULL)
        return NGX_ERROR;
    *place = handler;
    return NGX_OK;
}

/* Stands before a phase's first handler, as filters do, and calls it: one more would cost every
 * request the way to it.  nginx asks the last one first.  False: there is none. */
static bool stand_first(ngx_conf_t *cf, ngx_uint_t phase, ngx_http_handler_pt handler,
                        ngx_http_handler_pt *next)
{
    ngx_array_t *handlers = handlers_of(cf, phase);
    if (handlers->nelts == 0)
        return false;
    ngx_http_handler_pt *first = (ngx_http_handler_pt *)handlers->elts + handlers->nelts - 1;
    *next = *first;
    *first = handler;
    return true;
}

static ngx_int_t decline(ngx_http_request_t *r)
{
    (void)r;
    return NGX_DECLINED;
}

/* Who may have to wait for the service goes on behind the handler that asked: it is one of its own
 * then (ngx_http_weir_wait.c). */
static ngx_int_t add_preaccess(ngx_conf_t *cf, const ngx_weir_main_conf_t *main)
{
    ngx_uint_t phase = NGX_HTTP_PREACCESS_PHASE;
    if (main->service == NULL &&
        stand_first(cf, phase, ngx_http_weir_preaccess, &ngx_weir_near.next_preaccess))
        return NGX_OK;
    ngx_weir_near.next_preaccess = decline;
    return add_handler(cf, phase, ngx_http_weir_preaccess);
}

static ngx_int_t get_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t which)
{
    ngx_http_weir_record_t *record = ngx_http_weir_find(r->main);
    return ngx_weir_variable(record != NULL ? &record->base : NULL, r->pool, v, which);
}

/* A request's memory is nginx's structure, then a table with a word for each module; one more is
 * ours.  Where it ends within a pair of words, all that is allocated behind it lies across cache
 * lines: so one module more, as we are, costs every request something.  A word more costs
 * nothing. */
static void add_word(void)
{
    ngx_weir_near.word = ngx_http_max_module;
    ngx_http_max_module += sizeof(ngx_http_weir_word_t) / sizeof(void *);
    if ((sizeof(ngx_http_request_t) / sizeof(void *) + ngx_http_max_module) % 2 != 0)
        ngx_http_max_module++;
}

static ngx_int_t preconfiguration(ngx_conf_t *cf)
{
    ngx_weir_near.index = ngx_http_weir_module.ctx_index;
    ngx_weir_near.by_address = false; /* not known of this configuration */
    add_word();
    for (const ngx_weir_variable_t *one = ngx_weir_variables; one->name.len > 0; one++) {
        ngx_str_t name = one->name;
        ngx_http_variable_t *v = ngx_http_add_variable(cf, &name, NGX_HTTP_VAR_NOCACHEABLE);
        if (v == NULL)
            return NGX_ERROR;
        v->get_handler = get_variable;
        v->data = one->which;
    }
    return NGX_OK;
}

static ngx_int_t postconfiguration(ngx_conf_t *cf)
{
    ngx_http_weir_main_conf_t *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    if (!main->base.is_used)
        return NGX_OK;
    if (ngx_weir_open(cf, &main->base) != NGX_OK || add_preaccess(cf, &main->base) != NGX_OK ||
        (main->has_late &&
         add_handler(cf, NGX_HTTP_PRECONTENT_PHASE, ngx_http_weir_precontent) != NGX_OK))
        return NGX_ERROR;
    /* The early look is only a hint: where there is nobody to stand before it is left out. */
    (void)stand_first(cf, NGX_HTTP_SERVER_REWRITE_PHASE, ngx_http_weir_server_rewrite,
                      &ngx_weir_near.next_rewrite);
    return ngx_http_weir_init_filter(cf);
}

/* nginx has written the handlers of all phases one behind the other; behind the last, nothing. */
static void find_early(ngx_cycle_t *cycle)
{
    ngx_http_core_main_conf_t *core =
        ngx_http_cycle_get_module_main_conf(cycle, ngx_http_core_module);
    for (ngx_http_phase_handler_t *one = core->phase_engine.handlers; one->checker != NULL; one++)
        if (one->handler == ngx_http_weir_server_rewrite)
            ngx_http_weir_begin_early(&one->handler);
}

static ngx_int_t init_process(ngx_cycle_t *cycle)
{
    ngx_http_weir_main_conf_t *main =
        ngx_http_cycle_get_module_main_conf(cycle, ngx_http_weir_module);
    if (main == NULL || !main->base.is_used)
        return NGX_OK;
    find_early(cycle);
    return ngx_weir_init_process(cycle, &main->base);
}

static ngx_http_module_t context = {
    preconfiguration,
    postconfiguration,

    ngx_http_weir_create_main_conf,
    ngx_http_weir_init_main_conf,

    NULL, /* create server configuration */
    NULL, /* merge server configuration */

    ngx_http_weir_create_loc_conf,
    ngx_http_weir_merge_loc_conf,
};

ngx_module_t ngx_http_weir_module =
    NGX_WEIR_MODULE(NGX_HTTP_MODULE, &context, ngx_http_weir_commands, init_process);
