/* peer.h - a connection that we make: to a server, from a loop, without ever waiting.
 *
 *     open --> name looked up (by libuv's threads) --> connected --> TLS --> up()
 *                                                                         |
 *     close <-- down(why) <-- it ends, or could not be made       write() v  feed()
 *
 * One peer is one connection: who wants it again opens another.  Of a name's addresses each is
 * tried.  What the socket does not take waits, up to a maximum.  The owner gathers what a turn of
 * the loop produced and writes it at once (weir_chore_set()).
 *
 * A peer does not keep its loop from stopping: connections of clients do, and while these are
 * drained it works as ever.
 *
 * Threads: the loop's.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_NET_PEER_H
#define WEIR_NET_PEER_H

#include "net/net.h"

struct weir_peer;

/* What its owner hears.  From within each the peer may be closed. */
struct weir_peer_events {
    void (*up)(void *ctx);
    /* All bytes are consumed.  Negative: what came makes no sense; down() follows. */
    int (*feed)(void *ctx, const uint8_t *bytes, size_t len);
    /* At most once, and the last that is heard: close it. */
    void (*down)(void *ctx, const char *why);
};

struct weir_peer_options {
    const char *address;  /* HOST:PORT, [IPv6]:PORT or unix:PATH */
    struct weir_tls *tls; /* weir_tls_client_new(), outlives the peer; NULL: plain */
    const struct weir_peer_events *events;
    void *ctx;
    uint32_t first;    /* which of a name's addresses is tried first, counted around */
    size_t output_max; /* bytes that the socket has not taken yet */
};

/* 0; or WEIR_ERR_INVALID, WEIR_ERR_NOMEM, WEIR_ERR_IO with why[] in words. */
WEIR_MUST_CHECK int weir_peer_open(struct weir_peer **out, struct weir_loop *loop,
                                   const struct weir_peer_options *options, char *why,
                                   size_t why_len);
/* Nothing more is heard of it.  NULL is fine.  Before weir_loop_free(). */
void weir_peer_close(struct weir_peer *peer);

/* Once it is up.  0, or WEIR_ERR_TOO_LARGE: nothing was written.  A socket that takes no more, for
 * the server is gone, is not told here: down() follows, after what had come before. */
WEIR_MUST_CHECK int weir_peer_write(struct weir_peer *peer, const void *bytes, size_t len);
/* How many bytes wait for the socket to take them. */
size_t weir_peer_queued(const struct weir_peer *peer);
/* How many of the bytes written the server certainly cannot have seen.  With TLS, where what waits
 * is encrypted already, only those that will never be sent. */
size_t weir_peer_unsent(const struct weir_peer *peer);

#endif
