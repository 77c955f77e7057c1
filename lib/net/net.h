/* net.h - loops, listeners and connections: moves bytes, knows no protocol.
 *
 *                      accept            bytes in                      bytes out
 *     weir_listener ------------> conn ------------> protocol->feed() --------> one write a turn
 *                                  ^                      |
 *                                  |     weir_conn_send() v
 *                                  +------ output buffer (bounded)
 *
 * One loop a thread, nothing shared between loops but a counter of connections.  The clock is read
 * once for each turn of a loop; all that a turn produced for a connection leaves in one write.  A
 * protocol is a table of functions without I/O: it is fed bytes and sends bytes.  TLS is between
 * the socket and the protocol, which does not notice.
 *
 * Everything that can grow has a maximum, chosen when the listener is made; what goes beyond is
 * closed and told to on_event(), and nobody else notices.  A peer that does not read its answers is
 * not read from, once a quarter of output_max is queued.
 *
 * Threads: a connection belongs to its loop's thread.  weir_loop_stop(), weir_loop_post() and
 * weir_listener_close() may be called from any.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_NET_NET_H
#define WEIR_NET_NET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/weir.h>

struct weir_loop;
struct weir_listener;
struct weir_conn;
struct weir_tls;

/* What a connection speaks.  All functions run in the loop's thread. */
struct weir_protocol {
    const char *name;
    /* A connection has come; *state is the protocol's.  0, or negative: refuse it. */
    int (*open)(void **state, void *ctx, struct weir_conn *conn);
    /* Bytes have come.  All of them are consumed.  0: go on; negative: send what is queued (after
     * a last turn()), then close. */
    int (*feed)(void *state, const uint8_t *bytes, size_t len);
    /* The end of a turn in which the connection was fed or woken, or what was queued has left: the
     * last chance to send.  Negative: as feed().  May be NULL. */
    int (*turn)(void *state);
    /* The service is going down: finish what is open, refuse what is new.  May be NULL. */
    void (*drain)(void *state);
    /* Its time is up: idle_ms without a byte, or request_ms amid a request.  True: it has sent
     * something, a question or its last words, and stays for as long as an answer may take.  False,
     * or NULL: it is closed. */
    bool (*expire)(void *state, bool is_amid);
    /* The connection is gone.  Nothing may be sent any more. */
    void (*close)(void *state);
};

struct weir_net_limits {
    uint32_t connections_max; /* of the listener, over all loops; 0: 65536 */
    uint32_t output_max;      /* bytes queued on one connection; 0: 4 MiB */
    uint32_t idle_ms;         /* no byte in either direction for so long: closed; 0: 5 min */
    uint32_t first_ms;        /* from accept until the protocol calls weir_conn_alive(); 0: 10 s */
    uint32_t request_ms;      /* from weir_conn_amid(true) to false, whatever comes; 0: 30 s */
};

/* What a listener did to a peer that somebody may want to read of. */
enum weir_net_event {
    WEIR_NET_REFUSED,    /* connections_max is reached, or the protocol did not want it */
    WEIR_NET_FIRST_LATE, /* first_ms has passed without anything sensible */
    WEIR_NET_IDLE,       /* idle_ms has passed without a byte */
    WEIR_NET_SLOW,       /* request_ms has passed, and the request is not whole */
    WEIR_NET_OVERFLOW,   /* more than output_max was queued */
    WEIR_NET_TLS,        /* the handshake failed */
    WEIR_NET_NO_FILES,   /* the process has no descriptor left: accepting pauses */
};

/* Where to listen: HOST:PORT, :PORT, [IPv6]:PORT, unix:PATH. */
struct weir_listen_options {
    const char *address;
    const struct weir_protocol *protocol;
    void *protocol_ctx;
    struct weir_tls *tls; /* NULL: plain; must outlive the listener */
    struct weir_net_limits limits;
    /* Another process may listen here too, for as long as an upgrade takes: SO_REUSEPORT, or for
     * unix sockets taking over the path.  False: then the address is in use. */
    bool is_shared;
    /* May be NULL.  In the thread of a loop; peer as weir_conn_peer(), detail in words or NULL. */
    void (*on_event)(void *ctx, enum weir_net_event event, const char *peer, const char *detail);
    void *event_ctx;
};

/* ---- loops ---- */

WEIR_MUST_CHECK int weir_loop_new(struct weir_loop **out);
void weir_loop_free(struct weir_loop *loop); /* after weir_loop_run() has returned */
/* Runs until stopped.  Every turn begins with read_clock(clock_ctx), whose result weir_loop_now()
 * gives. */
void weir_loop_run(struct weir_loop *loop, uint64_t (*read_clock)(void *ctx), void *clock_ctx);
uint64_t weir_loop_now(const struct weir_loop *loop);
/* A pointer of whoever runs the loop, for those who have only the loop. */
void weir_loop_set_owner(struct weir_loop *loop, void *owner);
void *weir_loop_owner(const struct weir_loop *loop);
/* How many connections the loop has.  From any thread. */
uint32_t weir_loop_load(const struct weir_loop *loop);

/* Something to be done in a loop's thread.  Its memory is the poster's, until it is run: posting
 * asks for none, and so cannot fail. */
struct weir_post {
    /* loop is NULL where it does not run any more. */
    void (*run)(struct weir_post *post, struct weir_loop *loop);
    struct weir_post *next;  /* the loop's own, as is the flag */
    _Atomic bool is_waiting; /* posted, and not yet run */
};
/* From any thread: run it, soon.  What waits already is run once for both. */
void weir_loop_post(struct weir_loop *loop, struct weir_post *post);

/* Something to be done at the end of the loop's turn, when its connections have had theirs.  What
 * it gives them to say still leaves in this turn. */
struct weir_chore {
    void (*run)(struct weir_chore *chore);
    struct weir_chore *next; /* the loop's own, as is the flag */
    bool is_set;
};
/* In the loop's thread.  What is set already is run once for both. */
void weir_chore_set(struct weir_loop *loop, struct weir_chore *chore);
void weir_chore_cancel(struct weir_loop *loop, struct weir_chore *chore); /* also if not set */

/* From any thread: close listeners, drain connections for at most grace_ms, return from run.
 * Called again, the new grace counts. */
void weir_loop_stop(struct weir_loop *loop, uint32_t grace_ms);

/* A timer of the loop: calls fn every period_ms (first after it).  Freed with the loop. */
struct weir_loop_timer;
WEIR_MUST_CHECK int weir_loop_every(struct weir_loop *loop, struct weir_loop_timer **out,
                                    uint32_t period_ms, void (*fn)(void *ctx), void *ctx);

/* ---- listeners ---- */

/* Every connection is a descriptor: takes as many as the system grants. */
void weir_net_raise_files(void);

/* Cuts "HOST:PORT"; host is empty for ":PORT", and of [IPv6] without brackets. */
#define WEIR_ADDRESS_HOST_LEN_MAX 255
#define WEIR_ADDRESS_UNIX "unix:"
bool weir_address_split(const char *text, char host[WEIR_ADDRESS_HOST_LEN_MAX + 1],
                        const char **port);

/* Listens on behalf of several loops: the first accepts and hands each connection to the least
 * loaded.  why[] says in words what is wrong (`127.0.0.1:8081: address already in use`). */
WEIR_MUST_CHECK int weir_listener_new(struct weir_listener **out, struct weir_loop **loops,
                                      uint32_t loop_count,
                                      const struct weir_listen_options *options, char *why,
                                      size_t why_len);
/* Whether one could listen there now, which is over when this returns.  0, or why[]. */
WEIR_MUST_CHECK int weir_listener_try(const char *address, char *why, size_t why_len);
/* The address that it really listens on (port 0 is filled in), as HOST:PORT or unix:PATH. */
const char *weir_listener_address(const struct weir_listener *listener);
/* From any thread: takes what waits in the queue, then listens no more.  Connections stay. */
void weir_listener_close(struct weir_listener *listener);
void weir_listener_free(struct weir_listener *listener); /* after its loops have stopped */

struct weir_listener_stats {
    uint64_t accepted, open, refused, timed_out, overflowed;
};
void weir_listener_stats(const struct weir_listener *listener, struct weir_listener_stats *out);

/* ---- connections, as their protocol sees them ---- */

/* Queues bytes.  They leave at the end of the turn.  Over output_max the connection is closed. */
void weir_conn_send(struct weir_conn *conn, const void *bytes, size_t len);
/* How many bytes are queued: a protocol that sees many stops reading requests. */
size_t weir_conn_queued(const struct weir_conn *conn);
/* The peer has said something sensible: from now on only the idle timeout counts. */
void weir_conn_alive(struct weir_conn *conn);
/* A request has begun to come and is not whole, or it is.  Who sends a byte now and then is never
 * idle; but a request has request_ms to come. */
void weir_conn_amid(struct weir_conn *conn, bool is_amid);
/* The peer waits for an answer that will come later, or has got it: meanwhile no time counts. */
void weir_conn_owe(struct weir_conn *conn, bool is_owed);
/* Nothing more is read from the peer, or it is again: for who has enough to do with what came. */
void weir_conn_deafen(struct weir_conn *conn, bool is_deaf);
/* Ask for another turn() even if no byte comes (answers that were delayed by a timer). */
void weir_conn_wake(struct weir_conn *conn);
/* Close once everything queued has left. */
void weir_conn_finish(struct weir_conn *conn);
/* From drain(), for a peer that owes us nothing and may be about to ask: its next request is heard
 * if it comes within a second; drain() is called again then.  Else the connection is closed. */
void weir_conn_last_call(struct weir_conn *conn);
struct weir_loop *weir_conn_loop(const struct weir_conn *conn);
/* The peer's address as text without port ("127.0.0.1", "2001:db8::1", "unix"). */
const char *weir_conn_peer(const struct weir_conn *conn);

/* ---- TLS ---- */

struct weir_tls_options {
    const char *cert_path, *key_path;
    const char *client_ca_path; /* not NULL: a client certificate is required (mTLS) */
    const char *client_san;     /* not NULL: and must bear this DNS name */
    bool offer_h2;              /* ALPN h2 */
};
WEIR_MUST_CHECK int weir_tls_new(struct weir_tls **out, const struct weir_tls_options *options,
                                 char *why, size_t why_len);
/* For connections that we make (net/peer.h). */
struct weir_tls_client_options {
    const char *ca_path;              /* NULL: the authorities that the system trusts */
    const char *cert_path, *key_path; /* ours, for servers that want to know; or NULL */
};
WEIR_MUST_CHECK int weir_tls_client_new(struct weir_tls **out,
                                        const struct weir_tls_client_options *options, char *why,
                                        size_t why_len);
/* Reads the files again; on failure the old certificates stay. */
WEIR_MUST_CHECK int weir_tls_reload(struct weir_tls *tls, char *why, size_t why_len);
/* Whether a file is another than the one that was read last (by device, inode, size, time). */
bool weir_tls_has_changed(const struct weir_tls *tls);
void weir_tls_free(struct weir_tls *tls);

#endif
