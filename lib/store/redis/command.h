/* command.h - what is sent to Redis: commands, into a bounded buffer.
 *
 * The counters of one call must lie in one hash slot where Redis is a Cluster.  Commands may follow
 * each other in one buffer: all that a turn of a loop produced leaves in one write.  What does not
 * fit is not written, and the buffer says so (weir_buf.has_failed): the caller cuts it back to
 * where its command began.
 *
 * hiredis could format commands too, but allocates each; ours go straight into the buffer.
 *
 * Purity: no clock, no I/O; the buffer grows to what a turn needs, and stays so.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_REDIS_COMMAND_H
#define WEIR_STORE_REDIS_COMMAND_H

#include "base/buf.h"
#include "store/redis/counter.h"

/* How the script is called.  A function is faster, because its parts are made once, when it is
 * loaded; a script works on servers that do not let us load functions. */
enum weir_redis_how {
    WEIR_REDIS_FCALL,
    WEIR_REDIS_EVALSHA,
};

struct weir_redis_call {
    const struct weir_redis_counter *counters;
    uint32_t count; /* 0: decides nothing, but shows that Redis would (and writes) */
    bool is_atomic; /* a refused request consumes nothing anywhere */
    bool is_timed;  /* for tests: now_ns is the time, not Redis's clock.  Never in production. */
    uint64_t now_ns;
};

void weir_redis_put_call(struct weir_buf *out, enum weir_redis_how how,
                         const struct weir_redis_call *call);

/* Loads what put_call() calls.  The answer is OK, a SHA-1, or LIBRARY_EXISTS, and all are fine. */
void weir_redis_put_load(struct weir_buf *out, enum weir_redis_how how);

/* Any command. */
void weir_redis_put_command(struct weir_buf *out, const struct weir_str *args, uint32_t count);

/* The same step by step: so many arguments, then each of them. */
void weir_redis_put_begin(struct weir_buf *out, size_t count);
void weir_redis_put_text(struct weir_buf *out, struct weir_str text);
void weir_redis_put_number(struct weir_buf *out, uint64_t number);
/* One argument that is made of several parts. */
void weir_redis_put_parts(struct weir_buf *out, const struct weir_str *parts, uint32_t count);

#endif
