/* maxima.h - every bound that input meets, by name.  Each has a test at max and at max + 1.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_MAXIMA_H
#define WEIR_BASE_MAXIMA_H

#define WEIR_DESCRIPTORS_MAX 64     /* in one request */
#define WEIR_ENTRIES_MAX 32         /* in one descriptor; also the depth of the rules tree */
#define WEIR_KEY_LEN_MAX 256        /* bytes of an entry's key */
#define WEIR_VALUE_LEN_MAX 4096     /* bytes of an entry's value: hashed, never cut */
#define WEIR_DOMAIN_LEN_MAX 256     /* bytes of a domain's name */
#define WEIR_LIMITS_MAX 8           /* counters of one rule: its limits times its prefix tiers */
#define WEIR_WINDOWS_MAX 64         /* distinct window lengths in one table */
#define WEIR_WILDCARDS_MAX 256      /* at one level of the rules tree */
#define WEIR_REGEXES_MAX 64         /* at one level of the rules tree */
#define WEIR_PATH_SEGMENTS_MAX 64   /* of a path pattern */
#define WEIR_METADATA_LEN_MAX 65536 /* bytes of a rule's metadata, as JSON */
#define WEIR_SHAPES_MAX 64          /* in one domain */
#define WEIR_RULES_FILE_MAX (64u << 20) /* bytes of one rules file */
#define WEIR_RULES_FILES_MAX 4096       /* files in one rules directory */
#define WEIR_RULES_MAX 1000000          /* rules in one set */
#define WEIR_YAML_DEPTH_MAX 100         /* nesting of a rules file */
#define WEIR_YAML_NODES_MAX 20000000    /* after anchors are followed: no billion laughs */
#define WEIR_REPORT_MAX 100             /* errors printed of one load; the rest are counted */

#define WEIR_STATS_RULES_MAX 4096 /* rules with counters of their own; the rest share one */
#define WEIR_VALUE_STATS_MAX 1024 /* names of detailed_metric and value_to_metric in a process */
#define WEIR_VALUE_NAME_MAX 256   /* bytes of such a name */

#define WEIR_KEY_OVERRIDES_MAX 1024 /* counters of a table with a number of their own */
#define WEIR_TOP_KEYS_MAX 256       /* busy keys that a table lists */
#define WEIR_PROCESSES_MAX 64       /* attached processes that a table lists */

#define WEIR_LOG_LIMIT_MAX 1000000       /* entries of a sliding_window_log */
#define WEIR_CONCURRENCY_LIMIT_MAX 16383 /* slots of a concurrency limit */
#define WEIR_BUCKETS_MAX 64              /* sub-windows of a sliding_window_counter */

#define WEIR_HTTP1_HEAD_MAX 16384         /* bytes of request line and headers: else 431 */
#define WEIR_HTTP1_TARGET_MAX 8192        /* bytes of a request target: else 414 */
#define WEIR_HTTP1_HEADERS_MAX 64         /* header lines of a request: else 431 */
#define WEIR_HTTP1_BODY_MAX (1u << 20)    /* bytes of a body: else 413 */
#define WEIR_HTTP1_BEHIND_MAX (64u << 10) /* bytes sent behind a request whose answer waits */
#define WEIR_HTTP1_CODED_MAX (2u << 20)   /* bytes of a chunked body with its framing: else 413 */

#define WEIR_RESP_ARGS_MAX 64       /* arguments of a command over RESP, its name included */
#define WEIR_RESP_BULK_MAX 8192     /* bytes of one of them */
#define WEIR_RESP_COMMAND_MAX 32768 /* bytes of all of them */
#define WEIR_RESP_INLINE_MAX 4096   /* bytes of an inline command */

#define WEIR_REDIS_HOSTS_MAX 64    /* in the address of a store */
#define WEIR_REDIS_SERVERS_MAX 256 /* of a Cluster, replicas included */
#define WEIR_REDIS_SECRET_MAX 512  /* bytes of a user or a password in it */
#define WEIR_REDIS_NAME_MAX 192    /* bytes of a descriptor in a key; longer ones are hashed */
#define WEIR_REDIS_PEERS_MAX 256   /* nodes that tell of a key; those beyond are taken as one */
#define WEIR_REDIS_NODES_MAX 65536 /* things in one reply */
#define WEIR_REDIS_UNREAD_MAX (8u << 20) /* bytes of replies that are not whole yet */

#define WEIR_RULES_DB_TEXT_MAX (4u << 20) /* bytes of one domain's rules in a rules database */
#define WEIR_RULES_DB_SET_MAX (64u << 20) /* of all of them together */
#define WEIR_RULES_DB_WORDS_MAX 1024      /* bytes of who made a change, and of why */

#endif
