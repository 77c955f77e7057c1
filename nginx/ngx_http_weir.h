/* ngx_http_weir.h - weir in nginx's HTTP.  What stream does the same way is in ngx_weir.h.
 *
 *     ngx_http_weir_conf.c        directives
 *     ngx_http_weir_attribute.c   a request as the rules' attributes
 *     ngx_http_weir_decide.c      the phases: ask libweir, then pass, hold or refuse
 *     ngx_http_weir_record.c      what is kept of a decision
 *     ngx_http_weir_hold.c        a request in a leaky bucket's queue
 *     ngx_http_weir_wait.c        a request that waits for the service
 *     ngx_http_weir_answer.c      headers, and the body of a refusal
 *
 * Translation and nothing else: libweir decides.  A request is asked in up to two stages, before
 * and after authentication, and each leaves one record in the request's pool.  A record is a pool
 * cleanup, found again when an internal redirect has forgotten the module's context, and run when
 * the request ends, however it ends: that is where slots and hits are given back, once.
 *
 * Never NGX_OK from a phase: it would mean that access is granted.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NGX_HTTP_WEIR_H
#define NGX_HTTP_WEIR_H

#include "ngx_weir.h"

#include <ngx_http.h>

#pragma GCC visibility push(hidden) /* as in ngx_weir.h */

enum { NGX_HTTP_WEIR_AUTO, NGX_HTTP_WEIR_PREACCESS, NGX_HTTP_WEIR_PRECONTENT };

enum {
    NGX_HTTP_WEIR_BODY_PLAIN,
    NGX_HTTP_WEIR_BODY_PROBLEM,
    NGX_HTTP_WEIR_BODY_NONE,
    NGX_HTTP_WEIR_BODY_HTML, /* nginx's own page */
    NGX_HTTP_WEIR_BODY_TEXT,
};

typedef struct {
    ngx_weir_main_conf_t base;
    unsigned has_late : 1; /* some location is limited after authentication */
} ngx_http_weir_main_conf_t;

typedef struct {
    /* What most requests read, in one cache line: */
    ngx_weir_place_conf_t base;
    uint64_t state; /* of a record of who passes, where it is_plain in preaccess; 0: it is not */

    uint32_t dialects;                            /* of enum weir_dialect */
    uint8_t stages[NGX_HTTP_WEIR_PRECONTENT + 1]; /* by phase: what is asked then; 0: nothing */
    bool is_plain; /* asked in one stage, by the rules alone, and told in numbers */
    ngx_uint_t phase;
    ngx_http_complex_value_t *user;
    ngx_uint_t status;
    ngx_uint_t body;
    ngx_http_complex_value_t *body_text;
} ngx_http_weir_loc_conf_t;
_Static_assert(offsetof(ngx_http_weir_loc_conf_t, dialects) <= NGX_WEIR_LINE, "of most requests");

#define NGX_HTTP_WEIR_DIALECTS_UNSET UINT32_MAX

/* Which of the rules are asked. */
#define NGX_HTTP_WEIR_EARLY 1
#define NGX_HTTP_WEIR_LATE 2
#define NGX_HTTP_WEIR_ALL 3

typedef struct ngx_http_weir_record_s ngx_http_weir_record_t;

/* What is kept of a decision. */
struct ngx_http_weir_record_s {
    ngx_weir_record_t base;
    char numbers[WEIR_NUMBERS_LEN_MAX]; /* values of headers that are numbers, once they are sent */
    const struct weir_header *lists;    /* the other headers of this stage: list_count of them */
    ngx_http_weir_record_t *before;     /* that of the stage before, if it has_before */
};

/* The state of a record of who passes, asked once. */
static ngx_inline uint64_t ngx_http_weir_passed(bool is_dry, uint32_t dialects)
{
    return (ngx_weir_record_t){.verdict = NGX_WEIR_PASSED,
                               .is_dry = is_dry,
                               .dialects = (uint8_t)dialects,
                               .stages = NGX_HTTP_WEIR_ALL}
        .state;
}

/* What an answer tells most often, behind the contexts of its request: the record is far by then,
 * where the request was passed on, and this is near what other filters look at.  As contexts are,
 * it is forgotten by an internal redirect. */
typedef struct {
    uint32_t limit; /* 0: the record says what is to be told */
    uint32_t remaining;
} ngx_http_weir_word_t;
_Static_assert(sizeof(ngx_http_weir_word_t) % sizeof(void *) == 0, "words");

static ngx_inline ngx_http_weir_word_t *ngx_http_weir_word(ngx_http_request_t *r)
{
    return (ngx_http_weir_word_t *)(void *)(r->ctx + ngx_weir_near.word);
}

/* The record is the request's. */
static ngx_inline void ngx_http_weir_set(ngx_http_request_t *r, ngx_http_weir_record_t *record)
{
    const struct weir_told *told = &record->base.told;
    ngx_http_weir_word_t *word = ngx_http_weir_word(r);
    uint64_t usual = ngx_http_weir_passed(false, WEIR_DIALECT_LEGACY);
    uint64_t other = (record->base.state ^ usual) | told->limit >> 32; /* in one: no jump */
    r->ctx[ngx_weir_near.index] = record;
    word->limit = other == 0 ? (uint32_t)told->limit : 0;
    word->remaining = (uint32_t)told->remaining;
}

static ngx_inline ngx_http_weir_record_t *ngx_http_weir_before(const ngx_http_weir_record_t *record)
{
    return NGX_WEIR_SELDOM(record->base.has_before) ? record->before : NULL;
}

extern ngx_module_t ngx_http_weir_module;
extern ngx_command_t ngx_http_weir_commands[];

extern const ngx_weir_kind_t ngx_http_weir_kind;

/* ngx_http_weir_conf.c */
void *ngx_http_weir_create_main_conf(ngx_conf_t *cf);
char *ngx_http_weir_init_main_conf(ngx_conf_t *cf, void *conf);
void *ngx_http_weir_create_loc_conf(ngx_conf_t *cf);
char *ngx_http_weir_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child);

/* ngx_http_weir_attribute.c: how a request looks to the rules.  Values last while it does. */
typedef struct {
    ngx_weir_asking_t base;
    ngx_http_weir_record_t *before; /* what is kept of an earlier stage, or NULL */
    bool has_user;
    ngx_str_t user;
    size_t scratch_used;
} ngx_http_weir_asking_t;

int ngx_http_weir_attribute(void *asking, struct weir_str key, struct weir_str *value);
bool ngx_http_weir_is_late(void *asking, struct weir_str key);

/* ngx_http_weir_decide.c */
/* Says when a location asks what: once all else of it is known. */
void ngx_http_weir_set_stages(ngx_http_weir_loc_conf_t *conf);
/* Before those phases' first handlers, which they call. */
ngx_int_t ngx_http_weir_server_rewrite(ngx_http_request_t *r);
ngx_int_t ngx_http_weir_preaccess(ngx_http_request_t *r);
ngx_int_t ngx_http_weir_precontent(ngx_http_request_t *r);
/* In server_rewrite what will be decided is fetched; but the handler stands there only while
 * requests differ, and it is of use.  place: where nginx has it. */
void ngx_http_weir_begin_early(ngx_http_handler_pt *place);
void ngx_http_weir_set_early(bool is_of_use);
static ngx_inline void ngx_http_weir_foretell(bool is_of_use)
{
    if (NGX_WEIR_SELDOM(is_of_use != ngx_weir_near.foretells))
        ngx_http_weir_set_early(is_of_use);
}
/* The service has decided, or (NULL) has not: what the phase's handler would have returned. */
ngx_int_t ngx_http_weir_answered(ngx_http_request_t *r, ngx_uint_t stages,
                                 struct weir_decision *decision);

/* ngx_http_weir_wait.c */
typedef struct ngx_http_weir_wait_s ngx_http_weir_wait_t;
/* For who may have to wait; NULL: no memory. */
struct weir_desk_waiter *ngx_http_weir_waiter(ngx_http_request_t *r, ngx_uint_t stages);
/* It has to. */
ngx_int_t ngx_http_weir_wait(ngx_http_request_t *r);

/* ngx_http_weir_record.c */
ngx_http_weir_record_t *ngx_http_weir_find_again(ngx_http_request_t *r);
/* The last record of a request; NULL: it was not asked yet.  An internal redirect forgets contexts,
 * not cleanups. */
static ngx_inline ngx_http_weir_record_t *ngx_http_weir_find(ngx_http_request_t *r)
{
    ngx_http_weir_record_t *record = r->ctx[ngx_weir_near.index];
    if (record == NULL && NGX_WEIR_SELDOM(r->internal || r->filter_finalize))
        record = ngx_http_weir_find_again(r);
    return record;
}
/* Asks and keeps in one, the quickest way.  NULL: it does not lead there, and nothing was done. */
ngx_http_weir_record_t *ngx_http_weir_keep_again(ngx_http_weir_asking_t *a, ngx_uint_t stages,
                                                 uint64_t now_ns);
/* Keeps a decision.  NULL: no memory; what it took was given back. */
ngx_http_weir_record_t *ngx_http_weir_keep(ngx_http_weir_asking_t *a, ngx_uint_t stages,
                                           const struct weir_decision *decision, uint64_t now_ns);

/* ngx_http_weir_hold.c */
/* Leaves the request where it is: NGX_AGAIN, or a status.  A client that leaves ends it. */
ngx_int_t ngx_http_weir_stay(ngx_http_request_t *r, ngx_http_event_handler_pt on_write);
ngx_int_t ngx_http_weir_hold(ngx_http_request_t *r, ngx_http_weir_record_t *record,
                             uint64_t delay_ns, uint64_t now_ns);

/* ngx_http_weir_answer.c */
ngx_int_t ngx_http_weir_refuse(ngx_http_request_t *r, const struct weir_decision *decision);
ngx_int_t ngx_http_weir_init_filter(ngx_conf_t *cf);

#pragma GCC visibility pop

#endif
