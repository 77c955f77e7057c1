/* admin.h - the admin listener: metrics, the rules as loaded, the state of keys.
 *
 *     front_admin.c    the connection: who may ask, routes, answers
 *     admin_metrics.c  /metrics, in our names or envoyproxy/ratelimit's
 *     admin_api.c      /rlconfig and /api/v1: routes, rules
 *     admin_state.c    /api/v1/key and /api/v1/explain: what is left, here or in the store
 *     admin_enforcement.c, admin_overrides.c, admin_top.c, admin_audit.c, admin_store.c   as named
 *     admin_rules_db.c   the rules database: answers that come later, for Redis is asked
 *     admin_key.c, admin_body.c   what those have in common
 *
 * Who may ask: with admin_token, who bears it; without, who comes from this host, and names it by
 * an address or as localhost: a browser that was lured here by another name (DNS rebinding) is
 * sent away.  What changes something needs a header that no form or image can bring (CSRF).
 *
 * Answers are built in memory of their own: this is no data plane.
 *
 * Threads: the connection's.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_ADMIN_H
#define WEIR_SERVE_ADMIN_H

#include "base/buf.h"
#include "proto/http1.h"
#include "serve/service.h"

#define WEIR_ADMIN_BODY_MAX                                                                        \
    (3u << 20) /* bytes of an answer: what is beyond is left out, and told */

#define WEIR_ADMIN_JSON "application/json"

struct weir_admin_late;

struct weir_admin_call {
    struct weir_worker *worker;
    const struct weir_http1_request *request;
    struct weir_str path;  /* without the query */
    struct weir_str query; /* without the '?' */
    const char *peer;
    int status;
    const char *content_type;
    struct weir_buf body;
    struct weir_admin_late *late; /* not NULL: the answer comes later, from there */
};

/* An answer that another thread makes, or the store has to be asked for.  Whoever asks puts it into
 * call->late, and when it is made, in the connection's loop, calls weir_admin_late_answer(); until
 * then its memory stays. */
struct weir_admin_late {
    struct weir_front_admin *front; /* NULL: nobody waits any more; the loop's alone */
    /* May be NULL.  The connection is gone, and with this the answer may be, too. */
    void (*leave)(struct weir_admin_late *late);
    struct weir_http1_request request; /* what is still to be known of it */
    struct weir_admin_call told;       /* status, type and body: the other thread's */
};
void weir_admin_late_answer(struct weir_admin_late *late);

void weir_admin_metrics(struct weir_admin_call *call);

/* All below /api/v1, and /rlconfig.  False: there is no such path. */
bool weir_admin_api(struct weir_admin_call *call);
void weir_admin_explain(struct weir_admin_call *call);
void weir_admin_state(struct weir_admin_call *call);
bool weir_admin_enforcement(struct weir_admin_call *call);
bool weir_admin_rules_db(struct weir_admin_call *call);
void weir_admin_overrides(struct weir_admin_call *call);
void weir_admin_audit(struct weir_admin_call *call);
void weir_admin_top(struct weir_admin_call *call);
void weir_admin_store(struct weir_admin_call *call);
/* What /metrics says of the store; nothing where there is none. */
void weir_admin_store_metrics(struct weir_buf *to, const struct weir_service *service);

bool weir_admin_is_method(const struct weir_admin_call *call, const char *method);
/* GET, or HEAD. */
bool weir_admin_is_get(const struct weir_admin_call *call);

/* The value of a name in the query, as it is written there; ptr is NULL where there is none. */
struct weir_str weir_admin_param(struct weir_str query, const char *name);
/* The same as a number, at most `most`; `otherwise` where there is none. */
uint32_t weir_admin_number(struct weir_str query, const char *name, uint32_t otherwise,
                           uint32_t most);

__attribute__((format(printf, 2, 3))) void weir_admin_add(struct weir_buf *to, const char *format,
                                                          ...);
/* A string of JSON, with its quotes.  In what is no UTF-8, odd bytes become U+FFFD. */
void weir_admin_add_json(struct weir_buf *to, struct weir_str text);
/* An answer of one line. */
void weir_admin_say(struct weir_admin_call *call, int status, const char *text);
/* What the engine said, as an answer. */
void weir_admin_say_error(struct weir_admin_call *call, int err);

#endif
