/* hold.h - answers of /check that wait: what a leaky bucket asks for, done by us.
 *
 *     decided, delay 300 ms --> kept here, an alarm set --300 ms--> sent
 *                                        |
 *                                        +-- the client leaves: its place is given back, if it
 *                                            is still the last of the queue
 *
 * HTTP/1.1 answers in order, so a connection has at most one held; a thread has at most as many as
 * its memory, taken at start, has room for.  Who finds no room, or would wait longer than hold_max,
 * is refused and told when to come back: nobody passes early.
 *
 * Threads: the worker's.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_HOLD_H
#define WEIR_SERVE_HOLD_H

#include "net/alarm.h"
#include "serve/worker.h"

#define WEIR_HOLD_ANSWER_MAX 4096
#define WEIR_HOLD_TICKETS_MAX 8 /* beyond, places cannot be given back; they were asked for */

struct weir_holds;

/* What a worker counts of them. */
enum weir_hold_count {
    WEIR_HOLD_COUNT_NOW,      /* held at this moment */
    WEIR_HOLD_COUNT_EVER,     /* since the start */
    WEIR_HOLD_COUNT_TOO_LONG, /* refused: would have waited longer than hold_max */
    WEIR_HOLD_COUNT_NO_ROOM,  /* refused: hold_requests were held */
    WEIR_HOLD_COUNTS
};

/* One answer. */
struct weir_hold {
    struct weir_alarm alarm; /* the user's to set */
    struct weir_hold *next;  /* among the free */
    struct weir_ask *ask;    /* whose places are the store's; NULL: none are */
    uint32_t answer_len, ticket_count;
    struct weir_ticket tickets[WEIR_HOLD_TICKETS_MAX];
    char answer[WEIR_HOLD_ANSWER_MAX];
};

/* Room for so many at once; 0 is none. */
WEIR_MUST_CHECK int weir_holds_new(struct weir_holds **out, struct weir_loop *loop,
                                   uint32_t holds_max);
void weir_holds_free(struct weir_holds *holds);

/* From any thread: a number that was true once. */
uint64_t weir_holds_count(const struct weir_holds *holds, enum weir_hold_count counter);
/* Somebody would wait too long, and is refused. */
void weir_holds_note_too_long(struct weir_holds *holds);

/* NULL where there is no room. */
struct weir_hold *weir_hold_take(struct weir_holds *holds);
/* Keeps what the decision's places were, in case they must be given back. */
void weir_hold_remember(struct weir_hold *hold, const struct weir_decision *decision,
                        struct weir_asks *asks);
/* Its alarm is cancelled.  is_forfeit: nobody waits for the answer any more, and the places that
 * are still the last of their queues are free. */
void weir_hold_give_back(struct weir_hold *hold, struct weir_worker *worker, bool is_forfeit);

#endif
