/* weir.h - a rate limiter inside your program.
 *
 *     struct weir_options o = { .rules_path = "rules.yaml" };
 *     struct weir *w;
 *     struct weir_session *s;
 *     if (weir_open(&w, &o) || weir_session_open(&s, w)) ...
 *     weir_check(s, &request, weir_now(w), &decision);
 *
 * An engine (struct weir) is rules plus a table.  The table is a file in shared memory:
 * every process that opens the same path counts in the same place, and the counts outlive
 * all of them.  A decision makes no system call, takes no lock and allocates nothing.
 *
 * Threads: an engine may be used from any thread.  A session belongs to one thread at a
 *          time; open one for each.  weir_watch_step() may run beside checks, in one thread.
 * Time:    an argument, in nanoseconds since the Unix epoch.  Use weir_now(), which is one
 *          clock for all processes on the table and does not jump; read it once for each
 *          batch of work, not for each check.
 * Fork:    an engine may be opened before a fork() and used after it in every child; a session
 *          may not, and watching starts with the first weir_watch_fd() of a process.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_H
#define WEIR_H

#include <weir/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define WEIR_API __attribute__((visibility("default")))
#define WEIR_MUST_CHECK __attribute__((warn_unused_result))
#else
#define WEIR_API
#define WEIR_MUST_CHECK
#endif

struct weir;
struct weir_session;

enum weir_level { WEIR_LEVEL_ERROR, WEIR_LEVEL_WARNING, WEIR_LEVEL_INFO };

/* Called with one line of text without a newline; from weir_open() and weir_watch_...() only. */
typedef void (*weir_log_fn)(void *ctx, enum weir_level level, const char *line);

struct weir_options {
    const char *rules_path;  /* a file, or a directory of files; NULL: no rules, overrides only */
    const char *table_path;  /* NULL: a private table in memory, gone with the engine */
    uint64_t table_bytes;    /* size if the table is created here; 0: 64 MiB */
    bool merge_domains;      /* several files may speak of one domain */
    bool may_lack_rules;     /* open even if they are not valid: limits nothing until they are */
    bool fail_without_rules; /* until they are, checks fail with WEIR_ERR_NO_RULES instead */
    bool shadow_mode;        /* decide and count, but answer OK (global shadow mode) */
    bool quota_mode;         /* every limit is in quota mode */
    bool eventual;           /* limits that do not say are `consistency: eventual` (weir serve) */
    bool never_forks;        /* a table in memory is this process's alone: huge pages, if any */
    bool no_top_keys;        /* leave no words of keys in the table: see weir_top_each() */
    bool virtual_time;       /* now_ns is the truth, also where it goes back a little: for replays;
                             * otherwise up to two seconds are taken for a thread that is behind */
    float near_limit_ratio;  /* 0: 0.8 */
    weir_log_fn log;         /* NULL: silent */
    void *log_ctx;
};

/* Opens rules and table.  On failure *out is untouched, and what is wrong has gone to log:
 * every error of every rules file, one a line, `file:line:column: text`. */
WEIR_API WEIR_MUST_CHECK int weir_open(struct weir **out, const struct weir_options *options);
WEIR_API void weir_close(struct weir *w); /* sessions first */

WEIR_API WEIR_MUST_CHECK int weir_session_open(struct weir_session **out, struct weir *w);
WEIR_API void weir_session_close(struct weir_session *s);

/* The table's clock: one for all processes, never ahead of itself. */
WEIR_API uint64_t weir_now(struct weir *w);

/* Decides one request.  out->statuses must hold request->descriptor_count of them.
 * 0, or WEIR_ERR_DOMAIN_EMPTY, _DESCRIPTORS_EMPTY, _OVERRIDE_UNIT, _TOO_LARGE: nothing was
 * counted then. */
WEIR_API WEIR_MUST_CHECK int weir_check(struct weir_session *s, const struct weir_request *request,
                                        uint64_t now_ns, struct weir_decision *out);

/* How long an allowed request is to be held: as the limit says that asks for most. */
WEIR_API uint64_t weir_delay_ns(const struct weir_decision *decision);

/* Decides n requests, in order, as n calls of weir_check() would, but faster: memory is
 * fetched for many at once.  results[i] is what weir_check() would have returned. */
WEIR_API void weir_check_many(struct weir_session *s, const struct weir_request *requests, size_t n,
                              uint64_t now_ns, struct weir_decision *outs, int *results);

/* Gives back what a ticket stands for: concurrency slots, a leaky bucket's last place, hits of a
 * limit with count_if; the ticket is empty then.  Releasing an empty ticket, or slots after their
 * deadline, does nothing. */
WEIR_API void weir_release(struct weir_session *s, struct weir_ticket *ticket, uint64_t now_ns);

/* The answer to a request is known: its place in a queue was used, and hits are given back unless
 * their limit counts this HTTP status (0: nobody waited for it; they count then).  Slots stay in
 * the ticket, until it is released. */
WEIR_API void weir_settle(struct weir_session *s, struct weir_ticket *ticket, int http_status,
                          uint64_t now_ns);

/* Moves a concurrency ticket's deadline on, for requests that outlive it.  0, or
 * WEIR_ERR_NOT_FOUND where the slot has expired already. */
WEIR_API WEIR_MUST_CHECK int weir_renew(struct weir_session *s, struct weir_ticket *ticket,
                                        uint64_t now_ns);

/* Gives back the hits of a request that was charged: floors at unused, always succeeds.
 * The same as weir_check() with is_negative_hits on every descriptor. */
WEIR_API WEIR_MUST_CHECK int weir_refund(struct weir_session *s, const struct weir_request *request,
                                         uint64_t now_ns, struct weir_decision *out);

/* Decides by the limit that the caller brings, a token bucket: what redis-cell's CL.THROTTLE does.
 * 0, WEIR_ERR_INVALID where burst, count or period is 0, WEIR_ERR_TOO_LARGE where the key is longer
 * than a value may be or the bucket takes longer than 146 years to fill. */
WEIR_API WEIR_MUST_CHECK int weir_throttle(struct weir_session *s,
                                           const struct weir_throttle *throttle, uint64_t now_ns,
                                           struct weir_throttled *out);

/* As n calls in order would, but faster; results[i] is what weir_throttle() would have returned. */
WEIR_API void weir_throttle_many(struct weir_session *s, const struct weir_throttle *throttles,
                                 size_t n, uint64_t now_ns, struct weir_throttled *outs,
                                 int *results);

/* Forgets what the counters of a request have used: each begins anew, in one step.  *cleared: how
 * many there were.  Hits do not matter.  What the sketch of a full table remembers of a key stays
 * (its cells are shared), as do approximate counts.  0, or the errors of weir_check(). */
WEIR_API WEIR_MUST_CHECK int weir_reset(struct weir_session *s, const struct weir_request *request,
                                        uint32_t *cleared);
/* The same for a key of weir_throttle(); says whether there was anything. */
WEIR_API bool weir_throttle_reset(struct weir_session *s, struct weir_str key);

/* ---- HTTP: who sees a whole request, and not descriptors ---- */

/* Decides an HTTP request by the rules' own shapes: each chain of keys that ends in a limit is
 * looked up in the request, and those that it has are the descriptors.  out->statuses is the
 * session's, until its next call; there are none where no rule applies.  0, or
 * WEIR_ERR_NOT_FOUND (no such domain), _DOMAIN_EMPTY (several, and none is named), _TOO_LARGE, or
 * what the lookup returned: nothing was counted then. */
WEIR_API WEIR_MUST_CHECK int weir_check_http(struct weir_session *s, const struct weir_http *http,
                                             uint64_t now_ns, struct weir_decision *out);
/* One value of a query, decoded: a slice of query, or written to room.  1, 0 where there is none
 * of this name, or WEIR_ERR_TOO_LARGE where room does not suffice (query.len bytes do). */
WEIR_API WEIR_MUST_CHECK int weir_query_value(struct weir_str query, struct weir_str name,
                                              char *room, size_t room_len, struct weir_str *value);
/* One value of a Cookie header. */
WEIR_API bool weir_cookie_value(struct weir_str header, struct weir_str name,
                                struct weir_str *value);

/* Reads "legacy,ietf-11" and the like; "none" is no dialect.  0, or WEIR_ERR_INVALID. */
WEIR_API WEIR_MUST_CHECK int weir_dialects_read(struct weir_str text, uint32_t *dialects);

#define WEIR_HEADERS_LEN_MAX 3584 /* bytes of all headers */

/* Header lines, each ended by CRLF; returns their length.  dialects: enum weir_dialect, or'ed. */
WEIR_API size_t weir_headers(char to[WEIR_HEADERS_LEN_MAX], uint32_t dialects,
                             const struct weir_decision *decision, uint64_t now_ns);

/* The same for who sends its own lines, perhaps later, in two kinds: those that tell numbers, of
 * the limit that speaks for all, and those that are lists of all limits (ietf-11). */

/* What the numbers are made of; good for as long as it is kept, but for the rule's name. */
struct weir_told {
    bool is_limited; /* false: no limit applied, and there are no numbers */
    bool is_refused;
    bool foretell;   /* weir_check_http_soon() would be of use for the next request */
    bool by_address; /* and so would weir_check_address_again(): nothing else was asked for */
    uint64_t limit, remaining;
    uint64_t wait_s; /* seconds to wait, where the limit refused; else 0 */
    uint64_t reset_after_ns, now_ns;
    const struct weir_rule_info *rule; /* the session's, until its next call; or NULL */
    uint64_t generation;               /* of the rules that it is of; 0: not known */
};
WEIR_API void weir_headers_tell(struct weir_told *out, const struct weir_decision *decision,
                                uint64_t now_ns);

/* The quickest way, for a request that is like the one before it: where all that it meets is one
 * token bucket, which lets it pass.  True: it is decided and counted, and *out is what there is to
 * tell.  False: nothing was done; weir_check_http() decides. */
WEIR_API WEIR_MUST_CHECK bool weir_check_http_again(struct weir_session *s,
                                                    const struct weir_http *http, uint64_t now_ns,
                                                    struct weir_told *out);

/* The same where the client's address is all that the rules ask for, as it would be answered to
 * `remote_address`: of one hit, in the only domain, in one stage. */
WEIR_API WEIR_MUST_CHECK bool weir_check_address_again(struct weir_session *s,
                                                       struct weir_str address, uint64_t now_ns,
                                                       struct weir_told *out);

/* For who sees a request some time before it is to be decided: where they come with another key
 * each, and this one is like the one before it in all else, its counter is fetched meanwhile.  Says
 * whether it was.  A hint, and nothing else: it decides nothing and counts nothing. */
WEIR_API bool weir_check_http_soon(struct weir_session *s, const struct weir_http *http);

struct weir_header {
    struct weir_str name, value;
};
#define WEIR_NUMBERS_MAX 6       /* of these headers: a limit's three, and a refusal's */
#define WEIR_NUMBERS_LEN_MAX 112 /* bytes of all values */
#define WEIR_LISTS_MAX 2

/* What was told last, in digits.  Most requests meet the same limit, and of what remains of it the
 * last two digits change most: for who keeps this from one to the next, all else is written once.
 * Zeroed at first. */
struct weir_digits {
    uint64_t number;
    uint32_t len;
    char digits[20];
};
struct weir_told_last {
    struct weir_digits limit, hundreds; /* of what remains */
};

/* Names, which are ours, and values, which are in `values`.  Returns how many headers there are. */
WEIR_API uint32_t weir_headers_numbers(struct weir_header to[WEIR_NUMBERS_MAX],
                                       char values[WEIR_NUMBERS_LEN_MAX], uint32_t dialects,
                                       const struct weir_told *told, struct weir_told_last *last);

/* The quickest way to X-Ratelimit-Limit and X-Ratelimit-Remaining, and no others, of who was not
 * refused: lengths of their values, of which the second is WEIR_NUMBER_LEN bytes behind the first.
 * 0: not as it was told last, and weir_headers_numbers() tells it. */
#define WEIR_NUMBER_LEN 20
#define WEIR_HEADER_LIMIT "X-Ratelimit-Limit"
#define WEIR_HEADER_REMAINING "X-Ratelimit-Remaining"
struct weir_two {
    uint32_t limit_len, remaining_len;
};
WEIR_API struct weir_two weir_headers_two(char values[WEIR_NUMBERS_LEN_MAX], uint64_t limit,
                                          uint64_t remaining, const struct weir_told_last *last);
WEIR_API uint32_t weir_headers_lists(struct weir_header to[WEIR_LISTS_MAX],
                                     char values[WEIR_HEADERS_LEN_MAX], uint32_t dialects,
                                     const struct weir_decision *decision);

/* The body of a refusal: its length, 0 where `cap` bytes do not hold it.  *type: Content-Type. */
WEIR_API size_t weir_refusal(char *to, size_t cap, enum weir_refusal_body kind, int status,
                             const struct weir_decision *decision, struct weir_str *type);

/* ---- limits that many machines share ----
 *
 * `weir serve --store redis://... --desk unix:PATH` decides limits that hold over many machines.  A
 * process on the same host and table decides by itself what it can: limits of this host, and hot
 * keys, of which the service has leased tokens into the table.  For the rest it asks the service,
 * over a socket that is the caller's:
 *
 *     check() --> 0: decided             connected();  write output(), tell sent()
 *             --> WEIR_PENDING           feed() what is read; done() is called from there
 *                                        tick() now and then; closed()
 *
 * A desk is this end of the connection: no sockets, no waiting.  Nobody waits longer than
 * timeout_ms, and where the service is not there nobody waits at all: then each rule's
 * on_store_error says who decides.
 *
 * Threads: the session's.  Time: weir_now(), as everywhere. */
struct weir_desk;
struct weir_desk_entry;

struct weir_desk_options {
    uint32_t timeout_ms;  /* 0: 100 */
    uint32_t pending_max; /* questions that may be under way; 0: 1024 */
};

/* In memory of the caller's, which stays where it is until done() or cancel(). */
struct weir_desk_waiter {
    /* The decision is good until this returns.  NULL: nobody has answered; the caller asks again,
     * without a waiter. */
    void (*done)(struct weir_desk_waiter *waiter, struct weir_decision *decision);
    struct weir_desk_entry *entry; /* NULL: it waits for nothing */
};

#define WEIR_PENDING 1

/* The desk is the session's, and ends before it.  0, or WEIR_ERR_NOMEM. */
WEIR_API WEIR_MUST_CHECK int weir_desk_new(struct weir_desk **out, struct weir_session *s,
                                           const struct weir_desk_options *options);
WEIR_API void weir_desk_free(struct weir_desk *desk); /* nobody is told */

/* As weir_check() and weir_check_http(), or WEIR_PENDING: done() will be called, later and once.
 * waiter NULL: decided without the service, here and now. */
WEIR_API WEIR_MUST_CHECK int weir_desk_check(struct weir_desk *desk,
                                             const struct weir_request *request, uint64_t now_ns,
                                             struct weir_decision *out,
                                             struct weir_desk_waiter *waiter);
WEIR_API WEIR_MUST_CHECK int weir_desk_check_http(struct weir_desk *desk,
                                                  const struct weir_http *http, uint64_t now_ns,
                                                  struct weir_decision *out,
                                                  struct weir_desk_waiter *waiter);
/* done() will not be called; what the decision takes is given back.  Does nothing where it does not
 * wait. */
WEIR_API void weir_desk_cancel(struct weir_desk_waiter *waiter);

/* As weir_release() and weir_settle(), also for what a store has counted. */
WEIR_API void weir_desk_release(struct weir_desk *desk, struct weir_ticket *ticket,
                                uint64_t now_ns);
WEIR_API void weir_desk_settle(struct weir_desk *desk, struct weir_ticket *ticket, int http_status,
                               uint64_t now_ns);
/* As weir_renew(); a store's slots are renewed soon after it returns.  The ticket must stay where
 * it is until it is released. */
WEIR_API WEIR_MUST_CHECK int weir_desk_renew(struct weir_desk *desk, struct weir_ticket *ticket,
                                             uint64_t now_ns);

/* There is a connection: output() begins with a greeting. */
WEIR_API void weir_desk_connected(struct weir_desk *desk);
/* What is to be sent; good until the desk is used again.  So much of it has left. */
WEIR_API struct weir_str weir_desk_output(const struct weir_desk *desk);
WEIR_API void weir_desk_sent(struct weir_desk *desk, size_t len);
/* Bytes have come.  0, or WEIR_ERR_INVALID, _NOMEM: close the connection. */
WEIR_API WEIR_MUST_CHECK int weir_desk_feed(struct weir_desk *desk, const void *bytes, size_t len,
                                            uint64_t now_ns);
/* It is gone, or could not be made: who waits is told. */
WEIR_API void weir_desk_closed(struct weir_desk *desk);
/* Tells who has waited too long.  *wait_ns: when to look again; WEIR_NEVER: nobody waits.  0, or
 * WEIR_ERR_STORE_LATE: the service has said nothing for so long; close the connection. */
WEIR_API WEIR_MUST_CHECK int weir_desk_tick(struct weir_desk *desk, uint64_t now_ns,
                                            uint64_t *wait_ns);

/* Whether somebody waits, so that tick() must follow. */
WEIR_API bool weir_desk_is_waited_for(const struct weir_desk *desk);
/* Whether the service has greeted; whether it counts in the same table as we do. */
WEIR_API bool weir_desk_is_open(const struct weir_desk *desk, bool *is_same_table);

struct weir_desk_counts {
    uint64_t asked, leased, refused, alone; /* requests: by the service; by tokens; by a refusal
                                               that is remembered; by on_store_error */
};
WEIR_API void weir_desk_stats(const struct weir_desk *desk, struct weir_desk_counts *out);

/* Watching the rules: wait until the descriptor is readable or *timeout_ms has passed, then
 * step.  step() loads, compiles and publishes new rules; bad ones change nothing and are
 * logged.  It returns 1 where new rules were published, 0 where not, or an error. */
WEIR_API int weir_watch_fd(struct weir *w);
WEIR_API WEIR_MUST_CHECK int weir_watch_step(struct weir *w, int *timeout_ms);
/* A step by halves, for who must not wait: look() asks the file system, says whether there are new
 * rules, and is quick; load() does the rest, in another thread if need be. */
WEIR_API WEIR_MUST_CHECK bool weir_watch_look(struct weir *w, int *timeout_ms);
WEIR_API WEIR_MUST_CHECK int weir_watch_load(struct weir *w);

struct weir_rule_stats {
    struct weir_rule_info info; /* borrowed until the callback returns */
    uint64_t total_hits, over_limit, near_limit, within_limit, shadow_mode;
    uint64_t over_limit_by_sketch; /* refusals that the sketch gave, because the table was full */
    uint64_t total_negative_hits;  /* given back: is_negative_hits, or weir_refund() */
    uint32_t enforced_percent;     /* of its refusals: see weir_enforcement_set() */
};

struct weir_table_stats {
    uint64_t file_bytes, slots, slots_used, slots_live, evictions, insertions, sketch_answers;
    uint64_t extent_bytes, extent_bytes_used;
};

WEIR_API void weir_stats_rules(struct weir *w,
                               void (*each)(void *ctx, const struct weir_rule_stats *one),
                               void *ctx);
WEIR_API void weir_stats_table(struct weir *w, struct weir_table_stats *out);

/* ---- what an operator changes while everything runs ----
 *
 * Kept in the table: it holds for every process on it, from its next decision on, and outlives
 * reloads and restarts.  WEIR_ERR_UNSUPPORTED: the file was made by an older weir, which left no
 * room for this; weir-table(1) resizes it into a new one. */

/* The share of a rule's refusals that is enforced, in per cent: 0 is the kill switch, 100 as ever.
 * What is not enforced is decided, counted, and told as in shadow mode; who is spared follows from
 * the key, so that one client has one experience.  "other": all rules without statistics of their
 * own.  0, WEIR_ERR_NOT_FOUND, WEIR_ERR_INVALID, or WEIR_ERR_FULL where the rule is one of
 * "other". */
WEIR_API WEIR_MUST_CHECK int weir_enforcement_set(struct weir *w, struct weir_str rule_id,
                                                  uint32_t percent);
WEIR_API WEIR_MUST_CHECK int weir_enforcement_get(struct weir *w, struct weir_str rule_id,
                                                  uint32_t *percent);

/* Another limit for one key, for a while. */
struct weir_key_limit {
    uint32_t requests_per_unit; /* 0: blocked */
    bool is_unlimited;
    uint64_t until_ns; /* by weir_now() */
};

/* Gives the request's only descriptor this limit: its first counter that number, further ones of
 * its rule theirs in proportion.  What was used stays used, then and when it ends.  0, the errors
 * of weir_check(), WEIR_ERR_NOT_FOUND where no rule limits it, WEIR_ERR_TOO_LARGE where the
 * algorithm cannot count so far, WEIR_ERR_INVALID where until_ns has passed, WEIR_ERR_FULL. */
WEIR_API WEIR_MUST_CHECK int weir_key_limit_set(struct weir_session *s,
                                                const struct weir_request *request,
                                                const struct weir_key_limit *limit,
                                                uint64_t now_ns);
/* Takes it away before its time.  0, WEIR_ERR_NOT_FOUND, or the errors of weir_check(). */
WEIR_API WEIR_MUST_CHECK int weir_key_limit_drop(struct weir_session *s,
                                                 const struct weir_request *request,
                                                 uint64_t now_ns);

/* Borrowed until the callback returns. */
struct weir_key_limit_view {
    const struct weir_key_words *key;
    struct weir_str rule_id; /* empty: a rule that is not loaded here */
    struct weir_key_limit limit;
    uint64_t since_ns;
    uint32_t ordinal; /* which of the rule's counters; 0: the one that was asked for */
};
WEIR_API void weir_key_limit_each(struct weir *w, uint64_t now_ns,
                                  void (*each)(void *ctx, const struct weir_key_limit_view *one),
                                  void *ctx);

/* ---- who asks most ---- */

/* One of the busiest keys of the last minute, over all processes on the table.  Borrowed until the
 * callback returns.  Numbers are estimates: a busy process tells the table of some decisions
 * only. */
struct weir_top_key {
    const struct weir_key_words *key; /* of weir_throttle(): domain "CL.THROTTLE" */
    struct weir_str rule_id;          /* empty: none, or one that is not loaded here */
    uint64_t hits, over_limit;        /* in the last 60 seconds */
};
/* The busiest first, at most 256. */
WEIR_API void weir_top_each(struct weir *w, uint64_t now_ns,
                            void (*each)(void *ctx, const struct weir_top_key *one), void *ctx);

/* ---- who is attached ---- */

/* A process with an engine on the table.  One that is not seen for 45 seconds is gone. */
struct weir_process {
    uint64_t id;         /* drawn by chance: a pid may mean several, in containers */
    uint64_t pid;        /* in its own namespace */
    uint64_t generation; /* weir_rules_generation() there */
    uint64_t rules;      /* a sum over its rules: the same where the same ones are loaded */
    uint64_t started_ns, published_ns, seen_ns;
};
WEIR_API void weir_process_each(struct weir *w,
                                void (*each)(void *ctx, const struct weir_process *one), void *ctx);

/* How often rules have been published since weir_open(); 1 after it. */
WEIR_API uint64_t weir_rules_generation(struct weir *w);

WEIR_API const char *weir_strerror(int err);
WEIR_API const char *weir_version(void);

#ifdef __cplusplus
}
#endif
#endif
