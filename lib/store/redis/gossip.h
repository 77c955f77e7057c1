/* gossip.h - what nodes tell each other through Redis (`consistency: eventual`).
 *
 *     weir:{3:api4:user=5:alice}mK3xQ0bTz_4@29741       the counter's key (key.h), and which window
 *         7d0c93e15ab20f44 -> 812                       a node, and the hits that it has admitted
 *         e90b27a8c1d3f650 -> 97
 *         over             -> 9                         beyond what may pass in all
 *
 * What sites tell each other is the same with two @.
 *
 * One call tells what we have, and says what all have, in this window and where it matters in the
 * one before.  Nothing is decided in Redis, and no message does harm that comes late, again, or
 * never (store/tally.h).
 *
 * Purity: no clock, no I/O; the buffer is the caller's.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_REDIS_GOSSIP_H
#define WEIR_STORE_REDIS_GOSSIP_H

#include "store/redis/reply.h"
#include "store/tally.h"

struct weir_redis_gossip {
    struct weir_str name; /* of the counter; at most WEIR_TALLY_NAME_MAX bytes */
    uint64_t index;       /* of the window */
    bool looks_back;      /* the window before is asked for, too */
    bool is_of_site;      /* said of a whole site: another hash, for the store may be the same */
    uint64_t id, hits;    /* who, and how many */
    uint64_t most;        /* may pass in a window, over all nodes */
    uint64_t keep_ms;     /* for how long this is of use */
};

void weir_redis_put_gossip(struct weir_buf *out, enum weir_redis_how how,
                           const struct weir_redis_gossip *gossip);

/* What all nodes have admitted in a window. */
struct weir_redis_heard {
    uint32_t count;
    struct weir_peer list[WEIR_REDIS_PEERS_MAX];
};

struct weir_redis_gossip_answer {
    uint64_t over; /* hits beyond `most` that nobody was told of before */
    struct weir_redis_heard now, before;
};
/* 0, or WEIR_ERR_STORE where the reply is none to put_gossip(). */
WEIR_MUST_CHECK int weir_redis_gossip_read(const struct weir_redis_reader *reader,
                                           const struct weir_redis_node *nodes, uint32_t node_count,
                                           struct weir_redis_gossip_answer *out);

#endif
