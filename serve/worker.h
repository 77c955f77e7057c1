/* worker.h - what a front end has at hand in its thread.
 *
 * One worker a thread: a loop, a session of the engine, counters.  Front ends translate between
 * their protocol's codec (lib/proto, no I/O) and weir_check(); they keep no state beyond a
 * connection's.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_WORKER_H
#define WEIR_SERVE_WORKER_H

#include "net/net.h"

#include <weir/weir.h>

struct weir_service; /* serve/service.h: settings, listeners, life */

struct weir_worker {
    struct weir_service *service;
    struct weir *engine;
    struct weir_loop *loop;
    struct weir_session *session;
    uint32_t number;
};

/* The worker of the thread that runs this connection's loop. */
struct weir_worker *weir_worker_of(const struct weir_conn *conn);

/* Each front end: the table of functions that net drives.  protocol_ctx is the weir_service. */
extern const struct weir_protocol weir_front_grpc;  /* front_grpc.c */
extern const struct weir_protocol weir_front_http;  /* front_http.c: /check /json /healthcheck */
extern const struct weir_protocol weir_front_resp;  /* front_resp.c */
extern const struct weir_protocol weir_front_admin; /* front_admin.c: /metrics /rlconfig /api/v1 */

/* What a caller of any protocol may ask for at once. */
#include "base/maxima.h"

#endif
