/* demo.h - the parts of `weir demo`: an API with a gateway before it, or a show in the terminal.
 *
 * In the terminal the traffic is made up, and the limits are real: every request goes through
 * libweir on the clock of a private table.  Made-up users have a name, a habit, and one rule that
 * they are there to show.
 *
 * Threads: one.  SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_DEMO_H
#define WEIR_CLI_DEMO_H

#include "cli.h"

/* examples/rules/demo.yaml and terminal.yaml, embedded. */
extern const char cli_demo_rules[];
extern const char cli_terminal_rules[];

/* ---- demo_gateway.c ---- */

enum cli_exit demo_gateway(const char *rules, const char *table, double seconds);

/* ---- demo_api.c: what there is to limit ---- */

/* Serves at ctx, an address, and never returns. */
void demo_api(void *ctx);
/* The first port from `from` on at which one can listen on 127.0.0.1; 0: there is none. */
uint32_t demo_free_port(uint32_t from);

/* ---- demo_terminal.c ---- */

WEIR_MUST_CHECK int demo_terminal(const char *rules, const char *table, double seconds);

/* ---- demo_traffic.c ---- */

#define DEMO_USERS 8
#define DEMO_HELD_MAX 16 /* tickets of reports that still run */

/* One decision, ready to be shown.  Strings live as long as the program. */
struct demo_event {
    uint64_t at_ns; /* since the start */
    uint32_t user;  /* a number below DEMO_USERS */
    const char *user_name;
    const char *what;          /* the key of the descriptor: "search" */
    bool is_by_everyone;       /* refused, and by the limit on all requests together */
    struct weir_status status; /* of the descriptor that decided; rule is not valid any more */
};

struct demo_traffic {
    struct weir_session *session;
    uint64_t start_ns;
    uint64_t random;
    uint64_t next_ns[DEMO_USERS]; /* when each sends again, since the start */
    uint32_t burst_left[DEMO_USERS];
    struct weir_ticket held[DEMO_HELD_MAX];
    uint64_t held_until_ns[DEMO_HELD_MAX]; /* 0: free */
    uint64_t requests, refused, delayed;
};

void demo_traffic_init(struct demo_traffic *traffic, struct weir_session *session,
                       uint64_t start_ns);
/* When the next request is due, since the start. */
uint64_t demo_traffic_next(const struct demo_traffic *traffic);
/* Sends it.  0, or an error of weir_check(). */
WEIR_MUST_CHECK int demo_traffic_send(struct demo_traffic *traffic, uint64_t now_ns,
                                      struct demo_event *out);

/* ---- demo_screen.c ---- */

#define DEMO_STREAM_LINES 9

struct demo_screen {
    bool is_tty, has_color;
    uint32_t drawn_lines;                        /* of the last frame, to be drawn over */
    uint64_t shown_by_user[DEMO_USERS];          /* so that everybody is seen */
    struct demo_event stream[DEMO_STREAM_LINES]; /* the latest last */
    uint32_t stream_count;
    struct demo_event candidate; /* the best to show next */
    bool has_candidate;
};

void demo_screen_init(struct demo_screen *screen);
/* Takes an event in; of those between two frames one is shown. */
void demo_screen_offer(struct demo_screen *screen, const struct demo_event *event);
/* A terminal is drawn over; elsewhere the one new line is printed. */
void demo_screen_frame(struct demo_screen *screen, struct weir *engine,
                       const struct demo_traffic *traffic, uint64_t elapsed_ns);
void demo_screen_totals(struct demo_screen *screen, struct weir *engine,
                        const struct demo_traffic *traffic, uint64_t elapsed_ns);
void demo_screen_fini(struct demo_screen *screen);

#endif
