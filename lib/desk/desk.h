/* desk.h - a process that decides by itself, and asks `weir serve` for what it cannot: the inside
 * of weir.h's struct weir_desk.
 *
 *     request --> limits of this host only? ------------------> the table decides
 *                 tokens in the table for all the others? ----> spent, decided
 *                 is the service there? --CHECK--> waits --DECISION--> done()
 *                                                    \--late, gone--> done(NULL)
 *                 no ------------------------------------------> on_store_error decides
 *
 *     desk.c          the connection: what is to be sent, what came, who waits and how long
 *     desk_check.c    a request, decided here or asked
 *     desk_owe.c      what passed without the service, told when it is back
 *     desk_ticket.c   what is given back
 *
 * A request is asked for as a whole, its parts of this host included: the service counts those in
 * the same table.  What waits here is no more than an entry of a list; who waits keeps the request,
 * and asks again without the service if nobody answers.
 *
 * Purity: no sockets, no clock.  Threads: the session's.  Allocation: when it is made; buffers grow
 * to what a turn needs.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_DESK_DESK_H
#define WEIR_DESK_DESK_H

#include "engine/reach.h"
#include "proto/desk.h"
#include "store/lease_board.h"

enum weir_desk_state {
    WEIR_DESK_GONE,     /* there is no connection */
    WEIR_DESK_GREETING, /* there is one; nothing has come yet */
    WEIR_DESK_OPEN,
};

enum weir_desk_fate {
    WEIR_DESK_FREE,
    WEIR_DESK_WAITS,
    WEIR_DESK_FORGOTTEN, /* nobody waits any more; what the answer brings is given back */
    WEIR_DESK_RENEWS,    /* a ticket's place */
};

/* A question without an answer. */
struct weir_desk_entry {
    enum weir_desk_fate fate;
    uint32_t generation; /* half of its id: an answer to whoever was here before is none */
    struct weir_desk *desk;
    struct weir_desk_waiter *waiter;       /* of who waits */
    uint64_t *mark;                        /* of who renews; NULL: not needed any more */
    uint64_t key;                          /* the counter that it is about; 0: none, or several */
    uint32_t descriptor;                   /* of that */
    bool is_dated;                         /* its leases are: see store/lease.h */
    uint64_t sent_ns;                      /* by the caller's clock */
    struct weir_desk_entry *before, *next; /* of those that wait, the oldest first; or that are
                                              free */
};

#define WEIR_DESK_DEBTS 1024u

/* Where a frame of `owed` begins. */
struct weir_desk_debt {
    uint64_t hash;
    size_t at;
};

struct weir_desk {
    struct weir_session *session;
    uint64_t timeout_ns;
    enum weir_desk_state state;
    bool is_suspect; /* it was silent, or left before it greeted: nobody waits for its greeting */
    bool is_feeding;
    struct weir_desk_welcome welcome; /* the last one; version 0: there was none yet */
    uint64_t heard_ns;                /* when the last came, by the caller's clock */
    struct weir_buf in, out;
    struct weir_buf owed; /* frames */
    struct weir_desk_debt debts[WEIR_DESK_DEBTS];
    struct weir_desk_spent spent;                        /* not yet told */
    uint64_t spent_ns;                                   /* when it was told last */
    struct weir_descriptor passed[WEIR_DESCRIPTORS_MAX]; /* of who is decided now */
    size_t out_sent;                                     /* bytes of out that have left */
    struct weir_desk_entry *entries;
    uint32_t entry_count;
    struct weir_desk_entry *free, *first, *last;
    struct weir_lease_board *board;
    struct weir_desk_counts counts;
    struct weir_desk_told told;
    struct weir_limit limits[WEIR_CHARGES_MAX]; /* shares, of who is decided now */
};

/* Whether somebody is there to be asked. */
bool weir_desk_is_there(const struct weir_desk *desk);
/* A place for a question.  NULL: as many as may wait already. */
struct weir_desk_entry *weir_desk_enter(struct weir_desk *desk, enum weir_desk_fate fate,
                                        uint64_t now_ns);
uint64_t weir_desk_id(const struct weir_desk_entry *entry);
void weir_desk_leave(struct weir_desk_entry *entry);

/* desk_owe.c: a request has passed without the service; the service is there again. */
void weir_desk_owe(struct weir_desk *desk, const struct weir_request *request, uint64_t now_ns);
void weir_desk_pay(struct weir_desk *desk);

/* desk_ticket.c: gives back all that a decision has taken. */
void weir_desk_release_all(struct weir_desk *desk, const struct weir_decision *decision,
                           uint64_t now_ns);

#endif
