/* redis_link_internal.h - what the files of the link know of each other's structures.
 *
 *     link    all calls under way, the oldest first             redis_link.c
 *       |     which server has a key, and where it goes instead  redis_link_route.c
 *       |     what a Cluster or Sentinels say of that            redis_link_find.c
 *     server  its breaker, what waits to be sent, another try    redis_link_server.c
 *       |
 *     line    one connection: what was sent, which replies are   redis_link_line.c
 *       |     owed for it
 *       +     whether replicas know of it                        redis_link_wait.c
 *       +     answers that are none                              redis_link_complain.c
 *
 * A call is in one place at a time: in a queue (of a server, of those that pause, or of those that
 * will be told that nothing comes of it), or owed a reply on a line.  done() is called from three
 * places only: where a reply comes, where the deadline passes, and at the end of a turn.
 *
 * A server with keys is connected and probed for as long as it has any.  One without is connected
 * when it is to be asked where keys are, and if that fails, somebody else is asked.
 *
 * A line that does not answer is not closed at once, if calls were sent over it: it fades.  Another
 * takes its place, while it waits for what may still come, so that late calls become known.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_REDIS_LINK_INTERNAL_H
#define WEIR_SERVE_REDIS_LINK_INTERNAL_H

#include "base/err.h"
#include "base/str.h"
#include "net/alarm.h"
#include "net/peer.h"
#include "serve/redis_link.h"
#include "store/breaker.h"
#include "store/redis/route.h"
#include "store/redis/url.h"

#include <stdatomic.h>

#define NS_PER_MS UINT64_C(1000000)
#define CONNECT_NS (500 * NS_PER_MS)      /* until a new connection has been greeted, at least */
#define CONNECT_MAX_NS (2000 * NS_PER_MS) /* and at most, however patient calls are */
#define PROBE_NS (500 * NS_PER_MS)        /* unanswered for so long: another connection is tried */
#define TRIAL_NS (1000 * NS_PER_MS)       /* without a call that fails: it is back */
#define FADE_NS (60000 * NS_PER_MS)       /* that a faded line is listened to */
#define WAIT_PART 3                 /* of the deadline: how long replicas have to acknowledge */
#define WAIT_MAX_MS 100u            /* and at most: nothing else is answered meanwhile */
#define DOUBT_NS (1000 * NS_PER_MS) /* until replicas are asked again that did not */
#define TRIES_FAST 4                /* of one call; further ones each after a pause */
#define OUT_MAX (16u << 20)         /* bytes of what one turn sends to one server */
#define UNSENT_MAX (1u << 20) /* bytes that a socket does not take: then it is asked no more */
#define RETELL_NS (1000 * NS_PER_MS)  /* before another reason for being away is told */
#define SETTLED_NS (1000 * NS_PER_MS) /* connected for so long: it was let in for good */
#define PAUSE_NS (3 * NS_PER_MS)      /* before a call is tried again that Redis told to wait */
#define FIND_NS (10000 * NS_PER_MS)   /* between two looks at who has which keys, if all is well */
#define FIND_MASTER_NS (1000 * NS_PER_MS)  /* the same of Sentinels, whose clients are not told */
#define FIND_AWAY_NS (200 * NS_PER_MS)     /* the same, if it is not */
#define FIND_PATIENCE_NS (500 * NS_PER_MS) /* for an answer: a Cluster's may be long */
#define FIND_LEAST_NS (50 * NS_PER_MS)     /* whatever calls for one */
#define WHY_MAX 160

struct weir_redis_asks {
    struct weir_redis_ask *first, *last;
};

/* What a reply will be to. */
enum owed_kind {
    OWED_CALL,
    OWED_GREETING,
    OWED_LOAD,
    OWED_PROBE,
    OWED_ASKING, /* leads a call over */
    OWED_WAIT,   /* for replicas */
};

struct owed {
    struct weir_redis_ask *ask; /* NULL: nobody waits for it */
    uint64_t tag;               /* of one that is late; 0: nobody wants to know */
    uint64_t sent_ns;
    uint64_t end;   /* of its command, in bytes of the line */
    uint64_t wait;  /* the number of the WAIT behind it; 0: it needs none */
    uint32_t loads; /* that were sent before it */
    uint8_t kind;
    bool is_late;
};

struct weir_redis_line {
    struct weir_redis_server *server;
    struct weir_peer *peer;
    struct weir_redis_reader *reader;
    struct weir_buf out;  /* of this turn */
    struct owed *owed;    /* a ring: the one at place p is owed[p & (room - 1)] */
    uint64_t first, next; /* places */
    uint32_t room;
    uint32_t calls;     /* owed */
    uint32_t greetings; /* owed */
    uint32_t loads;     /* sent */
    uint64_t written;   /* bytes */
    uint64_t waiting;   /* the number of the WAIT that is owed; 0: none is */
    uint64_t wanted;    /* of the next one, for calls that were put since; 0: none was */
    uint64_t ready_ns;
    bool is_ready;     /* greeted, and the script is there */
    bool wants_load;   /* before the next call */
    bool has_served;   /* a call was answered */
    char why[WHY_MAX]; /* it ends, in words; empty: it does not yet */
};

struct weir_redis_server {
    struct weir_redis_link *link;
    struct weir_redis_server *next;
    struct weir_breaker breaker;
    struct weir_redis_line *line;   /* NULL: none */
    struct weir_redis_line *fading; /* NULL: none */
    struct weir_redis_asks waiting; /* to be sent */
    struct weir_alarm alarm; /* to connect, to give up connecting, to probe, to give up that */
    struct weir_alarm fade_alarm;
    enum weir_redis_how how;
    uint32_t attempts;   /* connections tried */
    uint64_t trying_ns;  /* since when, with nobody refused yet; 0: it is not tried */
    uint64_t down_ns;    /* since when it says that the Cluster is; 0: it does not */
    uint32_t complaints; /* in a row */
    bool is_probing;     /* a probe is owed */
    bool is_away;        /* as was last told */
    bool has_keys;       /* calls go here */
    bool is_sentinel;    /* has a login of its own; knows nothing of databases, scripts */
    bool is_listed;      /* in the map that is being applied */
    bool cannot_load;    /* nor with the other way: what is there must do */
    bool is_doubted;     /* its replicas did not answer the last WAIT */
    uint64_t doubted_ns; /* until then; then another one finds out */
    struct weir_redis_address address;
    uint64_t told_ns;       /* when it was said that it is away */
    char why_away[WHY_MAX]; /* and why */
};

/* Where a Cluster or Sentinels say what lies where. */
struct weir_redis_finder {
    struct weir_redis_ask ask;       /* of the one question at a time */
    struct weir_redis_server *asked; /* the last */
    struct weir_redis_map *map;      /* of a Cluster: room to read into */
    struct weir_alarm alarm;         /* for the next */
    uint64_t begun_ns;               /* the last */
    bool has_tried;                  /* once at least, and in vain if nothing is known yet */
    bool is_doubted;                 /* the one asked last did not help: another */
    bool is_told;                    /* that nobody says what lies where */
};

struct weir_redis_link {
    struct weir_loop *loop;
    struct weir_log *log;
    struct weir_redis_complaints *complaints;
    struct weir_tls *tls;
    struct weir_redis_server *servers;
    struct weir_redis_server *sole;     /* has all keys; NULL: not known, or see by_slot */
    struct weir_redis_server **by_slot; /* NULL: one server has all; its entries may be, too */
    struct weir_redis_finder finder;
    struct weir_redis_ask *oldest, *newest; /* under way */
    struct weir_redis_asks lost;            /* to be told so at the end of the turn */
    struct weir_redis_asks paused;          /* to be tried again */
    struct weir_alarm pause;
    struct weir_chore chore;
    struct weir_alarm deadline; /* of the oldest, or earlier */
    uint64_t deadline_ns;
    uint64_t chance; /* for breakers' seeds */
    uint32_t queue_max;
    void (*on_late)(void *ctx, uint64_t tag, int err, const struct weir_redis_answer *answer);
    uint32_t replicas; /* that a WAIT is for; 0: there are none */
    uint32_t wait_ms;  /* how long */
    uint64_t waits;    /* numbers given out */
    void (*on_replicated)(void *ctx, uint64_t wait, bool is_replicated);
    void *ctx;
    char *text; /* of the URL, to which url points */
    struct weir_redis_url url;
    _Atomic uint64_t counts[WEIR_REDIS_COUNTS];
};

static inline void weir_redis_count_add(struct weir_redis_link *link, enum weir_redis_count which,
                                        int64_t n)
{
    /* relaxed, and no read-modify-write: one writer; readers want a number that was true once */
    _Atomic uint64_t *count = &link->counts[which];
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + (uint64_t)n,
                          memory_order_relaxed);
}

/* ---- redis_link.c: calls ---- */

void weir_redis_asks_add(struct weir_redis_asks *queue, struct weir_redis_ask *ask);
void weir_redis_asks_remove(struct weir_redis_ask *ask);
/* It is under way from now on. */
void weir_redis_ask_enter(struct weir_redis_link *link, struct weir_redis_ask *ask);
/* It is over: done() is called. */
void weir_redis_ask_finish(struct weir_redis_link *link, struct weir_redis_ask *ask, int err,
                           const struct weir_redis_answer *answer);
/* The same, at the end of the turn, for one that is in no queue, or in any. */
void weir_redis_ask_lose(struct weir_redis_link *link, struct weir_redis_ask *ask);
/* A late call has become known, or never will. */
void weir_redis_tell_late(struct weir_redis_link *link, uint64_t tag, int err,
                          const struct weir_redis_answer *answer);

/* ---- redis_link_route.c ---- */

/* One for each of the URL's hosts.  0, or why[]. */
WEIR_MUST_CHECK int weir_redis_route_init(struct weir_redis_link *link, char *why, size_t why_len);
/* The server that has a key; NULL: nobody knows. */
struct weir_redis_server *weir_redis_server_of(const struct weir_redis_link *link,
                                               struct weir_str key);
/* To the server that has its key. */
void weir_redis_route(struct weir_redis_link *link, struct weir_redis_ask *ask);
/* MOVED, ASK: to the server that these name.  False: it is none of ours. */
bool weir_redis_route_redirect(struct weir_redis_server *from, struct weir_redis_ask *ask,
                               struct weir_str words);
/* Again, a little later. */
void weir_redis_route_pause(struct weir_redis_link *link, struct weir_redis_ask *ask);
/* What was found. */
void weir_redis_route_map(struct weir_redis_link *link, const struct weir_redis_map *map);
void weir_redis_route_master(struct weir_redis_link *link,
                             const struct weir_redis_address *address);

/* ---- redis_link_find.c ---- */

WEIR_MUST_CHECK int weir_redis_find_init(struct weir_redis_link *link);
/* Somebody is not where it was: look now, or as soon as may be. */
void weir_redis_find_soon(struct weir_redis_link *link);

/* ---- redis_link_server.c ---- */

WEIR_MUST_CHECK int weir_redis_server_new(struct weir_redis_server **out,
                                          struct weir_redis_link *link,
                                          const struct weir_redis_address *address);
void weir_redis_server_free(struct weir_redis_server *server);
void weir_redis_server_set_keys(struct weir_redis_server *server, bool has_keys);
void weir_redis_server_begin(struct weir_redis_server *server); /* to connect, if it is not */
/* Whether nothing would be lost with it. */
bool weir_redis_server_is_idle(const struct weir_redis_server *server);
void weir_redis_server_take(struct weir_redis_server *server, struct weir_redis_ask *ask);
void weir_redis_server_flush(struct weir_redis_server *server); /* the end of a turn */
/* A call was answered in time; or it was not, or refused. */
void weir_redis_server_succeed(struct weir_redis_server *server);
void weir_redis_server_fail(struct weir_redis_server *server, const char *why);
/* It says that the Cluster is down.  True: it has not for long, and a call may try once more. */
bool weir_redis_server_down(struct weir_redis_server *server);
/* It says something else. */
void weir_redis_server_up(struct weir_redis_server *server);
/* What its lines tell it. */
void weir_redis_server_ready(struct weir_redis_server *server);
void weir_redis_server_lost(struct weir_redis_server *server, struct weir_redis_line *line,
                            const char *why);
void weir_redis_server_probed(struct weir_redis_server *server, bool is_good, const char *why);

/* ---- redis_link_line.c ---- */

WEIR_MUST_CHECK int weir_redis_line_open(struct weir_redis_line **out,
                                         struct weir_redis_server *server, char *why,
                                         size_t why_len);
/* What it owes is settled: calls that were sent are late, the others lost. */
void weir_redis_line_close(struct weir_redis_line *line);
void weir_redis_line_forget(struct weir_redis_line *line); /* without telling anybody */
/* False: it takes no more now, and nothing was done. */
bool weir_redis_line_put(struct weir_redis_line *line, struct weir_redis_ask *ask, uint64_t now_ns);
void weir_redis_line_probe(struct weir_redis_line *line, uint64_t now_ns);
/* A WAIT for all that was put before.  False: there is no room. */
bool weir_redis_line_put_wait(struct weir_redis_line *line, uint64_t now_ns);
void weir_redis_line_send(struct weir_redis_line *line); /* all that was put, in one write */
/* The call's deadline has passed, or nobody waits for it: its reply will be nobody's. */
void weir_redis_line_abandon(struct weir_redis_line *line, const struct weir_redis_ask *ask,
                             bool is_late);

/* ---- redis_link_complain.c ---- */

/* A call was answered, and not with what it asked for; or with it. */
void weir_redis_complain(struct weir_redis_server *server, struct weir_str key,
                         struct weir_str words);
void weir_redis_content(struct weir_redis_server *server);

/* ---- redis_link_wait.c ---- */

/* The number of the WAIT that a call is to have behind it; 0: it needs none, or it is no use. */
uint64_t weir_redis_wait_for(struct weir_redis_line *line, const struct weir_redis_ask *ask);
/* The end of a turn, in which something was put: a WAIT behind it, if there is to be one. */
void weir_redis_wait_put(struct weir_redis_line *line, uint64_t now_ns);
/* Its reply. */
void weir_redis_wait_answered(struct weir_redis_line *line, const struct weir_redis_node *node,
                              uint64_t now_ns);
/* There will be none. */
void weir_redis_wait_end(struct weir_redis_line *line);

#endif
