/* resp_session.h - what a connection over RESP is, between front_resp.c and resp_commands.c.
 *
 * Commands that limit are collected and decided together; all others are answered one by one, after
 * those that came before them.
 *
 * Threads: the connection's loop's own.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_RESP_SESSION_H
#define WEIR_SERVE_RESP_SESSION_H

#include "proto/resp.h"
#include "serve/service.h"

#include <assert.h>

#define WEIR_RESP_NAME_MAX 64     /* bytes of CLIENT SETNAME */
#define WEIR_RESP_GUESSES_MAX 8   /* wrong passwords, then the connection ends */
#define WEIR_RESP_REPLY_MAX 16384 /* the longest reply: an echo, or COMMAND */

static_assert(WEIR_RESP_REPLY_MAX > WEIR_RESP_BULK_MAX + 64, "an echo fits");

struct weir_resp_wait; /* serve/resp_wait.h */

struct weir_resp_session {
    struct weir_conn *conn;
    struct weir_worker *worker;
    struct weir_resp resp;
    uint64_t id;
    int version;     /* 2 or 3 */
    bool has_obeyed; /* a whole command has come */
    bool is_alive;   /* net knows that the peer is sensible */
    bool is_trusted; /* has said the password, or none is needed */
    bool is_ending;
    uint32_t guesses;
    struct weir_resp_wait *wait; /* NULL: nothing has waited yet */
    size_t name_len;
    char name[WEIR_RESP_NAME_MAX];
};

struct weir_resp_call {
    struct weir_resp_session *session;
    const struct weir_resp_command *command;
    struct weir_text *out; /* has room for WEIR_RESP_REPLY_MAX */
};

enum weir_resp_dialect { WEIR_RESP_NO_THROTTLE, WEIR_RESP_CELL, WEIR_RESP_CRAB };

/* Whether the command is one that limits: those are not for obey(). */
enum weir_resp_dialect weir_resp_dialect_of(struct weir_str name);

/* Answers any command, the unknown ones too. */
void weir_resp_obey(struct weir_resp_call *call);

#define WEIR_RESP_THROTTLED_MAX 128 /* "*5" and five numbers, or an error */

/* front_resp.c, for resp_wait.c.  result: of weir_throttle(). */
void weir_resp_put_throttled(struct weir_text *out, enum weir_resp_dialect dialect, int result,
                             const struct weir_throttled *throttled);
int weir_front_resp_feed(void *session, const uint8_t *bytes, size_t len);

/* Whether the connection must say a password first. */
bool weir_resp_needs_password(const struct weir_resp_session *session);

static inline bool weir_resp_is(struct weir_str word, const char *lower)
{
    size_t i = 0;
    for (; i < word.len && lower[i] != '\0'; i++) {
        char c = word.ptr[i];
        if ((c >= 'A' && c <= 'Z' ? (char)(c | 32) : c) != lower[i])
            return false;
    }
    return i == word.len && lower[i] == '\0';
}

#endif
