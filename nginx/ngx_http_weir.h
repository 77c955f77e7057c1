/* ngx_http_weir.h - weir in nginx's workers.
 *
 *     ngx_http_weir_conf.c        directives
 *     ngx_http_weir_process.c     the engine: opened by the master before it forks, one session a
 *                                 worker, new rules compiled in nginx's thread pool
 *     ngx_http_weir_attribute.c   a request as the rules' attributes
 *     ngx_http_weir_decide.c      the phases: ask libweir, then pass, hold or refuse
 *     ngx_http_weir_record.c      what is kept of a decision, and given back at the end
 *     ngx_http_weir_hold.c        a leaky bucket's queue
 *     ngx_http_weir_answer.c      headers, and the body of a refusal
 *     ngx_http_weir_variables.c   $weir_status and its like
 *
 * Translation and nothing else: libweir decides.  A request is asked in up to two stages, before
 * and after authentication, and each leaves one record in the request's pool.  A record is a pool
 * cleanup, found again when an internal redirect has forgotten the module's context, and run when
 * the request ends, however it ends: that is where slots and hits are given back, once.
 *
 * Never NGX_OK from a phase: it would mean that access is granted.
 *
 * Names are nginx's, and so are types; the format is ours.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NGX_HTTP_WEIR_H
#define NGX_HTTP_WEIR_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>
#include <weir/weir.h>

#define NGX_HTTP_WEIR_ATTRIBUTES_MAX 32  /* weir_attribute in one location */
#define NGX_HTTP_WEIR_DESCRIPTORS_MAX 64 /* weir_descriptor in one location, as in one request */
#define NGX_HTTP_WEIR_ENTRIES_MAX 32     /* in one of them */
#define NGX_HTTP_WEIR_SCRATCH_LEN 65536  /* bytes of a query's decoded values */

enum { NGX_HTTP_WEIR_AUTO, NGX_HTTP_WEIR_PREACCESS, NGX_HTTP_WEIR_PRECONTENT };

enum {
    NGX_HTTP_WEIR_BODY_PLAIN,
    NGX_HTTP_WEIR_BODY_PROBLEM,
    NGX_HTTP_WEIR_BODY_NONE,
    NGX_HTTP_WEIR_BODY_HTML, /* nginx's own page */
    NGX_HTTP_WEIR_BODY_TEXT,
};

/* What a worker has for deciding; one, since a worker does one thing at a time. */
typedef struct {
    struct weir_session *session;
    ngx_msec_t read_ms;  /* when the clock was read, on nginx's own */
    uint64_t now_ns;     /* what it said */
    ngx_uint_t held;     /* requests in the queue */
    ngx_uint_t held_max; /* this worker's share */
    struct weir_descriptor descriptors[NGX_HTTP_WEIR_DESCRIPTORS_MAX];
    struct weir_entry entries[NGX_HTTP_WEIR_DESCRIPTORS_MAX * NGX_HTTP_WEIR_ENTRIES_MAX];
    struct weir_status statuses[NGX_HTTP_WEIR_DESCRIPTORS_MAX];
    char scratch[NGX_HTTP_WEIR_SCRATCH_LEN];
} ngx_http_weir_worker_t;

typedef struct {
    ngx_str_t rules;
    ngx_str_t threads; /* the thread pool that compiles them */
    ngx_str_t table;
    size_t table_size;
    ngx_array_t *proxies; /* of ngx_cidr_t */
    ngx_uint_t queue_max;
    ngx_msec_t queue_timeout;
    unsigned is_used : 1;  /* some location is limited */
    unsigned has_late : 1; /* and some after authentication */
    ngx_log_t *log;
    struct weir *engine;            /* NULL: not used */
    ngx_http_weir_worker_t *worker; /* NULL: in the master */
} ngx_http_weir_main_conf_t;

typedef struct {
    ngx_str_t key;
    ngx_http_complex_value_t value;
} ngx_http_weir_entry_t;

typedef struct {
    ngx_array_t entries;            /* of ngx_http_weir_entry_t */
    ngx_http_complex_value_t *hits; /* NULL: weir_hits */
} ngx_http_weir_descriptor_t;

typedef struct {
    ngx_flag_t enable;
    ngx_uint_t phase;
    ngx_http_complex_value_t *domain; /* NULL: the only one */
    ngx_http_complex_value_t *user;
    ngx_array_t *attributes;  /* of ngx_http_weir_entry_t */
    ngx_array_t *descriptors; /* of ngx_http_weir_descriptor_t; NULL: by the rules' shapes */
    ngx_http_complex_value_t *hits;
    ngx_uint_t status;
    ngx_uint_t dialects; /* of enum weir_dialect */
    ngx_uint_t body;
    ngx_http_complex_value_t *body_text;
    ngx_flag_t dry_run;
    ngx_uint_t log_level;
} ngx_http_weir_loc_conf_t;

enum {
    NGX_HTTP_WEIR_BYPASSED,
    NGX_HTTP_WEIR_PASSED,
    NGX_HTTP_WEIR_DELAYED,
    NGX_HTTP_WEIR_REJECTED,
};

/* Which of the rules were asked. */
#define NGX_HTTP_WEIR_EARLY 1
#define NGX_HTTP_WEIR_LATE 2
#define NGX_HTTP_WEIR_ALL 3

typedef struct ngx_http_weir_record_s ngx_http_weir_record_t;

/* What is kept of a decision.  Tickets and texts lie behind it, in the same piece of memory. */
struct ngx_http_weir_record_s {
    ngx_http_request_t *request;
    ngx_http_weir_main_conf_t *main;
    ngx_http_weir_record_t *before; /* that of the stage before, or NULL */
    ngx_uint_t stages;              /* asked so far */
    ngx_uint_t verdict;
    unsigned is_dry : 1;
    unsigned is_held : 1; /* in the queue now */
    unsigned has_numbers : 1;
    uint64_t limit, remaining, wait_s; /* of the tightest */
    uint64_t due_ns;                   /* when a held request goes on */
    ngx_msec_t delay_ms;
    ngx_str_t rule;
    ngx_str_t lines;    /* header lines of the tightest stage */
    ngx_str_t lists;    /* header lines of this stage that are there for every one */
    ngx_event_t *renew; /* NULL: no slots that could expire */
    ngx_uint_t ticket_count;
    struct weir_ticket *tickets;
};

extern ngx_module_t ngx_http_weir_module;
extern ngx_command_t ngx_http_weir_commands[];

static ngx_inline struct weir_str ngx_http_weir_str(ngx_str_t s)
{
    return (struct weir_str){.ptr = (const char *)s.data, .len = s.len};
}

/* ngx_http_weir_conf.c */
void *ngx_http_weir_create_main_conf(ngx_conf_t *cf);
char *ngx_http_weir_init_main_conf(ngx_conf_t *cf, void *conf);
void *ngx_http_weir_create_loc_conf(ngx_conf_t *cf);
char *ngx_http_weir_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child);

/* ngx_http_weir_process.c */
ngx_int_t ngx_http_weir_open(ngx_conf_t *cf, ngx_http_weir_main_conf_t *main);
ngx_int_t ngx_http_weir_init_process(ngx_cycle_t *cycle);
void ngx_http_weir_exit_process(ngx_cycle_t *cycle);
/* This worker's; NULL where there is no memory for it. */
ngx_http_weir_worker_t *ngx_http_weir_worker(ngx_http_weir_main_conf_t *main);

/* libweir's clock, read once while nginx's stands still. */
static ngx_inline uint64_t ngx_http_weir_now(ngx_http_weir_main_conf_t *main)
{
    ngx_http_weir_worker_t *worker = main->worker;
    if (worker->read_ms != ngx_current_msec || worker->now_ns == 0) {
        worker->read_ms = ngx_current_msec;
        worker->now_ns = weir_now(main->engine);
    }
    return worker->now_ns;
}

/* ngx_http_weir_attribute.c: how a request looks to the rules.  Values last while it does. */
typedef struct {
    ngx_http_request_t *request;
    ngx_http_weir_main_conf_t *main;
    ngx_http_weir_loc_conf_t *conf;
    size_t scratch_used;
    ngx_uint_t known; /* bit i: values[i] is there, the last one weir_user */
    ngx_str_t values[NGX_HTTP_WEIR_ATTRIBUTES_MAX + 1];
    u_char address[NGX_SOCKADDR_STRLEN];
} ngx_http_weir_asking_t;

int ngx_http_weir_attribute(void *asking, struct weir_str key, struct weir_str *value);
bool ngx_http_weir_is_late(void *asking, struct weir_str key);

/* ngx_http_weir_decide.c */
/* Whether a location asks anything after authentication. */
bool ngx_http_weir_asks_late(const ngx_http_weir_loc_conf_t *conf);
ngx_int_t ngx_http_weir_preaccess(ngx_http_request_t *r);
ngx_int_t ngx_http_weir_precontent(ngx_http_request_t *r);

/* ngx_http_weir_record.c */
/* The last record of a request, after internal redirects too; NULL: it was not asked yet. */
ngx_http_weir_record_t *ngx_http_weir_find(ngx_http_request_t *r);
/* Keeps a decision.  NULL: no memory; what it took was given back. */
ngx_http_weir_record_t *ngx_http_weir_keep(ngx_http_request_t *r, ngx_uint_t stages,
                                           const struct weir_decision *decision, uint64_t now_ns);
/* The status of the answer is known. */
void ngx_http_weir_settle(ngx_http_weir_record_t *record, ngx_uint_t http_status);

/* ngx_http_weir_hold.c */
/* Whether a request may wait so long. */
ngx_uint_t ngx_http_weir_may_hold(ngx_http_weir_main_conf_t *main, uint64_t delay_ns);
ngx_int_t ngx_http_weir_hold(ngx_http_weir_record_t *record, uint64_t delay_ns, uint64_t now_ns);

/* ngx_http_weir_answer.c */
ngx_int_t ngx_http_weir_refuse(ngx_http_request_t *r, const struct weir_decision *decision);
ngx_int_t ngx_http_weir_init_filter(ngx_conf_t *cf);

/* ngx_http_weir_variables.c */
ngx_int_t ngx_http_weir_add_variables(ngx_conf_t *cf);

#endif
