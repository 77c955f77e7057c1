/* Directives: docs/nginx.md says what each means.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_http_weir.h"

#define QUEUE_MAX 1024
#define QUEUE_TIMEOUT_MS 60000
#define TABLE_SIZE (64 * 1024 * 1024)

/* ---- words ---- */

/* What follows "NAME=" in a word of a directive; false: it begins otherwise. */
static bool option(ngx_str_t word, const char *name, ngx_str_t *rest)
{
    size_t len = ngx_strlen(name);
    if (word.len < len || ngx_strncmp(word.data, name, len) != 0)
        return false;
    rest->data = word.data + len;
    rest->len = word.len - len;
    return true;
}

static char *invalid(ngx_conf_t *cf, ngx_str_t word)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"", &word);
    return NGX_CONF_ERROR;
}

static bool is_word(ngx_str_t word, const char *known)
{
    return word.len == ngx_strlen(known) && ngx_strncmp(word.data, known, word.len) == 0;
}

static ngx_int_t compile_value(ngx_conf_t *cf, ngx_str_t text, ngx_http_complex_value_t *out)
{
    ngx_http_compile_complex_value_t how;
    ngx_memzero(&how, sizeof(how));
    how.cf = cf;
    how.value = &text;
    how.complex_value = out;
    return ngx_http_compile_complex_value(&how);
}

static ngx_http_complex_value_t *new_value(ngx_conf_t *cf, ngx_str_t text)
{
    ngx_http_complex_value_t *value = ngx_palloc(cf->pool, sizeof(*value));
    return value != NULL && compile_value(cf, text, value) == NGX_OK ? value : NULL;
}

/* ---- of the whole ---- */

static char *set_rules(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_main_conf_t *main = conf;
    ngx_str_t *words = cf->args->elts;
    (void)cmd;
    if (main->rules.data != NULL)
        return "is duplicate";
    main->rules = words[1];
    if (cf->args->nelts == 3 && !option(words[2], "threads=", &main->threads))
        return invalid(cf, words[2]);
    return ngx_conf_full_name(cf->cycle, &main->rules, 1) == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}

static char *set_table(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_main_conf_t *main = conf;
    ngx_str_t *words = cf->args->elts, size;
    (void)cmd;
    if (main->table.data != NULL)
        return "is duplicate";
    main->table = words[1];
    if (cf->args->nelts == 3) {
        off_t bytes = option(words[2], "size=", &size) ? ngx_parse_offset(&size) : NGX_ERROR;
        if (bytes <= 0)
            return invalid(cf, words[2]);
        main->table_size = (size_t)bytes;
    }
    return ngx_conf_full_name(cf->cycle, &main->table, 0) == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}

static ngx_int_t add_proxy(ngx_conf_t *cf, ngx_array_t *proxies, ngx_str_t word)
{
    ngx_cidr_t *cidr = ngx_array_push(proxies);
    if (cidr == NULL)
        return NGX_ERROR;
    ngx_memzero(cidr, sizeof(*cidr));
#if (NGX_HAVE_UNIX_DOMAIN)
    if (is_word(word, "unix:")) {
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
    ngx_http_weir_main_conf_t *main = conf;
    ngx_str_t *words = cf->args->elts;
    (void)cmd;
    if (main->proxies == NULL)
        main->proxies = ngx_array_create(cf->pool, 4, sizeof(ngx_cidr_t));
    if (main->proxies == NULL)
        return NGX_CONF_ERROR;
    for (ngx_uint_t i = 1; i < cf->args->nelts; i++)
        if (add_proxy(cf, main->proxies, words[i]) != NGX_OK)
            return invalid(cf, words[i]);
    return NGX_CONF_OK;
}

static char *set_queue(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_main_conf_t *main = conf;
    ngx_str_t *words = cf->args->elts, time;
    ngx_int_t max = ngx_atoi(words[1].data, words[1].len);
    (void)cmd;
    if (main->queue_max != NGX_CONF_UNSET_UINT)
        return "is duplicate";
    if (max == NGX_ERROR)
        return invalid(cf, words[1]);
    main->queue_max = (ngx_uint_t)max;
    if (cf->args->nelts == 3) {
        ngx_int_t ms =
            option(words[2], "timeout=", &time) ? ngx_parse_time(&time, 0) : (ngx_int_t)NGX_ERROR;
        if (ms == NGX_ERROR)
            return invalid(cf, words[2]);
        main->queue_timeout = (ngx_msec_t)ms;
    }
    return NGX_CONF_OK;
}

/* ---- of a location ---- */

static char *set_limit(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_loc_conf_t *loc = conf;
    ngx_str_t *words = cf->args->elts, rest;
    (void)cmd;
    if (loc->enable != NGX_CONF_UNSET)
        return "is duplicate";
    if (!is_word(words[1], "on") && !is_word(words[1], "off"))
        return invalid(cf, words[1]);
    loc->enable = words[1].len == 2;
    loc->phase = NGX_HTTP_WEIR_AUTO;
    for (ngx_uint_t i = 2; i < cf->args->nelts; i++) {
        if (option(words[i], "domain=", &rest)) {
            loc->domain = new_value(cf, rest);
            if (loc->domain == NULL)
                return NGX_CONF_ERROR;
        } else if (is_word(words[i], "phase=preaccess")) {
            loc->phase = NGX_HTTP_WEIR_PREACCESS;
        } else if (is_word(words[i], "phase=precontent")) {
            loc->phase = NGX_HTTP_WEIR_PRECONTENT;
        } else if (!is_word(words[i], "phase=auto")) {
            return invalid(cf, words[i]);
        }
    }
    return NGX_CONF_OK;
}

static char *set_attribute(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_loc_conf_t *loc = conf;
    ngx_str_t *words = cf->args->elts;
    (void)cmd;
    if (loc->attributes == NGX_CONF_UNSET_PTR)
        loc->attributes = ngx_array_create(cf->pool, 4, sizeof(ngx_http_weir_entry_t));
    if (loc->attributes == NULL)
        return NGX_CONF_ERROR;
    if (is_word(words[1], "user"))
        return "is for other keys: weir_user says who the user is";
    if (loc->attributes->nelts == NGX_HTTP_WEIR_ATTRIBUTES_MAX)
        return "is there too often";
    ngx_http_weir_entry_t *entry = ngx_array_push(loc->attributes);
    if (entry == NULL)
        return NGX_CONF_ERROR;
    entry->key = words[1];
    return compile_value(cf, words[2], &entry->value) == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}

static ngx_int_t add_entry(ngx_conf_t *cf, ngx_http_weir_descriptor_t *descriptor, ngx_str_t word)
{
    u_char *equals = ngx_strlchr(word.data, word.data + word.len, '=');
    ngx_http_weir_entry_t *entry;
    if (equals == NULL || equals == word.data ||
        descriptor->entries.nelts == NGX_HTTP_WEIR_ENTRIES_MAX) {
        (void)invalid(cf, word);
        return NGX_ERROR;
    }
    entry = ngx_array_push(&descriptor->entries);
    if (entry == NULL)
        return NGX_ERROR;
    entry->key.data = word.data;
    entry->key.len = (size_t)(equals - word.data);
    word.len -= entry->key.len + 1;
    word.data = equals + 1;
    return compile_value(cf, word, &entry->value);
}

static char *set_descriptor(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_loc_conf_t *loc = conf;
    ngx_str_t *words = cf->args->elts, rest;
    (void)cmd;
    if (loc->descriptors == NGX_CONF_UNSET_PTR)
        loc->descriptors = ngx_array_create(cf->pool, 2, sizeof(ngx_http_weir_descriptor_t));
    if (loc->descriptors == NULL)
        return NGX_CONF_ERROR;
    if (loc->descriptors->nelts == NGX_HTTP_WEIR_DESCRIPTORS_MAX)
        return "is there too often";
    ngx_http_weir_descriptor_t *descriptor = ngx_array_push(loc->descriptors);
    if (descriptor == NULL ||
        ngx_array_init(&descriptor->entries, cf->pool, 2, sizeof(ngx_http_weir_entry_t)) != NGX_OK)
        return NGX_CONF_ERROR;
    descriptor->hits = NULL;
    for (ngx_uint_t i = 1; i < cf->args->nelts; i++) {
        if (option(words[i], "hits=", &rest)) {
            descriptor->hits = new_value(cf, rest);
            if (descriptor->hits == NULL)
                return NGX_CONF_ERROR;
        } else if (add_entry(cf, descriptor, words[i]) != NGX_OK) {
            return NGX_CONF_ERROR;
        }
    }
    return descriptor->entries.nelts > 0 ? NGX_CONF_OK : "needs a KEY=VALUE";
}

static char *set_headers(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_loc_conf_t *loc = conf;
    ngx_str_t *words = cf->args->elts;
    (void)cmd;
    if (loc->dialects != NGX_CONF_UNSET_UINT)
        return "is duplicate";
    loc->dialects = 0;
    for (ngx_uint_t i = 1; i < cf->args->nelts; i++) {
        uint32_t dialects;
        if (weir_dialects_read(ngx_http_weir_str(words[i]), &dialects) != 0)
            return invalid(cf, words[i]);
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
        if (is_word(words[1], known[loc->body]))
            return NGX_CONF_OK;
    loc->body_text = new_value(cf, words[1]);
    return loc->body_text != NULL ? NGX_CONF_OK : NGX_CONF_ERROR;
}

static ngx_conf_num_bounds_t status_bounds = {ngx_conf_check_num_bounds, 400, 599};

static ngx_conf_enum_t log_levels[] = {
    {ngx_string("info"), NGX_LOG_INFO},
    {ngx_string("notice"), NGX_LOG_NOTICE},
    {ngx_string("warn"), NGX_LOG_WARN},
    {ngx_string("error"), NGX_LOG_ERR},
    {ngx_null_string, 0},
};

#define EVERYWHERE (NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF)
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
    OF_ALL("weir_rules", NGX_CONF_TAKE12, set_rules),
    OF_ALL("weir_table", NGX_CONF_TAKE12, set_table),
    OF_ALL("weir_trusted_proxies", NGX_CONF_1MORE, set_trusted_proxies),
    OF_ALL("weir_queue", NGX_CONF_TAKE12, set_queue),
    OF_PLACE("weir_limit", NGX_CONF_TAKE123, set_limit, enable, NULL),
    OF_PLACE("weir_user", NGX_CONF_TAKE1, ngx_http_set_complex_value_slot, user, NULL),
    OF_PLACE("weir_attribute", NGX_CONF_TAKE2, set_attribute, attributes, NULL),
    OF_PLACE("weir_descriptor", NGX_CONF_1MORE, set_descriptor, descriptors, NULL),
    OF_PLACE("weir_hits", NGX_CONF_TAKE1, ngx_http_set_complex_value_slot, hits, NULL),
    OF_PLACE("weir_status", NGX_CONF_TAKE1, ngx_conf_set_num_slot, status, &status_bounds),
    OF_PLACE("weir_headers", NGX_CONF_1MORE, set_headers, dialects, NULL),
    OF_PLACE("weir_body", NGX_CONF_TAKE1, set_body, body, NULL),
    OF_PLACE("weir_dry_run", NGX_CONF_FLAG, ngx_conf_set_flag_slot, dry_run, NULL),
    OF_PLACE("weir_log_level", NGX_CONF_TAKE1, ngx_conf_set_enum_slot, log_level, log_levels),
    ngx_null_command,
};

/* ---- made, filled, merged ---- */

void *ngx_http_weir_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_weir_main_conf_t *main = ngx_pcalloc(cf->pool, sizeof(*main));
    if (main == NULL)
        return NULL;
    main->queue_max = NGX_CONF_UNSET_UINT;
    main->queue_timeout = NGX_CONF_UNSET_MSEC;
    return main;
}

char *ngx_http_weir_init_main_conf(ngx_conf_t *cf, void *conf)
{
    ngx_http_weir_main_conf_t *main = conf;
    (void)cf;
    ngx_conf_init_uint_value(main->queue_max, QUEUE_MAX);
    ngx_conf_init_msec_value(main->queue_timeout, QUEUE_TIMEOUT_MS);
    if (main->table_size == 0)
        main->table_size = TABLE_SIZE;
    return NGX_CONF_OK;
}

void *ngx_http_weir_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_weir_loc_conf_t *loc = ngx_pcalloc(cf->pool, sizeof(*loc));
    if (loc == NULL)
        return NULL;
    loc->enable = NGX_CONF_UNSET;
    loc->attributes = NGX_CONF_UNSET_PTR;
    loc->descriptors = NGX_CONF_UNSET_PTR;
    loc->status = NGX_CONF_UNSET_UINT;
    loc->dialects = NGX_CONF_UNSET_UINT;
    loc->body = NGX_CONF_UNSET_UINT;
    loc->dry_run = NGX_CONF_UNSET;
    loc->log_level = NGX_CONF_UNSET_UINT;
    return loc;
}

char *ngx_http_weir_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_weir_main_conf_t *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    ngx_http_weir_loc_conf_t *from = parent, *to = child;
    if (to->enable == NGX_CONF_UNSET) {
        to->enable = from->enable == NGX_CONF_UNSET ? 0 : from->enable;
        to->phase = from->phase;
        to->domain = from->domain;
    }
    if (to->user == NULL)
        to->user = from->user;
    if (to->hits == NULL)
        to->hits = from->hits;
    if (to->body == NGX_CONF_UNSET_UINT)
        to->body_text = from->body_text;
    ngx_conf_merge_ptr_value(to->attributes, from->attributes, NULL);
    ngx_conf_merge_ptr_value(to->descriptors, from->descriptors, NULL);
    ngx_conf_merge_uint_value(to->status, from->status, NGX_HTTP_TOO_MANY_REQUESTS);
    ngx_conf_merge_uint_value(to->dialects, from->dialects, WEIR_DIALECT_LEGACY);
    ngx_conf_merge_uint_value(to->body, from->body, NGX_HTTP_WEIR_BODY_PLAIN);
    ngx_conf_merge_value(to->dry_run, from->dry_run, 0);
    ngx_conf_merge_uint_value(to->log_level, from->log_level, NGX_LOG_WARN);
    if (!to->enable)
        return NGX_CONF_OK;
    main->is_used = 1;
    if (ngx_http_weir_asks_late(to))
        main->has_late = 1;
    if (to->descriptors != NULL && to->domain == NULL)
        return "weir_descriptor needs \"weir_limit on domain=NAME\"";
    return NGX_CONF_OK;
}
