/* resp_wait.h - replies over RESP that wait for the store, in the order of their commands.
 *
 *     throttle, throttle, PING, throttle, DEL a b      what came
 *     entry,    entry | +PONG,  entry,    entry entry  what waits: after each entry, what follows
 *                                                      it at once; a DEL has one for each key
 *
 * At most WEIR_RESP_WAIT_MAX commands of a connection are with the store; what came behind them is
 * kept, and nothing more is read until all have been answered.  Then all replies leave in one
 * write, and reading goes on.
 *
 * Threads: the connection's.  Allocation: once, for connections that use a store.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_RESP_WAIT_H
#define WEIR_SERVE_RESP_WAIT_H

#include "serve/ask.h"
#include "serve/resp_session.h"

#define WEIR_RESP_WAIT_MAX 64

struct weir_resp_entry {
    struct weir_throttle_waiter throttle;
    struct weir_forget_waiter forget; /* of a DEL */
    struct weir_resp_wait *wait;
    enum weir_resp_dialect dialect; /* WEIR_RESP_NO_THROTTLE: a DEL */
    int result;
    struct weir_throttled out;
    uint32_t cleared; /* DEL: of this key and those before it */
    bool ends;        /* its command: there is a reply */
    size_t after;     /* bytes of `later` that follow it */
};

struct weir_resp_wait {
    struct weir_resp_session *session;
    uint32_t count; /* of entries; 0: nothing waits */
    uint32_t left;  /* of them, with the store */
    struct weir_buf later;
    struct weir_buf behind; /* commands that are not read yet */
    struct weir_resp_entry entries[WEIR_RESP_WAIT_MAX + WEIR_RESP_ARGS_MAX]; /* a DEL's beyond */
};

static inline bool weir_resp_is_waiting(const struct weir_resp_session *session)
{
    return session->wait != NULL && session->wait->count > 0;
}

/* How many more commands may go to the store now. */
static inline uint32_t weir_resp_wait_room(const struct weir_resp_session *session)
{
    uint32_t count = session->wait != NULL ? session->wait->count : 0;
    return count < WEIR_RESP_WAIT_MAX ? WEIR_RESP_WAIT_MAX - count : 0;
}

/* Asks the store for as many as there is room for.  False: there is no memory. */
WEIR_MUST_CHECK bool weir_resp_wait_ask(struct weir_resp_session *session,
                                        const struct weir_throttle *throttles,
                                        const enum weir_resp_dialect *dialects, size_t count);
/* Has the store forget keys; where there is room for any command, there is for these.  The same. */
WEIR_MUST_CHECK bool weir_resp_wait_forget(struct weir_resp_session *session,
                                           const struct weir_str *keys, uint32_t count);
/* Bytes that follow what waits. */
void weir_resp_wait_later(struct weir_resp_session *session, struct weir_str bytes);
/* Keeps the commands that follow, and reads no more of them. */
void weir_resp_wait_behind(struct weir_resp_session *session);
/* At the end of a feed: where nothing is with the store (any more), all is sent.  Says whether
 * something still waits. */
bool weir_resp_wait_flush(struct weir_resp_session *session);
/* The connection is gone. */
void weir_resp_wait_free(struct weir_resp_session *session);

#endif
