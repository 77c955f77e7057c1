/* ngx_weir.h - what weir's modules for HTTP and for stream have in common.
 *
 *     ngx_weir_conf.c        directives of both
 *     ngx_weir_process.c     the engine: opened by the master before it forks, one session a
 *                            worker, new rules looked at away from the event loop
 *     ngx_weir_ask.c         asks libweir, by the rules' shapes or by weir_descriptor
 *     ngx_weir_service.c     the connection to who knows what many machines share
 *     ngx_weir_record.c      what is kept of a decision, and given back at the end
 *     ngx_weir_hold.c        a leaky bucket's queue
 *     ngx_weir_variables.c   $weir_status and its like
 *
 * A module's configurations and records begin with the ones that are here, so that one pointer is
 * good for both.
 *
 * Each module is a shared object with a copy of this of its own, and nginx loads them all into one
 * space of names: so these are hidden, or the second module would run the first one's code.
 *
 * Names are nginx's, and so are types; the format is ours.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NGX_WEIR_H
#define NGX_WEIR_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <weir/weir.h>

#define NGX_WEIR_ATTRIBUTES_MAX 32  /* weir_attribute in one place */
#define NGX_WEIR_DESCRIPTORS_MAX 64 /* weir_descriptor in one place, as in one request */
#define NGX_WEIR_ENTRIES_MAX 32     /* in one of them */
#define NGX_WEIR_SCRATCH_LEN 65536  /* bytes of a query's decoded values */
#define NGX_WEIR_LINE 64            /* bytes of a cache line */
#define NGX_WEIR_QUEUES 256         /* of a worker, whose pace it knows */

#pragma GCC visibility push(hidden)

/* What every request runs: laid together, as libweir's is (lib/base/hot.h). */
#define NGX_WEIR_HOT __attribute__((hot, aligned(NGX_WEIR_LINE)))
/* And its way there: what most requests pass is one straight line. */
#define NGX_WEIR_MOSTLY(condition) __builtin_expect(!!(condition), 1)
#define NGX_WEIR_SELDOM(condition) __builtin_expect(!!(condition), 0)

/* ---- configuration ---- */

typedef struct ngx_weir_service_s ngx_weir_service_t; /* ngx_weir_service.c */
typedef struct ngx_weir_piece_s ngx_weir_piece_t;     /* ngx_weir_record.c */

/* Who went last of a leaky bucket's queue, and when that was to be. */
typedef struct {
    uint64_t key, due_ns, gone_ns;
} ngx_weir_gone_t;

/* Room that a worker decides in; one, since a worker does one thing at a time. */
typedef struct {
    struct weir_descriptor descriptors[NGX_WEIR_DESCRIPTORS_MAX];
    struct weir_entry entries[NGX_WEIR_DESCRIPTORS_MAX * NGX_WEIR_ENTRIES_MAX];
    struct weir_status statuses[NGX_WEIR_DESCRIPTORS_MAX];
    ngx_str_t values[NGX_WEIR_ATTRIBUTES_MAX]; /* of weir_attribute, by their order */
    u_char address[NGX_SOCKADDR_STRLEN];       /* that proxies say a request is from */
    ngx_weir_gone_t gone[NGX_WEIR_QUEUES];     /* by key; of two in one place, the later */
    char scratch[NGX_WEIR_SCRATCH_LEN];
} ngx_weir_room_t;

/* What a worker has for deciding. */
typedef struct {
    ngx_weir_room_t *room; /* NULL: in the master */
    struct weir_session *session;
    struct weir_desk *desk; /* NULL: the table decides everything */
    ngx_weir_service_t *service;
    ngx_msec_t read_ms;        /* when the clock was read, on nginx's own */
    uint64_t now_ns;           /* what it said */
    ngx_uint_t held, held_max; /* requests in the queue, and this worker's share of it */
} ngx_weir_worker_t;

/* Of a whole http or stream. */
typedef struct {
    /* What every request reads, in one line: */
    struct weir *engine;  /* NULL: not used */
    ngx_array_t *proxies; /* HTTP's, of ngx_cidr_t; NULL: none is trusted */
    ngx_weir_worker_t worker;
    ngx_str_t rules;
    ngx_str_t threads; /* the thread pool that compiles them */
    ngx_str_t table;
    size_t table_size;
    ngx_uint_t queue_max;
    ngx_msec_t queue_timeout;
    ngx_addr_t *service; /* NULL: there is none */
    ngx_str_t service_name;
    ngx_msec_t service_timeout;
    ngx_uint_t service_pending; /* questions of one worker */
    unsigned is_used : 1;       /* some place is limited */
    ngx_log_t *log;
} ngx_weir_main_conf_t;
_Static_assert(offsetof(ngx_weir_main_conf_t, worker.held) == NGX_WEIR_LINE, "of every request");

/* A text with variables in it is HTTP's or stream's: alike, and yet not the same. */
typedef void ngx_weir_value_t;

/* What the modules do each in its own way. */
typedef struct {
    const char *const *own; /* keys that nginx fills, whatever weir_attribute says; end with NULL */
    ngx_weir_value_t *(*compile)(ngx_conf_t *cf, ngx_str_t text); /* NULL: nginx has said why */
    ngx_int_t (*text)(void *from, ngx_weir_value_t *value, ngx_str_t *out); /* from: who asks */
    bool (*limit_option)(void *place, ngx_str_t word); /* of weir_limit; NULL: none but domain= */
    const char *limit_words; /* all that it takes, for who wrote another */
} ngx_weir_kind_t;

typedef struct {
    ngx_str_t key;
    ngx_weir_value_t *value;
} ngx_weir_entry_t;

typedef struct {
    ngx_array_t entries;    /* of ngx_weir_entry_t */
    ngx_weir_value_t *hits; /* NULL: weir_hits */
} ngx_weir_descriptor_t;

/* Of a location, or of a server of stream's. */
typedef struct {
    ngx_flag_t enable;
    ngx_weir_value_t *domain; /* NULL: the only one */
    ngx_array_t *attributes;  /* of ngx_weir_entry_t */
    ngx_array_t *descriptors; /* of ngx_weir_descriptor_t; NULL: by the rules' shapes */
    ngx_weir_value_t *hits;
    ngx_flag_t dry_run;
    ngx_uint_t log_level;
} ngx_weir_place_conf_t;

static ngx_inline struct weir_str ngx_weir_str(ngx_str_t s)
{
    return (struct weir_str){.ptr = (const char *)s.data, .len = s.len};
}

/* ngx_weir_conf.c: directives; those of a place have an ngx_weir_kind_t as their `post`. */
char *ngx_weir_set_rules(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_weir_set_table(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_weir_set_service(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_weir_set_queue(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_weir_set_limit(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_weir_set_attribute(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_weir_set_descriptor(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
extern ngx_conf_enum_t ngx_weir_log_levels[];

/* Before its directives; so long, with what a module has behind it.  NULL: no memory. */
void *ngx_weir_create_main(ngx_conf_t *cf, size_t len);
void ngx_weir_fill_main(ngx_weir_main_conf_t *main); /* after them */
void ngx_weir_init_place(ngx_weir_place_conf_t *place);
char *ngx_weir_merge_place(ngx_weir_main_conf_t *main, ngx_weir_place_conf_t *to,
                           const ngx_weir_place_conf_t *from);

/* For directives of one module: words of theirs. */
bool ngx_weir_is_word(ngx_str_t word, const char *known);
char *ngx_weir_invalid(ngx_conf_t *cf, ngx_str_t word, const char *right);

/* ---- the engine's life: ngx_weir_process.c ---- */

struct ngx_http_request_s;

/* What is the process's own, and read with every request: one line, where as variables here and
 * there it would be five, which nginx and the kernel have put out of the cache since the last. */
typedef struct {
    volatile const ngx_msec_t *msec; /* nginx's clock */
    ngx_weir_piece_t *pieces;        /* records that are free (ngx_weir_record.c) */
    /* HTTP's: */
    ngx_uint_t index; /* the module's, among contexts and configurations */
    ngx_uint_t word;  /* one of ours, behind all contexts (ngx_http_weir_set()) */
    ngx_int_t (*next_filter)(struct ngx_http_request_s *r);
    ngx_int_t (*next_rewrite)(struct ngx_http_request_s *r);
    ngx_int_t (*next_preaccess)(struct ngx_http_request_s *r);
    bool foretells;  /* requests differ: see weir_check_http_soon() */
    bool by_address; /* the rules ask for nothing but the connection's, and the table decides: see
                      * weir_check_address_again() */
    /* And with every answer, in another: */
    struct weir_told_last told_last __attribute__((aligned(NGX_WEIR_LINE)));
} ngx_weir_near_t;
extern ngx_weir_near_t ngx_weir_near;

ngx_int_t ngx_weir_open(ngx_conf_t *cf, ngx_weir_main_conf_t *main);
/* main: NULL where there is no such block. */
ngx_int_t ngx_weir_init_process(ngx_cycle_t *cycle, ngx_weir_main_conf_t *main);
void ngx_weir_exit_process(ngx_cycle_t *cycle);
ngx_int_t ngx_weir_open_worker(ngx_weir_main_conf_t *main);
/* Whether there is what a worker decides with; only where memory was short is there not. */
static ngx_inline bool ngx_weir_has_worker(ngx_weir_main_conf_t *main)
{
    return NGX_WEIR_MOSTLY(main->worker.room != NULL) || ngx_weir_open_worker(main) == NGX_OK;
}

/* libweir's clock, read once while nginx's stands still. */
static ngx_inline uint64_t ngx_weir_now(ngx_weir_main_conf_t *main)
{
    ngx_weir_worker_t *worker = &main->worker;
    ngx_msec_t msec = *ngx_weir_near.msec;
    if (NGX_WEIR_SELDOM(worker->read_ms != msec || worker->now_ns == 0)) {
        worker->read_ms = msec;
        worker->now_ns = weir_now(main->engine);
    }
    return worker->now_ns;
}

/* A module as nginx knows it; `kind` is NGX_HTTP_MODULE or NGX_STREAM_MODULE. */
#define NGX_WEIR_MODULE(kind, context, commands, init_process)                                     \
    {                                                                                              \
        NGX_MODULE_V1, context, commands, kind, NULL /* init master */, NULL /* init module */,    \
            init_process, NULL /* init thread */, NULL /* exit thread */, ngx_weir_exit_process,   \
            NULL /* exit master */, NGX_MODULE_V1_PADDING                                          \
    }

/* ---- asking: ngx_weir_ask.c ---- */

/* Who asks.  Values last while it does. */
typedef struct {
    struct weir_http http; /* attributes are who asks' to say, all else is ngx_weir_ask()'s */
    const ngx_weir_kind_t *kind;
    void *from; /* a request, or a session of stream's */
    ngx_connection_t *connection;
    ngx_weir_main_conf_t *main;
    ngx_weir_place_conf_t *place;
    ngx_uint_t known; /* bit i: the worker's values[i] is this one's */
} ngx_weir_asking_t;

/* Whether all that is asked there is what the rules' shapes say. */
static ngx_inline bool ngx_weir_is_plain(const ngx_weir_place_conf_t *place)
{
    return place->descriptors == NULL && place->domain == NULL && place->hits == NULL;
}

/* 0, WEIR_PENDING, or an error.  out->statuses is the worker's or the session's, until it is asked
 * again.  waiter: for WEIR_PENDING; NULL: decided here and now. */
int ngx_weir_ask(ngx_weir_asking_t *a, enum weir_stage stage, uint64_t now_ns,
                 struct weir_decision *out, struct weir_desk_waiter *waiter);
/* What comes of an error, which is told: NGX_DECLINED, or the status of a refusal. */
ngx_int_t ngx_weir_fail(ngx_weir_asking_t *a, int err);
/* A weir_attribute: 1, 0 where there is none, or an error. */
int ngx_weir_attribute(ngx_weir_asking_t *a, struct weir_str key, struct weir_str *value);
bool ngx_weir_has_attribute(const ngx_weir_place_conf_t *place, struct weir_str key);
/* An address as it is counted.  Most are as they are: those of a unix socket begin with "unix:",
 * those of IPv4 in IPv6's clothes with a colon. */
ngx_str_t ngx_weir_other_address(ngx_str_t text);
static ngx_inline ngx_str_t ngx_weir_address(ngx_str_t text)
{
    bool is_other = text.len > 0 && (text.data[0] == 'u' || text.data[0] == ':');
    return NGX_WEIR_SELDOM(is_other) ? ngx_weir_other_address(text) : text;
}

/* ---- the service: ngx_weir_service.c ---- */

/* Connects, where there is one to connect to. */
ngx_int_t ngx_weir_service_open(ngx_weir_main_conf_t *main);
void ngx_weir_service_close(ngx_weir_main_conf_t *main);
/* There may be something to send, and somebody who waits. */
void ngx_weir_service_send(ngx_weir_service_t *service);
static ngx_inline void ngx_weir_service_kick(ngx_weir_main_conf_t *main)
{
    if (NGX_WEIR_SELDOM(main->worker.service != NULL))
        ngx_weir_service_send(main->worker.service);
}

/* ---- what is kept: ngx_weir_record.c ---- */

enum { NGX_WEIR_BYPASSED, NGX_WEIR_PASSED, NGX_WEIR_DELAYED, NGX_WEIR_REJECTED };

/* What is kept of a decision. */
typedef struct {
    /* What an answer reads, in one line; by then it is far away, where it was passed on: */
    ngx_weir_main_conf_t *main;
    union {
        struct {
            uint8_t verdict;
            bool is_dry;
            bool is_held; /* in the queue now */
            uint8_t ticket_count;
            /* HTTP's, here for the line: */
            uint8_t dialects; /* where it was asked */
            uint8_t stages;   /* asked so far */
            uint8_t list_count;
            bool has_before;
        };
        uint64_t state; /* all of these, where they are begun or compared in one move */
    };
    struct weir_told told; /* of the tightest; the rule's name is in `rule` */

    ngx_connection_t *connection;
    uint64_t due_ns; /* when a held request goes on */
    ngx_str_t rule;
    /* Whose name that is, if it was found in the table's rules, of which generation; NULL: not.  It
     * outlasts the request: the next one to have this memory is often of the same rule. */
    const struct weir_rule_info *named;
    uint64_t named_generation;
    ngx_event_t *renew; /* NULL: no slots that could expire */
    struct weir_ticket *tickets;
    uint32_t delay_ms;
} ngx_weir_record_t;
_Static_assert(offsetof(ngx_weir_record_t, told.rule) == NGX_WEIR_LINE, "of an answer");
_Static_assert(NGX_WEIR_DESCRIPTORS_MAX <= UINT8_MAX, "tickets");

#define NGX_WEIR_RECORD_LEN 320 /* with what a module keeps behind it */

/* Keeps a decision in a record of NGX_WEIR_RECORD_LEN bytes, of which only ours are filled in; it
 * ends with the pool.  NULL: no memory, and what was taken was given back.
 * Nothing is kept of what a refusal took. */
void *ngx_weir_keep(ngx_weir_asking_t *a, ngx_pool_t *pool, const struct weir_decision *decision,
                    uint64_t now_ns);
/* Asks and keeps in one, by libweir's quickest way, for a place where nothing stands against it
 * (ngx_weir_is_plain()).  NULL: it does not lead there, and nothing was done. */
void *ngx_weir_keep_again(ngx_weir_asking_t *a, ngx_pool_t *pool, uint64_t now_ns);
/* The same where there is nothing to ask for but the address of the connection; state: the
 * record's. */
void *ngx_weir_keep_address(ngx_weir_main_conf_t *main, ngx_connection_t *c, ngx_pool_t *pool,
                            uint64_t state);
/* The status of the answer is known. */
void ngx_weir_settle_tickets(ngx_weir_record_t *record, ngx_uint_t status);
static ngx_inline void ngx_weir_settle(ngx_weir_record_t *record, ngx_uint_t status)
{
    if (NGX_WEIR_SELDOM(record->ticket_count > 0))
        ngx_weir_settle_tickets(record, status);
}
/* Gives back what is left: all of a request that left before its turn, else its slots. */
void ngx_weir_end(ngx_weir_record_t *record);
/* Whether a cleanup is a record's, which is its data then. */
bool ngx_weir_is_record(const ngx_pool_cleanup_t *cleanup);
/* The process ends. */
void ngx_weir_free_records(void);
/* Tells the error log of who is refused or held. */
void ngx_weir_tell_log(const ngx_weir_record_t *record, const ngx_weir_place_conf_t *place);
static ngx_inline void ngx_weir_log(const ngx_weir_record_t *record,
                                    const ngx_weir_place_conf_t *place)
{
    if (NGX_WEIR_SELDOM(record->verdict >= NGX_WEIR_DELAYED))
        ngx_weir_tell_log(record, place);
}

/* ---- the queue: ngx_weir_hold.c ---- */

/* How long an allowed request is to be held.  One that may not is refused here. */
uint64_t ngx_weir_may_delay(ngx_weir_asking_t *a, struct weir_decision *decision,
                            uint64_t delay_ns);
static ngx_inline uint64_t ngx_weir_delay(ngx_weir_asking_t *a, struct weir_decision *decision)
{
    for (uint32_t i = 0; i < decision->status_count; i++)
        if (NGX_WEIR_SELDOM(decision->statuses[i].delay_ns > 0))
            return ngx_weir_may_delay(a, decision, weir_delay_ns(decision));
    return 0;
}
/* Sets the timer of `ev` for its turn. */
void ngx_weir_hold(ngx_weir_record_t *record, ngx_event_t *ev, uint64_t delay_ns, uint64_t now_ns);
/* The timer has come.  False: it is early yet, and the timer was set again. */
bool ngx_weir_may_go(ngx_weir_record_t *record, ngx_event_t *ev);

/* ---- variables: ngx_weir_variables.c ---- */

typedef struct {
    ngx_str_t name;
    uintptr_t which;
} ngx_weir_variable_t;

extern const ngx_weir_variable_t ngx_weir_variables[]; /* the last one has no name */
/* record: NULL where nothing was asked yet. */
ngx_int_t ngx_weir_variable(const ngx_weir_record_t *record, ngx_pool_t *pool,
                            ngx_variable_value_t *v, uintptr_t which);

#pragma GCC visibility pop

#endif
