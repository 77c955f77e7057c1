/* reply.h - what Redis sends back: bytes in, replies out.
 *
 * hiredis reads the protocol; instead of its tree of allocated objects it fills one flat list, in
 * the order in which things come:
 *
 *     *2 [ "head", nil ]      nodes:  array of 2 | string | nil
 *
 * so that a reply costs no allocation once the lists have grown to what replies need.  All that can
 * grow has a maximum; a reply beyond it, or bytes that are no reply, end the connection.
 *
 * Purity: no clock, no I/O.  Threads: one at a time for each reader.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_REDIS_REPLY_H
#define WEIR_STORE_REDIS_REPLY_H

#include "base/maxima.h"
#include "store/redis/command.h"

enum weir_redis_type {
    WEIR_REDIS_NIL,
    WEIR_REDIS_STRING, /* also simple ones */
    WEIR_REDIS_INTEGER,
    WEIR_REDIS_ERROR,
    WEIR_REDIS_ARRAY,
};

struct weir_redis_node {
    enum weir_redis_type type;
    size_t at;      /* of its bytes; for who reads: weir_redis_node_str() */
    int64_t number; /* an integer; how many bytes; how many things follow that are in the array */
};

/* What helps against an error. */
enum weir_redis_cure {
    WEIR_REDIS_CURE_NONE,        /* it is none */
    WEIR_REDIS_CURE_LOAD,        /* the script is not there: weir_redis_put_load(), and again */
    WEIR_REDIS_CURE_REDIRECT,    /* another node has the slot: weir_redis_redirect_read() */
    WEIR_REDIS_CURE_FIND_MASTER, /* this is a replica now */
    WEIR_REDIS_CURE_WAIT,        /* later, perhaps */
    WEIR_REDIS_CURE_GIVE_UP,     /* not by itself */
};

enum weir_redis_error {
#define X(name, words, cure) WEIR_REDIS_ERROR_##name,
#include "store/redis/errors.def"
#undef X
};

struct weir_redis_reader; /* opaque: hiredis's, and the lists */

WEIR_MUST_CHECK int weir_redis_reader_new(struct weir_redis_reader **out);
void weir_redis_reader_free(struct weir_redis_reader *reader);
/* 0, or WEIR_ERR_TOO_LARGE, WEIR_ERR_NOMEM: the connection is of no more use. */
WEIR_MUST_CHECK int weir_redis_reader_feed(struct weir_redis_reader *reader, const void *bytes,
                                           size_t len);
/* 1: there is a reply, whose nodes are good until the next call; 0: not yet; or WEIR_ERR_STORE,
 * WEIR_ERR_TOO_LARGE: the connection is of no more use. */
WEIR_MUST_CHECK int weir_redis_reader_next(struct weir_redis_reader *reader,
                                           const struct weir_redis_node **nodes, uint32_t *count);
/* The bytes of a string or an error; ptr NULL for all else. */
struct weir_str weir_redis_node_str(const struct weir_redis_reader *reader,
                                    const struct weir_redis_node *node);

/* Which error it is, by its first words, and what helps against it. */
enum weir_redis_error weir_redis_error_of(struct weir_str words);
enum weir_redis_cure weir_redis_cure_of(enum weir_redis_error error);

/* "MOVED 3999 127.0.0.1:6381": slot and address, which lies in words. */
struct weir_redis_redirect {
    uint16_t slot;
    bool is_ask; /* this once only, and after ASKING */
    struct weir_str address;
};
WEIR_MUST_CHECK int weir_redis_redirect_read(struct weir_str words,
                                             struct weir_redis_redirect *out);

/* The answer to weir_redis_put_call(): fills in the answers of the counters that were asked, and
 * the time of the decision.  0, or WEIR_ERR_STORE where the reply is none to this call. */
WEIR_MUST_CHECK int weir_redis_answer_read(const struct weir_redis_reader *reader,
                                           const struct weir_redis_node *nodes, uint32_t node_count,
                                           struct weir_redis_counter *counters, uint32_t count,
                                           uint64_t *now_ns);

#endif
