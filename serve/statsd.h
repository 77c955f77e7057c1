/* statsd.h - counters to a StatsD server, under envoyproxy/ratelimit's names.
 *
 *     ratelimit.service.rate_limit.<domain>.<path>.total_hits:3|c
 *
 * What has grown since the last time is sent every statsd_interval: over UDP, many lines to a
 * datagram, or over TCP, where a server that is away or slow finds a bounded number of lines when
 * it comes back.  What is lost is lost.  Counts of rules are the table's: where several services
 * share one, let one of them send.
 *
 * Threads: the loop's that sends; init and fini while no loop runs.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_STATSD_H
#define WEIR_SERVE_STATSD_H

#include <stddef.h>
#include <weir/weir.h>

struct weir_service;
struct weir_statsd;

/* Sends from this loop's thread on.  *out is NULL where the setting is off.  0, or negative: why[]
 * says what is wrong. */
struct weir_loop;
WEIR_MUST_CHECK int weir_statsd_new(struct weir_statsd **out, struct weir_service *service,
                                    struct weir_loop *loop, char *why, size_t why_len);
/* Sends what is left. */
void weir_statsd_free(struct weir_statsd *statsd);

#endif
