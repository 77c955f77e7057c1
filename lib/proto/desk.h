/* desk.h - what is said between `weir serve` and a process on the same host that decides by itself
 * what it can, and asks for the rest: nginx with our module (weir.h, struct weir_desk).
 *
 *     asks:     HELLO  OWE CHECK CHECK REFILL CHECK ... SPENT GIVE RENEW
 *     service:  WELCOME      DECISION  DECISION FAULT ...   RENEWED
 *
 * A frame is | bytes 4 | kind 1 | 0 3 | id 8 | body |, numbers with the least significant byte
 * first, texts behind their length in 2 bytes.  `bytes` counts the whole frame.  Answers bear the
 * id of their question and come in any order; OWE, REFILL, SPENT and GIVE have none.  Who meets a
 * frame that it does not understand closes the connection: both sides are of one version, or do
 * not talk.
 *
 * The bodies are what the structs below have, in their order.
 *
 * Purity: no clock, no I/O; writes to a bounded buffer.  Threads: any, each with its own memory.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PROTO_DESK_H
#define WEIR_PROTO_DESK_H

#include "base/buf.h"
#include "base/maxima.h"

#include <weir/weir.h>

#define WEIR_DESK_VERSION 1u
#define WEIR_DESK_FRAME_MAX (1u << 20) /* bytes */

enum weir_desk_kind {
    WEIR_DESK_HELLO = 1,
    WEIR_DESK_WELCOME = 2,
    WEIR_DESK_CHECK = 3,
    WEIR_DESK_REFILL = 4, /* as CHECK: takes nothing, but more should be leased of it */
    WEIR_DESK_DECISION = 5,
    WEIR_DESK_FAULT = 6,
    WEIR_DESK_GIVE = 7, /* a place of a ticket comes back */
    WEIR_DESK_RENEW = 8,
    WEIR_DESK_RENEWED = 9,
    WEIR_DESK_OWE = 10, /* a request that passed while nobody was there, so and so often */
    WEIR_DESK_SPENT = 11,
};

struct weir_desk_frame {
    enum weir_desk_kind kind;
    uint64_t id;
    struct weir_str body; /* a slice of what was read */
};

/* The next whole frame of *in, which is moved on behind it.  1; 0: there is none yet; or
 * WEIR_ERR_INVALID. */
WEIR_MUST_CHECK int weir_desk_next(struct weir_str *in, struct weir_desk_frame *out);

struct weir_desk_hello {
    uint32_t version;
    uint64_t table; /* which: no two have the same */
};

struct weir_desk_welcome {
    uint32_t version;
    uint64_t table;
    bool has_store;   /* else the table decides everything */
    bool has_leases;  /* of which there may be some in the table */
    uint64_t store;   /* what their names are mixed with */
    uint32_t nodes;   /* that share the store */
    uint8_t on_error; /* enum weir_on_store_error, of rules that do not say */
};

struct weir_desk_owed {
    uint32_t times;
    uint64_t since_ns; /* when it passed last, by the table's clock */
};

/* What was decided by tokens, and by refusals that are remembered, since this was said last. */
struct weir_desk_spent {
    uint64_t leased, tokens, refused; /* descriptors, but for the tokens */
};

/* What a store knows a place of a ticket by. */
struct weir_desk_place {
    uint8_t op; /* enum weir_op: what gives it back */
    struct weir_str name;
    uint64_t hits;
    struct weir_place place;
};

/* Memory of what is read.  Large: not for the stack. */
struct weir_desk_room {
    struct weir_descriptor descriptors[WEIR_DESCRIPTORS_MAX];
    struct weir_override overrides[WEIR_DESCRIPTORS_MAX];
    struct weir_entry entries[WEIR_DESCRIPTORS_MAX * WEIR_ENTRIES_MAX];
};

struct weir_desk_told {
    uint32_t nodes;
    struct weir_decision decision; /* of the statuses below */
    struct weir_status statuses[WEIR_DESCRIPTORS_MAX];
    struct weir_rule_info rules[WEIR_DESCRIPTORS_MAX];
};

/* Each adds a frame.  What does not fit is not there afterwards, and the result is false. */
bool weir_desk_put_hello(struct weir_buf *out, const struct weir_desk_hello *hello);
bool weir_desk_put_welcome(struct weir_buf *out, const struct weir_desk_welcome *welcome);
bool weir_desk_put_check(struct weir_buf *out, enum weir_desk_kind kind, uint64_t id,
                         const struct weir_request *request);
bool weir_desk_put_owe(struct weir_buf *out, const struct weir_desk_owed *owed,
                       const struct weir_request *request);
#define WEIR_DESK_OWE_SKIPPED 28u /* bytes of its frame before the request */
/* It has passed again, at since_ns: frame is one that put_owe() wrote. */
void weir_desk_owe_again(char *frame, uint64_t since_ns);
bool weir_desk_put_spent(struct weir_buf *out, const struct weir_desk_spent *spent);
bool weir_desk_put_decision(struct weir_buf *out, uint64_t id, uint32_t nodes,
                            const struct weir_decision *decision);
bool weir_desk_put_fault(struct weir_buf *out, uint64_t id, int err);
/* kind: GIVE or RENEW. */
bool weir_desk_put_place(struct weir_buf *out, enum weir_desk_kind kind, uint64_t id,
                         const struct weir_desk_place *place);
bool weir_desk_put_renewed(struct weir_buf *out, uint64_t id, int err, uint64_t mark);

/* Each reads a body.  0, or WEIR_ERR_INVALID.  Texts are slices of it. */
WEIR_MUST_CHECK int weir_desk_read_hello(struct weir_str body, struct weir_desk_hello *out);
WEIR_MUST_CHECK int weir_desk_read_welcome(struct weir_str body, struct weir_desk_welcome *out);
WEIR_MUST_CHECK int weir_desk_read_check(struct weir_str body, struct weir_desk_room *room,
                                         struct weir_request *out);
WEIR_MUST_CHECK int weir_desk_read_owe(struct weir_str body, struct weir_desk_room *room,
                                       struct weir_desk_owed *owed, struct weir_request *request);
WEIR_MUST_CHECK int weir_desk_read_spent(struct weir_str body, struct weir_desk_spent *out);
WEIR_MUST_CHECK int weir_desk_read_decision(struct weir_str body, struct weir_desk_told *out);
WEIR_MUST_CHECK int weir_desk_read_fault(struct weir_str body, int *err);
WEIR_MUST_CHECK int weir_desk_read_place(struct weir_str body, struct weir_desk_place *out);
WEIR_MUST_CHECK int weir_desk_read_renewed(struct weir_str body, int *err, uint64_t *mark);

/* ---- what a ticket says of a store: its `away`, for each place one of these ---- */

void weir_desk_put_away(struct weir_buf *out, uint8_t op, struct weir_str name);
/* The next one; false: there is none. */
bool weir_desk_next_away(struct weir_str *away, uint8_t *op, struct weir_str *name);

#endif
