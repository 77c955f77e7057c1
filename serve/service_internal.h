/* service_internal.h - the service as its own files see it: service.c, service_view.c,
 * listen.c.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_SERVICE_INTERNAL_H
#define WEIR_SERVE_SERVICE_INTERNAL_H

#include "serve/http_options.h"
#include "serve/notify.h"
#include "serve/rules_follow.h"
#include "serve/service.h"
#include "serve/statsd.h"

struct weir_service_listener {
    struct weir_service *service;
    enum weir_front front;
    struct weir_listener *listener;
    struct weir_tls *tls; /* NULL: plain */
};

struct weir_service {
    const struct weir_settings *settings;
    const char *const *flags;
    struct weir_log *log;
    struct weir_audit *audit;
    struct weir *engine;
    struct weir_ask_shared *store;  /* serve/ask.h; NULL: none */
    struct weir_eventual *eventual; /* serve/eventual.h; NULL: there is no store */
    struct weir_worker *workers;
    struct weir_loop **loops;
    uint32_t worker_count;
    struct weir_service_listener listeners[WEIR_FRONTS];
    size_t listener_count;
    struct weir_notify notify;
    struct weir_statsd *statsd;       /* NULL: off */
    struct weir_rules_follow *follow; /* NULL: no rules database */
    struct weir_http_options http;
    int signal_fd, done_fd;
    bool is_started;       /* errors go to the log; before, as plain lines */
    bool has_heard_errors; /* of the engine */
    _Atomic bool is_going_down;
    _Atomic bool has_rules;
    _Atomic uint64_t bad_rules; /* the main thread's; others read */
};

/* listen.c */
WEIR_MUST_CHECK int weir_service_listen(struct weir_service *service);
/* Reads certificates again: all, or those whose files have changed. */
void weir_service_reload_tls(struct weir_service *service, bool is_forced);

/* One line about what stopped us from starting. */
void weir_service_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
