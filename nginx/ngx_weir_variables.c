/* $weir_status and its like, for logs and maps.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_weir.h"

enum { STATUS, RULE, LIMIT, REMAINING, RETRY_AFTER, DELAY };

#define NUMBER_LEN 32

const ngx_weir_variable_t ngx_weir_variables[] = {
    {ngx_string("weir_status"), STATUS},
    {ngx_string("weir_rule"), RULE},
    {ngx_string("weir_limit"), LIMIT},
    {ngx_string("weir_remaining"), REMAINING},
    {ngx_string("weir_retry_after"), RETRY_AFTER},
    {ngx_string("weir_delay"), DELAY},
    {ngx_null_string, 0},
};

static ngx_str_t status_text(const ngx_weir_record_t *record)
{
    static const ngx_str_t real[] = {
        [NGX_WEIR_BYPASSED] = ngx_string("BYPASSED"),
        [NGX_WEIR_PASSED] = ngx_string("PASSED"),
        [NGX_WEIR_DELAYED] = ngx_string("DELAYED"),
        [NGX_WEIR_REJECTED] = ngx_string("REJECTED"),
    };
    static const ngx_str_t dry[] = {
        [NGX_WEIR_BYPASSED] = ngx_string("BYPASSED"),
        [NGX_WEIR_PASSED] = ngx_string("PASSED"),
        [NGX_WEIR_DELAYED] = ngx_string("DELAYED_DRY_RUN"),
        [NGX_WEIR_REJECTED] = ngx_string("REJECTED_DRY_RUN"),
    };
    return record->is_dry ? dry[record->verdict] : real[record->verdict];
}

static ngx_int_t set_text(ngx_variable_value_t *v, ngx_str_t text)
{
    v->data = text.data;
    v->len = (unsigned)text.len;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;
    return NGX_OK;
}

static ngx_int_t set_number(ngx_pool_t *pool, ngx_variable_value_t *v, uint64_t number)
{
    ngx_str_t text = {.data = ngx_pnalloc(pool, NUMBER_LEN)};
    if (text.data == NULL)
        return NGX_ERROR;
    text.len = (size_t)(ngx_snprintf(text.data, NUMBER_LEN, "%uL", number) - text.data);
    return set_text(v, text);
}

static ngx_int_t set_delay(ngx_pool_t *pool, ngx_variable_value_t *v, ngx_msec_t ms)
{
    ngx_str_t text = {.data = ngx_pnalloc(pool, NUMBER_LEN)};
    if (text.data == NULL)
        return NGX_ERROR;
    text.len =
        (size_t)(ngx_snprintf(text.data, NUMBER_LEN, "%T.%03M", (time_t)(ms / 1000), ms % 1000) -
                 text.data);
    return set_text(v, text);
}

ngx_int_t ngx_weir_variable(const ngx_weir_record_t *record, ngx_pool_t *pool,
                            ngx_variable_value_t *v, uintptr_t which)
{
    v->not_found = 1;
    v->no_cacheable = 1; /* it may not be known yet */
    if (record == NULL)
        return NGX_OK;
    if (which == STATUS)
        return set_text(v, status_text(record));
    if (which == DELAY)
        return set_delay(pool, v, record->delay_ms);
    if (!record->told.is_limited)
        return NGX_OK;
    switch (which) {
    case RULE:
        return set_text(v, record->rule);
    case LIMIT:
        return set_number(pool, v, record->told.limit);
    case REMAINING:
        return set_number(pool, v, record->told.remaining);
    default:
        return record->told.wait_s > 0 ? set_number(pool, v, record->told.wait_s) : NGX_OK;
    }
}
