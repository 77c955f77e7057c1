/* ngx_stream_weir_module.c - weir in nginx's stream: connections of TCP and sessions of UDP.
 *
 * Translation and nothing else: libweir decides.  A session is asked once, when it is accepted and
 * realip has said whose it is, before TLS and before anything is read.  Refused, it is closed with
 * status 503; over UDP that means that its datagram is dropped.  What it has taken is given back
 * when it is logged, before its client sees the end, and at the latest with its pool.
 *
 * What HTTP does the same way is in ngx_weir.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ngx_weir.h"

#include <ngx_stream.h>

extern ngx_module_t ngx_stream_weir_module;

/* ---- the rules' attributes ---- */

static int attribute(void *asking, struct weir_str key, struct weir_str *value)
{
    static const ngx_str_t address = ngx_string("remote_address");
    ngx_weir_asking_t *a = asking;
    ngx_connection_t *c = a->connection;
    if (key.len != address.len || ngx_memcmp(key.ptr, address.data, key.len) != 0)
        return ngx_weir_attribute(a, key, value);
    *value = ngx_weir_str(ngx_weir_address(c->addr_text));
    return 1;
}

static ngx_weir_value_t *compile(ngx_conf_t *cf, ngx_str_t text)
{
    ngx_stream_compile_complex_value_t how;
    ngx_memzero(&how, sizeof(how));
    how.cf = cf;
    how.value = &text;
    how.complex_value = ngx_palloc(cf->pool, sizeof(ngx_stream_complex_value_t));
    if (how.complex_value == NULL || ngx_stream_compile_complex_value(&how) != NGX_OK)
        return NULL;
    return how.complex_value;
}

static ngx_int_t evaluate(void *session, ngx_weir_value_t *value, ngx_str_t *out)
{
    return ngx_stream_complex_value(session, value, out);
}

static const char *const own[] = {"remote_address", "generic_key", NULL};

static const ngx_weir_kind_t kind = {
    .own = own, .compile = compile, .text = evaluate, .limit_words = "domain=NAME"};

/* ---- the queue ---- */

/* Whether a client has left.  One that has sent something and then shut down its side has not. */
static bool has_left(ngx_connection_t *c)
{
    char byte;
    if (c->type == SOCK_DGRAM)
        return false;
    ssize_t got = recv(c->fd, &byte, 1, MSG_PEEK);
    return got == 0 || (got < 0 && ngx_socket_errno != NGX_EAGAIN);
}

/* Something happens while a session is held.  What a TCP client sends stays where it is until its
 * turn; a datagram is dropped, for there is nowhere to keep it. */
static void on_read(ngx_event_t *rev)
{
    ngx_connection_t *c = rev->data;
    if (c->close || has_left(c)) {
        ngx_log_error(NGX_LOG_INFO, c->log, 0, "weir: a client left before its turn");
        ngx_stream_finalize_session(c->data, NGX_STREAM_OK);
        return;
    }
    if ((ngx_event_flags & NGX_USE_LEVEL_EVENT) && rev->active &&
        ngx_del_event(rev, NGX_READ_EVENT, 0) != NGX_OK)
        ngx_stream_finalize_session(c->data, NGX_STREAM_INTERNAL_SERVER_ERROR);
}

static void on_turn(ngx_event_t *wev)
{
    ngx_connection_t *c = wev->data;
    ngx_stream_session_t *s = c->data;
    if (!wev->timedout)
        return;
    wev->timedout = 0;
    if (!ngx_weir_may_go(ngx_stream_get_module_ctx(s, ngx_stream_weir_module), wev))
        return;
    c->read->handler = ngx_stream_session_handler;
    if (ngx_handle_read_event(c->read, 0) != NGX_OK)
        ngx_stream_finalize_session(s, NGX_STREAM_INTERNAL_SERVER_ERROR);
    else
        ngx_stream_core_run_phases(s);
}

static void on_nothing(ngx_event_t *wev)
{
    (void)wev;
}

/* It is left alone, but for who leaves; on_write: until whoever serves it has one. */
static ngx_int_t suspend(ngx_connection_t *c, ngx_event_handler_pt on_write)
{
    if (c->read->ready) {
        ngx_post_event(c->read, &ngx_posted_events); /* a macro with an if in it */
    } else if (ngx_handle_read_event(c->read, 0) != NGX_OK) {
        return NGX_ERROR;
    }
    c->read->handler = on_read;
    c->write->handler = on_write;
    return NGX_AGAIN;
}

static ngx_int_t hold(ngx_connection_t *c, ngx_weir_record_t *record, uint64_t delay_ns,
                      uint64_t now_ns)
{
    if (suspend(c, on_turn) != NGX_AGAIN)
        return NGX_ERROR;
    ngx_weir_hold(record, c->write, delay_ns, now_ns);
    return NGX_AGAIN;
}

/* ---- the phases ---- */

static void init_asking(ngx_weir_asking_t *a, ngx_stream_session_t *s)
{
    a->http = (struct weir_http){.attribute = attribute, .ctx = a};
    a->kind = &kind;
    a->from = s;
    a->connection = s->connection;
    a->main = ngx_stream_get_module_main_conf(s, ngx_stream_weir_module);
    a->place = ngx_stream_get_module_srv_conf(s, ngx_stream_weir_module);
    a->known = 0;
}

/* It is decided: lets it pass, holds or refuses it. */
static ngx_int_t conclude(ngx_weir_asking_t *a, struct weir_decision *decision, uint64_t now_ns)
{
    ngx_stream_session_t *s = a->from;
    uint64_t delay_ns = ngx_weir_delay(a, decision);
    ngx_weir_record_t *record = ngx_weir_keep(a, s->connection->pool, decision, now_ns);
    if (record == NULL)
        return NGX_ERROR;
    ngx_stream_set_ctx(s, record, ngx_stream_weir_module);
    if (delay_ns > 0)
        record->verdict = NGX_WEIR_DELAYED;
    ngx_weir_log(record, a->place);
    if (a->place->dry_run)
        return NGX_DECLINED;
    if (decision->overall == WEIR_CODE_OVER_LIMIT)
        return NGX_STREAM_SERVICE_UNAVAILABLE;
    return delay_ns > 0 ? hold(s->connection, record, delay_ns, now_ns) : NGX_DECLINED;
}

static ngx_int_t decide(ngx_weir_asking_t *a, struct weir_desk_waiter *waiter)
{
    struct weir_decision decision;
    uint64_t now_ns = ngx_weir_now(a->main);
    int err = ngx_weir_ask(a, WEIR_STAGE_ALL, now_ns, &decision, waiter);
    if (err == WEIR_PENDING)
        return suspend(a->connection, on_nothing);
    return err ? ngx_weir_fail(a, err) : conclude(a, &decision, now_ns);
}

/* ---- waiting for the service ---- */

/* In the connection's memory. */
typedef struct {
    struct weir_desk_waiter waiter; /* first: done() gets this */
    ngx_stream_session_t *session;
} wait_t;

static void cancel(void *data)
{
    wait_t *wait = data;
    weir_desk_cancel(&wait->waiter);
}

/* The service has decided, or (NULL) has not: goes on where it stopped. */
static void done(struct weir_desk_waiter *waiter, struct weir_decision *decision)
{
    ngx_stream_session_t *s = ((wait_t *)waiter)->session;
    ngx_connection_t *c = s->connection;
    ngx_weir_asking_t a;
    init_asking(&a, s);
    ngx_int_t rc =
        decision != NULL ? conclude(&a, decision, ngx_weir_now(a.main)) : decide(&a, NULL);
    if (rc == NGX_AGAIN)
        return;
    c->read->handler = ngx_stream_session_handler;
    if (rc == NGX_DECLINED && ngx_handle_read_event(c->read, 0) != NGX_OK)
        rc = NGX_STREAM_INTERNAL_SERVER_ERROR;
    if (rc != NGX_DECLINED) {
        ngx_stream_finalize_session(s, rc == NGX_ERROR ? NGX_STREAM_INTERNAL_SERVER_ERROR
                                                       : (ngx_uint_t)rc);
        return;
    }
    s->phase_handler++;
    ngx_stream_core_run_phases(s);
}

static struct weir_desk_waiter *waiter_of(ngx_stream_session_t *s)
{
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(s->connection->pool, sizeof(wait_t));
    if (cleanup == NULL)
        return NULL;
    wait_t *wait = cleanup->data;
    *wait = (wait_t){.waiter = {.done = done}, .session = s};
    cleanup->handler = cancel;
    return &wait->waiter;
}

/* ---- at the beginning, and at the end ---- */

static ngx_int_t preaccess(ngx_stream_session_t *s)
{
    ngx_weir_asking_t a;
    init_asking(&a, s);
    if (!a.place->enable || ngx_stream_get_module_ctx(s, ngx_stream_weir_module) != NULL)
        return NGX_DECLINED; /* once a session */
    if (!ngx_weir_has_worker(a.main))
        return NGX_ERROR;
    if (a.main->worker.desk == NULL)
        return decide(&a, NULL);
    struct weir_desk_waiter *waiter = waiter_of(s);
    return waiter != NULL ? decide(&a, waiter) : NGX_ERROR;
}

static ngx_int_t give_back(ngx_stream_session_t *s)
{
    ngx_weir_record_t *record = ngx_stream_get_module_ctx(s, ngx_stream_weir_module);
    if (record == NULL)
        return NGX_OK;
    if (!record->is_held)
        ngx_weir_settle(record, s->status);
    ngx_weir_end(record);
    return NGX_OK;
}

/* ---- directives ---- */

#define KIND ((void *)&kind)
#define OF_ALL(name, args, set)                                                                    \
    {                                                                                              \
        ngx_string(name), NGX_STREAM_MAIN_CONF | (args), set, NGX_STREAM_MAIN_CONF_OFFSET, 0, NULL \
    }
#define OF_PLACE(name, args, set, offset, post)                                                    \
    {                                                                                              \
        ngx_string(name), NGX_STREAM_MAIN_CONF | NGX_STREAM_SRV_CONF | (args), set,                \
            NGX_STREAM_SRV_CONF_OFFSET, offset, post                                               \
    }
#define FIELD(name) offsetof(ngx_weir_place_conf_t, name)

static ngx_command_t commands[] = {
    OF_ALL("weir_rules", NGX_CONF_TAKE12, ngx_weir_set_rules),
    OF_ALL("weir_table", NGX_CONF_TAKE12, ngx_weir_set_table),
    OF_ALL("weir_service", NGX_CONF_TAKE123, ngx_weir_set_service),
    OF_ALL("weir_queue", NGX_CONF_TAKE12, ngx_weir_set_queue),
    OF_PLACE("weir_limit", NGX_CONF_TAKE12, ngx_weir_set_limit, 0, KIND),
    OF_PLACE("weir_attribute", NGX_CONF_TAKE2, ngx_weir_set_attribute, 0, KIND),
    OF_PLACE("weir_descriptor", NGX_CONF_1MORE, ngx_weir_set_descriptor, 0, KIND),
    OF_PLACE("weir_hits", NGX_CONF_TAKE1, ngx_stream_set_complex_value_slot, FIELD(hits), NULL),
    OF_PLACE("weir_dry_run", NGX_CONF_FLAG, ngx_conf_set_flag_slot, FIELD(dry_run), NULL),
    OF_PLACE("weir_log_level", NGX_CONF_TAKE1, ngx_conf_set_enum_slot, FIELD(log_level),
             ngx_weir_log_levels),
    ngx_null_command,
};

static void *create_main_conf(ngx_conf_t *cf)
{
    return ngx_weir_create_main(cf, sizeof(ngx_weir_main_conf_t));
}

static char *init_main_conf(ngx_conf_t *cf, void *conf)
{
    (void)cf;
    ngx_weir_fill_main(conf);
    return NGX_CONF_OK;
}

static void *create_srv_conf(ngx_conf_t *cf)
{
    ngx_weir_place_conf_t *place = ngx_pcalloc(cf->pool, sizeof(*place));
    if (place != NULL)
        ngx_weir_init_place(place);
    return place;
}

static char *merge_srv_conf(ngx_conf_t *cf, void *parent, void *child)
{
    return ngx_weir_merge_place(ngx_stream_conf_get_module_main_conf(cf, ngx_stream_weir_module),
                                child, parent);
}

/* ---- the module as nginx knows it ---- */

static ngx_int_t get_variable(ngx_stream_session_t *s, ngx_stream_variable_value_t *v,
                              uintptr_t which)
{
    return ngx_weir_variable(ngx_stream_get_module_ctx(s, ngx_stream_weir_module),
                             s->connection->pool, v, which);
}

static ngx_int_t preconfiguration(ngx_conf_t *cf)
{
    for (const ngx_weir_variable_t *one = ngx_weir_variables; one->name.len > 0; one++) {
        ngx_str_t name = one->name;
        ngx_stream_variable_t *v = ngx_stream_add_variable(cf, &name, NGX_STREAM_VAR_NOCACHEABLE);
        if (v == NULL)
            return NGX_ERROR;
        v->get_handler = get_variable;
        v->data = one->which;
    }
    return NGX_OK;
}

static ngx_int_t add_handler(ngx_conf_t *cf, ngx_uint_t phase, ngx_stream_handler_pt handler)
{
    ngx_stream_core_main_conf_t *core =
        ngx_stream_conf_get_module_main_conf(cf, ngx_stream_core_module);
    ngx_stream_handler_pt *place = ngx_array_push(&core->phases[phase].handlers);
    if (place == NULL)
        return NGX_ERROR;
    *place = handler;
    return NGX_OK;
}

static ngx_int_t postconfiguration(ngx_conf_t *cf)
{
    ngx_weir_main_conf_t *main = ngx_stream_conf_get_module_main_conf(cf, ngx_stream_weir_module);
    if (!main->is_used)
        return NGX_OK;
    if (ngx_weir_open(cf, main) != NGX_OK ||
        add_handler(cf, NGX_STREAM_PREACCESS_PHASE, preaccess) != NGX_OK)
        return NGX_ERROR;
    return add_handler(cf, NGX_STREAM_LOG_PHASE, give_back);
}

static ngx_int_t init_process(ngx_cycle_t *cycle)
{
    return ngx_weir_init_process(
        cycle, ngx_stream_cycle_get_module_main_conf(cycle, ngx_stream_weir_module));
}

static ngx_stream_module_t context = {
    preconfiguration, postconfiguration, create_main_conf,
    init_main_conf,   create_srv_conf,   merge_srv_conf,
};

ngx_module_t ngx_stream_weir_module =
    NGX_WEIR_MODULE(NGX_STREAM_MODULE, &context, commands, init_process);
