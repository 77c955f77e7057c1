/* service.h - `weir serve`: an engine, workers, listeners, and their life.
 *
 *     main thread                                    worker threads
 *     signals, rules (watch, compile, publish),      loops: connections, decisions
 *     certificates, log settings, systemd
 *
 * The main thread never decides, workers never load: what takes long happens where nobody waits for
 * it.  They share the table, the published rules, and a few flags.
 *
 *     start --> running --SIGTERM--> unhealthy --drain_delay--> draining --grace--> gone
 *                  ^  |              (still serving)            (no listeners)
 *                  +--+ SIGHUP: rules, certificates, log settings
 *
 * Counts outlive all that, for the table is a file.  A successor may start beside us: it attaches
 * to the same table and listens on the same addresses.
 *
 * Threads: what is offered to front ends may be called from any.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_SERVICE_H
#define WEIR_SERVE_SERVICE_H

#include "serve/hold.h"
#include "serve/log.h"
#include "serve/settings.h"
#include "serve/worker.h"

struct weir_service;
struct weir_audit;
struct weir_eventual;
struct weir_http_options;
struct weir_rules_follow;
struct weir_ask_shared;

/* ---- for front ends ---- */

/* False once the service is going down, or where healthy_with_rules is on and there are none. */
bool weir_service_is_healthy(const struct weir_service *service);
const struct weir_settings *weir_service_settings(const struct weir_service *service);
struct weir_log *weir_service_log(const struct weir_service *service);
const struct weir_http_options *weir_service_http_options(const struct weir_service *service);
struct weir_audit *weir_service_audit(const struct weir_service *service);
struct weir *weir_service_engine(const struct weir_service *service);
/* Who follows the rules database; NULL where there is none. */
struct weir_rules_follow *weir_service_follow(const struct weir_service *service);
/* serve/ask.h; NULL: there is no store. */
const struct weir_ask_shared *weir_service_store(const struct weir_service *service);

/* A counter over all workers. */
uint64_t weir_service_count(const struct weir_service *service, enum weir_front front,
                            enum weir_front_count counter);
uint64_t weir_service_hold_count(const struct weir_service *service, enum weir_hold_count counter);
/* NULL: there is no store. */
const struct weir_eventual *weir_service_eventual(const struct weir_service *service);
/* Requests of Envoy's protocol, by gRPC or /json, that shadow_mode alone let through. */
uint64_t weir_service_shadowed(const struct weir_service *service);
/* How often new rules were not valid, and so changed nothing. */
uint64_t weir_service_bad_rules(const struct weir_service *service);
/* The listeners that are open; index from 0, NULL past the last. */
const struct weir_listener *weir_service_listener(const struct weir_service *service, size_t index,
                                                  enum weir_front *front);
uint32_t weir_service_worker_count(const struct weir_service *service);
struct weir_worker *weir_service_worker(const struct weir_service *service, uint32_t number);

/* ---- for the command ---- */

/* Serves until a signal ends it.  0, or what went wrong; the reason has been said on stderr then.
 * The flags are for reading the settings again. */
WEIR_MUST_CHECK int weir_service_run(const struct weir_settings *settings,
                                     const char *const *flags);

#endif
