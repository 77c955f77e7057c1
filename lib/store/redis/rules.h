/* rules.h - the rules database: what is sent to Redis to read and change it, and what comes back.
 *
 *     weir:{rules}                   hash: the number of the last change (version), and which
 *                                    database this is (id): it differs where one was begun anew
 *     weir:{rules}:domains           hash: domain -> version
 *     weir:{rules}:domain:NAME       hash: version, time, who, why, sha256, text
 *     weir:{rules}:history:NAME      stream: the same of the last 50 versions; its ids are those
 *
 * All in one hash slot, so that a change is one step in a Cluster too; a change takes the next
 * number for all domains that it touches.  One script does it all (lua/rules_db.lua), sent with
 * each call: changes are rare, and nodes that only look whether there was one send no script.
 *
 * Texts in entries are slices of the reply that they were read from, and good as long as it is.
 *
 * Purity: no clock, no I/O.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_STORE_REDIS_RULES_H
#define WEIR_STORE_REDIS_RULES_H

#include "store/redis/reply.h"

#define WEIR_RULES_DB_ID_LEN 32  /* digits of the database's id */
#define WEIR_RULES_DB_SHA_LEN 64 /* digits of a SHA-256 */

/* The state of the whole database. */
struct weir_redis_rules_head {
    uint64_t version; /* of the last change; 0: there never was one */
    char id[WEIR_RULES_DB_ID_LEN + 1];
};

/* One version of a domain's rules. */
struct weir_redis_rules_entry {
    uint64_t version;
    uint64_t time_s; /* Unix time, by Redis's clock */
    uint64_t bytes;  /* of the text, also where that was not asked for */
    bool is_deleted; /* this version deleted the domain */
    struct weir_str who, why, sha256, text;
};

/* What is to become of a domain. */
struct weir_redis_rules_change {
    struct weir_str domain;
    struct weir_str text;
    bool is_delete;
    bool has_replaces;
    uint64_t replaces; /* the version that must be there still; 0: none may be there */
};

/* What became of a change. */
enum weir_redis_rules_outcome {
    WEIR_REDIS_RULES_DONE,
    WEIR_REDIS_RULES_MOVED,    /* somebody has changed something since: check again */
    WEIR_REDIS_RULES_CONFLICT, /* a domain is not at the version that was to be replaced */
    WEIR_REDIS_RULES_ABSENT,   /* a domain that is to be deleted is not there */
};

struct weir_redis_rules_result {
    enum weir_redis_rules_outcome outcome;
    uint64_t version;                      /* done, moved: of the database */
    struct weir_str domain;                /* conflict, absent */
    struct weir_redis_rules_entry current; /* conflict: what is there */
};

/* From which version to which a domain went; the same where its rules were that already. */
struct weir_redis_rules_step {
    uint64_t before, after; /* before 0: it was not there */
};

/* Commands, each answered by what the function below it reads. */
void weir_redis_rules_put_head(struct weir_buf *out, struct weir_str prefix);
WEIR_MUST_CHECK int weir_redis_rules_read_head(const struct weir_redis_reader *reader,
                                               const struct weir_redis_node *nodes, uint32_t count,
                                               struct weir_redis_rules_head *head);

/* An array of names and versions, name after name. */
void weir_redis_rules_put_domains(struct weir_buf *out, struct weir_str prefix);

/* version 0: the current one. */
void weir_redis_rules_put_get(struct weir_buf *out, struct weir_str prefix, struct weir_str domain,
                              uint64_t version);
/* 1, 0 where there is none, or WEIR_ERR_STORE where it is none that weir has stored. */
WEIR_MUST_CHECK int weir_redis_rules_read_entry(const struct weir_redis_reader *reader,
                                                const struct weir_redis_node *nodes, uint32_t count,
                                                struct weir_redis_rules_entry *entry);
/* Whether the text is the one that was stored, by its SHA-256. */
bool weir_redis_rules_is_intact(const struct weir_redis_rules_entry *entry);

void weir_redis_rules_put_history(struct weir_buf *out, struct weir_str prefix,
                                  struct weir_str domain);
/* The entry at node *at, which moves on; begin with 1, behind the array.  As read_entry(). */
WEIR_MUST_CHECK int weir_redis_rules_next_entry(const struct weir_redis_reader *reader,
                                                const struct weir_redis_node *nodes, uint32_t count,
                                                uint32_t *at, struct weir_redis_rules_entry *entry);

/* Changes count domains at once.  last: the database as it was when the rules were checked; its id
 * becomes that of a database that is begun with this. */
void weir_redis_rules_put_change(struct weir_buf *out, struct weir_str prefix,
                                 const struct weir_redis_rules_head *last,
                                 const struct weir_redis_rules_change *changes, uint32_t count,
                                 struct weir_str who, struct weir_str why);
/* steps[count]: filled in where it is done. */
WEIR_MUST_CHECK int weir_redis_rules_read_result(const struct weir_redis_reader *reader,
                                                 const struct weir_redis_node *nodes,
                                                 uint32_t node_count,
                                                 struct weir_redis_rules_result *result,
                                                 struct weir_redis_rules_step *steps,
                                                 uint32_t count);

#endif
