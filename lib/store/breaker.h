/* breaker.h - whether a server is worth asking: it is left alone while it does not answer.
 *
 *                 5 failures in a row, or trip()
 *     CLOSED ------------------------------------> OPEN  <--+ a failure, or an answer to a probe
 *       ^  all calls pass              none passes  |       | that is none
 *       |                                  a probe's answer |
 *       +-- an answer -- TRIAL <--------------------+-------+
 *                        all calls pass
 *
 * While open, a probe is due after a pause: 50 ms at first, then twice as long each time, up to
 * half a second, of which each is cut by up to half at random, so that many nodes do not come back
 * at one instant.  Only a call's answer makes the pause short again.
 *
 * Purity: no clock, no I/O; chance comes from a seed.  Threads: one at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_BREAKER_H
#define WEIR_STORE_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

#define WEIR_BREAKER_FAILURES 5 /* in a row */
#define WEIR_BREAKER_PAUSE_FIRST_NS UINT64_C(50000000)
#define WEIR_BREAKER_PAUSE_MAX_NS UINT64_C(500000000)

enum weir_breaker_state { WEIR_BREAKER_CLOSED, WEIR_BREAKER_OPEN, WEIR_BREAKER_TRIAL };

struct weir_breaker {
    enum weir_breaker_state state;
    uint32_t failures; /* in a row */
    uint64_t pause_ns; /* the next, before chance cuts it */
    uint64_t due_ns;   /* open: when to probe */
    uint64_t chance;
};

void weir_breaker_init(struct weir_breaker *b, uint64_t seed);

static inline bool weir_breaker_lets(const struct weir_breaker *b)
{
    return b->state != WEIR_BREAKER_OPEN;
}

/* A call was answered in time. */
void weir_breaker_succeed(struct weir_breaker *b);
/* A call was not, or refused.  True where it opens by that. */
bool weir_breaker_fail(struct weir_breaker *b, uint64_t now_ns);
/* There is nobody to ask: open, and the next probe is due after a pause.  True where it was not
 * open before. */
bool weir_breaker_trip(struct weir_breaker *b, uint64_t now_ns);
/* A probe was answered as it should be.  True where it was open. */
bool weir_breaker_try(struct weir_breaker *b);

#endif
