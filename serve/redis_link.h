/* redis_link.h - a worker's way to Redis: calls out, replies back, within a deadline.
 *
 *     ask() --> waits for the end of the turn --put()--> one write --> Redis
 *                   |                                                    |
 *      certainly    | no connection, breaker open, no room               | reply, in order
 *      not done     v                                                    v
 *     done(STORE_AWAY)        done(STORE_LATE) <--deadline--- done(0, answer)
 *                             perhaps done: on_late() says so once it is known
 *
 * All that one turn of the loop asks for leaves in one write.  Nobody waits longer than the
 * deadline, and nothing grows beyond its maximum, whatever Redis does.  Behind the link may be one
 * server, a Cluster, what Sentinels watch over, or plain servers that share the keys (shards): the
 * caller names a key, and the link knows where it lies, follows it when it moves, loads the script
 * where it is missing, connects anew, and leaves a server alone that does not answer (breaker).
 *
 * Threads: one link a worker, used in its loop's thread; counters and health from any.
 * Time: the deadline's is the monotonic clock's.
 * Allocation: none for a call, once the lists have grown to what turns need.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_REDIS_LINK_H
#define WEIR_SERVE_REDIS_LINK_H

#include "net/net.h"
#include "serve/log.h"
#include "store/redis/reply.h"

#include <stdatomic.h>

struct weir_redis_link;
struct weir_redis_server; /* the link's own, as is the next */
struct weir_redis_line;

#define WEIR_REDIS_DEADLINE_MS 25   /* if the options do not say */
#define WEIR_REDIS_QUEUE_MAX 16384u /* calls under way, likewise */

/* What came back.  Good until done() returns. */
struct weir_redis_answer {
    const struct weir_redis_reader *reader;
    const struct weir_redis_node *nodes;
    uint32_t node_count;
    /* Of the monotonic clock: just before the command was written, and when the reply had come. */
    uint64_t sent_ns, answered_ns;
    /* Of an ask that needs_replicas: on_replicated() will follow with this number.  0: it will not,
     * and nobody knows of any. */
    uint64_t wait;
};

/* One call.  Its memory is the caller's, from weir_redis_link_ask() to done(). */
struct weir_redis_ask {
    struct weir_str key; /* names the server: its hash slot, or its shard */
    /* Adds the command, to which there is exactly one reply.  Called when it is about to be sent,
     * and again where it must be sent anew (another server has the key, the script was gone). */
    void (*put)(struct weir_redis_ask *ask, struct weir_buf *out, enum weir_redis_how how);
    /* Exactly once, and never from within weir_redis_link_ask().  err is
     *     0           answer holds a reply that is no error
     *     STORE_AWAY  it was certainly not carried out; answer is NULL
     *     STORE_LATE  it may have been, or may still be: the deadline has passed, or the connection
     *                 broke after it was sent; answer is NULL
     *     STORE       Redis complains about the command itself; answer holds its words */
    void (*done)(struct weir_redis_ask *ask, int err, const struct weir_redis_answer *answer);
    /* Not 0: after a done() with STORE_LATE the link's on_late() follows, once, with this. */
    uint64_t late_tag;
    /* On the monotonic clock (weir_redis_now()): when it began to wait, which its deadline is
     * counted from.  0: when it is asked. */
    uint64_t since_ns;
    bool needs_replicas; /* they should acknowledge what it writes, where the options say so */

    /* ---- the link's own ---- */
    struct weir_redis_ask *older, *newer; /* of all that are under way */
    struct weir_redis_ask *prev, *next;   /* in a queue */
    struct weir_redis_asks *queue;        /* which; NULL: it was sent, or is not under way */
    struct weir_redis_server *server;
    struct weir_redis_line *line; /* it was sent over this one */
    uint64_t place;               /* of its reply on the line */
    uint64_t begun_ns;
    uint16_t tries;  /* how often it was sent */
    bool is_asking;  /* by an ASK: the next try begins with ASKING */
    bool is_own;     /* the link asks by itself: not counted, and needs no script */
    bool is_waiting; /* under way */
};

/* What all links of a process say together of calls that the store answers with an error. */
struct weir_redis_complaints {
    struct weir_log *log;
    _Atomic uint64_t due_ns; /* when they may be told of again */
    _Atomic uint64_t calls;  /* not told of yet */
};

struct weir_redis_link_options {
    const char *url;      /* see store/redis/url.h; copied */
    struct weir_tls *tls; /* weir_tls_client_new(); for rediss:// and its kin; outlives the link */
    uint32_t deadline_ms; /* of a call; 0: WEIR_REDIS_DEADLINE_MS */
    uint32_t queue_max;   /* calls under way; 0: WEIR_REDIS_QUEUE_MAX */
    struct weir_log *log; /* may be NULL */
    struct weir_redis_complaints *complaints; /* may be NULL; outlives the link */
    /* So many replicas are to acknowledge what is written by calls that need it; 0: none is asked,
     * and what follows may be NULL.  is_replicated: they have, of calls with this number, within a
     * part of the deadline.  Comes after done(), and not at all if Redis stops answering. */
    uint32_t replicas;
    void (*on_replicated)(void *ctx, uint64_t wait, bool is_replicated);
    /* May be NULL.  What became of a call whose done() was told STORE_LATE: err and answer as for
     * done(), where STORE_LATE means that nobody will ever know.  The ask may be gone by now. */
    void (*on_late)(void *ctx, uint64_t tag, int err, const struct weir_redis_answer *answer);
    void *ctx; /* of both */
};

/* Before the loop runs, or in its thread.  Connects in the background.  0, WEIR_ERR_NOMEM, or
 * WEIR_ERR_INVALID with why[] in words (which never hold the password). */
WEIR_MUST_CHECK int weir_redis_link_new(struct weir_redis_link **out, struct weir_loop *loop,
                                        const struct weir_redis_link_options *options, char *why,
                                        size_t why_len);
/* In the loop's thread, but not from within done(); or when the loop runs no more, and before
 * weir_loop_free().  What is under way is forgotten: its done() is not called. */
void weir_redis_link_free(struct weir_redis_link *link);

/* done() follows within the deadline. */
void weir_redis_link_ask(struct weir_redis_link *link, struct weir_redis_ask *ask);
/* Nobody waits for it any more: done() will not be called, nor on_late(), and the ask's memory is
 * free.  It may be carried out all the same.  Does nothing where it is not under way. */
void weir_redis_link_cancel(struct weir_redis_link *link, struct weir_redis_ask *ask);

/* False: replicas of the server that has this key did not acknowledge what was written last, and
 * calls that need it had better wait until they do. */
bool weir_redis_link_replicates(const struct weir_redis_link *link, struct weir_str key);

/* The clock of all times here. */
uint64_t weir_redis_now(void);

/* From done(), with 0: the answer makes no sense.  For the log. */
void weir_redis_link_complain(const struct weir_redis_ask *ask);

/* ---- from any thread ---- */

enum weir_redis_health {
    WEIR_REDIS_HEALTHY, /* every server that has keys answers */
    WEIR_REDIS_PARTLY,  /* some do, or all, but not with what is asked for */
    WEIR_REDIS_AWAY,    /* none does */
};
enum weir_redis_health weir_redis_link_health(const struct weir_redis_link *link);

enum weir_redis_count {
#define X(name, metric, help) WEIR_REDIS_COUNT_##name,
#include "serve/redis_link.def"
#undef X
    WEIR_REDIS_COUNTS
};
uint64_t weir_redis_link_count(const struct weir_redis_link *link, enum weir_redis_count count);

#endif
