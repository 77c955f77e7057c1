/* recall.h - an HTTP request that answers as the last one did has its plan already.
 *
 * A client's requests come in a row, and where all clients share a counter all requests are alike.
 * What the rules' shapes asked of the last request, and what it answered, is kept; the next one is
 * asked the same again.  Where it answers the same it has the same descriptors, rules and counters,
 * and they lie in the session, planned: nothing is matched and nothing hashed.
 *
 *     1st   described, planned, charged
 *     2nd   the same; and it met the 1st's counters, so the next one is listened to
 *     3rd   described while its answers are noted, planned, charged
 *     4th   asked what the 3rd was asked; charged
 *
 * So those who come once pay for one comparison.  What is asked depends on the rules and on the
 * answers before it, hence equal answers are the end of it.
 *
 * Where each client has a counter, most requests differ in what names it and in nothing else.  If
 * that is the value of a bare key the rules do not look at it: then the plan is good for any other
 * value, once its counters have their new names.  Of such requests the 3rd is listened to as soon
 * as two in a row met one rule.
 *
 * Not for requests decided in two stages (there the caller has a say in what is asked), and not
 * while some key has a limit of its own for a while, which changes plans.
 *
 * Threads: the session's own.  Allocation: none.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_RECALL_H
#define WEIR_ENGINE_RECALL_H

#include "base/hash.h"
#include "store/there.h"

#include <stdbool.h>
#include <weir/weir.h>

#define WEIR_RECALL_ANSWERS 16 /* more than that, or more bytes, are not kept */
#define WEIR_RECALL_BYTES 1024u

struct weir_answer {
    struct weir_str key, value; /* in the recall's bytes */
    bool is_there;
};

/* One answer, as most requests are asked for, is compared in two cache lines: that of the answer,
 * and that of its words. */
struct weir_recall {
    _Alignas(64) uint32_t count;
    bool has_hits;         /* as in struct weir_http */
    bool is_sole;          /* no domain was named */
    uint8_t named;         /* the answer that may be another; WEIR_RECALL_ANSWERS: none */
    struct weir_str value; /* that was answered last */
    struct weir_answer answers[WEIR_RECALL_ANSWERS];
    uint64_t hits;
    _Alignas(64) char bytes[WEIR_RECALL_BYTES];
    /* What may be another makes an entry of the plan's only descriptor: its last. */
    struct weir_entry *entry;
    struct weir_str key;    /* of that entry */
    struct weir_sip before; /* the hash of those before it (identity.h) */
    uint64_t known;         /* lengths of which it may not be: see weir_rule_takes_any() */
    bool is_address;        /* of a client */
    bool has_all;           /* answers */
    bool is_repeated;       /* met the counters that the one before it met */
    uint32_t used;
    uint64_t sum;                  /* over the counters that the last request met; 0: none */
    const struct weir_rule *rule;  /* that it met; for comparison only */
    const struct weir_http *heard; /* whose answers are noted: while it is described */
};

#define WEIR_SWIFT_ADDRESS_MAX 16 /* bytes: all of IPv4, and few others */

/* Where all that was met is one token bucket, what deciding it again needs lies here: in two cache
 * lines, and beside what is compared.  Else it would be gathered from seven, some of which are only
 * found through others.  See weir_check_http_again(). */
struct weir_swift {
    _Alignas(64) union weir_u16b *slot; /* where the bucket was met; NULL: not known */
    uint64_t mark;                      /* what is in it then (store/there.h) */
    uint64_t hits;
    uint64_t *within;                  /* what counts them, where the limit is not near */
    const struct weir_rule_info *rule; /* or NULL */
    uint64_t generation;               /* of the rules */
    bool is_ready;                     /* false: something else was met */
    bool by_address;                   /* and the client's is the only answer, of one hit */
    bool is_timed;                     /* the toll says all */
    _Alignas(64) struct weir_toll toll;
    uint64_t step_ns;
    uint64_t calm_ns; /* they are not near the limit if less than that is in use */
    uint64_t tag;     /* for another key's bucket: the limit's */
    uint32_t places;
    uint8_t rate;
    uint8_t address_len; /* of the client's, by_address; 0: it is in the answers alone */
    char address[WEIR_SWIFT_ADDRESS_MAX];
};

/* What to describe instead of http: itself, or the same while it is listened to. */
struct weir_http weir_recall_listen(struct weir_session *s, const struct weir_http *http);

/* The answer that may be another is this one: makes the plan its.  False: it may not be this, and
 * nothing has changed. */
WEIR_MUST_CHECK bool weir_recall_rename(struct weir_session *s, struct weir_str value);

/* It was planned and charged: whether it can be recalled, and whether to listen to the next. */
void weir_recall_note(struct weir_session *s, uint64_t now_ns);

#endif
