/* Directives that both modules have: docs/nginx.md says what each means.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_weir.h"

#define QUEUE_MAX 1024
#define QUEUE_TIMEOUT_MS 60000
#define TABLE_SIZE (64 * 1024 * 1024)
#define SERVICE_TIMEOUT_MS 100
#define SERVICE_TIMEOUT_MAX_MS 60000
#define SERVICE_PENDING 1024
#define SERVICE_PENDING_MAX 1000000

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

char *ngx_weir_invalid(ngx_conf_t *cf, ngx_str_t word, const char *right)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\" (it may be %s)", &word,
                       right);
    return NGX_CONF_ERROR;
}

bool ngx_weir_is_word(ngx_str_t word, const char *known)
{
    return word.len == ngx_strlen(known) && ngx_strncmp(word.data, known, word.len) == 0;
}

/* ---- of the whole ---- */

char *ngx_weir_set_rules(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_weir_main_conf_t *main = conf;
    ngx_str_t *words = cf->args->elts;
    (void)cmd;
    if (main->rules.data != NULL)
        return "is duplicate";
    main->rules = words[1];
    if (cf->args->nelts == 3 && !option(words[2], "threads=", &main->threads))
        return ngx_weir_invalid(cf, words[2], "threads=POOL");
    return ngx_conf_full_name(cf->cycle, &main->rules, 1) == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}

char *ngx_weir_set_table(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_weir_main_conf_t *main = conf;
    ngx_str_t *words = cf->args->elts, size;
    (void)cmd;
    if (main->table.data != NULL)
        return "is duplicate";
    main->table = words[1];
    if (cf->args->nelts == 3) {
        off_t bytes = option(words[2], "size=", &size) ? ngx_parse_offset(&size) : NGX_ERROR;
        if (bytes <= 0)
            return ngx_weir_invalid(cf, words[2], "size=SIZE, such as size=64m");
        main->table_size = (size_t)bytes;
    }
    return ngx_conf_full_name(cf->cycle, &main->table, 0) == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}

char *ngx_weir_set_queue(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_weir_main_conf_t *main = conf;
    ngx_str_t *words = cf->args->elts, time;
    ngx_int_t max = ngx_atoi(words[1].data, words[1].len);
    (void)cmd;
    if (main->queue_max != NGX_CONF_UNSET_UINT)
        return "is duplicate";
    if (max == NGX_ERROR)
        return ngx_weir_invalid(cf, words[1], "a number");
    main->queue_max = (ngx_uint_t)max;
    if (cf->args->nelts == 3) {
        ngx_int_t ms =
            option(words[2], "timeout=", &time) ? ngx_parse_time(&time, 0) : (ngx_int_t)NGX_ERROR;
        if (ms == NGX_ERROR)
            return ngx_weir_invalid(cf, words[2], "timeout=TIME, such as timeout=60s");
        main->queue_timeout = (ngx_msec_t)ms;
    }
    return NGX_CONF_OK;
}

/* `timeout=TIME` or `pending=N`. */
static bool set_service_option(ngx_weir_main_conf_t *main, ngx_str_t word)
{
    ngx_str_t rest;
    if (option(word, "timeout=", &rest)) {
        ngx_int_t ms = ngx_parse_time(&rest, 0);
        main->service_timeout = (ngx_msec_t)ms;
        return ms > 0 && ms <= SERVICE_TIMEOUT_MAX_MS;
    }
    ngx_int_t count =
        option(word, "pending=", &rest) ? ngx_atoi(rest.data, rest.len) : (ngx_int_t)NGX_ERROR;
    main->service_pending = (ngx_uint_t)count;
    return count > 0 && count <= SERVICE_PENDING_MAX;
}

char *ngx_weir_set_service(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_weir_main_conf_t *main = conf;
    ngx_str_t *words = cf->args->elts, path;
    ngx_url_t url;
    (void)cmd;
    if (main->service != NULL)
        return "is duplicate";
    if (!option(words[1], "unix:", &path))
        return "needs unix:PATH, where `weir serve --desk unix:PATH` listens";
    ngx_memzero(&url, sizeof(url));
    url.url = words[1];
    if (ngx_parse_url(cf->pool, &url) != NGX_OK || url.naddrs != 1)
        return ngx_weir_invalid(cf, words[1], "unix:PATH, as long as a socket's may be");
    main->service = url.addrs;
    main->service_name = words[1];
    for (ngx_uint_t i = 2; i < cf->args->nelts; i++)
        if (!set_service_option(main, words[i]))
            return ngx_weir_invalid(cf, words[i],
                                    "timeout=TIME, at most 60s, or pending=N, at most 1000000");
    return NGX_CONF_OK;
}

/* ---- of a place ---- */

char *ngx_weir_set_limit(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    const ngx_weir_kind_t *kind = cmd->post;
    ngx_weir_place_conf_t *place = conf;
    ngx_str_t *words = cf->args->elts, rest;
    if (place->enable != NGX_CONF_UNSET)
        return "is duplicate";
    if (!ngx_weir_is_word(words[1], "on") && !ngx_weir_is_word(words[1], "off"))
        return ngx_weir_invalid(cf, words[1], "on or off");
    place->enable = words[1].len == 2;
    for (ngx_uint_t i = 2; i < cf->args->nelts; i++) {
        if (option(words[i], "domain=", &rest)) {
            place->domain = kind->compile(cf, rest);
            if (place->domain == NULL)
                return NGX_CONF_ERROR;
        } else if (kind->limit_option == NULL || !kind->limit_option(place, words[i])) {
            return ngx_weir_invalid(cf, words[i], kind->limit_words);
        }
    }
    return NGX_CONF_OK;
}

/* Whether nginx fills this key itself. */
static bool is_own(const ngx_weir_kind_t *kind, ngx_str_t key)
{
    for (const char *const *own = kind->own; *own != NULL; own++)
        if (ngx_weir_is_word(key, *own))
            return true;
    return false;
}

char *ngx_weir_set_attribute(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_weir_place_conf_t *place = conf;
    const ngx_weir_kind_t *kind = cmd->post;
    ngx_str_t *words = cf->args->elts;
    if (place->attributes == NGX_CONF_UNSET_PTR)
        place->attributes = ngx_array_create(cf->pool, 4, sizeof(ngx_weir_entry_t));
    if (place->attributes == NULL)
        return NGX_CONF_ERROR;
    if (place->attributes->nelts == NGX_WEIR_ATTRIBUTES_MAX)
        return "is there too often";
    if (is_own(kind, words[1]))
        return "is for other keys: this one is what nginx knows of the request itself";
    if (ngx_weir_has_attribute(place, ngx_weir_str(words[1])))
        return "has had this key already";
    ngx_weir_entry_t *entry = ngx_array_push(place->attributes);
    if (entry == NULL)
        return NGX_CONF_ERROR;
    entry->key = words[1];
    entry->value = kind->compile(cf, words[2]);
    return entry->value != NULL ? NGX_CONF_OK : NGX_CONF_ERROR;
}

static ngx_int_t add_entry(ngx_conf_t *cf, const ngx_weir_kind_t *kind,
                           ngx_weir_descriptor_t *descriptor, ngx_str_t word)
{
    u_char *equals = ngx_strlchr(word.data, word.data + word.len, '=');
    ngx_weir_entry_t *entry;
    if (equals == NULL || equals == word.data ||
        descriptor->entries.nelts == NGX_WEIR_ENTRIES_MAX) {
        (void)ngx_weir_invalid(cf, word, "KEY=VALUE, at most 32 of them");
        return NGX_ERROR;
    }
    entry = ngx_array_push(&descriptor->entries);
    if (entry == NULL)
        return NGX_ERROR;
    entry->key.data = word.data;
    entry->key.len = (size_t)(equals - word.data);
    word.len -= entry->key.len + 1;
    word.data = equals + 1;
    entry->value = kind->compile(cf, word);
    return entry->value != NULL ? NGX_OK : NGX_ERROR;
}

char *ngx_weir_set_descriptor(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_weir_place_conf_t *place = conf;
    const ngx_weir_kind_t *kind = cmd->post;
    ngx_str_t *words = cf->args->elts, rest;
    if (place->descriptors == NGX_CONF_UNSET_PTR)
        place->descriptors = ngx_array_create(cf->pool, 2, sizeof(ngx_weir_descriptor_t));
    if (place->descriptors == NULL)
        return NGX_CONF_ERROR;
    if (place->descriptors->nelts == NGX_WEIR_DESCRIPTORS_MAX)
        return "is there too often";
    ngx_weir_descriptor_t *descriptor = ngx_array_push(place->descriptors);
    if (descriptor == NULL ||
        ngx_array_init(&descriptor->entries, cf->pool, 2, sizeof(ngx_weir_entry_t)) != NGX_OK)
        return NGX_CONF_ERROR;
    descriptor->hits = NULL;
    for (ngx_uint_t i = 1; i < cf->args->nelts; i++) {
        if (option(words[i], "hits=", &rest)) {
            descriptor->hits = kind->compile(cf, rest);
            if (descriptor->hits == NULL)
                return NGX_CONF_ERROR;
        } else if (add_entry(cf, kind, descriptor, words[i]) != NGX_OK) {
            return NGX_CONF_ERROR;
        }
    }
    return descriptor->entries.nelts > 0 ? NGX_CONF_OK : "needs a KEY=VALUE";
}

ngx_conf_enum_t ngx_weir_log_levels[] = {
    {ngx_string("info"), NGX_LOG_INFO},
    {ngx_string("notice"), NGX_LOG_NOTICE},
    {ngx_string("warn"), NGX_LOG_WARN},
    {ngx_string("error"), NGX_LOG_ERR},
    {ngx_null_string, 0},
};

/* ---- made, filled, merged ---- */

void *ngx_weir_create_main(ngx_conf_t *cf, size_t len)
{
    ngx_weir_main_conf_t *main = ngx_pmemalign(cf->pool, len, NGX_WEIR_LINE);
    if (main == NULL)
        return NULL;
    ngx_memzero(main, len);
    main->queue_max = NGX_CONF_UNSET_UINT;
    main->queue_timeout = NGX_CONF_UNSET_MSEC;
    return main;
}

void ngx_weir_fill_main(ngx_weir_main_conf_t *main)
{
    ngx_conf_init_uint_value(main->queue_max, QUEUE_MAX);
    ngx_conf_init_msec_value(main->queue_timeout, QUEUE_TIMEOUT_MS);
    if (main->table_size == 0)
        main->table_size = TABLE_SIZE;
    if (main->service_timeout == 0)
        main->service_timeout = SERVICE_TIMEOUT_MS;
    if (main->service_pending == 0)
        main->service_pending = SERVICE_PENDING;
}

void ngx_weir_init_place(ngx_weir_place_conf_t *place)
{
    place->enable = NGX_CONF_UNSET;
    place->attributes = NGX_CONF_UNSET_PTR;
    place->descriptors = NGX_CONF_UNSET_PTR;
    place->dry_run = NGX_CONF_UNSET;
    place->log_level = NGX_CONF_UNSET_UINT;
}

char *ngx_weir_merge_place(ngx_weir_main_conf_t *main, ngx_weir_place_conf_t *to,
                           const ngx_weir_place_conf_t *from)
{
    if (to->enable == NGX_CONF_UNSET) {
        to->enable = from->enable == NGX_CONF_UNSET ? 0 : from->enable;
        to->domain = from->domain;
    }
    if (to->hits == NULL)
        to->hits = from->hits;
    ngx_conf_merge_ptr_value(to->attributes, from->attributes, NULL);
    ngx_conf_merge_ptr_value(to->descriptors, from->descriptors, NULL);
    ngx_conf_merge_value(to->dry_run, from->dry_run, 0);
    ngx_conf_merge_uint_value(to->log_level, from->log_level, NGX_LOG_WARN);
    if (!to->enable)
        return NGX_CONF_OK;
    main->is_used = 1;
    if (to->descriptors != NULL && to->domain == NULL)
        return "weir_descriptor needs \"weir_limit on domain=NAME\"";
    return NGX_CONF_OK;
}
