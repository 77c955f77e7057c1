/* admin_key.h - which key a call of the admin API means: ?domain=D&KEY=VALUE...
 *
 * Threads: the connection's.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVE_ADMIN_KEY_H
#define WEIR_SERVE_ADMIN_KEY_H

#include "serve/admin.h"

/* A request of one descriptor, its entries in the order of the query. */
struct weir_admin_key {
    struct weir_request request;
    struct weir_descriptor descriptor;
    struct weir_entry entries[WEIR_ENTRIES_MAX];
    char decoded[WEIR_HTTP1_TARGET_MAX];
};

/* False: the answer says what is wrong. */
WEIR_MUST_CHECK bool weir_admin_key_read(struct weir_admin_call *call, struct weir_admin_key *key);

/* Makes a request one that only looks. */
void weir_admin_no_hits(const struct weir_request *request, struct weir_descriptor *descriptors);

/* Tells the audit of a change to a key.  before, after: NULL where there is nothing to say. */
void weir_admin_note(const struct weir_admin_call *call, const char *what,
                     const struct weir_admin_key *key, const char *before, const char *after);

/* ,"domain":"D","entries":[...] and where words are missing ,"cut":true */
void weir_admin_put_words(struct weir_buf *to, const struct weir_key_words *words);

#endif
