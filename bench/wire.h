/* wire.h - how a client asks over each protocol, and finds the answers among the bytes that come.
 *
 * For load generators: nothing is allocated, and no more is understood than what the answer was.
 * Whoever uses it has the sockets and the clock.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_WIRE_H
#define BENCH_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_OPEN_MAX 512u     /* questions open on a connection */
#define WIRE_QUESTION_MAX 2048 /* bytes of one */
#define WIRE_ENTRIES_MAX 2
#define WIRE_LINE_MAX 128 /* of an answer's text that is looked at */

/* As a history has them. */
enum wire_verdict { WIRE_OPEN, WIRE_OK, WIRE_OVER, WIRE_ERROR, WIRE_LOST };

struct wire_question {
    const char *domain;
    struct {
        const char *key, *value;
    } entries[WIRE_ENTRIES_MAX]; /* /check: the first value is the address of the client */
    uint32_t entry_count;
    uint32_t hits;
    const char *throttle[3]; /* RESP: most at once, and how many in how many seconds */
};

/* One connection. */
struct wire {
    uint32_t asked, answered; /* questions have numbers, from 0 */
    void (*answer)(struct wire *wire, uint32_t number, enum wire_verdict verdict);
    void (*send)(struct wire *wire, const uint8_t *bytes, size_t len); /* what a protocol says */

    /* ---- how far the reading is ---- */
    uint8_t frame[9];   /* gRPC: the head of a frame, as far as it has come, */
    uint32_t frame_len; /* so far, */
    uint32_t skip;      /* and how much of its payload, or of HTTP's body, is yet to come */
    uint8_t message[7]; /* the beginning of a payload: length and overall code */
    uint32_t message_len;
    uint8_t verdicts[WIRE_OPEN_MAX]; /* of the question number i, at i % WIRE_OPEN_MAX */
    char line[WIRE_LINE_MAX];        /* HTTP, RESP */
    uint32_t line_len;
    uint32_t lines;    /* of the answer, so far */
    uint32_t body_len; /* HTTP */
    enum wire_verdict verdict;
};

struct wire_protocol {
    const char *name;
    uint32_t open_max; /* questions that one connection should have open */
    size_t (*hello)(uint8_t *to);
    size_t (*ask)(uint8_t *to, uint32_t number, const struct wire_question *question);
    void (*read)(struct wire *wire, const uint8_t *bytes, size_t len);
};

/* grpc, json, check or resp; NULL: no such. */
const struct wire_protocol *wire_protocol_find(const char *name);

/* Writes the next question, at most WIRE_QUESTION_MAX bytes; returns how many. */
size_t wire_ask(struct wire *wire, const struct wire_protocol *protocol, uint8_t *to,
                const struct wire_question *question);

#endif
