/* demo.c - `weir demo`: made-up traffic against real limits, live in the terminal.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "demo.h"

#include "cli.h"

#include "algo/limit.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FRAME_NS (UINT64_C(150) * 1000000) /* slow enough to read, fast enough to be live */
#define SECONDS_UNWATCHED 5 /* where no terminal shows it and nobody presses Ctrl-C */

struct settings {
    const char *rules;
    const char *table;
    double seconds; /* 0: until Ctrl-C */
};

/* The rules as a file of our own, since an engine reads rules from files. */
struct rules_file {
    char folder[64];
    char path[96];
};

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

static int write_rules(struct rules_file *out)
{
    const char *tmp = getenv("TMPDIR");
    struct rules_file file;
    int len = snprintf(file.folder, sizeof(file.folder), "%s/weir-demo-XXXXXX",
                       tmp != NULL ? tmp : "/tmp");
    if (len < 0 || (size_t)len >= sizeof(file.folder)) /* a very long TMPDIR */
        snprintf(file.folder, sizeof(file.folder), "/tmp/weir-demo-XXXXXX");
    if (mkdtemp(file.folder) == NULL)
        return WEIR_ERR_IO;
    snprintf(file.path, sizeof(file.path), "%s/demo.yaml", file.folder);
    *out = file;
    FILE *to = fopen(file.path, "w");
    if (to == NULL)
        return WEIR_ERR_IO;
    fputs(cli_demo_rules, to);
    return fclose(to) == 0 ? 0 : WEIR_ERR_IO;
}

static void remove_rules(const struct rules_file *file)
{
    if (file->folder[0] == '\0')
        return;
    unlink(file->path);
    rmdir(file->folder);
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

static enum cli_exit run(const void *settings, const struct cli_operands *operands)
{
    const struct settings *set = settings;
    struct rules_file file = {.folder = ""};
    const char *path = set->rules;
    int err = 0;
    (void)operands;
    double seconds = set->seconds;
    if (seconds == 0 && isatty(STDOUT_FILENO) != 1)
        seconds = SECONDS_UNWATCHED;
    catch_signals();
    if (path == NULL) {
        err = write_rules(&file);
        path = file.path;
        if (err != 0)
            cli_complain("demo: cannot write its rules: %s", strerror(errno));
    }
    if (err == 0) {
        err = play_rules(path, set->table, seconds > 0 ? (uint64_t)(seconds * 1e9) : UINT64_MAX);
        if (err != 0)
            cli_complain("demo: %s", weir_strerror(err));
    }
    remove_rules(&file);
    return cli_exit_of(err);
}

static const struct cli_option options[] = {
    CLI_OPTION(CLI_SECONDS, seconds, "N",
               "stop by itself; until Ctrl-C if not given (5 where the output is no terminal)"),
    CLI_OPTION(CLI_TEXT, rules, "PATH",
               "a copy of examples/rules/demo.yaml; what you change there takes effect at once"),
    CLI_OPTION(CLI_TEXT, table, "PATH",
               "count in this file, for 'weir table stat' beside it; private if not given"),
};

const struct cli_command cli_command_demo = {
    .name = "demo",
    .operands = "",
    .summary = "a live demonstration in the terminal",
    .about = "Eight users, steady, bursty and abusive, meet one limit of each algorithm.\n"
             "Above, some of the decisions as they are made; below, totals for each rule.\n",
    .options = options,
    .option_count = CLI_COUNT_OF(options),
    .defaults = &(const struct settings){.seconds = 0},
    .settings_len = sizeof(struct settings),
    .run = run,
};
