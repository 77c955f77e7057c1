/* Directives of HTTP's own, and its tables of all: docs/nginx.md says what each means.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_http_weir.h"

/* ---- values ---- */

static ngx_weir_value_t *compile(ngx_conf_t *cf, ngx_str_t text)
{
    ngx_http_compile_complex_value_t how;
    ngx_memzero(&how, sizeof(how));
    how.cf = cf;
    how.value = &text;
    how.complex_value = ngx_palloc(cf->pool, sizeof(ngx_http_complex_value_t));
    if (how.complex_value == NULL || ngx_http_compile_complex_value(&how) != NGX_OK)
        return NULL;
    return how.complex_value;
}

static ngx_int_t evaluate(void *request, ngx_weir_value_t *value, ngx_str_t *out)
{
    return ngx_http_complex_value(request, value, out);
}

/* ---- of the whole ---- */

static ngx_int_t add_proxy(ngx_conf_t *cf, ngx_array_t *proxies, ngx_str_t word)
{
    ngx_cidr_t *cidr = ngx_array_push(proxies);
    if (cidr == NULL)
        return NGX_ERROR;
    ngx_memzero(cidr, sizeof(*cidr));
#if (NGX_HAVE_UNIX_DOMAIN)
    if (ngx_weir_is_word(word, "unix:")) {
        cidr->family = AF_UNIX;
        return NGX_OK;
    }
#endif
    ngx_int_t rc = ngx_ptocidr(&word, cidr);
    if (rc == NGX_DONE)
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0, "low address bits of %V are meaningless", &word);
    return rc == NGX_ERROR ? NGX_ERROR : NGX_OK;
}

static char *set_trusted_proxies(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_weir_main_conf_t *main = conf;
    ngx_str_t *words = cf->args->elts;
    (void)cmd;
    if (main->proxies == NULL)
        main->proxies = ngx_array_create(cf->pool, 4, sizeof(ngx_cidr_t));
    if (main->proxies == NULL)
        return NGX_CONF_ERROR;
    for (ngx_uint_t i = 1; i < cf->args->nelts; i++)
        if (add_proxy(cf, main->proxies, words[i]) != NGX_OK)
            return ngx_weir_invalid(cf, words[i], "an address, a network or unix:");
    return NGX_CONF_OK;
}

/* ---- of a location ---- */

/* When weir_limit asks. */
static bool limit_option(void *place, ngx_str_t word)
{
    static const char *const known[] = {
        [NGX_HTTP_WEIR_AUTO] = "phase=auto",
        [NGX_HTTP_WEIR_PREACCESS] = "phase=preaccess",
        [NGX_HTTP_WEIR_PRECONTENT] = "phase=precontent",
    };
    ngx_http_weir_loc_conf_t *loc = place;
    for (loc->phase = 0; loc->phase <= NGX_HTTP_WEIR_PRECONTENT; loc->phase++)
        if (ngx_weir_is_word(word, known[loc->phase]))
            return true;
    return false;
}

static const char *const own[] = {"remote_address", "method",      "scheme", "host",
                                  "path",           "generic_key", NULL};

const ngx_weir_kind_t ngx_http_weir_kind = {
    .own = own,
    .compile = compile,
    .text = evaluate,
    .limit_option = limit_option,
    .limit_words = "domain=NAME, phase=auto, phase=preaccess or phase=precontent",
};

static char *set_attribute(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t *words = cf->args->elts;
    if (ngx_weir_is_word(words[1], "user"))
        return "is for other keys: weir_user says who the user is";
    return ngx_weir_set_attribute(cf, cmd, conf);
}

static char *set_headers(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_loc_conf_t *loc = conf;
    ngx_str_t *words = cf->args->elts;
    (void)cmd;
    if (loc->dialects != NGX_HTTP_WEIR_DIALECTS_UNSET)
        return "is duplicate";
    loc->dialects = 0;
    for (ngx_uint_t i = 1; i < cf->args->nelts; i++) {
        uint32_t dialects;
        if (weir_dialects_read(ngx_weir_str(words[i]), &dialects) != 0)
            return ngx_weir_invalid(cf, words[i],
                                    "legacy, ietf-11, reset-epoch, reset-delta or none");
        loc->dialects |= dialects;
    }
    const ngx_uint_t both = WEIR_DIALECT_RESET_EPOCH | WEIR_DIALECT_RESET_DELTA;
    return (loc->dialects & both) == both ? "can have one meaning of reset" : NGX_CONF_OK;
}

static char *set_body(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    static const char *const known[] = {
        [NGX_HTTP_WEIR_BODY_PLAIN] = "plain",
        [NGX_HTTP_WEIR_BODY_PROBLEM] = "problem",
        [NGX_HTTP_WEIR_BODY_NONE] = "none",
        [NGX_HTTP_WEIR_BODY_HTML] = "html",
    };
    ngx_http_weir_loc_conf_t *loc = conf;
    ngx_str_t *words = cf->args->elts;
    (void)cmd;
    if (loc->body != NGX_CONF_UNSET_UINT)
        return "is duplicate";
    for (loc->body = 0; loc->body < NGX_HTTP_WEIR_BODY_TEXT; loc->body++)
        if (ngx_weir_is_word(words[1], known[loc->body]))
            return NGX_CONF_OK;
    loc->body_text = compile(cf, words[1]);
    return loc->body_text != NULL ? NGX_CONF_OK : NGX_CONF_ERROR;
}

static ngx_conf_num_bounds_t status_bounds = {ngx_conf_check_num_bounds, 400, 599};

#define EVERYWHERE (NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF)
#define KIND ((void *)&ngx_http_weir_kind)
#define OF_ALL(name, args, set)                                                                    \
    {                                                                                              \
        ngx_string(name), NGX_HTTP_MAIN_CONF | (args), set, NGX_HTTP_MAIN_CONF_OFFSET, 0, NULL     \
    }
#define OF_PLACE(name, args, set, field, post)                                                     \
    {                                                                                              \
        ngx_string(name), EVERYWHERE | (args), set, NGX_HTTP_LOC_CONF_OFFSET,                      \
            offsetof(ngx_http_weir_loc_conf_t, field), post                                        \
    }

ngx_command_t ngx_http_weir_commands[] = {
    OF_ALL("weir_rules", NGX_CONF_TAKE12, ngx_weir_set_rules),
    OF_ALL("weir_table", NGX_CONF_TAKE12, ngx_weir_set_table),
    OF_ALL("weir_service", NGX_CONF_TAKE123, ngx_weir_set_service),
    OF_ALL("weir_trusted_proxies", NGX_CONF_1MORE, set_trusted_proxies),
    OF_ALL("weir_queue", NGX_CONF_TAKE12, ngx_weir_set_queue),
    OF_PLACE("weir_limit", NGX_CONF_TAKE123, ngx_weir_set_limit, base, KIND),
    OF_PLACE("weir_user", NGX_CONF_TAKE1, ngx_http_set_complex_value_slot, user, NULL),
    OF_PLACE("weir_attribute", NGX_CONF_TAKE2, set_attribute, base, KIND),
    OF_PLACE("weir_descriptor", NGX_CONF_1MORE, ngx_weir_set_descriptor, base, KIND),
    OF_PLACE("weir_hits", NGX_CONF_TAKE1, ngx_http_set_complex_value_slot, base.hits, NULL),
    OF_PLACE("weir_status", NGX_CONF_TAKE1, ngx_conf_set_num_slot, status, &status_bounds),
    OF_PLACE("weir_headers", NGX_CONF_1MORE, set_headers, dialects, NULL),
    OF_PLACE("weir_body", NGX_CONF_TAKE1, set_body, body, NULL),
    OF_PLACE("weir_dry_run", NGX_CONF_FLAG, ngx_conf_set_flag_slot, base.dry_run, NULL),
    OF_PLACE("weir_log_level", NGX_CONF_TAKE1, ngx_conf_set_enum_slot, base.log_level,
             ngx_weir_log_levels),
    ngx_null_command,
};

/* ---- made, filled, merged ---- */

void *ngx_http_weir_create_main_conf(ngx_conf_t *cf)
{
    return ngx_weir_create_main(cf, sizeof(ngx_http_weir_main_conf_t));
}

char *ngx_http_weir_init_main_conf(ngx_conf_t *cf, void *conf)
{
    ngx_http_weir_main_conf_t *main = conf;
    (void)cf;
    ngx_weir_fill_main(&main->base);
    return NGX_CONF_OK;
}

void *ngx_http_weir_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_weir_loc_conf_t *loc = ngx_pmemalign(cf->pool, sizeof(*loc), NGX_WEIR_LINE);
    if (loc == NULL)
        return NULL;
    ngx_memzero(loc, sizeof(*loc));
    ngx_weir_init_place(&loc->base);
    loc->status = NGX_CONF_UNSET_UINT;
    loc->dialects = NGX_HTTP_WEIR_DIALECTS_UNSET;
    loc->body = NGX_CONF_UNSET_UINT;
    return loc;
}

char *ngx_http_weir_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_weir_main_conf_t *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    ngx_http_weir_loc_conf_t *from = parent, *to = child;
    if (to->base.enable == NGX_CONF_UNSET)
        to->phase = from->phase;
    if (to->user == NULL)
        to->user = from->user;
    if (to->body == NGX_CONF_UNSET_UINT)
        to->body_text = from->body_text;
    ngx_conf_merge_uint_value(to->status, from->status, NGX_HTTP_TOO_MANY_REQUESTS);
    if (to->dialects == NGX_HTTP_WEIR_DIALECTS_UNSET)
        to->dialects =
            from->dialects != NGX_HTTP_WEIR_DIALECTS_UNSET ? from->dialects : WEIR_DIALECT_LEGACY;
    ngx_conf_merge_uint_value(to->body, from->body, NGX_HTTP_WEIR_BODY_PLAIN);
    char *rc = ngx_weir_merge_place(&main->base, &to->base, &from->base);
    ngx_http_weir_set_stages(to);
    if (to->stages[NGX_HTTP_WEIR_PRECONTENT] != 0)
        main->has_late = 1;
    return rc;
}
