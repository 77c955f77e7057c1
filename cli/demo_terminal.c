/* demo_terminal.c - `weir demo --terminal`: made-up traffic against real limits, live.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "demo.h"

#include "cli.h"

#include "algo/limit.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#define FRAME_NS (UINT64_C(150) * 1000000) /* slow enough to read, fast enough to be live */
#define SECONDS_UNWATCHED 5 /* where no terminal shows it and nobody presses Ctrl-C */

/* A signal handler can reach nothing but a global. */
static volatile sig_atomic_t is_interrupted;

static void interrupt(int number)
{
    (void)number;
    is_interrupted = 1;
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = interrupt}; /* no SA_RESTART: a sleep must end */
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static void sleep_until(struct weir *engine, uint64_t wake_ns)
{
    uint64_t now_ns = weir_now(engine);
    if (now_ns >= wake_ns)
        return;
    struct timespec left = {.tv_sec = (time_t)((wake_ns - now_ns) / WEIR_NS_PER_S),
                            .tv_nsec = (long)((wake_ns - now_ns) % WEIR_NS_PER_S)};
    nanosleep(&left, NULL); /* a signal may cut it short: the loop looks again */
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Turns until the time is over: requests when they are due, a frame at each FRAME_NS. */
static int play(struct weir *engine, struct weir_session *session, uint64_t duration_ns)
{
    struct demo_traffic traffic;
    struct demo_screen screen;
    struct demo_event event;
    uint64_t start_ns = weir_now(engine), frame_ns = 0, elapsed_ns = 0;
    int err = 0;
    demo_traffic_init(&traffic, session, start_ns);
    demo_screen_init(&screen);
    while (!is_interrupted && err == 0 && elapsed_ns < duration_ns && !ferror(stdout)) {
        uint64_t wake_ns = min_u64(demo_traffic_next(&traffic), frame_ns);
        sleep_until(engine, start_ns + min_u64(wake_ns, duration_ns));
        uint64_t now_ns = weir_now(engine);
        elapsed_ns = now_ns - start_ns;
        while (err == 0 && demo_traffic_next(&traffic) <= elapsed_ns) {
            err = demo_traffic_send(&traffic, now_ns, &event);
            if (err == 0)
                demo_screen_offer(&screen, &event);
        }
        if (frame_ns <= elapsed_ns) {
            int timeout_ms;
            if (weir_watch_step(engine, &timeout_ms) < 0)
                timeout_ms = 0; /* told through the log; the old rules go on */
            demo_screen_frame(&screen, engine, &traffic, elapsed_ns);
            frame_ns = elapsed_ns + FRAME_NS;
        }
    }
    if (err == 0)
        demo_screen_totals(&screen, engine, &traffic, elapsed_ns);
    demo_screen_fini(&screen);
    return err;
}

static int play_rules(const char *path, const char *table, uint64_t duration_ns)
{
    struct weir *engine;
    struct weir_session *session;
    struct weir_options options = {
        .rules_path = path,
        .table_path = table,
        .table_bytes = 8u << 20,
        .log = cli_log,
    };
    int err = weir_open(&engine, &options);
    if (err != 0)
        return err;
    err = weir_session_open(&session, engine);
    if (err == 0) {
        err = play(engine, session, duration_ns);
        weir_session_close(session);
    }
    weir_close(engine);
    return err;
}

int demo_terminal(const char *rules, const char *table, double seconds)
{
    if (seconds == 0 && isatty(STDOUT_FILENO) != 1)
        seconds = SECONDS_UNWATCHED;
    catch_signals();
    return play_rules(rules, table, seconds > 0 ? (uint64_t)(seconds * 1e9) : UINT64_MAX);
}
