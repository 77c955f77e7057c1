/* route.h - which of several servers has a key: by its hash slot, in a map.
 *
 *     key --> slot, 0 .. 16383 --> owner: a number of a server        the same for all topologies
 *                      ^
 *                      |  one server       has them all
 *                      |  Cluster          says so itself: CLUSTER SLOTS, and MOVED for one of them
 *                      |  Sentinel         says who the one is
 *                      +  shards           each slot's is found by rendezvous hashing
 *
 * Rendezvous hashing: every server draws a number for a slot, from its name and the slot's number,
 * and the highest has it.  All nodes draw the same; a server that is added takes slots from all in
 * equal parts, and no other moves.
 *
 * Purity: no clock, no I/O, no allocation.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_REDIS_ROUTE_H
#define WEIR_STORE_REDIS_ROUTE_H

#include "store/redis/reply.h"

#define WEIR_REDIS_SLOTS 16384
#define WEIR_REDIS_NOBODY UINT16_MAX
#define WEIR_REDIS_ADDRESS_LEN 272 /* "[host]:port" or "unix:path", and its end */

struct weir_redis_address {
    char text[WEIR_REDIS_ADDRESS_LEN];
};

/* HOST:PORT as lib/net takes it, an IPv6 host in brackets; a unix socket where port is 0.  False
 * where it does not fit, or is none. */
WEIR_MUST_CHECK bool weir_redis_address_make(struct weir_redis_address *out, struct weir_str host,
                                             uint32_t port);
/* The same of "host:port" as Redis writes it, without brackets; an empty host is that of asked,
 * who said so. */
WEIR_MUST_CHECK bool weir_redis_address_read(struct weir_redis_address *out, struct weir_str text,
                                             const struct weir_redis_address *asked);

/* A Cluster, as one of its servers sees it.  Large: not for the stack. */
struct weir_redis_map {
    uint16_t owner[WEIR_REDIS_SLOTS]; /* a number of a server, or WEIR_REDIS_NOBODY */
    uint32_t server_count;
    uint32_t unserved; /* slots that nobody has */
    struct weir_redis_address servers[WEIR_REDIS_SERVERS_MAX];
    bool has_slots[WEIR_REDIS_SERVERS_MAX]; /* else a replica: good to be asked for the map */
};

/* The reply to CLUSTER SLOTS, from asked.  0, or WEIR_ERR_STORE: it is none, or there are more
 * servers than WEIR_REDIS_SERVERS_MAX; out is undefined then. */
WEIR_MUST_CHECK int weir_redis_map_read(struct weir_redis_map *out,
                                        const struct weir_redis_reader *reader,
                                        const struct weir_redis_node *nodes, uint32_t count,
                                        const struct weir_redis_address *asked);

/* Who of count servers has each slot, by rendezvous. */
void weir_redis_map_shards(uint16_t owner[static WEIR_REDIS_SLOTS],
                           const struct weir_redis_address *servers, uint32_t count);

/* The reply to SENTINEL GET-MASTER-ADDR-BY-NAME.  0; or WEIR_ERR_NOT_FOUND: it knows none of that
 * name; or WEIR_ERR_STORE. */
WEIR_MUST_CHECK int weir_redis_master_read(struct weir_redis_address *out,
                                           const struct weir_redis_reader *reader,
                                           const struct weir_redis_node *nodes, uint32_t count,
                                           const struct weir_redis_address *asked);

#endif
