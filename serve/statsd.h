/* statsd.h - counters to a StatsD server, under envoyproxy/ratelimit's names.
 *
 *     ratelimit.service.rate_limit.<domain>.<path>.total_hits:3|c
 *     ratelimit_server.ShouldRateLimit.response_time:0.113|ms|@0.025
 *
 * What has grown since the last time is sent every statsd_interval: over UDP, many lines to a
 * datagram, or over TCP, where a server that is away or slow finds a bounded number of lines when
 * it comes back.  Times are sent as a mean for each power of two, with the rate of a sample that
 * stands for all of them: some lines, and not one for each call.  What is lost is lost.  Counts of
 * rules are the table's: where several services share one, let one of them send.
 *
 * Threads: the loop's that sends; init and fini while no loop runs.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_STATSD_H
#define WEIR_SERVE_STATSD_H

#include <stdbool.h>
#include <stddef.h>
#include <weir/weir.h>

struct weir_service;
struct weir_settings;
struct weir_statsd;

/* Whether the settings want it. */
bool weir_statsd_is_on(const struct weir_settings *settings);

/* Sends from this loop's thread on.  *out is NULL where the setting is off.  0, or negative: why[]
 * says what is wrong. */
struct weir_loop;
WEIR_MUST_CHECK int weir_statsd_new(struct weir_statsd **out, struct weir_service *service,
                                    struct weir_loop *loop, char *why, size_t why_len);
/* Sends what is left. */
void weir_statsd_free(struct weir_statsd *statsd);

#endif
