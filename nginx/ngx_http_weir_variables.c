/* $weir_status and its like, for logs and maps.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_http_weir.h"

enum { STATUS, RULE, LIMIT, REMAINING, RETRY_AFTER, DELAY };

#define NUMBER_LEN 32

static ngx_str_t status_text(const ngx_http_weir_record_t *record)
{
    static const ngx_str_t real[] = {
        [NGX_HTTP_WEIR_BYPASSED] = ngx_string("BYPASSED"),
        [NGX_HTTP_WEIR_PASSED] = ngx_string("PASSED"),
        [NGX_HTTP_WEIR_DELAYED] = ngx_string("DELAYED"),
        [NGX_HTTP_WEIR_REJECTED] = ngx_string("REJECTED"),
    };
    static const ngx_str_t dry[] = {
        [NGX_HTTP_WEIR_BYPASSED] = ngx_string("BYPASSED"),
        [NGX_HTTP_WEIR_PASSED] = ngx_string("PASSED"),
        [NGX_HTTP_WEIR_DELAYED] = ngx_string("DELAYED_DRY_RUN"),
        [NGX_HTTP_WEIR_REJECTED] = ngx_string("REJECTED_DRY_RUN"),
    };
    return record->is_dry ? dry[record->verdict] : real[record->verdict];
}

static ngx_int_t set_text(ngx_http_variable_value_t *v, ngx_str_t text)
{
    v->data = text.data;
    v->len = (unsigned)text.len;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;
    return NGX_OK;
}

static ngx_int_t set_number(ngx_http_request_t *r, ngx_http_variable_value_t *v, uint64_t number)
{
    ngx_str_t text = {.data = ngx_pnalloc(r->pool, NUMBER_LEN)};
    if (text.data == NULL)
        return NGX_ERROR;
    text.len = (size_t)(ngx_snprintf(text.data, NUMBER_LEN, "%uL", number) - text.data);
    return set_text(v, text);
}

static ngx_int_t set_delay(ngx_http_request_t *r, ngx_http_variable_value_t *v, ngx_msec_t ms)
{
    ngx_str_t text = {.data = ngx_pnalloc(r->pool, NUMBER_LEN)};
    if (text.data == NULL)
        return NGX_ERROR;
    text.len =
        (size_t)(ngx_snprintf(text.data, NUMBER_LEN, "%T.%03M", (time_t)(ms / 1000), ms % 1000) -
                 text.data);
    return set_text(v, text);
}

static ngx_int_t get(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t which)
{
    ngx_http_weir_record_t *record = ngx_http_weir_find(r->main);
    v->not_found = 1;
    v->no_cacheable = 1; /* it may not be known yet */
    if (record == NULL)
        return NGX_OK;
    if (which == STATUS)
        return set_text(v, status_text(record));
    if (which == DELAY)
        return set_delay(r, v, record->delay_ms);
    if (!record->has_numbers)
        return NGX_OK;
    switch (which) {
    case RULE:
        return set_text(v, record->rule);
    case LIMIT:
        return set_number(r, v, record->limit);
    case REMAINING:
        return set_number(r, v, record->remaining);
    default:
        return record->wait_s > 0 ? set_number(r, v, record->wait_s) : NGX_OK;
    }
}

static const struct {
    ngx_str_t name;
    uintptr_t which;
} variables[] = {
    {ngx_string("weir_status"), STATUS},
    {ngx_string("weir_rule"), RULE},
    {ngx_string("weir_limit"), LIMIT},
    {ngx_string("weir_remaining"), REMAINING},
    {ngx_string("weir_retry_after"), RETRY_AFTER},
    {ngx_string("weir_delay"), DELAY},
};

ngx_int_t ngx_http_weir_add_variables(ngx_conf_t *cf)
{
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        ngx_str_t name = variables[i].name;
        ngx_http_variable_t *v = ngx_http_add_variable(cf, &name, NGX_HTTP_VAR_NOCACHEABLE);
        if (v == NULL)
            return NGX_ERROR;
        v->get_handler = get;
        v->data = variables[i].which;
    }
    return NGX_OK;
}
