/* The module as nginx knows it: see ngx_http_weir.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_http_weir.h"

static ngx_int_t add_handler(ngx_conf_t *cf, ngx_uint_t phase, ngx_http_handler_pt handler)
{
    ngx_http_core_main_conf_t *core = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    ngx_http_handler_pt *place = ngx_array_push(&core->phases[phase].handlers);
    if (place == NULL)
        return NGX_ERROR;
    *place = handler;
    return NGX_OK;
}

static ngx_int_t get_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t which)
{
    ngx_http_weir_record_t *record = ngx_http_weir_find(r->main);
    return ngx_weir_variable(record != NULL ? &record->base : NULL, r->pool, v, which);
}

/* A request's memory is nginx's structure, then a table with a word for each module.  Where that
 * ends within a pair of words, all that is allocated behind it lies across cache lines: so one
 * module more, as we are, costs every request something.  A word more costs nothing. */
static void make_even(void)
{
    if ((sizeof(ngx_http_request_t) / sizeof(void *) + ngx_http_max_module) % 2 != 0)
        ngx_http_max_module++;
}

static ngx_int_t preconfiguration(ngx_conf_t *cf)
{
    ngx_weir_near.index = ngx_http_weir_module.ctx_index;
    make_even();
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
    if (ngx_weir_open(cf, &main->base) != NGX_OK ||
        add_handler(cf, NGX_HTTP_PREACCESS_PHASE, ngx_http_weir_preaccess) != NGX_OK ||
        (main->has_late &&
         add_handler(cf, NGX_HTTP_PRECONTENT_PHASE, ngx_http_weir_precontent) != NGX_OK))
        return NGX_ERROR;
    return ngx_http_weir_init_filter(cf);
}

/* The early look stands before another handler, as filters do: one more would cost every request
 * the way to it, and it is only a hint, so where there is none to stand before it is left out. */
static void stand_first(ngx_cycle_t *cycle)
{
    ngx_http_core_main_conf_t *core =
        ngx_http_cycle_get_module_main_conf(cycle, ngx_http_core_module);
    ngx_http_phase_engine_t *engine = &core->phase_engine;
    ngx_http_phase_handler_t *first = &engine->handlers[engine->server_rewrite_index];
    if (first->checker != ngx_http_core_rewrite_phase)
        return;
    ngx_weir_near.next_rewrite = first->handler;
    first->handler = ngx_http_weir_server_rewrite;
}

static ngx_int_t init_process(ngx_cycle_t *cycle)
{
    ngx_weir_main_conf_t *main = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_weir_module);
    if (main != NULL && main->is_used)
        stand_first(cycle);
    return ngx_weir_init_process(cycle, main);
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
