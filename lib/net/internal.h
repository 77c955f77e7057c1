/* internal.h - what the files of lib/net know of each other's structures.
 *
 *     weir_listener --- side (one for each loop) --- conn, conn, conn   by age: the oldest first
 *          |              |
 *     accepts in        belongs to a weir_loop, which has a clock, a buffer to read into, spare
 *     one loop          buffers to write from, and a list of connections with work to do ("dirty")
 *
 * Everything that happens to a connection only marks it dirty; turn(), writing and closing are done
 * for the whole list at the end of the loop's turn, in flush.c.  So nothing is ever freed below a
 * protocol's function, and all answers of a turn leave in one write.
 *
 * Ages: a side keeps its connections in lists by the time of their last sign of life, one list for
 * each phase, because all in a list have the same limit: what is too old is at the head.  One timer
 * for a loop looks at the heads.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_NET_INTERNAL_H
#define WEIR_NET_INTERNAL_H

#include "base/err.h"
#include "net/net.h"

#include <netinet/in.h>
#include <openssl/ssl.h>
#include <stdatomic.h>
#include <uv.h>

#define INPUT_LEN 65536      /* read at once */
#define PLAIN_LEN 16384      /* a TLS record's worth */
#define OUTBUF_LEN 16384     /* of a spare output buffer; larger ones are not kept */
#define OUTBUF_SPARES_MAX 64 /* kept by a loop */
#define LINGER_MS 1000       /* for the peer to read our last words, see end_writing() */
#define ASKED_MS 10000       /* for a sign of life of who was asked for one */
#define LATE_MS 1000         /* for the last request of who was silent when we were leaving */

/* Bytes on their way out; the request lies beside them, so writing allocates nothing more. */
struct outbuf {
    struct outbuf *next; /* among the spares */
    size_t len, cap;
    uv_write_t request;
    uint8_t bytes[];
};

enum phase {
    PHASE_FIRST,  /* nothing sensible has come yet */
    PHASE_IDLE,   /* the usual */
    PHASE_AMID,   /* a request is under way; bytes do not prolong it */
    PHASE_OWED,   /* it waits for us, not we for it */
    PHASE_ASKED,  /* its time was up, and the protocol has asked it something */
    PHASE_LINGER, /* we have said our last */
    PHASE_LATE,   /* silent when draining began: one more request is heard */
    PHASES
};

/* What goes to and comes from a socket; TLS, if any, is in between. */
struct flow {
    struct weir_loop *loop;
    SSL *ssl;              /* NULL: plain */
    const uint8_t *cipher; /* what the SSL has not read yet of the bytes being fed */
    size_t cipher_len;
    struct outbuf *plain; /* to be encrypted; without TLS always NULL */
    struct outbuf *out;   /* to be written */
};

/* A socket of libuv's, of either kind. */
union io {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_tcp_t tcp;
    uv_pipe_t pipe;
};

struct weir_conn {
    union io io;
    struct weir_side *side;
    void *state;              /* the protocol's */
    struct flow flow;         /* written at the end of the turn */
    struct outbuf *in_flight; /* given to uv_write */
    struct weir_conn *older, *newer;
    struct weir_conn *next_dirty;
    uint64_t stamp_ms; /* the place in the list of ages */
    uint8_t phase;
    bool is_open;      /* the protocol knows it */
    bool has_fed;      /* the protocol has seen bytes */
    bool is_dirty;     /* in the loop's list, or being flushed */
    bool is_woken;     /* wants another turn */
    bool is_finishing; /* close once all is written */
    bool is_finished;  /* the protocol has had its last turn */
    bool is_doomed;    /* close now */
    bool is_closing;   /* uv_close was called */
    bool is_paused;    /* not reading: the peer does not read our answers, or we are deaf */
    bool is_deaf;      /* weir_conn_deafen() */
    bool has_ended;    /* the peer will send no more */
    char peer[INET6_ADDRSTRLEN];
};

/* One loop's share of a listener. */
struct weir_side {
    struct weir_listener *listener;
    struct weir_loop *loop;
    struct weir_side *next; /* of the loop */
    bool is_linked;         /* the loop knows it */
    struct weir_conn *oldest[PHASES], *newest[PHASES];
    uint32_t limit_ms[PHASES];
    uint32_t grain_ms; /* a connection's age is not kept finer than this */
    _Atomic uint64_t timed_out, overflowed;
};

struct weir_listener {
    char *address; /* as asked for, then as it is */
    const struct weir_protocol *protocol;
    void *protocol_ctx;
    struct weir_tls *tls;
    struct weir_net_limits limits;
    void (*on_event)(void *ctx, enum weir_net_event event, const char *peer, const char *detail);
    void *event_ctx;
    struct weir_loop **loops;
    uint32_t loop_count;
    struct weir_side *sides;
    int fd; /* -1 when closed; of the accepting loop's thread once that runs */
    bool is_unix, is_accepting;
    char *unix_path;
    uint64_t unix_device, unix_inode;
    struct weir_listener *next; /* accepted by the same loop */
    uv_poll_t poll;
    uv_timer_t pause; /* out of descriptors: look again after it */
    _Atomic uint32_t open;
    _Atomic uint64_t accepted, refused;
};

struct weir_loop_timer {
    uv_timer_t timer;
    struct weir_loop *loop;
    struct weir_loop_timer *next;
    void (*fn)(void *ctx);
    void *ctx;
};

/* alarm.c */
struct alarms {
    uv_timer_t timer; /* rings for the first */
    struct weir_alarm **at;
    uint32_t count, max;
};

struct weir_loop {
    uv_loop_t uv;
    uv_prepare_t prepare;
    uv_check_t check;
    uv_async_t async;
    uv_timer_t ticker; /* looks for the aged */
    uv_timer_t grace;
    uint64_t (*read_clock)(void *ctx);
    void *clock_ctx;
    uint64_t now_ns;
    bool is_fresh; /* now_ns was read in this turn */
    bool is_draining, is_shut;
    void *owner;
    _Atomic(struct weir_post *) inbox; /* newest first */
    _Atomic uint32_t load;             /* connections, those on their way to us included */
    _Atomic bool is_leaving;           /* send no more; see arrive() */
    _Atomic uint64_t stop;             /* 0, or 1 + grace_ms */
    uint32_t conn_count;
    uint32_t tick_ms;
    struct weir_side *sides;
    struct weir_listener *listeners; /* those that accept here */
    struct weir_loop_timer *timers;
    struct alarms alarms;
    struct weir_conn *dirty, **dirty_end;
    struct weir_chore *chores, **chores_end;
    uint32_t chore_count;
    struct outbuf *spares;
    uint32_t spare_count;
    uint8_t plain[PLAIN_LEN];
    uint8_t input[INPUT_LEN];
};

/* loop.c */
void weir_loop_enter(struct weir_loop *loop); /* first thing in every callback: reads the clock */
void weir_loop_maybe_done(struct weir_loop *loop);
void weir_loop_run_chores(struct weir_loop *loop);

/* dial.c: HOST:PORT or unix:PATH (unix:@NAME for an abstract one) to a socket that is connected.
 * timeout_ms is for each call on it, this one included; 0: none ever waits, as suits datagrams. */
WEIR_MUST_CHECK int weir_dial(int *out_fd, const char *address, int socktype, uint32_t timeout_ms,
                              char *why, size_t why_len);
/* HOST:PORT alone.  To be freed with freeaddrinfo(). */
struct addrinfo;
WEIR_MUST_CHECK int weir_dial_resolve(const char *address, int socktype, struct addrinfo **found,
                                      char *why, size_t why_len);

/* listener.c */
void weir_listener_shut(struct weir_listener *listener); /* in the thread of its loop */
void weir_listener_tell(struct weir_listener *listener, enum weir_net_event event, const char *peer,
                        const char *detail);

/* conn.c */
void weir_conn_begin(struct weir_side *side, int fd, const char *peer); /* takes fd */
void weir_conn_mark(struct weir_conn *conn);                            /* dirty */
void weir_conn_close(struct weir_conn *conn);                           /* from flush.c only */
void weir_conn_drain(struct weir_conn *conn);
void weir_conn_set_reading(struct weir_conn *conn, bool is_reading);

/* flush.c */
void weir_loop_flush(struct weir_loop *loop);
struct outbuf *weir_outbuf_append(struct weir_loop *loop, struct outbuf *buf, const void *bytes,
                                  size_t len); /* NULL: out of memory, and buf is gone */
void weir_outbuf_release(struct weir_loop *loop, struct outbuf *buf); /* NULL is fine */

/* ages.c */
void weir_ages_enter(struct weir_conn *conn, enum phase phase);
void weir_ages_leave(struct weir_conn *conn);
void weir_ages_touch(struct weir_conn *conn);
void weir_ages_tick(struct weir_loop *loop);

/* address.c: `text` to a socket that listens.  Fills in what the listener must know of it. */
WEIR_MUST_CHECK int weir_address_listen(struct weir_listener *listener, const char *text,
                                        bool is_shared, char *why, size_t why_len);
void weir_address_peer(const struct sockaddr_storage *from, char *out, size_t len);
void weir_address_unlink(const struct weir_listener *listener);

/* tls_flow.c */
enum { FLOW_ENDED = -1, FLOW_BROKEN = -2 };
WEIR_MUST_CHECK int weir_flow_begin(struct flow *flow, SSL *ssl); /* takes ssl, NULL included */
void weir_flow_end(struct flow *flow);
/* From what is being fed to loop->plain: how many bytes; 0: all is read; or one of the above. */
WEIR_MUST_CHECK int weir_flow_read(struct flow *flow);
const char *weir_flow_why(void); /* it is broken; NULL: not known */
/* What is in plain, once hands are shaken.  False: it is of no more use. */
WEIR_MUST_CHECK bool weir_flow_encrypt(struct flow *flow);

/* tls_conn.c */
WEIR_MUST_CHECK int weir_tls_begin(struct weir_conn *conn);
void weir_tls_feed(struct weir_conn *conn, const uint8_t *bytes, size_t len);
void weir_tls_encrypt(struct weir_conn *conn); /* what is in plain, as far as possible */
void weir_tls_goodbye(struct weir_conn *conn);
void weir_conn_feed(struct weir_conn *conn, const uint8_t *bytes, size_t len); /* to the protocol */

/* tls.c */
SSL *weir_tls_ssl(struct weir_tls *tls); /* a new one, under the certificates of now; or NULL */
/* The same, of a client that talks to host, whose name its certificate must bear. */
SSL *weir_tls_client_ssl(struct weir_tls *tls, const char *host);

#endif
