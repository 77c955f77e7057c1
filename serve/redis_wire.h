/* redis_wire.h - a conversation with Redis that waits for its answers, whatever Redis it is.
 *
 *     put a command ──> ask ──> connected?  the server, or whom Sentinel names, or a Cluster's node
 *                        ^      reply: MOVED, ASK  ──> the node that is named, the same again
 *                        |             READONLY    ──> Sentinel is asked anew, once
 *                        +──── reply
 *
 * For commands, and for threads that serve nobody: the rules database, a replay.  What decides has
 * redis_link.  Whoever gets an error may ask again: a connection that failed is closed, and the
 * next question opens another.
 *
 * Threads: one at a time.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_REDIS_WIRE_H
#define WEIR_SERVE_REDIS_WIRE_H

#include "net/net.h"
#include "store/redis/reply.h"
#include "store/redis/url.h"

struct weir_redis_wire;

struct weir_redis_wire_options {
    const char *url;
    struct weir_tls_client_options tls; /* for rediss:// */
    uint32_t timeout_ms;
};

/* Does not connect yet.  0, WEIR_ERR_NOMEM, or WEIR_ERR_INVALID: why[] says what is wrong with the
 * URL or the files for TLS. */
WEIR_MUST_CHECK int weir_redis_wire_new(struct weir_redis_wire **out,
                                        const struct weir_redis_wire_options *options, char *why,
                                        size_t why_len);
void weir_redis_wire_free(struct weir_redis_wire *wire); /* NULL is fine */

/* Where to put one command. */
struct weir_buf *weir_redis_wire_begin(struct weir_redis_wire *wire);
/* Sends it and waits for its reply.  0; WEIR_ERR_STORE: the reply is an error, or none that makes
 * sense; WEIR_ERR_IO: no reply, and the command may have been carried out; WEIR_ERR_TOO_LARGE: the
 * command or its reply. */
WEIR_MUST_CHECK int weir_redis_wire_ask(struct weir_redis_wire *wire);
/* What went wrong last, in words. */
const char *weir_redis_wire_why(const struct weir_redis_wire *wire);

/* The reply, good until the next question.  Where there was none, count is 0. */
struct weir_redis_said {
    const struct weir_redis_reader *reader;
    const struct weir_redis_node *nodes;
    uint32_t count;
};
struct weir_redis_said weir_redis_wire_said(const struct weir_redis_wire *wire);

#endif
